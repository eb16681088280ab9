"""From hits to an answer: what is the cause, what its consequence, in which order to mend, and when to abstain.

Contract: of several causes on one line the best proven stands; a cause that another one explains is no finding of its
own; well proven faults come in the order of the log, doubtful ones after them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .fill import facts_for, fill, fill_command, steps_for
from .knowledge import Pattern
from .result import Candidate, Evidence, Explanation, Finding
from .system import system_of
from .words import words

if TYPE_CHECKING:
    from .knowledge import Cause, Knowledge, Text
    from .log import Log
    from .match import Hit

__all__ = ["judge"]

_STRONG = 0.6
_QUOTED = 3  # lines per finding
_BEFORE = 20  # what comes more lines before a cause is no consequence of it
_LONGEST_QUOTE = 400
# What an error looks like in any tool, for logs that bear no known signature.
_ERROR = Pattern(
    (
        "error", "fatal", "exception", "segmentation fault", "core dumped", "killed", "***", "interrupt", "undefined",
        "abort", "cannot ", "can't ", "could not", "unable to", "failed", "not found", "错误", "无法", "致命", "失败",
        "未能", "エラー", "fehler", "erreur", "ошибка", "오류",
    ),
    r"(?:^|:|\]|\))\s*(?:fatal |catastrophic |internal |command line |internal compiler )*"
    r"(?:error|fatal|错误|エラー|Fehler|erreur|ошибка|오류|erro)\s*(?:[A-Z]{1,6}\d{4}|\[E\d{4}\]|#\d+)?\s*:(?!\s*0\b)"
    r"|(?:错误|エラー|Fehler|erreur|오류|error)\s+[A-Z]{1,4}\d{4}\b"
    r"|^(?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception)(?::|$)|^(?:CMake|Configuration) Error"
    r"|^[\w+.-]+ +(?:fatal|error) *:|^ninja: (?:error|fatal)|^(?:g?make|nmake)(?:\[\d+\])?: \*\*\*|^NMAKE : fatal"
    r"|Segmentation fault|core dumped|internal compiler error|^Killed\b|^Aborted\b"
    r"|Fatal Python error|Windows fatal exception"
    r"|(?:unresolved external|undefined reference|Undefined symbols for)|\bcannot (?:open|find) (?:shared object|-l)"
    r"|\b(?:ld|lld|link|cl|gcc|g\+\+|clang|rustc|cargo)(?:\.exe)?\s*: (?:cannot|error|fatal)|: command not found$"
    r"|致命错误|致命的エラー|: (?:general|fatal|unrecoverable) error|^Exception\b"
    r"|\b(?:failed|unable) to (?:start|load|initiali[sz]e|import|open|find|locate|run|create|execute)\b"
    r"|\b(?:could not|cannot|can't) (?:be )?(?:load|found|find|import|open|start|run|initiali[sz]e|locate)"
    r"|无法(?:加载|启动|打开|找到|运行|执行)|^(?:×|x|✗) ",
)  # fmt: skip
_NO_ERROR = re.compile(
    r"\b0 (?:errors?|failures?|failed)\b|\bno errors?\b|\berrors?\s*[:=]\s*0\b|ignor(?:ed|ing)"
    r"|^\s*(?:warning|note|info|DEBUG)\b"
    r"|^(?:copying|adding|creating|writing|reading|installing|running|changing|removing|hard linking|--|\[\d+/\d+\]"
    r"|\[ *\d+%\]|Collecting|Downloading|Requirement|Using cached|inflating|extracting|Building CXX|Compiling)\b"
    r"|^\S*(?:gcc|g\+\+|cc|c\+\+|clang|clang\+\+|cl(?:\.exe)?|nvcc|link(?:\.exe)?)'? .*(?:-c |/c |-o |/OUT:|-D|-I)"
    r"|ERROR: pip's dependency resolver does not currently|warning(?: [A-Z]\d+)?\s*:|fatal: not a git repository",
    re.IGNORECASE,
)


# The package whose build failed, or, in a log that ends before it is said, the last one whose build began.
_FAILED_PACKAGE = Pattern(
    ("failed building ", "failed to build "),
    r"Failed (?:building (?:editable )?wheel for |to build (?:installable wheels .*\(|(?!installable )))"
    r"'?(?P<name>[A-Za-z0-9][\w.-]*)",
)
_BEGUN_PACKAGE = Pattern(
    ("wheel for ", "setup.py install for "),
    r"(?:Building (?:editable )?wheel for|Running setup\.py install for) '?(?P<name>[A-Za-z0-9][\w.-]*)",
)


@dataclass(frozen=True)
class _Claim:
    """All that speaks for one cause."""

    cause: Cause
    hits: tuple[Hit, ...]  # the best first

    @property
    def weight(self) -> float:
        return self.hits[0].signature.weight

    @property
    def first(self) -> int:
        return min(hit.index for hit in self.hits)


def judge(log: Log, hits: list[Hit], knowledge: Knowledge, language: str = "en") -> Explanation:
    """The answer.

    Args:
        log: The log.
        hits: What ``find_hits`` found in it.
        knowledge: Causes, wrappers, harmless warnings.
        language: ``"en"`` or ``"zh"``.
    """
    count = log.lines[-1].number if log.lines else 0
    harmless = {place.index for warning in knowledge.warnings for place in log.places(warning.pattern)}
    claims = _roots(_claims([hit for hit in hits if hit.index not in harmless]))
    if claims:
        package, system = _package(log), system_of(log, knowledge)
        findings = [_finding(claim, log, knowledge, language, package, system) for claim in claims]
        return Explanation("explained", tuple(_merged(findings)), count)
    return _without_signature(log, knowledge, language, count)


def _package(log: Log) -> str:
    failed = log.first(_FAILED_PACKAGE)
    places = [failed] if failed else list(log.places(_BEGUN_PACKAGE, quiet=True))
    return places[-1].match["name"] if places else ""


def _claims(hits: list[Hit]) -> list[_Claim]:
    """One claim per cause; on each line only the best proven cause has a say."""
    best: dict[int, float] = {}
    for hit in hits:
        best[hit.index] = max(best.get(hit.index, 0.0), _rank(hit))
    by_cause: dict[str, list[Hit]] = {}
    for hit in hits:
        if _rank(hit) >= best[hit.index]:
            by_cause.setdefault(hit.cause.id, []).append(hit)
    return [
        _Claim(some[0].cause, tuple(sorted(some, key=lambda hit: (-hit.signature.weight, hit.index))))
        for some in by_cause.values()
    ]


def _rank(hit: Hit) -> float:
    """Weight, and at the same weight the signature that asks for more."""
    signature = hit.signature
    return signature.weight + 0.001 * (len(signature.context) + len(signature.unless) + (signature.near is not None))


def _roots(claims: list[_Claim]) -> list[_Claim]:
    strong = [claim for claim in claims if claim.weight >= _STRONG]
    explained = {
        other.cause.id
        for claim in claims
        for other in claims
        if other.cause.id in claim.cause.explains
        and claim.weight >= min(other.weight, _STRONG)
        and other.first >= claim.first - _BEFORE
    }
    roots = [claim for claim in claims if claim.cause.id not in explained]
    if any(claim in strong for claim in roots):
        roots = [claim for claim in roots if claim.weight >= 0.3]
    return sorted(roots, key=lambda claim: (claim.weight < _STRONG, claim.first))


def _merged(findings: list[Finding]) -> list[Finding]:
    """Undecided findings each of which is a candidate of the other are one question, with the evidence of both."""
    kept: list[Finding] = []
    for finding in findings:
        for place, other in enumerate(kept):
            if _is_candidate(other, finding) and _is_candidate(finding, other):
                kept[place] = replace(other, evidence=(*other.evidence, *finding.evidence)[:_QUOTED])
                break
        else:
            kept.append(finding)
    return kept


def _is_candidate(finding: Finding, of: Finding) -> bool:
    return any(one.cause == finding.cause for one in of.candidates)


def _finding(claim: _Claim, log: Log, knowledge: Knowledge, language: str, package: str, system: str) -> Finding:
    best = claim.hits[0]
    cause = claim.cause
    candidates = []
    if best.signature.candidates:
        for name in (cause.id, *best.signature.candidates):
            other = knowledge.causes[name]
            decided_by = next(iter(facts_for(other, language, system)), "")
            candidates.append(Candidate(name, fill(other.title.in_(language), best.subject), decided_by))
    facts = facts_for(cause, language, system)
    facts += [one.decided_by for one in candidates[1:] if one.decided_by and one.decided_by not in facts]
    agreeing = len({id(hit.signature) for hit in claim.hits})
    return Finding(
        cause=cause.id,
        title=fill(cause.title.in_(language), best.subject),
        why=fill(cause.why.in_(language), best.subject),
        confidence=round(min(0.99, best.signature.weight + 0.02 * (agreeing - 1)), 2),
        evidence=_evidence(claim, log),
        fix=steps_for(cause, best.subject, knowledge, language, package, system),
        facts_needed=tuple(facts),
        candidates=tuple(candidates),
        sources=cause.sources,
    )


def _evidence(claim: _Claim, log: Log) -> tuple[Evidence, ...]:
    quotes: dict[str, Evidence] = {}
    for hit in claim.hits:
        quote = _quote(log, hit.index)
        quotes.setdefault(quote.text, quote)
        if len(quotes) == _QUOTED:
            break
    return tuple(quotes.values())


def _quote(log: Log, index: int) -> Evidence:
    line = log.lines[index]
    text = line.text.strip()
    return Evidence(line.number, text if len(text) <= _LONGEST_QUOTE else text[:_LONGEST_QUOTE] + " …", line.source)


def _without_signature(log: Log, knowledge: Knowledge, language: str, count: int) -> Explanation:
    """Nothing known: is anything wrong at all, and is it told?"""
    wrapped: dict[int, Text] = {}
    for wrapper in knowledge.wrappers:
        for place in log.places(wrapper.pattern):
            wrapped.setdefault(place.index, wrapper.send)
    harmless: dict[int, Text] = {}
    for warning in knowledge.warnings:
        for place in log.places(warning.pattern):
            harmless.setdefault(place.index, warning.why)
    told = [
        place.index
        for place in log.places(_ERROR)
        if place.index not in wrapped
        and place.index not in harmless
        and not _NO_ERROR.search(log.lines[place.index].plain[:1000])
    ]
    say = words(language)
    if told:
        finding = Finding(
            "unknown", say["unknown_title"], say["unknown_why"], 0.0,
            tuple(_quote(log, index) for index in told[:_QUOTED]), (), (say["unknown_send"],),
        )  # fmt: skip
        return Explanation("unknown", (finding,), count)
    if wrapped or not any(line.plain for line in log.lines):
        sends = list(dict.fromkeys(fill_command(wrapped[index].in_(language)) for index in sorted(wrapped)))
        finding = Finding(
            "insufficient_log", say["insufficient_title"], say["insufficient_why"], 0.9,
            tuple(_quote(log, index) for index in sorted(wrapped)[:_QUOTED]), (), tuple(sends[:4]) or (say["empty"],),
        )  # fmt: skip
        return Explanation("insufficient", (finding,), count)
    findings: tuple[Finding, ...] = ()
    if harmless:
        reasons = list(dict.fromkeys(harmless[index].in_(language) for index in sorted(harmless)))
        findings = (
            Finding(
                "warnings_only_no_failure", say["harmless_title"], " ".join(reasons[:4]), 0.9,
                tuple(_quote(log, index) for index in sorted(harmless)[:_QUOTED]), (), (),
            ),
        )  # fmt: skip
    return Explanation("no_failure", findings, count)
