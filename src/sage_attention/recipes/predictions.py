"""Predictions as a table: one row per node."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from sage_attention.errors import ArgumentError, MissingDependencyError
from sage_attention.recipes.output import atomic_write

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    PathLike = Union[str, "os.PathLike[str]"]

__all__ = ["write_predictions"]

_ROWS_PER_GROUP = 1 << 20


def _checked_node_ids(node_ids: npt.ArrayLike) -> npt.NDArray[Any]:
    """Node ids as int64 or as an array of str; shape [N]."""
    ids = np.asarray(node_ids)
    if ids.ndim != 1:
        raise ArgumentError("node_ids", "one id per node, shape [N]", f"shape {list(ids.shape)}")
    if ids.dtype.kind in "iu":
        if ids.size and int(ids.max()) > np.iinfo(np.int64).max:
            raise ArgumentError("node_ids", "ids that fit int64", int(ids.max()))
        return ids.astype(np.int64)
    if ids.dtype.kind == "U" or all(isinstance(one, str) for one in ids.tolist()):
        return ids.astype(object)
    raise ArgumentError("node_ids", "integers or strings", f"dtype {ids.dtype}")


def write_predictions(
    path: PathLike,
    node_ids: npt.ArrayLike,
    class_names: Sequence[str],
    probabilities: npt.NDArray[np.floating[Any]],
) -> None:
    """Write one row per node: the node, the class predicted for it, and how probable that class is.

    Columns: ``node`` (int64 or string), ``predicted`` (string), ``probability`` (float32).

    Args:
        path: The file: CSV, UTF-8 with a header line, if it ends in ``.csv``, else Parquet.
        node_ids: Ids as the user knows them, integers or strings, shape [N].
        class_names: Names of the K classes.
        probabilities: float32 [N, K]. Ties go to the first class.

    Raises:
        ArgumentError: Shapes do not agree, an id is neither integer nor string, or a probability is not
            finite.
        MissingDependencyError: pyarrow is not installed.
        SageAttentionError: The file cannot be written.

    Example:
        >>> probabilities = np.array([[0.9, 0.1], [0.2, 0.8]], dtype=np.float32)
        >>> write_predictions("predictions.parquet", [7, 9], ["cat", "dog"], probabilities)
    """
    ids = _checked_node_ids(node_ids)
    table = np.asarray(probabilities)
    if table.ndim != 2 or table.shape != (len(ids), len(class_names)) or not len(class_names):
        raise ArgumentError(
            "probabilities",
            f"shape [{len(ids)}, {len(class_names)}] (nodes, classes)",
            f"shape {list(table.shape)}",
        )
    try:
        import pyarrow as pa
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError as error:
        raise MissingDependencyError("pyarrow", "Writing predictions", "tables") from error
    names = pa.array([str(name) for name in class_names], type=pa.string())
    id_type = pa.int64() if ids.dtype == np.int64 else pa.string()
    schema = pa.schema([("node", id_type), ("predicted", pa.string()), ("probability", pa.float32())])
    as_text = os.fspath(path).lower().endswith(".csv")
    kind = pa.csv.CSVWriter if as_text else functools.partial(pa.parquet.ParquetWriter, compression="zstd")
    with atomic_write(path) as file, kind(file, schema) as writer:
        # Group by group, so that a memory-mapped table of a billion values never has to fit into memory.
        for start in range(0, len(ids), _ROWS_PER_GROUP):
            rows = slice(start, start + _ROWS_PER_GROUP)
            block = np.asarray(table[rows])
            winners = block.argmax(axis=1)
            best = block[np.arange(len(block), dtype=np.int64), winners].astype(np.float32)  # argmax finds NaN first
            if not np.isfinite(best).all():
                row = start + int(np.flatnonzero(~np.isfinite(best))[0])
                raise ArgumentError("probabilities", "finite numbers", f"{best[row - start]} in row {row}")
            writer.write_table(
                pa.table(
                    [pa.array(ids[rows], type=id_type), names.take(pa.array(winners)), pa.array(best)],
                    schema=schema,
                )
            )
