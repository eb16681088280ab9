"""Weighs the facts of this machine in: what the doctor finds speaks for one cause and against another.

Contract: of the doctor's facts this knows a few by name (``named``), which entries of the knowledge base refer to;
where the doctor fails, the explanation stays as it is and says so.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .knowledge import load
from .words import words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sage_attention.toolchain.doctor.facts import Facts

    from .result import Candidate, Explanation, Finding

__all__ = ["gather", "named", "weigh"]

_STEP = 0.15  # what one fact of the machine adds to or takes from a confidence
_LITTLE = 16 << 30  # bytes of memory with which parallel builds of CUDA code fail


def gather() -> Mapping[str, Any] | None:
    """The doctor's facts by name, or None where they cannot be had."""
    try:
        from sage_attention.toolchain.doctor.facts import gather as gather_facts
        from sage_attention.toolchain.system import RealSystem

        return named(gather_facts(RealSystem()))
    except Exception:  # noqa: BLE001  a machine in any state must not keep us from explaining
        return None


def named(facts: Facts) -> dict[str, Any]:
    """The facts that causes refer to; those that are unknown, or mean nothing on this system, are left out.

    Args:
        facts: What the doctor found.
    """
    environment, python, machine = facts.environment, facts.python, facts.machine
    known: dict[str, Any] = {
        "nvcc": bool(environment.nvcc) or any(cuda.nvcc for cuda in facts.cudas),
        "ninja": facts.programs["ninja"].path is not None if "ninja" in facts.programs else None,
        "low_memory": machine.memory[0] < _LITTLE if machine.memory else None,
        "python_headers": python.header is not None if python else None,
        "python_bits": {"x86": 32, "x64": 64, "arm64": 64}.get(python.architecture) if python else None,
    }
    if facts.windows:
        known |= {
            "compiler": bool(facts.toolsets),
            "cl_on_path": bool(environment.compilers),
            "windows_sdk": any(sdk.ucrt_headers and sdk.um_headers for sdk in facts.sdks),
            "msvc_environment": "whole" if environment.whole else "half" if environment.compilers else "none",
            "long_paths": machine.long_paths,
            "python_debug_lib": python.debug_library is not None if python else None,
        }
    elif facts.linux is not None:
        known["compiler"] = bool(facts.linux.compilers)
    return {name: value for name, value in known.items() if value is not None}


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
