"""Other numbers for the nodes of a graph, so that rows that are read together, or most often, lie together."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ._arrays import read_only
from .errors import ArgumentError, MissingDependencyError
from .graph import Graph

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Reordered", "reorder"]


class Reordered(NamedTuple):
    """A graph with its nodes in another order.

    Attributes:
        graph: The same edges between the new numbers. Edges keep their ids, and their order within a target, so that
            arrays per edge stay as they are and attention gives the same bits.
        order: int64 [num_nodes], the old number of each new one: ``features[order]`` are the features for `graph`.
        position: int64 [num_nodes], the new number of each old one: ``out[position]`` are the results for the nodes as
            they were, ``position[seeds]`` seeds for `graph`.
    """

    graph: Graph
    order: NDArray[np.int64]
    position: NDArray[np.int64]


def reorder(graph: Graph, by: str = "hubs") -> Reordered:
    """Gives the nodes of a graph other numbers.

    Args:
        graph: Its sources are its targets.
        by: ``"hubs"``: those with the most out-edges, whose rows are read most often, come first and share pages and
            caches; ``"locality"``: neighbours get near numbers, by the reverse of Cuthill and McKee's order (1969) of
            the undirected graph, from SciPy.

    Raises:
        ArgumentError: `by` is neither, or sources and targets are different nodes.
        MissingDependencyError: ``"locality"`` without SciPy.

    Example:
        >>> graph = Graph.from_edge_index([[2, 2, 0], [0, 1, 1]])
        >>> graph.reorder().order
        array([2, 0, 1])
    """
    if by not in ("hubs", "locality"):
        raise ArgumentError("by", "'hubs' or 'locality'", repr(by))
    graph.require_square("graph")
    if by == "hubs":
        order = np.argsort(-np.bincount(graph.indices, minlength=graph.num_nodes), kind="stable").astype(np.int64)
    else:
        order = _reverse_cuthill_mckee(graph)
    position = np.empty_like(order)
    position[order] = np.arange(len(order), dtype=np.int64)
    counts = graph.in_degrees[order]
    indptr = np.zeros(len(order) + 1, np.int64)
    np.cumsum(counts, out=indptr[1:])
    # Where each edge was: a target's edges stay together and in their order.
    places = np.arange(graph.num_edges, dtype=np.int64) + np.repeat(graph.indptr[:-1][order] - indptr[:-1], counts)
    indices = position[graph.indices[places]].astype(graph.indices.dtype, copy=False)
    edge_ids = places if graph.edge_ids is None else graph.edge_ids[places]
    renamed = Graph.from_trusted(indptr, indices, graph.num_sources, edge_ids)
    return Reordered(renamed, read_only(order), read_only(position))


def _reverse_cuthill_mckee(graph: Graph) -> NDArray[np.int64]:
    try:
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import reverse_cuthill_mckee
    except ImportError as error:
        raise MissingDependencyError("scipy", "reorder(by='locality')", "tables") from error
    if graph.num_edges == 0:
        return np.arange(graph.num_nodes, dtype=np.int64)
    ones = np.ones(graph.num_edges, np.bool_)
    pattern = csr_array((ones, graph.indices, graph.indptr), shape=(graph.num_nodes, graph.num_nodes))
    order = reverse_cuthill_mckee((pattern + pattern.T).tocsr(), symmetric_mode=True)
    return np.asarray(order, np.int64)
