"""LABOR against its naive twin, bit for bit; probabilities; unbiased weights; fewer distinct nodes; errors."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from scipy.stats import chisquare

from reference import labor as reference
from sage_attention import ArgumentError, Graph, sample_neighbours
from sage_attention.hetero import HeteroSampler, Relation

STRATEGIES = ["labor", "labor_sequential"]


def skewed(rng, num_nodes, num_edges):
    """A graph whose sources are few and popular."""
    sources = (num_nodes * rng.random(num_edges) ** 3).astype(np.int64)
    return Graph.from_edge_index(np.stack([sources, rng.integers(0, num_nodes, num_edges)]), num_nodes)


def star(degree, num_targets=1):
    """Targets 0, 1, ... that all have the same in-edges."""
    sources = np.tile(np.arange(num_targets, num_targets + degree), num_targets)
    return Graph.from_edge_index([sources, np.repeat(np.arange(num_targets), degree)], num_targets + degree)


def naive(graph, seeds, fan_outs, seed, sequential):
    """Several hops, from the picks of single rows."""
    nodes, edges, local = list(seeds), [], {}
    for position, node in enumerate(nodes):
        local.setdefault(node, position)
    begin = 0
    for hop, fan_out in enumerate(fan_outs):
        end = len(nodes)
        for at in range(begin, end):
            first, last = graph.indptr[nodes[at]], graph.indptr[nodes[at] + 1]
            sources = graph.indices[first:last].tolist()
            for pick in reference.pick_labor(seed, hop, sources, fan_out, sequential):
                if sources[pick] not in local:
                    local[sources[pick]] = len(nodes)
                    nodes.append(sources[pick])
                edges.append((local[sources[pick]], at, int(first) + pick))
        begin = end
    return nodes, edges


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("index_dtype", [np.int32, np.int64])
@pytest.mark.parametrize("seed", [0, 2**64 - 1])
def test_against_the_twin(strategy, index_dtype, seed):
    rng = np.random.default_rng(1)
    graph = skewed(rng, 300, 6000)  # parallel edges and self loops among them
    graph = Graph.from_trusted(graph.indptr, graph.indices.astype(index_dtype), graph.num_sources, graph.edge_ids)
    seeds = [5, 7, 5, 0, 299]
    for fan_outs in ([3, 4], [1], [-1, 2], [200, 9, 1]):
        found = sample_neighbours(graph, seeds, fan_outs, seed=seed, strategy=strategy)
        nodes, edges = naive(graph, seeds, fan_outs, seed, strategy == "labor_sequential")
        assert found.nodes.tolist() == nodes
        assert list(zip(found.sources, found.targets, found.positions)) == edges
        np.testing.assert_array_equal(graph.to_edge_index()[0][found.edge_ids], found.nodes[found.sources])


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(("degree", "fan_out"), [(129, 1), (129, 128), (200, 128), (200, 129), (66_000, 129)])
def test_long_rows(strategy, degree, fan_out):
    graph = star(degree)
    found = sample_neighbours(graph, [0], [fan_out], seed=3, strategy=strategy)
    expected = reference.pick_labor(3, 0, range(1, degree + 1), fan_out, strategy == "labor_sequential")
    assert found.positions.tolist() == expected


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_number_of_threads_does_not_matter(strategy):
    graph = skewed(np.random.default_rng(2), 50_000, 600_000)
    seeds = np.arange(0, 50_000, 7)
    one, two = (sample_neighbours(graph, seeds, [5, 5], strategy=strategy, num_threads=n) for n in (1, 2))
    for name in ("nodes", "indptr", "sources", "positions"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
    # batch order changes the order of what is found only
    back = sample_neighbours(graph, seeds[::-1], [5], strategy=strategy)
    forth = sample_neighbours(graph, seeds, [5], strategy=strategy)
    assert set(back.positions) == set(forth.positions)


def test_targets_agree_on_their_sources():
    graph = star(100, num_targets=20)
    for strategy in STRATEGIES:
        found = sample_neighbours(graph, range(20), [10], strategy=strategy)
        assert len(found.nodes) - 20 == len(found.sources) // 20
    uniform = sample_neighbours(graph, range(20), [10])
    assert len(uniform.nodes) - 20 > 80


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_each_in_edge_is_picked_as_often(strategy):
    degree, fan_out, draws = 40, 7, 2500
    graph = star(degree)
    counts, sizes = np.zeros(degree), []
    for seed in range(draws):
        found = sample_neighbours(graph, [0], [fan_out], seed=seed, strategy=strategy, num_threads=1)
        counts[found.positions] += 1
        sizes.append(found.num_edges)
    share = fan_out / degree
    spread = np.sqrt(draws * share * (1 - share))
    assert np.abs((counts - draws * share) / spread).max() < 4.5
    if strategy == "labor_sequential":
        assert set(sizes) == {fan_out}
        return
    # independent coins: the number of picks is binomial
    seen = np.bincount(sizes, minlength=degree + 1)
    rng = np.random.default_rng(0)
    expected = np.bincount(rng.binomial(degree, share, 400_000), minlength=degree + 1) * draws / 400_000
    common = expected >= 10
    seen, expected = np.append(seen[common], seen[~common].sum()), np.append(expected[common], expected[~common].sum())
    assert chisquare(seen, expected).pvalue > 1e-4


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_weighted_sums_are_unbiased_and_vary_as_uniform_ones(strategy):
    """At every target of a graph, in standard errors; and the paper's promise on the variance."""
    rng = np.random.default_rng(4)
    num_nodes, fan_out, draws = 60, 4, 1500
    dense = rng.random((num_nodes, num_nodes)) < 0.3
    targets, sources = np.nonzero(dense)
    graph = Graph.from_edge_index(np.stack([sources, targets]), num_nodes)
    x = rng.standard_normal(num_nodes)
    whole = np.bincount(targets, x[sources], num_nodes)
    estimates = {name: np.zeros((draws, num_nodes)) for name in ("uniform", strategy)}
    for seed in range(draws):
        for name, rows in estimates.items():
            found = sample_neighbours(graph, range(num_nodes), [fan_out], seed=seed, strategy=name, num_threads=1)
            if name == "uniform":
                weights = np.repeat(graph.in_degrees / np.maximum(1, np.diff(found.indptr)), np.diff(found.indptr))
            else:
                weights = found.edge_weights()
            rows[seed] = np.bincount(found.targets, weights * x[found.nodes[found.sources]], num_nodes)
    mean, deviation = estimates[strategy].mean(0), estimates[strategy].std(0)
    sampled = graph.in_degrees > fan_out
    assert sampled.sum() > 50
    assert np.abs((mean - whole)[sampled] / deviation[sampled] * np.sqrt(draws)).max() < 4
    np.testing.assert_allclose(mean[~sampled], whole[~sampled], atol=1e-12)
    ratio = estimates[strategy].var(0)[sampled].sum() / estimates["uniform"].var(0)[sampled].sum()
    # a Poisson sample also varies in size, which Hajek's weights take out
    assert ratio < (1.1 if strategy == "labor_sequential" else 1.5)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_fewer_distinct_nodes_than_uniform(strategy):
    graph = skewed(np.random.default_rng(5), 20_000, 1_200_000)
    seeds = np.arange(2000)
    labor, uniform = (sample_neighbours(graph, seeds, [10, 10], strategy=name) for name in (strategy, "uniform"))
    first_hop = [found.num_sampled_nodes[1] for found in (labor, uniform)]
    assert first_hop[0] < 0.8 * first_hop[1]
    assert labor.num_nodes < 0.8 * uniform.num_nodes
    assert labor.num_sampled_edges[0] > 0.97 * uniform.num_sampled_edges[0]


def test_weights_of_edges():
    graph = Graph.from_edge_index([[1, 2, 3, 4, 0, 5], [0, 0, 0, 0, 1, 1]], 6)
    found = sample_neighbours(graph, [0, 1], [2, -1], strategy="labor_sequential")
    assert found.edge_weights()[:4].tolist() == [2, 2, 1, 1]
    assert set(found.edge_weights()[4:]) <= {1.0}
    sums = np.bincount(found.targets, found.edge_weights(normalise=True))
    np.testing.assert_allclose(sums[sums > 0], 1)
    copy = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(copy.edge_weights(), found.edge_weights())
    np.testing.assert_array_equal(copy.edge_ids, found.edge_ids)


def test_no_seeds_and_no_edges():
    empty = Graph.from_edge_index(np.empty((2, 0), np.int64), 3)
    found = sample_neighbours(empty, [], [2, 2], strategy="labor")
    assert (found.num_nodes, found.num_edges, found.edge_weights().tolist()) == (0, 0, [])
    found = sample_neighbours(empty, [2, 0], [2, 2], strategy="labor_sequential")
    assert (found.nodes.tolist(), found.indptr.tolist()) == ([2, 0], [0, 0, 0])


def test_one_type_agrees_with_the_sampler_over_types():
    graph = skewed(np.random.default_rng(6), 500, 9000)
    sampler = HeteroSampler({("node", "to", "node"): Relation(graph)}, {"node": 500})
    for strategy in STRATEGIES:
        plain = sample_neighbours(graph, [3, 9], [6, 6], seed=8, strategy=strategy)
        found = sampler.sample({"node": [3, 9]}, [6, 6], seed=8, strategy=strategy)
        np.testing.assert_array_equal(found.nodes["node"], plain.nodes)
        np.testing.assert_array_equal(found.edge_ids["node", "to", "node"], plain.edge_ids)


def test_relations_share_the_numbers_of_their_sources():
    """What two relations pick of the same sources are the same nodes; over trees they are not."""
    graph = star(200)
    graph = Graph.from_trusted(graph.indptr, graph.indices, graph.num_sources)
    types = {"person": graph.num_sources}
    likes, knows = ("person", "likes", "person"), ("person", "knows", "person")
    sampler = HeteroSampler({likes: Relation(graph), knows: Relation(graph)}, types)
    found = sampler.sample({"person": [0]}, [20], strategy="labor_sequential")
    assert found.edge_ids[likes].tolist() == found.edge_ids[knows].tolist()
    two_hubs = star(200, num_targets=2)
    sampler = HeteroSampler({likes: Relation(two_hubs)}, {"person": two_hubs.num_sources})
    trees = sampler.sample({"person": [0, 1]}, [20], strategy="labor_sequential", disjoint=True)
    sources = trees.nodes["person"][trees.sources[likes]].reshape(2, 20)
    assert len(set(sources[0]) & set(sources[1])) < 20


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"strategy": "labour"}, "strategy: expected .*'labor_sequential'.*, got 'labour'"),
        ({"strategy": "last"}, "strategy: expected 'uniform', 'labor'"),
        ({"replace": True}, "replace: expected False with strategy 'labor', got True"),
        ({"seeds": [0, 3]}, r"seeds: expected values in \[0, 3\), got 3 at position 1"),
        ({"seeds": [-1]}, r"seeds: expected values in \[0, 3\), got -1 at position 0"),
        ({"fan_outs": [0]}, "fan_outs"),
    ],
)
def test_errors(change, message):
    graph = Graph.from_edge_index([[0, 1], [1, 2]], 3)
    arguments = {"seeds": [0], "fan_outs": [2], "strategy": "labor", **change}
    with pytest.raises(ArgumentError, match=message):
        sample_neighbours(graph, **arguments)


def test_errors_of_the_sampler_over_types():
    graph = Graph.from_edge_index([[0, 1], [1, 2]], 3)
    loop = ("node", "to", "node")
    weighted = HeteroSampler({loop: Relation(graph, weights=[1, 2])}, {"node": 3})
    with pytest.raises(ArgumentError, match=r"strategy: expected 'uniform' or 'last' where edges .* have weights"):
        weighted.sample({"node": [0]}, [1], strategy="labor")
    with pytest.raises(ArgumentError, match="replace: expected False with strategy 'labor'"):
        HeteroSampler({loop: Relation(graph)}, {"node": 3}).sample({"node": [0]}, [1], strategy="labor", replace=True)
    with pytest.raises(ArgumentError, match="edge_weights: expected a sample with strategy 'labor'"):
        sample_neighbours(graph, [0], [1]).edge_weights()
