"""Undoes text that was read in the wrong encoding, where that can be told for sure.

UTF-8 read as something else is recognisable: what the wrong reading gives back as bytes is valid UTF-8, which other
text hardly ever is. A legacy encoding read as another is believed only when a known message comes out.
"""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["repair"]

_READ_AS = ("cp1252", "latin-1", "gb18030", "cp932", "cp949", "cp1251", "cp437", "cp850")
_LEGACY = (
    ("cp1252", "gbk"), ("latin-1", "gbk"), ("cp1252", "cp932"), ("latin-1", "cp932"), ("cp1252", "cp949"),
    ("latin-1", "cp949"), ("cp1252", "cp1251"), ("cp1252", "cp850"), ("cp850", "cp1252"), ("cp1251", "cp866"),
    ("cp866", "cp1251"), ("cp437", "gbk"), ("cp850", "gbk"), ("cp437", "cp1252"), ("latin-1", "cp850"),
)  # fmt: skip
_MARKER = re.compile(
    r"\b(?:[A-Z]{1,4}\d{4}|error|fatal|WinError|Errno|DLL load failed|ImportError|OSError)\b", re.IGNORECASE
)
_RUN = re.compile(r"[^\x00-\x7f]+(?:[\x20-\x7e]{0,2}[^\x00-\x7f]+)*")


def repair(text: str) -> str:
    """The line as its writer meant it, or as it is.

    Args:
        text: A line with characters beyond ASCII.

    Example:
        >>> repair("DLL load failed: 找不到".encode().decode("cp1252", "replace").replace("\ufffd", "?"))[:15]
        'DLL load failed'
        >>> repair("nicht gefunden: größer".encode().decode("cp1252"))
        'nicht gefunden: größer'
    """
    for encoding in _READ_AS:
        try:
            return text.encode(encoding).decode("utf-8")
        except UnicodeError:  # noqa: PERF203
            continue
    mended = _RUN.sub(_mend_run, text)
    if mended != text:
        return mended
    if _MARKER.search(text):
        for wrong, right in _LEGACY:
            try:
                candidate = text.encode(wrong).decode(right)
            except UnicodeError:
                continue
            if _is_known(candidate) and not _is_known(text):
                return candidate
    return text


def _mend_run(match: re.Match[str]) -> str:
    """A run of mojibake that lost a byte at its end; only where nearly all of it comes out whole."""
    run = match.group()
    for encoding in ("gb18030", "cp1252"):
        try:
            data = run.encode(encoding)
        except UnicodeError:
            continue
        mended = data.decode("utf-8", "replace")
        if len(mended) >= 4 and mended.count("\ufffd") <= max(1, len(mended) // 6):
            return mended
    return run


@lru_cache(maxsize=1)
def _known() -> tuple[str, ...]:
    from .knowledge import load

    return tuple(phrase for phrases in load().phrases.values() for phrase in phrases if not phrase.isascii())


def _is_known(text: str) -> bool:
    lowered = text.lower()
    return any(phrase in lowered for phrase in _known())
