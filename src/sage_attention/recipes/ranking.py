"""How good rankings are: Recall@K, NDCG@K and MRR over all items, block by block, so that memory stays bounded.

Definitions, those of LightGCN's reference code (He et al. 2020): every item is ranked for every user who has test
items, but for those the user is known to have. With R the user's test items and K the length of the list,

- recall = |R in the first K| / |R|;
- NDCG = the sum over hits of 1/log2(rank + 1), divided by the same sum for min(K, |R|) hits at the top;
- MRR = 1 / rank of the first test item, over the whole ranking.

Each is the mean over these users. Of equal scores the item that comes first is ranked first. Items that cannot be
recommended (scores of minus infinity) are never hits: test items among them count as missed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable

import numpy as np

from sage_attention.errors import ArgumentError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]

__all__ = ["ItemLists", "RankingMetrics", "evaluate_ranking", "top_items"]

_BLOCK_BYTES = 1 << 25  # of scores


@dataclass(frozen=True)
class ItemLists:
    """For each user some items, each once.

    Attributes:
        indptr: int64 [U + 1].
        items: int64 [n], those of user u at positions indptr[u] to indptr[u + 1] - 1.
    """

    indptr: NDArray[np.int64]
    items: NDArray[np.int64]

    @classmethod
    def from_pairs(cls, users: NDArray[np.int64], items: NDArray[np.int64], num_users: int) -> ItemLists:
        """Groups pairs by user.

        Args:
            users: int64 [n].
            items: int64 [n].
            num_users: U.

        Example:
            >>> ItemLists.from_pairs(np.array([1, 0, 1]), np.array([5, 6, 7]), 2).of(1).tolist()
            [5, 7]
        """
        order = np.argsort(users, kind="stable")
        indptr = np.zeros(num_users + 1, np.int64)
        np.cumsum(np.bincount(users, minlength=num_users), out=indptr[1:])
        return cls(indptr, items[order])

    def of(self, user: int) -> NDArray[np.int64]:
        """int64: the items of a user."""
        return self.items[self.indptr[user] : self.indptr[user + 1]]

    def cells(self, users: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows and items of some users' lists, the k-th user being row k."""
        counts = self.indptr[users + 1] - self.indptr[users]
        rows = np.repeat(np.arange(len(users), dtype=np.int64), counts)
        ends = np.cumsum(counts)
        at = np.arange(len(rows), dtype=np.int64) - np.repeat(ends - counts, counts)
        return rows, self.items[np.repeat(self.indptr[users], counts) + at]


@dataclass(frozen=True)
class RankingMetrics:
    """Means over users.

    Attributes:
        recall: Recall@K.
        ndcg: NDCG@K.
        mrr: Mean reciprocal rank.
        num_users: How many users had test items.
        k: K.
    """

    recall: float
    ndcg: float
    mrr: float
    num_users: int
    k: int

    def to_json(self, prefix: str = "") -> dict[str, float]:
        """As ``metrics.json`` holds it.

        Example:
            >>> RankingMetrics(0.25, 0.2, 0.3, 7, 20).to_json("test_")
            {'test_recall@20': 0.25, 'test_ndcg@20': 0.2, 'test_mrr': 0.3, 'test_users': 7}
        """
        return {
            f"{prefix}recall@{self.k}": self.recall,
            f"{prefix}ndcg@{self.k}": self.ndcg,
            f"{prefix}mrr": self.mrr,
            f"{prefix}users": self.num_users,
        }


def top_items(scores: Floats, k: int) -> NDArray[np.int64]:
    """The K best columns of each row, the best first; of equal ones the first first.

    Args:
        scores: float [n, I], no NaN.
        k: K, at least 1; where there are fewer items, all of them.

    Returns:
        int64 [n, min(K, I)].

    Example:
        >>> top_items(np.array([[0.1, 0.5, 0.5, 0.2]]), 3).tolist()
        [[1, 2, 3]]
    """
    k = min(k, scores.shape[1])
    if k == scores.shape[1]:
        return np.argsort(-scores, axis=1, kind="stable").astype(np.int64)
    # The K-th best score of each row; of the columns that have exactly it, the first are taken.
    least = -np.partition(-scores, k - 1, axis=1)[:, k - 1 : k]
    above = scores > least
    equal = scores == least
    left = k - above.sum(axis=1, keepdims=True)
    chosen = above | (equal & (np.cumsum(equal, axis=1) <= left))
    columns = np.nonzero(chosen)[1].reshape(len(scores), k)
    order = np.argsort(-np.take_along_axis(scores, columns, axis=1), axis=1, kind="stable")
    return np.take_along_axis(columns, order, axis=1).astype(np.int64)


def evaluate_ranking(
    score: Callable[[NDArray[np.int64]], Floats],
    num_items: int,
    known: ItemLists,
    wanted: ItemLists,
    k: int = 20,
    *,
    block: int | None = None,
) -> RankingMetrics:
    """Ranks all items for every user who has test items.

    Args:
        score: Given users, int64 [n], their scores of all items, float [n, I]; minus infinity for what cannot be
            recommended, no NaN. The array is written to.
        num_items: I.
        known: What each user is known to have; not ranked.
        wanted: The test items of each user; none of them is known.
        k: Length of the list.
        block: Users at a time; by default as many as 32 MB of scores hold.

    Returns:
        The metrics; zeros where no user has test items.

    Raises:
        ArgumentError: Scores are of another shape or NaN.

    Example:
        >>> known = ItemLists.from_pairs(np.array([0]), np.array([0]), 1)
        >>> wanted = ItemLists.from_pairs(np.array([0]), np.array([2]), 1)
        >>> evaluate_ranking(lambda users: np.array([[0.9, 0.5, 0.3]]), 3, known, wanted, 1).mrr
        0.5
    """
    users = np.flatnonzero(np.diff(wanted.indptr))
    if len(users) == 0:
        return RankingMetrics(0.0, 0.0, 0.0, 0, k)
    rows = block or max(1, _BLOCK_BYTES // (8 * max(num_items, 1)))
    sums = np.zeros(3)
    for start in range(0, len(users), rows):
        some = users[start : start + rows]
        scores = score(some)
        if scores.shape != (len(some), num_items) or np.isnan(scores).any():
            raise ArgumentError("score", f"[{len(some)}, {num_items}] numbers", f"{list(scores.shape)} or NaN")
        scores[known.cells(some)] = -np.inf
        sums += _block_sums(scores, wanted, some, k)
    recall, ndcg, mrr = (sums / len(users)).tolist()
    return RankingMetrics(recall, ndcg, mrr, len(users), k)


def _block_sums(scores: Floats, wanted: ItemLists, users: NDArray[np.int64], k: int) -> NDArray[np.float64]:
    """Sums of recall, NDCG and reciprocal rank over a block of users."""
    rows, items = wanted.cells(users)
    relevant = np.zeros(scores.shape, np.bool_)
    relevant[rows, items] = True
    relevant &= scores > -np.inf
    counts = np.bincount(rows, minlength=len(users))
    top = top_items(scores, k)
    hits = np.take_along_axis(relevant, top, axis=1)
    gains = 1 / np.log2(np.arange(2, k + 2, dtype=np.int64))
    ideal = np.cumsum(gains)
    dcg = (hits * gains[: hits.shape[1]]).sum(axis=1)
    best = np.where(relevant, scores, -np.inf).max(axis=1, keepdims=True)
    first = np.argmax(relevant & (scores == best), axis=1)[:, None]
    before = scores > best
    before |= (scores == best) & (np.arange(scores.shape[1], dtype=np.int64)[None, :] < first)
    rank = 1 + before.sum(axis=1)
    reciprocal = np.where(best[:, 0] > -np.inf, 1 / rank, 0.0)
    return np.array(
        [(hits.sum(axis=1) / counts).sum(), (dcg / ideal[np.minimum(counts, k) - 1]).sum(), reciprocal.sum()]
    )
