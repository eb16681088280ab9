"""Prints on any console: cp936, cp1252, ASCII, a closed pipe, none at all."""

from __future__ import annotations

import sys
from typing import IO

__all__ = ["can_show", "shown", "write"]

# What stands for a character where the console lacks it; others become "?".
_PLAIN = str.maketrans(
    {
        "–": "-", "—": "-", "…": "...", "×": "x", "✓": "ok", "✗": "x", "·": "-", "•": "*", "→": "->", "│": "|",
        "╰": "`", "─": "-", "‘": "'", "’": "'", "“": '"', "”": '"', "：": ":", "，": ",", "（": "(", "）": ")",
        "\u00a0": " ", "\u3000": " ",
    }
)  # fmt: skip


def can_show(text: str, stream: IO[str] | None = None) -> bool:
    """Whether a console has all characters of a text.

    Args:
        text: The text.
        stream: The console; standard output by default.
    """
    try:
        text.encode(_encoding(stream))
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def shown(text: str, encoding: str) -> str:
    """The text as a console of this encoding can show it.

    Args:
        text: Any text.
        encoding: The console's encoding.

    Example:
        >>> shown("3 – 4 …", "ascii")
        '3 - 4 ...'
    """
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(_PLAIN).encode(encoding, "replace").decode(encoding)
    except LookupError:  # an encoding that this Python does not know
        return text.translate(_PLAIN).encode("ascii", "replace").decode("ascii")
    return text


def write(text: str, stream: IO[str] | None = None) -> None:
    """Prints; a stream that is closed or gone swallows it.

    Args:
        text: What to print.
        stream: Where; standard output by default.
    """
    out = sys.stdout if stream is None else stream
    if out is None:
        return
    try:
        out.write(shown(text, _encoding(out)))
        out.flush()
    except (OSError, ValueError):
        return


def _encoding(stream: IO[str] | None) -> str:
    return getattr(sys.stdout if stream is None else stream, "encoding", None) or "utf-8"
