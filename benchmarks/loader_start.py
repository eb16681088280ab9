"""How long a loader takes to its first batch: in this process, and with workers that are forked or spawned.

  python benchmarks/loader_start.py                  1,000,000 nodes, 10 million edges, about 5 minutes
  python benchmarks/loader_start.py --batches 100    also how long until the 100th

Batches of 1024 seeds, fan-outs [15, 10], 32 features. A round begins an epoch of each contender in turn, takes the
first batches, and lets go of it. "in process" makes batches by a thread of this process; "spawn" does so until the
workers are there; "spawn, workers alone" is ours with prefetch=0, where this process makes none; "spawn, PyG's loader"
is PyTorch Geometric's with our sampler. Batches of ours are the same whatever makes them, which is checked first. The
loaders are made before, once.

Epochs are let go of while workers send. Some of these then abort, and torch prints that it ignored an error: so do
those of PyTorch Geometric's loader alone, and the run goes on.
"""

from __future__ import annotations

import statistics
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch_geometric.loader
from torch_geometric.data import Data

from common import machine, options, report, table
from sage_attention.pyg import NeighborLoader, NeighborSampler

if TYPE_CHECKING:
    import argparse

FAN_OUTS, BATCH_SIZE, FEATURES, WORKERS = [15, 10], 1024, 32, 2


def made(num_nodes: int, num_edges: int) -> Data:
    """A random graph with features."""
    rng = np.random.default_rng(0)
    return Data(
        x=torch.from_numpy(rng.standard_normal((num_nodes, FEATURES), dtype=np.float32)),
        edge_index=torch.from_numpy(rng.integers(0, num_nodes, (2, num_edges))),
    )


def contenders(data: Data) -> dict[str, Any]:
    """Name -> loader."""
    common = {"batch_size": BATCH_SIZE, "shuffle": True}
    spawn = {"num_workers": WORKERS, "multiprocessing_context": "spawn"}
    loaders = {
        "in process": NeighborLoader(data, FAN_OUTS, seed=1, **common),
        "spawn": NeighborLoader(data, FAN_OUTS, seed=1, **common, **spawn),
        "spawn, workers alone": NeighborLoader(data, FAN_OUTS, seed=1, prefetch=0, **common, **spawn),
        "spawn, PyG's loader": torch_geometric.loader.NeighborLoader(
            data, FAN_OUTS, neighbor_sampler=NeighborSampler(data, FAN_OUTS, seed=1), **common, **spawn
        ),
    }
    if sys.platform != "win32":
        fork = {"num_workers": WORKERS, "multiprocessing_context": "fork"}
        loaders["fork"] = NeighborLoader(data, FAN_OUTS, seed=1, **common, **fork)
    return loaders


def first_ids(loader: Any) -> list[int]:
    """What the first batch of epoch 0 is known by."""
    if hasattr(loader, "set_epoch"):
        loader.set_epoch(0)
    return [int(number) for number in next(iter(loader)).n_id]


def timed(loader: Any, count: int) -> tuple[float, float]:
    """Seconds to the first batch and to the last of so many."""
    start = time.perf_counter()
    batches = iter(loader)
    next(batches)
    first = time.perf_counter() - start
    for _ in range(count - 1):
        next(batches)
    return first, time.perf_counter() - start


def settle() -> None:
    """Waits until no workers start any more: they would slow the next contender down."""
    for thread in threading.enumerate():
        if thread.name == "sage-attention-start":
            thread.join()


def main(arguments: argparse.Namespace) -> None:
    """Times, prints, reports."""
    num_nodes, num_edges = (20_000, 100_000) if arguments.quick else (arguments.nodes, arguments.edges)
    rounds = 1 if arguments.quick else arguments.rounds
    loaders = contenders(made(num_nodes, num_edges))
    expected = first_ids(loaders["in process"])
    for name, loader in loaders.items():
        if name != "spawn, PyG's loader" and first_ids(loader) != expected:
            raise SystemExit(f"{name}: another first batch than in process")
        settle()
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in loaders}
    for _ in range(rounds):
        for name, loader in loaders.items():
            seconds[name].append(timed(loader, arguments.batches))
            settle()
    rows, figures = [], {}
    for name, pairs in seconds.items():
        first, last = ([pair[which] * 1e3 for pair in pairs] for which in (0, 1))
        figures[name] = {"first_ms": first, "last_ms": last}
        cells = [f"{statistics.median(first):.0f}", f"{min(first):.0f}", f"{statistics.median(last):.0f}"]
        rows.append([name, *cells])
    title = f"{num_nodes:,} nodes, {num_edges:,} edges, {WORKERS} workers: milliseconds, median of {rounds}"
    table(title, ["loader", "first batch", "least", f"batch {arguments.batches}"], rows)
    report(arguments.json, {"machine": machine().__dict__, "rounds": rounds, "figures": figures})


if __name__ == "__main__":
    parser = options(__doc__ or "")
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--edges", type=int, default=10_000_000)
    parser.add_argument("--batches", type=int, default=40, help="also time to the batch of this number")
    main(parser.parse_args())
