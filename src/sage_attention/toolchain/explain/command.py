"""Runs ``sage-attention explain``: files or standard input in, an explanation out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING

from sage_attention._console import write
from sage_attention.errors import DataError
from sage_attention.toolchain.wording import choose_language

from . import explain
from .show import as_json, as_text

if TYPE_CHECKING:
    import argparse

__all__ = ["run"]

_HALF = 16 << 20  # bytes of either end of a log: a build says why it failed near one of them


def run(arguments: argparse.Namespace) -> int:
    """Explains the logs that were named.

    Args:
        arguments: ``logs``, ``format``, ``lang``, ``doctor``.

    Returns:
        0 where the failure was explained or there was none, 1 where it was not.

    Raises:
        DataError: A file cannot be read.
    """
    language = choose_language(arguments.lang)
    explanation = explain([part for name in arguments.logs or ["-"] for part in _read(name)], language)
    if arguments.doctor:
        from .machine import weigh

        explanation = weigh(explanation, language)
    write(as_json(explanation) + "\n" if arguments.format == "json" else as_text(explanation, language))
    return 0 if explanation.verdict in ("explained", "no_failure") else 1


def _read(name: str) -> list[tuple[str, bytes]]:
    if name == "-":
        stream = getattr(sys.stdin, "buffer", None)
        if stream is None:
            raise DataError(None, "a log on standard input", "no standard input", hint="name a file")
        if sys.stdin.isatty():
            end = "Ctrl-Z, Enter" if sys.platform == "win32" else "Ctrl-D"
            print(f"sage-attention explain: paste the log, then {end}", file=sys.stderr)
        return _ends(name, stream)
    try:
        with Path(name).open("rb") as file:
            return _ends(name, file)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DataError(name, "a readable log file", reason, hint="or pipe the log into this command") from error


def _ends(name: str, stream: IO[bytes]) -> list[tuple[str, bytes]]:
    """A log, or the two ends of one that is very long; the lines of the latter are counted from its own beginning."""
    head = stream.read(_HALF)
    last = stream.read(_HALF)
    whole = True
    while piece := stream.read(_HALF):
        whole = False
        last = (last + piece)[-_HALF:]
    return [(name, head + last)] if whole else [(name, head), (f"{name}, last {_HALF >> 20} MiB", last)]
