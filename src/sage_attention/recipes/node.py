"""Node classification from files to a folder of results: what ``sage-attention train`` and ``demo`` run."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sage_attention.errors import DataError, counted
from sage_attention.graph import Graph
from sage_attention.inference import CONFIG_FILE, MODEL_FILE, ModelConfig, degree_features, normalized, softmax
from sage_attention.recipes import output
from sage_attention.recipes.memory import peak_rss_mb
from sage_attention.recipes.predictions import write_predictions
from sage_attention.recipes.progress import Progress
from sage_attention.recipes.report import RunSummary, write_report
from sage_attention.recipes.runs import (
    Interrupted,
    RunResult,
    check_writers,
    fingerprint,
    kept,
    restore,
    train,
    versions,
)
from sage_attention.recipes.trainer import Trainer, TrainingOptions

if TYPE_CHECKING:
    from pathlib import Path

    from sage_attention.recipes.node_dataset import NodeDataset

__all__ = ["Interrupted", "RunResult", "train_node_classifier"]

_DEGREE_FEATURES = 32


def simple_graph(data: NodeDataset) -> Graph:
    """The data set's edges without self loops; attention puts one at every node itself."""
    edges = data.edge_index
    return Graph.from_edge_index(edges[:, edges[0] != edges[1]], data.num_nodes)


def _fingerprint(data: NodeDataset, features: Any) -> int:
    parts = [data.edge_index, data.labels, data.train, data.val, data.test]
    parts += [features.indptr, features.indices, features.data] if hasattr(features, "indptr") else [features]
    return fingerprint(parts)


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
    check_writers()
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
        restore(trainer, out, run)
    with kept(trainer, out, run):
        _train(trainer, out, run, quiet)
        return _write_results(trainer, out, data, graph, features, title, command, data_files or {}, notes)


def _train(trainer: Trainer, out: Path, run: dict[str, Any], quiet: bool) -> None:
    with Progress(trainer.options.epochs, unit="epoch", quiet=quiet, start=trainer.state.epoch) as progress:
        train(trainer, progress, out, run)
        if trainer.stopped_early and trainer.state.epoch < trainer.options.epochs:
            progress.note(
                f"stopped: neither validation accuracy nor loss as good as the best in "
                f"{counted(trainer.options.patience, 'epoch')}; using epoch {trainer.state.best_epoch}, "
                "the last that was the best so far in both"
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
