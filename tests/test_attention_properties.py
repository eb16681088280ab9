"""What holds for attention on any graph."""

from __future__ import annotations

import dataclasses

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from attention_cases import FORWARD_LIMIT, SCORES, as_type, make_inputs
from sage_attention import Graph
from sage_attention.attention import attention_forward


@st.composite
def problems(draw):
    """A small graph and a problem on it."""
    num_sources, num_targets = draw(st.integers(1, 12)), draw(st.integers(1, 8))
    edge = st.tuples(st.integers(0, num_sources - 1), st.integers(0, num_targets - 1))
    edges = np.array(draw(st.lists(edge, max_size=90)), np.int64).reshape(-1, 2).T
    graph = Graph.from_edge_index(edges, (num_sources, num_targets))
    score = draw(st.sampled_from(SCORES))
    heads, channels = draw(st.integers(1, 9)), draw(st.integers(1, 19))
    edge_channels, seed = draw(st.integers(0, 3)), draw(st.integers(0, 99))
    inputs = make_inputs(score, graph, heads, channels, edge_channels, data_seed=seed)
    dtype = draw(st.sampled_from(["float32", "float64"]))
    return as_type(inputs, dtype)


def close(got, expected):
    limit = 10 * FORWARD_LIMIT[str(got.dtype)]
    np.testing.assert_allclose(got, expected, rtol=limit, atol=limit)


@settings(max_examples=60, deadline=None)
@given(problems())
def test_weights_of_a_row_sum_to_one(inputs):
    weights = attention_forward(inputs, return_weights=True).weights
    targets = inputs.graph.to_edge_index()[1]
    sums = np.zeros((inputs.graph.num_targets, inputs.heads))
    np.add.at(sums, targets, weights)
    close(sums.astype(weights.dtype), np.minimum(inputs.graph.in_degrees, 1)[:, None] * np.ones(inputs.heads))
    assert (weights >= 0).all()


@settings(max_examples=60, deadline=None)
@given(problems(), st.randoms(use_true_random=False))
def test_order_of_edges_does_not_matter(inputs, random):
    order = list(range(inputs.graph.num_edges))
    random.shuffle(order)
    graph = inputs.graph
    shuffled = Graph.from_edge_index(graph.to_edge_index()[:, order], (graph.num_sources, graph.num_targets))
    features = None if inputs.edge_features is None else inputs.edge_features[order]
    again = dataclasses.replace(inputs, graph=shuffled, edge_features=features)
    a, b = (attention_forward(i, return_weights=True) for i in (inputs, again))
    close(b.out, a.out)
    close(b.weights, a.weights[order])


@settings(max_examples=40, deadline=None)
@given(problems(), st.floats(-50, 50, width=32))
def test_the_same_added_to_all_scores_of_a_row_does_not_matter(inputs, shift):
    """Slope 1 makes scores linear, so that a shift of a target's logits shifts all scores of its row."""
    if inputs.score != "gat":
        return
    inputs = dataclasses.replace(inputs, negative_slope=1.0)
    moved = dataclasses.replace(inputs, target_logits=inputs.target_logits + inputs.values.dtype.type(shift))
    got, expected = attention_forward(moved).out, attention_forward(inputs).out
    atol = 1e-4 if inputs.values.dtype == np.float32 else 1e-12
    np.testing.assert_allclose(got, expected, rtol=0, atol=atol)


@settings(max_examples=60, deadline=None)
@given(problems(), st.integers(0, 7))
def test_a_row_depends_on_its_own_edges_only(inputs, row):
    graph = inputs.graph
    row %= graph.num_targets
    mine = np.flatnonzero(graph.to_edge_index()[1] == row)
    sources = graph.to_edge_index()[0, mine]
    alone = Graph([0, len(mine)], sources, graph.num_sources)
    part = {
        name: array[row : row + 1]
        for name in ("queries", "target_logits", "edge_queries")
        if (array := getattr(inputs, name)) is not None
    }
    if inputs.edge_features is not None:
        part["edge_features"] = inputs.edge_features[mine]
    got = attention_forward(dataclasses.replace(inputs, graph=alone, **part)).out
    np.testing.assert_array_equal(got[0], attention_forward(inputs).out[row])
