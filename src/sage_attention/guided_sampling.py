"""Sampling guided by attention: in-edges picked by what their targets pay them, from scores alone.

For GAT an edge's score is LeakyReLU(source + target): one number per head and neighbour is read, no row of values.
`sample_one_hop(..., strategy="top_attention")` and `"importance"` come here. This module picks and attends nothing;
`guided_attending.py` attends over the picks, `tests/reference/guided_sampling.py` is the slow, independent truth.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import _native
from ._arrays import as_numpy, read_only
from .errors import ArgumentError
from .sampling import OneHop
from .subgraph import SampledSubgraph

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from .graph import Graph

__all__ = ["GUIDED_STRATEGIES", "GatScores", "GuidedOneHop", "hop_by_attention", "subgraph_by_attention"]

GUIDED_STRATEGIES = tuple(_native.GUIDES)


class GatScores(NamedTuple):
    """Scores of a GAT layer: an edge from j to i has LeakyReLU(source_logits_j + target_logits_i), per head.

    Attributes:
        source_logits: [S, H] or [S], float32 or float64.
        target_logits: [T, H] or [T] of the same type, T targets of the graph; None: 0.
        negative_slope: Of the LeakyReLU.
    """

    source_logits: Any
    target_logits: Any = None
    negative_slope: float = 0.2


class GuidedOneHop(OneHop):
    """In-edges picked by attention: a `OneHop` (indptr, sources, edge_ids) and what the picks stand for.

    Attributes:
        probabilities: float64 [num_picks], the probability with which each was picked; 1 by "top_attention".
        rest_logits: float64 [num_nodes, H], log of the sum of exp(score) over the in-edges that were not picked: the
            score of all of them together; -inf where there are none.
    """

    probabilities: NDArray[np.float64]
    rest_logits: NDArray[np.float64]

    @property
    def log_corrections(self) -> NDArray[np.float64]:
        """float64 [num_picks], -log(probability): added to the picks' scores, their softmax estimates that of all.

        The estimate is Hajek's: sums weighted by 1 / probability, divided by the sum of those weights.
        """
        return -np.log(self.probabilities)


class _Guide(NamedTuple):
    """Scores as the library takes them, and the arrays that must outlive the call."""

    native: _native.Guide
    arrays: tuple[NDArray[Any] | None, ...]

    @property
    def heads(self) -> int:
        return int(self.native.heads)


def _logits(name: str, value: Any, rows: int, like: NDArray[Any] | None = None) -> NDArray[Any]:
    array = as_numpy(name, value)
    if _native.float_type(array.dtype) is None or not array.dtype.isnative:
        raise ArgumentError(name, "a float32 or float64 array", array.dtype)
    array = array[:, None] if array.ndim == 1 else array
    wanted = (rows, "H" if like is None else like.shape[1])
    if array.ndim != 2 or array.shape[0] != rows or array.shape[1] < 1 or (like is not None and array.shape != wanted):
        raise ArgumentError(name, f"shape [{wanted[0]}, {wanted[1]}]", list(array.shape))
    if like is not None and array.dtype != like.dtype:
        raise ArgumentError(name, f"{like.dtype}, as source_logits", array.dtype)
    return np.require(array, requirements=("C_CONTIGUOUS", "ALIGNED"))


def _guide(graph: Graph, strategy: str, scores: Any) -> _Guide:
    if strategy not in _native.GUIDES:
        raise ArgumentError("strategy", " or ".join(map(repr, GUIDED_STRATEGIES)), repr(strategy))
    if scores is None:
        raise ArgumentError("scores", f"GatScores or an array [E] or [E, H] with strategy {strategy!r}", "None")
    source = target = edge = None
    slope = 0.2
    if isinstance(scores, GatScores):
        source = _logits("source_logits", scores.source_logits, graph.num_sources)
        if scores.target_logits is not None:
            target = _logits("target_logits", scores.target_logits, graph.num_targets, source)
        try:
            slope = float(scores.negative_slope)
        except (TypeError, ValueError) as error:
            raise ArgumentError("negative_slope", "a number", repr(scores.negative_slope)) from error
        first = source
    else:
        first = edge = _logits("scores", scores, graph.num_edges)
    native = _native.Guide(
        struct_size=ctypes.sizeof(_native.Guide),
        strategy=_native.GUIDES[strategy],
        dtype=_native.float_type(first.dtype),
        heads=first.shape[1],
        source_logits=_native.address(source),
        target_logits=_native.address(target),
        edge_logits=_native.address(edge),
        edge_ids=None if edge is None else _native.address(graph.edge_ids),
        negative_slope=slope,
    )
    return _Guide(native, (source, target, edge, graph.edge_ids))


def _hop(
    graph: Graph, nodes: NDArray[np.int64], rule: _native.Sampling, guide: _Guide, num_threads: int
) -> GuidedOneHop:
    """The picks; their edge ids are CSC positions."""
    sample = _native.library().sage_attention_sample_guided
    indptr = np.empty(len(nodes) + 1, np.int64)
    out = _native.GuidedHop(indptr=_native.address(indptr))
    fixed = (
        ctypes.byref(graph._argument()),  # noqa: SLF001
        ctypes.byref(rule),
        ctypes.byref(guide.native),
        _native.address(nodes),
        len(nodes),
        ctypes.byref(out),
    )
    _native.check(sample(*fixed, 0, num_threads))
    sources = np.empty(int(indptr[-1]), np.int64)
    positions = np.empty_like(sources)
    probabilities = np.empty(len(sources), np.float64)
    row_max = np.empty((len(nodes), guide.heads), np.float64)
    rest_sum = np.empty_like(row_max)
    out.sources, out.edge_ids = _native.address(sources), _native.address(positions)
    out.probabilities = _native.address(probabilities)
    out.row_max, out.rest_sum = _native.address(row_max), _native.address(rest_sum)
    _native.check(sample(*fixed, len(sources), num_threads))
    found = GuidedOneHop(indptr, sources, positions)
    found.probabilities = probabilities
    with np.errstate(divide="ignore"):
        found.rest_logits = row_max + np.log(rest_sum)
    return found


def hop_by_attention(
    graph: Graph, nodes: NDArray[np.int64], rule: _native.Sampling, strategy: str, scores: Any, num_threads: int
) -> GuidedOneHop:
    """What `sample_one_hop` gives for strategies among `GUIDED_STRATEGIES`; arguments are checked already.

    Args:
        graph: The graph.
        nodes: int64 [num_nodes].
        rule: Fan-out, seed and hop.
        strategy: One of `GUIDED_STRATEGIES`.
        scores: `GatScores`, or the scores of the edges, [E] or [E, H], in the order the graph was made from.
        num_threads: 0 is one per core.

    Raises:
        ArgumentError: The scores do not fit the graph, or one that is looked at is not finite.

    Example:
        >>> from sage_attention import Graph
        >>> graph = Graph.from_edge_index([[0, 1, 2], [3, 3, 3]])
        >>> rule = _native.Sampling(seed=0, fan_out=1)
        >>> hop_by_attention(graph, np.array([3]), rule, "top_attention", np.array([0.1, 0.7, 0.2]), 1).sources
        array([1])
    """
    found = _hop(graph, nodes, rule, _guide(graph, strategy, scores), num_threads)
    if graph.edge_ids is None:
        return found
    named = GuidedOneHop(found.indptr, found.sources, graph.edge_ids[found.edge_ids])
    named.probabilities, named.rest_logits = found.probabilities, found.rest_logits
    return named


def subgraph_by_attention(
    graph: Graph,
    seeds: NDArray[np.int64],
    fan_outs: NDArray[np.int64],
    strategy: str,
    scores: Any,
    *,
    seed: int,
    num_threads: int,
) -> SampledSubgraph:
    """What `sample_neighbours` gives for strategies among `GUIDED_STRATEGIES`; arguments are checked already.

    Args:
        graph: A square graph.
        seeds: int64 [num_seeds].
        fan_outs: int64 [num_hops], -1 or at least 1.
        strategy: One of `GUIDED_STRATEGIES`.
        scores: As of `hop_by_attention`, for all hops; or a list of such, the first for the seeds.
        seed: Names the sample.
        num_threads: 0 is one per core.

    Raises:
        ArgumentError: The scores do not fit the graph or the number of hops, or a seed is no node.

    Example:
        >>> from sage_attention import Graph
        >>> graph = Graph.from_edge_index([[0, 1, 2, 0], [3, 3, 3, 1]])
        >>> scores = np.array([0.1, 0.7, 0.2, 0.0])
        >>> fan_outs = np.array([1, 1])
        >>> subgraph_by_attention(
        ...     graph, np.array([3]), fan_outs, "top_attention", scores, seed=0, num_threads=1
        ... ).nodes
        array([3, 1, 0])
    """
    by_hop: Sequence[Any] = scores if isinstance(scores, list) else [scores] * len(fan_outs)
    if len(by_hop) != len(fan_outs):
        raise ArgumentError("scores", f"scores for all hops, or a list of {len(fan_outs)}", f"a list of {len(by_hop)}")
    outside = (seeds < 0) | (seeds >= graph.num_targets)
    if outside.any():
        place = int(np.argmax(outside))
        raise ArgumentError("seeds", f"values in [0, {graph.num_targets})", f"{seeds[place]} at position {place}")
    table = np.full(graph.num_sources, -1, np.int64)
    table[seeds[::-1]] = np.arange(len(seeds) - 1, -1, -1, dtype=np.int64)  # the first of repeated seeds wins
    nodes, frontier, known = [seeds], seeds, len(seeds)
    counts: list[NDArray[np.int64]] = []
    sources: list[NDArray[np.int64]] = []
    positions: list[NDArray[np.int64]] = []
    probabilities: list[NDArray[np.float64]] = []
    for hop, (fan_out, of_hop) in enumerate(zip(fan_outs, by_hop)):
        rule = _native.Sampling(seed=seed, fan_out=int(fan_out), replace=0, hop=hop)
        found = _hop(graph, frontier, rule, _guide(graph, strategy, of_hop), num_threads)
        unknown = found.sources[table[found.sources] < 0]
        fresh, first = np.unique(unknown, return_index=True)
        frontier = fresh[np.argsort(first, kind="stable")]
        table[frontier] = np.arange(known, known + len(frontier), dtype=np.int64)
        known += len(frontier)
        nodes.append(frontier)
        counts.append(np.diff(found.indptr))
        sources.append(table[found.sources])
        positions.append(found.edge_ids)
        probabilities.append(found.probabilities)
    return SampledSubgraph(
        read_only(np.concatenate(nodes)),
        read_only(np.concatenate([np.zeros(1, np.int64), np.cumsum(np.concatenate(counts), dtype=np.int64)])),
        read_only(np.concatenate(sources)),
        read_only(np.concatenate(positions)),
        tuple(len(found) for found in nodes),
        tuple(len(found) for found in sources),
        graph.edge_ids,
        probabilities=read_only(np.concatenate(probabilities)),
    )
