"""Neighbour sampling over node and edge types, limited by time, by weight, in disjoint trees.

A graph of one node type and one edge type is the simplest case; `sample_neighbours` is the quicker way to it.
`tests/reference/hetero.py` is the slow, independent truth.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _native
from ._arrays import as_numpy, integer, integers, unsigned_seed
from ._memory import NativeMemory, numbers
from .errors import ArgumentError
from .graph import Graph
from .sampling import Workspace, borrowed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

__all__ = ["EdgeType", "HeteroSample", "HeteroSampler", "Relation"]

EdgeType = tuple[str, str, str]
"""Source type, name, target type."""

_MAX_THREADS = 2**31 - 1
MAX_FAN_OUT = 2**32
_MOST_DECAY = 1e100


class Relation:
    """The edges of one type, ready to be sampled.

    Args:
        graph: Edges from sources to targets.
        times: Integers [num_edges], when each edge came to be, in the order the edges were passed in; or None.
            In-edges of a target are brought into the order of their times.
        weights: Numbers [num_edges], finite, at least 0, in the same order; or None. An in-edge is picked in
            proportion to its weight, and never where that is 0.

    Raises:
        ArgumentError: An argument is not what is said above.

    Attributes:
        graph: The edges that can be picked, in the order they are kept in; `edge_ids` leads back.

    Example:
        >>> Relation(Graph.from_edge_index([[0, 1], [2, 2]]), times=[5, 3]).graph.indices
        array([1, 0], dtype=int32)
    """

    def __init__(self, graph: Graph, times: Any = None, weights: Any = None) -> None:
        if not isinstance(graph, Graph):
            raise ArgumentError("graph", "a sage_attention.Graph", type(graph).__name__)
        by_edge: dict[str, NDArray[Any]] = {}
        if times is not None:
            by_edge["times"] = integers("times", times, (graph.num_edges,)).astype(np.int64, copy=False)
        if weights is not None:
            by_edge["weights"] = _weights(weights, graph.num_edges)
        # from the caller's order to that of the graph
        columns = {
            name: values if graph.edge_ids is None else values[graph.edge_ids] for name, values in by_edge.items()
        }
        if "weights" in columns and not columns["weights"].all():
            graph, columns = _kept(graph, columns, columns["weights"] > 0)
        if "times" in columns:
            graph, columns = _in_order_of_time(graph, columns)
        self.graph = graph
        self.edge_times: NDArray[np.int64] | None = columns.get("times")
        self._weights = np.ascontiguousarray(columns["weights"]) if "weights" in columns else None
        self.weight_sums = None if self._weights is None else self._sums(None, 0.0)
        self._recency: tuple[float, NDArray[np.float64]] | None = None

    def recency_sums(self, decay: float) -> NDArray[np.float64] | None:
        """What is drawn from where weights fade with age; kept until another decay is asked for.

        Args:
            decay: How fast: exp(-decay) in a unit of time.

        Returns:
            float64 [num_edges], for each in-edge the sum of the weights up to it, as they have faded until its time.
            Without times: `weight_sums`.

        Raises:
            ArgumentError: `decay` is not in [0, 1e100].

        Example:
            >>> relation = Relation(Graph.from_edge_index([[0, 1], [2, 2]]), times=[3, 4])
            >>> relation.recency_sums(np.log(2))
            array([1. , 1.5])
        """
        if self.edge_times is None:
            return self.weight_sums
        kept = self._recency
        if kept is None or kept[0] != decay:
            self._recency = kept = (decay, self._sums(self.edge_times, decay))
        return kept[1]

    def _sums(self, times: NDArray[np.int64] | None, decay: float) -> NDArray[np.float64]:
        sums = np.empty(self.graph.num_edges, np.float64)
        _native.check(
            _native.library().sage_attention_weight_sums(
                ctypes.byref(self.graph._argument()),  # noqa: SLF001
                _native.address(self._weights),
                _native.address(times),
                decay,
                _native.address(sums),
                0,
            )
        )
        return sums


@dataclass(frozen=True, eq=False)
class HeteroSample:
    """What `HeteroSampler.sample` found.

    Nodes of a type are its seeds as given, then new nodes in order of discovery. Edges of a type are grouped by hop,
    by target, in the order they were picked, so that targets never fall.

    Attributes:
        nodes: Node type -> int64 [num_nodes], ids in the graph.
        trees: Node type -> int64 [num_nodes], the number of the seed each node was found from, counted over all
            node types; None unless disjoint.
        sources: Edge type -> int64 [num_edges], positions in the nodes of the source type.
        targets: Edge type -> int64 [num_edges], positions in the nodes of the target type.
        edge_ids: Edge type -> int64 [num_edges], positions among the edges the relation was made from.
        num_sampled_nodes: Node type -> nodes found per hop, the seeds first.
        num_sampled_edges: Edge type -> edges picked per hop.
    """

    nodes: dict[str, NDArray[np.int64]]
    trees: dict[str, NDArray[np.int64]] | None
    sources: dict[EdgeType, NDArray[np.int64]]
    targets: dict[EdgeType, NDArray[np.int64]]
    edge_ids: dict[EdgeType, NDArray[np.int64]]
    num_sampled_nodes: dict[str, tuple[int, ...]]
    num_sampled_edges: dict[EdgeType, tuple[int, ...]]


class HeteroSampler:
    """Samples neighbourhoods in a graph of several node and edge types.

    Args:
        relations: Edge type -> its edges. Their order is part of what names a sample.
        num_nodes: Node type -> number of its nodes.

    Raises:
        ArgumentError: An edge type names an unknown node type, or has other numbers of nodes.

    Example:
        >>> buys = ("user", "buys", "item")
        >>> bought_by = ("item", "bought_by", "user")
        >>> edges = np.array([[0, 1, 1], [0, 0, 1]])  # users, items
        >>> sampler = HeteroSampler(
        ...     {
        ...         buys: Relation(Graph.from_edge_index(edges, (2, 2))),
        ...         bought_by: Relation(Graph.from_edge_index(edges[::-1], (2, 2))),
        ...     },
        ...     {"user": 2, "item": 2},
        ... )
        >>> sample = sampler.sample({"item": [1]}, {buys: [5, 5], bought_by: [5, 5]})
        >>> sample.nodes
        {'user': array([1]), 'item': array([1, 0])}
    """

    def __init__(self, relations: Mapping[EdgeType, Relation], num_nodes: Mapping[str, int]) -> None:
        self.relations = dict(relations)
        self.num_nodes = {name: integer(f"num_nodes[{name!r}]", count, 0) for name, count in num_nodes.items()}
        self._idle_workspaces: list[Workspace] = []
        self._relation_arguments: Any = None
        self._numbers = {name: number for number, name in enumerate(self.num_nodes)}
        for edge_type, relation in self.relations.items():
            if not isinstance(relation, Relation):
                raise ArgumentError(f"relations[{edge_type!r}]", "a Relation", type(relation).__name__)
            for end, count in ((edge_type[0], relation.graph.num_sources), (edge_type[-1], relation.graph.num_targets)):
                argument = f"relations[{edge_type!r}]"
                if end not in self.num_nodes:
                    raise ArgumentError(argument, f"node types among {_quoted(self.num_nodes)}", repr(end))
                if self.num_nodes[end] != count:
                    raise ArgumentError(argument, f"a graph of {self.num_nodes[end]} {end!r} nodes", count)

    def __getstate__(self) -> dict[str, Any]:
        # Addresses belong to this process, and scratch memory too.
        return {**self.__dict__, "_idle_workspaces": [], "_relation_arguments": None}

    def _arguments(self) -> Any:
        """The relations as the native library takes them, but for the fan-outs; a copy."""
        if self._relation_arguments is None:
            self._relation_arguments = self._make_arguments()
        return type(self._relation_arguments).from_buffer_copy(self._relation_arguments)

    def _make_arguments(self) -> Any:
        arguments = (_native.Relation * max(1, len(self.relations)))()
        for argument, (edge_type, relation) in zip(arguments, self.relations.items()):
            argument.graph = relation.graph._argument()  # noqa: SLF001
            argument.source_type, argument.target_type = self._numbers[edge_type[0]], self._numbers[edge_type[-1]]
            argument.edge_times = _native.address(relation.edge_times)
            argument.weight_sums = _native.address(relation.weight_sums)
            argument.edge_ids = _native.address(relation.graph.edge_ids)
        return arguments

    def sample(
        self,
        seeds: Mapping[str, Any],
        fan_outs: Mapping[EdgeType, Sequence[int]] | Sequence[int],
        *,
        seed_times: Mapping[str, Any] | None = None,
        seed: int = 0,
        replace: bool = False,
        disjoint: bool = False,
        strategy: str = "uniform",
        strict: bool = False,
        window: int | None = None,
        decay: float | None = None,
        num_threads: int = 0,
    ) -> HeteroSample:
        """Samples the neighbourhood of some nodes, hop by hop.

        Args:
            seeds: Node type -> integers [num_seeds].
            fan_outs: In-edges per node for each hop, -1 for all, 0 for none: for every edge type alike, or
                edge type -> list, all of one length; none are picked of edge types that are left out.
            seed_times: Node type -> integers [num_seeds]: only edges whose time is not after that of their tree's
                seed are picked. Edge types without times, and trees without, are not limited. Needs `disjoint`.
            seed: Names the sample: an integer in [0, 2^64).
            replace: Draw independently, also where a node has fewer in-edges than the fan-out.
            disjoint: Each seed grows a tree of its own; a seed that comes again draws anew.
            strategy: "uniform"; with times "last": the latest ones; "labor" or "labor_sequential": as for
                `sample_neighbours`, by numbers that the nodes of a type have for each hop and, in trees, each tree.
                "recency": in proportion to exp(-decay * age), times the weights if there are any.
            strict: Edges as old as the seed are not picked either.
            window: Edges that are older than the seed by more are not picked; None for any age.
            decay: For "recency", of an edge in a unit of time, in [0, 1e100]: ln 2 / decay is its half-life. An edge is
                drawn with the right probability to a relative error of 1e-12 and better. Another decay than that of the
                call before costs a pass over all edges.
            num_threads: Threads to use, 0 for one per core. The result does not depend on it.

        Returns:
            The sample. Its arrays are views of the library's memory, which is freed with the last of them.

        Raises:
            ArgumentError: An argument is not what is said above.
            MemoryError: There is not enough memory.
        """
        if strategy not in _native.STRATEGIES:
            raise ArgumentError("strategy", f"one of {_quoted(_native.STRATEGIES)}", repr(strategy))
        if strategy.startswith("labor"):
            self._check_labor(strategy, replace)
        fading = _decay(strategy, decay)
        by_relation, num_hops = self._fan_outs(fan_outs)
        nodes = {name: _of_type("seeds", name, values) for name, values in self._of_types("seeds", seeds).items()}
        times = {
            name: _of_type("seed_times", name, v) for name, v in self._of_types("seed_times", seed_times or {}).items()
        }
        for name, values in times.items():
            expected = len(nodes.get(name, ()))
            if len(values) != expected:
                raise ArgumentError(f"seed_times[{name!r}]", f"{expected} of them, as many as seeds", len(values))
        types = (_native.NodeType * max(1, len(self.num_nodes)))()
        for argument, (name, count) in zip(types, self.num_nodes.items()):
            given = nodes.get(name)
            argument.num_nodes, argument.num_seeds = count, 0 if given is None else len(given)
            argument.seeds, argument.seed_times = _native.address(given), _native.address(times.get(name))
        relations = self._arguments()
        for argument, counts in zip(relations, by_relation):
            argument.fan_outs = _native.address(counts)
        # held until the call is over: another thread may ask for another decay meanwhile
        fading_sums = [relation.recency_sums(fading) for relation in self.relations.values() if strategy == "recency"]
        for argument, sums in zip(relations, fading_sums):
            argument.weight_sums = _native.address(sums)
        options = _native.HeteroSampling(
            ctypes.sizeof(_native.HeteroSampling),
            unsigned_seed(seed),
            num_hops,
            -1 if window is None else integer("window", window, 0, 2**63 - 1),
            bool(replace),
            bool(disjoint),
            _native.STRATEGIES[strategy],
            bool(strict),
            integer("num_threads", num_threads, 0, _MAX_THREADS),
            0,
            fading,
        )
        pointer = POINTER(_native.HeteroSample)()
        with borrowed(self._idle_workspaces) as workspace:
            status = _native.library().sage_attention_sample_hetero(
                types,
                len(self.num_nodes),
                relations,
                len(self.relations),
                ctypes.byref(options),
                workspace,
                ctypes.byref(pointer),
            )
        _native.check(status)
        return self._adopt(pointer, num_hops, disjoint)

    def _check_labor(self, strategy: str, replace: bool) -> None:
        if replace:
            raise ArgumentError("replace", f"False with strategy {strategy!r}", replace)
        weighted = [edge_type for edge_type, relation in self.relations.items() if relation.weight_sums is not None]
        if weighted:
            raise ArgumentError(
                "strategy", f"'uniform' or 'last' where edges {weighted[0]} have weights", repr(strategy)
            )

    def _of_types(self, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        for node_type in given:
            if node_type not in self.num_nodes:
                raise ArgumentError(name, f"node types among {_quoted(self.num_nodes)}", repr(node_type))
        return dict(given)

    def _fan_outs(self, given: Any) -> tuple[list[NDArray[np.int64]], int]:
        by_type = dict(given) if hasattr(given, "items") else dict.fromkeys(self.relations, given)
        for edge_type in by_type:
            if edge_type not in self.relations:
                known = ", ".join(map(str, self.relations))
                raise ArgumentError("fan_outs", f"edge types among {known}", f"{edge_type}")
        arrays = {edge_type: integers("fan_outs", list(counts), (None,)) for edge_type, counts in by_type.items()}
        lengths = {len(counts) for counts in arrays.values()}
        if len(lengths) > 1:
            raise ArgumentError("fan_outs", "as many for each edge type", f"{given!r}")
        num_hops = lengths.pop() if lengths else 0 if hasattr(given, "items") else len(list(given))
        for counts in arrays.values():
            if len(counts) and (counts.min() < -1 or counts.max() > MAX_FAN_OUT):
                raise ArgumentError("fan_outs", f"-1 (all) to {MAX_FAN_OUT}", counts.tolist())
        none = np.zeros(num_hops, np.int64)
        return [
            arrays[name].astype(np.int64, copy=False) if name in arrays else none for name in self.relations
        ], num_hops

    def _adopt(self, pointer: Any, num_hops: int, disjoint: bool) -> HeteroSample:
        view = NativeMemory(pointer, _native.library().sage_attention_hetero_sample_free).view
        types = dict(zip(self.num_nodes, pointer.contents.types[: len(self.num_nodes)]))
        edges = dict(zip(self.relations, pointer.contents.relations[: len(self.relations)]))
        return HeteroSample(
            {name: view(found.nodes, found.num_nodes) for name, found in types.items()},
            {name: view(found.trees, found.num_nodes) for name, found in types.items()} if disjoint else None,
            {name: view(found.sources, found.num_edges) for name, found in edges.items()},
            {name: view(found.targets, found.num_edges) for name, found in edges.items()},
            {name: view(found.edge_ids, found.num_edges) for name, found in edges.items()},
            {name: numbers(found.num_sampled_nodes, num_hops + 1) for name, found in types.items()},
            {name: numbers(found.num_sampled_edges, num_hops) for name, found in edges.items()},
        )


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))


def _decay(strategy: str, decay: Any) -> float:
    if strategy != "recency":
        if decay is not None:
            raise ArgumentError("decay", f"None with strategy {strategy!r}", f"{decay!r}")
        return 0.0
    if isinstance(decay, (bool, np.bool_)) or not isinstance(decay, (int, float, np.integer, np.floating)):
        raise ArgumentError("decay", "a number with strategy 'recency'", f"{decay!r}")
    if not 0 <= decay <= _MOST_DECAY:
        raise ArgumentError("decay", f"a number in [0, {_MOST_DECAY:g}]", f"{decay!r}")
    return float(decay)


def _weights(weights: Any, num_edges: int) -> NDArray[np.float64]:
    array = as_numpy("weights", weights)
    if array.shape != (num_edges,) or array.dtype.kind not in "fiub":
        raise ArgumentError("weights", f"numbers of shape [{num_edges}]", f"{array.dtype} {list(array.shape)}")
    numbers = array.astype(np.float64)
    wrong = ~(np.isfinite(numbers) & (numbers >= 0))
    if wrong.any():
        place = int(np.argmax(wrong))
        raise ArgumentError("weights", "finite numbers of at least 0", f"{numbers[place]} at position {place}")
    return numbers


def _of_type(name: str, node_type: str, values: Any) -> NDArray[np.int64]:
    return integers(f"{name}[{node_type!r}]", values, (None,)).astype(np.int64, copy=False)


def _rows(graph: Graph) -> NDArray[np.int64]:
    """int64 [num_edges]: the target of each position."""
    return np.repeat(np.arange(graph.num_targets, dtype=np.int64), graph.in_degrees)


def _edge_ids(graph: Graph) -> NDArray[np.int64]:
    return np.arange(graph.num_edges, dtype=np.int64) if graph.edge_ids is None else graph.edge_ids


def _kept(
    graph: Graph, columns: dict[str, NDArray[Any]], mask: NDArray[np.bool_]
) -> tuple[Graph, dict[str, NDArray[Any]]]:
    """The graph and its columns without some edges."""
    counts = np.bincount(_rows(graph)[mask], minlength=graph.num_targets)
    indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])
    kept = Graph.from_trusted(indptr, graph.indices[mask], graph.num_sources, _edge_ids(graph)[mask])
    return kept, {name: values[mask] for name, values in columns.items()}


def _in_order_of_time(graph: Graph, columns: dict[str, NDArray[Any]]) -> tuple[Graph, dict[str, NDArray[Any]]]:
    """The graph and its columns with the in-edges of each target in the order of their times; equal ones as before."""
    rows, times = _rows(graph), columns["times"]
    if not ((times[1:] < times[:-1]) & (rows[1:] == rows[:-1])).any():
        return graph, {name: np.ascontiguousarray(values) for name, values in columns.items()}
    order = np.lexsort((times, rows))
    sorted_graph = Graph.from_trusted(graph.indptr, graph.indices[order], graph.num_sources, _edge_ids(graph)[order])
    return sorted_graph, {name: np.ascontiguousarray(values[order]) for name, values in columns.items()}
