"""Random walks: uniform or in proportion to weights, node2vec's, with restarts.

A walk is a pure function of (graph, seed, its first node, its number among the walks of that node): the same for any
number of threads, on any machine. `tests/reference/walks.py` is the slow, independent truth.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import _native
from ._arrays import integer, integers, unsigned_seed
from .errors import ArgumentError
from .graph import Graph
from .hetero import Relation

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["RandomWalker", "RandomWalks", "random_walk"]

_INT32_MAX = 2**31 - 1


class RandomWalks(NamedTuple):
    """What a walk visits.

    Attributes:
        nodes: int64 [num_seeds * num_walks, length + 1], the walks of a seed one after the other, each from its
            seed on; -1 once a walk has ended.
        edge_ids: int64 [num_seeds * num_walks, length], the edge of each step, as a position in the edges the graph was
            made from; -1 for a restart and once a walk has ended.
    """

    nodes: NDArray[np.int64]
    edge_ids: NDArray[np.int64]


class RandomWalker:
    """A graph made ready for random walks.

    Args:
        graph: A square graph.
        weights: Numbers [num_edges], finite, at least 0, in the order the edges were passed in; or None. Edges are
            taken in proportion to them, and never where they are 0.
        direction: "along" the edges, from sources to targets, as walks usually go; or "against" them, as neighbours are
            sampled.

    Raises:
        ArgumentError: An argument is not what is said above.

    Example:
        >>> walker = RandomWalker(Graph.from_edge_index([[0, 1, 2], [1, 2, 3]]))
        >>> walker.walk([0, 2], 3).nodes
        array([[ 0,  1,  2,  3],
               [ 2,  3, -1, -1]])
    """

    def __init__(self, graph: Graph, weights: Any = None, direction: str = "along") -> None:
        if not isinstance(graph, Graph):
            raise ArgumentError("graph", "a sage_attention.Graph", type(graph).__name__)
        graph.require_square("graph")
        if direction not in ("along", "against"):
            raise ArgumentError("direction", "'along' or 'against'", f"{direction!r}")
        steps = _reversed(graph) if direction == "along" else _ascending(graph)
        relation = Relation(steps, weights=weights)
        self._steps = relation.graph
        self._weight_sums = relation.weight_sums

    def walk(
        self,
        seeds: Any,
        length: int,
        *,
        num_walks: int = 1,
        restart: float = 0.0,
        p: float = 1.0,
        q: float = 1.0,
        seed: int = 0,
        num_threads: int = 0,
    ) -> RandomWalks:
        """Walks from some nodes.

        A walk ends at a node that no edge leads on from.

        Args:
            seeds: Integers [num_seeds], nodes of the graph. A repeated seed gets the same walks each time; for other
                ones there is `num_walks`.
            length: Steps, at least 0.
            num_walks: Walks from each seed.
            restart: The chance, before each step, to be back at the seed instead; in [0, 1).
            p: node2vec's return parameter: a step back to the node before is weighed by 1 / p.
            q: node2vec's in-out parameter: a step to a node that no edge leads to from the node before is weighed
                by 1 / q (Grover and Leskovec, KDD 2016). After a restart the first step is weighed by neither.
            seed: Names the walks: an integer in [0, 2^64).
            num_threads: Threads to use, 0 for one per core. The result does not depend on it.

        Returns:
            The walks.

        Raises:
            ArgumentError: An argument is not what is said above.
            MemoryError: There is not enough memory.

        Example:
            >>> ring = RandomWalker(Graph.from_edge_index([[0, 1, 2], [1, 2, 0]]))
            >>> ring.walk([0], 4).nodes
            array([[0, 1, 2, 0, 1]])
        """
        nodes = integers("seeds", seeds, (None,)).astype(np.int64, copy=False)
        walking = _native.Walking(
            ctypes.sizeof(_native.Walking),
            unsigned_seed(seed),
            integer("length", length, 0, _INT32_MAX),
            integer("num_walks", num_walks, 1, _INT32_MAX),
            _number("restart", restart),
            _number("p", p),
            _number("q", q),
            integer("num_threads", num_threads, 0, _INT32_MAX),
        )
        count = len(nodes) * walking.num_walks
        if count * (walking.length + 1) >= 2**59:
            raise MemoryError(f"not enough memory for {count} walks of {walking.length} steps")
        visited = np.empty((count, walking.length + 1), np.int64)
        positions = np.empty((count, walking.length), np.int64)
        _native.check(
            _native.library().sage_attention_random_walk(
                ctypes.byref(self._steps._argument()),  # noqa: SLF001
                _native.address(self._weight_sums),
                ctypes.byref(walking),
                _native.address(nodes),
                len(nodes),
                _native.address(visited),
                _native.address(positions),
            )
        )
        ids = self._steps.edge_ids
        if ids is not None and len(ids):
            positions = np.where(positions < 0, -1, ids.take(positions, mode="clip"))
        return RandomWalks(visited, positions)


def random_walk(
    graph: Graph, seeds: Any, length: int, *, weights: Any = None, direction: str = "along", **options: Any
) -> RandomWalks:
    """Walks from some nodes of a graph; `RandomWalker` is quicker where there are many calls.

    Args:
        graph: A square graph.
        seeds: Integers [num_seeds], nodes of the graph.
        length: Steps, at least 0.
        weights: Numbers [num_edges] or None, as `RandomWalker` has them.
        direction: "along" the edges or "against" them.
        **options: Those of `RandomWalker.walk`: num_walks, restart, p, q, seed, num_threads.

    Returns:
        The walks; -1 stands where a walk has ended, at a node that no edge leads on from.

    Raises:
        ArgumentError: An argument is not what `RandomWalker` says.
        MemoryError: There is not enough memory.

    Example:
        >>> graph = Graph.from_edge_index([[0, 1], [1, 2]])
        >>> random_walk(graph, [2, 0], 2, direction="against").nodes
        array([[ 2,  1,  0],
               [ 0, -1, -1]])
    """
    return RandomWalker(graph, weights, direction).walk(seeds, length, **options)


def _number(name: str, value: Any) -> float:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise ArgumentError(name, "a number", f"{value!r}")
    try:
        return float(value)
    except OverflowError as error:
        raise ArgumentError(name, "a number", f"{value!r}") from error


def _reversed(graph: Graph) -> Graph:
    """The edges the other way round; the sources of each target ascend."""
    found = graph.transposed
    ids = found.positions if graph.edge_ids is None else graph.edge_ids[found.positions]
    return Graph.from_trusted(found.indptr, found.indices, graph.num_targets, ids)


def _ascending(graph: Graph) -> Graph:
    """The same edges; the sources of each target ascend."""
    falls = graph.indices[1:] < graph.indices[:-1]
    starts = graph.indptr[1:-1]
    falls[starts[(starts > 0) & (starts < graph.num_edges)] - 1] = False
    return _reversed(_reversed(graph)) if falls.any() else graph
