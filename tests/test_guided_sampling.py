"""Sampling guided by attention: bit for bit the naive model's, and right in distribution."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest

from reference import guided_sampling as reference
from sage_attention import ArgumentError, GatScores, Graph, GuidedOneHop, sample_neighbours, sample_one_hop

STRATEGIES = ("top_attention", "importance")


def gat_scores(graph, heads, dtype=np.float32, scale=2.0, seed=0):
    rng = np.random.default_rng(seed)
    source = (scale * rng.standard_normal((graph.num_sources, heads))).astype(dtype)
    target = rng.standard_normal((graph.num_targets, heads)).astype(dtype)
    return GatScores(source, target, 0.2)


def score_rows(graph, scores, node):
    """The scores of a node's in-edges, in CSC order, as lists of Python floats."""
    begin, end = graph.indptr[node], graph.indptr[node + 1]
    if not isinstance(scores, GatScores):
        ids = np.arange(begin, end) if graph.edge_ids is None else graph.edge_ids[begin:end]
        return np.asarray(scores, np.float64).reshape(graph.num_edges, -1)[ids].tolist()
    z = scores.source_logits[graph.indices[begin:end]].astype(np.float64) + scores.target_logits[node].astype(
        np.float64
    )
    return np.where(z > 0, z, z * scores.negative_slope).tolist()


def check(graph, scores, nodes, fan_out, strategy, **options):
    """The native sample against the naive one, to the bit."""
    found = sample_one_hop(graph, nodes, fan_out, strategy=strategy, scores=scores, **options)
    assert isinstance(found, GuidedOneHop)
    seed, hop = options.get("seed", 0), options.get("hop", 0)
    positions = np.arange(graph.num_edges) if graph.edge_ids is None else graph.edge_ids
    for i, node in enumerate(nodes):
        row = reference.pick_by_attention(score_rows(graph, scores, node), fan_out, strategy, seed, hop, int(node))
        mine = slice(found.indptr[i], found.indptr[i + 1])
        at = graph.indptr[node] + np.array(row.places, np.int64)
        assert found.edge_ids[mine].tolist() == positions[at].tolist()
        assert found.sources[mine].tolist() == graph.indices[at].tolist()
        assert found.probabilities[mine].tolist() == row.probabilities
        if row.places:
            with np.errstate(divide="ignore"):
                rest = np.array(row.row_max) + np.log(np.array(row.rest_sum))
            assert found.rest_logits[i].tolist() == rest.tolist()
    return found


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("fan_out", [1, 2, 5, 17, 60, -1])
@pytest.mark.parametrize(("heads", "dtype"), [(1, np.float32), (3, np.float64)])
def test_ragged_rows_are_those_of_the_naive_model(ragged, strategy, fan_out, heads, dtype, num_threads):
    nodes = np.random.default_rng(1).permutation(np.r_[np.arange(ragged.num_targets), [5, 5]])
    scores = gat_scores(ragged, heads, dtype)
    check(ragged, scores, nodes, fan_out, strategy, seed=2**64 - 3, hop=7, num_threads=num_threads)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_scores_of_edges_are_in_the_callers_order(ragged, strategy, num_threads):
    scores = np.random.default_rng(5).standard_normal((ragged.num_edges, 2)).astype(np.float32)
    check(ragged, scores, np.arange(ragged.num_targets), 4, strategy, num_threads=num_threads)
    check(ragged, scores[:, 0].copy(), np.arange(ragged.num_targets), 4, strategy, num_threads=num_threads)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("values", [0.0, 3e38, -3e38, "ties", "steep"])
def test_equal_and_extreme_scores(ragged, strategy, values):
    rng = np.random.default_rng(2)
    scores = np.full((ragged.num_edges, 2), 0.0 if isinstance(values, str) else values, np.float64)
    if values == "ties":
        scores = rng.integers(0, 3, scores.shape).astype(np.float64)
    if values == "steep":  # most of what is left weighs nothing
        scores = 400.0 * rng.standard_normal(scores.shape)
    found = check(ragged, scores, np.arange(ragged.num_targets), 6, strategy, seed=3)
    assert (found.probabilities > 0).all()
    assert (found.probabilities <= 1).all()


@pytest.mark.parametrize("fan_out", [1, 40_000, 49_999])
@pytest.mark.parametrize("heads", [1, 2])
def test_hubs(hub, fan_out, heads):
    """Against sorting, since the naive model is slow where rows are long."""
    scores = gat_scores(hub, heads, scale=0.3)
    one, two = (
        sample_one_hop(hub, [1, 0, 7], fan_out, strategy="top_attention", scores=scores, num_threads=n) for n in (1, 2)
    )
    assert all(np.array_equal(a, b) for a, b in zip(one, two))
    for i, node in enumerate([1, 0]):
        z = np.array(score_rows(hub, scores, node))
        weights = np.exp(z - z.max(0))
        weights /= weights.sum(0)
        key = z[:, 0] if heads == 1 else weights.max(1)
        wanted = np.argsort(-key, kind="stable")[:fan_out]
        got = one.edge_ids[one.indptr[i] : one.indptr[i + 1]]
        ids = (np.arange(hub.num_edges) if hub.edge_ids is None else hub.edge_ids)[hub.indptr[node] :]
        assert np.array_equal(np.sort(got), np.sort(ids[wanted]))
        rest = np.delete(z, wanted, axis=0)
        assert one.rest_logits[i] == pytest.approx(np.log(np.exp(rest).sum(0)), abs=1e-9)
    a, b = (
        sample_one_hop(hub, [1, 0, 7], fan_out, strategy="importance", scores=scores, seed=4, num_threads=n)
        for n in (1, 2)
    )
    assert all(np.array_equal(x, y) for x, y in zip(a, b))
    assert np.array_equal(a.probabilities, b.probabilities)
    for i in range(2):
        mine = a.edge_ids[a.indptr[i] : a.indptr[i + 1]]
        assert len(np.unique(mine)) == len(mine) == fan_out


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_rows_and_no_edges(strategy):
    empty = Graph.from_edge_index(np.zeros((2, 0), np.int64), num_nodes=3)
    found = sample_one_hop(empty, [2, 0], 3, strategy=strategy, scores=GatScores(np.zeros((3, 1))))
    assert found.indptr.tolist() == [0, 0, 0]
    assert np.isneginf(found.rest_logits).all()
    assert sample_one_hop(empty, [], 3, strategy=strategy, scores=np.zeros((0, 2))).indptr.tolist() == [0]


def test_importance_keeps_its_probabilities():
    """What is returned is how often an edge is picked, and it is in proportion to attention, at most 1."""
    degree, fan_out, draws = 12, 4, 20_000
    graph = Graph(
        np.r_[np.zeros(1, np.int64), np.arange(1, draws + 1) * degree], np.tile(np.arange(degree), draws), degree
    )
    logits = np.linspace(-1.5, 2.5, degree)[np.random.default_rng(0).permutation(degree)]
    found = sample_one_hop(
        graph, np.arange(draws), fan_out, strategy="importance", scores=GatScores(logits[:, None]), seed=11
    )
    often = np.bincount(found.sources, minlength=degree) / draws
    probability = np.zeros(degree)
    probability[found.sources] = found.probabilities
    weights = np.exp(np.where(logits > 0, logits, 0.2 * logits))
    certain = np.zeros(degree, bool)
    while True:
        wanted = weights * (fan_out - certain.sum()) / weights[~certain].sum()
        more = (wanted >= 1) & ~certain
        if not more.any():
            break
        certain |= more
    assert certain.sum() > 0
    assert probability == pytest.approx(np.where(certain, 1.0, wanted), rel=1e-12)
    assert np.abs(often - probability).max() < 5 * np.sqrt(0.25 / draws)
    assert (often[certain] == 1).all()


def test_importance_picks_one_in_proportion_to_attention():
    """Pearson's chi-square of single picks, which are independent draws of one category."""
    degree, draws = 12, 24_000
    graph = Graph(
        np.r_[np.zeros(1, np.int64), np.arange(1, draws + 1) * degree], np.tile(np.arange(degree), draws), degree
    )
    scores = np.random.default_rng(3).permutation(np.linspace(-1.0, 1.5, degree))
    weights = np.exp(scores)
    expected = draws * weights / weights.sum()
    for seed in range(5):
        found = sample_one_hop(
            graph, np.arange(draws), 1, strategy="importance", scores=np.tile(scores, draws), seed=seed
        )
        counts = np.bincount(found.sources, minlength=degree)
        assert counts.sum() == draws
        assert ((counts - expected) ** 2 / expected).sum() < 42.0  # exceeded once in 66,000, 11 degrees of freedom
    assert ((counts - draws / degree) ** 2 * degree / draws).sum() > 1000  # it is not uniform


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_ids_of_both_widths_give_one_sample(strategy):
    rng = np.random.default_rng(6)
    edges = rng.integers(0, 50, (2, 800))
    scores = rng.standard_normal((800, 2))
    found = [
        sample_one_hop(
            Graph.from_edge_index(edges.astype(dtype), 50), np.arange(49, -1, -1, dtype=dtype), 4, strategy=strategy,
            scores=scores, seed=2,
        )
        for dtype in (np.int32, np.int64)
    ]  # fmt: skip
    assert len(found[0].sources) > 150
    for name in ("indptr", "sources", "edge_ids", "probabilities", "rest_logits"):
        narrow, wide = (getattr(one, name) for one in found)
        assert narrow.dtype == wide.dtype
        assert np.array_equal(narrow, wide)


def test_systematic_takes_what_rounding_left_over():
    places, probabilities = reference.systematic([1.0] * 10, 3, 1 - 2**-53)
    assert len(places) == len(probabilities) == 3
    graph = Graph(np.array([0, 10]), np.arange(10), 10)
    for seed in range(500):  # thirds do not add up to one
        check(graph, np.zeros((10, 1)), [0], 3, "importance", seed=seed)


def test_the_exponential_is_exact_enough():
    x = -np.r_[0, np.geomspace(1e-17, 699, 2000), np.linspace(0, 3, 1000)]
    got = np.array([reference.portable_exp(float(v)) for v in x])
    assert got == pytest.approx(np.exp(x), rel=5e-16)
    assert reference.portable_exp(-701.0) == reference.portable_exp(-math.inf) == 0


def test_hops_follow_one_another(ragged):
    square = Graph.from_edge_index(ragged.to_edge_index(), 303)
    by_hop = [gat_scores(square, 2, seed=1), gat_scores(square, 1, seed=2)]
    for strategy in STRATEGIES:
        seeds = [7, 3, 7, 250]
        sample = sample_neighbours(square, seeds, [4, 3], strategy=strategy, scores=by_hop, seed=9)
        assert sample.nodes[:4].tolist() == seeds
        assert len(set(sample.nodes[4:].tolist()) | set(seeds)) == sample.num_nodes - 1
        frontier = (0, 4, sample.num_sampled_nodes[1])
        for hop, fan_out in enumerate([4, 3]):
            begin = sum(frontier[1 : hop + 1])
            nodes = sample.nodes[begin : begin + frontier[hop + 1]]
            one = sample_one_hop(square, nodes, fan_out, strategy=strategy, scores=by_hop[hop], seed=9, hop=hop)
            first = sum(sample.num_sampled_edges[:hop])
            mine = slice(first, first + sample.num_sampled_edges[hop])
            assert np.array_equal(sample.nodes[sample.sources[mine]], one.sources)
            assert np.array_equal(sample.edge_ids[mine], one.edge_ids)
            assert np.array_equal(sample.probabilities[mine], one.probabilities)
        weights = sample.edge_weights(normalise=True)
        counts = np.diff(sample.indptr)
        assert np.bincount(sample.targets, weights, len(counts))[counts > 0] == pytest.approx(1)
        again = pickle.loads(pickle.dumps(sample))
        assert np.array_equal(again.probabilities, sample.probabilities)
        assert np.array_equal(again.edge_ids, sample.edge_ids)


def test_a_sample_can_be_pickled(ragged):
    found = sample_one_hop(ragged, [3, 4], 2, strategy="importance", scores=gat_scores(ragged, 2))
    again = pickle.loads(pickle.dumps(found))
    assert np.array_equal(again.rest_logits, found.rest_logits)
    assert np.array_equal(again.log_corrections, -np.log(found.probabilities))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_scores_that_are_not_finite_are_refused(bad):
    graph = Graph.from_edge_index([[0, 1, 2, 0], [3, 3, 3, 1]])
    source = np.zeros((4, 2), np.float32)
    source[2, 1] = bad
    with pytest.raises(ArgumentError, match=r"source_logits: expected finite numbers, got .* in row 2, head 1"):
        sample_one_hop(graph, [3], 2, strategy="importance", scores=GatScores(source))
    with pytest.raises(ArgumentError, match=r"target_logits: expected finite numbers, got .* in row 3, head 0"):
        sample_one_hop(graph, [3], 2, strategy="importance", scores=GatScores(np.zeros(4), np.array([0, 0, 0, bad])))
    with pytest.raises(ArgumentError, match=r"edge_logits: expected finite numbers, got .* in row 1, head 0"):
        sample_one_hop(graph, [3], 2, strategy="top_attention", scores=np.array([0, bad, 0, 0]))
    # what is not looked at does not matter
    assert sample_one_hop(graph, [1], 2, strategy="importance", scores=GatScores(source)).sources.tolist() == [0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategy": "top"}, "strategy: expected 'uniform', 'top_attention' or 'importance', got 'top'"),
        ({"scores": None}, "scores: expected GatScores or an array"),
        ({"scores": np.zeros((3, 1))}, r"scores: expected shape \[4, H\], got \[3, 1\]"),
        ({"scores": np.zeros((4, 1), int)}, "scores: expected a float32 or float64 array, got int64"),
        ({"scores": GatScores(np.zeros((5, 1)))}, r"source_logits: expected shape \[4, H\], got \[5, 1\]"),
        ({"scores": GatScores(np.zeros((4, 2)), np.zeros((4, 1)))}, r"target_logits: expected shape \[4, 2\]"),
        ({"scores": GatScores(np.zeros(4), np.zeros(4, np.float32))}, "target_logits: expected float64"),
        ({"scores": GatScores(np.zeros(4), None, np.inf)}, "negative_slope: expected a finite number, got inf"),
        ({"scores": GatScores(np.zeros(4), None, "x")}, "negative_slope: expected a number, got 'x'"),
        ({"replace": True}, "replace: expected False with strategy 'top_attention', got True"),
        ({"strategy": "uniform"}, "scores: expected None with strategy 'uniform'"),
        ({"nodes": [4]}, r"nodes: expected values in \[0, 4\), got 4 at position 0"),
    ],
)
def test_errors(options, message):
    graph = Graph.from_edge_index([[0, 1, 2, 0], [3, 3, 3, 1]])
    arguments = {"nodes": [3], "fan_out": 2, "strategy": "top_attention", "scores": np.zeros((4, 1)), **options}
    with pytest.raises(ArgumentError, match=message):
        sample_one_hop(graph, arguments.pop("nodes"), arguments.pop("fan_out"), **arguments)


def test_errors_of_several_hops():
    graph = Graph.from_edge_index([[0, 1, 2, 0], [3, 3, 3, 1]])
    scores = np.zeros((4, 1))
    with pytest.raises(ArgumentError, match="scores: expected scores for all hops, or a list of 2, got a list of 1"):
        sample_neighbours(graph, [3], [1, 1], strategy="importance", scores=[scores])
    with pytest.raises(ArgumentError, match=r"seeds: expected values in \[0, 4\), got -1 at position 1"):
        sample_neighbours(graph, [3, -1], [1], strategy="importance", scores=scores)
    with pytest.raises(ArgumentError, match="replace"):
        sample_neighbours(graph, [3], [1], strategy="importance", scores=scores, replace=True)
    with pytest.raises(ArgumentError, match="scores: expected None"):
        sample_neighbours(graph, [3], [1], scores=scores)
