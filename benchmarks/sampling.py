"""Nanoseconds per sampled edge: ``python benchmarks/sampling.py [--graphs G1 G2] [--rounds 50]``.

Sources, relabelling and edge positions included; edge ids of the caller's order too with ``--edge-ids``.
"""

from __future__ import annotations

import argparse
import platform
import time

import numpy as np

from graphs import GRAPHS, named
from sage_attention import Graph, sample_neighbours

FAN_OUTS = ([15, 10, 5], [15, 10], [15])


def measure(
    graph: Graph, fan_outs: list[int], num_threads: int, rounds: int, edge_ids: bool
) -> tuple[float, float, int]:
    """Median and least ns per edge over `rounds` batches of 1024 seeds, and the edges of the last batch."""
    rng = np.random.default_rng(0)
    times = []
    edges = 0
    for number in range(rounds + 3):  # the first three warm the caches and the pool up
        seeds = rng.choice(graph.num_nodes, 1024, replace=False)
        start = time.perf_counter()
        sample = sample_neighbours(graph, seeds, fan_outs, seed=number, num_threads=num_threads)
        if edge_ids:
            sample.edge_ids  # noqa: B018  computed on first use
        times.append((time.perf_counter() - start) / sample.num_edges * 1e9)
        edges = sample.num_edges
    kept = times[3:]
    return float(np.median(kept)), min(kept), edges


def main() -> None:
    """Prints one line per graph, fan-outs and number of threads."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", nargs="+", choices=list(GRAPHS), default=["G1", "G2"])
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--edge-ids", action="store_true")
    arguments = parser.parse_args()
    print(f"{platform.machine()}, {platform.system()}, Python {platform.python_version()}")
    for name in arguments.graphs:
        graph = named(name)
        if not arguments.edge_ids:
            graph = Graph(graph.indptr, graph.indices)
        for fan_outs in FAN_OUTS:
            for threads in arguments.threads:
                median, least, edges = measure(graph, fan_outs, threads, arguments.rounds, arguments.edge_ids)
                print(
                    f"{name} {fan_outs!s:12} threads {threads}: "
                    f"median {median:5.1f}  least {least:5.1f} ns/edge ({edges} edges)"
                )


if __name__ == "__main__":
    main()
