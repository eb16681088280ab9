"""LABOR: layer-neighbour sampling, which finds fewer distinct nodes than uniform sampling at the same variance.

`sample_neighbours(..., strategy="labor")` comes here. `tests/reference/labor.py` is the slow, independent truth.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ._arrays import read_only
from .errors import ArgumentError
from .graph import Graph
from .hetero import EdgeType, HeteroSampler, Relation
from .subgraph import SampledSubgraph

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["LABOR_STRATEGIES", "subgraph_by_labor"]

LABOR_STRATEGIES = ("labor", "labor_sequential")

_LOOP: EdgeType = ("node", "to", "node")


def subgraph_by_labor(
    graph: Graph, seeds: NDArray[np.int64], fan_outs: NDArray[np.int64], strategy: str, **options: Any
) -> SampledSubgraph:
    """What `sample_neighbours` gives for strategies among `LABOR_STRATEGIES`.

    Args:
        graph: A square graph.
        seeds: int64 [num_seeds].
        fan_outs: int64 [num_hops], -1 or at least 1.
        strategy: One of `LABOR_STRATEGIES`.
        **options: `seed` and `num_threads` of `HeteroSampler.sample`.

    Raises:
        ArgumentError: A seed is no node of the graph.

    Example:
        >>> graph = Graph.from_edge_index([[0, 1, 2], [1, 2, 3]])
        >>> subgraph_by_labor(graph, np.array([3]), np.array([5, 5]), "labor").nodes
        array([3, 2, 1])
    """
    outside = (seeds < 0) | (seeds >= graph.num_sources)
    if outside.any():
        place = int(np.argmax(outside))
        got = f"{seeds[place]} at position {place}"
        raise ArgumentError("seeds", f"values in [0, {graph.num_sources})", got)
    # without the graph's own edge ids: positions are asked for
    plain = Graph.from_trusted(graph.indptr, graph.indices, graph.num_sources)
    sampler = HeteroSampler({_LOOP: Relation(plain)}, {"node": graph.num_sources})
    sampler._idle_workspaces = graph._idle_workspaces  # noqa: SLF001
    found = sampler.sample({"node": seeds}, fan_outs.tolist(), strategy=strategy, **options)
    nodes, hops = found.nodes["node"], found.num_sampled_nodes["node"]
    indptr = _indptr(found.targets[_LOOP], sum(hops[:-1]))
    degrees = graph.in_degrees[nodes[: len(indptr) - 1]]
    wanted = np.repeat(fan_outs, hops[:-1])
    all_picked = (wanted < 0) | (wanted >= degrees)
    inverse_probabilities = np.where(all_picked, 1.0, degrees / np.where(all_picked, 1, wanted))
    return SampledSubgraph(
        nodes,
        read_only(indptr),
        found.sources[_LOOP],
        found.edge_ids[_LOOP],
        hops,
        found.num_sampled_edges[_LOOP],
        graph.edge_ids,
        read_only(inverse_probabilities),
    )


def _indptr(targets: NDArray[np.int64], num_targets: int) -> NDArray[np.int64]:
    return np.searchsorted(targets, np.arange(num_targets + 1, dtype=np.int64)).astype(np.int64, copy=False)
