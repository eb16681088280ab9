"""Sampled mini-batches through two layers: ours against PyTorch Geometric, eager and under torch.compile.

  python benchmarks/minibatch.py                     G1 and G2, GAT, 1 and 2 threads, about 10 minutes
  python benchmarks/minibatch.py --graphs G2 --layers gat gatv2 dot

1024 seeds, fan-outs [15, 10], 128 features, a layer of 8 heads x 16 channels, ELU, a layer of one head x 41
classes. "inference" runs without gradients, "train" is forward, cross entropy, backward. All contenders work on
the same samples, drawn by our sampler, and start from a sample and the table of all features: PyG's layers need
them gathered, which is part of their time; "ours" reads the rows where they lie, "ours, gathered" does not. The
sampling is timed apart, and so is the gathering once more, and the sampling by pyg-lib where it is installed. PyG
gets its `edge_index` ready made; ours makes its blocks inside of the time. "PyG trimmed" is what NeighborLoader's
users write (`trim_to_layer`), "PyG bipartite" the better-informed way, from sources to targets. Each contender is
timed on every batch, in turn.
"""

from __future__ import annotations

import copy
import itertools
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch_geometric.utils import trim_to_layer

from common import Timing, alternate, machine, options, relative_error, report, table, use_threads
from graphs import GRAPHS, chung_lu, named
from sage_attention import Graph, sample_neighbours
from sage_attention.bench.contenders import KINDS, pair
from sage_attention.torch import Rows

if TYPE_CHECKING:
    import argparse

    from sage_attention.subgraph import SampledSubgraph

FAN_OUTS = [15, 10]
SEEDS, FEATURES, HEADS, CHANNELS, CLASSES = 1024, 128, 8, 16, 41
TOLERANCE = 1e-4
WARM_UP = 4  # batches that compile or warm up and are not counted
COLUMNS = ["layer", "pass", "threads", "contender", "ms", "least", "CPU ms", "x ours", "compile s", "graphs", "others"]


@dataclass(frozen=True)
class Batch:
    """One sample, as each contender takes it."""

    sample: SampledSubgraph
    features: Tensor  # of all nodes
    nodes: Tensor
    edge_index: Tensor
    labels: Tensor


class Model(torch.nn.Module):
    """Two layers with ELU between them, over blocks from sources to targets or trimmed square graphs."""

    def __init__(self, first: torch.nn.Module, second: torch.nn.Module) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([first, second])

    def blocks(self, batch: Batch, x: Tensor | Rows) -> Tensor:
        """[seeds, classes] by our layers, over the sample's own blocks."""
        for number, layer in enumerate(self.layers):
            block = batch.sample.layer(number)
            x = x if number == 0 else functional.elu(x)
            x = layer((x, x[: block.num_targets]), block)
        return x

    def forward(self, x: Tensor, edge_index: Tensor, nodes: list[int], edges: list[int], way: str) -> Tensor:
        """[seeds, classes] by PyTorch Geometric's layers, in a "trimmed" or "bipartite" way."""
        for number, layer in enumerate(self.layers):
            x = x if number == 0 else functional.elu(x)
            if way == "trimmed":
                x, edge_index, _ = trim_to_layer(number, nodes, edges, x, edge_index)
                x = layer(x, edge_index)
                continue
            kept = len(edges) - number
            targets = sum(nodes[:kept])
            x = layer((x[: targets + nodes[kept]], x[:targets]), edge_index[:, : sum(edges[:kept])])
        return x[: nodes[0]]


def models(kind: str) -> tuple[Model, Model]:
    """PyTorch Geometric's and ours, with the same weights."""
    torch.manual_seed(1)
    first, second = pair(kind, FEATURES, CHANNELS, HEADS), pair(kind, HEADS * CHANNELS, CLASSES, 1)
    return Model(first[0], second[0]), Model(first[1], second[1])


def draw(graph: Graph, features: Tensor, number: int, threads: int, timings: dict[str, Timing]) -> Batch:
    """The batch with this number; sampling and gathering are timed."""
    seeds = np.random.default_rng(number).choice(graph.num_nodes, SEEDS, replace=False)
    sample = timings["sampling, ours"].timed(
        lambda: sample_neighbours(graph, seeds, FAN_OUTS, seed=number, num_threads=threads)
    )
    nodes = torch.from_numpy(np.array(sample.nodes))
    timings["gathering features"].timed(lambda: features.index_select(0, nodes))
    labels = torch.from_numpy(seeds % CLASSES)
    return Batch(sample, features, nodes, torch.from_numpy(np.array(sample.edge_index)), labels)


def pyg_lib_sampler(graph: Graph) -> Callable[[int], Any] | None:
    """pyg-lib's sampling of the batch with some number, or None where it is not installed."""
    try:
        import pyg_lib  # noqa: F401
    except ImportError:
        return None
    indptr, indices = torch.tensor(graph.indptr), torch.tensor(graph.indices, dtype=torch.int64)

    def sample(number: int) -> Any:
        seeds = np.random.default_rng(number).choice(graph.num_nodes, SEEDS, replace=False)
        return torch.ops.pyg.neighbor_sample(indptr, indices, torch.from_numpy(seeds), FAN_OUTS, csc=True)

    return sample


def steps(kind: str, mode: str, names: list[str]) -> dict[str, tuple[Callable[[Batch], Tensor], Model]]:
    """Name -> what runs a batch, and the model whose gradients it leaves."""
    theirs, ours = models(kind)
    made: dict[str, tuple[Callable[[Batch], Tensor], Model]] = {}
    for name in names:
        model = copy.deepcopy(ours if name.startswith("ours") else theirs)
        made[name] = (_step(model, name, mode), model)
    return made


def _step(model: Model, name: str, mode: str) -> Callable[[Batch], Tensor]:
    way = "bipartite" if "bipartite" in name else "trimmed"
    called: Any = torch.compile(model, dynamic=True) if "compiled" in name else model

    def run(batch: Batch) -> Tensor:
        if name == "ours":
            return model.blocks(batch, Rows(batch.features, batch.nodes))
        x = batch.features.index_select(0, batch.nodes)
        if name == "ours, gathered":
            return model.blocks(batch, x)
        nodes, edges = list(batch.sample.num_sampled_nodes), list(batch.sample.num_sampled_edges)
        return called(x, batch.edge_index, nodes, edges, way)

    def infer(batch: Batch) -> Tensor:
        with torch.no_grad():
            return run(batch)

    def train(batch: Batch) -> Tensor:
        model.zero_grad(set_to_none=True)
        out = run(batch)
        functional.cross_entropy(out, batch.labels).backward()
        return out

    return infer if mode == "inference" else train


def graphs_compiled() -> int:
    """Graphs torch.compile has made since it was reset: those after the first are recompilations."""
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])


def measure(
    kind: str, mode: str, names: list[str], batches: list[Batch]
) -> tuple[dict[str, Timing], dict[str, tuple[float, int]]]:
    """Times of each contender over the batches after `WARM_UP`; (seconds, graphs) of what compiles."""
    torch.compiler.reset()
    made = steps(kind, mode, names)
    compile_costs: dict[str, tuple[float, int]] = {}
    wanted = [made["ours"][0](batch).detach() for batch in batches[:WARM_UP]]
    for name in names[1:]:
        before, start = graphs_compiled(), time.perf_counter()
        for batch, truth in zip(batches, wanted):
            error = relative_error(made[name][0](batch), truth)
            if not error <= TOLERANCE:
                raise SystemExit(f"{kind}, {mode}, {name}: outputs differ by {error:.1e} of the largest")
        if "compiled" in name:
            compile_costs[name] = (time.perf_counter() - start, graphs_compiled() - before)
    timings = {name: Timing() for name in names}
    before = graphs_compiled()
    for batch in batches[WARM_UP:]:
        runs = {name: (lambda step=made[name][0], batch=batch: step(batch)) for name in names}
        for name, timing in alternate(runs, 1, 0).items():
            timings[name].wall += timing.wall
            timings[name].cpu += timing.cpu
            timings[name].others += timing.others
    if graphs_compiled() > before:
        print(f"{kind}, {mode}: {graphs_compiled() - before} graphs were compiled again while timing")
    return timings, compile_costs


def on_graph(name: str, graph: Graph, chosen: argparse.Namespace) -> list[dict[str, Any]]:
    """Measures and prints one table per number of threads."""
    figures: list[dict[str, Any]] = []
    torch.manual_seed(0)
    features = torch.randn(graph.num_nodes, FEATURES)
    names = ["ours", "ours, gathered", "PyG trimmed", "PyG bipartite"]
    names += [] if chosen.no_compile or chosen.quick else ["PyG trimmed compiled", "PyG bipartite compiled"]
    peer = pyg_lib_sampler(graph)
    for threads in chosen.threads:
        use_threads(threads)
        prepared = {key: Timing() for key in ("sampling, ours", "gathering features")}
        count = WARM_UP + chosen.rounds
        batches = [draw(graph, features, number, threads, prepared) for number in range(count)]
        if peer is not None:
            prepared["sampling, pyg-lib"] = Timing()
            for number in range(count):
                prepared["sampling, pyg-lib"].timed(lambda number=number: peer(number))
        rows = []
        for label, timing in prepared.items():
            kept = Timing(timing.wall[WARM_UP:], timing.cpu[WARM_UP:])
            rows.append(["", "", str(threads), label, *_times(kept, threads), "", "", "", ""])
            figures.append({"graph": name, "threads": threads, "contender": label, **kept.summary()})
        for kind, mode in itertools.product(chosen.layers, ["inference", "train"]):
            print(f"{name}, {kind}, {mode}, {threads} threads", file=sys.stderr, flush=True)
            timings, costs = measure(kind, mode, names, batches)
            ours = timings["ours"]
            for label, timing in timings.items():
                seconds, made = costs.get(label, (None, None))
                cells = ["" if seconds is None else f"{seconds:.0f}", "" if made is None else str(made)]
                cells.append(f"{timing.others_share:.0%}")
                ratio = f"{timing.median / ours.median:.2f}"
                rows.append([kind, mode, str(threads), label, *_times(timing, threads), ratio, *cells])
                figures.append(
                    {
                        "graph": name,
                        "layer": kind,
                        "pass": mode,
                        "threads": threads,
                        "contender": label,
                        "compile_s": seconds,
                        "graphs_compiled": made,
                        **timing.summary(),
                        "times_ours_median": timing.median / ours.median,
                        "times_ours_least": timing.least / ours.least,
                    }
                )
        nodes = int(np.mean([batch.sample.num_nodes for batch in batches]))
        edges = int(np.mean([batch.sample.num_edges for batch in batches]))
        table(f"{name}, {threads} threads, {nodes} nodes and {edges} edges a batch", COLUMNS, rows)
    return figures


def _times(timing: Timing, threads: int) -> list[str]:
    cpu = f"{timing.median_cpu * 1e3:.1f}" if threads == 1 else ""
    return [f"{timing.median * 1e3:.1f}", f"{timing.least * 1e3:.1f}", cpu]


def main() -> None:
    """Measures what was asked for."""
    parser = options(__doc__ or "")
    parser.set_defaults(rounds=15)
    parser.add_argument("--graphs", nargs="+", choices=list(GRAPHS), default=["G1", "G2"])
    parser.add_argument("--layers", nargs="+", choices=KINDS, default=["gat"])
    chosen = parser.parse_args()
    print("\n".join(machine().lines()))
    figures = []
    if chosen.quick:
        chosen.rounds, chosen.threads = 2, [1]
        figures = on_graph("quick", chung_lu(5_000, 50_000, 0), chosen)
    else:
        for name in chosen.graphs:
            drawn = named(name)
            # As a loader's users would: no edge features, so no edge ids.
            figures += on_graph(name, Graph(drawn.indptr, drawn.indices), chosen)
    if not any(figure["contender"] == "sampling, pyg-lib" for figure in figures):
        print("pyg-lib is not installed: its sampler was not measured, PyG's layers ran on our samples")
    report(chosen.json, {"minibatch": figures})


if __name__ == "__main__":
    main()
