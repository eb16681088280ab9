"""What the commands of the recipes share: options, a line on the console, threads, torch."""

from __future__ import annotations

import os
import sys
from typing import IO, TYPE_CHECKING, Any

from sage_attention import _arguments
from sage_attention._paths import system_path
from sage_attention.errors import ArgumentError, DataError, MissingDependencyError, SageAttentionError

if TYPE_CHECKING:
    import argparse

    Group = argparse._ActionsContainer  # noqa: SLF001 - a parser or a group of it

__all__ = [
    "add_encoding",
    "add_repeat_options",
    "add_run_options",
    "add_threads",
    "complain",
    "fill",
    "need_torch",
    "refuse_earlier_results",
    "say",
    "threads",
]

# What training writes, for either task.
_RESULTS = ("metrics.json", "model.safetensors", "config.json", "predictions.parquet", "embeddings.npy", "report.html")
_CHECKPOINT = "checkpoint.safetensors"


def add_run_options(group: Group) -> None:
    """Adds ``--seed``, ``--threads`` and ``--quiet``."""
    group.add_argument(
        "--seed", type=_arguments.seed, default=0, metavar="N", help="everything random starts from it (default: 0)"
    )
    add_threads(group)


def add_threads(group: Group) -> None:
    """Adds ``--threads`` and ``--quiet``."""
    group.add_argument(
        "--threads", type=_arguments.threads, default=None, metavar="N",
        help="default: one per core; never changes results",
    )  # fmt: skip
    group.add_argument("--quiet", action="store_true", help="print nothing but errors and warnings")


def add_encoding(group: Group) -> None:
    """Adds ``--encoding``."""
    group.add_argument(
        "--encoding", metavar="NAME",
        help="of text files, as gbk or cp1252 (default: UTF-8; a byte order mark tells UTF-16)",
    )  # fmt: skip


def add_repeat_options(group: Group) -> None:
    """Adds ``--resume`` and ``--overwrite``."""
    group.add_argument("--resume", action="store_true", help="go on with an interrupted run in --out")
    group.add_argument(
        "--overwrite", action="store_true", help="replace the results of an earlier run in --out, finished or not"
    )


def refuse_earlier_results(arguments: argparse.Namespace) -> None:
    """Makes sure, before files are read, that ``--out`` has nothing that this run would replace unasked.

    Raises:
        ArgumentError: ``--resume`` and ``--overwrite`` exclude each other.
        DataError: The folder has results, or the checkpoint of an interrupted run.
    """
    if arguments.resume and arguments.overwrite:
        raise ArgumentError("--overwrite", "no --resume beside it, which goes on with what is there", "both")
    if arguments.resume or arguments.overwrite:
        return
    # os.path: answers where Path raises; what is wrong with the folder is said when it is made
    folder = os.path.expanduser(arguments.out)  # noqa: PTH111
    expected = "a folder without results of an earlier run"
    if _is_there(folder, _CHECKPOINT):
        hint = "go on with that by --resume, replace it with --overwrite, or choose another --out"
        raise DataError(folder, expected, f"one with {_CHECKPOINT} of an interrupted run", hint=hint)
    found = [name for name in _RESULTS if _is_there(folder, name)]
    if found:
        hint = "choose another --out, or replace them with --overwrite"
        raise DataError(folder, expected, f"one with {', '.join(found)}", hint=hint)


def _is_there(folder: str, name: str) -> bool:
    return os.path.lexists(system_path(os.path.join(folder, name)))  # noqa: PTH118


def fill(arguments: argparse.Namespace, task: str, defaults: dict[str, dict[str, Any]]) -> None:
    """Gives the options of a task their defaults, and refuses those of other tasks.

    Args:
        arguments: As parsed; what was not typed is None or False.
        task: Its name.
        defaults: By task and option.

    Raises:
        ArgumentError: An option of another task was typed.
    """
    for other, options in defaults.items():
        for name in options:
            if name not in defaults[task] and getattr(arguments, name) not in (None, False):
                option = "--" + name.replace("_", "-")
                hint = f"leave it out, or say --task {other}"
                raise ArgumentError(option, f"nothing, for it belongs to --task {other}", "a value", hint)
    for name, value in defaults[task].items():
        if getattr(arguments, name) is None:
            setattr(arguments, name, value)


def threads(arguments: argparse.Namespace) -> int:
    """How many threads to use."""
    if arguments.threads is not None:
        return int(arguments.threads)
    from sage_attention._native import default_num_threads

    return default_num_threads()


def need_torch() -> None:
    """Loads torch, or says how to get it.

    Raises:
        SageAttentionError: It is not there or cannot be loaded.
    """
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise SageAttentionError(f"torch is installed but lacks {error.name}: {error}") from error
        raise MissingDependencyError("torch", "training", "train") from error
    except (ImportError, OSError) as error:  # a library of it is missing or of another kind
        raise SageAttentionError(f"torch is installed but cannot be loaded: {error}; install it anew") from error


def say(text: str, stream: IO[str] | None = None) -> None:
    """Prints a line on any console: one that lacks a character, is closed or was never there ends no work."""
    from sage_attention._console import SafeStream

    out = SafeStream(stream)
    out.write(text + "\n")
    out.flush()


def complain(text: str) -> None:
    """Prints an error, in one line."""
    say("sage-attention: " + " ".join(text.splitlines()), sys.stderr)
