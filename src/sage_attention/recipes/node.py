"""Node classification from files to a folder of results: what ``sage-attention train`` and ``demo`` run."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import platform
import time
import zlib
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

import sage_attention
from sage_attention import _native
from sage_attention._paths import shown_path
from sage_attention.errors import ArgumentError, DataError, MissingDependencyError, SageAttentionError
from sage_attention.graph import Graph
from sage_attention.inference import CONFIG_FILE, MODEL_FILE, ModelConfig, degree_features, normalized, softmax
from sage_attention.recipes import output
from sage_attention.recipes.checkpoint import CHECKPOINT_FILE, load_checkpoint, save_checkpoint
from sage_attention.recipes.interrupts import undisturbed
from sage_attention.recipes.memory import peak_rss_mb
from sage_attention.recipes.predictions import write_predictions
from sage_attention.recipes.progress import Progress
from sage_attention.recipes.report import RunSummary, write_report
from sage_attention.recipes.trainer import Trainer, TrainingOptions, TrainingState

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sage_attention.recipes.node_dataset import NodeDataset

__all__ = ["Interrupted", "RunResult", "train_node_classifier"]

_DEGREE_FEATURES = 32
_FINGERPRINT_BYTES = 1 << 26
_SECONDS_BETWEEN_CHECKPOINTS = 60.0


class Interrupted(KeyboardInterrupt):
    """Training was stopped by Ctrl-C; ``path`` is the checkpoint, None if no epoch was done yet."""

    def __init__(self, path: Path | None, epoch: int) -> None:
        self.path = path
        self.epoch = epoch
        if path is None:
            super().__init__("interrupted before the first epoch was done; nothing was written")
        else:
            super().__init__(
                f"interrupted after epoch {epoch}; go on with the same command and --resume ({shown_path(path)})"
            )


@dataclass(frozen=True)
class RunResult:
    """What a training run gave.

    Attributes:
        folder: Where everything was written.
        metrics: What ``metrics.json`` holds.
    """

    folder: Path
    metrics: dict[str, Any]


def simple_graph(data: NodeDataset) -> Graph:
    """The data set's edges without self loops; attention puts one at every node itself."""
    edges = data.edge_index
    return Graph.from_edge_index(edges[:, edges[0] != edges[1]], data.num_nodes)


def _fingerprint(data: NodeDataset, features: Any) -> int:
    """A number that changes with the data, so that no run resumes on another graph."""
    check = 0
    parts = [data.edge_index, data.labels, data.train, data.val, data.test]
    parts += [features.indptr, features.indices, features.data] if hasattr(features, "indptr") else [features]
    for part in parts:
        rows = np.ascontiguousarray(part).view(np.uint8).reshape(-1)
        for start in range(0, len(rows), _FINGERPRINT_BYTES):  # Ctrl-C has to wait for one piece, not for all
            check = zlib.crc32(rows[start : start + _FINGERPRINT_BYTES].data, check)
    return check


def _check_writers() -> None:
    """Looks now, and not after the training, for the packages that write its results."""
    for package in ("safetensors", "pyarrow"):
        if importlib.util.find_spec(package) is None:
            raise MissingDependencyError(package, "writing the results of a training run", "train")


def versions() -> dict[str, str]:
    """Versions of what a result depends on."""
    import torch

    return {
        "sage_attention": sage_attention.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": torch.__version__,
        "platform": platform.platform(),
        "cpu_level": _native.cpu_level(),
    }


def train_node_classifier(
    data: NodeDataset,
    folder: str | Path,
    config: ModelConfig,
    options: TrainingOptions,
    *,
    title: str = "Node classification",
    command: str = "",
    data_files: dict[str, int] | None = None,
    notes: tuple[str, ...] = (),
    resume: bool = False,
    quiet: bool = False,
) -> RunResult:
    """Trains, evaluates and writes everything.

    Args:
        data: The data set.
        folder: Where to write ``model.safetensors``, ``config.json``, ``predictions.parquet``, ``embeddings.npy``,
            ``metrics.json`` and ``report.html``.
        config: What the model is; its number of features and class names are taken from `data`.
        options: How to train.
        title: Headline of the report.
        command: The command line, for the report.
        data_files: Size in bytes of each file read, for the report.
        notes: Remarks for the report.
        resume: Go on from the checkpoint in `folder`.
        quiet: Print nothing.

    Returns:
        The metrics and where all is.

    Raises:
        DataError: The data cannot be trained on, or there is nothing to resume.
        Interrupted: Ctrl-C; a checkpoint was written.
        MissingDependencyError: A package that writes the results is not installed.
        SageAttentionError: Something cannot be written. What was learnt is kept in a checkpoint if that can.
    """
    _check_writers()
    if len(data.train) == 0:
        raise DataError(None, "labelled nodes to train on", "none", hint="give labels for more nodes")
    out = output.prepare_output_folder(folder, resume=resume)
    graph = simple_graph(data)
    features = data.features
    if features is None:
        config = replace(config, features="degree")
        features = degree_features(graph.in_degrees, _DEGREE_FEATURES)
        notes = (*notes, "No features were given: the model sees how many neighbours each node has, and nothing else.")
    config = replace(config, num_features=int(features.shape[1]), class_names=list(data.class_names))
    trainer = Trainer(config, options, data, graph, normalized(features, config.normalize))
    run: dict[str, Any] = {**config.to_json(), **asdict(options), "data": _fingerprint(data, features)}
    run = {name: list(value) if isinstance(value, tuple) else value for name, value in run.items()}
    for changeable in ("num_threads", "epochs", "patience"):
        run.pop(changeable)
    if resume:
        _restore(trainer, out, run)
    with _kept(trainer, out, run):
        _train(trainer, out, run, quiet)
        result = _write_results(trainer, out, data, graph, features, title, command, data_files or {}, notes)
    with contextlib.suppress(OSError):  # of no use any more, and no harm
        (out / CHECKPOINT_FILE).unlink()
    return result


def _restore(trainer: Trainer, out: Path, run: dict[str, Any]) -> None:
    state = load_checkpoint(out, run)
    try:
        trainer.restore(state)
    except ArgumentError as error:
        hint = "delete it and run without --resume"
        raise DataError(out / CHECKPOINT_FILE, "a whole checkpoint", error, hint=hint) from error


@contextlib.contextmanager
def _kept(trainer: Trainer, out: Path, run: dict[str, Any]) -> Iterator[None]:
    """Whatever ends the block before its time, what was learnt until then is kept in a checkpoint."""
    try:
        yield
    except BaseException as stop:
        path = None
        with undisturbed(forget=True):  # the impatient press Ctrl-C twice
            if trainer.state.epoch > 0:
                with contextlib.suppress(SageAttentionError):
                    path = save_checkpoint(out, trainer.state, run)
        if isinstance(stop, KeyboardInterrupt):
            raise Interrupted(path, trainer.state.epoch) from None
        if isinstance(stop, SageAttentionError) and path is not None:
            raise SageAttentionError(f"{stop}, then go on with the same command and --resume") from stop
        raise


def _train(trainer: Trainer, out: Path, run: dict[str, Any], quiet: bool) -> None:
    written = time.monotonic()

    def after_epoch(state: TrainingState) -> None:
        nonlocal written
        if time.monotonic() - written > _SECONDS_BETWEEN_CHECKPOINTS:
            save_checkpoint(out, state, run)
            written = time.monotonic()

    with Progress(trainer.options.epochs, unit="epoch", quiet=quiet, start=trainer.state.epoch) as progress:
        trainer.run(progress, after_epoch)
        if trainer.stopped_early and trainer.state.epoch < trainer.options.epochs:
            progress.note(
                f"stopped: neither validation accuracy nor loss as good as the best in {trainer.options.patience} "
                f"epochs; using epoch {trainer.state.best_epoch}, the last that was the best so far in both"
            )


def _accuracy(predicted: Any, labels: Any, nodes: Any) -> float | None:
    return float((predicted[nodes] == labels[nodes]).mean()) if len(nodes) else None


def _write_results(
    trainer: Trainer,
    out: Path,
    data: NodeDataset,
    graph: Graph,
    features: Any,
    title: str,
    command: str,
    data_files: dict[str, int],
    notes: tuple[str, ...],
) -> RunResult:
    state, options, config = trainer.state, trainer.options, trainer.config
    model = trainer.classifier()
    logits, embeddings = model.forward(graph, features, num_threads=options.num_threads)
    probabilities = softmax(logits)
    predicted = logits.argmax(axis=1)
    metrics: dict[str, Any] = {
        "test_accuracy": _accuracy(predicted, data.labels, data.test),
        "val_accuracy": _accuracy(predicted, data.labels, data.val),
        "train_accuracy": _accuracy(predicted, data.labels, data.train),
        "epochs": state.epoch,
        "best_epoch": state.best_epoch,
        "seconds_per_epoch": float(np.median([row["seconds"] for row in state.history])) if state.history else None,
        "peak_rss_mb": peak_rss_mb(),
        "seed": options.seed,
        "num_nodes": data.num_nodes,
        "num_edges": data.num_edges,
        "versions": versions(),
    }
    settings = {**config.to_json(), **asdict(options)}
    settings["classes"] = len(settings.pop("class_names"))
    summary = RunSummary(
        title,
        config.class_names,
        state.history,
        labels_true=data.labels[data.test],
        labels_pred=predicted[data.test],
        degree=graph.in_degrees[data.test],
        degrees=graph.in_degrees,
        metrics=metrics,
        settings=settings,
        command=command,
        data_files=data_files,
        notes=notes,
        finished=time.strftime("%Y-%m-%d %H:%M"),
    )
    with output.all_or_nothing(out, mark="metrics.json") as beside:
        output.write_json(beside / CONFIG_FILE, config.to_json())
        output.write_safetensors(beside / MODEL_FILE, model.tensors, {CONFIG_FILE: json.dumps(config.to_json())})
        write_predictions(beside / "predictions.parquet", data.node_ids, config.class_names, probabilities)
        output.write_npy(beside / "embeddings.npy", embeddings)
        write_report(beside / "report.html", summary)
        output.write_json(beside / "metrics.json", metrics)
    return RunResult(out, metrics)
