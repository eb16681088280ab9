"""Bytes to text, whatever wrote them: UTF-8, UTF-16 and the legacy encodings of consoles, mixed in one file or not.

Contract: never fails, keeps the number of lines, and decodes line by line, since one log is often written by
programs that do not agree (a Chinese ``cl`` prints GBK between the UTF-8 lines of pip).
"""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["decode"]

_BOMS = (
    (b"\xff\xfe\x00\x00", "utf-32-le"),
    (b"\x00\x00\xfe\xff", "utf-32-be"),
    (b"\xef\xbb\xbf", "utf-8"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)
# In order of preference where two fit a text equally well.
_LEGACY = ("gb18030", "cp932", "cp949", "big5", "cp1251", "cp1252", "cp866", "cp850")
_SAMPLE = 64 * 1024
# The most frequent characters of diagnostics; they tell GBK from Shift-JIS, Big5 and Korean bytes that also decode.
_TELLING = {
    "gb18030": "的是不了错误无法文件打开找到指定未解析外部符号命令在为中有个已用程序模块此值与警告和成功正在创建库对象",
    "big5": "的是不了錯誤無法檔案開啟找到指定未解析外部符號命令在為中有個已用程式模組此值與警告和成功正在建立",
    "cp932": "のはをにがでとたしてるまんなっエラファイルシンボ未解決外部指定開見",
    "cp949": "다를을이가의수없습니기호외부확인할지정된파일열오류모듈찾에서는하않",
}


def decode(data: bytes) -> str:
    r"""The text of a log.

    Args:
        data: The file as it is.

    Returns:
        The text; bytes that fit no encoding become U+FFFD.

    Example:
        >>> decode("找不到指定的模块。\n".encode("gbk"))
        '找不到指定的模块。\n'
        >>> decode("LNK1104".encode("utf-16"))
        'LNK1104'
    """
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            if encoding.startswith("utf-16"):
                return _sixteen(data[2:], encoding)
            if encoding == "utf-8":
                return _eight(data[3:])
            return data[len(bom) :].decode(encoding, "replace")
    guess = _bare_sixteen(data)
    return _sixteen(data, guess) if guess else _eight(data)


def _bare_sixteen(data: bytes) -> str | None:
    """UTF-16 without its mark: every second byte of Latin text is zero."""
    sample = data[:_SAMPLE]
    if len(sample) < 4 or b"\0" not in sample:
        return None
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    mark = sample.find(b"\xff\xfe")
    if max(even, odd) * 40 < len(sample) or (mark > 0 and b"\0" not in sample[:mark]):
        return None
    return "utf-16-le" if odd > even * 4 else "utf-16-be" if even > odd * 4 else None


def _sixteen(data: bytes, encoding: str) -> str:
    """UTF-16, up to where something else was appended to the file (``>>`` from another shell)."""
    newline = "\n".encode(encoding)
    parts = []
    start = 0
    while start < len(data):
        end = _plain_bytes_from(data, start, newline)
        parts.append(data[start:end].decode(encoding, "replace"))
        if end >= len(data):
            break
        stop = data.find(newline, end)
        stop = len(data) if stop < 0 or b"\0" not in data[end : end + 400] else end + 400
        parts.append(_eight(data[end:stop].replace(b"\0", b"")))
        start = stop
    return "".join(parts).replace("\ufeff", "")


def _plain_bytes_from(data: bytes, start: int, newline: bytes) -> int:
    """Where a long run of 8-bit text begins at the start of a line, or the end."""
    run = re.compile(rb"[\t\r\n\x20-\x7e]{40,}").search(data, start)
    if run is None:
        return len(data)
    before = data.rfind(newline, start, run.start() + 2)
    return run.start() if before < 0 else before + 2


def _eight(data: bytes) -> str:
    """8-bit text; lines that are not UTF-8 get the one legacy encoding that fits them all best."""
    if b"\xff\xfe" in data and b"\0" in data:  # UTF-16 appended to 8-bit text
        head, mark, tail = data.partition(b"\xff\xfe")
        if tail[:200].count(0) * 4 > len(tail[:200]):
            return _eight(head) + decode(mark + tail)
    data = data.replace(b"\0", b"")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        pass
    lines: list[str | bytes] = []
    for line in data.split(b"\n"):
        try:
            lines.append(line.decode("utf-8"))
        except UnicodeDecodeError:  # noqa: PERF203  line by line is the point
            lines.append(line)
    odd = [line for line in lines if isinstance(line, bytes)]
    encoding = _best_legacy(odd)
    return "\n".join(_legacy(line, encoding) if isinstance(line, bytes) else line for line in lines)


def _legacy(line: bytes, encoding: str) -> str:
    text = line.decode(encoding, "replace")
    # A line of UTF-8 that was cut in the middle of a character, or has one broken byte, is still UTF-8.
    if "\ufffd" in text or encoding in ("cp1252", "cp850", "cp866", "cp1251"):
        utf8 = line.decode("utf-8", "replace")
        wrong, many = utf8.count("\ufffd"), sum(character > "\x7f" for character in utf8)
        if wrong * 4 < many:
            return utf8
    return text


def _best_legacy(lines: list[bytes]) -> str:
    # Identical lines say nothing new, and the first few hundred say enough.
    sample = b"\n".join(list(dict.fromkeys(lines))[:400])[:_SAMPLE]
    return max(_LEGACY, key=lambda encoding: _fitness(sample, encoding))


_ACCENTED = re.compile(
    "(?:(?<=[A-Za-z])[àâäáãåçéèêëíîïñóôöõúùûüßøæąćęłńśźż](?=[a-z\\s.,:;)'\"])|\\b[éèêçôñáíóúàäöü](?=[a-z]))",
    re.IGNORECASE,
)


@lru_cache(maxsize=1)
def _telling() -> dict[str, frozenset[str]]:
    return {encoding: frozenset(characters) for encoding, characters in _TELLING.items()}


def _fitness(sample: bytes, encoding: str) -> float:
    """How much a text read in this encoding looks like a text; higher is better."""
    text = sample.decode(encoding, "replace")
    foreign = [character for character in text if character > "\x7f"]
    if not foreign:
        return 0.0
    # An accented letter stands among Latin ones, in any encoding that has it.
    score = 0.5 * len(_ACCENTED.findall(text))
    telling = _telling().get(encoding)
    if telling is not None:
        score += 2.0 * sum(character in telling for character in foreign)
        score += 0.1 * sum(
            "\u3040" <= c <= "\u30ff" or "\u4e00" <= c <= "\u9fff" or "\uac00" <= c <= "\ud7a3" for c in foreign
        )
        score -= 1.0 * sum("\uff61" <= c <= "\uff9f" or "\ue000" <= c <= "\uf8ff" for c in foreign)
    elif encoding in ("cp1251", "cp866"):
        score += 0.6 * len(re.findall("[а-яё]{2,}", text)) + 0.35 * len(re.findall("[а-яё]", text))
        score -= 0.5 * len(re.findall("[а-яё][А-ЯЁ]|[^\\Wа-яёА-ЯЁ_][а-яё]|[\u2500-\u259f]", text))
    else:
        score += 0.2 * len(re.findall("[«»“”„‘’…–—]", text))
        score -= 0.3 * len(re.findall("[\u2500-\u259f¤¦§¨©ª¬®¯°±²³¶·¸¹º¼½¾¿÷×ÐÞð]", text))
    score -= 1.0 * text.count("\ufffd")
    return score / len(foreign)
