"""Reads node features, dense or sparse, from CSV, Parquet, NPY, NPZ or JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sage_attention.errors import DataError, counted
from sage_attention.recipes.ids import ID_NAMES, IdColumn, ids_from_column
from sage_attention.recipes.tables import (
    check_file,
    file_kind,
    import_pyarrow,
    import_sparse,
    open_table,
    quoted,
)
from sage_attention.recipes.tables_numpy import is_sparse, read_npy, read_npz, sparse_from_npz

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from sage_attention.recipes.tables import PathLike, Table

__all__ = ["FeatureTable", "dense_float32", "read_features", "sparse_float32"]

_KINDS = ("text", "parquet", "npy", "npz", "json")
_NO_ID_HINT = "if the file has no id column, say id_column=False"


@dataclass(frozen=True)
class FeatureTable:
    """Features as their file has them, in its order.

    Attributes:
        path: The file.
        values: float32 [N, F], dense, or a `scipy.sparse.csr_array` where the file is sparse.
        id_column: The id of each row, or None where row k is node k.
        names: What the file calls the F features, or None.
    """

    path: Path
    values: Any
    id_column: IdColumn | None = None
    names: tuple[str, ...] | None = None

    @property
    def ids(self) -> NDArray[Any] | None:
        """The id of each row, int64 or text [N], or None where row k is node k."""
        return None if self.id_column is None else self.id_column.values

    def __len__(self) -> int:
        return int(self.values.shape[0])


def read_features(
    path: PathLike,
    *,
    id_column: str | int | bool = True,
    num_features: int | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
    encoding: str | None = None,
) -> FeatureTable:
    """Read node features.

    | format | what it holds |
    |---|---|
    | .csv .tsv .tab .txt | a column of ids, all others numbers |
    | .parquet .pq | a column of ids, all others numbers, or one column of lists of numbers |
    | .npy | numbers [N, F], row k = node k |
    | .npz | what `scipy.sparse.save_npz` writes, row k = node k; stays sparse |
    | .json | an object ``{"id": [indices of the features this node has], ...}``; becomes sparse, binary |

    The ids of a table are in the column of a usual name (id, node, node_id, or the index of pandas), else
    in the first, unless `id_column` says otherwise.

    Args:
        path: The file.
        id_column: Tables only: name or 1-based number of the column of ids; True to go by that rule; False
            where there is none and row k is node k.
        num_features: How many features there must be; None to take what the file has (for JSON: the largest
            index and one). Give it when a model that exists is to be applied.
        delimiter: What separates the cells of a text file; None to find out.
        header: Whether the first row of a text file is a header; None to find out.
        encoding: Of a text file without a byte order mark; None for UTF-8.

    Returns:
        The features, all finite, each node once.

    Raises:
        DataError: The file is missing or damaged, a cell is not a finite number, an id comes twice.
        ArgumentError: `delimiter` is not one character, or no encoding has that name.
        MissingDependencyError: The format needs PyArrow or SciPy and it is not installed.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "features.json")
        >>> _ = path.write_text('{"7": [0, 2], "8": []}')
        >>> features = read_features(path)
        >>> features.ids.tolist(), features.values.toarray().tolist()
        ([7, 8], [[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    """
    kind = file_kind(path, _KINDS)
    if kind in ("text", "parquet"):
        table = _from_table(open_table(path, delimiter=delimiter, header=header, encoding=encoding), id_column)
    else:
        file = check_file(path)
        if not isinstance(id_column, bool):
            raise DataError(file, "a table when an id column is asked for", f"a .{kind} file")
        if kind == "npy":
            table = FeatureTable(file, dense_float32(file, read_npy(file)))
        elif kind == "npz":
            table = _from_npz(file)
        else:
            table = _from_json(file, num_features, encoding)
    if table.id_column is not None:
        table.id_column.check_unique("each node once")
    if num_features is not None and table.values.shape[1] != num_features:
        raise DataError(table.path, counted(num_features, "feature"), str(table.values.shape[1]))
    return table


def _from_table(table: Table, id_column: str | int | bool) -> FeatureTable:
    if id_column is True:
        usual = table.find_first(ID_NAMES)
        at: int | None = 0 if usual is None else usual
    else:
        at = None if id_column is False else table.find(id_column)
    others = [i for i in range(len(table.names)) if i != at]
    if not others:
        raise table.one_column("columns of ids and of features")
    read = table.columns([] if at is None else [at], others)
    ids = None
    if at is not None:
        try:
            ids = ids_from_column(table, at, read[at])
        except DataError as error:
            if id_column is True and "integer or text" in error.expected:
                raise _with_hint(error, _NO_ID_HINT) from None
            raise
        repeated = ids.first_repeated()
        if repeated is not None:
            hint = _NO_ID_HINT if id_column is True else ""
            got = f"node {quoted(ids.values[repeated[1]])} again (first on row {ids.row(repeated[0])})"
            raise ids.error(repeated[1], "each node once", got, hint=hint)
    if len(others) == 1 and _is_list(read[others[0]].type):
        return FeatureTable(table.path, _from_lists(table, others[0], read[others[0]]), ids)
    values = np.empty((len(read[others[0]]), len(others)), np.float32)
    for j, i in enumerate(others):
        values[:, j] = _numbers(table, i, read.pop(i))
    names = tuple(table.names[i] for i in others) if table.has_header else None
    return FeatureTable(table.path, values, ids, names)


def _with_hint(error: DataError, hint: str) -> DataError:
    return DataError(error.path, error.expected, error.got, row=error.row, column=error.column, hint=hint)


def _numbers(table: Table, position: int, column: Any) -> NDArray[np.float32]:
    """Return a column as float32, all finite."""
    pa = import_pyarrow("reading tables")
    kind = column.type
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    if not numeric:
        hint = "drop the column, or encode it as numbers"
        raise DataError(table.path, "a column of numbers", f"the type {kind}", column=table.label(position), hint=hint)
    if column.null_count:
        at = int(np.argmax(column.is_null().to_numpy()))
        raise DataError(table.path, "a number", "an empty cell", row=table.row(at), column=table.label(position))
    with np.errstate(over="ignore"):  # what becomes infinite is refused just below
        values = np.asarray(column.to_numpy()).astype(np.float32, copy=False)
    if not np.isfinite(values).all():
        at = int(np.argmin(np.isfinite(values)))
        got = quoted(table.cell(at, position) or values[at])
        raise DataError(table.path, "a finite float32 number", got, row=table.row(at), column=table.label(position))
    return values


def _is_list(kind: Any) -> bool:
    types = import_pyarrow("reading tables").types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _from_lists(table: Table, position: int, column: Any) -> NDArray[np.float32]:
    """Turn a Parquet column of lists, all of one length, into a matrix."""
    pa = import_pyarrow("reading Parquet files")
    import pyarrow.compute as pc

    name = table.label(position)
    if column.null_count:
        at = int(np.argmax(column.is_null().to_numpy()))
        raise DataError(table.path, "a list of numbers", "an empty cell", row=table.row(at), column=name)
    lengths = np.asarray(pc.list_value_length(column).to_numpy())
    odd = lengths != lengths[0]
    if odd.any():
        at = int(np.argmax(odd))
        raise DataError(
            table.path,
            f"{counted(lengths[0], 'number')}, as in row 1",
            str(lengths[at]),
            row=table.row(at),
            column=name,
        )
    if lengths[0] == 0:
        raise DataError(table.path, "at least one feature", "empty lists", column=name)
    flat = pc.list_flatten(column)
    numeric = pa.types.is_integer(flat.type) or pa.types.is_floating(flat.type)
    if not numeric:
        raise DataError(table.path, "lists of numbers", f"lists of {flat.type}", column=name)
    with np.errstate(over="ignore", invalid="ignore"):
        values = np.asarray(flat.to_numpy()).astype(np.float32).reshape(-1, int(lengths[0]))
    _check_finite(table.path, values, name)
    return values


def dense_float32(path: Path, array: NDArray[Any], key: str | None = None) -> NDArray[np.float32]:
    """Return a matrix as contiguous float32.

    Args:
        path: The file it comes from, for messages.
        array: Numbers [N, F].
        key: What an NPZ file calls it, or None.

    Raises:
        DataError: Not numbers, not two dimensions, empty, or not finite in float32.
    """
    if array.dtype.kind not in "biuf":
        raise DataError(path, "an array of numbers", f"an array of {array.dtype}", column=key)
    if array.ndim != 2 or 0 in array.shape:
        raise DataError(path, "an array of shape [nodes, features]", f"shape {list(array.shape)}", column=key)
    with np.errstate(over="ignore"):
        values = np.ascontiguousarray(array, dtype=np.float32)
    _check_finite(path, values, key)
    return values


def _check_finite(path: Path, values: NDArray[np.float32], key: str | int | None) -> None:
    finite = np.isfinite(values)
    if not finite.all():
        i, j = (int(n) for n in np.unravel_index(int(np.argmin(finite)), values.shape))
        column = j + 1 if key is None else key
        raise DataError(path, "a finite float32 number", str(values[i, j]), row=i + 1, column=column)


def sparse_float32(path: Path, matrix: Any) -> Any:
    """Return a CSR matrix as float32 with int32 indices, sorted, each entry once.

    Args:
        path: The file, for messages.
        matrix: A `scipy.sparse.csr_array`.

    Raises:
        DataError: An infinite value or NaN, no rows or columns, or more columns than int32 counts.
    """
    if 0 in matrix.shape:
        raise DataError(path, "a matrix of shape [nodes, features]", f"shape {list(matrix.shape)}")
    if matrix.shape[1] > np.iinfo(np.int32).max:
        raise DataError(path, "at most 2147483647 features", str(matrix.shape[1]))
    with np.errstate(over="ignore"):
        data = matrix.data.astype(np.float32)
    if not np.isfinite(data).all():
        at = int(np.argmin(np.isfinite(data)))
        row = int(np.searchsorted(matrix.indptr, at, side="right"))
        column = int(matrix.indices[at]) + 1
        raise DataError(path, "a finite float32 number", str(data[at]), row=row, column=column)
    # Offsets are int32 too where they fit: SciPy wants both of one type.
    index = np.int32 if matrix.indices.size <= np.iinfo(np.int32).max else np.int64
    made = import_sparse("sparse features").csr_array(
        (data, matrix.indices.astype(index), matrix.indptr.astype(index)), shape=matrix.shape
    )
    made.sum_duplicates()
    return made


def _from_npz(path: Path) -> FeatureTable:
    arrays = read_npz(path)
    if not is_sparse(arrays):
        keys = ", ".join(sorted(arrays))
        raise DataError(path, "a matrix written by scipy.sparse.save_npz", f"arrays named {keys}")
    return FeatureTable(path, sparse_float32(path, sparse_from_npz(path, arrays)))


def _from_json(path: Path, num_features: int | None, encoding: str | None) -> FeatureTable:
    from sage_attention.recipes.features_json import read_active_features

    ids, matrix = read_active_features(path, num_features, encoding)
    return FeatureTable(path, matrix, ids)
