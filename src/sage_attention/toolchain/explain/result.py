"""What ``explain`` answers."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["VERDICTS", "Candidate", "Evidence", "Explanation", "Finding", "Step"]

VERDICTS = ("explained", "insufficient", "no_failure", "unknown")


@dataclass(frozen=True)
class Evidence:
    """A line of the log, with its number from 1 and, where there are several, its file."""

    line: int
    text: str
    file: str = ""


@dataclass(frozen=True)
class Step:
    """One step of a fix.

    Attributes:
        shell: ``"cmd"``, ``"powershell"``, ``"sh"``, ``"any"`` for a command that is the same in all, "" for none.
        command: What to type, or "".
        note: What it does, or what to do by hand.
    """

    shell: str
    command: str
    note: str


@dataclass(frozen=True)
class Candidate:
    """One of several causes between which the log does not decide.

    Attributes:
        cause: Its id.
        title: One line.
        decided_by: The fact that would decide for it.
    """

    cause: str
    title: str
    decided_by: str


@dataclass(frozen=True)
class Finding:
    """One fault.

    Attributes:
        cause: Its id.
        title: One line.
        why: What happened, and why the fix helps.
        confidence: From 0 to 1.
        evidence: The lines it rests on, the most telling first.
        fix: What to do, in order.
        facts_needed: What to look up or send if it is not that.
        candidates: With the finding's own cause first; empty where the log decides.
        sources: Where the knowledge is from.
    """

    cause: str
    title: str
    why: str
    confidence: float
    evidence: tuple[Evidence, ...]
    fix: tuple[Step, ...]
    facts_needed: tuple[str, ...]
    candidates: tuple[Candidate, ...] = ()
    sources: tuple[str, ...] = ()


@dataclass(frozen=True)
class Explanation:
    """The answer for a log.

    Attributes:
        verdict: One of ``VERDICTS``.
        findings: The root cause first, independent faults in the order to fix them.
        lines: How many lines were read.
        notes: Remarks on what was left out, and on the machine.
    """

    verdict: str
    findings: tuple[Finding, ...]
    lines: int = 0
    notes: tuple[str, ...] = field(default=())
