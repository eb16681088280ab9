"""Puts edges, features and labels together: one numbering of the nodes, checked across the files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sage_attention.errors import DataError
from sage_attention.recipes.dataset_npz import load_npz_dataset
from sage_attention.recipes.edges import EdgeTable, read_edges
from sage_attention.recipes.features import FeatureTable, read_features
from sage_attention.recipes.ids import IdColumn, common_type, universe
from sage_attention.recipes.labels import LabelTable, read_labels
from sage_attention.recipes.node_dataset import NodeDataset, both_ways, check_classes, check_members
from sage_attention.recipes.split import check_fractions, check_seed, stratified_split
from sage_attention.recipes.tables import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from sage_attention.recipes.tables import PathLike

__all__ = ["NodeDataset", "load_dataset", "load_npz_dataset"]


def load_dataset(
    edges: PathLike | EdgeTable,
    features: PathLike | FeatureTable | None = None,
    labels: PathLike | LabelTable | None = None,
    *,
    undirected: bool = False,
    split: Sequence[float] = (0.6, 0.2, 0.2),
    seed: int = 0,
    encoding: str | None = None,
) -> NodeDataset:
    r"""Load a graph with features and labels.

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
        encoding: Of text files without a byte order mark; None for UTF-8.

    Returns:
        The data set.

    Raises:
        DataError: A file is wrong, or the files do not fit together: text ids here and integers there, an
            edge or a label of a node without features, a class with a single node, nothing to train on.
        ArgumentError: `seed` is not an integer from 0 to 2**64 - 1, or no encoding has that name.
        MissingDependencyError: A format needs PyArrow or SciPy and it is not installed.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "edges.csv")
        >>> _ = path.write_text("source,target\nann,bob\nbob,eve\n")
        >>> data = load_dataset(path, undirected=True)
        >>> data.node_ids.tolist(), data.edge_index.tolist()
        (['ann', 'bob', 'eve'], [[0, 1, 1, 2], [1, 0, 2, 1]])
    """
    # The cheap checks first: nobody should wait for ten million edges to learn of a wrong fraction.
    fractions, seed = check_fractions(split), check_seed(seed)
    if labels is not None and not isinstance(labels, LabelTable):
        labels = read_labels(labels, encoding=encoding)
    if labels is not None:
        check_classes(labels.path, labels.class_names, labels.label_column)
    if features is not None and not isinstance(features, FeatureTable):
        features = read_features(features, encoding=encoding)
    if not isinstance(edges, EdgeTable):
        edges = read_edges(edges, encoding=encoding)
    return _joined(edges, features, labels, undirected, fractions, seed)


def _joined(
    edges: EdgeTable,
    features: FeatureTable | None,
    labels: LabelTable | None,
    undirected: bool,
    fractions: tuple[float, float, float],
    seed: int,
) -> NodeDataset:
    """Check the tables against each other and number the nodes."""
    given: dict[str, IdColumn] = {"source": edges.source_ids, "target": edges.target_ids}
    if features is not None:
        given["features"] = _ids_of(features.path, features.id_column, len(features))
    if labels is not None:
        given["labels"] = _ids_of(labels.path, labels.id_column, len(labels))
    ids = dict(zip(given, common_type(list(given.values()))))
    nodes = universe([ids["features"]] if features is not None else list(ids.values()))
    home = edges.path if features is None else features.path
    edge_index = np.stack([_known(nodes, ids[end], "edges", home) for end in ("source", "target")])
    if undirected:
        edge_index = both_ways(edge_index, nodes.size)
    values = None if features is None else _reordered(features.values, ids["features"].positions_in(nodes))
    classes = np.full(nodes.size, -1, np.int64)
    if labels is None:
        return NodeDataset(nodes, edge_index, values, classes)
    at = _known(nodes, ids["labels"], "labels", home)
    classes[at] = labels.labels
    train, val, test = _parts(labels, at, classes, fractions, seed)
    return NodeDataset(nodes, edge_index, values, classes, list(labels.class_names), train, val, test)


def _ids_of(path: Path, ids: IdColumn | None, size: int) -> IdColumn:
    """Return the ids of a table; 0..N-1 for one that has none."""
    return IdColumn(np.arange(size, dtype=np.int64), path, None, _counted) if ids is None else ids


def _counted(index: int) -> int | None:
    return index + 1


def _known(nodes: NDArray[Any], ids: IdColumn, what: str, home: Path) -> NDArray[np.int64]:
    """Return the positions of ids that must all be nodes, which `home` defines."""
    at = ids.positions_in(nodes)
    unknown = at < 0
    if unknown.any():
        count = int(unknown.sum())
        hint = f"{count} {what} name nodes without features" if count > 1 else "it has no features"
        raise ids.error(int(np.argmax(unknown)), f"a node of {home.name}", hint=hint)
    return at


def _reordered(values: Any, at: NDArray[np.int64]) -> Any:
    """Move row k of the features to position `at[k]`."""
    if bool((at == np.arange(at.size, dtype=np.int64)).all()):
        return values
    order = np.empty_like(at)
    order[at] = np.arange(at.size, dtype=np.int64)
    return values[order]


def _parts(
    table: LabelTable,
    at: NDArray[np.int64],
    classes: NDArray[np.int64],
    fractions: tuple[float, float, float],
    seed: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return train, val and test, from the file's split or by chance."""
    if table.split is not None:
        train, val, test = (np.sort(at[table.split == part]) for part in range(3))
        if train.size == 0:
            raise DataError(table.path, "at least one labelled node in train", "none", column=table.split_column)
        return train, val, test
    lonely = check_members(table.labels, table.class_names)
    if lonely is not None:
        raise DataError(
            table.path,
            f"at least two nodes of the class {quoted(table.class_names[int(table.labels[lonely])])}",
            "one",
            row=table.row(lonely),
            column=table.label_column,
            hint="drop it, merge it with another class, or give a split column",
        )
    return stratified_split(classes, fractions, seed)
