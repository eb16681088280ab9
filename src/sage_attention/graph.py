"""Graph: validated, immutable topology, stored by target (CSC).

The in-edges of target ``i`` are the positions ``indptr[i]`` to ``indptr[i + 1] - 1`` of ``indices``, which
holds their sources. Duplicate edges count twice, self loops are ordinary edges. Conversions from and to other
libraries live in ``graph_formats.py``.
"""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import _native
from ._arrays import integer, integers, read_only
from .errors import ArgumentError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .reordering import Reordered

__all__ = ["Graph", "Transposed"]

_INT32_MAX = 2**31 - 1
_MOST_NODES = 2**59  # as the core says; an array of one number per node then has a size at least


class Transposed(NamedTuple):
    """The edges of a graph by source.

    Attributes:
        indptr: int64 [num_sources + 1].
        indices: int32 or int64 [num_edges], the targets, ascending within a source.
        positions: int64 [num_edges], each edge's position in the graph's ``indices``.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.integer[Any]]
    positions: NDArray[np.int64]


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Graph:
    """Topology of a graph, stored by target: the in-edges of each node lie together.

    Attributes:
        indptr: int64 [num_targets + 1]; in-edges of target i are positions indptr[i] to indptr[i + 1] - 1.
        indices: [num_edges], the sources; int32 where all ids fit, else int64.
        num_targets: Number of nodes that edges lead to.
        num_sources: Number of nodes that edges come from; the same nodes as the targets in a square graph.
        num_edges: Number of edges.
        edge_ids: int64 [num_edges], each edge's position among the edges the caller passed;
            None where that is its position in `indices`.

    The arrays are read-only views. They share memory with what was passed where that has the right type
    already: do not change it afterwards.

    Args:
        indptr: Integers [num_targets + 1], from 0, never falling, to the number of edges.
        indices: Integers [num_edges], each in [0, num_sources).
        num_sources: Number of sources; that of the targets if left out.
        edge_ids: A permutation of 0 .. num_edges - 1, if edges are known by other positions than those in
            `indices`.

    Raises:
        ArgumentError: An array is not what is said above.

    Example:
        >>> graph = Graph([0, 0, 2, 3], [0, 2, 1])
        >>> graph
        Graph(3 nodes, 3 edges, int32)
        >>> graph.in_degrees
        array([0, 2, 1])
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.integer[Any]]
    num_sources: int
    edge_ids: NDArray[np.int64] | None

    def __init__(self, indptr: Any, indices: Any, num_sources: int | None = None, edge_ids: Any = None) -> None:
        starts = integers("indptr", indptr, (None,)).astype(np.int64, copy=False)
        sources = integers("indices", indices, (None,))
        if len(starts) == 0:
            raise ArgumentError("indptr", "at least one element", "an empty array")
        count = len(starts) - 1 if num_sources is None else integer("num_sources", num_sources, 0, _MOST_NODES)
        ids = None if edge_ids is None else _permutation(edge_ids, len(sources))
        # Checked before it is narrowed: a cast would wrap what does not fit.
        argument = _argument(starts, sources, count, trusted=False)
        _native.check(_native.library().sage_attention_check_graph(ctypes.byref(argument), 0))
        self._set(starts, sources.astype(_index_dtype(len(starts) - 1, count), copy=False), count, ids)

    def _set(
        self,
        indptr: NDArray[np.int64],
        indices: NDArray[np.integer[Any]],
        num_sources: int,
        edge_ids: NDArray[np.int64] | None,
    ) -> None:
        """Fills the fields, which nobody else may."""
        object.__setattr__(self, "indptr", read_only(indptr))
        object.__setattr__(self, "indices", read_only(indices))
        object.__setattr__(self, "num_sources", num_sources)
        object.__setattr__(self, "edge_ids", None if edge_ids is None else read_only(edge_ids))

    @classmethod
    def from_trusted(
        cls,
        indptr: NDArray[np.int64],
        indices: NDArray[np.integer[Any]],
        num_sources: int,
        edge_ids: NDArray[np.int64] | None = None,
    ) -> Graph:
        """A graph of arrays that are known to be right; nothing is checked or copied.

        Args:
            indptr: int64 [num_targets + 1], contiguous.
            indices: [num_edges], contiguous; int32 if ids of both sides fit, else int64.
            num_sources: Number of sources.
            edge_ids: int64 [num_edges], contiguous, or None.

        Example:
            >>> Graph.from_trusted(np.array([0, 1]), np.array([0], np.int32), num_sources=1)
            Graph(1 nodes, 1 edges, int32)
        """
        graph = cls.__new__(cls)
        cls._set(graph, indptr, indices, num_sources, edge_ids)
        return graph

    @classmethod
    def from_edge_index(cls, edge_index: Any, num_nodes: int | tuple[int, int] | None = None) -> Graph:
        """A graph from a list of edges in any order.

        Args:
            edge_index: Integers [2, num_edges]: row 0 the sources, row 1 the targets; array, lists or tensor.
            num_nodes: Number of nodes, or (number of sources, number of targets) if these are different
                nodes; one more than the largest id if left out.

        Returns:
            The graph; edges of one target keep their order, `edge_ids` gives their places in `edge_index`.

        Raises:
            ArgumentError: `edge_index` has another shape or holds no integers, or an id is out of range.

        Example:
            >>> graph = Graph.from_edge_index([[0, 2, 1], [1, 1, 0]])
            >>> graph.indptr, graph.indices, graph.edge_ids
            (array([0, 1, 3, 3]), array([1, 0, 2], dtype=int32), array([2, 0, 1]))
        """
        edges = integers("edge_index", edge_index, (2, None))
        num_edges = edges.shape[1]
        if num_edges and int(edges.min()) < 0:
            raise ArgumentError("edge_index", "ids of at least 0", int(edges.min()))
        largest = [int(row.max()) if num_edges else -1 for row in edges]
        if num_nodes is None:
            if max(largest) >= _MOST_NODES:
                raise ArgumentError("edge_index", "ids below 2^59", max(largest))
            num_sources = num_targets = max(largest) + 1
        elif isinstance(num_nodes, (tuple, list)):
            if len(num_nodes) != 2:
                raise ArgumentError("num_nodes", "an integer or (num_sources, num_targets)", num_nodes)
            num_sources = integer("num_nodes[0]", num_nodes[0], 0, _MOST_NODES)
            num_targets = integer("num_nodes[1]", num_nodes[1], 0, _MOST_NODES)
        else:
            num_sources = num_targets = integer("num_nodes", num_nodes, 0, _MOST_NODES)
        for row, (name, count) in enumerate((("sources", num_sources), ("targets", num_targets))):
            if largest[row] >= count:
                raise ArgumentError("edge_index", f"{name} in [0, {count})", largest[row])
        dtype = _index_dtype(num_targets, num_sources)
        edges = edges.astype(dtype, copy=False)
        indptr = np.empty(num_targets + 1, np.int64)
        indices = np.empty(num_edges, dtype)
        edge_ids = np.empty(num_edges, np.int64)
        _native.check(
            _native.library().sage_attention_coo_to_csc(
                _native.address(edges[0]),
                _native.address(edges[1]),
                _native.index_type(dtype),
                num_edges,
                num_sources,
                num_targets,
                _native.address(indptr),
                _native.address(indices),
                _native.address(edge_ids),
            )
        )
        in_order = bool((edges[1, 1:] >= edges[1, :-1]).all())
        return cls.from_trusted(indptr, indices, num_sources, None if in_order else edge_ids)

    @property
    def num_targets(self) -> int:
        """Number of nodes that edges lead to."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return len(self.indices)

    @property
    def num_nodes(self) -> int:
        """Number of nodes of a square graph.

        Raises:
            ArgumentError: Sources and targets are different nodes.
        """
        self.require_square("num_nodes")
        return self.num_sources

    @functools.cached_property
    def in_degrees(self) -> NDArray[np.int64]:
        """int64 [num_targets], the number of in-edges of each target."""
        return read_only(np.diff(self.indptr))

    @functools.cached_property
    def transposed(self) -> Transposed:
        """The same edges by source; built once, kept with the graph.

        Example:
            >>> by_source = Graph([0, 2, 3], [0, 1, 0]).transposed
            >>> by_source.indptr, by_source.indices, by_source.positions
            (array([0, 2, 3]), array([0, 1, 0], dtype=int32), array([0, 2, 1]))
        """
        indptr = np.empty(self.num_sources + 1, np.int64)
        indices = np.empty_like(self.indices)
        positions = np.empty(self.num_edges, np.int64)
        _native.check(
            _native.library().sage_attention_transpose(
                ctypes.byref(self._argument()),
                _native.address(indptr),
                _native.address(indices),
                _native.address(positions),
            )
        )
        return Transposed(read_only(indptr), read_only(indices), read_only(positions))

    def to_edge_index(self) -> NDArray[np.int64]:
        """The edges as int64 [2, num_edges] (sources, targets), in the order the caller passed them.

        Example:
            >>> Graph.from_edge_index([[0, 2, 1], [1, 1, 0]]).to_edge_index()
            array([[0, 2, 1],
                   [1, 1, 0]])
        """
        edges = np.empty((2, self.num_edges), np.int64)
        places = slice(None) if self.edge_ids is None else self.edge_ids
        edges[0, places] = self.indices
        edges[1, places] = np.repeat(np.arange(self.num_targets, dtype=np.int64), self.in_degrees)
        return edges

    @classmethod
    def from_scipy(cls, matrix: Any) -> Graph:
        """A graph from a SciPy sparse matrix or array; see `graph_formats.from_scipy`."""
        from .graph_formats import from_scipy

        return from_scipy(matrix)

    def to_scipy(self, values: Any = None) -> Any:
        """The graph as a SciPy sparse array; see `graph_formats.to_scipy`."""
        from .graph_formats import to_scipy

        return to_scipy(self, values)

    @classmethod
    def from_networkx(cls, graph: Any) -> Graph:
        """A graph from a NetworkX graph; see `graph_formats.from_networkx`."""
        from .graph_formats import from_networkx

        return from_networkx(graph)

    def to_networkx(self) -> Any:
        """The graph as a NetworkX MultiDiGraph; see `graph_formats.to_networkx`."""
        from .graph_formats import to_networkx

        return to_networkx(self)

    @classmethod
    def from_pyg(cls, data: Any) -> Graph:
        """A graph from a PyTorch Geometric Data object; see `graph_formats.from_pyg`."""
        from .graph_formats import from_pyg

        return from_pyg(data)

    def to_pyg(self) -> Any:
        """The graph as a PyTorch Geometric Data object; see `graph_formats.to_pyg`."""
        from .graph_formats import to_pyg

        return to_pyg(self)

    def reorder(self, by: str = "hubs") -> Reordered:
        """The same graph with its nodes in another order; see `reordering.reorder`."""
        from .reordering import reorder

        return reorder(self, by)

    def __repr__(self) -> str:
        if self.num_sources == self.num_targets:
            nodes = f"{self.num_sources} nodes"
        else:
            nodes = f"{self.num_sources} sources, {self.num_targets} targets"
        return f"Graph({nodes}, {self.num_edges} edges, {self.indices.dtype})"

    def __reduce__(self) -> tuple[Any, ...]:
        # Arrays only: what is cached belongs to this process.
        return Graph.from_trusted, (self.indptr, self.indices, self.num_sources, self.edge_ids)

    def _argument(self) -> _native.GraphArgument:
        """The graph as the native library takes it. It is valid for as long as this graph lives."""
        return self._cached_argument

    @functools.cached_property
    def _cached_argument(self) -> _native.GraphArgument:
        return _argument(self.indptr, self.indices, self.num_sources, trusted=True)

    @functools.cached_property
    def _packed(self) -> tuple[bytes, int, int]:
        """The graph's part of a problem that attends all its in-edges, valid as `_argument` is; S; R."""
        graph, edge_ids = self._argument(), _native.address(self.edge_ids)
        packed = _native.pack_of_graph(
            *(getattr(graph, field[0]) or 0 for field in graph._fields_),
            *(edge_ids or 0, self.num_edges, 0, self.num_targets),  # and no targets
            *(0, -1, 0, 0),  # and no sampling
        )
        return packed, self.num_sources, self.num_targets

    @functools.cached_property
    def _idle_workspaces(self) -> list[Any]:
        """Relabelling tables of the sampler, kept from call to call; each call takes one and puts it back."""
        return []

    def require_square(self, argument: str) -> None:
        """Refuses a graph whose sources are other nodes than its targets.

        Args:
            argument: Name of the argument to blame.

        Raises:
            ArgumentError: Sources and targets are different nodes.

        Example:
            >>> Graph([0, 1], [0]).require_square("graph")
        """
        if self.num_sources != self.num_targets:
            got = f"{self.num_sources} sources and {self.num_targets} targets"
            raise ArgumentError(argument, "a graph whose sources are its targets", got)


def _argument(
    indptr: NDArray[np.int64], indices: NDArray[np.integer[Any]], num_sources: int, *, trusted: bool
) -> _native.GraphArgument:
    return _native.GraphArgument(
        _native.address(indptr),
        _native.address(indices),
        len(indptr) - 1,
        num_sources,
        len(indices),
        _native.index_type(indices.dtype),
        int(trusted),
    )


def _index_dtype(num_targets: int, num_sources: int) -> np.dtype[Any]:
    """int32 where it holds every id of either side (the transpose has targets for indices), else int64."""
    return np.dtype(np.int32 if max(num_targets, num_sources) <= _INT32_MAX else np.int64)


def _permutation(edge_ids: Any, num_edges: int) -> NDArray[np.int64]:
    ids = integers("edge_ids", edge_ids, (num_edges,)).astype(np.int64, copy=False)
    if num_edges:
        low, high = int(ids.min()), int(ids.max())
        if low < 0 or high >= num_edges:
            raise ArgumentError("edge_ids", f"values in [0, {num_edges})", low if low < 0 else high)
        seen = np.zeros(num_edges, np.bool_)
        seen[ids] = True
        if not seen.all():
            raise ArgumentError("edge_ids", "each edge once", f"no {int(np.argmin(seen))}")
    return ids
