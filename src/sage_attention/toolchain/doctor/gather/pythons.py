"""Every Python on the machine: as ``py``, the registry (PEP 514), conda, uv, pyenv and PATH know them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from sage_attention.toolchain import identity
from sage_attention.toolchain.doctor.model import Problem, PythonInstall
from sage_attention.toolchain.doctor.versions import numbers

from . import python_layout
from .python_sources import Candidate, from_folders, from_path, from_py, from_registry

if TYPE_CHECKING:
    from sage_attention.toolchain.system import System

__all__ = ["gather"]

_MOST = 48


def gather(
    system: System, wanted: str | None = None
) -> tuple[tuple[PythonInstall, ...], dict[str, Any], tuple[Problem, ...]]:
    """The Pythons, the one asked about first.

    Args:
        system: The machine.
        wanted: Path of the interpreter to look at, or its version; the one that runs this by default.

    Returns:
        The installations, what the one asked about says of itself, and problems.
    """
    problems: list[Problem] = []
    candidates = [*from_py(system, problems)]
    candidates += [*from_registry(system), *from_folders(system), *from_path(system)]
    about = dict(system.python)
    if wanted:
        asked = _ask(system, wanted, candidates, problems)
        if asked is None:
            return tuple(_installs(system, candidates, {})), {}, tuple(problems)
        about = asked
    own = Candidate(str(about.get("executable", "")), str(about.get("version", "")), "running")
    return tuple(_installs(system, [own, *candidates], about)), about, tuple(problems)


def _ask(system: System, wanted: str, candidates: list[Candidate], problems: list[Problem]) -> dict[str, Any] | None:
    path = wanted
    if re.fullmatch(r"\d+(\.\d+)*t?", wanted):
        want = numbers(wanted)
        if numbers(str(system.python.get("version", "")))[: len(want)] == want:
            return dict(system.python)
        installs = _installs(system, candidates, {})
        named = [
            p for p in installs if numbers(p.version)[: len(want)] == want and p.exists and p.kind != "store alias"
        ]
        if not named:
            problems.append(Problem("python", "missing", wanted))
            return None
        path = named[0].executable
    elif system.is_folder(wanted):
        path = system.join(wanted, "python.exe" if system.windows else "bin/python")
    elif system.same(wanted, str(system.python.get("executable", ""))):
        return dict(system.python)
    answer = system.run([path, "-I", "-c", identity.PROGRAM])
    found = identity.from_output(answer.text)
    if found is None:
        reason = answer.problem or "unreadable"
        problems.append(Problem("python", reason, f"{path}: {(answer.errors or answer.text).strip()[:300]}"))
    return found


def _installs(system: System, candidates: list[Candidate], about: dict[str, Any]) -> list[PythonInstall]:
    merged: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        if candidate.executable and len(merged) < _MOST:
            merged.setdefault(_place(system, candidate.executable), []).append(candidate)
    return [python_layout.describe(system, group, about) for group in merged.values()]


def _place(system: System, executable: str) -> str:
    """One key for the names that a Python has: python.exe and python3.exe of a folder, links to one file."""
    if system.windows:
        return system.parent(executable).lower().rstrip("\\") + ("t" if executable.lower().endswith("t.exe") else "")
    # A virtual environment's python is a link to its base and yet another Python.
    folder = system.parent(executable)
    if system.is_file(system.join(system.parent(folder), "pyvenv.cfg")):
        return folder
    return system.resolve(executable)
