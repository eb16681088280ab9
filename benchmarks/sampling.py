"""Nanoseconds per sampled edge: ``python benchmarks/sampling.py [--graphs G1 G2] [--rounds 30]``.

Sources, relabelling and edge ids included, batches of 1024 seeds. The ways and the numbers of threads take turns, each
on seeds of its own: on the same ones, who comes later finds the rows in the cache. Where all threads' processor time
is no more than the median, the machine gave them one core between them.

- positions: ids of edges are their places in the graph, as pyg-lib's sampler gives them
- ids: the caller's own, which costs another random access for each edge; PyTorch Geometric looks them up after sampling
- typed, trees: `HeteroSampler` on the same graph, one node and edge type, with ids; in disjoint trees
- four types: the nodes split into two types, and the edges into four by what they connect
- pyg: `sage_attention.pyg.NeighborSampler` as a loader calls it, up to tensors (needs torch_geometric)

pyg-lib's own sampler is not measured: PyTorch Geometric has no other way to sample than it and torch-sparse.
"""

from __future__ import annotations

import argparse
import importlib.util
import platform
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from graphs import GRAPHS, named
from sage_attention import Graph, sample_neighbours
from sage_attention.hetero import HeteroSampler, Relation

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    # seeds, number of the batch, fan-outs, threads -> sampled edges
    Way = Callable[[NDArray[np.int64], int, list[int], int], int]

FAN_OUTS = ([15, 10, 5], [15, 10], [15])
WAYS = ("positions", "ids", "typed", "trees", "four types", "pyg")


def plain(graph: Graph) -> Way:
    """`sample_neighbours`."""

    def run(seeds: NDArray[np.int64], number: int, fan_outs: list[int], threads: int) -> int:
        sample = sample_neighbours(graph, seeds, fan_outs, seed=number, num_threads=threads)
        return len(sample.edge_ids)

    return run


def typed(graph: Graph, **options: Any) -> Way:
    """`HeteroSampler` with one node type and one edge type."""
    loop = ("node", "to", "node")
    sampler = HeteroSampler({loop: Relation(graph)}, {"node": graph.num_nodes})

    def run(seeds: NDArray[np.int64], number: int, fan_outs: list[int], threads: int) -> int:
        found = sampler.sample({"node": seeds}, fan_outs, seed=number, num_threads=threads, **options)
        return len(found.edge_ids[loop])

    return run


def four_types(graph: Graph) -> Way:
    """Even nodes are of one type, odd ones of another; a quarter of the edges has each edge type."""
    ends = graph.indices.astype(np.int64), np.repeat(np.arange(graph.num_nodes), graph.in_degrees)
    counts = {"even": (graph.num_nodes + 1) // 2, "odd": graph.num_nodes // 2}
    relations = {}
    for source, source_type in enumerate(counts):
        for target, target_type in enumerate(counts):
            kept = (ends[0] % 2 == source) & (ends[1] % 2 == target)
            edges = np.stack([ends[0][kept] // 2, ends[1][kept] // 2])
            shuffled = edges[:, np.random.default_rng(0).permutation(edges.shape[1])]
            size = counts[source_type], counts[target_type]
            relations[source_type, "to", target_type] = Relation(Graph.from_edge_index(shuffled, size))
    sampler = HeteroSampler(relations, counts)

    def run(seeds: NDArray[np.int64], number: int, fan_outs: list[int], threads: int) -> int:
        by_type = {"even": seeds[seeds % 2 == 0] // 2, "odd": seeds[seeds % 2 == 1] // 2}
        found = sampler.sample(by_type, fan_outs, seed=number, num_threads=threads)
        return sum(map(len, found.edge_ids.values()))

    return run


def layer(graph: Graph) -> Way:
    """PyTorch Geometric's interface."""
    import torch
    from torch_geometric.data import Data
    from torch_geometric.sampler import NodeSamplerInput

    from sage_attention.pyg import NeighborSampler

    edges = np.empty((2, graph.num_edges), np.int64)
    order = slice(None) if graph.edge_ids is None else graph.edge_ids
    edges[0, order], edges[1, order] = graph.indices, np.repeat(np.arange(graph.num_nodes), graph.in_degrees)
    sampler = NeighborSampler(Data(edge_index=torch.from_numpy(edges), num_nodes=graph.num_nodes), [1])

    def run(seeds: NDArray[np.int64], number: int, fan_outs: list[int], threads: int) -> int:
        sampler.num_neighbors, sampler.num_threads, sampler.seed = fan_outs, threads, number
        return len(sampler.sample_from_nodes(NodeSamplerInput(None, torch.from_numpy(seeds))).edge)

    return run


def ways_of(graph: Graph, chosen: list[str]) -> dict[str, Way]:
    """The ways to sample the same graph."""
    makers: dict[str, Callable[[], Way]] = {
        "positions": lambda: plain(Graph.from_trusted(graph.indptr, graph.indices, graph.num_sources)),
        "ids": lambda: plain(graph),
        "typed": lambda: typed(graph),
        "trees": lambda: typed(graph, disjoint=True),
        "four types": lambda: four_types(graph),
        "pyg": lambda: layer(graph),
    }
    if "pyg" in chosen and importlib.util.find_spec("torch_geometric") is None:
        print("pyg: left out, there is no torch_geometric")
        chosen = [name for name in chosen if name != "pyg"]
    return {name: makers[name]() for name in chosen}


def measure(
    ways: dict[str, Way], num_nodes: int, fan_outs: list[int], threads: list[int], rounds: int
) -> dict[tuple[str, int], NDArray[np.float64]]:
    """(way, threads) -> [rounds, 2]: ns per edge, by the clock and of all threads' processor time."""
    rng = np.random.default_rng(0)
    taken: dict[tuple[str, int], list[tuple[float, float]]] = {(name, n): [] for name in ways for n in threads}
    for number in range(rounds + 3):  # the first three warm the caches and the pool up
        for (name, count), figures in taken.items():
            seeds = rng.choice(num_nodes, 1024, replace=False)
            used, start = time.process_time(), time.perf_counter()
            edges = ways[name](seeds, number, fan_outs, count)
            figures.append(((time.perf_counter() - start) / edges * 1e9, (time.process_time() - used) / edges * 1e9))
    return {key: np.array(figures[3:]) for key, figures in taken.items()}


def main() -> None:
    """Prints one line per graph, fan-outs, way and number of threads."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", nargs="+", choices=list(GRAPHS), default=["G1", "G2"])
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    arguments = parser.parse_args()
    print(f"{platform.machine()}, {platform.system()}, Python {platform.python_version()}; ns per edge")
    for name in arguments.graphs:
        graph = named(name)
        ways = ways_of(graph, arguments.ways)
        for fan_outs in FAN_OUTS:
            figures = measure(ways, graph.num_nodes, fan_outs, arguments.threads, arguments.rounds)
            for (way, threads), found in figures.items():
                one = figures[way, arguments.threads[0]]
                print(
                    f"{name} {fan_outs!s:12} {way:10} threads {threads}: median {np.median(found[:, 0]):5.1f}  "
                    f"least {found[:, 0].min():5.1f}  processor {np.median(found[:, 1]):5.1f}  "
                    f"times faster than with {arguments.threads[0]}: median "
                    f"{np.median(one[:, 0]) / np.median(found[:, 0]):.2f}, "
                    f"of the least {one[:, 0].min() / found[:, 0].min():.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
