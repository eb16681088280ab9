"""What is known of failures: causes, signatures, wrappers, harmless warnings, phrases; JSON under ``data/explain``.

Contract: loading reads files and compiles nothing; an expression is compiled when a literal it needs was found.
``cause.schema.json`` beside the data says what an entry holds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from sage_attention.toolchain.data_files import table, tables

__all__ = ["Cause", "Fact", "Fix", "Harmless", "Knowledge", "Pattern", "Signature", "Text", "Wrapper", "load"]

_MACRO = re.compile(r"\{\{(\w+)\}\}")
_SYSTEM_OF_SHELL = {"cmd": "windows", "powershell": "windows", "sh": "unix"}


@dataclass(frozen=True)
class Text:
    """The same words in the languages the tool speaks."""

    en: str
    zh: str

    def in_(self, language: str) -> str:
        """The words in one language.

        Args:
            language: ``"en"`` or ``"zh"``.
        """
        return self.zh if language == "zh" else self.en


@dataclass
class Pattern:
    """An expression, and literals one of which is in every line it can match.

    Attributes:
        seek: Lower-case literals.
        source: The expression, with phrases already put in.
    """

    seek: tuple[str, ...]
    source: str
    _compiled: re.Pattern[str] | None = field(default=None, repr=False)

    def search(self, text: str, start: int = 0, end: int = 1 << 30) -> re.Match[str] | None:
        """``re.search``, compiled on first use.

        Args:
            text: What to look through.
            start: From where.
            end: Up to where.
        """
        if self._compiled is None:
            self._compiled = re.compile(self.source, re.IGNORECASE)
        return self._compiled.search(text, start, end)


@dataclass(frozen=True)
class Signature:
    """One way in which a cause shows.

    Attributes:
        event: The kind of event whose subject is looked at, or "" for a line.
        pattern: What the subject or the line must match.
        weight: How far it proves the cause, from 0 to 1.
        context: Observations that must hold for the whole log.
        unless: Observations of which none may hold.
        near: An expression that must match within ``within`` lines, or None.
        within: See ``near``.
        candidates: Other causes that look the same, the likeliest first.
    """

    event: str
    pattern: Pattern
    weight: float
    context: tuple[str, ...]
    unless: tuple[str, ...]
    near: Pattern | None
    within: int
    candidates: tuple[str, ...]


@dataclass(frozen=True)
class Fix:
    """One step that mends it: a command for a shell, words, or both; ``on`` as in ``system.fits``."""

    shell: str
    command: str
    note: Text | None
    on: str = ""


@dataclass(frozen=True)
class Fact:
    """What would settle it, and on which system; ``on`` as in ``system.fits``."""

    text: Text
    on: str = ""


@dataclass(frozen=True)
class Cause:
    """An entry of the knowledge base.

    Attributes:
        id: Its name in ``--format json``.
        topic: The file it is from.
        title: One line.
        why: What happened and why the fix helps.
        signatures: How it shows.
        explains: Causes that are mere consequences of this one.
        fixes: What mends it, in order.
        facts: What would settle it.
        machine: Fact of ``doctor`` -> value that speaks for this cause.
        sources: Where the knowledge is from.
        as_of: When it was last checked, ``YYYY-MM``.
    """

    id: str
    topic: str
    title: Text
    why: Text
    signatures: tuple[Signature, ...]
    explains: tuple[str, ...]
    fixes: tuple[Fix, ...]
    facts: tuple[Fact, ...]
    machine: dict[str, Any]
    sources: tuple[str, ...]
    as_of: str


@dataclass(frozen=True)
class Wrapper:
    """A line that says that something failed and not what."""

    pattern: Pattern
    send: Text


@dataclass(frozen=True)
class Harmless:
    """A line that looks bad and is harmless."""

    pattern: Pattern
    why: Text


@dataclass(frozen=True)
class Knowledge:
    """All of it.

    Attributes:
        causes: By id.
        events: Kind and pattern with a group ``subject``, in the order in which they are tried.
        observations: By name; of the whole log.
        wrappers: Lines that tell nothing.
        warnings: Harmless lines.
        packages: Header or library -> package per package manager.
        phrases: Localised messages by name.
    """

    causes: dict[str, Cause]
    events: tuple[tuple[str, Pattern], ...]
    observations: dict[str, Pattern]
    wrappers: tuple[Wrapper, ...]
    warnings: tuple[Harmless, ...]
    packages: tuple[tuple[Pattern, dict[str, str]], ...]
    phrases: dict[str, tuple[str, ...]]


@lru_cache(maxsize=1)
def load() -> Knowledge:
    """The knowledge base.

    Returns:
        The same object each time.

    Example:
        >>> load().causes["windows_sdk_missing"].title.en
        'Part of the Windows SDK is missing'
    """
    phrases = {name: tuple(texts) for name, texts in table("explain/phrases")["phrases"].items()}
    causes: dict[str, Cause] = {}
    for group, found in tables("explain/causes").items():
        for entry in found["causes"]:
            causes[entry["id"]] = _cause(entry, group, phrases)
    lines = table("explain/lines")
    observations = table("explain/observations")["observations"]
    return Knowledge(
        causes=causes,
        events=tuple((entry["event"], _pattern(entry, phrases)) for entry in table("explain/events")["events"]),
        observations={entry["name"]: _pattern(entry, phrases) for entry in observations},
        wrappers=tuple(Wrapper(_pattern(entry, phrases), _text(entry["send"])) for entry in lines["wrappers"]),
        warnings=tuple(Harmless(_pattern(entry, phrases), _text(entry["why"])) for entry in lines["warnings"]),
        packages=tuple(
            (Pattern((), entry["file"]), dict(entry["packages"])) for entry in table("explain/packages")["packages"]
        ),
        phrases=phrases,
    )


def _text(entry: dict[str, str]) -> Text:
    return Text(entry["en"], entry["zh"])


def _pattern(entry: dict[str, Any], phrases: dict[str, tuple[str, ...]], key: str = "line") -> Pattern:
    seek: list[str] = []
    for literal in entry.get("seek", ()):
        macro = _MACRO.fullmatch(literal)
        seek.extend(phrases[macro.group(1)] if macro else (literal,))
    return Pattern(tuple(dict.fromkeys(seek)), _expand(entry.get(key, ""), phrases))


def _expand(source: str, phrases: dict[str, tuple[str, ...]]) -> str:
    def alternatives(match: re.Match[str]) -> str:
        texts = sorted(phrases[match.group(1)], key=len, reverse=True)
        return "(?:" + "|".join(re.escape(text) for text in texts) + ")"

    return _MACRO.sub(alternatives, source)


def _signature(entry: dict[str, Any], phrases: dict[str, tuple[str, ...]]) -> Signature:
    event = entry.get("event", "")
    return Signature(
        event=event,
        pattern=_pattern(entry, phrases, "subject" if event else "line"),
        weight=float(entry.get("weight", 0.9)),
        context=tuple(entry.get("context", ())),
        unless=tuple(entry.get("unless", ())),
        near=Pattern((), _expand(entry["near"], phrases)) if "near" in entry else None,
        within=int(entry.get("within", 3)),
        candidates=tuple(entry.get("or", ())),
    )


def _cause(entry: dict[str, Any], topic: str, phrases: dict[str, tuple[str, ...]]) -> Cause:
    return Cause(
        id=entry["id"],
        topic=topic,
        title=_text(entry["title"]),
        why=_text(entry["why"]),
        signatures=tuple(_signature(one, phrases) for one in entry["signatures"]),
        explains=tuple(entry.get("explains", ())),
        fixes=tuple(
            Fix(
                one.get("shell", ""),
                one.get("run", ""),
                _text(one["note"]) if "note" in one else None,
                one.get("on") or _SYSTEM_OF_SHELL.get(one.get("shell", ""), ""),
            )
            for one in entry["fixes"]
        ),
        facts=tuple(Fact(_text(one), one.get("on", "")) for one in entry.get("facts", ())),
        machine=dict(entry.get("machine", {})),
        sources=tuple(entry["sources"]),
        as_of=entry["as_of"],
    )
