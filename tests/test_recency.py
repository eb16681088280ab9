"""Weights that fade with age: the power, the sums, distributions, extremes, errors. `test_hetero.py` has the twin."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import chisquare

from reference.recency import faded
from sage_attention import ArgumentError, Graph
from sage_attention.hetero import HeteroSampler, Relation

LOOP = ("node", "to", "node")


def star(times, weights=None):
    """A target, 0, with an in-edge of each time."""
    edges = np.stack([np.arange(1, len(times) + 1), np.zeros(len(times), np.int64)])
    relation = Relation(Graph.from_edge_index(edges, len(times) + 1), times, weights)
    return HeteroSampler({LOOP: relation}, {"node": len(times) + 1})


def picked(sampler, now, fan_out, decay, seed=0, **options):
    options = {"seed_times": {"node": [now]}, "disjoint": True, "strategy": "recency", **options}
    found = sampler.sample({"node": [0]}, [fan_out], decay=decay, seed=seed, num_threads=1, **options)
    return found.edge_ids[LOOP]


def counted(sampler, now, fan_out, decay, draws, **options):
    counts = np.zeros(sampler.num_nodes["node"] - 1)
    for seed in range(draws):
        np.add.at(counts, picked(sampler, now, fan_out, decay, seed, **options), 1)
    return counts


def assert_follows(counts, mass):
    """Chi-square with what is rare put together."""
    expected = np.asarray(mass) / np.sum(mass) * counts.sum()
    assert not counts[expected == 0].any()
    common = expected >= 5
    seen, wanted = counts[common], expected[common]
    if (~common).any() and expected[~common].sum() > 1:
        seen, wanted = np.append(seen, counts[~common].sum()), np.append(wanted, expected[~common].sum())
    assert chisquare(seen, wanted / wanted.sum() * seen.sum()).pvalue > 1e-4


def test_the_power_is_that_of_the_twin_to_the_bit_and_right():
    rng = np.random.default_rng(1)
    few = [0, 1, 2, 3, 2**31, 2**53 + 1, 2**62]
    ages = np.concatenate([few, rng.integers(0, 2**40, 400), rng.integers(0, 90, 400)])
    targets = np.repeat(np.arange(len(ages)), 2)
    times = np.stack([np.zeros_like(ages), ages], 1).ravel()
    edges = np.stack([np.zeros_like(targets), targets])
    relation = Relation(Graph.from_edge_index(edges, (1, len(ages))), times, np.tile([2.0**40, 2.0**-40], len(ages)))
    for decay in (0.0, 1e-12, 0.1, math.log(2), 1.0, 7.77, 1e100):
        # 2^80 of what fades to one that does not: what is left of it stands alone
        left = relation.recency_sums(decay)[1::2] - 2.0**-40
        twin = np.array([faded(2.0**40, decay, int(age)) + 2.0**-40 - 2.0**-40 for age in ages])
        np.testing.assert_array_equal(left, twin)
        exact = np.array([math.exp(-decay * float(age)) if decay * float(age) < 690 else 0.0 for age in ages])
        bound = 2e-15 + 2e-16 * np.minimum(decay * ages.astype(float), 700)
        assert (np.abs([faded(1.0, decay, int(age)) for age in ages] - exact) <= bound * exact + 1e-299).all()


def test_the_power_at_every_place_between_two_halvings():
    xs = np.linspace(0, 30, 40_001)
    twin = np.array([faded(1.0, x, 1) for x in xs])
    exact = np.exp(-xs)
    assert (np.abs(twin / exact - 1) < 2e-14).all()
    near = xs < 0.34
    assert (np.abs(twin[near] / exact[near] - 1) < 1e-15).all()


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("decay", [0.0, 0.05, 0.7])
def test_draws_follow_age_and_weight(replace, weighted, decay):
    rng = np.random.default_rng(2)
    times = rng.integers(0, 60, 80)
    weights = rng.integers(0, 4, 80) if weighted else None
    sampler = star(times, weights)
    now = 40
    mass = np.exp(-decay * (now - times.astype(float))) * (times <= now) * (1 if weights is None else weights)
    fan_out, draws = (30, 600) if replace else (1, 6000)
    assert_follows(counted(sampler, now, fan_out, decay, draws, replace=replace), mass)


@pytest.mark.parametrize("decay", [0.5, 9.0, 400.0])
def test_without_replacement_is_successive_sampling(decay):
    """All ordered pairs; with a large decay the second is found by walking through what is left."""
    times, draws = np.array([5, 0, 4, 4]), 8000
    sampler = star(times)
    counts = {}
    for seed in range(draws):
        pair = tuple(picked(sampler, 7, 2, decay, seed).tolist())
        counts[pair] = counts.get(pair, 0) + 1
    mass = np.exp(-decay * (5 - times.astype(float)))
    pairs = [(a, b) for a in range(4) for b in range(4) if a != b]
    # of what is left, seen from the latest of it: nothing vanishes
    left = {a: np.exp(-decay * (max(times[i] for i in range(4) if i != a) - times.astype(float))) for a in range(4)}
    expected = np.array(
        [mass[a] / mass.sum() * left[a][b] / sum(left[a][i] for i in range(4) if i != a) for a, b in pairs]
    )
    assert_follows(np.array([counts.get(pair, 0) for pair in pairs]), expected)


def test_window_and_strictness_limit_what_fades():
    times = np.arange(50)
    sampler = star(times)
    counts = counted(sampler, 40, 20, 0.1, 400, replace=True, window=10, strict=True)
    assert_follows(counts, np.exp(0.1 * (times - 40.0)) * (times >= 30) * (times < 40))


def test_trees_without_a_time_see_from_the_latest():
    times = np.array([0, 10, 20])
    counts = counted(star(times), 0, 20, 0.1, 300, replace=True, seed_times=None, disjoint=False)
    assert_follows(counts, np.exp(0.1 * times))


def test_extremes():
    low, high = -(2**63), 2**63 - 1
    sampler = star([low, 0, high])
    for decay in (0.0, 1e-19, 1.0, 1e100):
        assert sorted(picked(sampler, high, 3, decay)) == [0, 1, 2]
    assert picked(sampler, high, 5, 1.0, replace=True).tolist() == [2] * 5
    assert picked(sampler, high, 2, 1e100).tolist() == [2, 1]
    assert picked(sampler, 0, 1, 1e100).tolist() == [1]
    assert picked(sampler, low, 5, 1.0, replace=True).tolist() == [0] * 5
    assert picked(sampler, low, 5, 1.0, replace=True, strict=True).tolist() == []
    same_time = counted(star(np.full(6, 3)), 3, 12, 1e100, 300, replace=True)
    assert_follows(same_time, np.ones(6))


def test_a_hub_of_many_ages():
    """Sums far beyond what the powers of the times themselves could hold."""
    times = np.arange(100_000) * 10
    sampler = star(times)
    for now in (999_990, 500_000, 37):
        counts = counted(sampler, now, 100, 0.01, 60, replace=True)
        ages = now - times.astype(float)
        assert_follows(counts, np.where(ages < 0, 0, np.exp(-0.01 * np.maximum(ages, 0))))


def test_relations_without_times_do_not_fade():
    edges = Graph.from_edge_index([[1, 2, 3], [0, 0, 0]], 4)
    plain, timed = ("node", "plain", "node"), ("node", "timed", "node")
    sampler = HeteroSampler({plain: Relation(edges), timed: Relation(edges, times=[0, 1, 2])}, {"node": 4})
    options = {"seed_times": {"node": [2]}, "disjoint": True, "replace": True}
    found = sampler.sample({"node": [0]}, [50], strategy="recency", decay=1e3, **options)
    assert found.edge_ids[timed].tolist() == [2] * 50
    assert found.edge_ids[plain].tolist() == sampler.sample({"node": [0]}, [50], **options).edge_ids[plain].tolist()
    assert len(set(found.edge_ids[plain].tolist())) == 3


def test_another_decay_is_another_distribution():
    sampler = star([0, 10])
    fast, slow = (counted(sampler, 10, 50, decay, 20, replace=True) for decay in (1.0, 0.0))
    again = counted(sampler, 10, 50, 1.0, 20, replace=True)
    assert fast[0] == again[0] < 10
    assert slow[0] > 400


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategy": "recency"}, "decay: expected a number with strategy 'recency', got None"),
        ({"strategy": "recency", "decay": -0.1}, r"decay: expected a number in \[0, 1e\+100\], got -0.1"),
        ({"strategy": "recency", "decay": math.nan}, "decay: expected a number in"),
        ({"strategy": "recency", "decay": math.inf}, "decay: expected a number in"),
        ({"strategy": "recency", "decay": "1"}, "decay: expected a number with"),
        ({"strategy": "last", "decay": 1.0}, "decay: expected None with strategy 'last', got 1.0"),
    ],
)
def test_errors(options, message):
    with pytest.raises(ArgumentError, match=message):
        star([1, 2]).sample({"node": [0]}, [1], **options)
