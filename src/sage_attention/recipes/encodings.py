"""Finds out how the bytes of a text file are to be read, and brings them to UTF-8.

Windows writes text in many ways: UTF-16 with a byte order mark (``>`` in Windows PowerShell, "Unicode text" in Excel),
UTF-8 with one (Notepad, "CSV UTF-8"), and without any mark the code page of the country (cp936 in China, cp1252 in the
West), which nothing in the file names. The first two are recognised; the last has to be said, never guessed.
"""

from __future__ import annotations

import codecs
import locale
import os
from typing import TYPE_CHECKING

from sage_attention.errors import ArgumentError, DataError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["check_encoding", "check_utf8", "decoded"]

_SAMPLE_BYTES = 1 << 20
_MAGIC = (
    (b"PK\x03\x04", "a zip archive or an Excel file", "in Excel choose 'Save as', 'CSV UTF-8'"),
    (b"\x1f\x8b", "gzip data", "decompress it first"),
    (b"PAR1", "Parquet data", "name the file .parquet"),
    (b"\x93NUMPY", "a NumPy array", "name the file .npy"),
)
_WIDE_MARKS = (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_SAVE_ANEW = "save it as UTF-8 (Excel: 'CSV UTF-8'; Notepad: encoding UTF-8)"


def check_encoding(encoding: str | None) -> str | None:
    """Return the usual name of an encoding of text, None for None.

    Raises:
        ArgumentError: No encoding has that name.

    Example:
        >>> check_encoding("GBK"), check_encoding(None)
        ('gbk', None)
    """
    if encoding is None:
        return None
    expected, hint = "the name of an encoding of text", "for example gbk, cp1252 or utf-8"
    try:
        name = codecs.lookup(encoding).name
        "x".encode(name)  # base64 and kin are codecs, too
        b"x".decode(name, errors="replace")
    except (LookupError, ValueError, TypeError):
        raise ArgumentError("encoding", expected, repr(encoding), hint) from None
    return name


def decoded(path: Path, data: bytes, encoding: str | None = None) -> bytes:
    """Return a text file's content as UTF-8 without a byte order mark.

    Args:
        path: The file, for messages.
        data: What it holds. A byte order mark tells the encoding.
        encoding: What it is in without such a mark; None for UTF-8.

    Raises:
        DataError: It is not text in that encoding. UTF-8 itself is left for `check_utf8` or the parser to check.
    """
    for magic, what, hint in _MAGIC:
        if data.startswith(magic):
            raise DataError(path, "text", what, hint=hint)
    if data.startswith(codecs.BOM_UTF8):
        data = data[len(codecs.BOM_UTF8) :]
    elif data.startswith(_WIDE_MARKS):
        wide = data.startswith(_WIDE_MARKS[:2])
        try:
            data = data.decode("utf-32" if wide else "utf-16").encode()
        except UnicodeError:
            raise DataError(
                path, "text in UTF-8 or UTF-16", "broken UTF-16", hint="the file may be cut short"
            ) from None
    elif encoding not in (None, "utf-8"):
        data = _converted(path, data, str(encoding))
    if b"\0" in data[:_SAMPLE_BYTES]:
        _refuse_zeros(path, data)
    # Files joined by `copy` or `cat`: the marks of the later ones, and the end that DOS wrote.
    return data.replace(b"\n" + codecs.BOM_UTF8, b"\n").rstrip(b"\x1a")


def _converted(path: Path, data: bytes, encoding: str) -> bytes:
    try:
        return data.decode(encoding).encode()
    except UnicodeDecodeError as error:
        row = data[: error.start].decode(encoding, errors="replace").count("\n") + 1
        got, hint = f"byte 0x{data[error.start]:02x}", "give its real encoding, or save it as UTF-8"
        raise DataError(path, f"text in {encoding}", got, row=row, hint=hint) from None
    except UnicodeError as error:  # half a surrogate pair, or a codec with rules of its own
        raise DataError(path, f"text in {encoding}", str(error)) from None


def _refuse_zeros(path: Path, data: bytes) -> None:
    """Refuses what no text in UTF-8 holds, and recognises UTF-16 that lacks its mark."""
    expected = "text in UTF-8, or in UTF-16 with a byte order mark"
    sample = data[: min(len(data), _SAMPLE_BYTES) & ~1]
    pairs = len(sample) // 2
    for first, name in ((1, "utf-16-le"), (0, "utf-16-be")):
        if sample[first::2].count(0) > 0.4 * pairs and sample[1 - first :: 2].count(0) == 0:
            hint = f"say --encoding {name} (encoding={name!r}), or save it as UTF-8"
            raise DataError(path, expected, "UTF-16 without one", hint=hint)
    raise DataError(path, expected, "binary data", hint="save it as 'CSV UTF-8'")


def check_utf8(path: Path, data: bytes) -> None:
    """Refuse what is not UTF-8, and name the row.

    Raises:
        DataError: At the first byte that is not UTF-8.
    """
    try:
        data.decode()
    except UnicodeDecodeError as error:
        row = data.count(b"\n", 0, error.start) + 1
        hint = f"{_SAVE_ANEW}, or say what it is in: {_suggestion(data[: error.start + _SAMPLE_BYTES])}"
        raise DataError(path, "text in UTF-8", f"byte 0x{data[error.start]:02x}", row=row, hint=hint) from None


def _suggestion(data: bytes) -> str:
    """An option to try: the code page of this Windows if it fits, else those of many people."""
    page = locale.getpreferredencoding(False).lower() if os.name == "nt" else ""
    if page.startswith("cp") and page != "cp65001":
        try:
            data.decode(page)
        except UnicodeDecodeError as error:
            fits = error.end >= len(data)  # the sample may end within a character
        else:
            fits = True
        if fits:
            return f"--encoding {page}"
    return "--encoding gbk (Chinese Windows) or cp1252 (Western)"
