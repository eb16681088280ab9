"""Attention against its naive twin: values at every CPU level; what must and must not change them."""

from __future__ import annotations

import concurrent.futures
import ctypes
import dataclasses
import sys

import numpy as np
import pytest

from attention_cases import (
    EDGE_CHANNELS,
    FORWARD_LIMIT,
    HEADS_AND_CHANNELS,
    OPTIONS,
    SCORES,
    as_type,
    assert_close,
    assert_forward,
    awkward_graph,
    each_cpu_level,
    edges_of_degrees,
    make_inputs,
    map_arrays,
    square_graph,
    widen,
)
from reference import attention as reference
from sage_attention import Graph, sample_one_hop
from sage_attention.attention import (
    AttentionInputs,
    attention_forward,
    dot_attention,
    gat_attention,
    gatv2_attention,
)


@pytest.fixture(autouse=True)
def _poison(monkeypatch):
    """Scratch memory starts as not-a-number: what is read before it is written shows."""
    monkeypatch.setenv("SAGE_ATTENTION_POISON", "1")


@pytest.mark.skipif(sys.platform == "win32", reason="the C library is found by another name there")
def test_poison_reaches_the_library():
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_char_p
    assert getenv(b"SAGE_ATTENTION_POISON") == b"1"


@pytest.mark.parametrize("edge_channels", EDGE_CHANNELS)
@pytest.mark.parametrize(("heads", "channels"), HEADS_AND_CHANNELS)
@pytest.mark.parametrize("score", SCORES)
def test_matches_reference(score, heads, channels, edge_channels):
    graph = awkward_graph()
    for text, options in OPTIONS.items():
        inputs = make_inputs(score, graph, heads, channels, edge_channels, **options)
        expected = reference.attention_forward(inputs)
        for _ in each_cpu_level():
            assert_forward(inputs, expected, text)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("edge_channels", [0, 3])
def test_square_graph_with_loops_and_duplicates(score, edge_channels):
    inputs = make_inputs(score, square_graph(), 3, 6, edge_channels)
    expected = reference.attention_forward(inputs)
    for _ in each_cpu_level():
        assert_forward(inputs, expected)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("options", [{}, {"dropout": 0.25}, {"fan_out": 1500}, {"fan_out": 9000, "replace": True}])
def test_row_of_thousands_of_edges(score, options):
    graph = Graph.from_edge_index(edges_of_degrees([3, 5000, 0, 65], 50), (50, 4))
    inputs = make_inputs(score, graph, 2, 8, 2, **options)
    # A mean far from zero: what is left of thousands of numbers that cancel is rounding.
    inputs = dataclasses.replace(inputs, values=inputs.values + 2)
    expected = reference.attention_forward(inputs)
    for _ in each_cpu_level():
        assert_forward(inputs, expected, limits={"float32": 1e-3, "float64": 1e-11})


def test_row_of_thousands_of_edges_keeps_float32_accuracy():
    graph = Graph.from_edge_index(edges_of_degrees([3, 20_000, 0, 65], 50), (50, 4))
    inputs = make_inputs("gat", graph, 2, 8)
    inputs = dataclasses.replace(inputs, values=inputs.values + 2)
    expected = reference.attention_forward(inputs)
    for _ in each_cpu_level():
        assert_forward(inputs, expected)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize(
    ("num_sources", "num_targets", "targets"),
    [(5, 3, None), (0, 3, None), (5, 0, None), (0, 0, None), (5, 3, []), (5, 3, [1, 1])],
)
def test_without_edges(score, num_sources, num_targets, targets):
    graph = Graph(np.zeros(num_targets + 1, np.int64), np.zeros(0, np.int32), num_sources)
    chosen = None if targets is None else np.array(targets, np.int64)
    inputs = as_type(make_inputs(score, graph, 2, 3, 2, targets=chosen), "float32")
    for _ in each_cpu_level():
        outputs = attention_forward(inputs, for_backward=True, return_weights=chosen is None)
        assert outputs.out.shape == (inputs.num_rows, 2, 3)
        np.testing.assert_array_equal(outputs.out, np.broadcast_to(inputs.bias, outputs.out.shape))
        assert outputs.edge_out is None or not outputs.edge_out.any()
        assert outputs.weights is None or outputs.weights.shape == (0, 2)


def whole_numbers(score, graph, magnitude, sign):
    """A problem whose float32 scores are exact: multiples of 1/4, of about this magnitude."""
    inputs = make_inputs(score, graph, 2, 4)
    rng = np.random.default_rng(3)
    wanted = {"source_logits": magnitude, "target_logits": 30, "attention": 2}
    wanted.update({"keys": magnitude / 6, "queries": 3})
    if score == "gatv2":
        wanted["values"] = wanted["queries"] = magnitude / 6
    changes = {}
    for name, size in wanted.items():
        array = getattr(inputs, name)
        if array is not None:
            whole = rng.integers(-size, size + 1, array.shape).astype(np.float64)
            one_sided = name == "source_logits" or (name == "attention")
            changes[name] = sign * np.abs(whole) if sign and one_sided else whole
    return dataclasses.replace(inputs, negative_slope=0.25, scale=0.5, **changes)


@pytest.mark.parametrize("sign", [0, 1, -1])
@pytest.mark.parametrize("magnitude", [100, 1000, 40_000])
@pytest.mark.parametrize("score", SCORES)
def test_large_scores_do_not_overflow(score, magnitude, sign):
    inputs = whole_numbers(score, awkward_graph(), magnitude, sign)
    expected = reference.attention_forward(inputs)
    assert np.isfinite(expected["out"]).all()
    for _ in each_cpu_level():
        assert_forward(inputs, expected)


@pytest.mark.parametrize("gap", [10, 80, 86, 87, 87.25, 87.5, 88, 100, 104, 150, 700, 708, 709, 745, 800, 1e5, 1e30])
def test_small_weights(gap):
    """Two edges whose scores differ: the smaller weight is exp(-gap), or 0 where that is no normal number."""
    graph = Graph([0, 2], [0, 1], num_sources=2)
    values = np.array([0.0, 1.0]).reshape(2, 1, 1)
    inputs = AttentionInputs("gat", graph, values, source_logits=np.array([[gap], [0.0]]))
    for _ in each_cpu_level():
        for dtype in ("float32", "float64"):
            typed = as_type(inputs, dtype)
            got = float(gat_attention(graph, typed.values, typed.source_logits)[0, 0, 0])
            expected = float(np.exp(-gap) / (1 + np.exp(-gap)))
            tiny = float(np.finfo(dtype).tiny)
            # float32 rounds 87.25 and the like exactly, so that only exp itself errs
            assert abs(got - expected) <= 1e-5 * expected + 2 * tiny


@pytest.mark.parametrize("hidden", [1, 31, 32, 33, 64, 69, 70])
def test_score_of_minus_infinity_hides_an_edge(hidden):
    """Also where it hides a whole block of edges; a row with nothing left is not a number, as in NumPy."""
    rng = np.random.default_rng(0)
    graph = Graph([0, 2, 72], np.arange(72), num_sources=72)
    values = rng.standard_normal((72, 3, 5))
    logits = rng.standard_normal((72, 3))
    logits[2 : 2 + hidden, 1] = -np.inf
    inputs = AttentionInputs("gat", graph, values, source_logits=logits)
    with np.errstate(invalid="ignore"):
        expected = reference.attention_forward(inputs)
    assert np.isnan(expected["out"]).any() == (hidden == 70)
    for level in each_cpu_level():
        for dtype in ("float32", "float64"):
            typed = as_type(inputs, dtype)
            got = attention_forward(typed, return_weights=True)
            for name in ("out", "weights"):
                limit = FORWARD_LIMIT[dtype] * 10
                np.testing.assert_allclose(getattr(got, name), expected[name], rtol=limit, atol=limit, err_msg=level)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("options", ["plain", "dropout", "sampled", "targets"])
@pytest.mark.parametrize("score", SCORES)
def test_not_a_number_stays_where_it_belongs(score, options, bad):
    graph = awkward_graph()
    clean = make_inputs(score, graph, 5, 6, 2, **OPTIONS[options])
    for name in ("values", "keys", "queries", "source_logits", "target_logits", "edge_features"):
        array = getattr(clean, name)
        if array is None:
            continue
        changed = array.copy()
        changed[(len(changed) // 2, *(1,) * (changed.ndim - 1))] = bad
        inputs = dataclasses.replace(clean, **{name: changed})
        with np.errstate(invalid="ignore"):
            expected = reference.attention_forward(inputs)["out"]
        finite = np.isfinite(expected)
        assert finite.any()
        for level in each_cpu_level():
            for dtype in ("float32", "float64"):
                got = attention_forward(as_type(inputs, dtype)).out
                text = f"{name} {dtype} {level}"
                np.testing.assert_array_equal(np.isfinite(got), finite, err_msg=text)
                assert_close(got[finite], expected[finite], FORWARD_LIMIT[dtype], text)


LAYOUTS = {
    "Fortran order": np.asfortranarray,
    "every other": lambda a: np.repeat(a, 2, axis=0)[::2],
    "backwards": lambda a: a[::-1].copy()[::-1],
    "part of a wider array": lambda a: np.concatenate([a, a], axis=-1)[..., : a.shape[-1]],
    "unaligned": lambda a: np.frombuffer(b"x" + a.tobytes(), np.uint8)[1:].view(a.dtype).reshape(a.shape),
    "list": lambda a: a.tolist(),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("score", SCORES)
def test_any_memory_layout(score, dtype, layout):
    if layout == "list" and dtype == "float32":
        pytest.skip("a list of floats is float64")
    inputs = as_type(make_inputs(score, awkward_graph(), 3, 5, 2), dtype)
    changed = map_arrays(inputs, LAYOUTS[layout])
    if layout == "list":
        changed = dataclasses.replace(changed, values=inputs.values)
    np.testing.assert_array_equal(attention_forward(changed).out, attention_forward(inputs).out)


@pytest.mark.parametrize("score", SCORES)
def test_read_only_inputs_and_nothing_is_changed(score):
    inputs = as_type(make_inputs(score, awkward_graph(), 3, 5, 2, dropout=0.5), "float32")
    before = map_arrays(inputs, np.copy)

    def lock(array):
        view = array.view()
        view.flags.writeable = False
        return view

    locked = map_arrays(inputs, lock)
    np.testing.assert_array_equal(attention_forward(locked).out, attention_forward(before).out)
    for name in ("values", "queries", "edge_features"):
        if getattr(inputs, name) is not None:
            np.testing.assert_array_equal(getattr(inputs, name), getattr(before, name))


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("score", SCORES)
def test_index_types_agree(score, options):
    narrow = awkward_graph()
    wide = widen(narrow)
    inputs = as_type(make_inputs(score, narrow, 3, 8, 3, **OPTIONS[options]), "float32")
    assert narrow.indices.dtype == np.int32
    same = dataclasses.replace(inputs, graph=wide)
    for _ in each_cpu_level():
        np.testing.assert_array_equal(attention_forward(same).out, attention_forward(inputs).out)


def all_outputs(inputs, num_threads):
    outputs = attention_forward(
        inputs, for_backward=True, return_weights=inputs.attends_whole_graph, num_threads=num_threads
    )
    return [a for f in dataclasses.fields(outputs) if (a := getattr(outputs, f.name)) is not None]


@pytest.mark.parametrize("options", [{}, {"dropout": 0.2}, {"fan_out": 7}, {"fan_out": 20, "replace": True}])
@pytest.mark.parametrize("score", SCORES)
def test_any_number_of_threads_gives_the_same_bits(ragged, score, options):
    inputs = as_type(make_inputs(score, ragged, 4, 9, 3, **options), "float32")
    expected = all_outputs(inputs, 1)
    for num_threads in (2, 5, 0):
        for got, want in zip(all_outputs(inputs, num_threads), expected):
            np.testing.assert_array_equal(got, want)


def test_calls_from_several_threads(ragged):
    problems = [as_type(make_inputs(score, ragged, 2, 8), "float32") for score in SCORES] * 4
    expected = [attention_forward(inputs, num_threads=1).out for inputs in problems]
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda inputs: attention_forward(inputs, num_threads=2).out, problems * 5))
    for got, want in zip(found, expected * 5):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("fan_out", [1, 4, 30])
@pytest.mark.parametrize("score", SCORES)
def test_sampling_inside_equals_sampling_first(score, fan_out, replace):
    graph = awkward_graph()
    targets = np.array([3, 8, 0, 3, 5])
    sampling = {"fan_out": fan_out, "replace": replace, "seed": 77, "hop": 3}
    inputs = make_inputs(score, graph, 3, 8, 2, targets=targets, **sampling)
    picks = sample_one_hop(graph, targets, **sampling)
    sampled = Graph(picks.indptr, picks.sources, graph.num_sources)
    first = dataclasses.replace(
        inputs, graph=sampled, targets=None, fan_out=-1, replace=False,
        edge_features=inputs.edge_features[picks.edge_ids],
    )  # fmt: skip
    for _ in each_cpu_level():
        for dtype in ("float32", "float64"):
            a, b = attention_forward(as_type(inputs, dtype)), attention_forward(as_type(first, dtype))
            np.testing.assert_array_equal(a.out, b.out)
            if score == "dot":
                np.testing.assert_array_equal(a.edge_out, b.edge_out)


def test_named_functions():
    graph = awkward_graph()
    for score in SCORES:
        inputs = make_inputs(score, graph, 2, 3, 2, dropout=0.3)
        expected = attention_forward(inputs, return_weights=True)
        options = {"edge_features": inputs.edge_features, "bias": inputs.bias, "dropout": 0.3}
        if score == "gat":
            arrays = (inputs.values, inputs.source_logits, inputs.target_logits)
            function, options["edge_weight"] = gat_attention, inputs.edge_weight
        elif score == "gatv2":
            arrays = (inputs.values, inputs.queries, inputs.attention)
            function, options["edge_weight"] = gatv2_attention, inputs.edge_weight
        else:
            arrays = (inputs.queries, inputs.keys, inputs.values)
            function, options["edge_queries"] = dot_attention, inputs.edge_queries
        out, weights = function(graph, *arrays, return_weights=True, **options)
        np.testing.assert_array_equal(out, expected.out)
        np.testing.assert_array_equal(weights, expected.weights)
        np.testing.assert_array_equal(function(graph, *arrays, **options), expected.out)


def test_target_logits_may_be_left_out():
    inputs = make_inputs("gat", awkward_graph(), 3, 4)
    without = dataclasses.replace(inputs, target_logits=None)
    zeros = dataclasses.replace(inputs, target_logits=np.zeros_like(inputs.target_logits))
    np.testing.assert_array_equal(attention_forward(without).out, attention_forward(zeros).out)
