"""Synthetic graphs for the benchmarks: Chung-Lu with a power-law of expected degrees, ids shuffled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sage_attention import Graph

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["GRAPHS", "chung_lu", "named"]

# name -> (nodes, directed edges); G2 is the size of Reddit's sampled version, G3 that of ogbn-products
GRAPHS = {"G1": (170_000, 1_200_000), "G2": (233_000, 20_000_000), "G3": (2_450_000, 124_000_000)}


def chung_lu(num_nodes: int, num_edges: int, seed: int, exponent: float = 2.3) -> Graph:
    """A directed Chung-Lu graph: both ends of each edge are drawn by expected degree, independently.

    Args:
        num_nodes: Number of nodes.
        num_edges: Number of edges; duplicates and self loops are kept, as in raw data.
        seed: Seed of NumPy's generator: the same graph each time.
        exponent: Of the power law of degrees. Expected degrees are capped at a hundredth of the edges.

    Returns:
        The graph. Ids carry no information about degrees.
    """
    rng = np.random.default_rng(seed)
    weights = np.arange(1, num_nodes + 1, dtype=np.float64) ** (-1.0 / (exponent - 1.0))
    weights /= weights.sum()
    weights = np.minimum(weights, 0.01)
    rng.shuffle(weights)
    bounds = np.cumsum(weights)
    bounds /= bounds[-1]
    edge_index = np.empty((2, num_edges), np.int32)
    step = 4_000_000
    for end in range(2):
        for start in range(0, num_edges, step):
            stop = min(num_edges, start + step)
            edge_index[end, start:stop] = _draw(bounds, rng.random(stop - start))
    return Graph.from_edge_index(edge_index, num_nodes=num_nodes)


def named(name: str, seed: int = 0) -> Graph:
    """One of `GRAPHS`."""
    num_nodes, num_edges = GRAPHS[name]
    return chung_lu(num_nodes, num_edges, seed)


def _draw(bounds: NDArray[np.float64], uniform: NDArray[np.float64]) -> NDArray[np.int32]:
    """Inverts the cumulative distribution; sorted look-ups are many times faster than random ones."""
    order = np.argsort(uniform)
    found = np.searchsorted(bounds, uniform[order], side="right").astype(np.int32)
    drawn = np.empty_like(found)
    drawn[order] = np.minimum(found, len(bounds) - 1)
    return drawn
