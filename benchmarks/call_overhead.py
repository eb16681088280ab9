"""What a call costs before and after the kernel: whole calls on a graph so small that the kernel has nothing to do.

  python benchmarks/call_overhead.py                  all of them
  python benchmarks/call_overhead.py --rounds 101     closer medians

4 nodes, 6 edges, 1 head, 4 channels, float32, one thread. Calls are timed in turn, many of each a round; "floor"
rows are what the machinery costs that a call cannot do without: an empty function of the library, a product of tensors
with autograd. PyTorch Geometric's layer does the same work as ours, both eager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from common import alternate, machine, options, report, table
from sage_attention import Graph, _native, attention, sample_neighbours, sample_one_hop
from sage_attention import torch as sage

if TYPE_CHECKING:
    from collections.abc import Callable

NODES, CHANNELS = 4, 4
EDGES = [[0, 1, 2, 3, 0, 1], [1, 2, 3, 0, 2, 3]]
CALLS = {"NumPy": 500, "PyTorch": 100, "layer": 20}  # of one step in one round


def numpy_calls() -> dict[str, Callable[[], Any]]:
    """The NumPy level."""
    graph = Graph.from_edge_index(EDGES)
    x = np.ones((NODES, 1, CHANNELS), np.float32)
    logits, vector = np.ones((NODES, 1), np.float32), np.ones((1, CHANNELS), np.float32)
    inputs = attention.AttentionInputs("gat", graph, x, source_logits=logits, target_logits=logits)
    outputs = attention.attention_forward(inputs, for_backward=True)
    return {
        "floor: an empty function": _native.library().sage_attention_abi_version,
        "gat_attention": lambda: attention.gat_attention(graph, x, logits, logits, num_threads=1),
        "gatv2_attention": lambda: attention.gatv2_attention(graph, x, x, vector, num_threads=1),
        "dot_attention": lambda: attention.dot_attention(graph, x, x, x, num_threads=1),
        "gat_attention with a bias": lambda: attention.gat_attention(
            graph, x, logits, logits, bias=vector, num_threads=1
        ),
        "attention_backward, gat": lambda: attention.attention_backward(inputs, outputs, x, num_threads=1),
        "sample_one_hop of one node": lambda: sample_one_hop(graph, [0], 2, num_threads=1),
        "sample_neighbours of one seed": lambda: sample_neighbours(graph, [0], [2], num_threads=1),
    }


def torch_calls() -> dict[str, Callable[[], Any]]:
    """The operators for tensors, without and with gradients."""
    edges = sage.csc(torch.tensor(EDGES), NODES, NODES, by_source=True)
    plain = [torch.ones(NODES, 1, CHANNELS), torch.ones(NODES, 1), torch.ones(1, CHANNELS)]
    learned = [tensor.clone().requires_grad_() for tensor in plain]
    grad = torch.ones(NODES, 1, CHANNELS)

    def backward(call: Callable[[], Any]) -> Callable[[], Any]:
        return lambda: torch.autograd.backward((call(),), (grad,))

    calls: dict[str, Callable[[], Any]] = {
        "floor: product with autograd": lambda: learned[0] * plain[0],
        "floor: product, forward and backward": backward(lambda: learned[0] * plain[0]),
    }
    for kind, (x, logits, vector) in {"no gradient": plain, "with gradient": learned}.items():
        forward: dict[str, Callable[[], Any]] = {
            "gat_attention": lambda x=x, logits=logits: sage.gat_attention(edges, x, logits, logits)[0],
            "gatv2_attention": lambda x=x, vector=vector: sage.gatv2_attention(edges, x, x, vector)[0],
            "dot_attention": lambda x=x: sage.dot_attention(edges, x, x, x)[0],
        }
        for name, call in forward.items():
            calls[f"{name}, {kind}"] = call
            if kind == "with gradient":
                calls[f"{name}, forward and backward"] = backward(call)
    return calls


def layer_calls() -> dict[str, Callable[[], Any]]:
    """GATConv, ours and PyTorch Geometric's."""
    from torch_geometric.nn import GATConv

    edge_index, x = torch.tensor(EDGES), torch.ones(NODES, CHANNELS)
    calls: dict[str, Callable[[], Any]] = {}
    for name, layer in {"ours": sage.GATConv(CHANNELS, CHANNELS), "PyG": GATConv(CHANNELS, CHANNELS)}.items():

        def evaluated(layer: Any = layer) -> None:
            with torch.no_grad():
                layer(x, edge_index)

        calls[f"GATConv, no gradient: {name}"] = evaluated
        calls[f"GATConv, with gradient: {name}"] = lambda layer=layer: layer(x, edge_index)
        calls[f"GATConv, forward and backward: {name}"] = lambda layer=layer: layer(x, edge_index).sum().backward()
    return calls


def repeated(call: Callable[[], Any], times: int) -> Callable[[], None]:
    """A step that is long enough for the clock."""

    def step() -> None:
        for _ in range(times):
            call()

    return step


def main() -> None:
    """Prints a table."""
    parser = options(__doc__ or "")
    parser.set_defaults(threads=[1], rounds=41)
    arguments = parser.parse_args()
    for line in machine().lines():
        print(line)
    torch.set_num_threads(1)
    groups = {"NumPy": numpy_calls(), "PyTorch": torch_calls(), "layer": layer_calls()}
    steps = {
        f"{group}: {name}": repeated(call, 2 if arguments.quick else CALLS[group])
        for group, calls in groups.items()
        for name, call in calls.items()
    }
    timings = alternate(steps, 1 if arguments.quick else arguments.rounds)
    rows, figures = [], {}
    for name, timing in timings.items():
        calls = 2 if arguments.quick else CALLS[name.partition(":")[0]]
        median, least = timing.median / calls * 1e6, timing.least / calls * 1e6
        rows.append([name, f"{median:.1f}", f"{least:.1f}", f"{timing.others_share:.0%}"])
        figures[name] = {**timing.summary(), "calls": calls, "median_us": median, "least_us": least}
    table("microseconds of a call", ["", "median", "least", "others"], rows)
    report(arguments.json, figures)


if __name__ == "__main__":
    main()
