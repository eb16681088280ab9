"""``sage-attention inspect``: arguments in, report out."""

from __future__ import annotations

import json
import sys
import tempfile
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sage_attention.errors import ArgumentError, SageAttentionError
from sage_attention.toolchain.wording import choose_language

from .document import document
from .expected import expected_exports
from .findings import phrase
from .judge import judge
from .reading import is_binary
from .subject import find_subject
from .survey import survey
from .target import describe_target
from .text import render
from .trace import trace_import, trace_lines

if TYPE_CHECKING:
    import argparse

__all__ = ["run"]


def run(arguments: argparse.Namespace) -> int:
    """Inspects, prints, and says by the exit code whether all is well.

    Returns:
        0, or with ``--strict`` 1 if there is an error or a warning; with ``--trace`` 1 if the import fails. Wrong usage
        and unreadable files are exceptions, which the command line turns into 2.
    """
    try:
        return _run(arguments)
    except (SageAttentionError, OSError):
        raise
    except Exception as error:  # a mistake of ours is still no reason to show a traceback to a user
        where = traceback.extract_tb(error.__traceback__)[-1]
        raise SageAttentionError(
            f"inspect: a mistake of this program ({Path(where.filename).name}, line {where.lineno}): "
            f"{type(error).__name__}: {error}; please report it with the file you inspected"
        ) from error


def _run(arguments: argparse.Namespace) -> int:
    language = choose_language(arguments.lang)
    if (arguments.subject is None) == (arguments.trace is None):
        got = "neither" if arguments.subject is None else "both"
        raise ArgumentError("inspect", "a FILE, WHEEL or PACKAGE, or --trace MODULE", got)
    if arguments.trace is not None:
        return _trace(arguments, language)
    target = describe_target(
        arguments.python, arguments.site, arguments.torch, arguments.windows,
        tuple(arguments.after or ()), tuple(arguments.dll_directory or ()),
    )  # fmt: skip
    expected = expected_exports(arguments.expect_exports)
    with tempfile.TemporaryDirectory(prefix="sage-attention-inspect-") as scratch:
        found = survey(find_subject(arguments.subject, target.site, Path(scratch).resolve()), target)
        findings = judge(found, expected)
        if arguments.format == "json":
            text = json.dumps(document(found, findings, language), indent=1, ensure_ascii=False)
        else:
            text = "\n".join(render(found, findings, language, arguments.verbose))
    _print(text)
    bad = bool(found.unreadable) or any(item.severity != "note" for item in findings)
    return int(arguments.strict and bad)


def _trace(arguments: argparse.Namespace, language: str) -> int:
    trace = trace_import(arguments.trace, arguments.python, (arguments.site,) if arguments.site else ())
    lines = trace_lines(trace, language)
    row: dict[str, Any] = {
        "module": trace.module,
        "python": trace.python,
        "file": str(trace.file) if trace.file else None,
        "error": trace.error or None,
        "winerror": trace.winerror or None,
        "exit_code": trace.exit_code,
        "loaded": list(trace.loaded),
        "report": None,
    }
    if trace.file is not None and is_binary(trace.file):
        base = Path(trace.base).parent
        windows_python = str(base) if any(base.glob("python3*.dll")) else None
        target = describe_target(
            windows_python, arguments.site, arguments.torch, arguments.windows,
            tuple(arguments.after or ()), tuple(arguments.dll_directory or ()),
        )  # fmt: skip
        with tempfile.TemporaryDirectory(prefix="sage-attention-inspect-") as scratch:
            found = survey(find_subject(str(trace.file), target.site, Path(scratch).resolve()), target)
        findings = judge(found)
        row["report"] = document(found, findings, language)
        lines += ["", phrase("trace", "agrees", language), *render(found, findings, language, arguments.verbose)]
    _print(json.dumps(row, indent=1, ensure_ascii=False) if arguments.format == "json" else "\n".join(lines))
    return int(bool(trace.error) or trace.exit_code is not None)


def _print(text: str) -> None:
    """Prints also where the terminal's encoding lacks a character."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding, "replace") + "\n")
