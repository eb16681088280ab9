"""Consoles that never fail on what they are asked to show.

Chinese Windows consoles (cp936), Western ones (cp1252) and ``LANG=C`` cannot show every character; a service
may have no console at all; a pipe may be closed at its other end. None of that may end hours of training, or a report.
"""

from __future__ import annotations

import os
import sys
from typing import IO

__all__ = ["SafeStream", "can_show", "write", "write_script"]

# What stands for a character where the console lacks it. Others become "?".
_ASCII = {
    "…": "...", "–": "-", "—": "-", "−": "-", "→": "->", "←": "<-", "×": "x", "·": "-", "•": "*", "≈": "~",
    "≤": "<=", "≥": ">=", "±": "+-", "µ": "u", "μ": "u", "✓": "ok", "✗": "x", "█": "#", "━": "-",
    "‘": "'", "’": "'", "“": '"', "”": '"', "\u00a0": " ", "\u202f": " ", "\u3000": " ",
    "│": "|", "├": "|", "└": "`", "╰": "`", "─": "-", "：": ":", "，": ",", "（": "(", "）": ")",
}  # fmt: skip


class SafeStream:
    """Wraps a text stream; replaces what its encoding lacks and falls silent once it is gone.

    Args:
        stream: The stream, or None for standard output, which itself may be missing (``pythonw``, services).

    Example:
        >>> import io
        >>> raw = io.BytesIO()
        >>> console = io.TextIOWrapper(raw, encoding="ascii", write_through=True)
        >>> SafeStream(console).write("3 → 4")
        5
        >>> raw.getvalue()
        b'3 -> 4'
    """

    def __init__(self, stream: IO[str] | None = None) -> None:
        self._stream: IO[str] | None = sys.stdout if stream is None else stream
        self.encoding: str = getattr(self._stream, "encoding", None) or "utf-8"

    def shown(self, text: str) -> str:
        """The text as this console can show it.

        Args:
            text: Any text.

        Returns:
            The same text, with the characters that the encoding lacks replaced.
        """
        try:
            text.encode(self.encoding)
        except UnicodeEncodeError:
            return "".join(self._shown_character(character) for character in text)
        except LookupError:  # an encoding this Python does not know
            return text.encode("ascii", errors="replace").decode("ascii")
        return text

    def _shown_character(self, character: str) -> str:
        try:
            character.encode(self.encoding)
        except UnicodeEncodeError:
            return _ASCII.get(character, "?")
        return character

    def write(self, text: str) -> int:
        """Write text; a stream that is closed or gone swallows it.

        Args:
            text: What to write.

        Returns:
            The number of characters taken.
        """
        if self._stream is not None:
            try:
                self._stream.write(self.shown(text))
            except (OSError, ValueError):  # closed pipe, closed file, console gone
                self._stream = None
        return len(text)

    def flush(self) -> None:
        """Flush the stream, if it is still there."""
        if self._stream is not None:
            try:
                self._stream.flush()
            except (OSError, ValueError):
                self._stream = None

    def isatty(self) -> bool:
        """Whether a person looks at this stream through a terminal.

        Returns:
            False for files, pipes and notebooks, and for terminals that cannot move the cursor
            (``TERM=dumb``).
        """
        if self._stream is None or os.environ.get("TERM", "").lower() == "dumb":
            return False
        try:
            return bool(self._stream.isatty())
        except (AttributeError, ValueError):
            return False

    def fileno(self) -> int:
        """The stream's file number, from which ``rich`` knows a Windows console.

        Returns:
            The number.

        Raises:
            OSError: The stream has none.
        """
        if self._stream is None:
            raise OSError("the stream is gone")
        return self._stream.fileno()


def can_show(text: str, stream: IO[str] | None = None) -> bool:
    """Whether a console has all characters of a text.

    Args:
        text: The text.
        stream: The console; standard output by default.

    Returns:
        False also where Python does not know the console's encoding.
    """
    try:
        text.encode(SafeStream(stream).encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def write(text: str, stream: IO[str] | None = None) -> None:
    """Prints a whole report; what the console lacks is replaced, and a console that is gone swallows it.

    Args:
        text: What to print.
        stream: Where; standard output by default.
    """
    out = SafeStream(stream)
    target = sys.stdout if stream is None else stream
    raw = getattr(target, "buffer", None)
    plain = out.shown(text)
    if raw is None or plain.count("?") - text.count("?") <= len(text) // 20:
        out.write(plain)
        out.flush()
        return
    # Chinese into a Western code page would be question marks alone: better whole, and in another encoding.
    try:
        target.flush()
        raw.write(text.encode())
        raw.flush()
    except (OSError, ValueError):
        return


def write_script(text: str) -> None:
    """Prints a script that a Windows shell is to read from a file or a pipe.

    cmd and PowerShell read in the console's code page, and Python writes into files and pipes in the system's: on
    Western systems they differ, and a folder with an accent in its name would not be found.

    Args:
        text: The script.
    """
    page = _console_code_page()
    raw = getattr(sys.stdout, "buffer", None)
    if page is None or raw is None or text.isascii() or sys.stdout.isatty():
        write(text)
        return
    try:
        encoded = text.encode(page)
    except (UnicodeEncodeError, LookupError):
        write(text)
        return
    try:
        sys.stdout.flush()
        raw.write(encoded.replace(b"\n", b"\r\n"))
        raw.flush()
    except (OSError, ValueError):  # closed pipe, closed file
        return


def _console_code_page() -> str | None:
    """The console's code page, as a name that Python knows; None elsewhere than on Windows or without a console."""
    if sys.platform != "win32":
        return None
    import ctypes

    number = int(ctypes.windll.kernel32.GetConsoleOutputCP())
    return {0: None, 65001: "utf-8"}.get(number, f"cp{number}")
