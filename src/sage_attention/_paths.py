r"""How a path is handed to the operating system: the one place that knows what Windows does with names.

Two things are lived with there. A path of more than 260 characters is refused unless it begins with ``\\?\``, which
turns that limit off and is understood by whatever opens files (Python, PyArrow, safetensors, the loader of DLLs).
And some names are none: ``aux.csv`` is a serial port, ``run.`` becomes ``run``, ``a:b`` is a hidden stream of ``a``.

`system_path` is called where a path enters, so that everything made of it (a file in a folder, a temporary name
beside it) is right too; `shown_path` gives back what a person would call it.
"""

from __future__ import annotations

import ntpath
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Union

from .errors import DataError, shown_path

if TYPE_CHECKING:
    PathLike = Union[str, "os.PathLike[str]"]

__all__ = ["check_name", "shown_path", "system_path"]

# Windows allows 259 characters for a file and 247 for a folder; names that we put into a folder must fit besides.
_LONG = 180
_PORTS = frozenset(f"{port}{number}" for port in ("COM", "LPT") for number in "123456789¹²³")
_DEVICES = _PORTS | {"CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$"}
_FORBIDDEN = re.compile(r'[<>:"|?*\x00-\x1f]')


def _on_windows() -> bool:
    return os.name == "nt"


def extended(path: str) -> str:
    r"""An absolute Windows path in the form that knows no limit of length.

    Example:
        >>> print(extended(r"C:\runs\first"), extended(r"\\server\share\runs"))
        \\?\C:\runs\first \\?\UNC\server\share\runs
    """
    if path.startswith(("\\\\?\\", "\\\\.\\")):
        return path
    return "\\\\?\\UNC\\" + path[2:] if path.startswith("\\\\") else "\\\\?\\" + path


def system_path(path: PathLike) -> Path:
    """A path as the operating system, or a library that opens files, is to be given it.

    Args:
        path: What the user gave, relative or absolute.

    Returns:
        The same path; on Windows absolute and without limit of length where it is long.

    Example:
        >>> str(system_path("edges.csv"))
        'edges.csv'
    """
    if not _on_windows():
        return Path(path)
    whole = ntpath.abspath(os.fspath(path))
    return Path(path) if len(whole) < _LONG else Path(extended(whole))


def refused_part(path: str) -> tuple[str, str] | None:
    """What in a path Windows would take for something else.

    Args:
        path: A Windows path.

    Returns:
        The first part that is no name of a file there, and why; None if all are.

    Example:
        >>> refused_part("runs/aux.txt")
        ('aux.txt', 'it names a device')
        >>> refused_part("C:runs/first") is None
        True
    """
    if path.startswith("\\\\?\\"):  # whoever writes this knows
        return None
    for part in re.split(r"[\\/]+", ntpath.splitdrive(path)[1]):
        if part in ("", ".", ".."):
            continue
        if part.split(".")[0].rstrip(" ").upper() in _DEVICES:
            return part, "it names a device"
        if part.rstrip(". ") != part:
            return part, "a dot or space at the end is dropped"
        wrong = _FORBIDDEN.search(part)
        if wrong:
            return part, f"no name holds {wrong[0]!r}"
    return None


def check_name(path: PathLike) -> None:
    """Refuses, on Windows, a path that would lead elsewhere than it says.

    Raises:
        DataError: A part of it names a device, ends in a dot or space, or holds a character no name holds.
    """
    refused = refused_part(os.fspath(path)) if _on_windows() else None
    if refused is not None:
        part, reason = refused
        raise DataError(str(path), "a name that Windows allows", f"{part!r} ({reason})", hint="choose another name")
