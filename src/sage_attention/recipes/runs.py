"""What every training run does around its training: checks first, keeps what was learnt, says where it stands."""

from __future__ import annotations

import contextlib
import importlib.util
import platform
import time
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Protocol

import numpy as np

import sage_attention
from sage_attention import _native
from sage_attention._paths import shown_path
from sage_attention.errors import ArgumentError, DataError, MissingDependencyError, SageAttentionError
from sage_attention.recipes.checkpoint import CHECKPOINT_FILE, load_checkpoint, save_checkpoint
from sage_attention.recipes.interrupts import undisturbed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from sage_attention.recipes.progress import Progress
    from sage_attention.recipes.trainer import TrainingState

__all__ = ["Interrupted", "RunResult", "check_writers", "fingerprint", "kept", "restore", "train", "versions"]

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


class AnyTrainer(Protocol):
    """What trains in whole epochs."""

    state: Any

    def restore(self, state: TrainingState) -> None:
        """Goes on from a saved state."""

    def run(self, progress: Progress, after_epoch: Callable[[TrainingState], None] | None = None) -> TrainingState:
        """Trains to the end."""


def fingerprint(parts: Iterable[Any]) -> int:
    """A number that changes with the data, so that no run resumes on other data.

    Args:
        parts: NumPy arrays.
    """
    check = 0
    for part in parts:
        rows = np.ascontiguousarray(part).view(np.uint8).reshape(-1)
        for start in range(0, len(rows), _FINGERPRINT_BYTES):  # Ctrl-C has to wait for one piece, not for all
            check = zlib.crc32(rows[start : start + _FINGERPRINT_BYTES].data, check)
    return check


def check_writers() -> None:
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


def restore(trainer: AnyTrainer, out: Path, run: dict[str, Any]) -> None:
    """Goes on from the checkpoint in a folder.

    Args:
        trainer: What is to go on.
        out: The folder.
        run: What the run depends on.

    Raises:
        DataError: There is none, it is damaged, or of another run.
    """
    state = load_checkpoint(out, run, type(trainer.state))
    try:
        trainer.restore(state)
    except ArgumentError as error:
        hint = "delete it and run without --resume"
        raise DataError(out / CHECKPOINT_FILE, "a whole checkpoint", error, hint=hint) from error


@contextlib.contextmanager
def kept(trainer: AnyTrainer, out: Path, run: dict[str, Any]) -> Iterator[None]:
    """Whatever ends the block before its time, what was learnt until then is kept in a checkpoint.

    After the block the checkpoint of an earlier, interrupted run is removed.
    """
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
    with contextlib.suppress(OSError):  # of no use any more, and no harm
        (out / CHECKPOINT_FILE).unlink()


def train(trainer: AnyTrainer, progress: Progress, out: Path, run: dict[str, Any]) -> None:
    """Trains to the end, and saves a checkpoint once a minute."""
    written = time.monotonic()

    def after_epoch(state: TrainingState) -> None:
        nonlocal written
        if time.monotonic() - written > _SECONDS_BETWEEN_CHECKPOINTS:
            save_checkpoint(out, state, run)
            written = time.monotonic()

    trainer.run(progress, after_epoch)
