"""Text to lines: without colours, progress bars and the prefixes that runners put before each line.

Contract: every line keeps the number that an editor shows for it. A line has two forms, what is quoted (``text``) and
what is matched (``plain``): quotes of every language are ', backslashes are /, and mojibake is undone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .mojibake import repair

__all__ = ["Line", "clean"]

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[@-Z\\-_]|\^\[\[[0-9;]*[A-Za-z]"
    r"|(?<![\w\]])\[(?:[0-9]{1,3}(?:;[0-9]{1,3})*)?m|[\u2190\u241b]\[[0-9;]*[A-Za-z]"
)
_ESCAPE_MARKS = ("\x1b", "^[[", "[0m", "[m", "\u2190[", "\u241b[")
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u200b-\u200f\u2028-\u202e\ufeff]")
_PREFIX = re.compile(
    r"^(?:\ufeff|\s*\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,\d]*(?:Z|[+-]\d\d:?\d\d)?[ :|]\s*"  # runners, journals
    r"|\s*\[?\d\d:\d\d:\d\d(?:[.,]\d+)?\]?\s+"
    r"|#\d+\s+\d+\.\d+\s+"  # docker build
    r"|\s*\d{1,3}>(?=\S|\s)"  # MSBuild's parallel projects
    r"|##\[\w+\]|::(?:error|warning)[^:]*::"
    r"|\s*(?:\[?(?:stderr|stdout|build)\]?)[:|]\s*|\s*[|│]\s+|>\s?(?=>|\s*\w))+"
)
_QUOTES = str.maketrans(
    dict.fromkeys('"`´‘’‚‛“”„‟«»‹›「」『』《》＂＇｢｣', "'")
    | {"\\": "/", "：": ":", "，": ",", "（": "(", "）": ")", "\u00a0": " ", "\u3000": " ", "\u202f": " "}
)
_PREFIX_STARTS = frozenset("0123456789[#|│>:sb\ufeffS")
_SLASHES = re.compile(r"(?<!:)//+")
_EMBEDDED_NEWLINE = re.compile(r"\\r\\n|\\n(?=[ \w/'\"])")
_LONGEST = 20_000  # of a line; a command line of Windows has at most 32,767 characters
_WORTH_KEEPING = re.compile(r"error|fail|fatal|错误|エラー|Fehler|erreur|ошибка|오류", re.IGNORECASE)


@dataclass(frozen=True)
class Line:
    """One line of a log.

    Attributes:
        number: Counted from 1, as an editor does.
        text: As it is quoted.
        plain: As it is matched.
        source: The file it is from.
    """

    number: int
    text: str
    plain: str
    source: str = ""


def clean(text: str, source: str = "") -> list[Line]:
    r"""The lines of a log.

    Args:
        text: The log.
        source: Name of the file, kept with each line.

    Example:
        >>> clean("\x1b[31mC:\\a.h(3): error C2065: \x1b[0m“or”: x\n")[0].plain
        "C:/a.h(3): error C2065: 'or': x"
    """
    lines: list[Line] = []
    text = text.replace("\r\r\n", "\n").replace("\r\n", "\n")
    escapes = any(mark in text for mark in _ESCAPE_MARKS)
    controls = _CONTROLS.search(text) is not None
    rows = text.split("\n")
    if rows and not rows[-1]:
        rows.pop()
    if len(rows) == 1 and rows[0].count("\r") > 3:  # an old Mac's file, or one joined by a terminal
        rows = rows[0].split("\r")
    for number, row in enumerate(rows, 1):
        for part in _parts(row):
            shown = part if len(part) <= _LONGEST else part[: _LONGEST // 2] + " … " + part[-_LONGEST // 2 :]
            if escapes:
                shown = _ESCAPES.sub("", shown)
            if controls:
                shown = _CONTROLS.sub("", shown)
            shown = shown.rstrip()
            lines.append(Line(number, shown, _plain(shown), source))
    return lines


def _plain(text: str) -> str:
    if text.isascii():
        text = text.replace('"', "'").replace("`", "'").replace("\\", "/")
    else:
        text = repair(text).translate(_QUOTES)
    text = text.strip()
    if text[:1] in _PREFIX_STARTS:
        text = _PREFIX.sub("", text, count=1).strip()
    return _SLASHES.sub("/", text).replace("''", "'") if "//" in text or "''" in text else text


def _parts(row: str) -> list[str]:
    """What one line shows: a progress bar leaves its last state, an escaped text several lines."""
    if "\r" in row:
        states = [state for state in row.split("\r") if state.strip()]
        kept = [state for state in states[:-1] if _WORTH_KEEPING.search(state[:500])][-20:]
        return [part for state in kept + states[-1:] for part in _parts(state)] or [""]
    if row.count("\\n") > 1 and _WORTH_KEEPING.search(row):
        return [row, *_EMBEDDED_NEWLINE.split(row[:200_000])[:2000]]
    return [row]
