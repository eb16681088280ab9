"""A log that can be asked where something stands: all lines as one lower-case text, searched literal by literal.

Contract: looking for a few hundred literals in 50,000 lines takes a fraction of a second; expressions run only on the
lines, and the part of a very long line, where a literal was found.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .clean import Line
    from .knowledge import Pattern

__all__ = ["Log", "Place"]

_WINDOW = 3000  # characters on either side of a literal in a long line
_SHORT = 500  # a line that no expression takes long for
_REPEATED = 6  # how often a line may hold the literal of a message; further on it holds nothing new
_MOST = 3000  # places looked at per literal: what is said three thousand times was said before


@dataclass(frozen=True)
class Place:
    """Where an expression matched.

    Attributes:
        index: Position of the line in ``Log.lines``.
        match: What the expression found.
    """

    index: int
    match: re.Match[str]


class Log:
    """The lines of one or more files, in order.

    Args:
        lines: What ``clean`` gave.
    """

    def __init__(self, lines: list[Line]) -> None:
        self.lines = lines
        # Bytes are searched several times faster than text with characters beyond Latin-1.
        encoded = [line.plain.lower().encode("utf-8", "replace") for line in lines]
        self._text = b"\n".join(encoded)
        self._starts = [0, *accumulate(len(line) + 1 for line in encoded)]
        self._found: dict[str, list[tuple[int, int]]] = {}
        self._quiet: dict[int, bool] = {}

    @cached_property
    def _words(self) -> bytes:
        """Every word once: most literals are not in a log, and here that is seen at once."""
        return b"\n".join(set(_WORD.findall(self._text)))

    def positions(self, literal: str) -> list[tuple[int, int]]:
        """Where a literal stands: index of the line and offset in it, once per line.

        Args:
            literal: In lower case.
        """
        known = self._found.get(literal)
        if known is None:
            known = self._found[literal] = self._positions(literal.encode())
        return known

    def _positions(self, literal: bytes) -> list[tuple[int, int]]:
        text, starts = self._text, self._starts
        if _longest_word(literal) not in self._words:
            return []
        places: list[tuple[int, int]] = []
        at = text.find(literal)
        while at >= 0 and len(places) < _MOST:
            index = bisect_right(starts, at) - 1
            places.append((index, at - starts[index]))
            at = text.find(literal, starts[index + 1]) if index + 1 < len(self.lines) else -1
        return places

    def is_quiet(self, index: int) -> bool:
        """Whether a line only says what is being done, or is about a test program that may fail.

        Args:
            index: The line.
        """
        known = self._quiet.get(index)
        if known is None:
            plain = self.lines[index].plain
            known = bool(_ACTIVITY.match(plain)) or self._is_in_a_warning(index)
            known = known or (_is_a_probe(plain) and not self._is_of_a_fatal_probe(index))
            if known and plain.startswith("-- Could NOT find"):  # said of what is optional, unless CMake ends over it
                known = not any(line.plain.startswith("CMake Error") for line in self.lines[index + 1 : index + 4])
            self._quiet[index] = known
        return known

    def _is_of_a_fatal_probe(self, index: int) -> bool:
        """Whether a line is printed under CMake's refusal of a compiler, whose reason it may be."""
        return any(0 <= index - refusal <= _PRINTED for refusal, _ in self.positions(_REFUSAL))

    def _is_in_a_warning(self, index: int) -> bool:
        """Whether an indented line belongs to a warning of CMake, whose text may read like an error."""
        for line in reversed(self.lines[max(0, index - 20) : index + 1]):
            if line.plain and not line.text[:1].isspace():
                return line.plain.startswith(("CMake Warning", "CMake Deprecation Warning"))
        return False

    def places(self, pattern: Pattern, *, quiet: bool = False) -> Iterator[Place]:
        """Where a pattern matches, in the order of the lines.

        Args:
            pattern: One with literals to look for.
            quiet: Also in lines that only say what is being done.
        """
        offsets: dict[int, tuple[int, str]] = {}
        for literal in pattern.seek:
            for index, offset in self.positions(literal):
                offsets.setdefault(index, (offset, literal))
        for index in sorted(offsets):
            if not quiet and self.is_quiet(index):
                continue
            text = self.lines[index].plain
            offset, literal = offsets[index]
            end = offset + _WINDOW
            if len(text) > _SHORT:
                end = min(end, _repeated(text, literal))
            match = pattern.search(text, max(0, offset - _WINDOW), end)
            if match is not None:
                yield Place(index, match)

    def first(self, pattern: Pattern) -> Place | None:
        """The first place where a pattern matches in any line, or None.

        Args:
            pattern: One with literals to look for.
        """
        return next(self.places(pattern, quiet=True), None)

    def near(self, pattern: Pattern, index: int, within: int) -> bool:
        """Whether a pattern matches at most so many lines before or after a line.

        Args:
            pattern: Its literals are not used.
            index: The line.
            within: How many lines.
        """
        around = self.lines[max(0, index - within) : index + within + 1]
        return any(pattern.search(line.plain[: 2 * _WINDOW]) for line in around)


@lru_cache(maxsize=4096)
def _longest_word(literal: bytes) -> bytes:
    return max(_WORD.findall(literal), key=len, default=b"")


def _repeated(text: str, literal: str) -> int:
    """Where a line holds a literal once too often: expressions that start at each of hundreds take quadratic time."""
    lowered = text.lower()
    at = -1
    for _ in range(_REPEATED):
        at = lowered.find(literal, at + 1)
        if at < 0:
            return len(text)
    return at


_WORD = re.compile(rb"[0-9a-z_\x80-\xff]+")
# What tools print about their work: file names and options in such lines are no messages.
_ACTIVITY = re.compile(
    r"(?:copying|adding|creating|writing|reading|removing|hard linking|inflating|extracting|byte-compiling|moving|"
    r"linking|skipping|changing mode of|Collecting|Downloading|Requirement already|Using cached|Found existing|"
    r"Preparing to unpack|Unpacking|Selecting|Setting up|Get:\d+|Cloning into|"
    r"\[\d+/\d+\] (?:Building|Compiling|Linking|Generating)|"
    r"-- (?:Installing|Up-to-date|Looking for|Performing Test|Found|Check(?:ing)? |Could NOT find|No )|checking )\s*\S"
    r"|(?:\[\d+/\d+\] )?'?(?:[A-Za-z]:)?[\w./+ ()-]*(?:gcc|g\+\+|cc|c\+\+|clang|clang\+\+|cl|nvcc|link|ar|ld)"
    r"(?:-\d+)?(?:\.exe)?'? "
    r"(?=.*(?:-c |/c |-o |/OUT:|-shared|/nologo))(?!.*: (?:fatal )?error)(?:[-/@]|\S+\.(?:o|obj|c|cpp|cc|cu)\b)",
    re.IGNORECASE,
)
_PROBES = (
    "_configtest", "conftest.c", "cmakefiles/cmaketmp", "cmakescratch", "checksymbolexists", "checkfunctionexists",
    "checkincludefile", "meson-private/tmp", "testfile.c", "sanitycheckc", "cmakecxxcompilerabi",
)  # fmt: skip


_REFUSAL = "is not able to compile a simple test"
_PRINTED = 60  # lines that CMake prints of a test program's build


def _is_a_probe(plain: str) -> bool:
    """Whether a line is about a test program of a configure step, which may fail: that is the answer it looks for."""
    lowered = plain[:2000].lower()
    return any(probe in lowered for probe in _PROBES) and "is not able to compile" not in lowered
