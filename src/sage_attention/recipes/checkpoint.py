"""``checkpoint.safetensors``: an interrupted training run, ready to go on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch

from sage_attention.errors import DataError
from sage_attention.recipes.output import write_safetensors
from sage_attention.recipes.trainer import TrainingState

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["CHECKPOINT_FILE", "load_checkpoint", "save_checkpoint"]

CHECKPOINT_FILE = "checkpoint.safetensors"
_PARTS = ("model", "best", "optimizer")


def save_checkpoint(folder: Path, state: TrainingState, run: dict[str, Any]) -> Path:
    """Writes the state after the last whole epoch.

    Args:
        folder: The output folder.
        state: What to save.
        run: What the run depends on (model, options, data); resuming compares it.

    Raises:
        SageAttentionError: It cannot be written; the previous checkpoint is then still there.
    """
    tensors = {f"{part}.{name}": tensor.numpy() for part in _PARTS for name, tensor in getattr(state, part).items()}
    about = {
        "epoch": state.epoch,
        "history": state.history,
        "run": run,
    }
    path = folder / CHECKPOINT_FILE
    write_safetensors(path, tensors, {"state": json.dumps(about)})
    return path


def _check_run(path: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    """Refuses to resume a run with other settings or data."""
    hint = "resume with the same settings and data, or run without --resume"
    for name in sorted(set(before) | set(now), key=lambda name: (name != "data", name)):
        if before.get(name) != now.get(name):
            if name == "data":
                raise DataError(path, "the data the interrupted run was trained on", "other data", hint=hint)
            raise DataError(path, f"the interrupted run's {name} ({before.get(name)})", now.get(name), hint=hint)


def _is_history(rows: Any, epochs: Any, columns: frozenset[str]) -> bool:
    """Whether it is one whole row per epoch, in their order."""
    return (
        type(epochs) is int
        and isinstance(rows, list)
        and len(rows) == epochs
        and all(isinstance(row, dict) and set(row) == columns for row in rows)
        and all(type(value) in (int, float) for row in rows for value in row.values())
        and [row["epoch"] for row in rows] == list(range(1, epochs + 1))
    )


def load_checkpoint(folder: Path, run: dict[str, Any], kind: type[TrainingState] = TrainingState) -> TrainingState:
    """Reads the state of an interrupted run.

    Args:
        folder: The output folder.
        run: What the run to be resumed depends on, as given to ``save_checkpoint``.
        kind: Of state.

    Raises:
        DataError: There is none, it is damaged, or it is of a run with other settings or data.
    """
    path = folder / CHECKPOINT_FILE
    if not path.is_file():
        hint = "nothing was interrupted there, or it is finished: run without --resume"
        raise DataError(folder, "the folder of an interrupted run", f"no {CHECKPOINT_FILE}", hint=hint)
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as file:
            about = json.loads(file.metadata()["state"])
            parts: dict[str, dict[str, torch.Tensor]] = {part: {} for part in _PARTS}
            for key in file.keys():  # noqa: SIM118 - this is no dict
                part, _, name = key.partition(".")
                parts[part][name] = torch.from_numpy(file.get_tensor(key).copy())
        state = kind(epoch=about["epoch"], history=about["history"], **parts)
        before = dict(about["run"])
        if not _is_history(state.history, state.epoch, kind.COLUMNS):
            raise ValueError("its history is not that of its epochs")
    # AttributeError: a type of number NumPy lacks; RecursionError: JSON nested without end
    except (OSError, SafetensorError, AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        hint = "delete it and run without --resume"
        raise DataError(path, "a whole checkpoint", f"{type(error).__name__}: {error}", hint=hint) from error
    _check_run(path, before, run)
    return state
