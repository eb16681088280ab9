"""Gradients of attention against those of its naive twin, and those against finite differences."""

from __future__ import annotations

import concurrent.futures
import dataclasses

import numpy as np
import pytest

from attention_cases import (
    ARRAYS,
    EDGE_CHANNELS,
    GRADIENT_FLOOR,
    GRADIENT_LIMIT,
    HEADS_AND_CHANNELS,
    OPTIONS,
    SCORES,
    as_type,
    assert_backward,
    assert_close,
    awkward_graph,
    each_cpu_level,
    edges_of_degrees,
    make_gradients,
    make_inputs,
    map_arrays,
    run_backward,
    square_graph,
    widen,
)
from reference import attention as reference
from sage_attention import Graph, sample_one_hop
from sage_attention.attention import attention_backward, attention_forward


@pytest.fixture(autouse=True)
def _poison(monkeypatch):
    """Scratch memory starts as not-a-number: what is read before it is written shows."""
    monkeypatch.setenv("SAGE_ATTENTION_POISON", "1")


def truth(inputs, gradients):
    return reference.attention_backward(
        inputs, gradients["grad_out"], gradients.get("grad_edge_out"), gradients.get("grad_weights")
    )


@pytest.mark.parametrize("edge_channels", [0, 3])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("score", SCORES)
def test_reference_against_finite_differences(score, options, edge_channels):
    """The loss is linear in all that a forward pass gives: its gradients are those given to backward."""
    inputs = make_inputs(score, awkward_graph(), 2, 3, edge_channels, **OPTIONS[options])
    gradients = make_gradients(inputs)

    def loss(changed):
        outputs = reference.attention_forward(changed)
        return sum(
            float((outputs[name] * gradients[f"grad_{name}"]).sum())
            for name in ("out", "edge_out", "weights")
            if f"grad_{name}" in gradients
        )

    found = truth(inputs, gradients)
    rng = np.random.default_rng(5)
    assert set(found) == {n for n in ARRAYS if getattr(inputs, n) is not None}
    for name, gradient in found.items():
        array = getattr(inputs, name)
        for _ in range(3):
            # Along a random direction, short enough that no LeakyReLU changes its side.
            direction = rng.standard_normal(array.shape)
            step = 1e-6
            ahead = loss(dataclasses.replace(inputs, **{name: array + step * direction}))
            behind = loss(dataclasses.replace(inputs, **{name: array - step * direction}))
            slope = (ahead - behind) / (2 * step)
            expected = float((gradient * direction).sum())
            assert slope == pytest.approx(expected, rel=1e-5, abs=1e-6), name


@pytest.mark.parametrize("edge_channels", EDGE_CHANNELS)
@pytest.mark.parametrize(("heads", "channels"), HEADS_AND_CHANNELS)
@pytest.mark.parametrize("score", SCORES)
def test_matches_reference(score, heads, channels, edge_channels):
    graph = awkward_graph()
    for text, options in OPTIONS.items():
        inputs = make_inputs(score, graph, heads, channels, edge_channels, **options)
        gradients = make_gradients(inputs)
        expected = truth(inputs, gradients)
        for _ in each_cpu_level():
            assert_backward(inputs, gradients, expected, text)


@pytest.mark.parametrize("left_out", ["grad_weights", "grad_edge_out", "both"])
@pytest.mark.parametrize("score", SCORES)
def test_gradients_that_are_not_given_count_as_zero(score, left_out):
    inputs = make_inputs(score, awkward_graph(), 3, 5, 2, dropout=0.3)
    gradients = make_gradients(inputs)
    for name in ("grad_weights", "grad_edge_out"):
        if left_out in (name, "both"):
            gradients.pop(name, None)
    expected = truth(inputs, gradients)
    for _ in each_cpu_level():
        assert_backward(inputs, gradients, expected)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("edge_channels", [0, 3])
def test_square_graph_with_loops_and_duplicates(score, edge_channels):
    inputs = make_inputs(score, square_graph(), 3, 6, edge_channels)
    gradients = make_gradients(inputs)
    expected = truth(inputs, gradients)
    for _ in each_cpu_level():
        assert_backward(inputs, gradients, expected)


@pytest.mark.parametrize("options", [{}, {"dropout": 0.25}, {"fan_out": 1500}])
@pytest.mark.parametrize("score", SCORES)
def test_row_of_thousands_of_edges(score, options):
    graph = Graph.from_edge_index(edges_of_degrees([3, 3000, 0, 65], 50), (50, 4))
    inputs = make_inputs(score, graph, 2, 8, 2, **options)
    gradients = make_gradients(inputs)
    expected = truth(inputs, gradients)
    for _ in each_cpu_level():
        assert_backward(inputs, gradients, expected)


@pytest.mark.parametrize("score", SCORES)
def test_source_of_thousands_of_edges(score):
    """All targets listen to source 0, a few to others; more rows than a chunk."""
    rng = np.random.default_rng(0)
    targets = np.concatenate([np.arange(1500), rng.integers(0, 1500, 200)])
    sources = np.concatenate([np.zeros(1500, int), rng.integers(0, 7, 200)])
    graph = Graph.from_edge_index(np.stack([sources, targets]), (7, 1500))
    inputs = make_inputs(score, graph, 2, 4, 2, dropout=0.2)
    gradients = make_gradients(inputs)
    expected = truth(inputs, gradients)
    for _ in each_cpu_level():
        assert_backward(inputs, gradients, expected)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize(
    ("num_sources", "num_targets", "targets"),
    [(5, 3, None), (0, 3, None), (5, 0, None), (0, 0, None), (5, 3, []), (5, 3, [1, 1])],
)
def test_without_edges(score, num_sources, num_targets, targets):
    graph = Graph(np.zeros(num_targets + 1, np.int64), np.zeros(0, np.int32), num_sources)
    chosen = None if targets is None else np.array(targets, np.int64)
    inputs = make_inputs(score, graph, 2, 3, 2, targets=chosen)
    gradients = make_gradients(inputs)
    for _ in each_cpu_level():
        for dtype in ("float32", "float64"):
            for name, array in run_backward(as_type(inputs, dtype), gradients).items():
                assert array.shape == getattr(inputs, name).shape
                assert name == "bias" or not array.any()


@pytest.mark.parametrize("magnitude", [30.0, 1000.0])
@pytest.mark.parametrize("score", SCORES)
def test_large_scores(score, magnitude):
    """In float64; float32 has no digits left for the differences of such scores."""
    inputs = make_inputs(score, awkward_graph(), 3, 5, 2)
    scaled = {"gat": "source_logits", "gatv2": "attention", "dot": "keys"}[score]
    inputs = dataclasses.replace(inputs, **{scaled: getattr(inputs, scaled) * magnitude})
    gradients = make_gradients(inputs)
    expected = truth(inputs, gradients)
    for level in each_cpu_level():
        for name, array in run_backward(inputs, gradients).items():
            assert_close(array, expected[name], 1e-9, f"{name} {level}", GRADIENT_FLOOR)
        for name, array in run_backward(as_type(inputs, "float32"), gradients).items():
            assert np.isfinite(array).all(), name


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("score", SCORES)
def test_not_a_number_stays_where_it_belongs(score, bad):
    """A bad gradient of a row and head reaches that head of its sources and what is shared; nothing else."""
    inputs = make_inputs(score, awkward_graph(), 5, 6, 2)
    gradients = make_gradients(inputs)
    gradients["grad_out"][6, 3, 2] = bad
    with np.errstate(invalid="ignore"):
        expected = truth(inputs, gradients)
    for level in each_cpu_level():
        for dtype in ("float32", "float64"):
            for name, array in run_backward(as_type(inputs, dtype), gradients).items():
                finite = np.isfinite(expected[name])
                text = f"{name} {dtype} {level}"
                np.testing.assert_array_equal(np.isfinite(array), finite, err_msg=text)
                assert_close(array[finite], expected[name][finite], GRADIENT_LIMIT[dtype], text)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("score", SCORES)
def test_any_number_of_threads_gives_the_same_bits(ragged, score, options):
    chosen = dict(OPTIONS[options])
    if "targets" in chosen:
        chosen["targets"] = np.random.default_rng(0).permutation(ragged.num_targets)[:290]
    inputs = as_type(make_inputs(score, ragged, 4, 9, 3, **chosen), "float32")
    gradients = make_gradients(inputs)
    expected = run_backward(inputs, gradients, num_threads=1)
    for num_threads in (2, 5, 0):
        got = run_backward(inputs, gradients, num_threads)
        for name, array in expected.items():
            np.testing.assert_array_equal(got[name], array, err_msg=name)


@pytest.mark.parametrize("score", ["gat", "gatv2", "dot"])
def test_repeated_targets_on_several_threads(score):
    """Rows of one target share its edges, also where different threads have them."""
    graph = Graph.from_edge_index(edges_of_degrees([50, 3, 0, 9], 8), (8, 4))
    targets = np.array([0, 3, 1, 0] * 200)
    inputs = as_type(make_inputs(score, graph, 1, 8, 5, targets=targets), "float32")
    gradients = make_gradients(inputs)
    expected = truth(inputs, gradients)
    for _ in range(10):
        for name, array in run_backward(inputs, gradients, num_threads=5).items():
            assert_close(array, expected[name], GRADIENT_LIMIT["float32"], name)


def test_calls_from_several_threads(ragged):
    problems = [as_type(make_inputs(score, ragged, 2, 8, 3), "float32") for score in SCORES] * 2
    gradients = [make_gradients(inputs) for inputs in problems]
    expected = [run_backward(*pair, num_threads=1) for pair in zip(problems, gradients)]
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        found = list(pool.map(run_backward, problems * 3, gradients * 3))
    for got, want in zip(found, expected * 3):
        for name, array in want.items():
            np.testing.assert_array_equal(got[name], array)


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("fan_out", [1, 4, 30])
@pytest.mark.parametrize("score", SCORES)
def test_sampling_inside_equals_sampling_first(score, fan_out, replace):
    graph = awkward_graph()
    targets = np.array([3, 8, 0, 3, 5])
    sampling = {"fan_out": fan_out, "replace": replace, "seed": 77, "hop": 3}
    inputs = make_inputs(score, graph, 3, 8, 2, targets=targets, **sampling)
    gradients = make_gradients(inputs)
    picks = sample_one_hop(graph, targets, **sampling)
    first = dataclasses.replace(
        inputs, graph=Graph(picks.indptr, picks.sources, graph.num_sources), targets=None, fan_out=-1,
        replace=False, edge_features=inputs.edge_features[picks.edge_ids],
    )  # fmt: skip
    for level in each_cpu_level():
        for dtype in ("float32", "float64"):
            got = run_backward(as_type(inputs, dtype), gradients)
            expected = run_backward(as_type(first, dtype), gradients)
            of_edges = np.zeros(inputs.edge_features.shape)
            np.add.at(of_edges, picks.edge_ids, expected["edge_features"])
            expected["edge_features"] = of_edges
            for name, array in got.items():
                assert_close(array, expected[name], GRADIENT_LIMIT[dtype] / 10, f"{name} {dtype} {level}")


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("score", SCORES)
def test_index_types_agree(score, options):
    narrow = awkward_graph()
    wide = widen(narrow)
    inputs = as_type(make_inputs(score, narrow, 3, 8, 3, **OPTIONS[options]), "float32")
    gradients = make_gradients(inputs)
    expected = run_backward(inputs, gradients)
    for name, array in run_backward(dataclasses.replace(inputs, graph=wide), gradients).items():
        np.testing.assert_array_equal(array, expected[name])


@pytest.mark.parametrize("score", SCORES)
def test_any_memory_layout_and_nothing_is_changed(score):
    inputs = as_type(make_inputs(score, awkward_graph(), 3, 5, 2), "float32")
    gradients = {name: array.astype(np.float32) for name, array in make_gradients(inputs).items()}
    expected = run_backward(inputs, gradients)

    def awkward(array):
        view = np.asfortranarray(array).view()
        view.flags.writeable = False
        return view

    outputs = attention_forward(inputs, for_backward=True, return_weights=True)
    kept = {f.name: getattr(outputs, f.name) for f in dataclasses.fields(outputs)}
    locked = dataclasses.replace(outputs, **{n: awkward(a) for n, a in kept.items() if a is not None})
    got = attention_backward(
        map_arrays(inputs, awkward), locked, **{name: awkward(array) for name, array in gradients.items()}
    )
    for name, array in expected.items():
        np.testing.assert_array_equal(getattr(got, name), array)


def test_target_logits_may_be_left_out():
    inputs = make_inputs("gat", awkward_graph(), 3, 4, 2)
    inputs = dataclasses.replace(inputs, target_logits=None)
    gradients = make_gradients(inputs)
    expected = truth(inputs, gradients)
    assert "target_logits" not in expected
    for _ in each_cpu_level():
        assert_backward(inputs, gradients, expected)


@pytest.mark.parametrize("slope", [0.0, 0.01, 1.0, 1.5, -0.5])
@pytest.mark.parametrize("score", ["gat", "gatv2"])
def test_any_slope(score, slope):
    inputs = make_inputs(score, awkward_graph(), 3, 4, 2, negative_slope=slope)
    gradients = make_gradients(inputs)
    expected = truth(inputs, gradients)
    for _ in each_cpu_level():
        assert_backward(inputs, gradients, expected)
