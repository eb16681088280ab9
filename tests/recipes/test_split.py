"""The random split: by class, complete, reproducible."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sage_attention.errors import ArgumentError, DataError
from sage_attention.recipes.split import check_fractions, check_seed, stratified_split

FRACTIONS = st.sampled_from([(0.6, 0.2, 0.2), (0.98, 0.01, 0.01), (0.01, 0.01, 0.98), (0.5, 0.5, 0.0), (1.0, 0.0, 0.0)])


@given(st.lists(st.integers(-1, 4), max_size=80), FRACTIONS, st.integers(0, 2**64 - 1))
def test_parts_are_disjoint_complete_sorted_and_repeatable(labels, fractions, seed):
    array = np.array(labels, np.int64)
    parts = stratified_split(array, fractions, seed)
    for part in parts:
        assert part.dtype == np.int64
        assert (np.diff(part) > 0).all()
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.flatnonzero(array >= 0))
    for part, again in zip(parts, stratified_split(array, fractions, seed)):
        np.testing.assert_array_equal(part, again)


@given(st.lists(st.integers(3, 60), min_size=1, max_size=5), FRACTIONS, st.integers(0, 9))
def test_each_class_of_three_is_in_each_part_in_proportion(sizes, fractions, seed):
    labels = np.repeat(np.arange(len(sizes)), sizes)
    parts = stratified_split(np.random.default_rng(seed).permutation(labels), fractions, seed)
    shuffled = np.random.default_rng(seed).permutation(labels)
    for part, fraction in zip(parts, fractions):
        counts = np.bincount(shuffled[part], minlength=len(sizes))
        if fraction == 0:
            assert part.size == 0
        else:
            assert (counts >= 1).all()
            assert (np.abs(counts - fraction * np.array(sizes)) <= 2).all()


@pytest.mark.parametrize(
    ("fractions", "sizes"),
    [((0.6, 0.2, 0.2), (1, 0, 1)), ((0.5, 0.5, 0.0), (1, 1, 0)), ((1, 0, 0), (2, 0, 0))],
)
def test_class_of_two(fractions, sizes):
    parts = stratified_split(np.array([0, 0]), fractions, 0)
    assert tuple(part.size for part in parts) == sizes


def test_the_split_of_a_seed_is_pinned():
    # Published results name a seed; it must mean the same nodes for ever.
    labels = np.arange(30) % 3
    train, val, test = stratified_split(labels, (0.6, 0.2, 0.2), 7)
    assert train.size == 18
    assert val.tolist() == [10, 18, 24, 26, 28, 29]
    assert test.tolist() == [7, 9, 16, 20, 21, 23]


def test_seeds_differ():
    labels = np.zeros(50, np.int64)
    assert (
        stratified_split(labels, (0.6, 0.2, 0.2), 0)[0].tolist()
        != stratified_split(labels, (0.6, 0.2, 0.2), 1)[0].tolist()
    )


def test_a_node_draws_by_its_position_alone():
    # Taking one class's labels away must not move the others.
    labels = np.arange(60) % 2
    fewer = np.where(labels == 1, -1, labels)
    for part, again in zip(stratified_split(labels, (0.6, 0.2, 0.2), 3), stratified_split(fewer, (0.6, 0.2, 0.2), 3)):
        assert part[labels[part] == 0].tolist() == again.tolist()


@pytest.mark.parametrize("fractions", [(0.6, 0.2, 0.2), [1, 0, 0], (0.7, 0.2, 0.1), np.array([0.5, 0.25, 0.25])])
def test_good_fractions(fractions):
    made = check_fractions(fractions)
    assert all(type(f) is float for f in made)
    assert math.isclose(sum(made), 1)


@pytest.mark.parametrize(
    "fractions",
    [
        (0.6, 0.2),
        (0.5, 0.2, 0.2, 0.1),
        (),
        (0.6, 0.2, 0.1),
        (60, 20, 20),
        (1.2, -0.1, -0.1),
        (math.nan, 0.5, 0.5),
        (math.inf, 0, 0),
        ("a", "b", "c"),
        (None, 0.5, 0.5),
        0.6,
    ],
)
def test_wrong_fractions(fractions):
    with pytest.raises(DataError, match="a split of three fractions") as caught:
        check_fractions(fractions)
    assert "\n" not in str(caught.value)


def test_no_fraction_for_train():
    with pytest.raises(DataError, match="a part for train"):
        check_fractions((0, 0.5, 0.5))


@pytest.mark.parametrize("seed", [-1, 2**64, 0.5, "1", None, True])
def test_wrong_seed(seed):
    with pytest.raises(ArgumentError, match="seed: expected an integer"):
        check_seed(seed)


def test_numpy_seed():
    assert check_seed(np.int32(5)) == 5
