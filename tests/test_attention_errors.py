"""What attention refuses: every error names the argument, what was expected and what came."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from attention_cases import SCORES, as_type, awkward_graph, make_gradients, make_inputs
from sage_attention import ArgumentError
from sage_attention.attention import (
    attention_backward,
    attention_forward,
    dot_attention,
    gat_attention,
    gatv2_attention,
)

ROWS, SOURCES, EDGES, HEADS, CHANNELS, EDGE_CHANNELS = 9, 13, 139, 3, 4, 2


def problem(score, **options):
    return make_inputs(score, awkward_graph(), HEADS, CHANNELS, EDGE_CHANNELS, **options)


def refused(function, *arguments, **options):
    """Calls and gives the error."""
    with pytest.raises(ArgumentError) as caught:
        function(*arguments, **options)
    error = caught.value
    assert error.argument
    assert error.expected
    assert error.got
    assert str(error).startswith(f"{error.argument}: expected {error.expected}, got {error.got}")
    return error


def test_the_problem_itself_is_fine():
    for score in SCORES:
        assert attention_forward(problem(score)).out.shape == (ROWS, HEADS, CHANNELS)


ARRAYS_OF = {
    "gat": ("values", "source_logits", "target_logits", "edge_features", "edge_weight"),
    "gatv2": ("values", "queries", "attention", "edge_features", "edge_weight"),
    "dot": ("values", "keys", "queries", "edge_features", "edge_queries"),
}
EVERY_ARRAY = [(score, name) for score, names in ARRAYS_OF.items() for name in names]


@pytest.mark.parametrize(("score", "name"), EVERY_ARRAY)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("change", ["longer", "shorter", "empty"])
def test_shapes(score, name, axis, change):
    inputs = problem(score)
    array = getattr(inputs, name)
    length = {"longer": array.shape[axis] + 1, "shorter": array.shape[axis] - 1, "empty": 0}[change]
    changed = np.resize(array, [length if a == axis else n for a, n in enumerate(array.shape)])
    error = refused(attention_forward, dataclasses.replace(inputs, **{name: changed}))
    # Heads and edge channels are taken from values and edge_features: their partners are blamed.
    if axis == 1 and name == "values":
        assert error.argument in ("heads", *ARRAYS_OF[score])
    elif axis == 1 and name == "edge_features":
        assert error.argument in ("edge_weight", "edge_queries")
    else:
        assert error.argument == name


@pytest.mark.parametrize(("score", "name"), EVERY_ARRAY)
@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "complex128", "bool", "object", "<U3"])
def test_element_types(score, name, dtype):
    """The problem is float64."""
    if name == "values" and dtype == "float32":
        pytest.skip("the others are blamed, as below")
    inputs = problem(score)
    changed = getattr(inputs, name).real.astype(dtype)
    assert refused(attention_forward, dataclasses.replace(inputs, **{name: changed})).argument == name


def test_element_type_is_that_of_values():
    inputs = problem("dot")
    error = refused(attention_forward, dataclasses.replace(inputs, values=inputs.values.astype(np.float32)))
    assert error.argument in ARRAYS_OF["dot"]
    assert "float32" in error.expected


@pytest.mark.parametrize("score", SCORES)
def test_another_byte_order(score):
    """Read as it lies there it would be garbage."""
    inputs = as_type(problem(score), np.dtype(np.float32).newbyteorder())
    assert refused(attention_forward, inputs).argument == "values"


@pytest.mark.parametrize(("score", "name"), EVERY_ARRAY)
def test_missing_arrays(score, name):
    inputs = dataclasses.replace(problem(score), **{name: None})
    if name == "target_logits":
        attention_forward(inputs)
        return
    error = refused(attention_forward, inputs)
    partners = ("edge_features", "edge_weight", "edge_queries")
    assert error.argument == name or (name in partners and error.argument in partners)


@pytest.mark.parametrize("score", SCORES)
def test_superfluous_arrays(score):
    names = {name for names in ARRAYS_OF.values() for name in names} - set(ARRAYS_OF[score])
    for name in names:
        error = refused(attention_forward, dataclasses.replace(problem(score), **{name: np.ones((2, 2))}))
        assert error.argument == name


OPTIONS = [
    ("score", {"score": "cosine"}),
    ("score", {"score": 1}),
    ("graph", {"graph": None}),
    ("graph", {"graph": np.ones((2, 5))}),
    ("negative_slope", {"negative_slope": np.nan}),
    ("negative_slope", {"negative_slope": np.inf}),
    ("negative_slope", {"negative_slope": "0.2"}),
    ("negative_slope", {"negative_slope": None}),
    ("scale", {"scale": np.nan}),
    ("scale", {"scale": -np.inf}),
    ("scale", {"scale": [1.0, 2.0]}),
    ("dropout", {"dropout": -0.1}),
    ("dropout", {"dropout": 1.0}),
    ("dropout", {"dropout": 1}),
    ("dropout", {"dropout": np.nan}),
    ("dropout", {"dropout": True}),
    ("dropout", {"dropout": "much"}),
    ("dropout_seed", {"dropout_seed": -1}),
    ("dropout_seed", {"dropout_seed": 2**64}),
    ("dropout_seed", {"dropout_seed": 0.5}),
    ("fan_out", {"fan_out": 0}),
    ("fan_out", {"fan_out": -2}),
    ("fan_out", {"fan_out": 2**32 + 1}),
    ("fan_out", {"fan_out": 2**64}),
    ("fan_out", {"fan_out": 2.0}),
    ("fan_out", {"fan_out": True}),
    ("replace", {"fan_out": 2, "replace": 2}),
    ("replace", {"fan_out": 2, "replace": "no"}),
    ("seed", {"seed": -1}),
    ("seed", {"seed": 2**64}),
    ("hop", {"hop": -1}),
    ("hop", {"hop": 2**31}),
    ("weights_before_dropout", {"weights_before_dropout": None}),
]


@pytest.mark.parametrize(("name", "changes"), OPTIONS)
def test_options(name, changes):
    assert refused(attention_forward, dataclasses.replace(problem("dot"), **changes)).argument == name


@pytest.mark.parametrize("num_threads", [-1, 2**31, 1.0, "2", None])
def test_num_threads(num_threads):
    assert refused(attention_forward, problem("gat"), num_threads=num_threads).argument == "num_threads"


@pytest.mark.parametrize(
    ("targets", "got"),
    [
        ([0, 9, 1], "9"),
        ([0, 1, -1], "-1"),
        ([0, 1, 2**62], str(2**62)),
        ([0.0, 1.0, 2.0], "float64"),
        ([[0, 1, 2]], "1, 3"),
        ([True, False, True], "bool"),
        (2, "[]"),
    ],
)
def test_targets(targets, got):
    inputs = dataclasses.replace(problem("gat", targets=np.array([0, 1, 2])), targets=np.array(targets))
    error = refused(attention_forward, inputs)
    assert error.argument.startswith("targets")
    assert got in error.got


@pytest.mark.parametrize("options", [{"fan_out": 3}, {"targets": np.array([1, 2])}])
def test_weights_of_a_sample(options):
    error = refused(attention_forward, problem("gat", **options), return_weights=True)
    assert error.argument == "return_weights"
    assert "sample first" in error.hint


def test_named_functions_refuse_unknown_options():
    inputs = problem("gat")
    with pytest.raises(TypeError, match="temperature"):
        gat_attention(inputs.graph, inputs.values, inputs.source_logits, temperature=2)


def test_named_functions_name_their_arguments():
    graph, x = awkward_graph(), np.ones((SOURCES, HEADS, CHANNELS))
    assert refused(gat_attention, graph, x, np.ones((SOURCES, 2))).argument == "source_logits"
    assert refused(gatv2_attention, graph, x, x, np.ones((HEADS, CHANNELS))).argument == "queries"
    assert refused(dot_attention, graph, x[:ROWS], x[1:], x).argument == "keys"


def backward_case(score="dot", **options):
    inputs = problem(score, **options)
    outputs = attention_forward(inputs, for_backward=True, return_weights=inputs.attends_whole_graph)
    return inputs, outputs, make_gradients(inputs)


@pytest.mark.parametrize("score", SCORES)
def test_backward_needs_outputs_made_for_it(score):
    inputs, _, gradients = backward_case(score)
    outputs = attention_forward(inputs)
    assert refused(attention_backward, inputs, outputs, gradients["grad_out"]).argument == "outputs"


@pytest.mark.parametrize("name", ["out", "row_max", "row_sum", "edge_out", "weights"])
@pytest.mark.parametrize("change", ["dtype", "rows", "none"])
def test_backward_checks_the_outputs(name, change):
    """Those of another problem would be read beyond their end."""
    inputs, outputs, gradients = backward_case()
    array = getattr(outputs, name)
    changed = {"dtype": array.astype(np.float32), "rows": array[:-1], "none": None}[change]
    error = refused(attention_backward, inputs, dataclasses.replace(outputs, **{name: changed}), **gradients)
    # Without edge_out and weights there may be no gradients of them.
    assert name in error.argument or error.argument in ("outputs", f"grad_{name}")


@pytest.mark.parametrize("name", ["positive_out", "positive_sum"])
@pytest.mark.parametrize("change", ["dtype", "rows", "none"])
def test_backward_checks_the_outputs_of_gat(name, change):
    inputs, outputs, gradients = backward_case("gat")
    array = getattr(outputs, name)
    changed = {"dtype": array.astype(np.float32), "rows": array[:-1], "none": None}[change]
    error = refused(attention_backward, inputs, dataclasses.replace(outputs, **{name: changed}), **gradients)
    assert name in error.argument


@pytest.mark.parametrize("name", ["grad_out", "grad_edge_out", "grad_weights"])
@pytest.mark.parametrize("change", ["dtype", "rows", "columns", "integers"])
def test_backward_checks_the_gradients(name, change):
    inputs, outputs, gradients = backward_case()
    array = gradients[name]
    gradients[name] = {
        "dtype": array.astype(np.float32),
        "rows": array[1:],
        "columns": array[:, :-1],
        "integers": array.astype(np.int64),
    }[change]
    assert refused(attention_backward, inputs, outputs, **gradients).argument == name


def test_backward_without_grad_out():
    inputs, outputs, _ = backward_case()
    assert refused(attention_backward, inputs, outputs, None).argument == "grad_out"


def test_gradients_of_what_there_is_not():
    inputs, outputs, gradients = backward_case("gat")
    gradients["grad_edge_out"] = np.ones((ROWS, HEADS, EDGE_CHANNELS))
    assert refused(attention_backward, inputs, outputs, **gradients).argument == "grad_edge_out"
    inputs, outputs, gradients = backward_case("gat", fan_out=2)
    gradients["grad_weights"] = np.ones((EDGES, HEADS))
    assert refused(attention_backward, inputs, outputs, **gradients).argument == "outputs"


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize(("heads", "channels"), [(0, 4), (3, 0), (0, 0)])
def test_nothing_to_attend_with(score, heads, channels):
    inputs = problem(score)
    values = np.zeros((SOURCES, heads, channels), inputs.values.dtype)
    inputs = dataclasses.replace(inputs, values=values)
    assert "at least one head and one channel" in str(refused(attention_forward, inputs))


def test_backward_of_no_outputs():
    inputs = problem("gat")
    refused(attention_backward, inputs, None, np.zeros((ROWS, HEADS, CHANNELS)))
