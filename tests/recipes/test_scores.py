"""The numbers of the report, against ways to count that nobody can get wrong."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sage_attention.errors import ArgumentError
from sage_attention.recipes import scores
from sage_attention.recipes.scores import DegreeBucket

labels = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=40)
degree_lists = st.lists(st.one_of(st.integers(0, 20), st.integers(0, 2**40)), max_size=60)


@given(labels)
def test_confusion_counts_and_class_scores(pairs):
    true, predicted = [one for one, _ in pairs], [one for _, one in pairs]
    counts = scores.confusion_counts(true, predicted, 5)
    assert counts.shape == (5, 5)
    for row in range(5):
        for column in range(5):
            assert counts[row, column] == pairs.count((row, column))
    for one, score in enumerate(scores.class_scores(counts)):
        assert (score.support, score.predicted) == (true.count(one), predicted.count(one))
        assert score.recall == (pairs.count((one, one)) / true.count(one) if one in true else None)
        assert score.precision == (pairs.count((one, one)) / predicted.count(one) if one in predicted else None)


def test_confusion_refuses_what_does_not_fit():
    with pytest.raises(ArgumentError, match="true: expected classes from 0 to 1, got 2"):
        scores.confusion_counts([2], [0], 2)
    with pytest.raises(ArgumentError, match="predicted"):
        scores.confusion_counts([1, 1], [0], 2)
    with pytest.raises(ArgumentError, match="integers"):
        scores.confusion_counts([0.0], [0], 2)


def test_condensing_keeps_every_node():
    counts = np.random.default_rng(0).integers(0, 9, (20, 20))
    condensed, kept = scores.condense(counts, 6)
    assert condensed.shape == (7, 7)
    assert condensed.sum() == counts.sum()
    sizes = counts.sum(axis=1)
    assert list(kept) == sorted(range(20), key=lambda one: -sizes[one])[:6]
    for row, one in enumerate(kept):
        assert condensed[row].sum() == sizes[one]
        assert condensed[row, row] == counts[one, one]


@given(st.integers(1, 500), st.data())
def test_wilson_holds_the_share(total, data):
    right = data.draw(st.integers(0, total))
    low, high = scores.wilson_interval(right, total)
    assert 0 <= low <= right / total + 1e-12
    assert right / total - 1e-12 <= high <= 1
    assert high - low > 0


@settings(deadline=None)
@given(degree_lists, st.data())
def test_buckets_hold_every_node_once(degrees, data):
    correct = data.draw(st.lists(st.booleans(), min_size=len(degrees), max_size=len(degrees)))
    buckets = scores.degree_buckets(degrees, correct)
    assert len(buckets) <= 9
    assert sum(bucket.total for bucket in buckets) == len(degrees)
    assert sum(bucket.right for bucket in buckets) == sum(correct)
    for before, after in zip(buckets, buckets[1:]):
        assert before.high is not None
        assert before.high + 1 == after.low
    for bucket in buckets:
        top = 2**62 if bucket.high is None else bucket.high
        assert bucket.total == sum(bucket.low <= one <= top for one in degrees)


def test_buckets_are_powers_of_two():
    buckets = scores.degree_buckets([0, 1, 2, 3, 4, 7, 8], [True] * 6 + [False])
    assert buckets == [
        DegreeBucket(0, 0, 1, 1),
        DegreeBucket(1, 1, 1, 1),
        DegreeBucket(2, 3, 2, 2),
        DegreeBucket(4, 7, 2, 2),
        DegreeBucket(8, 15, 1, 0),
    ]


@settings(deadline=None)
@given(degree_lists)
def test_tail_counts_nodes_of_at_least_each_degree(degrees):
    values, shares = scores.degree_tail(np.array(degrees, dtype=np.int64))
    assert values.tolist() == sorted({one for one in degrees if one >= 1})
    for value, share in zip(values, shares):
        assert share == pytest.approx(sum(one >= value for one in degrees) / len(degrees))


def test_a_long_tail_is_thinned_at_its_ends_kept():
    degrees = np.arange(100_000)
    values, shares = scores.degree_tail(degrees)
    assert 50 < len(values) <= 160
    assert (values[0], values[-1]) == (1, 99_999)
    np.testing.assert_allclose(shares, (100_000 - values) / 100_000)
