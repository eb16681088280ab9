"""Distributions on nodes with so many in-edges that the incumbent's 16 random bits show: by weight, by time, by both.

In disjoint trees each repetition of a seed draws for itself, so that one call gives many samples of the same node.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import chi2, chisquare

pytest.importorskip("torch_geometric", reason="the layer takes the place of PyTorch Geometric's classes")

import torch
from torch_geometric.data import Data
from torch_geometric.sampler import NodeSamplerInput

from sage_attention.pyg import NeighborSampler

TREES, PICKS, RANGES = 400, 100, 20
degrees = pytest.mark.parametrize("degree", [20_000, 40_000])
replaces = pytest.mark.parametrize("replace", [False, True])


def hub(degree, seed=0):
    """Node 0 with edges from all others, in no order; weights 0 to 6; edge i came at time[i], each at its own."""
    rng = np.random.default_rng(seed)
    time = rng.permutation(degree)
    edges = np.stack([rng.permutation(degree) + 1, np.zeros(degree, np.int64)])
    node_time = np.zeros(degree + 1, np.int64)
    node_time[edges[0]] = time
    return Data(
        edge_index=torch.from_numpy(edges),
        num_nodes=degree + 1,
        weight=torch.from_numpy(rng.integers(0, 7, degree).astype(np.float64)),
        time=torch.from_numpy(node_time),
        edge_time=torch.from_numpy(time),
    )


def picks(data, fan_out, seed_times=None, num_trees=TREES, **options):
    """int64 [num_trees, picks]: the edges each tree has."""
    sampler = NeighborSampler(data, [fan_out], disjoint=True, seed=17, **options)
    times = None if seed_times is None else torch.from_numpy(seed_times)
    out = sampler.sample_from_nodes(NodeSamplerInput(None, torch.zeros(num_trees, dtype=torch.int64), times))
    assert torch.equal(out.col, out.col.sort().values)
    return out.edge.numpy().reshape(num_trees, -1)


def limits(degree, seed=1):
    """Times of seeds, each of which allows a multiple of RANGES edges, at least PICKS of them."""
    rng = np.random.default_rng(seed)
    return rng.integers(PICKS, degree // RANGES, TREES) * RANGES - 1


@degrees
def test_by_weight_with_replacement(degree):
    data = hub(degree)
    weight = data.weight.numpy()
    found = picks(data, PICKS, weight_attr="weight", replace=True).ravel()
    assert len(found) == TREES * PICKS
    for group, count in ((weight.astype(int), 7), (np.arange(degree) * RANGES // degree, RANGES)):
        seen = np.bincount(group[found], minlength=count)
        expected = np.bincount(group, weights=weight, minlength=count)
        assert (seen[expected == 0] == 0).all()
        kept = expected > 0
        assert chisquare(seen[kept], expected[kept] / expected.sum() * len(found)).pvalue > 1e-4


@degrees
def test_one_by_weight(degree):
    """One pick without replacement is in proportion to the weights, exactly."""
    data = hub(degree)
    weight = data.weight.numpy()
    found = picks(data, 1, num_trees=30_000, weight_attr="weight").ravel()
    seen = np.bincount(weight[found].astype(int), minlength=7)
    expected = np.bincount(weight.astype(int), weights=weight)
    assert seen[0] == 0
    assert chisquare(seen[1:], expected[1:] / expected.sum() * len(found)).pvalue > 1e-4


@degrees
@pytest.mark.parametrize("share", [0.15, 0.4])
def test_many_by_weight_without_replacement(degree, share):
    """How many there are of each weight: those whose exponential clocks, as fast as the weights, ring first."""
    data = hub(degree)
    weight = data.weight.numpy().astype(int)
    count, num_trees = int(degree * share), 20
    found = picks(data, count, num_trees=num_trees, weight_attr="weight")
    assert all(len(np.unique(tree)) == count for tree in found)
    seen = np.bincount(weight[found].ravel(), minlength=7)
    assert seen[0] == 0
    numbers, weights = np.bincount(weight)[1:], np.arange(1, 7)
    moment = brentq(lambda t: (numbers * -np.expm1(-weights * t)).sum() - count, 0, 100)
    rung = -np.expm1(-weights * moment)
    # Counts of independent clocks at that moment, given their sum.
    variance = numbers * rung * (1 - rung)
    covariance = np.diag(variance) - np.outer(variance, variance) / variance.sum()
    off = seen[1:] / num_trees - numbers * rung
    statistic = num_trees * off @ np.linalg.pinv(covariance) @ off
    assert chi2.sf(statistic, 5) > 1e-4
    # Draws with replacement would be far off.
    wrong = count * numbers * weights / (numbers * weights).sum()
    off = seen[1:] / num_trees - wrong
    assert chi2.sf(num_trees * off @ np.linalg.pinv(covariance) @ off, 5) < 1e-4


@degrees
@replaces
@pytest.mark.parametrize("time_attr", ["time", "edge_time"])
def test_uniform_among_what_is_old_enough(degree, replace, time_attr):
    data = hub(degree)
    times = limits(degree)
    found = data.edge_time.numpy()[picks(data, PICKS, times, time_attr=time_attr, replace=replace)]
    assert found.shape == (TREES, PICKS)
    assert (found <= times[:, None]).all()
    seen = np.bincount((found * RANGES // (times[:, None] + 1)).ravel(), minlength=RANGES)
    assert chisquare(seen).pvalue > 1e-4
    if not replace:
        assert all(len(np.unique(tree)) == PICKS for tree in found)


@degrees
@replaces
@pytest.mark.parametrize("strict", [False, True])
def test_uniform_within_a_window(degree, replace, strict):
    data = hub(degree)
    window = 600 * RANGES
    times = np.random.default_rng(2).integers(window, degree, TREES)
    options = {"time_attr": "edge_time", "window": window - (not strict), "strict": strict}
    ages = times[:, None] - data.edge_time.numpy()[picks(data, PICKS, times, replace=replace, **options)] - strict
    assert ages.min() >= 0
    assert ages.max() < window
    assert chisquare(np.bincount((ages * RANGES // window).ravel(), minlength=RANGES)).pvalue > 1e-4


@degrees
@replaces
def test_the_latest(degree, replace):
    data = hub(degree)
    times = limits(degree)
    found = data.edge_time.numpy()[
        picks(data, PICKS, times, time_attr="edge_time", temporal_strategy="last", replace=replace)
    ]
    ages = times[:, None] - found
    if replace:  # drawn among the latest
        assert ages.max() < PICKS
        assert chisquare(np.bincount(ages.ravel(), minlength=PICKS)).pvalue > 1e-4
    else:
        assert (np.sort(ages, 1) == np.arange(PICKS)).all()


@degrees
@pytest.mark.parametrize("fan_out", [1, PICKS])
def test_by_weight_among_what_is_old_enough(degree, fan_out):
    """With replacement; and one pick without it."""
    data = hub(degree)
    times = np.tile(limits(degree), PICKS // fan_out)
    found = picks(
        data, fan_out, times, len(times), time_attr="edge_time", weight_attr="weight", replace=fan_out > 1
    )  # fmt: skip
    weight, time = data.weight.numpy().astype(int), data.edge_time.numpy()
    assert (time[found] <= times[:, None]).all()
    # By weight, and by whether it is among the older half of what is allowed.
    older = time[found] * 2 < times[:, None]
    seen = np.bincount((weight[found] * 2 + older).ravel(), minlength=14)
    # Sums of weights of edges up to each time, by weight.
    in_time = np.zeros((7, degree + 1))
    in_time[weight, time + 1] = weight
    sums = in_time.cumsum(1)
    of_all, of_older = sums[:, times + 1], sums[:, (times + 1) // 2]
    parts = np.stack([of_all - of_older, of_older], 1).reshape(14, -1)
    expected = (fan_out * parts / of_all.sum(0)).sum(1)
    assert seen[:2].tolist() == [0, 0]
    assert chisquare(seen[2:], expected[2:]).pvalue > 1e-4
