"""The tables under ``data/``: JSON that comes with the package, read when first asked for.

In published wheels each folder of tables is one file, with the strings of each key apart, which packs better
(``tools/slim_wheel.py``).
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["table", "tables"]

_DATA = Path(__file__).with_name("data")


@functools.cache
def table(name: str) -> Any:
    """A table of ours.

    Args:
        name: Its path under ``data/`` without the suffix.

    Example:
        >>> table("doctor/cuda_host_compilers")["rows"][0]["cuda"]
        '11.2'
    """
    folder, _, rest = name.partition("/")
    packed = _packed(folder) if rest else None
    return _read(_DATA / f"{name}.json") if packed is None else packed[rest]


def tables(folder: str) -> dict[str, Any]:
    """All tables right in a folder under ``data/``, by name, in the order of their names.

    Args:
        folder: Its path, with ``/``.

    Example:
        >>> list(tables("explain/causes"))[:2]
        ['crash', 'cuda']
    """
    top, _, rest = folder.partition("/")
    packed = _packed(top)
    if packed is None:
        names = [path.stem for path in (_DATA / folder).glob("*.json")]
    else:
        paths = [name.rpartition("/") for name in packed]
        names = [name for parent, _, name in paths if parent == rest]
    return {name: table(f"{folder}/{name}") for name in sorted(names)}


@functools.cache
def _packed(folder: str) -> dict[str, Any] | None:
    """All tables under a folder, by path, where they are one file."""
    if (_DATA / folder).is_dir():
        return None
    packed = _read(_DATA / f"{folder}.json")
    strings = {key: iter(those) for key, those in packed["strings"].items()}
    return {name: _filled(table, name, strings) for name, table in packed["tables"].items()}


def _filled(table: Any, key: str, strings: dict[str, Iterator[str]]) -> Any:
    """A table in which each string is the next of those of its key."""
    if isinstance(table, dict):
        return {name: _filled(value, name, strings) for name, value in table.items()}
    if isinstance(table, list):
        return [_filled(value, key, strings) for value in table]
    return next(strings[key]) if isinstance(table, str) else table


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
