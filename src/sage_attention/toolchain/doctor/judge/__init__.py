"""Facts become findings. Nothing here looks at the machine, and nothing prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .finding import SECTIONS, Finding

if TYPE_CHECKING:
    from sage_attention.toolchain.doctor.model import Facts

__all__ = ["Finding", "judge"]


def judge(facts: Facts) -> tuple[Finding, ...]:
    """What the facts mean for somebody who wants to compile an extension.

    Args:
        facts: What was gathered.

    Returns:
        The findings by section, in the order of ``SECTIONS``; the verdicts are the first.
    """
    from . import cuda, environment, linux, machine, msvc, packages, problems, programs, python, torch, verdict

    found = [*problems.judge(facts), *python.judge(facts)]
    if facts.windows:
        found += [*msvc.judge(facts), *environment.judge(facts)]
    else:
        found += linux.judge(facts)
    found += [*cuda.judge(facts), *torch.judge(facts), *packages.judge(facts), *programs.judge(facts)]
    found += machine.judge(facts)
    found += verdict.judge(facts, found)
    order = {section: number for number, section in enumerate(SECTIONS)}
    return tuple(sorted(found, key=lambda finding: order[finding.section]))
