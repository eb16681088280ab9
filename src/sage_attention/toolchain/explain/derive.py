"""Facts that no single line states: two versions in one log that do not fit each other.

Contract: an event is only made where both sides stand in the log; its line is the one to be quoted.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .log import Log

__all__ = ["derived_events"]

_RUNNING_TORCH = re.compile(
    r"(?:py)?torch(?:[ _.]*version)?[ :=_]*[=:( ]\s*'?v?(\d+\.\d+)(?:\.\d+)?(?:[^/\w]|\+|\w*\.dev|$)(?!\S*index)",
    re.IGNORECASE,
)
_BUILT_FOR_TORCH = re.compile(
    r"[-+_.]cu\d{2,3}torch(\d+\.\d+)|torch[-_](\d+\.\d+)(?:\.\d+)?(?:%2B|\+)\w+\.html|/torch(\d+\.\d+)(?:\.\d+)?/index"
    r"|[-+_]torch(\d+\.\d+)(?:\.\d+)?(?:cxx11|\+|-cp)|\+pt(\d)(\d{1,2})cu\d+",
    re.IGNORECASE,
)
_MODULE_FILE = re.compile(
    r"\b[\w.-]+?\.(?:cp(\d)(\d{1,2})t?-win(_amd64|32|_arm64)|cpython-(\d)(\d{1,2})t?-[\w-]+)\.(?:pyd|so)"
)
_PYTHON = re.compile(
    r"python(?:_|-|/|\s+(?:version)?[ :=]*)?v?(3)\.(\d{1,2})\b|python(3)(\d{1,2})(?:/|\.dll)", re.IGNORECASE
)
_LOAD_FAILURE = ("dll load failed", "no module named", "importerror", "winerror 126", "winerror 127", "circular import")
_CUDA = re.compile(
    r"CUDA/v(\d+)\.(\d+)|cuda-(\d+)\.(\d+)/|cuda[_ ](\d+)\.(\d+)(?=[. /_]|$)|release (\d+)\.(\d+), V", re.IGNORECASE
)
_CL = re.compile(r"/MSVC/14\.(\d\d)\.\d+|\b19\.(\d\d)\.\d{5}|_MSC_VER\W+19(\d\d)\b", re.IGNORECASE)
_ASKED = re.compile(r"that satisfies the requirement [\w.-]+(?:\[[\w,. -]*\])?={2,3}(?P<asked>[\w.+!-]+)")
# The oldest and the first too new minor version of the compiler (14.xx), by what each CUDA asks of its host.
_ACCEPTED = (
    ((13, 2), 20, 60), ((13, 0), 20, 50), ((12, 4), 10, 50), ((11, 6), 10, 40), ((11, 0), 10, 30),
    ((10, 1), 10, 30), ((10, 0), 10, 20), ((9, 2), 0, 20),
)  # fmt: skip


def derived_events(log: Log) -> Iterator[tuple[str, str, int]]:
    """Kind, subject and line of each.

    Args:
        log: The log.
    """
    yield from _torch_tag(log)
    yield from _python_tag(log)
    yield from _host_compiler(log)
    yield from _refused_version(log)


def _lines_with(log: Log, *literals: str) -> list[tuple[int, str]]:
    indices = sorted({index for literal in literals for index, _ in log.positions(literal)})
    return [(index, log.lines[index].plain[:4000]) for index in indices[:400]]


def _torch_tag(log: Log) -> Iterator[tuple[str, str, int]]:
    running: tuple[int, str] | None = None
    built: tuple[int, str] | None = None
    for index, text in _lines_with(log, "torch", "+pt"):
        found = _BUILT_FOR_TORCH.search(text)
        if found is not None and built is None:
            groups = [group for group in found.groups() if group]
            built = (index, ".".join(groups))
        rest = _BUILT_FOR_TORCH.sub(" ", text)
        match = _RUNNING_TORCH.search(rest)
        if match is not None and running is None and "require" not in rest.lower():
            running = (index, match.group(1))
    if running and built and running[1] != built[1] and any(log.positions(one) for one in _LOAD_FAILURE):
        yield "torch_tag_differs", f"torch {running[1]}, built for torch {built[1]}", built[0]


def _python_tag(log: Log) -> Iterator[tuple[str, str, int]]:
    if not any(log.positions(one) for one in _LOAD_FAILURE):
        return
    pythons: dict[str, int] = {}
    for index, text in _lines_with(log, "python3", "python 3", "python_3", "python-3", "python/3", "python version"):
        for match in _PYTHON.finditer(text):
            major, minor = [group for group in match.groups() if group]
            pythons.setdefault(f"{major}.{minor}", index)
    if len(pythons) != 1:
        return
    python = next(iter(pythons))
    for index, text in _lines_with(log, ".pyd", ".so"):
        for match in _MODULE_FILE.finditer(text):
            major, minor = (match.group(1), match.group(2)) if match.group(1) else (match.group(4), match.group(5))
            if f"{major}.{minor}" != python:
                yield "python_tag_differs", f"Python {python}, built for Python {major}.{minor}", index
                return


def _host_compiler(log: Log) -> Iterator[tuple[str, str, int]]:
    for index, text in _lines_with(
        log, "unsupported microsoft visual studio version", "error: -- unsupported gnu version"
    ):
        if "GNU" in text:
            continue
        compiler = next((int(next(filter(None, m.groups()))) for m in map(_CL.search, _texts(log)) if m), None)
        found = _CUDA.search(text) or next((m for m in map(_CUDA.search, _texts(log)) if m), None)
        if compiler is None or found is None:
            return
        major, minor = (int(group) for group in found.groups() if group)
        for version, oldest, too_new in _ACCEPTED:
            if (major, minor) >= version:
                if compiler < oldest:
                    yield "host_compiler_too_old", f"MSVC 14.{compiler:02d} with CUDA {major}.{minor}", index
                elif compiler >= too_new:
                    yield "host_compiler_too_new", f"MSVC 14.{compiler:02d} with CUDA {major}.{minor}", index
                return


def _texts(log: Log) -> list[str]:
    return [text for _, text in _lines_with(log, "/msvc/14.", " 19.", "_msc_ver", "cuda")]


def _refused_version(log: Log) -> Iterator[tuple[str, str, int]]:
    """Versions that pip left out because of the Python: any, or the one that is asked for if one is."""
    found = (_ASKED.search(text) for _, text in _lines_with(log, "that satisfies the requirement"))
    asked = next((match["asked"] for match in found if match), None)
    for index, text in _lines_with(log, "versions that require a different python"):
        refused = text.partition("version:")[2]
        if asked is None or re.search(rf"(?<![\w.]){re.escape(asked)}(?:\.0)* Requires-Python", refused):
            yield "python_version_refused", asked or refused.strip()[:80], index
            return
