"""The installation that a binary shall run in, as far as it is known."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from sage_attention.errors import ArgumentError, DataError

from .reading import read_binaries

__all__ = ["Target", "describe_target"]


@dataclass(frozen=True)
class Target:
    """Where a binary shall run. None stands for a usual installation of which nothing more is known.

    Attributes:
        version: Of Python, (3, 11).
        free_threaded: Whether it is the build without the global lock.
        python: The folder of python.exe.
        machine: What that Python runs on, ``x64``; empty if not known.
        site: Its site-packages.
        torch: The folder of the installed torch package.
        torch_is_there: Whether torch is installed at all, as far as known.
        system32: The system folder of a real Windows.
        after: Modules that are imported first.
        dll_directories: Folders that something passes to ``os.add_dll_directory`` first.
    """

    version: tuple[int, int] | None = None
    free_threaded: bool = False
    python: Path | None = None
    machine: str = ""
    site: Path | None = None
    torch: Path | None = None
    torch_is_there: bool = False
    system32: Path | None = None
    after: tuple[str, ...] = ()
    dll_directories: tuple[Path, ...] = ()


def describe_target(
    python: str | None = None,
    site: str | None = None,
    torch: str | None = None,
    windows: str | None = None,
    after: tuple[str, ...] = (),
    dll_directories: tuple[str, ...] = (),
) -> Target:
    r"""Reads the options that describe the target installation.

    Args:
        python: A version (``3.12``, ``3.13t``), a folder with a Python in it, a virtual environment, or an executable.
        site: Its site-packages; found beside the Python by default.
        torch: The folder of the torch package, or ``yes``; found in site-packages by default.
        windows: The folder ``C:\\Windows`` of a real system, or its copy; that of this machine, if ``python`` is on it.
        after: Modules imported before the one inspected.
        dll_directories: Folders registered before.

    Raises:
        ArgumentError: One of them is not what it should be.

    Example:
        >>> describe_target(python="3.13t").version
        (3, 13)
    """
    version, free_threaded, folder = _python(python)
    site_folder = _folder("--site", site) or _site_of(folder)
    torch_folder = None if torch in (None, "yes") else _folder("--torch", torch)
    if torch_folder is not None and not (torch_folder / "lib").is_dir():
        raise ArgumentError("--torch", "the folder of an installed torch, with lib in it", torch)
    if torch_folder is None and site_folder is not None and (site_folder / "torch" / "lib").is_dir():
        torch_folder = site_folder / "torch"
    if windows is None and os.name == "nt" and folder is not None:  # a Python of this machine
        windows = os.environ.get("SYSTEMROOT")
    system32 = _folder("--windows", windows)
    if system32 is not None:
        system32 = next((found for found in system32.iterdir() if found.name.lower() == "system32"), system32)
    return Target(
        version=version,
        free_threaded=free_threaded,
        python=folder,
        machine=_machine(folder, version),
        site=site_folder,
        torch=torch_folder,
        torch_is_there=torch is not None or torch_folder is not None,
        system32=system32,
        after=after,
        dll_directories=tuple(found for name in dll_directories if (found := _folder("--dll-directory", name))),
    )


def _folder(option: str, name: str | None) -> Path | None:
    if name is None:
        return None
    path = Path(name)
    if not path.is_dir():
        raise ArgumentError(option, "a folder", f"{name}, which is not one")
    return path.absolute()


def _python(python: str | None) -> tuple[tuple[int, int] | None, bool, Path | None]:
    """Version, whether free-threaded, folder."""
    if python is None:
        return None, False, None
    number = re.fullmatch(r"(3)\.(\d{1,2})(?:\.\d+)?(t?)", python)
    if number:
        return (int(number[1]), int(number[2])), bool(number[3]), None
    path = Path(python)
    if path.is_file():
        path = path.parent
    if not path.is_dir():
        raise ArgumentError("--python", "a version such as 3.12, or the folder of a Python", python)
    path = _base(path.absolute())
    for dll in sorted(path.glob("python3*.dll")) + sorted(path.glob("*/libpython3.*.so*")):
        named = re.fullmatch(r"(?:lib)?python(3)\.?(\d+)(t?)(?:_d)?(?:\.dll|\.so[.\d]*)", dll.name)
        if named:
            return (int(named[1]), int(named[2])), bool(named[3]), path
    for library in sorted((path.parent if path.name == "bin" else path).glob("lib/python3.*")):
        named = re.fullmatch(r"python(3)\.(\d+)(t?)", library.name)
        if named:
            return (int(named[1]), int(named[2])), bool(named[3]), library.parent.parent
    raise ArgumentError("--python", "a folder with python3XY.dll, or with lib/python3.Y", f"{python}, without either")


def _machine(python: Path | None, version: tuple[int, int] | None) -> str:
    """The processor that a Windows Python is for."""
    found = None if python is None or version is None else python / f"python{version[0]}{version[1]}.dll"
    if found is None or not found.is_file():
        return ""
    try:
        return read_binaries(found)[0].machine
    except DataError:
        return ""


def _base(folder: Path) -> Path:
    """The Python that a virtual environment was made from: it is its python.exe that runs."""
    for place in (folder, folder.parent):
        config = place / "pyvenv.cfg"
        if config.is_file():
            home = re.search(
                r"^home\s*=\s*(.+?)\s*$", config.read_text(encoding="utf-8", errors="replace"), re.MULTILINE
            )
            if home and Path(home[1]).is_dir():
                return Path(home[1])
    return folder


def _site_of(python: Path | None) -> Path | None:
    if python is None:
        return None
    candidates = [python / "Lib" / "site-packages", *sorted(python.glob("lib/python3.*/site-packages"))]
    return next((folder for folder in candidates if folder.is_dir()), None)
