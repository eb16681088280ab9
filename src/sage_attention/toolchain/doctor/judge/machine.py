"""Paths, code pages, memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .finding import Finding

if TYPE_CHECKING:
    from sage_attention.toolchain.doctor.model import Facts

__all__ = ["jobs", "judge"]

_GIB = 1 << 30
# What one compiler needs: a C++ file with torch's headers about 1.5 GB, a CUDA file 3 GB and more.
_PER_JOB = {"cpp": 1.5 * _GIB, "cuda": 3.0 * _GIB}
_LONG_TEMPORARY = 70
_EAST_ASIAN = (932, 936, 949, 950, 54936)


def jobs(facts: Facts, per_job: float) -> int:
    """How many compilers fit into the free memory at once; at least one."""
    memory = facts.machine.memory
    return (
        facts.machine.processors if memory is None else max(1, min(facts.machine.processors, int(memory[1] / per_job)))
    )


def judge(facts: Facts) -> list[Finding]:
    """The machine's own limits."""
    machine = facts.machine
    found = []
    if machine.windows:
        version = ".".join(map(str, machine.windows))
        found.append(
            Finding("machine", "ok", "machine.windows", {"version": version, "architecture": machine.architecture})
        )
    else:
        values = {"name": machine.distribution or machine.platform, "architecture": machine.architecture}
        found.append(Finding("machine", "ok", "machine.other", values))
    if machine.long_paths is False:
        found.append(Finding("machine", "warn", "machine.long_paths"))
    found += _temporary(facts)
    found += _encoding(facts)
    found += _memory(facts)
    return found


def _temporary(facts: Facts) -> list[Finding]:
    temporary = facts.machine.temporary
    found = []
    values = {"path": temporary, "length": str(len(temporary))}
    if facts.windows and len(temporary) > _LONG_TEMPORARY:
        found.append(Finding("machine", "warn", "machine.temporary_long", values))
    if facts.windows and not temporary.isascii():
        found.append(Finding("machine", "warn", "machine.temporary_name", values))
    elif facts.windows and " " in temporary:
        found.append(Finding("machine", "note", "machine.temporary_space", values))
    return found


def _encoding(facts: Facts) -> list[Finding]:
    page = facts.machine.code_page
    if page is None:
        locale = facts.machine.locale.lower().replace("-", "")
        if locale and "utf8" not in locale and facts.machine.platform.startswith("linux"):
            return [Finding("machine", "note", "machine.locale", {"locale": facts.machine.locale})]
        return []
    values = {"page": str(page)}
    if page in _EAST_ASIAN:
        done = facts.environment.get("PYTHONUTF8") == "1" and "/utf-8" in facts.environment.get("CL")
        return [Finding("machine", "note" if done else "warn", "machine.code_page", values)]
    return [Finding("machine", "ok", "machine.code_page_fine", values)]


def _memory(facts: Facts) -> list[Finding]:
    machine = facts.machine
    if machine.memory is None:
        return []
    total, free = machine.memory
    cuda = any(toolkit.nvcc for toolkit in facts.cudas)
    per_job = _PER_JOB["cuda" if cuda else "cpp"]
    named = facts.environment.get("MAX_JOBS")
    planned = int(named) if named.isdigit() and int(named[:6]) > 0 else machine.processors + 2  # as ninja takes it
    fits = jobs(facts, per_job)
    values = {
        "total": f"{total / _GIB:.0f}", "free": f"{free / _GIB:.1f}", "jobs": str(planned), "fits": str(fits),
        "each": f"{per_job / _GIB:.1f}",
    }  # fmt: skip
    if planned * per_job <= free:
        return [Finding("machine", "ok", "machine.memory", values)]
    return [Finding("machine", "warn", "machine.memory_short" if named == "" else "machine.max_jobs_high", values)]
