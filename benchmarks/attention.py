"""Attention over all edges of a graph: ours against PyTorch Geometric, eager and under torch.compile.

  python benchmarks/attention.py                      all layers on G1, 1 and 2 threads, about 25 minutes
  python benchmarks/attention.py --graph G2           forward only; what does not fit in memory is left out
  python benchmarks/attention.py --layers gat --passes train --parts layer

Layers have 128 inputs and 8 heads x 16 channels, float32, random weights, no self loops of their own. "layer"
is the whole layer, projections and bias included; "attention" starts from projected values, for GAT also from
the logits. "forward" runs without gradients; "train" is forward, sum, backward to the parameters or, for
"attention", to what it starts from. Outputs and gradients are compared before anything is timed. The time
torch.compile takes is shown apart and never counted. "gather" adds up the same rows with `aggregate`: reading
them costs that much. "others" is the part of all cores that other processes used meanwhile.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import sys
import time
from dataclasses import dataclass
from typing import Any, Callable

import psutil
import torch
from torch import Tensor

from common import (
    Timing,
    alternate,
    in_fresh_process,
    machine,
    options,
    peak_memory,
    relative_error,
    report,
    table,
    use_threads,
)
from graphs import GRAPHS, chung_lu, named
from sage_attention import Graph
from sage_attention.attention import aggregate
from sage_attention.bench.contenders import KINDS, OursAttention, PygAttention, compiled, pair, projected, train_step
from sage_attention.torch import csc

IN_CHANNELS, HEADS, CHANNELS = 128, 8, 16
NAMES = ("ours", "PyG compiled", "PyG eager")
OUTPUT_TOLERANCE = 1e-4  # of the largest value
GRADIENT_TOLERANCE = 1e-3  # sums over all nodes, in other orders
# Arrays of edges x heads x channels alive at once at the worst, for judging what will fit.
_ARRAYS = {
    "PyG eager": {"gat": 2.0, "gatv2": 4.0, "dot": 3.0},
    "PyG compiled": {"gat": 1.3, "gatv2": 2.5, "dot": 2.5},
}


@dataclass
class Contender:
    """One way to compute the same.

    Attributes:
        step: Computes once, gives the output.
        leaves: What gets gradients, by name.
        compile_seconds: Of the first call, where it compiles.
    """

    step: Callable[[], Tensor]
    leaves: dict[str, Tensor]
    compile_seconds: float | None = None


@dataclass(frozen=True)
class Problem:
    """A graph with features, in the forms the contenders take."""

    name: str
    graph: Graph
    edge_index: Tensor
    x: Tensor

    @staticmethod
    def make(name: str, order: str, nodes: int = 0, edges: int = 0) -> Problem:
        """One of `GRAPHS`, or a graph of the size given.

        Args:
            name: Of the graph.
            order: Of the edges: by "target" or "source", or "random".
            nodes: 0 for the size of the named graph.
            edges: As nodes.
        """
        drawn = chung_lu(nodes, edges, 0) if nodes else named(name)
        edge_index = torch.from_numpy(drawn.to_edge_index())
        if order != "random":
            key = edge_index[1] if order == "target" else edge_index[0]
            edge_index = edge_index[:, key.argsort(stable=True)].contiguous()
        graph = Graph.from_edge_index(edge_index.numpy(), num_nodes=drawn.num_nodes)
        torch.manual_seed(0)
        return Problem(name, graph, edge_index, torch.randn(drawn.num_nodes, IN_CHANNELS))


def contender(name: str, kind: str, part: str, mode: str, problem: Problem) -> Contender:
    """One of `NAMES` with the weights all of them share."""
    torch.manual_seed(1)
    theirs, ours = pair(kind, IN_CHANNELS, CHANNELS, HEADS)
    mine = name == "ours"
    layer = ours if mine else theirs
    edges: Any = problem.edge_index
    inputs: tuple[Tensor, ...] = (problem.x,)
    module: Any = layer
    if part == "attention":
        inputs = projected(kind, layer, problem.x)
        module = (OursAttention if mine else PygAttention)(kind, layer)
        if mine:
            size = problem.graph.num_nodes
            edges = csc(edges, size, size, by_source=mode == "train")
    if name == "PyG compiled":
        module = compiled(module)
    called = (lambda: module(edges, *inputs)) if part == "attention" else (lambda: module(*inputs, edges))
    leaves = {re.sub(r"^(_orig_mod\.)?(layer\.)?", "", key): p for key, p in module.named_parameters()}
    if part == "attention":
        leaves = {"att": leaves["att"]} if kind == "gatv2" else {}
        leaves.update({f"input {number}": tensor for number, tensor in enumerate(inputs)})
    if mode == "forward":
        return Contender(_without_gradients(called), {})
    return Contender(train_step(called, list(leaves.values())), leaves)


def _without_gradients(run: Callable[[], Tensor]) -> Callable[[], Tensor]:
    def step() -> Tensor:
        with torch.no_grad():
            return run()

    return step


def why_not(name: str, kind: str, problem: Problem) -> str:
    """Why a contender is left out for want of memory, or nothing."""
    arrays = _ARRAYS.get(name, {}).get(kind, 0)
    needed = arrays * problem.graph.num_edges * HEADS * CHANNELS * 4 + problem.x.nbytes * 4
    free = psutil.virtual_memory().available
    if needed * 1.15 < free:
        return ""
    return f"needs about {needed / 2**30:.0f} GiB, {free / 2**30:.0f} are free"


def checked(contenders: dict[str, Contender], kind: str) -> None:
    """Runs each once, which compiles, and stops where results differ from the first's.

    Raises:
        SystemExit: They do.
    """
    wanted: Tensor | None = None
    gradients: dict[str, Tensor] = {}
    for name, one in contenders.items():
        start = time.perf_counter()
        out = one.step().detach()
        if name == "PyG compiled":
            one.compile_seconds = time.perf_counter() - start
        got = {key: leaf.grad for key, leaf in one.leaves.items() if leaf.grad is not None}
        if wanted is None:
            wanted, gradients = out, got
            continue
        error = relative_error(out, wanted)
        if not error <= OUTPUT_TOLERANCE:
            raise SystemExit(f"{kind}, {name}: outputs differ by {error:.1e} of the largest")
        floor = max((float(g.abs().max()) for g in gradients.values()), default=0.0) * 1e-3
        for key, gradient in gradients.items():
            error = relative_error(got[key], gradient, floor)
            if not error <= GRADIENT_TOLERANCE:
                raise SystemExit(f"{kind}, {name}: gradients of {key} differ by {error:.1e} of the largest")


def gather_times(problem: Problem, threads: int, rounds: int) -> dict[str, Timing]:
    """Adding up the neighbours' rows, from PyTorch's memory and from NumPy's, which asks for huge pages."""
    rows = problem.x.numpy()
    other = rows.copy()
    return alternate(
        {
            "gather": lambda: aggregate(problem.graph, rows, num_threads=threads),
            "gather, NumPy's memory": lambda: aggregate(problem.graph, other, num_threads=threads),
        },
        rounds,
    )


def row_of(
    labels: list[str], timing: Timing, edges: int, ours: float | None = None, one: Contender | None = None
) -> list[str]:
    """A row of the table of times."""
    seconds = None if one is None else one.compile_seconds
    return [
        *labels,
        f"{timing.median * 1e3:.0f}",
        f"{timing.least * 1e3:.0f}",
        f"{timing.median_cpu * 1e3:.0f}" if labels[3] == "1" else "",
        f"{timing.median / edges * 1e9:.0f}",
        "" if ours is None else f"{timing.median / ours:.2f}",
        "" if seconds is None else f"{seconds:.0f}",
        f"{timing.others_share:.0%}",
    ]


COLUMNS = ["layer", "part", "pass", "threads", "contender"]
COLUMNS += ["ms", "least", "CPU ms", "ns/edge", "x ours", "compile s", "others"]


def time_all(problem: Problem, chosen: argparse.Namespace) -> list[dict[str, Any]]:
    """Measures and prints one table per number of threads."""
    figures: list[dict[str, Any]] = []
    edges = problem.graph.num_edges
    for threads in chosen.threads:
        use_threads(threads)
        rows = []
        for name, timing in gather_times(problem, threads, chosen.rounds).items():
            rate = edges * IN_CHANNELS * 4 / timing.median / 1e9
            rows.append(row_of(["", f"{rate:.1f} GB/s", "", str(threads), name], timing, edges))
            figures.append({"contender": name, "threads": threads, "gb_per_s": rate, **timing.summary()})
        for kind, part, mode in itertools.product(chosen.layers, chosen.parts, chosen.passes):
            torch.compiler.reset()
            contenders = {}
            for name in chosen.contenders:
                reason = why_not(name, kind, problem)
                if reason:
                    print(f"left out: {name}, {kind}, {part}, {mode}: {reason}")
                else:
                    contenders[name] = contender(name, kind, part, mode, problem)
            print(f"{kind}, {part}, {mode}, {threads} threads", file=sys.stderr, flush=True)
            checked(contenders, kind)
            timings = alternate({name: one.step for name, one in contenders.items()}, chosen.rounds, 0)
            ours = timings["ours"].median
            for name, timing in timings.items():
                labels = [kind, part, mode, str(threads), name]
                rows.append(row_of(labels, timing, edges, ours, contenders[name]))
                figures.append(
                    {
                        **dict(zip(("layer", "part", "pass"), labels)),
                        "threads": threads,
                        "contender": name,
                        "compile_s": contenders[name].compile_seconds,
                        **timing.summary(),
                        "times_ours_median": timing.median / ours,
                        "times_ours_least": timing.least / timings["ours"].least,
                    }
                )
        table(f"{problem.name}, {edges} edges, {threads} threads, edges by {chosen.order}", COLUMNS, rows)
    return figures


def measure_peak(problem: Problem, kind: str, mode: str, name: str) -> None:
    """Prints the peak of one step of a whole layer as JSON; for a fresh process.

    Nobody warms up but what is compiled, so that ours includes grouping the edges and keeping the groups.
    """
    one = contender(name, kind, "layer", mode, problem)
    if name == "PyG compiled":
        one.step()
        for leaf in one.leaves.values():
            leaf.grad = None
    print(json.dumps({"peak": peak_memory(one.step)}))


def peaks(problem: Problem, chosen: argparse.Namespace) -> list[dict[str, Any]]:
    """Peak memory of every layer, pass and contender, each in a process of its own."""
    figures, rows = [], []
    for kind, mode in itertools.product(chosen.layers, chosen.passes):
        ours = None
        for name in chosen.contenders:
            reason = why_not(name, kind, problem)
            arguments = ["--peak", kind, mode, name, "--graph", problem.name, "--order", chosen.order]
            arguments += ["--quick"] if chosen.quick else []
            arguments += ["--threads", str(max(chosen.threads))]
            got = {"failed": reason} if reason else in_fresh_process(__file__, arguments)
            figures.append({"layer": kind, "pass": mode, "contender": name, **got})
            if "peak" not in got:
                rows.append([kind, mode, name, got["failed"], ""])
                continue
            ours = got["peak"] if name == "ours" else ours
            ratio = f"{got['peak'] / ours:.1f}" if ours else ""
            rows.append([kind, mode, name, f"{got['peak'] / 2**20:.0f}", ratio])
    table("Peak memory of a step of the whole layer", ["layer", "pass", "contender", "MiB", "x ours"], rows)
    return figures


def main() -> None:
    """Measures what was asked for."""
    parser = options(__doc__ or "")
    parser.add_argument("--graph", choices=list(GRAPHS), default="G1")
    parser.add_argument("--order", choices=["target", "source", "random"], default="target")
    parser.add_argument("--layers", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--parts", nargs="+", choices=["layer", "attention"], default=["layer", "attention"])
    parser.add_argument("--passes", nargs="+", choices=["forward", "train"], default=None)
    parser.add_argument("--no-eager", action="store_true", help="leave PyG eager out")
    parser.add_argument("--no-memory", action="store_true", help="do not measure peak memory")
    parser.add_argument("--memory-only", action="store_true", help="measure nothing else")
    parser.add_argument("--peak", nargs=3, metavar=("LAYER", "PASS", "NAME"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.rounds, chosen.threads = 2, [1]
    sizes = (2_000, 20_000) if chosen.quick else (0, 0)
    problem = Problem.make(chosen.graph, chosen.order, *sizes)
    if chosen.peak:
        use_threads(chosen.threads[-1])
        kind, mode, name = chosen.peak
        measure_peak(problem, kind, mode, name)
        return
    chosen.passes = chosen.passes or (["forward", "train"] if chosen.graph == "G1" else ["forward"])
    chosen.contenders = [
        name
        for name in NAMES
        if not (name == "PyG compiled" and (chosen.no_compile or chosen.quick))
        and not (name == "PyG eager" and chosen.no_eager)
    ]
    print("\n".join(machine().lines()))
    figures: dict[str, Any] = {"graph": chosen.graph, "order": chosen.order}
    if not chosen.memory_only:
        figures["times"] = time_all(problem, chosen)
    if not chosen.no_memory:
        if chosen.quick:
            chosen.layers = chosen.layers[:1]
        figures["memory"] = peaks(problem, chosen)
    report(chosen.json, figures)


if __name__ == "__main__":
    main()
