"""All edges between the nodes of a sample, of the same tree where there are trees, and not from its future."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from sage_attention.hetero import EdgeType, HeteroSample, HeteroSampler

__all__ = ["induced"]

_Edges = tuple["NDArray[np.int64]", "NDArray[np.int64]", "NDArray[np.int64]"]  # sources, targets, ids


def induced(sampler: HeteroSampler, found: HeteroSample, seed_times: Mapping[str, Any], **limits: Any) -> HeteroSample:
    """The nodes of a sample with all edges between them: of all their in-edges those that come from one of them.

    Args:
        sampler: What the sample was drawn by.
        found: The sample.
        seed_times: Node type -> integers [num_seeds], the times of the trees of these seeds.
        **limits: `strict`, `window` and `num_threads` of `HeteroSampler.sample`.

    Returns:
        The same nodes; edges by target. Nodes and edges per hop are no longer told.

    Example:
        >>> from sage_attention import Graph
        >>> from sage_attention.hetero import HeteroSampler, Relation
        >>> edges = Graph.from_edge_index([[1, 2, 2], [0, 0, 1]])
        >>> sampler = HeteroSampler({("a", "to", "a"): Relation(edges)}, {"a": 3})
        >>> found = sampler.sample({"a": [0]}, [-1])
        >>> induced(sampler, found, {}).edge_ids
        {('a', 'to', 'a'): array([0, 1, 2])}
    """
    edges = _plain(sampler, found, **limits) if found.trees is None else _in_trees(sampler, found, seed_times, **limits)
    columns = [{edge_type: of_type[i] for edge_type, of_type in edges.items()} for i in range(3)]
    return replace(
        found,
        sources=columns[0],
        targets=columns[1],
        edge_ids=columns[2],
        num_sampled_nodes={},
        num_sampled_edges={},
    )


def _plain(sampler: HeteroSampler, found: HeteroSample, num_threads: int = 0, **_: Any) -> dict[EdgeType, _Edges]:
    rows = sampler.sample(found.nodes, [-1], num_threads=num_threads)
    edges = {}
    for edge_type, sources in rows.sources.items():
        inside = sources < len(found.nodes[edge_type[0]])
        edges[edge_type] = (sources[inside], rows.targets[edge_type][inside], rows.edge_ids[edge_type][inside])
    return edges


def _in_trees(
    sampler: HeteroSampler, found: HeteroSample, seed_times: Mapping[str, Any], **limits: Any
) -> dict[EdgeType, _Edges]:
    trees = found.trees or {}
    num_trees = sum(counts[0] for counts in found.num_sampled_nodes.values())
    time, timed = np.zeros(num_trees, np.int64), np.zeros(num_trees, np.bool_)
    for name, values in seed_times.items():
        of_seeds = trees[name][: found.num_sampled_nodes[name][0]]
        time[of_seeds], timed[of_seeds] = np.asarray(values), True
    # A node is known by its tree and its id.
    keys = {name: trees[name] * sampler.num_nodes[name] + nodes for name, nodes in found.nodes.items()}
    orders = {name: np.argsort(of_type) for name, of_type in keys.items()}
    parts: dict[EdgeType, list[_Edges]] = {edge_type: [] for edge_type in sampler.relations}
    for with_time in (True, False):
        chosen = {name: np.flatnonzero(timed[of_type] == with_time) for name, of_type in trees.items()}
        times = {name: time[trees[name][places]] for name, places in chosen.items()} if with_time else {}
        seeds = {name: found.nodes[name][places] for name, places in chosen.items()}
        rows = sampler.sample(seeds, [-1], seed_times=times, disjoint=True, **limits)
        for edge_type in sampler.relations:
            source, target = edge_type[0], edge_type[-1]
            targets = chosen[target][rows.targets[edge_type]]
            sources = rows.nodes[source][rows.sources[edge_type]]
            wanted = trees[target][targets] * sampler.num_nodes[source] + sources
            places = np.searchsorted(keys[source], wanted, sorter=orders[source])
            inside = places < len(orders[source])
            inside[inside] = keys[source][orders[source][places[inside]]] == wanted[inside]
            ids = rows.edge_ids[edge_type]
            parts[edge_type].append((orders[source][places[inside]], targets[inside], ids[inside]))
    return {edge_type: _by_target(of_type) for edge_type, of_type in parts.items()}


def _by_target(parts: list[_Edges]) -> _Edges:
    sources, targets, ids = (np.concatenate(columns) for columns in zip(*parts))
    order = np.argsort(targets, kind="stable")
    return sources[order], targets[order], ids[order]
