"""Full rankings: held against the naive twin on scores with ties, users without items, and blocks of every size."""

from __future__ import annotations

import math

import numpy as np
import pytest

from reference.recommend import ranking_metrics
from sage_attention.errors import ArgumentError
from sage_attention.recipes.ranking import ItemLists, evaluate_ranking, top_items


def lists(of, num_users):
    pairs = np.array([(u, i) for u, items in of.items() for i in items], np.int64).reshape(-1, 2)
    return ItemLists.from_pairs(pairs[:, 0], pairs[:, 1], num_users)


def case(seed, num_users=23, num_items=31):
    chance = np.random.default_rng(seed)
    scores = chance.integers(0, 6, (num_users, num_items)).astype(np.float32)  # equal scores everywhere
    scores[:, chance.random(num_items) < 0.1] = -np.inf
    known, wanted = {}, {}
    for user in range(num_users):
        mixed = chance.permutation(num_items).tolist()
        known[user] = sorted(mixed[: chance.integers(0, 9)])
        wanted[user] = sorted(mixed[10 : 10 + chance.integers(0, 12)])
    return scores, known, wanted


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("k", [1, 5, 31, 40])
def test_metrics_are_those_of_the_naive_twin(seed, k):
    scores, known, wanted = case(seed)
    expected = ranking_metrics(scores.tolist(), known, wanted, k)
    for block in (None, 1, 7):
        lists_of = lists(known, len(scores)), lists(wanted, len(scores))
        made = evaluate_ranking(lambda users: scores[users], scores.shape[1], *lists_of, k, block=block)
        assert (made.recall, made.ndcg, made.mrr) == pytest.approx(expected, abs=1e-12)
        assert made.num_users == sum(bool(items) for items in wanted.values())


def test_items_that_cannot_be_recommended_are_missed():
    scores = np.array([[1.0, -math.inf, 0.5]], np.float32)
    made = evaluate_ranking(lambda _: scores.copy(), 3, lists({}, 1), lists({0: [1, 2]}, 1), 3)
    assert (made.recall, made.mrr) == (0.5, 0.5)
    nothing = evaluate_ranking(lambda _: scores.copy(), 3, lists({}, 1), lists({0: [1]}, 1), 3)
    assert (nothing.recall, nothing.ndcg, nothing.mrr) == (0, 0, 0)


def test_nobody_to_ask():
    made = evaluate_ranking(lambda _: np.zeros((0, 3)), 3, lists({}, 2), lists({}, 2), 3)
    assert (made.recall, made.num_users) == (0, 0)


@pytest.mark.parametrize("scores", [np.zeros((1, 2)), np.array([[1.0, math.nan, 2.0]])])
def test_scores_of_another_shape_or_nan(scores):
    with pytest.raises(ArgumentError, match=r"\[1, 3\] numbers"):
        evaluate_ranking(lambda _: scores, 3, lists({}, 1), lists({0: [1]}, 1), 3)


@pytest.mark.parametrize("seed", range(5))
def test_top_items(seed):
    scores = case(seed)[0]
    for k in (1, 3, 30, 31, 50):
        expected = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        np.testing.assert_array_equal(top_items(scores.copy(), k), expected)
