"""Wheels and other zip files, unpacked as if somebody had made them to do harm.

Only what is looked at is unpacked: binaries, metadata, and the Python files beside them. Nothing is written outside
the folder given, nothing is run, and both the bytes written and the number of members are bounded.
"""

from __future__ import annotations

import stat
import zipfile
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from sage_attention.errors import DataError, SageAttentionError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["unpack"]

_MOST_MEMBERS = 200_000
_MOST_BYTES = 12 << 30  # of all members; the largest wheels there are hold 4 GiB
_MOST_PYTHON = 4 << 20  # of one Python or metadata file
_SUSPICIOUS = 64 << 20  # from this size on
_RATIO = 250  # a member that shrinks so much holds nothing but padding
_CHUNK = 1 << 20
_BINARY = (".dll", ".dylib", ".exe", ".pyd", ".so")
_TEXT = (".py", ".pth", "/METADATA", "/WHEEL", "/RECORD")
_MAGIC = (b"MZ", b"\x7fELF", b"\xce\xfa\xed\xfe", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"\xca\xfe\xba\xbf")


def unpack(archive: Path, folder: Path) -> list[str]:
    """Unpacks what is worth looking at and returns the names of all members.

    Args:
        archive: The wheel.
        folder: An empty folder to unpack into.

    Raises:
        DataError: It is no zip file, it is damaged, or it is built to do harm.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            members = _checked(archive, opened)
            for info in members:
                _unpack_member(archive, opened, info, folder)
            return [info.filename for info in members]
    except SageAttentionError:
        raise
    except OSError as error:
        raise DataError(archive, "a file that can be read and unpacked", error.strerror or error) from error
    # zipfile raises a dozen kinds of exception for what it finds in damaged archives.
    except Exception as error:
        got = f"{type(error).__name__}: {error}"
        raise DataError(archive, "a zip file that can be read", got, hint="fetch or build it again") from error


def _checked(archive: Path, opened: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """The members, once nothing about them is absurd."""

    def refuse(expected: str, got: object) -> DataError:
        return DataError(archive, expected, got, hint="this archive was not made by a build tool: do not install it")

    members = [info for info in opened.infolist() if not info.filename.endswith("/")]
    if len(members) > _MOST_MEMBERS:
        raise refuse(f"at most {_MOST_MEMBERS} members", len(members))
    seen: set[str] = set()
    for info in members:
        name = info.filename
        parts = PurePosixPath(name).parts
        if name.startswith("/") or "\\" in name or ".." in parts or ":" in name or "\0" in name or not parts:
            raise refuse("members inside the archive's own folder", repr(name))
        if name in seen:
            raise refuse("each member once", f"{name!r} twice")
        seen.add(name)
        if info.flag_bits & 1:
            raise refuse("members that are not encrypted", repr(name))
        if stat.S_ISLNK(info.external_attr >> 16):
            raise refuse("no symbolic links", repr(name))
        if info.file_size > _SUSPICIOUS and info.file_size > _RATIO * max(info.compress_size, 1):
            raise refuse(
                f"{name!r} to be at most {_RATIO} times its compressed size",
                f"{info.file_size / info.compress_size:.0f}",
            )
    total = sum(info.file_size for info in members)
    if total > _MOST_BYTES:
        raise refuse(f"at most {_MOST_BYTES >> 30} GiB in all", f"{total >> 30} GiB")
    # Members that share their compressed bytes are how a small file becomes petabytes.
    if sum(info.compress_size for info in members) > archive.stat().st_size:
        raise refuse("members that do not overlap", "members that do")
    return members


def _unpack_member(archive: Path, opened: zipfile.ZipFile, info: zipfile.ZipInfo, folder: Path) -> None:
    name = info.filename
    if name.endswith(_TEXT):
        if info.file_size > _MOST_PYTHON:
            return
    elif not name.lower().endswith(_BINARY) and ".so." not in name and not _begins_as_binary(opened, info):
        return
    place = folder / name
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.open("wb") as file:
        for chunk in _chunks(archive, opened, info):
            file.write(chunk)


def _begins_as_binary(opened: zipfile.ZipFile, info: zipfile.ZipInfo) -> bool:
    if "." in PurePosixPath(info.filename).name or info.file_size < 64:
        return False  # programs and some libraries have no suffix; what has another one is data
    with opened.open(info) as file:
        return file.read(4).startswith(_MAGIC)


def _chunks(archive: Path, opened: zipfile.ZipFile, info: zipfile.ZipInfo) -> Iterator[bytes]:
    left = info.file_size
    with opened.open(info) as file:
        while True:
            chunk = file.read(_CHUNK)
            if not chunk:
                return
            left -= len(chunk)
            if left < 0:
                raise DataError(archive, f"{info.filename!r} to be as long as it says", "more bytes than that")
            yield chunk
