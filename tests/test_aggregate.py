"""The weighted sum of neighbours' rows against its naive twin."""

from __future__ import annotations

import numpy as np
import pytest

from attention_cases import (
    FORWARD_LIMIT,
    assert_close,
    awkward_graph,
    each_cpu_level,
    edges_of_degrees,
    square_graph,
    widen,
)
from reference import attention as reference
from sage_attention import ArgumentError, Graph
from sage_attention.attention import aggregate


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32).astype(np.float64)


@pytest.mark.parametrize("channels", [1, 3, 4, 7, 8, 9, 31, 32, 64, 65, 100, 200])
@pytest.mark.parametrize("weighted", [False, True])
def test_matches_reference(channels, weighted):
    for graph in (awkward_graph(), square_graph(), widen(awkward_graph())):
        values = numbers(graph.num_sources, channels)
        factors = numbers(graph.num_edges, seed=1) if weighted else None
        expected = reference.aggregate(graph, values, factors)
        for level in each_cpu_level():
            for dtype in ("float32", "float64"):
                typed = None if factors is None else factors.astype(dtype)
                got = aggregate(graph, values.astype(dtype), typed, num_threads=2)
                assert got.dtype == dtype
                assert_close(got, expected, FORWARD_LIMIT[dtype], f"{dtype} {level}")


def test_row_of_thousands_of_edges():
    graph = Graph.from_edge_index(edges_of_degrees([2, 9000, 0, 5], 40), (40, 4))
    values = numbers(40, 5) + 2
    expected = reference.aggregate(graph, values)
    for level in each_cpu_level():
        assert_close(aggregate(graph, values), expected, 1e-11, level)
        assert_close(aggregate(graph, values.astype(np.float32)), expected, 1e-3, level)


@pytest.mark.parametrize(("num_sources", "num_targets"), [(0, 0), (4, 0), (0, 4), (4, 3)])
def test_without_edges(num_sources, num_targets):
    graph = Graph(np.zeros(num_targets + 1, np.int64), np.zeros(0, np.int32), num_sources)
    for _ in each_cpu_level():
        got = aggregate(graph, np.ones((num_sources, 5), np.float32), np.zeros(0, np.float32))
        assert got.shape == (num_targets, 5)
        assert not got.any()


def test_without_channels():
    assert aggregate(awkward_graph(), np.ones((13, 0))).shape == (9, 0)


def test_any_number_of_threads_gives_the_same_bits(ragged):
    values, factors = numbers(ragged.num_sources, 21), numbers(ragged.num_edges)
    expected = aggregate(ragged, values, factors, num_threads=1)
    for num_threads in (2, 5, 0):
        np.testing.assert_array_equal(aggregate(ragged, values, factors, num_threads=num_threads), expected)


def test_not_a_number_stays_where_it_belongs():
    graph = awkward_graph()
    values = numbers(13, 10)
    values[5, 9] = np.nan
    expected = reference.aggregate(graph, values)
    assert np.isnan(expected[:, 9]).any()
    assert not np.isnan(expected[:, :9]).any()
    for _ in each_cpu_level():
        np.testing.assert_array_equal(np.isnan(aggregate(graph, values)), np.isnan(expected))


def test_any_memory_layout():
    graph = awkward_graph()
    values, factors = numbers(13, 6), numbers(graph.num_edges)
    expected = aggregate(graph, values, factors)
    for layout in (np.asfortranarray, lambda a: np.repeat(a, 3, axis=0)[::3]):
        changed = layout(values)
        changed.flags.writeable = False
        np.testing.assert_array_equal(aggregate(graph, changed, layout(factors)), expected)


@pytest.mark.parametrize(
    ("argument", "changes"),
    [
        ("graph", {"graph": [[0, 1], [1, 0]]}),
        ("values", {"values": np.ones(13)}),
        ("values", {"values": np.ones((12, 2))}),
        ("values", {"values": np.ones((13, 2), np.int64)}),
        ("values", {"values": np.ones((13, 2), np.float16)}),
        ("values", {"values": np.ones((13, 2), np.dtype("f4").newbyteorder())}),
        ("values", {"values": None}),
        ("edge_values", {"edge_values": np.ones(3)}),
        ("edge_values", {"edge_values": np.ones((139, 1))}),
        ("edge_values", {"edge_values": np.ones(139, np.float32)}),
        ("num_threads", {"num_threads": -1}),
        ("num_threads", {"num_threads": 1.5}),
    ],
)
def test_refuses(argument, changes):
    arguments = {"graph": awkward_graph(), "values": np.ones((13, 2)), **changes}
    with pytest.raises(ArgumentError) as caught:
        aggregate(**arguments)
    assert caught.value.argument == argument
    assert caught.value.expected
    assert caught.value.got
