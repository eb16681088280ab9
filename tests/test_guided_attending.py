"""Attention over in-edges that attention picked: against sums written out, and its error beside uniform sampling's."""

from __future__ import annotations

import numpy as np
import pytest

from sage_attention import (
    ArgumentError,
    GatScores,
    Graph,
    attention_error,
    gat_attention,
    guided_attention,
    neighbour_means,
    sample_one_hop,
)

STRATEGIES = ("uniform", "top_attention", "importance")


@pytest.fixture(scope="module")
def case():
    """A ragged square graph without self loops, values [N, 2, 5] and scores."""
    rng = np.random.default_rng(3)
    num_nodes = 120
    degrees = rng.integers(0, 30, num_nodes) * (rng.random(num_nodes) < 0.9)
    targets = np.repeat(np.arange(num_nodes), degrees)
    sources = (targets + rng.integers(1, num_nodes, len(targets))) % num_nodes
    graph = Graph.from_edge_index(rng.permutation(np.stack([sources, targets]), axis=1), num_nodes)
    values = rng.standard_normal((num_nodes, 2, 5))
    scores = GatScores(rng.standard_normal((num_nodes, 2)), rng.standard_normal((num_nodes, 2)), 0.2)
    return graph, values, scores


def naive(graph, values, scores, fan_out, strategy, with_means, self_loops, seed):
    out = np.zeros((graph.num_targets, *values.shape[1:]))
    used = None if strategy == "uniform" else scores
    picks = sample_one_hop(graph, np.arange(graph.num_targets), fan_out, strategy=strategy, scores=used, seed=seed)
    where = np.empty(graph.num_edges, int)
    where[np.arange(graph.num_edges) if graph.edge_ids is None else graph.edge_ids] = np.arange(graph.num_edges)
    for i in range(graph.num_targets):
        mine = slice(picks.indptr[i], picks.indptr[i + 1])
        row = np.arange(graph.indptr[i], graph.indptr[i + 1])
        z = scores.source_logits[graph.indices[row]] + scores.target_logits[i]
        power = np.exp(np.where(z > 0, z, 0.2 * z))
        own = scores.source_logits[i] + scores.target_logits[i]
        loop = np.exp(np.where(own > 0, own, 0.2 * own)) if self_loops else np.zeros(2)
        at = where[picks.edge_ids[mine]] - graph.indptr[i]
        weights = np.zeros_like(power)
        weights[at] = power[at]
        if with_means:
            left = np.setdiff1d(np.arange(len(row)), at)
            weights[left] = power[left].mean(0) if len(left) else 0  # all of their weight, evenly
        elif strategy == "importance":
            weights[at] /= picks.probabilities[mine, None]
        total = weights.sum(0) + loop
        if (total > 0).all():
            out[i] = (np.einsum("eh,ehc->hc", weights, values[graph.indices[row]]) + loop[:, None] * values[i]) / total[
                :, None
            ]
    return out


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("with_means", [False, True])
@pytest.mark.parametrize("self_loops", [False, True])
def test_against_sums_written_out(case, strategy, with_means, self_loops, num_threads):
    graph, values, scores = case
    means = neighbour_means(graph, values) if with_means else None
    options = {"strategy": strategy, "means": means, "self_loops": self_loops, "seed": 5, "num_threads": num_threads}
    got = guided_attention(graph, values, scores, 4, **options)
    wanted = naive(graph, values, scores, 4, strategy, with_means, self_loops, 5)
    assert got == pytest.approx(wanted, rel=1e-9, abs=1e-9)
    nodes = [7, 0, 7, 50]
    assert np.array_equal(guided_attention(graph, values, scores, 4, nodes=nodes, **options), got[nodes])
    narrow = GatScores(*(s.astype(np.float32) for s in scores[:2]))
    options["means"] = means if means is None else means.astype(np.float32)
    in_float = guided_attention(graph, values.astype(np.float32), narrow, 4, **options)
    assert in_float.dtype == np.float32
    if strategy != "importance":  # whose picks may change with the scores' last digits
        assert in_float == pytest.approx(wanted, rel=2e-4, abs=2e-5)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_all_in_edges_are_plain_attention(case, strategy):
    graph, values, scores = case
    full = gat_attention(graph, values, scores.source_logits, scores.target_logits)
    for fan_out in (-1, 30):
        for means in (None, neighbour_means(graph, values)):
            got = guided_attention(graph, values, scores, fan_out, strategy=strategy, means=means)
            assert got == pytest.approx(full, rel=1e-9, abs=1e-12)


def test_scores_of_edges_give_the_same(case):
    graph, values, scores = case
    sources, targets = graph.to_edge_index()
    z = scores.source_logits[sources] + scores.target_logits[targets]
    by_edge = np.where(z > 0, z, 0.2 * z)
    for strategy in STRATEGIES:
        a, b = (guided_attention(graph, values, s, 3, strategy=strategy, seed=2) for s in (scores, by_edge))
        assert a == pytest.approx(b, rel=1e-12)


def test_importance_estimates_full_attention(case):
    """The mean over many samples comes close to attention over all in-edges; plain weights stay off."""
    graph, values, scores = case
    full = guided_attention(graph, values, scores, -1)
    total = np.zeros_like(full)
    for seed in range(400):
        total += guided_attention(graph, values, scores, 6, strategy="importance", seed=seed)
    off = np.linalg.norm(total / 400 - full) / np.linalg.norm(full)
    single = attention_error(graph, values, scores, 6, repeats=20).errors
    assert off < 0.25 * single["importance"]
    assert off < 0.25 * single["top_attention"]


def test_corrected_estimates_are_consistent():
    """Of a long row with steep attention: the error falls with the fan-out where picks are corrected, not without."""
    rng = np.random.default_rng(8)
    degree = 3000
    graph = Graph(np.array([0, degree]), np.arange(degree), degree)
    logits = rng.standard_normal((degree, 1))
    values = (logits + 0.5 * rng.standard_normal((degree, 1)))[:, :, None]  # what is attended differs from the rest
    scores = GatScores(logits, None, 0.2)
    full = float(guided_attention(graph, values, scores, -1)[0, 0, 0])

    def errors(fan_out):
        corrected, plain = [], []
        for seed in range(100):
            picks = sample_one_hop(graph, [0], fan_out, strategy="importance", scores=scores, seed=seed)
            power = np.exp(np.where(logits > 0, logits, 0.2 * logits))[picks.sources, 0]
            plain.append(float(power @ values[picks.sources, 0, 0] / power.sum()) - full)
            corrected.append(
                float(guided_attention(graph, values, scores, fan_out, strategy="importance", seed=seed)[0, 0, 0])
                - full
            )
        return np.sqrt(np.mean(np.square(corrected))), np.sqrt(np.mean(np.square(plain)))

    few, some, many = (errors(fan_out) for fan_out in (10, 100, 1000))
    assert few[0] > 2 * some[0] > 4 * many[0]
    assert many[0] < 0.05 * abs(full)
    assert some[1] > 5 * some[0]


def test_errors_are_reported_beside_uniform(case):
    graph, values, scores = case
    report = attention_error(graph, values, scores, 5, seed=1, repeats=4, self_loops=True)
    assert list(report.errors) == [*STRATEGIES, *(f"{s}, means" for s in STRATEGIES)]
    full = guided_attention(graph, values, scores, -1, self_loops=True)
    top = guided_attention(graph, values, scores, 5, self_loops=True)
    assert report.errors["top_attention"] == pytest.approx(np.linalg.norm(top - full) / np.linalg.norm(full))
    assert report.ratio("top_attention") == report.errors["top_attention"] / report.errors["uniform"]
    assert report.ratio("top_attention, means") < 0.5
    assert 0 < report.flatness < 1
    lines = str(report).splitlines()
    assert len(lines) == 7
    assert lines[1].split() == ["uniform", f"{report.errors['uniform']:.4f}"]
    assert lines[5].endswith(f"{report.ratio('top_attention, means'):.2f} of uniform's")


def test_flat_attention_needs_the_means_alone(case):
    graph, values, _ = case
    report = attention_error(graph, values, GatScores(np.zeros((120, 2))), 3)
    assert report.flatness == pytest.approx(1)
    assert max(report.errors[f"{s}, means"] for s in STRATEGIES) < 1e-12
    assert report.ratio("importance") == pytest.approx(1, abs=0.2)


def test_means_of_neighbours(case):
    graph, values, _ = case
    means = neighbour_means(graph, values)
    for i in range(graph.num_targets):
        row = values[graph.indices[graph.indptr[i] : graph.indptr[i + 1]]]
        assert means[i] == pytest.approx(row.mean(0) if len(row) else np.zeros((2, 5)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategy": "last"}, "strategy: expected 'uniform' or 'top_attention' or 'importance', got 'last'"),
        ({"values": np.zeros((120, 10))}, r"values: expected a float32 or float64 array \[120, H, C\]"),
        ({"means": np.zeros((3, 2, 5))}, r"means: expected shape \[120, 2, 5\], got \[3, 2, 5\]"),
        ({"scores": GatScores(np.zeros((120, 3)))}, "scores: expected 2 heads, as values, got 3"),
        ({"scores": np.zeros((4, 2))}, "scores: expected"),
        ({"scores": np.zeros((4, 2)), "strategy": "uniform"}, "scores: expected GatScores or shape"),
        ({"self_loops": True, "scores": "edges"}, "self_loops: expected False with scores of edges"),
        ({"nodes": [120]}, "nodes: expected values in"),
        ({"graph": 3}, "graph: expected a sage_attention.Graph"),
    ],
)
def test_errors(case, options, message):
    graph, values, scores = case
    arguments = {"graph": graph, "values": values, "scores": scores, "fan_out": 2, **options}
    if isinstance(arguments["scores"], str):
        arguments["scores"] = np.zeros((graph.num_edges, 2))
    with pytest.raises(ArgumentError, match=message):
        guided_attention(**arguments)


def test_more_errors(case):
    graph, values, scores = case
    with pytest.raises(ArgumentError, match="repeats: expected an integer in"):
        attention_error(graph, values, scores, 2, repeats=0)
    with pytest.raises(ArgumentError, match=r"values: expected shape \[120, \.\.\.\], got \[3, 1\]"):
        neighbour_means(graph, np.zeros((3, 1)))
