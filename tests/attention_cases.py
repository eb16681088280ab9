"""Problems and comparisons shared by the tests of attention; nothing here is a test."""

from __future__ import annotations

import contextlib
import dataclasses

import numpy as np

from sage_attention import Graph, _native
from sage_attention.attention import AttentionInputs, attention_backward, attention_forward

SCORES = ("gat", "gatv2", "dot")
# One vector, several, parts of one; heads below, at and above the width of a vector.
HEADS_AND_CHANNELS = (
    (1, 1), (1, 8), (2, 16), (8, 8), (3, 5), (8, 16), (4, 32), (12, 7), (1, 64), (5, 100), (16, 3),
)  # fmt: skip
EDGE_CHANNELS = (0, 1, 3, 17)
ARRAYS = (
    "values", "keys", "queries", "source_logits", "target_logits", "attention", "edge_features",
    "edge_weight", "edge_queries", "bias",
)  # fmt: skip
OPTIONS = {
    "plain": {},
    "dropout": {"dropout": 0.4, "dropout_seed": 2**63 + 5},
    "weights before dropout": {"dropout": 0.5, "dropout_seed": 1, "weights_before_dropout": True},
    "sampled": {"fan_out": 3, "seed": 9, "hop": 1},
    "sampled with replacement": {"fan_out": 4, "replace": True, "dropout": 0.3, "dropout_seed": 3},
    "targets": {"targets": np.array([2, 3, 2, 0, 8, 2])},
    "sampled targets": {"targets": np.array([7, 3, 3]), "fan_out": 5, "seed": 2**64 - 1, "dropout": 0.1},
}
FORWARD_LIMIT = {"float32": 1e-5, "float64": 1e-11}
GRADIENT_LIMIT = {"float32": 1e-4, "float64": 1e-11}
# Gradients of scores are differences of numbers of about 1: where all cancel, nothing is left to relate to.
GRADIENT_FLOOR = 1e-2


@contextlib.contextmanager
def at_cpu_level(level):
    before = _native.cpu_level()
    _native.set_cpu_level(level)
    try:
        yield
    finally:
        _native.set_cpu_level(before)


def each_cpu_level():
    """Sets every CPU level this machine has, one after the other."""
    for level in _native.available_cpu_levels():
        with at_cpu_level(level):
            yield level


def edges_of_degrees(degrees, num_sources, seed=0):
    """[2, E], in no order, with these in-degrees; source 1 has half of the edges."""
    rng = np.random.default_rng(seed)
    targets = np.repeat(np.arange(len(degrees)), degrees)
    sources = rng.integers(0, num_sources, len(targets))
    sources[rng.random(len(sources)) < 0.5] = 1
    return rng.permutation(np.stack([sources, targets]), axis=1)


def awkward_graph():
    """13 sources, 9 targets: no in-edges, one, a few, several blocks; duplicates; edges in no order."""
    return Graph.from_edge_index(edges_of_degrees([0, 1, 3, 70, 0, 20, 7, 33, 5], 13), (13, 9))


def square_graph(num_nodes=40, num_edges=200, seed=4):
    """Self loops, duplicates, nodes without edges."""
    rng = np.random.default_rng(seed)
    edges = rng.integers(0, num_nodes // 2, (2, num_edges)) * 2
    edges[:, :5] = edges[0, :5]
    edges[:, 5:9] = edges[:, 9:13]
    return Graph.from_edge_index(edges, num_nodes)


def shapes(score, graph, rows, heads, channels, edge_channels):
    """Shape of every array the score takes."""
    wanted = {"values": (graph.num_sources, heads, channels)}
    if score == "gat":
        wanted.update(source_logits=(graph.num_sources, heads), target_logits=(rows, heads))
    if score == "gatv2":
        wanted.update(queries=(rows, heads, channels), attention=(heads, channels))
    if score == "dot":
        wanted.update(queries=(rows, heads, channels), keys=(graph.num_sources, heads, channels))
    if edge_channels:
        wanted["edge_features"] = (graph.num_edges, edge_channels)
        partner = {
            "gat": ("edge_weight", (heads, edge_channels)),
            "gatv2": ("edge_weight", (heads * channels, edge_channels)),
            "dot": ("edge_queries", (rows, heads, edge_channels)),
        }
        name, shape = partner[score]
        wanted[name] = shape
    if heads % 2 == 0:  # with and without
        wanted["bias"] = (heads, channels)
    return wanted


def make_inputs(score, graph, heads=2, channels=4, edge_channels=0, data_seed=0, **options):
    """A random problem whose float64 arrays hold float32 numbers: both types have the same truth."""
    rng = np.random.default_rng(data_seed)
    rows = graph.num_targets if options.get("targets") is None else len(options["targets"])
    arrays = {
        name: rng.standard_normal(shape).astype(np.float32).astype(np.float64)
        for name, shape in shapes(score, graph, rows, heads, channels, edge_channels).items()
    }
    if score == "gatv2":
        # As a layer starts: scores of a few units, whatever their number of terms.
        scale = (channels * (2 + edge_channels)) ** -0.5
        arrays["attention"] = (arrays["attention"] * scale).astype(np.float32).astype(np.float64)
    return AttentionInputs(score, graph, **{**arrays, **options})


def widen(graph):
    """The same graph with int64 indices, which the constructors would narrow."""
    return Graph.from_trusted(graph.indptr, graph.indices.astype(np.int64), graph.num_sources, graph.edge_ids)


def as_type(inputs, dtype):
    """The same problem in another float type."""
    changes = {n: a.astype(dtype) for n in ARRAYS if (a := getattr(inputs, n)) is not None}
    return dataclasses.replace(inputs, **changes)


def map_arrays(inputs, function):
    """The same problem with function(array) for each of its float arrays."""
    changes = {n: function(a) for n in ARRAYS if (a := getattr(inputs, n)) is not None}
    return dataclasses.replace(inputs, **changes)


def make_gradients(inputs, seed=1):
    """Random gradients of everything a forward pass gives, as the arguments attention_backward takes."""
    rng = np.random.default_rng(seed)

    def normal(*shape):
        return rng.standard_normal(shape).astype(np.float32).astype(np.float64)

    gradients = {"grad_out": normal(inputs.num_rows, inputs.heads, inputs.channels)}
    if inputs.score == "dot" and inputs.edge_channels:
        gradients["grad_edge_out"] = normal(inputs.num_rows, inputs.heads, inputs.edge_channels)
    if inputs.attends_whole_graph:
        gradients["grad_weights"] = normal(inputs.graph.num_edges, inputs.heads)
    return gradients


def run_backward(inputs, gradients, num_threads=2):
    """Forward, then backward: a dict of gradients by name."""
    outputs = attention_forward(
        inputs,
        for_backward=True,
        return_weights=inputs.attends_whole_graph and "grad_weights" in gradients,
        num_threads=num_threads,
    )
    typed = {name: array.astype(inputs.values.dtype) for name, array in gradients.items()}
    found = attention_backward(inputs, outputs, typed.pop("grad_out"), num_threads=num_threads, **typed)
    return {n: a for n in ARRAYS if (a := getattr(found, n)) is not None}


def error(got, expected, floor=1e-30):
    """Largest difference relative to the largest magnitude, or to `floor` if that is larger."""
    assert got.shape == expected.shape
    if expected.size == 0:
        return 0.0
    difference = float(np.abs(got.astype(np.float64) - expected).max())
    return difference / max(float(np.abs(expected).max()), floor)


def assert_close(got, expected, limit, text, floor=1e-30):
    """NaN is close to nothing, whatever is expected."""
    found = error(got, expected, floor)
    assert found <= limit, f"{text}: relative error {found:.3g}, expected at most {limit:g}"


def assert_forward(inputs, expected, text="", num_threads=2, limits=FORWARD_LIMIT):
    """Compares a forward pass in both float types, at the CPU level in use, with the reference."""
    for dtype in ("float32", "float64"):
        whole = inputs.attends_whole_graph
        got = attention_forward(as_type(inputs, dtype), return_weights=whole, num_threads=num_threads)
        for name in ("out", "edge_out", "weights"):
            array = getattr(got, name)
            if expected[name] is None or (name == "weights" and not whole):
                assert array is None
            else:
                assert array.dtype == dtype
                where = f"{name} {dtype} {_native.cpu_level()} {text}"
                assert_close(array, expected[name], limits[dtype], where)


def assert_backward(inputs, gradients, expected, text="", num_threads=2):
    """Compares a backward pass in both float types, at the CPU level in use, with the reference."""
    for dtype in ("float32", "float64"):
        got = run_backward(as_type(inputs, dtype), gradients, num_threads)
        assert set(got) == set(expected)
        for name, array in got.items():
            assert array.dtype == dtype
            where = f"gradient of {name} {dtype} {_native.cpu_level()} {text}"
            assert_close(array, expected[name], GRADIENT_LIMIT[dtype], where, GRADIENT_FLOOR)
