"""Reads ``{"node id": [indices of its features], ...}`` into a sparse binary matrix."""

from __future__ import annotations

import json
from itertools import chain
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from sage_attention.errors import DataError
from sage_attention.recipes.encodings import check_encoding, check_utf8, decoded
from sage_attention.recipes.ids import IdColumn, ids_from_arrow
from sage_attention.recipes.tables import import_pyarrow, import_sparse, quoted, read_bytes

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["read_active_features"]

_MOST = int(np.iinfo(np.int32).max)
_SHAPE = 'a JSON object {"node id": [feature indices], ...}'


class _RepeatedKeyError(Exception):
    """A key comes twice; carries it out of the JSON parser."""


def _unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _RepeatedKeyError(key)
            seen.add(key)
    return found


def read_active_features(
    path: Path, num_features: int | None = None, encoding: str | None = None
) -> tuple[IdColumn, Any]:
    """Read a JSON object of active features.

    Args:
        path: A file that exists: ``{"id": [indices], ...}``; an index may come twice and counts once.
        num_features: The width of the matrix; None for the largest index and one.
        encoding: Of a file without a byte order mark; None for UTF-8.

    Returns:
        The ids in the file's order, and a float32 `scipy.sparse.csr_array` [N, F] of ones, int32 indices.

    Raises:
        DataError: Broken JSON (with row and column), another shape, a repeated key, an index that is not an
            integer from 0 on.
        ArgumentError: No encoding has that name.
    """
    encoding = check_encoding(encoding)
    data = decoded(path, read_bytes(path), encoding)
    check_utf8(path, data)
    text = data.decode()
    nodes = _parsed(path, text)
    if not isinstance(nodes, dict):
        raise DataError(path, _SHAPE, f"a JSON {_kind(nodes)}")
    if not nodes:
        raise DataError(path, "at least one node", "an empty JSON object")
    if set(map(type, nodes.values())) != {list}:
        key = next(key for key, value in nodes.items() if type(value) is not list)
        _refuse(path, text, key, "a list of feature indices", _kind(nodes[key]))
    flat = list(chain.from_iterable(nodes.values()))
    # The exact type: True is an int to isinstance, and 1.0 is none to anybody.
    if set(map(type, flat)) - {int} or (flat and (min(flat) < 0 or max(flat) >= _MOST)):
        _refuse_index(path, text, nodes)
    width = max(flat, default=-1) + 1 if num_features is None else num_features
    if width == 0:
        raise DataError(path, "at least one feature", "empty lists only")
    indices = np.array(flat, dtype=np.int32)
    if indices.size and int(indices.max()) >= width:
        key = next(key for key, value in nodes.items() if value and max(value) >= width)
        _refuse(path, text, key, f"feature indices below {width}", str(max(nodes[key])))
    indptr = np.zeros(len(nodes) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, nodes.values()), np.int64, len(nodes)), out=indptr[1:])
    matrix = import_sparse("sparse features").csr_array(
        (np.ones(indices.size, np.float32), indices, indptr.astype(np.int32)), shape=(len(nodes), width)
    )
    matrix.sum_duplicates()
    matrix.data.fill(1)
    return _ids(path, list(nodes), encoding), matrix


def _parsed(path: Path, text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_unique_pairs)
    except json.JSONDecodeError as error:
        got = f"broken JSON ({error.msg})"
        hint = "the file may be cut short" if error.pos >= len(text.rstrip()) else ""
        raise DataError(path, _SHAPE, got, row=error.lineno, column=error.colno, hint=hint) from None
    except _RepeatedKeyError as error:
        key = str(error)
        rows = [text.count("\n", 0, at) + 1 for at in _places(text, key)]
        row = rows[1] if len(rows) > 1 else None
        raise DataError(path, "each node once", f"the key {quoted(key)} again", row=row) from None
    except RecursionError:
        raise DataError(path, _SHAPE, "JSON nested too deeply") from None
    except ValueError as error:  # an integer of thousands of digits
        raise DataError(path, _SHAPE, f"JSON that cannot be read ({error})") from None


def _ids(path: Path, keys: list[str], encoding: str | None) -> IdColumn:
    place = IdColumn(np.empty(0, np.int64), path, None, _Lines(path, keys, encoding).row, untyped=True)
    pa = import_pyarrow("reading JSON files")
    try:
        column = pa.chunked_array([pa.array(keys, pa.string())])
    except UnicodeEncodeError:
        raise DataError(path, "node ids of valid text", "half of a surrogate pair (\\ud800...)") from None
    return ids_from_arrow(place, column)


class _Lines:
    """Finds the line of a key, once something is wrong with it."""

    def __init__(self, path: Path, keys: list[str], encoding: str | None) -> None:
        self._path, self._keys, self._encoding = path, keys, encoding

    def row(self, index: int) -> int | None:
        try:
            text = decoded(self._path, read_bytes(self._path), self._encoding).decode(errors="replace")
        except DataError:
            return None
        return _line(text, self._keys[index])


def _places(text: str, key: str) -> list[int]:
    written, places, at = json.dumps(key, ensure_ascii=not key.isprintable()), [], -1
    while (at := text.find(written, at + 1)) >= 0:
        if text[at + len(written) :].lstrip()[:1] == ":":
            places.append(at)
    return places


def _line(text: str, key: str) -> int | None:
    places = _places(text, key)
    return text.count("\n", 0, places[0]) + 1 if places else None


def _kind(value: Any) -> str:
    names = {list: "list", dict: "object", str: "string", bool: "boolean", type(None): "null"}
    return names.get(type(value), "number")


def _refuse(path: Path, text: str, key: str, expected: str, got: str) -> NoReturn:
    raise DataError(path, expected, f"{got} for node {quoted(key)}", row=_line(text, key))


def _refuse_index(path: Path, text: str, nodes: dict[str, list[Any]]) -> NoReturn:
    for key, indices in nodes.items():
        for index in indices:
            if type(index) is not int or not 0 <= index < _MOST:
                shown = json.dumps(index)
                expected = f"feature indices that are integers from 0 to {_MOST - 1}"
                _refuse(path, text, key, expected, shown if len(shown) < 40 else shown[:40] + "...")
    raise AssertionError("unreachable: the caller has seen a wrong index")
