"""What was found out, with its words in two languages."""

from __future__ import annotations

import string
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sage_attention.toolchain.data_files import table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["SEVERITIES", "Finding", "few", "joined", "phrase"]

SEVERITIES = ("error", "warning", "note")


@dataclass(frozen=True)
class Finding:
    """One conclusion.

    Attributes:
        code: A key of ``findings`` in ``inspect_texts.json``.
        file: The file it is about; empty for the whole wheel.
        facts: What the words are filled with; a value that is a pair of strings is English and Chinese.
        libraries: What it is about, if it is about libraries.
    """

    code: str
    file: str
    facts: Mapping[str, Any]
    libraries: tuple[str, ...] = ()

    @property
    def severity(self) -> str:
        """``error``: it fails for users; ``warning``: for some of them, or later; ``note``: good to know."""
        return str(table("inspect_texts")["findings"][self.code]["severity"])

    def words(self, language: str) -> tuple[str, str]:
        """What is so, and what to do about it (may be empty)."""
        title, fix = table("inspect_texts")["findings"][self.code][language]
        facts = {
            name: value.get(language, value["en"]) if isinstance(value, dict) else value
            for name, value in self.facts.items()
        }
        return str(title.format(**facts)), str(fix.format(**facts))


def joined(findings: Iterable[Finding]) -> list[Finding]:
    """One finding for each cause, which names every library that it concerns.

    Example:
        >>> found = joined(Finding("debug_runtime", "a.pyd", {"library": name}) for name in ("ucrtbased.dll", "b.dll"))
        >>> [item.libraries for item in found]
        [('b.dll', 'ucrtbased.dll')]
    """
    groups: dict[tuple[str, ...], tuple[Finding, set[str]]] = {}
    for item in findings:
        said = {name: str(item.facts[name]) for name in _fields(item.code) if name != "library"}
        key = (item.code, item.file, *(f"{name}={value}" for name, value in sorted(said.items())))
        libraries = groups.setdefault(key, (item, set()))[1]
        if "library" in item.facts:
            libraries.add(str(item.facts["library"]))
    return [
        Finding(
            item.code,
            item.file,
            {**item.facts, "library": few(libraries, 6)} if len(libraries) > 1 else item.facts,
            tuple(sorted(libraries)),
        )
        for item, libraries in groups.values()
    ]


def _fields(code: str) -> set[str]:
    """What the words of a finding are filled with, in any language."""
    entry = table("inspect_texts")["findings"][code]
    texts = (text for language, words in entry.items() if language != "severity" for text in words)
    return {name for text in texts for _, name, _, _ in string.Formatter().parse(text) if name}


def phrase(group: str, key: str, language: str, **facts: str) -> str:
    """Words of ``inspect_texts.json``: states, kinds, outcomes.

    Example:
        >>> phrase("states", "after_torch", "en")
        'found only after `import torch`'
    """
    entry = table("inspect_texts")[group].get(key)
    return str(entry[language].format(**facts)) if entry else ""


def few(names: Iterable[str], most: int = 3) -> str:
    """The first names of a list, and how many more there are.

    Example:
        >>> few(["a", "b", "c", "d", "e"])
        'a, b, c (+2)'
    """
    listed = sorted(names)
    return ", ".join(listed[:most]) + (f" (+{len(listed) - most})" if len(listed) > most else "")
