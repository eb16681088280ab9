"""From a file to what is in it; bytes that lie about their own lengths end in one clear error."""

from __future__ import annotations

import mmap
import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Union

from sage_attention.errors import DataError, SageAttentionError

if TYPE_CHECKING:
    from pathlib import Path

    from .model import Binary

__all__ = ["Buffer", "Bytes", "is_binary", "read_binaries"]

Buffer = Union[bytes, mmap.mmap]
_MAGIC = {
    b"MZ": "pe",
    b"\x7fELF": "elf",
    b"\xce\xfa\xed\xfe": "macho",
    b"\xcf\xfa\xed\xfe": "macho",
    b"\xfe\xed\xfa\xce": "macho",
    b"\xfe\xed\xfa\xcf": "macho",
    b"\xca\xfe\xba\xbe": "macho",  # also a Java class, told apart by the count that follows
    b"\xca\xfe\xba\xbf": "macho",
}
_MOST_SLICES = 30  # a Java class has its version there, 45 or more
_LONGEST_STRING = 1 << 16
_MOST_TEXT = 1 << 29


class Bytes:
    """Random access to a file that never reads outside it.

    Args:
        data: The whole file.
        path: What errors call it.
    """

    def __init__(self, data: Buffer, path: Path) -> None:
        self.data = data
        self.path = path
        # Tables and names of an intact file hardly overlap; where they do, a small file is endless work.
        self._table_left = 2 * len(data) + (1 << 12)
        self._text_left = min(4 * len(data) + (1 << 20), _MOST_TEXT)

    def __len__(self) -> int:
        return len(self.data)

    def damaged(self, expected: str, got: object) -> DataError:
        """The error for a file that contradicts itself."""
        return DataError(self.path, expected, got, hint="the file is damaged or cut off: fetch or build it again")

    def take(self, offset: int, size: int, what: str) -> bytes:
        """A range that must be there."""
        if offset < 0 or size < 0 or offset + size > len(self.data):
            raise self.damaged(
                f"{size} bytes of {what} at offset {offset}", f"a file of {len(self.data)} bytes: it is truncated"
            )
        return self.data[offset : offset + size]

    def table(self, offset: int, size: int, what: str) -> bytes:
        """A range that must be there, and that few others of the file share."""
        self._table_left -= size
        if self._table_left < 0:
            raise self.damaged("tables that lie side by side", f"{what} that share their bytes with others")
        return self.take(offset, size, what)

    def unpack(self, layout: str, offset: int, what: str) -> tuple[int, ...]:
        """Numbers that must be there."""
        return struct.unpack(layout, self.take(offset, struct.calcsize(layout), what))

    def string(self, offset: int, end: int | None = None) -> str:
        """A string that ends with a zero byte; empty where there is none."""
        last = min(len(self.data) if end is None else end, offset + _LONGEST_STRING, len(self.data))
        if not 0 <= offset < last:
            return ""
        stop = self.data.find(b"\0", offset, last)
        stop = last if stop < 0 else stop
        self._text_left -= stop - offset
        if self._text_left < 0:
            raise self.damaged("names that lie side by side", "names that share their bytes with others")
        return self.data[offset:stop].decode("utf-8", "backslashreplace")


def _format_of(head: bytes) -> str | None:
    for magic, name in _MAGIC.items():
        if head.startswith(magic):
            if magic[:3] == b"\xca\xfe\xba" and int.from_bytes(head[4:8], "big") > _MOST_SLICES:
                return None
            return name
    return None


def is_binary(path: Path) -> bool:
    """Whether a file looks like an executable, a shared library or an extension module of any system."""
    with path.open("rb") as file:
        head = file.read(8)
    return len(head) == 8 and _format_of(head) is not None


@lru_cache(maxsize=4096)
def read_binaries(path: Path) -> tuple[Binary, ...]:
    """Reads a file of any of the three formats: one binary, or one for each architecture in a universal file.

    Raises:
        DataError: It is none of them, or it is damaged.
    """
    try:
        with path.open("rb") as file:
            head = file.read(8)
            format_name = _format_of(head)
            if format_name is None:
                raise DataError(
                    path, "a Windows, Linux or macOS binary (PE, ELF, Mach-O)", f"a file that begins {head!r}"
                )
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _read(format_name, data, path)
    except OSError as error:
        raise DataError(path, "a file that can be read", error.strerror or error) from error


def _read(format_name: str, data: Buffer, path: Path) -> tuple[Binary, ...]:
    try:
        if format_name == "pe":
            from .pe import read_pe

            return (read_pe(data, path),)
        if format_name == "elf":
            from .elf import read_elf

            return (read_elf(data, path),)
        from .macho import read_macho

        return read_macho(data, path)
    except SageAttentionError:
        raise
    # The two libraries raise whatever Python does with the numbers they found.
    except Exception as error:
        raise Bytes(data, path).damaged(f"an intact {format_name} file", f"{type(error).__name__}: {error}") from error
