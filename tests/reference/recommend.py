"""The naive truth for recommenders: rankings and their metrics, one layer after the other. Python only.

Written from the definitions (Recall@K, NDCG@K, MRR; LightGCN: He et al., SIGIR 2020), not from the recipes, and read by
the tests only.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

__all__ = ["lightgcn", "ranking_metrics"]


def ranking_metrics(
    scores: Sequence[Sequence[float]],
    known: Mapping[int, Collection[int]],
    wanted: Mapping[int, Collection[int]],
    k: int,
) -> tuple[float, float, float]:
    """Recall@K, NDCG@K and MRR, each the mean over the users who have wanted items.

    Args:
        scores: Of each user, of each item; minus infinity for items that cannot be recommended.
        known: By user the items that are not ranked.
        wanted: By user the items to find.
        k: Length of the list.

    Example:
        >>> ranking_metrics([[0.9, 0.5, 0.3]], {0: [0]}, {0: [2]}, 2)
        (1.0, 0.6309297535714575, 0.5)
    """
    recalls, ndcgs, reciprocals = [], [], []
    for user, hidden in wanted.items():
        if not hidden:
            continue
        row = scores[user]
        ranked = [i for i in range(len(row)) if i not in known.get(user, ()) and row[i] > -math.inf]
        ranked.sort(key=lambda item: (-row[item], item))
        places = [place for place, item in enumerate(ranked, start=1) if item in hidden]
        recalls.append(sum(place <= k for place in places) / len(hidden))
        ideal = sum(1 / math.log2(place + 1) for place in range(1, min(k, len(hidden)) + 1))
        ndcgs.append(sum(1 / math.log2(place + 1) for place in places if place <= k) / ideal)
        reciprocals.append(1 / places[0] if places else 0.0)
    count = max(len(recalls), 1)
    return sum(recalls) / count, sum(ndcgs) / count, sum(reciprocals) / count


def lightgcn(embedding: Sequence[Sequence[float]], edges: Sequence[tuple[int, int]], layers: int) -> list[list[float]]:
    """The mean of all layers of LightGCN, each the sum over neighbours of 1 / sqrt(degree * degree) of the one before.

    Args:
        embedding: Of each node.
        edges: From, to; every edge in both directions.
        layers: How many.

    Example:
        >>> lightgcn([[1.0], [3.0]], [(0, 1), (1, 0)], 1)
        [[2.0], [2.0]]
    """
    degree = [0] * len(embedding)
    for _, target in edges:
        degree[target] += 1
    x = [list(row) for row in embedding]
    total = [list(row) for row in x]
    for _ in range(layers):
        after = [[0.0] * len(row) for row in x]
        for source, target in edges:
            share = 1 / math.sqrt(degree[source] * degree[target])
            for channel, value in enumerate(x[source]):
                after[target][channel] += share * value
        x = after
        total = [[a + b for a, b in zip(row, more)] for row, more in zip(total, x)]
    return [[value / (layers + 1) for value in row] for row in total]
