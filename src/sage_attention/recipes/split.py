"""Divides labelled nodes into train, val and test: by class, and as a pure function of its arguments."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from sage_attention.errors import ArgumentError, DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["check_fractions", "check_seed", "stratified_split"]


def check_fractions(fractions: Sequence[float]) -> tuple[float, float, float]:
    """Return the three fractions of a split.

    Args:
        fractions: Train, val and test, from 0 to 1, train over 0, together 1.

    Raises:
        DataError: They are not.

    Example:
        >>> check_fractions([0.8, 0.1, 0.1])
        (0.8, 0.1, 0.1)
    """
    expected = "a split of three fractions (train, val, test) that sum to 1"
    try:
        made = tuple(float(f) for f in fractions)
    except (TypeError, ValueError):
        raise DataError(None, expected, repr(fractions)) from None
    if len(made) != 3:
        raise DataError(None, expected, f"{len(made)}: {fractions!r}")
    if not all(0 <= f <= 1 for f in made) or not math.isclose(sum(made), 1, abs_tol=1e-6):
        raise DataError(None, expected, f"{fractions!r}, which sum to {sum(made):g}")
    if made[0] == 0:
        raise DataError(None, "a split with a part for train", repr(fractions), hint="nothing could be learned")
    return made[0], made[1], made[2]


def check_seed(seed: Any) -> int:
    """Return a seed as int.

    Raises:
        ArgumentError: It is not an integer from 0 to 2**64 - 1.
    """
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= int(seed) < 2**64:
        raise ArgumentError("seed", "an integer from 0 to 2**64 - 1", repr(seed))
    return int(seed)


def stratified_split(
    labels: NDArray[np.int64], fractions: tuple[float, float, float], seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Divide the labelled nodes so that each class is divided alike.

    Every node draws one number from Philox by its position, so what a node draws does not depend on the
    labels. Of a class of three or more each part that has a fraction gets at least one node; of two, one is
    for training and the other for testing (for validation if test has no fraction).

    Args:
        labels: int64 [N], -1 = no label. Classes of one member go to train.
        fractions: As `check_fractions` returns them.
        seed: As `check_seed` returns it.

    Returns:
        Train, val and test: sorted int64 positions, disjoint, together all labelled nodes.

    Example:
        >>> train, val, test = stratified_split(np.array([0, 0, 0, -1, 1, 1, 1]), (0.6, 0.2, 0.2), seed=0)
        >>> train.size, val.size, test.size
        (2, 2, 2)
    """
    draws = np.random.Generator(np.random.Philox(seed)).random(labels.size)
    order = np.lexsort((draws, labels))
    order = order[labels[order] >= 0]
    sizes = np.bincount(labels[order])
    parts: tuple[list[Any], list[Any], list[Any]] = ([], [], [])
    start = 0
    for size in sizes[sizes > 0].tolist():
        at = start
        for part, count in zip(parts, _counts(size, fractions)):
            part.append(order[at : at + count])
            at += count
        start += size
    empty = np.empty(0, np.int64)
    train, val, test = (np.sort(np.concatenate([empty, *part])) for part in parts)
    return train, val, test


def _counts(size: int, fractions: tuple[float, float, float]) -> tuple[int, int, int]:
    """Return how many of a class go to each part."""
    wanted = [f > 0 for f in fractions]
    if size == 1:
        return 1, 0, 0
    if size == 2:
        return (1, 0, 1) if wanted[2] else (1, 1, 0) if wanted[1] else (2, 0, 0)
    counts = [0, math.floor(fractions[1] * size + 0.5), math.floor(fractions[2] * size + 0.5)]
    counts[0] = size - counts[1] - counts[2]
    for i in range(3):
        if wanted[i] and counts[i] < 1:
            counts[counts.index(max(counts))] -= 1 - counts[i]
            counts[i] = 1
    return counts[0], counts[1], counts[2]
