"""The numbers behind a report: how often predictions are right, for which classes, at which degrees."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sage_attention.errors import ArgumentError

__all__ = [
    "ClassScore",
    "DegreeBucket",
    "class_scores",
    "condense",
    "confusion_counts",
    "degree_buckets",
    "degree_tail",
    "wilson_interval",
]

Integers = npt.NDArray[np.int64]
_MOST_BUCKETS = 9
_MOST_TAIL_POINTS = 160


@dataclass(frozen=True)
class ClassScore:
    """How one class fared.

    Attributes:
        support: Nodes that are of this class.
        predicted: Nodes that were taken for it.
        right: Nodes that are both.
    """

    support: int
    predicted: int
    right: int

    @property
    def recall(self) -> float | None:
        """Share of the nodes of this class that were recognised; None if there are none."""
        return self.right / self.support if self.support else None

    @property
    def precision(self) -> float | None:
        """Share of the nodes taken for this class that are of it; None if there are none."""
        return self.right / self.predicted if self.predicted else None


@dataclass(frozen=True)
class DegreeBucket:
    """Nodes of similar degree.

    Attributes:
        low: Smallest degree.
        high: Largest degree, inclusive; None if there is no bound.
        total: How many nodes.
        right: How many of them were predicted right.
    """

    low: int
    high: int | None
    total: int
    right: int


def wilson_interval(right: int, total: int) -> tuple[float, float]:
    """95 % interval of a share, by Wilson's formula, which holds up for few nodes and shares near 0 and 1.

    Args:
        right: Successes.
        total: Trials, at least 1.

    Returns:
        Lower and upper bound, within [0, 1].

    Example:
        >>> low, high = wilson_interval(90, 100)
        >>> round(low, 3), round(high, 3)
        (0.826, 0.945)
    """
    z = 1.959964
    share = right / total
    centre = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z / (1 + z * z / total) * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    return max(0.0, centre - half), min(1.0, centre + half)


def _checked_labels(name: str, labels: npt.ArrayLike, num_classes: int) -> Integers:
    values = np.asarray(labels)
    if values.size == 0:
        return np.zeros(0, dtype=np.int64)
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise ArgumentError(name, "integers, shape [N]", f"{values.dtype} of shape {list(values.shape)}")
    if int(values.min()) < 0 or int(values.max()) >= num_classes:
        wrong = values[(values < 0) | (values >= num_classes)][0]
        raise ArgumentError(name, f"classes from 0 to {num_classes - 1}", wrong)
    return values.astype(np.int64)


def confusion_counts(true: npt.ArrayLike, predicted: npt.ArrayLike, num_classes: int) -> Integers:
    """Count which class was taken for which.

    Args:
        true: Class of each node, integers [N].
        predicted: Class predicted for each node, integers [N].
        num_classes: K.

    Returns:
        int64 [K, K]; row: the true class, column: the predicted one.

    Raises:
        ArgumentError: A class is out of range, or the two differ in length.

    Example:
        >>> confusion_counts([0, 1, 1], [0, 1, 0], 2).tolist()
        [[1, 0], [1, 1]]
    """
    rows = _checked_labels("true", true, num_classes)
    columns = _checked_labels("predicted", predicted, num_classes)
    if len(rows) != len(columns):
        raise ArgumentError("predicted", f"one class for each of {len(rows)} nodes", len(columns))
    counts = np.bincount(rows * num_classes + columns, minlength=num_classes * num_classes)
    return counts.reshape(num_classes, num_classes).astype(np.int64)


def class_scores(counts: Integers) -> list[ClassScore]:
    """Read the score of each class off a confusion matrix.

    Args:
        counts: int64 [K, K]; row: the true class, column: the predicted one.

    Returns:
        K scores.
    """
    support, predicted, right = counts.sum(axis=1), counts.sum(axis=0), np.diagonal(counts)
    return [ClassScore(int(a), int(b), int(c)) for a, b, c in zip(support, predicted, right)]


def condense(counts: Integers, most: int) -> tuple[Integers, Integers]:
    """Keep the largest classes of a confusion matrix and lump the others together.

    Args:
        counts: int64 [K, K].
        most: How many classes to keep.

    Returns:
        int64 [most + 1, most + 1], the last row and column being all other classes, and int64 [most], the
        classes kept, largest first. Their own cell holds hits and mistakes alike.
    """
    order = np.argsort(-counts.sum(axis=1), kind="stable").astype(np.int64)
    kept, others = order[:most], order[most:]
    result = np.zeros((most + 1, most + 1), dtype=np.int64)
    result[:most, :most] = counts[np.ix_(kept, kept)]
    result[:most, most] = counts[np.ix_(kept, others)].sum(axis=1)
    result[most, :most] = counts[np.ix_(others, kept)].sum(axis=0)
    result[most, most] = counts[np.ix_(others, others)].sum()
    return result, kept


def degree_buckets(degrees: npt.ArrayLike, correct: npt.ArrayLike) -> list[DegreeBucket]:
    """Group nodes by degree (0, 1, 2-3, 4-7, ...) and count in each group the ones predicted right.

    Args:
        degrees: Degree of each node, integers [N].
        correct: Whether each was predicted right, bool [N].

    Returns:
        At most nine groups without empty ones at the ends; sparse ends are merged.

    Example:
        >>> degree_buckets([0, 2, 3], [True, True, False])[-1]
        DegreeBucket(low=2, high=3, total=2, right=1)
    """
    degree, hits = np.asarray(degrees, dtype=np.int64), np.asarray(correct, dtype=bool)
    if degree.size == 0:
        return []
    # 0 -> 0, 1 -> 1, 2-3 -> 2, 4-7 -> 3: frexp's exponent is exactly the number of binary digits.
    group = np.frexp(degree.astype(np.float64))[1].astype(np.int64)
    totals, rights = np.bincount(group), np.bincount(group, weights=hits)
    buckets = [
        DegreeBucket((1 << one) >> 1, (1 << one) - 1, int(totals[one]), int(rights[one]))
        for one in range(int(group.min()), len(totals))
    ]
    while len(buckets) > _MOST_BUCKETS:
        at_end = buckets[-1].total + buckets[-2].total <= buckets[0].total + buckets[1].total
        first, second = buckets[-2:] if at_end else buckets[:2]
        high = None if at_end else second.high
        merged = DegreeBucket(first.low, high, first.total + second.total, first.right + second.right)
        buckets = [*buckets[:-2], merged] if at_end else [merged, *buckets[2:]]
    return buckets


def degree_tail(degrees: npt.ArrayLike) -> tuple[Integers, npt.NDArray[np.float64]]:
    """Share of the nodes that have at least so many neighbours, for drawing on logarithmic axes.

    Args:
        degrees: Degree of every node, integers [N]; tens of millions are fine.

    Returns:
        Degrees from 1 upwards, int64 [P], and the share of all nodes with at least that degree, float64 [P];
        both ends are kept and P is at most 160.
    """
    values = np.asarray(degrees)
    if values.size == 0:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float64)
    distinct, counts = _count_distinct(values)
    at_least = np.cumsum(counts[::-1])[::-1] / values.size
    keep = distinct >= 1
    distinct, at_least = distinct[keep], at_least[keep]
    if len(distinct) > _MOST_TAIL_POINTS:
        wanted = np.geomspace(float(distinct[0]), float(distinct[-1]), _MOST_TAIL_POINTS - 1)
        places = np.unique(np.minimum(np.searchsorted(distinct, wanted), len(distinct) - 1))
        places = np.unique(np.append(places, len(distinct) - 1))
        distinct, at_least = distinct[places], at_least[places]
    return distinct, at_least


def _count_distinct(values: npt.NDArray[Any]) -> tuple[Integers, Integers]:
    """Distinct degrees, ascending, and how many nodes have each."""
    top = int(values.max())
    if top <= 4 * values.size + 1_000_000:  # counting beats sorting unless one hub would make the table huge
        counts = np.bincount(values)
        distinct = np.flatnonzero(counts)
        return distinct.astype(np.int64), counts[distinct].astype(np.int64)
    distinct, counts = np.unique(values, return_counts=True)
    return distinct.astype(np.int64), counts.astype(np.int64)
