"""Pythons: can extensions be compiled for them, and which traps are set?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sage_attention.toolchain.doctor.versions import numbers

from .finding import Finding

if TYPE_CHECKING:
    from sage_attention.toolchain.doctor.model import Facts, PythonInstall

__all__ = ["judge"]


def judge(facts: Facts) -> list[Finding]:
    """The one asked about in full, the others in a line each of the details."""
    python = facts.python
    found: list[Finding] = []
    if python is None:
        found.append(Finding("python", "fail", "python.none"))
    else:
        values = {
            "version": python.version + ("t" if python.free_threaded else "") + (" debug" if python.debug else ""),
            "architecture": python.architecture,
            "kind": python.kind,
            "executable": python.executable,
        }
        found.append(Finding("python", "ok", "python.running", values, (f"base: {python.home}",)))
        found += _buildable(facts, python)
        found += _traps(facts, python)
    found += _others(facts)
    return found


def _buildable(facts: Facts, python: PythonInstall) -> list[Finding]:
    minor = "{}.{}".format(*python.minor)
    values = {"version": python.version, "minor": minor, "home": python.home, "executable": python.executable}
    if python.kind == "embedded" and not (python.header and python.import_library):
        return [Finding("python", "fail", "python.embedded", values)]
    found = []
    if python.header is None:
        if facts.windows:
            found.append(Finding("python", "fail", "python.header_missing", values))
        else:
            name = "python.header_missing." + _family(facts.machine.distribution, python.kind)
            found.append(Finding("python", "fail", name, values))
    elif not facts.windows:
        found.append(Finding("python", "ok", "python.header", {"header": python.header}))
    if facts.windows and python.kind != "msys2":
        digits = minor.replace(".", "") + ("t" if python.free_threaded else "")
        values["library"] = f"python{digits}.lib"
        if python.import_library is None:
            found.append(Finding("python", "fail", "python.import_library_missing", values))
        elif python.header is not None:
            both = {"header": python.header, "library": python.import_library}
            found.append(Finding("python", "ok", "python.buildable", both))
        if python.debug_library is None:
            values["debug"] = f"python{digits}_d.lib"
            found.append(Finding("python", "note", "python.debug_missing", values))
    return found


def _family(distribution: str, kind: str) -> str:
    if kind != "system":
        return "other"
    name = distribution.lower()
    if any(word in name for word in ("ubuntu", "debian", "mint")):
        return "apt"
    if any(
        word in name
        for word in ("fedora", "red hat", "centos", "rocky", "alma", "amazon", "oracle", "anolis", "openeuler")
    ):
        return "dnf"
    return "other"


def _traps(facts: Facts, python: PythonInstall) -> list[Finding]:
    found = []
    values = {"executable": python.executable, "minor": "{}.{}".format(*python.minor)}
    if python.kind == "store":
        found.append(Finding("python", "warn", "python.store", values))
    if python.kind == "msys2":
        found.append(Finding("python", "fail", "python.msys2", values))
    if python.architecture == "x86":
        found.append(Finding("python", "warn", "python.32bit", values))
    if facts.machine.architecture == "arm64" and facts.windows:
        which = "python.arm64" if python.architecture == "arm64" else "python.emulated"
        found.append(Finding("python", "warn" if which == "python.arm64" else "note", which, values))
    if python.free_threaded:
        found.append(Finding("python", "warn", "python.free_threaded", values))
    if facts.environment.get("PYTHONHOME"):
        found.append(Finding("python", "warn", "python.pythonhome", {"value": facts.environment.get("PYTHONHOME")}))
    return found


def _others(facts: Facts) -> list[Finding]:
    others = [python for python in facts.pythons if not python.running]
    found = []
    # Where the alias comes before every real one, `python` opens the Store.
    on_path = [python for python in facts.pythons if "path" in python.sources]
    if (
        on_path
        and on_path[0].kind == "store alias"
        and not any("path" in p.sources for p in facts.pythons if p.running)
    ):
        found.append(Finding("python", "warn", "python.store_alias", {"executable": on_path[0].executable}))
    stale = [python for python in others if not python.exists]
    for python in stale:
        values = {"executable": python.executable, "sources": ", ".join(python.sources)}
        found.append(Finding("python", "warn", "python.stale", values))
    usable = [python for python in others if python.exists and not _alias(python)]
    if usable:
        names = [
            f"{python.version or '?'} {python.architecture} ({python.kind})".replace("  ", " ") for python in usable
        ]
        details = tuple(f"{name}: {python.executable}{_lacks(facts, python)}" for name, python in zip(names, usable))
        count = {"count": str(len(usable)), "names": ", ".join(sorted({p.version or "?" for p in usable}, key=numbers))}
        found.append(Finding("python", "ok", "python.others", count, details))
    return found


def _alias(python: PythonInstall) -> bool:
    """An empty file of the Store's that stands for another Python, or for none."""
    return python.kind == "store alias" or (python.kind == "store" and not python.version)


def _lacks(facts: Facts, python: PythonInstall) -> str:
    lacks = [] if python.header else ["Python.h"]
    if facts.windows and not python.import_library and python.kind != "msys2":
        lacks.append("import library")
    return f" - without {' and '.join(lacks)}" if lacks else ""
