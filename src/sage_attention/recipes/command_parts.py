"""What the commands of the recipes share: options, a line on the console, threads, torch."""

from __future__ import annotations

import sys
from typing import IO, TYPE_CHECKING, Any

from sage_attention import _arguments
from sage_attention.errors import ArgumentError, MissingDependencyError, SageAttentionError

if TYPE_CHECKING:
    import argparse

    Group = argparse._ActionsContainer  # noqa: SLF001 - a parser or a group of it

__all__ = ["add_encoding", "add_run_options", "add_threads", "complain", "fill", "need_torch", "say", "threads"]


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
    group.add_argument("--quiet", action="store_true", help="print nothing but errors")


def add_encoding(group: Group) -> None:
    """Adds ``--encoding``."""
    group.add_argument(
        "--encoding", metavar="NAME",
        help="of text files, as gbk or cp1252 (default: UTF-8; a byte order mark tells UTF-16)",
    )  # fmt: skip


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
