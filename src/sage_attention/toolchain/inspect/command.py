"""``sage-attention inspect``: arguments in, report out."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sage_attention._console import SafeStream, write
from sage_attention.errors import ArgumentError, SageAttentionError
from sage_attention.toolchain.wording import choose_language

from .document import document, unreadable
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
    if bool(arguments.subject) == bool(arguments.trace):
        got = "both" if arguments.trace else "neither"
        raise ArgumentError("inspect", "a FILE, WHEEL or PACKAGE, or --trace MODULE", got)
    if arguments.trace:
        return _trace(arguments, language)
    python = arguments.python
    if os.name == "nt" and python is None and not any(map(_is_file, arguments.subject)):
        python = getattr(sys, "_base_executable", None) or sys.executable  # what is installed here runs here
    target = describe_target(
        python, arguments.site, arguments.torch, arguments.windows,
        tuple(arguments.after or ()), tuple(arguments.dll_directory or ()),
    )  # fmt: skip
    expected = expected_exports(arguments.expect_exports)
    rows: list[dict[str, Any]] = []
    errors: list[Exception] = []
    bad = False
    for number, subject in enumerate(_expanded(arguments.subject)):
        with tempfile.TemporaryDirectory(prefix="sage-attention-inspect-") as scratch:
            try:
                found = survey(find_subject(subject, target.site, Path(scratch).resolve()), target)
            except (SageAttentionError, OSError) as error:  # the others are read all the same
                errors.append(error)
                rows.append(unreadable(subject, str(error)))
                continue
            findings = judge(found, expected)
            bad = bad or bool(found.unreadable) or any(item.severity != "note" for item in findings)
            if arguments.format == "json":
                rows.append(document(found, findings, language))
                continue
            lines = render(found, findings, language, arguments.verbose)
            write(("\n" if number else "") + "\n".join(lines) + "\n")
    if arguments.format == "json":
        write(_json(rows[0] if len(rows) == 1 else rows))
    for earlier in errors[:-1]:
        SafeStream(sys.stderr).write(f"sage-attention: {' '.join(str(earlier).splitlines())}\n")
    if errors:
        raise errors[-1]
    return int(arguments.strict and bad)


def _is_file(subject: str) -> bool:
    return "*" in subject or Path(subject).exists() or Path(subject).suffix.lower() in (".whl", ".pyd", ".dll")


def _expanded(subjects: list[str]) -> list[str]:
    """Patterns that no shell has expanded: that of Windows leaves it to the program."""
    found = []
    for subject in subjects:
        pattern = "*" in subject and not Path(subject).exists()
        path = Path(subject)
        matching = sorted(map(str, path.parent.glob(path.name))) if pattern else [subject]
        if not matching:
            raise ArgumentError("FILE", "a pattern that some file matches", subject)
        found += matching
    return found


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
    write(_json(row) if arguments.format == "json" else "\n".join(lines) + "\n")
    return int(bool(trace.error) or trace.exit_code is not None)


def _json(value: Any) -> str:
    """In ASCII, for any console: a file's name with question marks in it would be another name."""
    return json.dumps(value, indent=1) + "\n"
