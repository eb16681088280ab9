"""Makes a wheel smaller without changing what is in it: folders of tables in one file, and a better compressor.

zlib forgets what it read 32 KB ago. Tables of one folder have much in common, so that they pack better without the
white space between, one after the other, and with texts beside those of the same key: Chinese apart from English,
patterns apart from commands. zopfli looks longer than zlib for the same format.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import zipfile
from typing import TYPE_CHECKING, Any
from unittest import mock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["DATA", "join_tables", "joined_tables", "slim"]

DATA = "sage_attention/toolchain/data"
_LIBRARIES = (".so", ".dll")


def joined_tables(data: Path) -> dict[str, bytes]:
    """Each folder of JSON files as one file, which ``toolchain/data_files.py`` reads; all without white space.

    Args:
        data: The folder with the folders.

    Returns:
        By name in `data`, what the files hold.
    """
    texts = {path.name: _packed(_read(path)) for path in data.glob("*.json")}
    for folder in [path for path in data.iterdir() if path.is_dir()]:
        # Named like their paths, without the suffix.
        paths = {path.relative_to(folder).with_suffix("").as_posix(): path for path in folder.rglob("*.json")}
        strings: dict[str, list[str]] = {}
        emptied = {name: _emptied(_read(paths[name]), name, strings) for name in sorted(paths)}
        texts[f"{folder.name}.json"] = _packed({"tables": emptied, "strings": strings})
    return texts


def join_tables(data: Path) -> None:
    """Puts ``joined_tables`` in the place of what a folder holds."""
    texts = joined_tables(data)
    shutil.rmtree(data)
    data.mkdir()
    for name, text in texts.items():
        (data / name).write_bytes(text)


def slim(wheel: Path, scratch: Path) -> None:
    """Packs a wheel anew.

    Args:
        wheel: Is replaced.
        scratch: A folder that may be emptied.
    """
    from wheel.wheelfile import WheelFile  # is there where wheels are built

    shutil.rmtree(scratch, ignore_errors=True)
    with WheelFile(str(wheel)) as source:
        source.extractall(scratch)
    join_tables(scratch / DATA)
    for path in scratch.rglob("*"):  # whatever the umask
        path.chmod(0o755 if path.is_dir() or path.suffix in _LIBRARIES else 0o644)
    wheel.unlink()
    with _zopfli(), WheelFile(str(wheel), "w") as target:
        target.write_files(str(scratch))


class _Compressor:
    """zopfli's, as ``zipfile`` calls one."""

    def __init__(self) -> None:
        self._given: list[bytes] = []

    def compress(self, data: bytes) -> bytes:
        self._given.append(data)
        return b""

    def flush(self) -> bytes:
        import zopfli.zlib  # is there where wheels are built

        # Between zlib's header of two bytes and its checksum of four is what archives hold.
        packed: bytes = zopfli.zlib.compress(b"".join(self._given), blocksplittingmax=0)[2:-4]
        return packed


@contextlib.contextmanager
def _zopfli() -> Iterator[None]:
    """Lets ``zipfile``, which knows no other compressors, use zopfli."""
    with mock.patch.object(zipfile, "_get_compressor", side_effect=lambda *_: _Compressor()):
        yield


def _emptied(table: Any, key: str, strings: dict[str, list[str]]) -> Any:
    """A table with "" for each string, which goes to those of its key; ``toolchain/data_files.py`` puts them back."""
    if isinstance(table, dict):
        return {name: _emptied(value, name, strings) for name, value in table.items()}
    if isinstance(table, list):
        return [_emptied(value, key, strings) for value in table]
    if not isinstance(table, str):
        return table
    strings.setdefault(key, []).append(table)
    return ""


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _packed(tables: Any) -> bytes:
    return json.dumps(tables, ensure_ascii=False, separators=(",", ":")).encode()
