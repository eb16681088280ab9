"""Puts edges, features and labels together: one numbering of the nodes, checked across the files."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from sage_attention.errors import DataError
from sage_attention.recipes.edges import EdgeTable, read_edges
from sage_attention.recipes.features import FeatureTable, read_features
from sage_attention.recipes.ids import IdColumn, common_type, positions, universe
from sage_attention.recipes.labels import LabelTable, read_labels
from sage_attention.recipes.split import check_fractions, check_seed, stratified_split
from sage_attention.recipes.tables import PathLike, quoted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["NodeDataset", "both_ways", "load_dataset"]

_SPLIT = (0.6, 0.2, 0.2)


def _none() -> NDArray[np.int64]:
    return np.empty(0, np.int64)


@dataclass(frozen=True)
class NodeDataset:
    """A graph with what is known of its nodes. A node's position is its number from here on.

    Attributes:
        node_ids: The user's id of each node, sorted: int64 [N], or text (NumPy ``U``) [N].
        edge_index: int64 [2, E] of positions; row 0 = sources, row 1 = targets.
        features: float32 [N, F], dense or `scipy.sparse.csr_array`, or None if there are none.
        labels: int64 [N], positions in `class_names`, -1 = no label.
        class_names: What the labels are called.
        train: Sorted int64 positions of the nodes to learn from.
        val: Sorted int64 positions of the nodes to choose by.
        test: Sorted int64 positions of the nodes to judge by.
    """

    node_ids: NDArray[Any]
    edge_index: NDArray[np.int64]
    features: Any
    labels: NDArray[np.int64]
    class_names: list[str] = field(default_factory=list)
    train: NDArray[np.int64] = field(default_factory=_none)
    val: NDArray[np.int64] = field(default_factory=_none)
    test: NDArray[np.int64] = field(default_factory=_none)

    @property
    def num_nodes(self) -> int:
        """How many nodes there are."""
        return int(self.node_ids.size)

    @property
    def num_edges(self) -> int:
        """How many edges there are."""
        return int(self.edge_index.shape[1])

    @property
    def num_classes(self) -> int:
        """How many classes there are; 0 without labels."""
        return len(self.class_names)


def load_dataset(
    edges: Union[PathLike, EdgeTable],
    features: Union[PathLike, FeatureTable, None] = None,
    labels: Union[PathLike, LabelTable, None] = None,
    *,
    undirected: bool = False,
    split: Sequence[float] = _SPLIT,
    seed: int = 0,
) -> NodeDataset:
    """Load a graph with features and labels.

    The nodes are those of the features; without features those of the labels and of the edges together.
    They are numbered in the order of their ids: integers by value, so that ids 0..N-1 keep their numbers,
    text by code point. A split column in the labels is used as it is; without one the labelled nodes are
    divided by class, as a pure function of the seed and the order of nodes.

    Args:
        edges: A file for `read_edges`, or what it returned.
        features: A file for `read_features`, what it returned, or None.
        labels: A file for `read_labels`, what it returned, or None if a model is to be applied only.
        undirected: Whether to add the reverse of each edge. Afterwards each edge is there once, sorted by
            source and target. Otherwise edges stay as they are: in order, with duplicates.
        split: Fractions for train, val and test; together 1. Not used if the labels bring a split.
        seed: Chooses the split.

    Returns:
        The data set.

    Raises:
        DataError: A file is wrong, or the files do not fit together: text ids here and integers there, an
            edge or a label of a node without features, a class with a single node, nothing to train on.
        ArgumentError: `seed` is not an integer from 0 to 2**64 - 1.
        MissingDependencyError: A format needs PyArrow or SciPy and it is not installed.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "edges.csv")
        >>> _ = path.write_text("source,target\\nann,bob\\nbob,eve\\n")
        >>> data = load_dataset(path, undirected=True)
        >>> data.node_ids.tolist(), data.edge_index.tolist()
        (['ann', 'bob', 'eve'], [[0, 1, 1, 2], [1, 0, 2, 1]])
    """
    # The cheap checks first: nobody should wait for ten million edges to learn of a wrong fraction.
    fractions, seed = check_fractions(split), check_seed(seed)
    if isinstance(labels, (str, bytes)) or hasattr(labels, "__fspath__"):
        labels = read_labels(labels)  # type: ignore[arg-type]
    if isinstance(features, (str, bytes)) or hasattr(features, "__fspath__"):
        features = read_features(features)  # type: ignore[arg-type]
    if isinstance(edges, (str, bytes)) or hasattr(edges, "__fspath__"):
        edges = read_edges(edges)  # type: ignore[arg-type]
    return _joined(edges, features, labels, undirected, fractions, seed)  # type: ignore[arg-type]


def _joined(
    edges: EdgeTable,
    features: FeatureTable | None,
    labels: LabelTable | None,
    undirected: bool,
    fractions: tuple[float, float, float],
    seed: int,
) -> NodeDataset:
    feature_ids = None if features is None else _ids_of(features.path, features.id_column, len(features))
    label_ids = None if labels is None else _ids_of(labels.path, labels.id_column, len(labels))
    columns = [c for c in (feature_ids, label_ids, edges.source_ids, edges.target_ids) if c is not None]
    columns = common_type(columns)
    source, target = columns[-2:]
    nodes = universe(columns[:1] if features is not None else columns)
    ends = [_known(nodes, ids, "edge", columns[0].path) for ids in (source, target)]
    edge_index = np.stack(ends)
    if undirected:
        edge_index = both_ways(edge_index, nodes.size)
    values = None if features is None else _reordered(features.values, positions(nodes, columns[0].values))
    if labels is None:
        return NodeDataset(nodes, edge_index, values, np.full(nodes.size, -1, np.int64))
    at = _known(nodes, columns[-3], "label", columns[0].path)
    classes = np.full(nodes.size, -1, np.int64)
    classes[at] = labels.labels
    train, val, test = _parts(labels, at, classes, fractions, seed)
    return NodeDataset(nodes, edge_index, values, classes, list(labels.class_names), train, val, test)


def _ids_of(path: Path, ids: IdColumn | None, size: int) -> IdColumn:
    if ids is not None:
        return ids
    return IdColumn(np.arange(size, dtype=np.int64), path, None, _counted)


def _counted(index: int) -> int | None:
    return index + 1


def _known(nodes: NDArray[Any], ids: IdColumn, what: str, path: Path) -> NDArray[np.int64]:
    """Return the positions of ids that must all be nodes."""
    at = positions(nodes, ids.values)
    unknown = at < 0
    if unknown.any():
        count = int(unknown.sum())
        hint = f"{count} {what}s name nodes without features" if count > 1 else ""
        raise ids.error(int(np.argmax(unknown)), f"a node of {path.name}", hint=hint)
    return at


def both_ways(edge_index: NDArray[np.int64], num_nodes: int) -> NDArray[np.int64]:
    """Return every edge in both directions, each once, sorted by source, then target.

    Args:
        edge_index: int64 [2, E], values from 0 to `num_nodes` - 1.
        num_nodes: How many nodes there are, at most 3,037,000,499 (so that a pair fits 64 bits).

    Returns:
        int64 [2, E'], where a self loop is there once too.

    Example:
        >>> both_ways(np.array([[0, 1, 2], [1, 0, 2]]), 3).tolist()
        [[0, 1, 2], [1, 0, 2]]
    """
    if num_nodes > 3_037_000_499:
        raise DataError(None, "at most 3037000499 nodes for undirected edges", str(num_nodes))
    source, target = edge_index
    pairs = np.unique(np.concatenate([source * num_nodes + target, target * num_nodes + source]))
    return np.stack(np.divmod(pairs, max(num_nodes, 1))).astype(np.int64, copy=False)


def _reordered(values: Any, at: NDArray[np.int64]) -> Any:
    """Move row k of the features to position `at[k]`."""
    if bool((at == np.arange(at.size)).all()):
        return values
    order = np.empty_like(at)
    order[at] = np.arange(at.size)
    return values[order]


def _parts(
    table: LabelTable,
    at: NDArray[np.int64],
    classes: NDArray[np.int64],
    fractions: tuple[float, float, float],
    seed: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return train, val and test, from the file's split or by chance."""
    labels, names = table.labels, table.class_names
    if len(names) < 2:
        raise DataError(
            table.path,
            "at least two classes",
            f"only {quoted(names[0])}" if names else "none",
            column=table.row_column,
            hint="-1 and an empty cell mean no label",
        )
    if table.split is not None:
        train, val, test = (np.sort(at[table.split == part]) for part in range(3))
        if train.size == 0:
            raise DataError(table.path, "at least one labelled node in train", "none", column="split")
        return train, val, test
    sizes = np.bincount(labels[labels >= 0], minlength=len(names))
    if (sizes == 1).any():
        index = int(np.flatnonzero(np.isin(labels, np.flatnonzero(sizes == 1)))[0])
        raise DataError(
            table.path,
            f"at least two nodes of the class {quoted(names[int(labels[index])])}",
            "one",
            row=table.row(index),
            column=table.row_column,
            hint="drop it, merge it with another class, or give a split column",
        )
    return stratified_split(classes, fractions, seed)
