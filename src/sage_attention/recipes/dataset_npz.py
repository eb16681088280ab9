"""Loads a whole data set from one NPZ file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sage_attention.errors import DataError, counted
from sage_attention.recipes.edges import edges_from_array
from sage_attention.recipes.features import dense_float32, sparse_float32
from sage_attention.recipes.labels import PARTS, class_index
from sage_attention.recipes.node_dataset import NodeDataset, both_ways, check_classes, check_members
from sage_attention.recipes.split import check_fractions, check_seed, stratified_split
from sage_attention.recipes.tables import check_file, file_kind, quoted
from sage_attention.recipes.tables_numpy import csr_checked, npz_int, read_npz

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from sage_attention.recipes.tables import PathLike

__all__ = ["load_npz_dataset"]

# Where ids alone say how many nodes there are: each costs memory, and larger ids are a slip.
_MOST_NODES = 2**32
_SPARSE = ("x_indices", "x_indptr", "x_shape")


def load_npz_dataset(
    path: PathLike,
    *,
    undirected: bool = False,
    split: Sequence[float] = (0.6, 0.2, 0.2),
    seed: int = 0,
) -> NodeDataset:
    """Load a data set that is all in one NPZ file. Nodes are 0..N-1.

    | key | what it holds |
    |---|---|
    | `edge_index` | integers [2, E] (or [E, 2]) |
    | `x` | dense features [N, F]; or instead |
    | `x_indptr` `x_indices` `x_shape` `x_data` | the parts of a CSR matrix; without `x_data` all ones |
    | `y` | integers [N], -1 = no label |
    | `train_idx` `val_idx` `test_idx` | positions of nodes; or `train_mask` ..., booleans [N] |

    All but `edge_index` may be missing.

    Args:
        path: The file.
        undirected: Whether to add the reverse of each edge, as in `load_dataset`.
        split: Fractions for train, val and test, used if the file has labels and no split.
        seed: Chooses that split.

    Returns:
        The data set. N is the number of rows of the features, else of `y`, else the largest node and one.

    Raises:
        DataError: The file is missing, damaged, lacks `edge_index`, or its arrays do not fit together.
        ArgumentError: `seed` is not an integer from 0 to 2**64 - 1.
        MissingDependencyError: The features are sparse and SciPy is not installed.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "tiny.npz")
        >>> np.savez(path, edge_index=[[0, 1], [1, 2]], y=[0, 0, 1], train_idx=[0, 2], test_idx=[1])
        >>> data = load_npz_dataset(path)
        >>> data.num_nodes, data.class_names, data.train.tolist(), data.val.tolist()
        (3, ['0', '1'], [0, 2], [])
    """
    fractions, seed = check_fractions(split), check_seed(seed)
    file_kind(path, ("npz",))
    file = check_file(path)
    arrays = read_npz(file)
    if "edge_index" not in arrays:
        raise DataError(file, "an array named edge_index", ", ".join(sorted(arrays)))
    edges = edges_from_array(file, arrays["edge_index"], "edge_index")
    edge_index = np.stack([edges.source, edges.target])
    features = _features(file, arrays)
    y = npz_int(file, "y", arrays["y"]) if "y" in arrays else None
    if features is not None:
        size = int(features.shape[0])
    elif y is not None:
        size = y.size
    else:
        _check_nodes(file, "edge_index", edge_index.reshape(-1), _MOST_NODES)
        size = int(edge_index.max()) + 1
    _check_nodes(file, "edge_index", edge_index.reshape(-1), size)
    if undirected:
        edge_index = both_ways(edge_index, size)
    nodes = np.arange(size, dtype=np.int64)
    parts = _given_parts(file, arrays, size)
    if y is None:
        if parts is not None:
            raise DataError(file, "labels named y for the split", "none")
        return NodeDataset(nodes, edge_index, features, np.full(size, -1, np.int64))
    if y.size != size:
        raise DataError(file, f"{counted(size, 'label')}, one per row of the features", str(y.size), column="y")
    labels, names = class_index(file, y, "y")
    check_classes(file, names, "y")
    if parts is None:
        lonely = check_members(labels, names)
        if lonely is not None:
            expected = f"at least two nodes of the class {quoted(names[int(labels[lonely])])}"
            raise DataError(file, expected, "one", row=lonely + 1, column="y", hint="or give a split")
        parts = stratified_split(labels, fractions, seed)
    else:
        _check_labelled(file, parts, labels)
    return NodeDataset(nodes, edge_index, features, labels, names, *parts)


def _features(path: Path, arrays: dict[str, NDArray[Any]]) -> Any:
    if "x" in arrays:
        return dense_float32(path, arrays["x"], "x")
    found = [key for key in _SPARSE if key in arrays]
    if not found:
        return None
    missing = [key for key in _SPARSE if key not in arrays]
    if missing:
        raise DataError(path, f"all of {', '.join(_SPARSE)}", f"no {missing[0]}")
    shape = npz_int(path, "x_shape", arrays["x_shape"])
    keys = ("x_data", "x_indices", "x_indptr")
    matrix = csr_checked(path, arrays.get(keys[0]), arrays[keys[1]], arrays[keys[2]], shape, keys=keys)
    return sparse_float32(path, matrix)


def _check_nodes(path: Path, key: str, nodes: NDArray[np.int64], size: int) -> None:
    wrong = (nodes < 0) | (nodes >= size)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise DataError(path, f"a node from 0 to {size - 1}", f"{nodes[at]} at position {at}", column=key)


def _given_parts(
    path: Path, arrays: dict[str, NDArray[Any]], size: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]] | None:
    """Return train, val and test where the file says, else None."""
    parts = [_part(path, arrays, name, size) for name in PARTS]
    if all(part is None for part in parts):
        return None
    train, val, test = (np.empty(0, np.int64) if part is None else part for part in parts)
    if train.size == 0:
        raise DataError(path, "at least one labelled node in train", "none")
    for name, part in zip(PARTS, (train, val, test)):
        if np.unique(part).size != part.size:
            again = int(part[np.argmin(np.diff(part))])
            raise DataError(path, f"each node of {name} once", f"node {again} again")
    for first, second, a, b in (
        ("train", "val", train, val),
        ("train", "test", train, test),
        ("val", "test", val, test),
    ):
        both = np.intersect1d(a, b)
        if both.size:
            raise DataError(path, f"{first} and {second} without common nodes", f"node {both[0]} in both")
    return train, val, test


def _part(path: Path, arrays: dict[str, NDArray[Any]], name: str, size: int) -> NDArray[np.int64] | None:
    index, mask = f"{name}_idx", f"{name}_mask"
    if index in arrays:
        nodes = npz_int(path, index, arrays[index])
        _check_nodes(path, index, nodes, size)
        return np.sort(nodes)
    if mask not in arrays:
        return None
    if arrays[mask].dtype != np.bool_ or arrays[mask].shape != (size,):
        got = f"{arrays[mask].dtype} {list(arrays[mask].shape)}"
        raise DataError(path, f"booleans of shape [{size}]", got, column=mask)
    return np.flatnonzero(arrays[mask]).astype(np.int64)


def _check_labelled(
    path: Path,
    parts: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]],
    labels: NDArray[np.int64],
) -> None:
    for name, part in zip(PARTS, parts):
        bare = part[labels[part] < 0]
        if bare.size:
            raise DataError(path, f"a label for each node of {name}", f"none for node {bare[0]}", column="y")
