"""Facts become findings. Nothing here looks at the machine, and nothing prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable

from .finding import SECTIONS, Finding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sage_attention.toolchain.doctor.model import Facts

__all__ = ["Finding", "judge"]


def _judged(name: str, section: Callable[[Facts], Sequence[Finding]], facts: Facts) -> Sequence[Finding]:
    """One section; a mistake in it must not cost the others."""
    try:
        return section(facts)
    except Exception as error:  # noqa: BLE001
        values = {"probe": name, "detail": f"{type(error).__name__}: {error}"}
        return [Finding(name if name in SECTIONS else "programs", "warn", "probe.crashed", values)]


def judge(facts: Facts) -> tuple[Finding, ...]:
    """What the facts mean for somebody who wants to compile an extension.

    Args:
        facts: What was gathered.

    Returns:
        The findings by section, in the order of ``SECTIONS``; the verdicts are the first.
    """
    from . import cuda, environment, linux, machine, msvc, packages, problems, programs, python, torch, verdict

    of_system = {"msvc": msvc.judge, "environment": environment.judge}
    sections: dict[str, Callable[[Facts], Sequence[Finding]]] = {
        "problems": problems.judge,
        "python": python.judge,
        **(of_system if facts.windows else {"compilers": linux.judge}),
        "cuda": cuda.judge,
        "torch": torch.judge,
        "packages": packages.judge,
        "programs": programs.judge,
        "machine": machine.judge,
    }
    found: list[Finding] = []
    for name, section in sections.items():
        found += _judged(name, section, facts)
    found += _judged("verdict", lambda facts: verdict.judge(facts, found), facts)
    order = {section: number for number, section in enumerate(SECTIONS)}
    return tuple(sorted(found, key=lambda finding: order[finding.section]))
