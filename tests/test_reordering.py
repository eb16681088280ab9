"""Nodes in another order: the same edges, the same results."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from sage_attention import ArgumentError, Graph, MissingDependencyError, gat_attention, sample_one_hop

ORDERS = ("hubs", "locality")


def made(num_nodes=60, num_edges=500, seed=0, dtype=np.int64):
    """Duplicates, self loops, nodes without edges, and a hub."""
    rng = np.random.default_rng(seed)
    edges = rng.integers(0, num_nodes - 5, (2, num_edges)).astype(dtype)
    edges[0, : num_edges // 4] = 7
    edges[:, -3:] = edges[:, :3]
    return Graph.from_edge_index(edges, num_nodes=num_nodes)


@pytest.mark.parametrize("by", ORDERS)
def test_the_edges_are_the_same(by):
    pytest.importorskip("scipy", reason="orders by locality")
    graph = made()
    found = graph.reorder(by)
    assert sorted(found.order.tolist()) == list(range(60))
    assert found.order[found.position].tolist() == list(range(60))
    # In the order the caller passed them, by their old numbers.
    assert found.order[found.graph.to_edge_index()].tolist() == graph.to_edge_index().tolist()
    Graph(found.graph.indptr, found.graph.indices, found.graph.num_sources, found.graph.edge_ids)  # checks


@pytest.mark.parametrize("by", ORDERS)
def test_attention_gives_the_same_bits(by):
    pytest.importorskip("scipy", reason="orders by locality")
    graph = made(300, 4000)
    rng = np.random.default_rng(1)
    values = rng.standard_normal((300, 2, 5), dtype=np.float32)
    logits, edge_features = rng.standard_normal((300, 2), dtype=np.float32), rng.standard_normal((4000, 3), np.float32)
    options = {"edge_features": edge_features, "edge_weight": np.ones((2, 3), np.float32), "dropout": 0.3}
    expected, expected_weights = gat_attention(graph, values, logits, logits, return_weights=True, **options)
    found = graph.reorder(by)
    by_order = values[found.order], logits[found.order], logits[found.order]
    out, weights = gat_attention(found.graph, *by_order, return_weights=True, **options)
    assert out[found.position].tobytes() == expected.tobytes()
    assert weights.tobytes() == expected_weights.tobytes()


def test_hubs_come_first():
    graph = made()
    found = graph.reorder()
    degrees = np.bincount(graph.indices, minlength=60)
    assert found.order[0] == 7
    assert (np.diff(degrees[found.order]) <= 0).all()
    equal = np.diff(degrees[found.order]) == 0
    assert (np.diff(found.order)[equal] > 0).all()  # those of one degree stay in their order


def test_neighbours_get_near_numbers():
    pytest.importorskip("scipy", reason="orders by locality")
    names = np.random.default_rng(3).permutation(2000)
    path = Graph.from_edge_index(np.stack([names[:-1], names[1:]]), num_nodes=2000)
    sources, targets = path.reorder("locality").graph.to_edge_index()
    assert np.abs(sources - targets).max() == 1


@pytest.mark.parametrize("by", ORDERS)
@pytest.mark.parametrize("num_nodes", [0, 1, 4])
def test_graphs_without_edges(by, num_nodes):
    pytest.importorskip("scipy", reason="orders by locality")
    found = Graph.from_edge_index(np.empty((2, 0), np.int64), num_nodes=num_nodes).reorder(by)
    assert found.graph.num_nodes == num_nodes
    assert found.order.tolist() == found.position.tolist() == list(range(num_nodes))


def test_types_are_kept():
    found = made(dtype=np.int32).reorder()
    assert found.graph.indices.dtype == np.int32
    assert [array.dtype for array in (found.order, found.position, found.graph.edge_ids)] == [np.int64] * 3
    assert not found.order.flags.writeable
    again = found.graph.reorder()
    assert again.graph.to_edge_index().tolist() == found.graph.to_edge_index().tolist()  # already so
    assert len(sample_one_hop(found.graph, found.position[[3, 7]], 4).sources) <= 8


def test_errors():
    with pytest.raises(ArgumentError, match="by: expected 'hubs' or 'locality', got 'size'"):
        made().reorder("size")
    with pytest.raises(ArgumentError, match="graph: expected a graph whose sources are its targets"):
        Graph([0, 1], [3], num_sources=5).reorder()


def test_without_scipy(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.sparse", None)
    with pytest.raises(MissingDependencyError, match="scipy"):
        made().reorder("locality")
    assert made().reorder("hubs").graph.num_nodes == 60
