"""A recommender from tables to a folder of results: what ``sage-attention train --task link`` runs."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Callable

import numpy as np

from sage_attention.errors import DataError, counted
from sage_attention.recipes import output
from sage_attention.recipes.link_dataset import TEST, TRAIN, VAL
from sage_attention.recipes.link_files import save_recommender
from sage_attention.recipes.link_judge import item_lists, judge
from sage_attention.recipes.link_report import write_link_report
from sage_attention.recipes.link_trainer import LinkTrainer
from sage_attention.recipes.memory import peak_rss_mb
from sage_attention.recipes.progress import Progress
from sage_attention.recipes.ranking import evaluate_ranking
from sage_attention.recipes.report import RunSummary
from sage_attention.recipes.runs import RunResult, check_writers, fingerprint, kept, restore, train, versions

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from sage_attention.recipes.link_dataset import LinkDataset
    from sage_attention.recipes.link_model import LinkConfig
    from sage_attention.recipes.link_trainer import LinkOptions

__all__ = ["train_recommender"]


def train_recommender(
    data: LinkDataset,
    folder: str | Path,
    config: LinkConfig,
    options: LinkOptions,
    *,
    title: str = "Recommendation",
    command: str = "",
    data_files: dict[str, int] | None = None,
    resume: bool = False,
    quiet: bool = False,
) -> RunResult:
    """Trains, evaluates and writes everything.

    Args:
        data: The data set.
        folder: Where to write ``model.safetensors``, ``config.json``, ``metrics.json`` and ``report.html``.
        config: What the model is.
        options: How to train.
        title: Headline of the report.
        command: The command line, for the report.
        data_files: Size in bytes of each file read, for the report.
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
    if len(np.unique(data.items[data.pairs(TRAIN)])) < 2:
        raise DataError(None, "at least two items to train on", "one", hint="there is nothing to rank")
    out = output.prepare_output_folder(folder, resume=resume)
    trainer = LinkTrainer(config, options, data)
    arrays = [data.users, data.items, data.part, data.social, *([] if data.weights is None else [data.weights])]
    run: dict[str, Any] = {**config.to_json(), **asdict(options), "data": fingerprint(arrays)}
    run = {name: list(value) if isinstance(value, tuple) else value for name, value in run.items()}
    for changeable in ("num_threads", "epochs", "patience"):
        run.pop(changeable)
    if resume:
        restore(trainer, out, run)
    with kept(trainer, out, run):
        with Progress(options.epochs, unit="epoch", quiet=quiet, start=trainer.state.epoch) as progress:
            train(trainer, progress, out, run)
            if trainer.stopped_early and trainer.state.epoch < options.epochs:
                progress.note(
                    f"stopped: no better recall@{options.k} on the validation pairs in "
                    f"{counted(options.patience, 'epoch')}; using epoch {trainer.state.best_epoch}, the best"
                )
        return _write_results(trainer, out, title, command, data_files or {})


def _same_for_all(scores: NDArray[np.float32]) -> Callable[[NDArray[np.int64]], NDArray[np.float32]]:
    return lambda users: np.tile(scores, (len(users), 1))


def _metrics(trainer: LinkTrainer) -> dict[str, Any]:
    data, options, model = trainer.data, trainer.options, trainer.model()
    found: dict[str, Any] = {}
    for name, part, known in (("test", TEST, (TRAIN, VAL)), ("val", VAL, (TRAIN,))):
        if len(data.pairs(part)) == 0:
            continue
        popularity = np.bincount(data.items[data.pairs(*known)], minlength=data.num_items).astype(np.float32)
        popularity[popularity == 0] = -np.inf
        lists = item_lists(data, *known), item_lists(data, part)
        found.update(judge(model, data, known, part, options.k, options.num_threads).to_json(f"{name}_"))
        popular = evaluate_ranking(_same_for_all(popularity), data.num_items, *lists, options.k)
        found.update(popular.to_json(f"popularity_{name}_"))
        found.pop(f"popularity_{name}_users")
    return found


def _write_results(trainer: LinkTrainer, out: Path, title: str, command: str, data_files: dict[str, int]) -> RunResult:
    state, options, data = trainer.state, trainer.options, trainer.data
    metrics: dict[str, Any] = {
        **_metrics(trainer),
        "epochs": state.epoch,
        "best_epoch": state.best_epoch,
        "seconds_per_epoch": float(np.median([row["seconds"] for row in state.history])) if state.history else None,
        "peak_rss_mb": peak_rss_mb(),
        "seed": options.seed,
        "num_users": data.num_users,
        "num_items": data.num_items,
        "num_pairs": len(data.users),
        "num_ties": data.social.shape[1] // 2,
        "versions": versions(),
    }
    summary = RunSummary(
        title,
        ["-"],
        state.history,
        metrics=metrics,
        settings={**trainer.config.to_json(), **asdict(options)},
        command=command,
        data_files=data_files,
        notes=data.notes,
        finished=time.strftime("%Y-%m-%d %H:%M"),
    )
    with output.all_or_nothing(out, mark="metrics.json") as beside:
        save_recommender(beside, trainer.model(), data)
        write_link_report(beside / "report.html", summary, options.k)
        output.write_json(beside / "metrics.json", metrics)
    return RunResult(out, metrics)
