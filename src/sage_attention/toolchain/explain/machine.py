"""Weighs the facts of this machine in: what the doctor finds speaks for one cause and against another.

Contract: the doctor is asked for named facts (``doctor.facts.gather() -> Mapping``); where it cannot be asked, or
fails, the explanation stays as it is and says so.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .knowledge import load
from .words import words

if TYPE_CHECKING:
    from .result import Candidate, Explanation, Finding

__all__ = ["gather", "weigh"]

_STEP = 0.15  # what one fact of the machine adds to or takes from a confidence


def gather() -> Mapping[str, Any] | None:
    """The doctor's facts by name, or None where they cannot be had."""
    try:
        facts = importlib.import_module("sage_attention.toolchain.doctor.facts").gather()
    except Exception:  # noqa: BLE001  a machine in any state must not keep us from explaining
        return None
    return facts if isinstance(facts, Mapping) else None


def weigh(explanation: Explanation, language: str, facts: Mapping[str, Any] | None = None) -> Explanation:
    """The explanation in the light of this machine.

    Args:
        explanation: What the log alone says.
        language: Language of the remarks.
        facts: The machine's facts; gathered where not given.

    Returns:
        The same findings with their confidence and the order of their candidates adjusted, and a remark on each fact.
    """
    say = words(language)
    facts = gather() if facts is None else facts
    if facts is None:
        return replace(explanation, notes=(*explanation.notes, say["no_machine"]))
    notes = []
    findings = []
    for finding in explanation.findings:
        speaking = _speaking(finding.cause, facts)
        notes += [
            f"{say['machine']}: {name} = {facts[name]}: {say['speaks_for'] if speaks else say['speaks_against']} "
            f"[{finding.cause}]"
            for name, speaks in speaking.items()
        ]
        findings.append(_weighed(finding, sum(1 if speaks else -1 for speaks in speaking.values()), facts))
    return replace(explanation, findings=tuple(findings), notes=(*explanation.notes, *notes))


def _weighed(finding: Finding, balance: int, facts: Mapping[str, Any]) -> Finding:
    confidence = min(0.99, max(0.05, finding.confidence + _STEP * balance))

    def standing(candidate: Candidate) -> int:
        return -sum(1 if speaks else -1 for speaks in _speaking(candidate.cause, facts).values())

    return replace(finding, confidence=round(confidence, 2), candidates=tuple(sorted(finding.candidates, key=standing)))


def _speaking(cause: str, facts: Mapping[str, Any]) -> dict[str, bool]:
    """The known facts that concern a cause: True for those that speak for it."""
    entry = load().causes.get(cause)
    expected = entry.machine if entry else {}
    return {name: facts[name] == value for name, value in expected.items() if facts.get(name) is not None}
