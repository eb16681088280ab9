"""Prints an explanation: for people, or as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from .words import words

if TYPE_CHECKING:
    from .result import Evidence, Explanation, Finding, Step

__all__ = ["as_json", "as_text"]

_SHELLS = {"cmd": "cmd", "powershell": "PowerShell", "sh": "sh"}


def as_json(explanation: Explanation) -> str:
    """The explanation as JSON, ASCII only so that every console and pipe passes it on.

    Args:
        explanation: What to print.
    """
    document: dict[str, Any] = {
        "verdict": explanation.verdict,
        "findings": [_finding_json(finding) for finding in explanation.findings],
    }
    if explanation.notes:
        document["notes"] = list(explanation.notes)
    return json.dumps(document, indent=2)


def _finding_json(finding: Finding) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "cause": finding.cause,
        "title": finding.title,
        "confidence": finding.confidence,
        "evidence": [
            {"line": one.line, "text": one.text, **({"file": one.file} if one.file else {})} for one in finding.evidence
        ],
        "why": finding.why,
        "fix": [{"shell": step.shell, "command": step.command, "note": step.note} for step in finding.fix],
        "facts_needed": list(finding.facts_needed),
        "sources": list(finding.sources),
    }
    if finding.candidates:
        entry["candidates"] = [
            {"cause": one.cause, "title": one.title, "decided_by": one.decided_by} for one in finding.candidates
        ]
    return entry


def as_text(explanation: Explanation, language: str) -> str:
    """The explanation for people.

    Args:
        explanation: What to print.
        language: Language of the headings.
    """
    say = words(language)
    parts: list[str] = []
    if explanation.verdict == "no_failure":
        parts.append(say["no_failure"])
    findings = explanation.findings
    for number, finding in enumerate(findings, 1):
        parts.append(_finding_text(finding, number if len(findings) > 1 else 0, explanation.verdict, language))
    if len(findings) > 1:
        parts.append(say["first"])
    parts.extend(explanation.notes)
    return "\n\n".join(parts) + "\n"


def _finding_text(finding: Finding, number: int, verdict: str, language: str) -> str:
    say = words(language)
    head = f"{number}. {finding.title}" if number else finding.title
    lines = [f"{head}  [{finding.cause}]" + (f" – {_sureness(finding, language)}" if verdict == "explained" else "")]
    lines.extend(_quote(one, language) for one in finding.evidence)
    lines += ["", *_wrapped(finding.why)]
    if finding.candidates:
        lines += ["", say["candidates"]]
        lines += [
            f"  {rank}. {one.title}  [{one.cause}]" + (f"\n     {one.decided_by}" if one.decided_by else "")
            for rank, one in enumerate(finding.candidates, 1)
        ]
    if finding.fix:
        lines += ["", say["fix"] + ":", *_steps(finding.fix)]
    if finding.facts_needed and verdict != "no_failure":
        lines += ["", say["send"] if verdict in ("insufficient", "unknown") else say["needed"]]
        lines += [f"  - {fact}" for fact in finding.facts_needed]
    return "\n".join(lines)


def _sureness(finding: Finding, language: str) -> str:
    say = words(language)
    if finding.candidates:
        word = say["undecided"]
    elif finding.confidence >= 0.85:
        word = say["sure"]
    else:
        word = say["likely"] if finding.confidence >= 0.6 else say["possible"]
    return f"{word} ({finding.confidence:.0%})"


def _quote(evidence: Evidence, language: str) -> str:
    where = f"第 {evidence.line} 行" if language == "zh" else f"line {evidence.line}"
    return f"  {evidence.file + ', ' if evidence.file else ''}{where}: {evidence.text}"


def _steps(steps: tuple[Step, ...]) -> list[str]:
    lines = []
    for step in steps:
        if step.note:
            lines += _wrapped(step.note, "  ")
        if step.command:
            shell = _SHELLS.get(step.shell)
            lines.append(f"    {shell + '> ' if shell else '> '}{step.command}")
    return lines


def _wrapped(text: str, indent: str = "") -> list[str]:
    """Lines of at most some 100 columns; Chinese, which has no spaces, is left to the console."""
    lines = [""]
    for word in text.split(" "):
        if lines[-1] and len(lines[-1]) + len(word) > 100:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + word
    return [indent + line for line in lines]
