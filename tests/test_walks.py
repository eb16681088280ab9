"""Random walks against their naive twin, bit for bit; distributions; ends, restarts, directions; errors."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import chisquare

from reference import walks as reference
from sage_attention import ArgumentError, Graph, random_walk
from sage_attention.walks import RandomWalker


def ragged(rng, num_nodes=40, num_edges=120):
    """Edges with parallel ones, loops and dead ends."""
    edges = rng.integers(0, num_nodes, (2, num_edges))
    return edges[:, edges[0] % 7 != 3]


def rows_of(edges, num_nodes, weights, direction):
    """For each node where it leads to, ascending, the edges and their weights."""
    ends = edges if direction == "along" else edges[::-1]
    kept = np.arange(edges.shape[1]) if weights is None else np.flatnonzero(weights)
    order = [kept[ends[0][kept] == node] for node in range(num_nodes)]
    order = [ids[np.argsort(ends[1][ids], kind="stable")] for ids in order]
    rows = [ends[1][ids].tolist() for ids in order]
    return rows, None if weights is None else [weights[ids].tolist() for ids in order], order


@pytest.mark.parametrize("direction", ["along", "against"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("p", "q"), [(1.0, 1.0), (0.25, 4.0), (1e6, 3.0), (2.0, 0.5)])
@pytest.mark.parametrize("restart", [0.0, 0.2])
def test_against_the_twin(direction, weighted, p, q, restart):
    rng = np.random.default_rng(1)
    edges = ragged(rng)
    weights = rng.integers(0, 4, edges.shape[1]) * rng.choice([1.0, 0.3, 1e-6], edges.shape[1]) if weighted else None
    rows, row_weights, ids = rows_of(edges, 40, weights, direction)
    options = {"restart": restart, "p": p, "q": q, "seed": 2**63 + 5}
    graph = Graph.from_edge_index(edges, 40)
    found = random_walk(graph, range(40), 12, weights=weights, direction=direction, num_walks=2, **options)
    for i in range(80):
        nodes, taken = reference.random_walk(rows, row_weights, i // 2, 12, number=i % 2, **options)
        assert found.nodes[i].tolist() == nodes
        edge_ids = [-1 if edge < 0 else int(ids[at][edge]) for at, edge in zip(nodes, taken)]
        assert found.edge_ids[i].tolist() == edge_ids


@pytest.mark.parametrize("direction", ["along", "against"])
def test_steps_are_edges(direction):
    edges = np.random.default_rng(2).integers(0, 500, (2, 3000))
    for graph in (Graph.from_edge_index(edges, 500), Graph.from_edge_index(edges[:, np.argsort(edges[1])], 500)):
        listed = graph.to_edge_index() if direction == "along" else graph.to_edge_index()[::-1]
        found = random_walk(graph, range(500), 20, direction=direction, p=0.5, q=2)
        step = found.edge_ids >= 0
        np.testing.assert_array_equal(found.nodes[:, :-1][step], listed[0][found.edge_ids[step]])
        np.testing.assert_array_equal(found.nodes[:, 1:][step], listed[1][found.edge_ids[step]])
        # an end is for good, and only where no edge leads on
        ended = found.nodes[:, 1:] < 0
        assert (ended == ~step).all()
        assert (ended[:, 1:] >= ended[:, :-1]).all()
        last = found.nodes[:, :-1][ended & (found.nodes[:, :-1] >= 0)]
        assert not set(last) & set(listed[0])


def test_ids_of_64_bits_and_threads():
    rng = np.random.default_rng(3)
    graph = Graph.from_edge_index(rng.integers(0, 3000, (2, 30_000)), 3000)
    wide = Graph.from_trusted(graph.indptr, graph.indices.astype(np.int64), 3000, graph.edge_ids)
    options = {"p": 0.3, "restart": 0.1, "num_walks": 3, "weights": rng.random(30_000)}
    one = random_walk(graph, range(0, 3000, 2), 10, num_threads=1, **options)
    for other in (
        random_walk(graph, range(0, 3000, 2), 10, num_threads=2, **options),
        random_walk(wide, range(0, 3000, 2), 10, **options),
    ):
        np.testing.assert_array_equal(one.nodes, other.nodes)
        np.testing.assert_array_equal(one.edge_ids, other.edge_ids)


def test_a_walk_does_not_depend_on_the_others():
    graph = Graph.from_edge_index(np.random.default_rng(4).integers(0, 100, (2, 2000)), 100)
    many = random_walk(graph, range(100), 6, num_walks=4, seed=9)
    alone = random_walk(graph, [77], 6, num_walks=2, seed=9)
    np.testing.assert_array_equal(many.nodes[4 * 77 : 4 * 77 + 2], alone.nodes)
    np.testing.assert_array_equal(random_walk(graph, [77, 3, 77], 6, seed=9).nodes[2], alone.nodes[0])
    assert len({tuple(walk) for walk in many.nodes.tolist()}) > 350
    shorter = random_walk(graph, [77], 3, seed=9)
    np.testing.assert_array_equal(shorter.nodes[0], alone.nodes[0, :4])


@pytest.mark.parametrize("weighted", [False, True])
def test_first_steps_follow_the_weights(weighted):
    degree, draws = 50, 40_000
    weights = np.arange(degree) % 5 if weighted else None
    graph = Graph.from_edge_index([np.zeros(degree, np.int64), np.arange(1, degree + 1)])
    found = random_walk(graph, [0], 1, num_walks=draws, weights=weights)
    counts = np.bincount(found.edge_ids[:, 0], minlength=degree)
    expected = np.ones(degree) if weights is None else weights
    assert not counts[expected == 0].any()
    kept = expected > 0
    assert chisquare(counts[kept], expected[kept] * draws / expected.sum()).pvalue > 1e-4


@pytest.mark.parametrize(("p", "q"), [(0.25, 4.0), (4.0, 0.25), (1e9, 1.0)])
@pytest.mark.parametrize("weighted", [False, True])
def test_second_steps_follow_node2vec(p, q, weighted):
    """From 0 to 1, and on to 0 itself or to nodes that 0 does not lead to: by weight 0 it leads nowhere else."""
    ways = [(0, 1), (0, 2), (0, 3), (1, 0), (1, 2), (1, 3), (1, 4), (1, 5)]
    weights = np.array([1.0, 0, 0, 5, 1, 2, 3, 4]) if weighted else None
    if not weighted:  # 2 and 3 are no neighbours of 0 either way
        ways = [(0, 1), (0, 1), *ways[3:]]
    found = random_walk(Graph.from_edge_index(np.transpose(ways)), [0], 2, num_walks=40_000, weights=weights, p=p, q=q)
    counts = np.bincount(found.nodes[:, 2], minlength=6)
    chances = reference.node2vec_chances(0, [0, 2, 3, 4, 5], [1], p, q)
    expected = np.array(chances) * (weights[3:] if weighted else 1)
    expected = expected / expected.sum() * 40_000
    seen, common = counts[[0, 2, 3, 4, 5]], expected > 5
    assert seen[~common].sum() <= 5
    assert chisquare(seen[common], expected[common] / expected[common].sum() * seen[common].sum()).pvalue > 1e-4


def test_neighbours_of_the_node_before():
    """A triangle with a tail: of 1's ways on from 0, 2 is a neighbour of 0, 3 is not."""
    edges = np.array([[0, 0, 1, 1, 1, 2, 2, 3], [1, 2, 0, 2, 3, 0, 1, 1]])
    p, q = 0.5, 8.0
    found = random_walk(Graph.from_edge_index(edges), [0], 2, num_walks=40_000, p=p, q=q, seed=1)
    second = found.nodes[found.nodes[:, 1] == 1][:, 2]
    expected = np.array([1 / p, 0, 1, 1 / q])
    assert expected.tolist() == [2, 0, 1, 0.125]
    counts = np.bincount(second, minlength=4)[[0, 2, 3]]
    assert chisquare(counts, expected[[0, 2, 3]] / expected.sum() * counts.sum()).pvalue > 1e-4


def test_the_only_way_back_is_taken_however_dear():
    graph = Graph.from_edge_index([[0, 1], [1, 0]])
    assert random_walk(graph, [0], 4, p=1e100, q=1e-100).nodes.tolist() == [[0, 1, 0, 1, 0]]


def test_restarts():
    """As often as asked for; the stationary distribution of a chain is that of personalised PageRank."""
    chain = Graph.from_edge_index([np.arange(30), np.arange(1, 31)], 31)
    found = random_walk(chain, [0], 25, restart=0.3, num_walks=4000)
    restarted = (found.edge_ids < 0) & (found.nodes[:, 1:] >= 0)
    assert (found.nodes[:, 1:][restarted] == 0).all()
    z = (restarted.sum() - restarted.size * 0.3) / math.sqrt(restarted.size * 0.21)
    assert abs(z) < 4
    at_end = np.bincount(found.nodes[:, -1], minlength=31)[:8]
    expected = 4000 * 0.3 * 0.7 ** np.arange(8)
    assert chisquare(np.append(at_end, 4000 - at_end.sum()), np.append(expected, 4000 - expected.sum())).pvalue > 1e-4


def test_a_dead_end_may_restart_before_it_ends():
    found = random_walk(Graph.from_edge_index([[0], [1]]), [0], 6, restart=0.5, num_walks=200)
    assert (found.nodes == 0).any(axis=1).all()
    assert (found.nodes[:, -1] == -1).any()
    back = (found.nodes[:, 1:-1] == 1) & (found.nodes[:, 2:] == 0)
    assert back.any()


def test_nothing_to_walk():
    graph = Graph.from_edge_index(np.empty((2, 0), np.int64), 3)
    found = random_walk(graph, [1, 2], 2)
    assert found.nodes.tolist() == [[1, -1, -1], [2, -1, -1]]
    assert found.edge_ids.tolist() == [[-1, -1], [-1, -1]]
    assert random_walk(graph, [], 2).nodes.shape == (0, 3)
    assert random_walk(graph, [1], 0).nodes.tolist() == [[1]]
    assert random_walk(graph, [1], 0).edge_ids.shape == (1, 0)
    no_weight = Graph.from_edge_index([[0, 0], [1, 2]])
    assert random_walk(no_weight, [0], 1, weights=[0, 0]).nodes.tolist() == [[0, -1]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": [3]}, r"seeds: expected values in \[0, 3\), got 3 at position 0"),
        ({"seeds": [0, -1]}, r"seeds: expected values in \[0, 3\), got -1 at position 1"),
        ({"seeds": [0.5]}, "seeds: expected an array of integers"),
        ({"length": -1}, "length: expected an integer"),
        ({"num_walks": 0}, "num_walks: expected an integer"),
        ({"restart": 1.0}, r"restart: expected a number in \[0, 1\), got 1"),
        ({"restart": math.nan}, "restart: expected a number"),
        ({"restart": "0"}, "restart: expected a number, got '0'"),
        ({"p": 0}, "p: expected a number from 1e-100 to 1e[+]?100, got 0"),
        ({"q": math.inf}, "q: expected a number from"),
        ({"q": True}, "q: expected a number, got True"),
        ({"seed": -1}, "seed: expected"),
        ({"weights": [1.0]}, "weights: expected numbers of shape"),
        ({"weights": [1.0, -1.0]}, "weights: expected finite numbers of at least 0"),
        ({"direction": "forward"}, "direction: expected 'along' or 'against', got 'forward'"),
        ({"graph": 3}, "graph: expected a sage_attention.Graph, got int"),
        ({"graph": Graph([0, 1], [0], 5)}, "graph: expected a graph whose sources are its targets"),
    ],
)
def test_errors(change, message):
    arguments = {"graph": Graph.from_edge_index([[0, 1], [1, 2]], 3), "seeds": [0], "length": 2, **change}
    with pytest.raises(ArgumentError, match=message):
        random_walk(**arguments)
    assert RandomWalker(Graph.from_edge_index([[0], [1]])).walk([0], 1).nodes.tolist() == [[0, 1]]
