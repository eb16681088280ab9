"""What was found out, with its words in two languages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .lists import data

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["SEVERITIES", "Finding", "few", "phrase"]

SEVERITIES = ("error", "warning", "note")


@dataclass(frozen=True)
class Finding:
    """One conclusion.

    Attributes:
        code: A key of ``findings`` in ``inspect_texts.json``.
        file: The file it is about; empty for the whole wheel.
        facts: What the words are filled with; a value that is a pair of strings is English and Chinese.
    """

    code: str
    file: str
    facts: Mapping[str, Any]

    @property
    def severity(self) -> str:
        """``error``: it fails for users; ``warning``: for some of them, or later; ``note``: good to know."""
        return str(data("inspect_texts")["findings"][self.code]["severity"])

    def words(self, language: str) -> tuple[str, str]:
        """What is so, and what to do about it (may be empty)."""
        title, fix = data("inspect_texts")["findings"][self.code][language]
        facts = {
            name: value.get(language, value["en"]) if isinstance(value, dict) else value
            for name, value in self.facts.items()
        }
        return str(title.format(**facts)), str(fix.format(**facts))


def phrase(group: str, key: str, language: str, **facts: str) -> str:
    """Words of ``inspect_texts.json``: states, kinds, outcomes.

    Example:
        >>> phrase("states", "after_torch", "en")
        'found only after `import torch`'
    """
    entry = data("inspect_texts")[group].get(key)
    return str(entry[language].format(**facts)) if entry else ""


def few(names: Iterable[str], most: int = 3) -> str:
    """The first names of a list, and how many more there are.

    Example:
        >>> few(["a", "b", "c", "d", "e"])
        'a, b, c (+2)'
    """
    listed = sorted(names)
    return ", ".join(listed[:most]) + (f" (+{len(listed) - most})" if len(listed) > most else "")
