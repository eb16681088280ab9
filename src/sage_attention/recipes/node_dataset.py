"""The data set every loader returns, and the checks all loaders share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from sage_attention.errors import DataError, counted
from sage_attention.recipes.ids import sorted_unique
from sage_attention.recipes.tables import quoted

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["NodeDataset", "both_ways", "check_classes", "check_members"]

# The largest N for which a pair (source, target) fits one int64 as source * N + target.
_MOST_PAIRED = 3_037_000_499
# Above this, a column of features drowns others of ordinary size, and training tends not to get off the ground.
_LARGE_FEATURE = 10.0
_MANY_WITHOUT_SOURCES = 0.1


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

    def summary(self) -> str:
        """What was read, in a line.

        Example:
            >>> NodeDataset(np.arange(2), np.array([[0], [1]]), None, np.array([0, 1]), ["a", "b"]).summary()
            '2 nodes, 1 edge, no features, 2 classes; labelled nodes: 0 to train, 0 to validate, 0 to test'
        """
        features = "no features" if self.features is None else counted(self.features.shape[1], "feature")
        return (
            f"{counted(self.num_nodes, 'node')}, {counted(self.num_edges, 'edge')}, {features}, "
            f"{counted(self.num_classes, 'class', 'classes')}; labelled "
            f"nodes: {len(self.train):,} to train, {len(self.val):,} to validate, {len(self.test):,} to test"
        )

    def hints(self, *, undirected: bool, normalized: bool) -> tuple[str, ...]:
        """What is allowed, but seldom meant.

        Args:
            undirected: Edges were taken in both directions.
            normalized: Features will be normalised.

        Returns:
            A sentence for each finding, with what to do.
        """
        found = []
        alone = self.num_nodes - int(np.count_nonzero(np.bincount(self.edge_index[1], minlength=self.num_nodes)))
        if not undirected and alone > _MANY_WITHOUT_SOURCES * self.num_nodes:
            found.append(
                f"{counted(alone, 'node')} ({alone / self.num_nodes:.0%}) {'has' if alone == 1 else 'have'} no "
                "incoming edge to learn from; if edges have no direction, add --undirected"
            )
        if not normalized and isinstance(self.features, np.ndarray) and self.features.size:
            # einsum: no array of squares beside the features
            size = np.sqrt(np.einsum("ij,ij->j", self.features, self.features) / len(self.features))
            column = int(size.argmax())
            if size[column] > _LARGE_FEATURE:
                found.append(
                    f"features are large (number {column + 1} of {size.size} is {size[column]:,.0f} in root mean "
                    "square), which hinders training; scale each to mean 0 and standard deviation 1 first"
                )
        return tuple(found)


def both_ways(edge_index: NDArray[np.int64], num_nodes: int) -> NDArray[np.int64]:
    """Return every edge in both directions, each once, sorted by source, then target.

    Args:
        edge_index: int64 [2, E], values from 0 to `num_nodes` - 1.
        num_nodes: How many nodes there are, at most 3,037,000,499 (so that a pair fits 64 bits).

    Returns:
        int64 [2, E'], where a self loop is there once too.

    Raises:
        DataError: There are more nodes than that.

    Example:
        >>> both_ways(np.array([[0, 1, 2], [1, 0, 2]]), 3).tolist()
        [[0, 1, 2], [1, 0, 2]]
    """
    if num_nodes > _MOST_PAIRED:
        raise DataError(None, f"at most {_MOST_PAIRED} nodes for undirected edges", str(num_nodes))
    source, target = edge_index
    pairs = sorted_unique(np.concatenate([source * num_nodes + target, target * num_nodes + source]))
    both = np.empty((2, pairs.size), np.int64)
    np.divmod(pairs, max(num_nodes, 1), out=(both[0], both[1]))
    return both


def check_classes(path: Path, class_names: list[str], column: str | int | None) -> None:
    """Refuse labels that leave nothing to tell apart.

    Raises:
        DataError: There are fewer than two classes.
    """
    if len(class_names) < 2:
        got = f"only {quoted(class_names[0])}" if class_names else "none"
        hint = "-1 and an empty cell mean no label"
        raise DataError(path, "at least two classes", got, column=column, hint=hint)


def check_members(labels: NDArray[np.int64], class_names: list[str]) -> int | None:
    """Return the index of the first label that nobody else has, or None.

    Args:
        labels: int64 [n], positions in `class_names`, -1 = no label.
        class_names: The classes.
    """
    sizes = np.bincount(labels[labels >= 0], minlength=len(class_names))
    lonely = np.flatnonzero(sizes == 1)
    return int(np.argmax(np.isin(labels, lonely))) if lonely.size else None
