"""What kind of installation a Python is, and whether what extensions are built with is in it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from sage_attention.toolchain.doctor.model import PythonInstall
from sage_attention.toolchain.doctor.versions import numbers

from .machine import architecture

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sage_attention.toolchain.system import System

    from .python_sources import Candidate

__all__ = ["describe"]

_MINGW = (("x86_64", "x64"), ("aarch64", "arm64"))


def describe(system: System, group: list[Candidate], about: Mapping[str, Any]) -> PythonInstall:
    """One Python from all that is said of it.

    Args:
        system: The machine.
        group: Who names it.
        about: What the Python asked about says of itself.
    """
    sources = tuple(dict.fromkeys(candidate.source for candidate in group))
    running = "running" in sources
    executable = group[0].executable
    home, configured = _home(system, executable, about if running else {})
    kind = _kind(system, executable, home, group)
    exists = system.is_file(executable)
    said = [c.version for c in group if c.version]
    version = max([*said, configured, _from_files(system, home)], key=lambda text: (len(numbers(text)), numbers(text)))
    tags = {candidate.tag for candidate in group}
    free_threaded = bool(about.get("free_threaded")) if running else _free_threaded(executable, tags)
    digits = "".join(version.split(".")[:2]) + ("t" if free_threaded else "")
    header = _header(system, home, version, free_threaded, str(about.get("include", "")) if running else "")

    def library(suffix: str) -> str | None:
        path = system.join(home, "libs", f"python{digits}{suffix}.lib")
        return path if system.windows and system.is_file(path) else None

    return PythonInstall(
        executable=executable,
        version=version,
        architecture=_architecture(system, group, about if running else {}),
        sources=sources,
        kind=kind,
        home=home,
        exists=exists,
        header=header,
        import_library=library(""),
        debug_library=library("_d"),
        free_threaded=free_threaded,
        debug=bool(about.get("debug")) if running else executable.lower().endswith("_d.exe"),
        running=running,
    )


def _free_threaded(executable: str, tags: set[str]) -> bool:
    stem = executable.lower().removesuffix(".exe")
    return stem.endswith("t") or any(re.match(r"3\.\d+t", tag) for tag in tags)


def _home(system: System, executable: str, about: Mapping[str, Any]) -> tuple[str, str]:
    """The base installation, and the version that the configuration of a virtual environment names."""
    folder = system.parent(executable)
    for place in (folder, system.parent(folder)):
        text = system.text(system.join(place, "pyvenv.cfg"), 1 << 14)
        if text is not None:
            said = dict(re.findall(r"^\s*(\w+)\s*=\s*(.*?)\s*$", text, re.MULTILINE))
            home = str(about.get("base_prefix") or "") or said.get("home", folder)
            if not system.windows and system.base(home) == "bin":
                home = system.parent(home)
            return home, said.get("version_info") or said.get("version") or ""
    if about.get("base_prefix"):
        return str(about["base_prefix"]), ""
    if system.windows:
        return folder, ""
    real = system.parent(system.resolve(executable))
    return (system.parent(real) if system.base(real) == "bin" else real), ""


def _from_files(system: System, home: str) -> str:
    """The version that the name of its DLL or of its program tells."""
    names = system.names(home if system.windows else system.join(home, "bin"))
    pattern = r"python(3)(\d+)t?\.dll" if system.windows else r"python(3)\.(\d+)"
    found = [match for match in (re.fullmatch(pattern, name.lower()) for name in names) if match]
    return f"3.{found[0][2]}" if len(found) == 1 else ""


def _kind(system: System, executable: str, home: str, group: list[Candidate]) -> str:
    folder = system.parent(executable)
    lower = executable.lower().replace("/", "\\")
    if any(system.is_file(system.join(p, "pyvenv.cfg")) for p in (folder, system.parent(folder))):
        return "venv"
    if system.is_folder(system.join(home, "conda-meta")):
        return "conda"
    if "\\uv\\python\\" in lower:
        return "uv"
    if not system.windows:
        return "system" if folder in ("/usr/bin", "/bin") else "other"
    if "\\windowsapps\\" in lower:
        # The alias of an install manager or of a Store Python is as empty as the one that opens the Store.
        apps = [name for name in system.names(folder) if name.startswith("PythonSoftwareFoundation.")]
        if "\\pythonsoftwarefoundation.python." in lower or any(c.source in ("running", "py") for c in group):
            return "store"
        return "store alias" if not apps else "store"
    if any(re.fullmatch(r"python3\d+\._pth", name.lower()) for name in system.names(folder)):
        return "embedded"
    if system.is_file(system.join(folder, "__install__.json")) or "\\pythoncore-" in lower:
        return "manager"
    if re.search(r"\\(mingw64|mingw32|ucrt64|clang64|clangarm64|msys64)\\", lower):
        return "msys2"
    return "python.org" if any(c.company in ("PythonCore", "") for c in group) else "other"


def _header(system: System, home: str, version: str, free_threaded: bool, include: str) -> str | None:
    folders = [include] if include else []
    if system.windows:
        folders.append(system.join(home, "Include"))
    else:
        name = "python" + ".".join(version.split(".")[:2]) + ("t" if free_threaded else "")
        folders.append(system.join(home, "include", name))
    return next((p for p in (system.join(f, "Python.h") for f in folders) if system.is_file(p)), None)


def _architecture(system: System, group: list[Candidate], about: Mapping[str, Any]) -> str:
    platform = str(about.get("platform", ""))
    if platform:
        last = platform.rpartition("-")[2] if "-" in platform else platform
        if platform.startswith(("win", "linux")):
            return architecture(last)
        if platform.startswith("mingw"):
            return next((word for part, word in _MINGW if part in platform), "x86")
    said = {candidate.architecture for candidate in group if candidate.architecture}
    if "arm64" in said or any(candidate.tag.endswith("-arm64") for candidate in group):
        return "arm64"
    if "32bit" in said:
        return "x86"
    if "64bit" in said:
        return "x64"
    return architecture(system.machine) if not system.windows else ""
