"""Reads NPY and NPZ files. Pickled objects are never loaded, whatever the file says.

The two places that catch every exception do so because the bytes of a damaged file drive NumPy, zipfile,
zlib, ast and tokenize, and no list of what these raise is complete: fuzzing has found `tokenize.TokenError`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sage_attention.errors import DataError, counted
from sage_attention.recipes.tables import import_sparse

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["csr_checked", "is_sparse", "npz_int", "read_npy", "read_npz", "sparse_from_npz"]

_NPY_MAGIC = b"\x93NUMPY"
_SPARSE_KEYS = {
    "csr": ("data", "indices", "indptr"),
    "csc": ("data", "indices", "indptr"),
    "coo": ("data", "row", "col"),
}


def _damaged(path: Path, what: str, error: Exception) -> DataError:
    if "Object arrays" in str(error) or "pickle" in str(error):
        hint = "pickles are never loaded, as they can run code; save a numeric array"
        return DataError(path, what, "pickled Python objects", hint=hint)
    reason = (str(error).splitlines() or [""])[0].rstrip(".") or type(error).__name__
    return DataError(path, what, f"one that cannot be read ({reason})", hint="the file may be cut short")


def read_npy(path: Path) -> NDArray[Any]:
    """Read the array of an NPY file.

    Raises:
        DataError: The file is not NPY, is cut short, or holds pickled objects.
    """
    what = "a NumPy .npy file"
    try:
        with path.open("rb") as file:
            magic = file.read(len(_NPY_MAGIC))
            if magic != _NPY_MAGIC:
                raise DataError(path, what, f"a file that begins with {magic!r}")
            file.seek(0)
            return np.asarray(np.lib.format.read_array(file, allow_pickle=False))
    except DataError:
        raise
    except Exception as error:  # noqa: BLE001 -- see the top of this file
        raise _damaged(path, what, error) from None


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """Read all arrays of an NPZ file.

    Raises:
        DataError: The file is not NPZ, is cut short or damaged, holds none, or holds pickled objects.
    """
    what = "a NumPy .npz file"
    try:
        with path.open("rb") as file:
            magic = file.read(2)
        if magic != b"PK":
            raise DataError(path, what, f"a file that begins with {magic!r}")
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:  # it leaves a damaged one open
            arrays = {key: archive[key] for key in archive.files}
    except DataError:
        raise
    except Exception as error:  # noqa: BLE001 -- see the top of this file
        raise _damaged(path, what, error) from None
    if not arrays:
        raise DataError(path, what, "an archive without arrays")
    for key, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise DataError(path, "NumPy arrays only", "something else", column=key)
    return arrays


def npz_int(path: Path, key: str | None, array: NDArray[Any], ndim: int = 1) -> NDArray[np.int64]:
    """Return an array of an NPZ file (`key` None: of an NPY file) as int64.

    Raises:
        DataError: It does not have `ndim` dimensions, or holds other than integers that fit.
    """
    if array.dtype.kind not in "iu":
        raise DataError(path, "integers", f"an array of {array.dtype}", column=key)
    if array.ndim != ndim:
        raise DataError(path, f"an array of {ndim} dimension{'s' * (ndim > 1)}", f"shape {array.shape}", column=key)
    if array.dtype.kind == "u" and array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise DataError(path, "integers that fit 64 signed bits", str(array.max()), column=key)
    return array.astype(np.int64)


def is_sparse(arrays: dict[str, NDArray[Any]]) -> bool:
    """Tell whether an NPZ file is what `scipy.sparse.save_npz` writes."""
    return {"format", "shape", "data"} <= arrays.keys()


def sparse_from_npz(path: Path, arrays: dict[str, NDArray[Any]]) -> Any:
    """Build the matrix that `scipy.sparse.save_npz` has written.

    Args:
        path: The file, for messages.
        arrays: What `read_npz` has found in it.

    Returns:
        A `scipy.sparse.csr_array`, values as they are, checked.

    Raises:
        DataError: Another format than csr, csc or coo, a missing part, indices out of range.
    """
    raw = arrays["format"].reshape(-1)[:1].tolist()
    name = raw[0].decode(errors="replace") if raw and isinstance(raw[0], bytes) else str(raw[0] if raw else "")
    keys = _SPARSE_KEYS.get(name)
    if keys is None:
        raise DataError(path, "a sparse matrix in csr, csc or coo format", repr(name), hint="save its .tocsr()")
    missing = [key for key in keys if key not in arrays]
    if missing:
        raise DataError(path, f"the arrays {', '.join(keys)} of a sparse matrix", f"none named {missing[0]!r}")
    shape = npz_int(path, "shape", arrays["shape"])
    data, first, second = (arrays[key] for key in keys)
    if name != "coo":
        axis = 0 if name == "csr" else 1
        return csr_checked(path, data, first, second, shape, transposed=axis == 1, keys=keys)
    sparse = import_sparse("sparse matrices")
    rows, columns = npz_int(path, "row", first), npz_int(path, "col", second)
    _check_shape(path, shape)
    for key, index, size in (("row", rows, shape[0]), ("col", columns, shape[1])):
        _check_range(path, key, index, int(size))
    if not data.shape == rows.shape == columns.shape:
        raise DataError(path, "row, col and data of one length", f"{rows.size}, {columns.size} and {data.size}")
    return _converted(path, lambda: sparse.coo_array((_real(path, data), (rows, columns)), shape=tuple(shape.tolist())))


def csr_checked(
    path: Path,
    data: NDArray[Any] | None,
    indices: NDArray[Any],
    indptr: NDArray[Any],
    shape: NDArray[np.int64],
    *,
    transposed: bool = False,
    keys: tuple[str, str, str] = ("data", "indices", "indptr"),
) -> Any:
    """Build a CSR matrix from its parts, each checked before SciPy's C code follows the indices.

    Args:
        path: The file, for messages.
        data: Values, [nnz]; None for ones.
        indices: Column of each value, integers [nnz].
        indptr: Where each row begins, integers [rows + 1].
        shape: [rows, columns].
        transposed: Whether the parts are those of a CSC matrix.
        keys: What the file calls the three.

    Raises:
        DataError: A part of wrong type or length, or out of range.
    """
    sparse = import_sparse("sparse matrices")
    _check_shape(path, shape)
    columns, starts = npz_int(path, keys[1], indices), npz_int(path, keys[2], indptr)
    values = np.ones(columns.size, np.float32) if data is None else _real(path, data)
    rows, width = (int(n) for n in (shape[::-1] if transposed else shape))
    if starts.size != rows + 1:
        raise DataError(
            path, f"{counted(rows + 1, 'offset')} for {counted(rows, 'row')}", f"{starts.size}", column=keys[2]
        )
    if starts[0] != 0 or starts[-1] != columns.size or bool((np.diff(starts) < 0).any()):
        raise DataError(path, f"offsets that rise from 0 to {columns.size}", "others", column=keys[2])
    if values.shape != columns.shape:
        raise DataError(
            path, f"{counted(columns.size, 'value')}, one per index", f"shape {values.shape}", column=keys[0]
        )
    _check_range(path, keys[1], columns, width)
    kind = sparse.csc_array if transposed else sparse.csr_array
    return _converted(path, lambda: kind((values, columns, starts), shape=tuple(shape.tolist())))


def _check_shape(path: Path, shape: NDArray[np.int64]) -> None:
    if shape.size != 2 or bool((shape < 0).any()) or int(shape.max()) >= np.iinfo(np.int64).max:
        raise DataError(path, "a shape of two sizes", str(shape.tolist()), column="shape")


def _check_range(path: Path, key: str, index: NDArray[np.int64], size: int) -> None:
    wrong = (index < 0) | (index >= size)
    if bool(wrong.any()):
        at = int(np.argmax(wrong))
        raise DataError(path, f"an index from 0 to {size - 1}", f"{index[at]} at position {at}", column=key)


def _real(path: Path, data: NDArray[Any]) -> NDArray[Any]:
    if data.dtype.kind not in "biuf":
        raise DataError(path, "numbers", f"an array of {data.dtype}", column="data")
    return data.astype(np.float32) if data.dtype == np.float16 else data


def _converted(path: Path, build: Any) -> Any:
    try:
        matrix = build().tocsr()
    except (ValueError, MemoryError, OverflowError) as error:
        raise DataError(path, "a sparse matrix", f"parts that do not fit ({error})") from None
    matrix.sum_duplicates()
    return matrix
