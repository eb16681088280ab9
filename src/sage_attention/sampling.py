"""Neighbour sampling: one hop, and several hops with relabelling.

A sample is a pure function of (graph, seeds, fan-outs, seed): the same for any number of threads, on any
machine.
`tests/reference/sampling.py` is the slow, independent truth.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from ctypes import POINTER
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import _native
from ._arrays import integer, integers, unsigned_seed
from ._memory import free_with
from .errors import ArgumentError
from .graph import Graph
from .subgraph import SampledSubgraph, adopt

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

__all__ = ["OneHop", "SampledSubgraph", "Workspace", "sample_neighbours", "sample_one_hop"]

_MAX_THREADS = 2**31 - 1
_MAX_FAN_OUT = 2**32
_STRATEGIES = "'uniform', 'labor', 'labor_sequential', 'top_attention' or 'importance'"


class OneHop(NamedTuple):
    """In-edges picked for some nodes.

    Attributes:
        indptr: int64 [num_nodes + 1]; picks of the i-th node are positions indptr[i] to indptr[i + 1] - 1.
        sources: int64 [num_picks], the source of each pick, as an id of the graph.
        edge_ids: int64 [num_picks], the picked edge, as a position in the edges the graph was made from.
    """

    indptr: NDArray[np.int64]
    sources: NDArray[np.int64]
    edge_ids: NDArray[np.int64]


class Workspace:
    """Memory a sampler keeps from call to call: the table that turns ids of the graph into ids of the sample.

    `sample_neighbours` keeps some with each graph, so that this is needed only by who wants to say where that
    memory lives. One call at a time uses a workspace; others wait.

    Example:
        >>> workspace = Workspace()
        >>> graph = Graph.from_edge_index([[0, 1], [1, 2]])
        >>> sample_neighbours(graph, [2], [1, 1], workspace=workspace).nodes
        array([2, 1, 0])
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pointer: int = _native.library().sage_attention_workspace_create()
        if not self._pointer:
            raise MemoryError("not enough memory for a sampling workspace")
        free_with(self, _native.library().sage_attention_workspace_free, self._pointer)

    @contextlib.contextmanager
    def hold(self) -> Iterator[int]:
        """Keeps others out and gives the native pointer.

        Example:
            >>> with Workspace().hold() as pointer:
            ...     pointer > 0
            True
        """
        with self._lock:
            yield self._pointer

    def __reduce__(self) -> tuple[Any, ...]:
        # Its content is scratch: another process gets an empty one.
        return Workspace, ()


def sample_one_hop(
    graph: Graph,
    nodes: Any,
    fan_out: int,
    *,
    seed: int = 0,
    hop: int = 0,
    replace: bool = False,
    strategy: str = "uniform",
    scores: Any = None,
    num_threads: int = 0,
) -> OneHop:
    """Picks in-edges of some nodes.

    Args:
        graph: The graph; sources and targets may be different nodes.
        nodes: Integers [num_nodes], targets of the graph in any order, repeated ones too.
        fan_out: In-edges per node, -1 for all of them in the graph's order. Without replacement a node
            that has no more in-edges than that gives all of them.
        seed: Names the sample: an integer in [0, 2^64).
        hop: Number of the hop: another hop draws other in-edges of the same node.
        replace: Draw `fan_out` times independently, also where there are fewer in-edges.
        strategy: "uniform"; or by attention, of which `scores` tell. "top_attention": the in-edges with the highest
            attention, highest first, of equal ones the first. "importance": by chance, each with a probability in
            proportion to its attention (at most 1). The attention of an edge is the largest, over the heads, of its
            softmax weight among all in-edges of its target.
        scores: `GatScores` (logits of sources and targets), or the score of each edge before the softmax, [E] or
            [E, H] in the order the graph was made from, float32 or float64. Those that are looked at must be finite.
        num_threads: Threads to use, 0 for one per core. The result does not depend on it.

    Returns:
        The picks, grouped by node; by attention a `GuidedOneHop`, which has their probabilities and the share of those
        not picked, too.

    Raises:
        ArgumentError: An argument is not what is said above.
        MemoryError: There is not enough memory.

    Example:
        >>> graph = Graph.from_edge_index([[0, 1, 2, 0], [3, 3, 3, 1]])
        >>> sample_one_hop(graph, [1, 3], -1).sources
        array([0, 0, 1, 2])
        >>> sample_one_hop(graph, [3], 1, strategy="top_attention", scores=np.array([0.1, 0.7, 0.2, 0.0])).sources
        array([1])
    """
    topology = _graph_argument(graph)
    targets = _nodes("nodes", nodes)
    rule = _native.Sampling(
        unsigned_seed(seed),
        _fan_out("fan_out", fan_out),
        _flag("replace", replace),
        integer("hop", hop, 0, 2**31 - 1),
    )
    threads = integer("num_threads", num_threads, 0, _MAX_THREADS)
    if strategy != "uniform":
        from .guided_sampling import GUIDED_STRATEGIES, hop_by_attention

        if strategy not in GUIDED_STRATEGIES:
            raise ArgumentError("strategy", "'uniform', 'top_attention' or 'importance'", f"{strategy!r}")
        if replace:
            raise ArgumentError("replace", f"False with strategy {strategy!r}", True)
        return hop_by_attention(graph, targets, rule, strategy, scores, threads)
    _refuse_scores(strategy, scores)
    sample = _native.library().sage_attention_sample_one_hop
    indptr = np.empty(len(targets) + 1, np.int64)
    fixed = (
        ctypes.byref(topology),
        ctypes.byref(rule),
        _native.address(targets),
        len(targets),
        _native.address(indptr),
    )
    _native.check(sample(*fixed, None, None, 0, threads))
    sources = np.empty(int(indptr[-1]), np.int64)
    edge_ids = np.empty_like(sources)
    _native.check(sample(*fixed, _native.address(sources), _native.address(edge_ids), len(sources), threads))
    if graph.edge_ids is not None:
        edge_ids = graph.edge_ids[edge_ids]
    return OneHop(indptr, sources, edge_ids)


def sample_neighbours(
    graph: Graph,
    seeds: Any,
    fan_outs: Any,
    *,
    seed: int = 0,
    replace: bool = False,
    strategy: str = "uniform",
    scores: Any = None,
    num_threads: int = 0,
    workspace: Workspace | None = None,
) -> SampledSubgraph:
    """Samples the neighbourhood of some nodes, hop by hop.

    Each hop picks in-edges of the nodes the hop before found first; a node is expanded once.

    Args:
        graph: A square graph (the sources are the targets).
        seeds: Integers [num_seeds], nodes of the graph. Repeated seeds stay separate nodes with equal
            in-edges; edges that come from such a node come from the first of them.
        fan_outs: In-edges per node for each hop, the first for the seeds; -1 for all of them.
        seed: Names the sample: an integer in [0, 2^64).
        replace: Draw independently, also where a node has fewer in-edges than the fan-out.
        strategy: "uniform"; or LABOR-0 (Balin and Catalyurek, "Layer-Neighbor Sampling", NeurIPS 2023), which
            finds fewer distinct nodes, because all nodes of a hop share one random number for each source.
            "labor": each in-edge is picked with the probability fan-out / in-degree, so that a node gets about
            the fan-out, perhaps none. "labor_sequential": exactly the fan-out, those with the smallest numbers;
            of parallel edges the first ones first. `SampledSubgraph.edge_weights` makes sums over picked edges
            estimates of those over all. Picks are in the graph's order. Or by attention, "top_attention" and
            "importance", as of `sample_one_hop`.
        scores: Of the strategies by attention, as of `sample_one_hop`, for all hops; or a list with those of each hop,
            the first for the seeds.
        num_threads: Threads to use, 0 for one per core. The result does not depend on it.
        workspace: Memory to work in; by default some that is kept with the graph.

    Returns:
        The sample. Its arrays are views of the library's memory, which is freed with the last of them.

    Raises:
        ArgumentError: An argument is not what is said above.
        MemoryError: There is not enough memory.

    Example:
        >>> graph = Graph.from_edge_index([[0, 1, 2], [1, 2, 3]])
        >>> sample = sample_neighbours(graph, [3], [5, 5])
        >>> sample.nodes, sample.edge_index
        (array([3, 2, 1]), array([[1, 2],
               [0, 1]]))
    """
    topology = _graph_argument(graph)
    graph.require_square("graph")
    roots = _nodes("seeds", seeds)
    counts = _fan_outs(fan_outs)
    key = unsigned_seed(seed)
    flag = _flag("replace", replace)
    threads = integer("num_threads", num_threads, 0, _MAX_THREADS)
    if workspace is not None and not isinstance(workspace, Workspace):
        raise ArgumentError("workspace", "a Workspace or None", type(workspace).__name__)
    if strategy in ("top_attention", "importance"):
        from .guided_sampling import subgraph_by_attention

        if replace:
            raise ArgumentError("replace", f"False with strategy {strategy!r}", True)
        return subgraph_by_attention(graph, roots, counts, strategy, scores, seed=key, num_threads=threads)
    _refuse_scores(strategy, scores)
    if strategy != "uniform":
        from .labor import LABOR_STRATEGIES, subgraph_by_labor

        if strategy not in LABOR_STRATEGIES:
            raise ArgumentError("strategy", _STRATEGIES, f"{strategy!r}")
        if replace:
            raise ArgumentError("replace", f"False with strategy {strategy!r}", True)
        return subgraph_by_labor(graph, roots, counts, strategy, seed=key, num_threads=threads)
    held = borrowed(graph._idle_workspaces) if workspace is None else workspace.hold()  # noqa: SLF001
    pointer = POINTER(_native.Sample)()
    with held as scratch:
        status = _native.library().sage_attention_sample_hops(
            ctypes.byref(topology),
            scratch,
            _native.address(roots),
            len(roots),
            _native.address(counts),
            len(counts),
            flag,
            key,
            threads,
            ctypes.byref(pointer),
        )
    _native.check(status)
    return adopt(pointer, graph.edge_ids)


@contextlib.contextmanager
def borrowed(idle: list[Workspace]) -> Iterator[int]:
    """Takes a workspace out of a list, or a new one, gives its native pointer, and puts it back.

    Args:
        idle: Workspaces that nobody uses.

    Example:
        >>> idle = []
        >>> with borrowed(idle) as pointer:
        ...     len(idle)
        0
        >>> len(idle)
        1
    """
    try:
        workspace = idle.pop()
    except IndexError:
        workspace = Workspace()
    with workspace.hold() as pointer:
        yield pointer
    idle.append(workspace)


def _graph_argument(graph: Any) -> _native.GraphArgument:
    if not isinstance(graph, Graph):
        raise ArgumentError("graph", "a sage_attention.Graph", type(graph).__name__)
    return graph._argument()  # noqa: SLF001


def _nodes(name: str, nodes: Any) -> NDArray[np.int64]:
    # The core checks their range where it reads them.
    return integers(name, nodes, (None,)).astype(np.int64, copy=False)


def _refuse_scores(strategy: str, scores: Any) -> None:
    if scores is not None:
        raise ArgumentError("scores", f"None with strategy {strategy!r}", type(scores).__name__)


def _flag(name: str, value: Any) -> int:
    if not isinstance(value, (bool, np.bool_)):
        raise ArgumentError(name, "True or False", f"{value!r}")
    return int(value)


def _fan_out(name: str, value: Any) -> int:
    number = integer(name, value, -1, _MAX_FAN_OUT)
    if number == 0:
        raise ArgumentError(name, "-1 (all) or at least 1", 0)
    return number


def _fan_outs(value: Any) -> NDArray[np.int64]:
    try:
        listed = list(value)
    except TypeError as error:
        raise ArgumentError("fan_outs", "a non-empty list of integers", f"{value!r}") from error
    if not listed:
        raise ArgumentError("fan_outs", "a non-empty list of integers", "an empty one")
    return np.array([_fan_out(f"fan_outs[{hop}]", number) for hop, number in enumerate(listed)], np.int64)
