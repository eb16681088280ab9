"""Node ids: read as the file has them, checked, compared between files, turned into positions.

Contract: ids are int64 or text, never both in one data set. In files that hold text only (CSV, JSON) a
column is integers exactly when every id is a canonical integer; one "007" or "x7" makes all of it text.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable

import numpy as np

from sage_attention.errors import DataError
from sage_attention.recipes.tables import import_pyarrow, quoted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from sage_attention.recipes.tables import Table

__all__ = [
    "ID_NAMES",
    "IdColumn",
    "common_type",
    "ids_from_column",
    "ids_from_numbers",
    "positions",
    "sorted_unique",
    "universe",
]

# What a column of ids is usually called; the last is pandas' name for an index without one.
ID_NAMES = ("id", "node_id", "nodeid", "node", "user_id", "item_id", "__index_level_0__")
_LONGEST = 256
_INTEGER = r"^(0|-?[1-9][0-9]*)$"
_FLOAT = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"


def _no_row(_index: int) -> int | None:
    return None


@dataclass(frozen=True)
class IdColumn:
    """Ids with what it takes to point at one of them in its file.

    Attributes:
        values: int64 or text (NumPy ``U``), shape [n].
        path: The file they come from.
        column: The column's name or 1-based number there, or None.
        row: Tells the editor's row of the k-th id; None where there are no rows.
        untyped: Whether the file holds text only, so that integers are our reading of it.
        distinct: Every text once, in any order, and
        codes: int32 [n], the position of each id among them: comparing text is slow, so it is done once
            per text and not once per row. None where the ids are integers.
    """

    values: NDArray[Any]
    path: Path
    column: str | int | None = None
    row: Callable[[int], int | None] = field(default=_no_row, repr=False, compare=False)
    untyped: bool = False
    distinct: NDArray[Any] | None = field(default=None, repr=False, compare=False)
    codes: NDArray[np.int32] | None = field(default=None, repr=False, compare=False)

    def positions_in(self, nodes: NDArray[Any]) -> NDArray[np.int64]:
        """Return the position in `nodes` of each id, or -1; see `positions`."""
        if self.distinct is None or self.codes is None:
            return positions(nodes, self.values)
        return positions(nodes, self.distinct)[self.codes]

    @property
    def is_text(self) -> bool:
        """Whether the ids are text."""
        return self.values.dtype.kind != "i"

    def error(self, index: int, expected: str, got: object = None, hint: str = "") -> DataError:
        """Return the error that points at the id `index`."""
        shown = quoted(self.values[index]) if got is None else got
        return DataError(self.path, expected, shown, row=self.row(index), column=self.column, hint=hint)

    def as_text(self) -> IdColumn:
        """Return the same ids as text."""
        if self.is_text:
            return self
        return IdColumn(self.values.astype("U"), self.path, self.column, self.row, self.untyped)

    def check_unique(self, what: str) -> None:
        """Refuse an id that comes twice.

        Raises:
            DataError: At the second row of the first id that does.
        """
        again = self.first_repeated()
        if again is not None:
            before, index = again
            first = self.row(before)
            where = "" if first is None else f" (first on row {first})"
            raise self.error(index, what, f"{quoted(self.values[index])} again{where}")

    def first_repeated(self) -> tuple[int, int] | None:
        """Return (first, second) index of the id whose repetition comes first in the file, or None."""
        different = sorted_unique(self.values) if self.distinct is None else self.distinct
        if different.size == self.values.size:
            return None
        order = np.argsort(self.values, kind="stable")
        same = np.flatnonzero(self.values[order[1:]] == self.values[order[:-1]])
        if same.size == 0:
            return None
        at = same[np.argmin(order[same + 1])]
        return int(order[at]), int(order[at + 1])


def ids_from_column(table: Table, position: int, column: Any) -> IdColumn:
    """Turn a column of a table into ids.

    Args:
        table: Where it comes from.
        position: Which column of it.
        column: The `pyarrow.ChunkedArray`.

    Raises:
        DataError: An empty, negative, fractional or too large id, or a type that cannot be one.
    """
    made = IdColumn(np.empty(0, np.int64), table.path, table.label(position), table.row, table.untyped)
    return ids_from_arrow(made, column)


def ids_from_arrow(place: IdColumn, column: Any) -> IdColumn:
    """Turn an Arrow column into ids that come from `place` (whose own values are not looked at).

    Raises:
        DataError: As `ids_from_column`.
    """
    pa = import_pyarrow("reading tables")
    import pyarrow.compute as pc

    types = pa.types
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if column.null_count:
        raise place.error(_first(column.is_null()), "a node id", "an empty cell")
    if types.is_integer(kind):
        return _integers(place, column)
    if types.is_floating(kind):
        values = column.to_numpy()
        odd = np.flatnonzero(values != np.floor(values))
        at = int(odd[0]) if odd.size else 0
        raise place.error(at, "integer or text ids", values[at], hint="store the column as integers")
    if types.is_string(kind) or types.is_large_string(kind):
        if place.untyped:
            integers = _canonical(pa, pc, column)
            if integers is not None:
                return _integers(place, integers)
        # From here on each text is looked at once, however often it comes.
        # One chunk, as chunks would each have a dictionary; large, as it may be over 2 GB.
        encoded = pa.concat_arrays(column.cast(pa.large_string()).chunks).dictionary_encode()
        codes, distinct = encoded.indices.to_numpy(), encoded.dictionary
        if place.untyped:
            trimmed = pc.utf8_trim_whitespace(distinct)
            if not trimmed.equals(distinct):
                return ids_from_arrow(place, pa.chunked_array([trimmed.take(encoded.indices)]))
            _refuse_numbers(place, pc, distinct, codes)
        return _texts(place, pc, distinct, codes)
    raise DataError(place.path, "integer or text ids", f"the type {kind}", column=place.column)


def ids_from_numbers(place: IdColumn, values: NDArray[Any]) -> IdColumn:
    """Turn a NumPy array of numbers, shape [n], into ids that come from `place`.

    Raises:
        DataError: Not integers, negative, or over int64.
    """
    if values.dtype.kind not in "iu":
        shown: object = f"an array of {values.dtype}"
        at = 0
        if values.dtype.kind == "f" and values.size:
            odd = np.flatnonzero(values != np.floor(values))
            at = int(odd[0]) if odd.size else 0
            shown = f"{values[at]} in an array of {values.dtype}"
        raise place.error(at, "integer node ids", shown, hint="convert it with .astype('int64')")
    if values.dtype.kind == "u" and values.size and int(values.max()) > np.iinfo(np.int64).max:
        at = int(np.argmax(values))
        raise place.error(at, "an id that fits 64 signed bits", str(values[at]))
    ids = IdColumn(np.ascontiguousarray(values, dtype=np.int64), place.path, place.column, place.row, place.untyped)
    if ids.values.size and int(ids.values.min()) < 0:
        at = int(np.argmax(ids.values < 0))
        raise ids.error(at, "an id of 0 or more", str(ids.values[at]))
    return ids


def common_type(columns: Sequence[IdColumn]) -> list[IdColumn]:
    """Make the ids of several files one type, or refuse.

    Integers become text only where that is no guess: they come from an untyped file, and the text they
    meet is digits too (zero-padded ids, of which some columns happen to hold none with a zero in front), or,
    within one file, none of it is (users are numbers, items are words). A mixture looks like a slip.

    Raises:
        DataError: Some are text and others integers.
    """
    texts = [c for c in columns if c.is_text]
    integers = [c for c in columns if not c.is_text]
    if not texts or not integers:
        return list(columns)
    for text in texts:
        digits = np.char.isdigit(text.values if text.distinct is None else text.distinct)
        one_file = all(c.path == text.path for c in integers)
        if (digits.all() or (one_file and not digits.any())) and all(c.untyped for c in integers):
            continue
        rows = digits if text.codes is None else digits[text.codes]
        at = int(np.argmin(rows))  # the first that is not, or the first of all
        other = integers[0]
        raise text.error(
            at,
            f"integer node ids, as in {_place_name(other)}",
            f"the text {quoted(text.values[at])}",
            hint="write the ids alike in all files",
        )
    return [c.as_text() for c in columns]


def sorted_unique(values: NDArray[Any]) -> NDArray[Any]:
    """Return the different values, sorted: as `numpy.unique`, several times faster.

    Args:
        values: int64 or text, [n].

    Example:
        >>> sorted_unique(np.array([5, 3, 5])).tolist()
        [3, 5]
    """
    if values.size == 0:
        return values
    if values.dtype.kind == "i":
        low, high = int(values.min()), int(values.max())
        if high - low < 4 * values.size:  # dense enough to tick off
            present = np.zeros(high - low + 1, np.bool_)
            present[values - low] = True
            return np.flatnonzero(present) + low
    else:
        # Sorting text is slow: sort what is left after hashing.
        pa = import_pyarrow("text ids")
        import pyarrow.compute as pc

        left = pc.unique(pa.array(values, pa.string())).to_numpy(zero_copy_only=False)
        return np.sort(np.asarray(left.astype(values.dtype)))
    ordered = np.sort(values)
    new = np.empty(ordered.size, np.bool_)
    new[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    return ordered[new]


def universe(columns: Sequence[IdColumn]) -> NDArray[Any]:
    """Return every id of these columns once, sorted: integers by value, text by code point."""
    parts = [sorted_unique(c.values) if c.distinct is None else c.distinct for c in columns]
    return sorted_unique(np.concatenate(parts))


def positions(nodes: NDArray[Any], ids: NDArray[Any]) -> NDArray[np.int64]:
    """Return the position in `nodes` of each id, or -1.

    Args:
        nodes: Sorted, each once, int64 or text [N].
        ids: Of the same kind, [n].

    Returns:
        int64 [n].

    Example:
        >>> positions(np.array([3, 5, 9]), np.array([9, 4, 3])).tolist()
        [2, -1, 0]
    """
    if nodes.size == 0:
        return np.full(ids.shape, -1, np.int64)
    if nodes.dtype.kind == "i":
        low, high = int(nodes[0]), int(nodes[-1])
        if low == 0 and high == nodes.size - 1:  # 0..N-1, the usual case
            return np.where((ids >= 0) & (ids < nodes.size), ids, -1)
        if high - low < 4 * (nodes.size + ids.size):  # dense enough for a table
            table = np.full(high - low + 1, -1, np.int64)
            table[nodes - low] = np.arange(nodes.size, dtype=np.int64)
            inside = (ids >= low) & (ids <= high)
            return np.where(inside, table[np.where(inside, ids - low, 0)], -1)
    pa = import_pyarrow("ids other than 0..N-1")
    import pyarrow.compute as pc

    # A hash table: many times faster than binary searches that miss the cache.
    kind = pa.int64() if nodes.dtype.kind == "i" else pa.string()
    found = pc.index_in(pa.array(ids, kind), value_set=pa.array(nodes, kind))
    return np.asarray(pc.fill_null(found, -1).to_numpy(zero_copy_only=False), dtype=np.int64)


def _place_name(ids: IdColumn) -> str:
    return ids.path.name if ids.column is None else f"column {ids.column} of {ids.path.name}"


def _first(mask: Any) -> int:
    """Return the index of the first true value of an Arrow column."""
    return int(np.argmax(mask.to_numpy()))


def _canonical(pa: Any, pc: Any, column: Any) -> Any:
    """Return the column as int64 if each cell is an integer written the one usual way, else None."""
    try:
        integers = column.cast(pa.int64())
    except (pa.ArrowException, ValueError):
        return None
    # Writing them again is the cheapest test: "007", "+7" and "0x7" come back different.
    return integers if pc.all(pc.equal(integers.cast(column.type), column)).as_py() else None


def _integers(place: IdColumn, column: Any) -> IdColumn:
    return ids_from_numbers(place, column.to_numpy())


def _refuse_numbers(place: IdColumn, pc: Any, distinct: Any, codes: NDArray[Any]) -> None:
    """Refuse a column of numbers that are not all int64: too large, or with a fraction."""
    if not pc.all(pc.match_substring_regex(distinct, _FLOAT)).as_py():
        return
    fraction = pc.match_substring(distinct, ".")
    if pc.any(fraction).as_py():
        at = _first_row(fraction, codes)
        raise place.error(at, "integer or text ids", quoted(distinct[codes[at]].as_py()))
    if pc.all(pc.match_substring_regex(distinct, _INTEGER)).as_py():
        limits = np.iinfo(np.int64)
        long = pc.greater(pc.utf8_length(distinct), 18).to_numpy(zero_copy_only=False)
        for code in np.flatnonzero(long).tolist():  # in the order of the file
            value = int(distinct[code].as_py())
            if not limits.min <= value <= limits.max:
                at = int(np.argmax(codes == code))
                raise place.error(at, "an id that fits 64 signed bits", quoted(value))


def _texts(place: IdColumn, pc: Any, distinct: Any, codes: NDArray[Any]) -> IdColumn:
    lengths = pc.utf8_length(distinct)
    if pc.min(lengths).as_py() == 0:
        raise place.error(_first_row(pc.equal(lengths, 0), codes), "a node id", "an empty cell")
    longest = pc.max(lengths).as_py()
    # NumPy text is as wide as its longest: one runaway cell would cost gigabytes.
    if longest > _LONGEST:
        at = _first_row(pc.greater(lengths, _LONGEST), codes)
        text = distinct[codes[at]].as_py()
        hint = "is a quote left open, or the delimiter another?"
        got = f"{len(text)} characters: {quoted(text)}"
        raise place.error(at, f"a node id of at most {_LONGEST} characters", got, hint=hint)
    texts = np.asarray(distinct.to_numpy(zero_copy_only=False).astype(f"U{longest}"))
    return IdColumn(
        texts[codes],
        place.path,
        place.column,
        place.row,
        place.untyped,
        texts,
        codes.astype(np.int32, copy=False),
    )


def _first_row(mask: Any, codes: NDArray[Any]) -> int:
    """Return the first row whose text is marked."""
    return int(np.argmax(mask.to_numpy(zero_copy_only=False)[codes]))
