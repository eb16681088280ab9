"""ninja, CMake, git."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sage_attention.toolchain.doctor.versions import numbers

from .finding import Finding

if TYPE_CHECKING:
    from sage_attention.toolchain.doctor.model import Facts

__all__ = ["judge"]

# Visual Studio's major version -> first CMake with a generator for it.
_GENERATORS = {15: (3, 7), 16: (3, 14), 17: (3, 21), 18: (4, 2)}


def judge(facts: Facts) -> list[Finding]:
    """One line for each."""
    if not facts.programs:
        return []
    return [*_ninja(facts), *_cmake(facts), *_git(facts)]


def _ninja(facts: Facts) -> list[Finding]:
    program = facts.programs.get("ninja")
    if program is not None and program.path and program.version:
        return [Finding("programs", "ok", "programs.ninja", {"version": program.version, "path": program.path})]
    if program is not None and program.problem not in ("", "missing"):
        return []  # said as a problem
    return [Finding("programs", "warn" if facts.torch else "note", "programs.ninja_missing")]


def _cmake(facts: Facts) -> list[Finding]:
    program = facts.programs.get("cmake")
    if program is not None and program.problem not in ("", "missing"):
        return []  # said as a problem
    if program is None or not program.path or not program.version:
        return [Finding("programs", "note", "programs.cmake_missing")]
    values = {"version": program.version, "path": program.path}
    version = numbers(program.version)
    newest = max((studio.major for studio in facts.visual_studios if studio.toolsets), default=0)
    needed = _GENERATORS.get(newest, (0,))
    if version < needed:
        values["needs"], values["studio"] = ".".join(map(str, needed)), str(newest)
        return [Finding("programs", "warn", "programs.cmake_generator", values)]
    if version < (3, 15):
        return [Finding("programs", "warn", "programs.cmake_old", values)]
    found = [Finding("programs", "ok", "programs.cmake", values)]
    if version >= (4,):
        found.append(Finding("programs", "note", "programs.cmake_4", values))
    return found


def _git(facts: Facts) -> list[Finding]:
    program = facts.programs.get("git")
    if program is not None and program.path:
        return []
    return [Finding("programs", "note", "programs.git_missing")]
