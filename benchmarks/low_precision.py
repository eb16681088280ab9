"""Attention without gradients over tables in fewer bytes: float16, bfloat16 and int8 beside float32.

  python benchmarks/low_precision.py                    half of G3 with its degrees, 1 thread, about 10 minutes
  python benchmarks/low_precision.py --nodes 170000 --edges 1200000 --threads 1 2
  python benchmarks/low_precision.py --operations gat aggregate --heads 8 --channels 32

The graph is Chung-Lu (see graphs.py) in CSC, random features, the table far larger than the caches; 2.5 to 3 GB of
memory, "dot" 6: it reads keys and values, two tables, both quantized alike. Precisions are timed in turn, round by
round; outputs are compared with those of float32 before. Times are medians by the wall clock; "times faster" is the
median of the rounds' ratios, on one thread also by the time that thread computed or waited for memory, without what
other processes took from it. Errors are the largest and the mean difference of an output number, relative to the
largest and to the mean magnitude of the outputs. "others" is the part of all cores that other processes used meanwhile.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Callable

import numpy as np

from common import Timing, alternate, machine, options, report, table
from graphs import chung_lu
from sage_attention import (
    Graph,
    QuantizedTable,
    aggregate,
    dot_attention,
    gat_attention,
    gatv2_attention,
    quantize,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Values = Floats | QuantizedTable

PRECISIONS = ("float32", "float16", "bfloat16", "int8")
OPERATIONS = ("aggregate", "gat", "gatv2", "dot")
WIDEST_ERROR = {"float16": 2e-3, "bfloat16": 2e-2, "int8": 3e-2}


def normal(shape: tuple[int, ...], seed: int) -> Floats:
    """Random float32 numbers of mean 0 and variance 1."""
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def tables(values: Floats) -> dict[str, Values]:
    """The table in each precision."""
    return {name: values if name == "float32" else quantize(values, name) for name in PRECISIONS}


def steps(operation: str, graph: Graph, values: Floats, threads: int) -> dict[str, Callable[[], Floats]]:
    """What computes the output, by precision."""
    num_nodes, heads, channels = values.shape
    few = {"num_threads": threads}
    if operation == "aggregate":
        flat = tables(values.reshape(num_nodes, heads * channels))
        return {name: functools.partial(aggregate, graph, rows, **few) for name, rows in flat.items()}
    kept = tables(values)
    if operation == "gat":
        logits = normal((num_nodes, heads), 1)
        return {n: functools.partial(gat_attention, graph, rows, logits, logits, **few) for n, rows in kept.items()}
    if operation == "gatv2":
        attention = normal((heads, channels), 2) * np.float32(channels**-0.5)
        return {
            n: functools.partial(gatv2_attention, graph, rows, values, attention, **few) for n, rows in kept.items()
        }
    keys = tables(normal(values.shape, 3))
    return {n: functools.partial(dot_attention, graph, values, keys[n], rows, **few) for n, rows in kept.items()}


def errors(operation: str, contenders: dict[str, Callable[[], Floats]]) -> dict[str, tuple[float, float]]:
    """Largest and mean relative difference from float32, by precision; ends the program if one is too large."""
    wanted = contenders["float32"]()
    largest, mean = float(np.abs(wanted).max()), float(np.abs(wanted).mean())
    found = {}
    for name in PRECISIONS[1:]:
        difference = contenders[name]()
        difference -= wanted
        np.abs(difference, out=difference)
        found[name] = (float(difference.max()) / largest, float(difference.mean()) / mean)
        if not found[name][0] <= WIDEST_ERROR[name]:
            raise SystemExit(f"{operation} {name}: error {found[name][0]:.3g}, expected at most {WIDEST_ERROR[name]}")
    return found


def main() -> None:
    """Prints one table per operation."""
    parser = options(__doc__ or "")
    parser.set_defaults(threads=[1], rounds=5)
    parser.add_argument("--nodes", type=int, default=1_225_000)
    parser.add_argument("--edges", type=int, default=62_000_000)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--channels", type=int, default=16, help="per head")
    parser.add_argument("--operations", nargs="+", choices=OPERATIONS, default=list(OPERATIONS))
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.nodes, arguments.edges, arguments.threads, arguments.rounds = 20_000, 200_000, [1], 2
    for line in machine().lines():
        print(line)
    graph = chung_lu(arguments.nodes, arguments.edges, 0)
    graph = Graph(graph.indptr, graph.indices)  # no edge ids: they are not read
    values = normal((arguments.nodes, arguments.heads, arguments.channels), 0)
    print(f"{graph.num_nodes} nodes, {graph.num_edges} edges; float32 table of {values.nbytes / 2**20:.0f} MiB")
    figures: dict[str, Any] = {"nodes": graph.num_nodes, "edges": graph.num_edges, "results": {}}
    figures["heads"], figures["channels"] = arguments.heads, arguments.channels
    for operation in arguments.operations:
        for threads in arguments.threads:
            contenders = steps(operation, graph, values, threads)
            found = errors(operation, contenders)
            timings = alternate(contenders, arguments.rounds, warm_up=1)
            show(operation, threads, graph.num_edges, timings, found)
            figures["results"][f"{operation}, {threads} threads"] = {
                name: {
                    **timing.summary(),
                    "times_faster": median_ratio(timings["float32"].wall, timing.wall),
                    "times_faster_by_cpu": median_ratio(timings["float32"].cpu, timing.cpu),
                    "errors": found.get(name),
                }
                for name, timing in timings.items()
            }
    report(arguments.json, figures)


def show(
    operation: str, threads: int, edges: int, timings: dict[str, Timing], found: dict[str, tuple[float, float]]
) -> None:
    """Prints how long each precision took, and how many times faster than float32 it was."""
    base = timings["float32"]
    rows = []
    for name, timing in timings.items():
        largest, mean = found.get(name, (0.0, 0.0))
        cells = [f"{timing.median / edges * 1e9:.1f}", f"{timing.median_cpu / edges * 1e9:.1f}" if threads == 1 else ""]
        cells += [
            f"{median_ratio(base.wall, timing.wall):.2f}",
            f"{median_ratio(base.cpu, timing.cpu):.2f}" if threads == 1 else "",
            f"{base.least / timing.least:.2f}",
            f"{largest:.1e}",
            f"{mean:.1e}",
        ]
        rows.append([name, *cells, f"{timing.others_share:.0%}"])
    columns = ["", "ns per edge", "of CPU", "times faster", "by CPU", "by the least", "largest error", "mean", "others"]
    table(f"{operation}, {threads} threads", columns, rows)


def median_ratio(base: list[float], mine: list[float]) -> float:
    """Of the rounds: each compares what ran one after the other."""
    return float(np.median([theirs / ours for theirs, ours in zip(base, mine)]))


if __name__ == "__main__":
    main()
