"""What other numbers for the nodes are worth: attention over a whole graph, in each of `Graph.reorder`'s orders.

  python benchmarks/reordering.py                     G1 and G2, 1 and 2 threads
  python benchmarks/reordering.py --graphs G1 --orders hubs

The orders are timed in turn, on the same features; the generator gives its nodes random numbers, "shuffled". Forward
and backward pass of GAT, 8 heads x 16 channels, float32. "once" is what reordering itself takes, features included.
"""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from common import alternate, machine, options, report, table
from graphs import GRAPHS, named
from sage_attention.attention import AttentionInputs, attention_backward, attention_forward

if TYPE_CHECKING:
    from sage_attention import Graph

HEADS, CHANNELS = 8, 16


def made(graph: Graph, values: Any, logits: Any, by: str) -> AttentionInputs:
    """The attention problem with its nodes in an order."""
    if by != "shuffled":
        graph, order, _ = graph.reorder(by)
        values, logits = values[order], logits[order]
    return AttentionInputs("gat", graph, values, source_logits=logits, target_logits=logits)


def main() -> None:
    """Prints one table per graph and number of threads."""
    parser = options(__doc__ or "")
    parser.set_defaults(threads=[1, 2], rounds=9)
    parser.add_argument("--graphs", nargs="+", choices=list(GRAPHS), default=["G1", "G2"])
    parser.add_argument("--orders", nargs="+", choices=["hubs", "locality"], default=["hubs", "locality"])
    arguments = parser.parse_args()
    for line in machine().lines():
        print(line)
    figures: dict[str, Any] = {}
    for name in arguments.graphs:
        graph = named(name)
        rng = np.random.default_rng(0)
        values = rng.standard_normal((graph.num_nodes, HEADS, CHANNELS), dtype=np.float32)
        logits = rng.standard_normal((graph.num_nodes, HEADS), dtype=np.float32)
        problems, once = {}, {}
        for by in ("shuffled", *arguments.orders):
            start = time.perf_counter()
            problems[by] = made(graph, values, logits, by)
            once[by] = time.perf_counter() - start
        for threads in arguments.threads:
            steps: dict[str, Any] = {}
            for by, inputs in problems.items():
                outputs = attention_forward(inputs, for_backward=True, num_threads=threads)
                steps[f"{by}, forward"] = functools.partial(attention_forward, inputs, num_threads=threads)
                steps[f"{by}, backward"] = functools.partial(
                    attention_backward, inputs, outputs, values, num_threads=threads
                )
            timings = alternate(steps, 2 if arguments.quick else arguments.rounds)
            rows = []
            for step, timing in timings.items():
                base = timings[step.replace(step.partition(",")[0], "shuffled", 1)]
                ratio = float(np.median([one / other for one, other in zip(base.wall, timing.wall)]))
                cells = [f"{timing.median * 1e3:.0f}", f"{timing.least * 1e3:.0f}", f"{ratio:.2f}"]
                rows.append([step, *cells, f"{once[step.partition(',')[0]] * 1e3:.0f}", f"{timing.others_share:.0%}"])
                figures[f"{name}, {threads} threads, {step}"] = {**timing.summary(), "times_faster": ratio}
            table(f"{name}, {threads} threads", ["", "ms", "least", "times faster", "once", "others"], rows)
    report(arguments.json, figures)


if __name__ == "__main__":
    main()
