"""Reads a list of edges from CSV, TSV, Parquet, NPY or NPZ."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from sage_attention.errors import DataError
from sage_attention.recipes.ids import IdColumn, common_type, ids_from_column, ids_from_numbers
from sage_attention.recipes.tables import check_file, file_kind, import_pyarrow, open_table, quoted
from sage_attention.recipes.tables_numpy import is_sparse, npz_int, read_npy, read_npz, sparse_from_npz

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from sage_attention.recipes.tables import PathLike, Table

__all__ = ["EdgeTable", "edges_from_array", "read_edges"]

_SOURCES = (
    "source",
    "src",
    "from",
    "source_id",
    "src_id",
    "from_id",
    "fromnodeid",
    "id_1",
    "id1",
    "node_1",
    "node1",
)
_TARGETS = (
    "target",
    "dst",
    "to",
    "target_id",
    "dst_id",
    "to_id",
    "tonodeid",
    "id_2",
    "id2",
    "node_2",
    "node2",
)


@dataclass(frozen=True)
class EdgeTable:
    """Edges as their file has them, in its order.

    Attributes:
        path: The file.
        source_ids: Where each edge begins, with what is needed to point at a row.
        target_ids: Where each edge ends.
        columns: The further columns asked for, by the name asked with: int64, float64 or text, [E].
        read_as: Of a table, which columns were taken for what, in a line for the user.
    """

    path: Path
    source_ids: IdColumn
    target_ids: IdColumn
    columns: dict[str | int, NDArray[Any]] = field(default_factory=dict)
    read_as: str = ""

    @property
    def source(self) -> NDArray[Any]:
        """Ids of the sources: int64 or text, shape [E]."""
        return self.source_ids.values

    @property
    def target(self) -> NDArray[Any]:
        """Ids of the targets: int64 or text, shape [E]; of the same type as the sources."""
        return self.target_ids.values

    def __len__(self) -> int:
        return int(self.source.size)


def read_edges(
    path: PathLike,
    *,
    source: str | int | None = None,
    target: str | int | None = None,
    columns: Sequence[str | int] = (),
    delimiter: str | None = None,
    header: bool | None = None,
    encoding: str | None = None,
) -> EdgeTable:
    r"""Read a list of edges.

    | format | what it holds |
    |---|---|
    | .csv .tsv .tab .txt .edges .edgelist | rows of two or more columns, with a header or without |
    | .parquet .pq | two or more columns |
    | .npy | integers [2, E] or [E, 2]; a [2, 2] array is read as [2, E]: its rows are sources and targets |
    | .npz | `edge_index` like .npy; or `row` (sources) and `col` (targets); or a SciPy sparse matrix |

    In a matrix rows are sources, columns are targets and every stored entry is an edge.

    Without `source` and `target` the columns are those of the usual names (source/target, src/dst, from/to,
    id_1/id_2, ...) if the header has both, else the first two.

    Args:
        path: The file.
        source: Name or 1-based number of the column of sources (tables only).
        target: Name or 1-based number of the column of targets (tables only).
        columns: Further columns to read, by name or 1-based number (tables only).
        delimiter: What separates the cells of a text file; None to find out.
        header: Whether the first row of a text file is a header; None to find out.
        encoding: Of a text file without a byte order mark; None for UTF-8.

    Returns:
        The edges: ids int64 if all are integers, else text.

    Raises:
        DataError: The file is missing or damaged, has no edges or no such column, or a row is wrong.
        ArgumentError: `delimiter` is not one character, or no encoding has that name.
        MissingDependencyError: The format needs PyArrow or SciPy and it is not installed.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "edges.csv")
        >>> _ = path.write_text("source,target\n0,1\n1,2\n")
        >>> edges = read_edges(path)
        >>> edges.source.tolist(), edges.target.tolist()
        ([0, 1], [1, 2])
    """
    kind = file_kind(path, ("text", "parquet", "npy", "npz"))
    if kind in ("text", "parquet"):
        return _from_table(
            open_table(path, delimiter=delimiter, header=header, encoding=encoding), source, target, columns
        )
    file = check_file(path)
    for column in (source, target, *columns):
        if column is not None:
            raise DataError(file, "a table when columns are asked for", f"column {quoted(column)} of a {kind} file")
    if kind == "npy":
        return edges_from_array(file, read_npy(file), None)
    return _from_npz(file)


def _from_table(
    table: Table, source: str | int | None, target: str | int | None, columns: Sequence[str | int]
) -> EdgeTable:
    if len(table.names) < 2:
        raise table.one_column("two columns, source and target")
    first, second = _pair(table, source, target)
    extra = {column: table.find(column) for column in columns}
    wanted = list(dict.fromkeys((first, second, *extra.values())))
    read = table.columns(wanted)
    pair = common_type([ids_from_column(table, first, read[first]), ids_from_column(table, second, read[second])])
    further = {column: _further_column(table, i, read[i]) for column, i in extra.items()}
    told = table.read_as({"source": first, "target": second}, "put # before it")
    return EdgeTable(table.path, pair[0], pair[1], further, told)


def _pair(table: Table, source: str | int | None, target: str | int | None) -> tuple[int, int]:
    """Return the positions of the two columns: as asked for, else by usual names, else the first two."""
    first = None if source is None else table.find(source)
    second = None if target is None else table.find(target)
    usual = table.find_first(_SOURCES), table.find_first(_TARGETS)
    if first is None and second is None and None in usual:
        return 0, 1
    if first is None:
        first = _left(usual[0], 0, taken=second)
    if second is None:
        second = _left(usual[1], 1, taken=first)
    if first == second:
        got = f"column {quoted(table.label(first))} for both"
        raise DataError(table.path, "two columns for source and target", got)
    return first, second


def _left(usual: int | None, plain: int, taken: int | None) -> int:
    if usual is not None and usual != taken:
        return usual
    return plain if plain != taken else 1 - plain


def _further_column(table: Table, position: int, column: Any) -> NDArray[Any]:
    """Return a further column as int64, float64 or text, whichever holds it."""
    pa = import_pyarrow("reading tables")
    name = table.label(position)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if column.null_count:
        at = int(np.argmax(column.is_null().to_numpy()))
        raise DataError(table.path, "a value", "an empty cell", row=table.row(at), column=name)
    if table.untyped:
        try:
            column = column.cast(pa.float64())
            column = column.cast(pa.int64())
        except pa.ArrowInvalid:
            pass  # whatever it could be cast to so far is what it is
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return np.asarray(column.to_numpy()).astype(np.int64)
    if pa.types.is_floating(kind):
        return np.asarray(column.to_numpy()).astype(np.float64)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return np.asarray(column.to_numpy()).astype("U")
    raise DataError(table.path, "numbers or text", f"the type {kind}", column=name)


def edges_from_array(path: Path, array: NDArray[Any], key: str | None) -> EdgeTable:
    """Turn an array into edges.

    Args:
        path: The file it comes from, for messages.
        array: Integers [2, E] or [E, 2]; [2, 2] is read as [2, E].
        key: What an NPZ file calls it, or None.

    Raises:
        DataError: Another shape, no edges, or ids that are not integers from 0 on.
    """
    if array.ndim != 2 or 2 not in array.shape:
        raise DataError(path, "an array of shape [2, E] or [E, 2]", f"shape {list(array.shape)}", column=key)
    by_rows = array.shape[0] == 2
    pair = array if by_rows else array.T
    if pair.shape[1] == 0:
        raise DataError(path, "at least one edge", f"none: shape {list(array.shape)}", column=key)
    ends = []
    for i in range(2):
        place = IdColumn(np.empty(0, np.int64), path, key, _Rows(i, by_rows).row)
        ends.append(ids_from_numbers(place, pair[i]))
    return EdgeTable(path, ends[0], ends[1])


@dataclass(frozen=True)
class _Rows:
    """Counts the rows of an edge array as printing it shows them."""

    end: int
    by_rows: bool

    def row(self, index: int) -> int | None:
        return self.end + 1 if self.by_rows else index + 1


def _from_npz(path: Path) -> EdgeTable:
    arrays = read_npz(path)
    if "edge_index" in arrays:
        return edges_from_array(path, arrays["edge_index"], "edge_index")
    if is_sparse(arrays):
        matrix = sparse_from_npz(path, arrays)
        if matrix.shape[0] != matrix.shape[1]:
            raise DataError(path, "a square matrix of edges", f"shape {list(matrix.shape)}")
        coo = matrix.tocoo()
        parts = {"row": coo.row, "col": coo.col}
    elif {"row", "col"} <= arrays.keys():
        parts = {key: npz_int(path, key, arrays[key]) for key in ("row", "col")}
    else:
        keys = ", ".join(sorted(arrays))
        raise DataError(path, "arrays named edge_index, or row and col, or a SciPy sparse matrix", keys)
    if parts["row"].shape != parts["col"].shape:
        got = f"{parts['row'].size} and {parts['col'].size}"
        raise DataError(path, "row and col of one length", got)
    if parts["row"].size == 0:
        raise DataError(path, "at least one edge", "none")
    ends = [
        ids_from_numbers(IdColumn(np.empty(0, np.int64), path, key, _position), part) for key, part in parts.items()
    ]
    return EdgeTable(path, ends[0], ends[1])


def _position(index: int) -> int | None:
    return index + 1
