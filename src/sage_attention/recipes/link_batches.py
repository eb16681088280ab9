"""Mini-batches of pairs to learn from: a pure function of (seed, epoch, number), made one ahead in a second thread.

Batch b of epoch e holds the b-th piece of the training pairs in the order (seed, e) puts them, items none of its users
is known to have used as negatives, and the neighbours (seed, e, b) samples for all of these. The edges of the pairs
that are to be predicted are taken out of the neighbourhoods: no answer stands in its own question.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from sage_attention.errors import DataError
from sage_attention.graph import Graph
from sage_attention.recipes.batches import ahead, batch_seed
from sage_attention.sampling import SampledSubgraph, sample_neighbours
from sage_attention.torch.ops import Csc

if TYPE_CHECKING:
    from collections.abc import Generator

    from numpy.typing import NDArray

    from sage_attention.recipes.link_graph import MessageGraph
    from sage_attention.recipes.ranking import ItemLists

__all__ = ["LinkBatch", "LinkBatchSource", "Neighbourhood", "draw_negatives", "neighbourhood"]

_ROUNDS = 20


@dataclass(frozen=True)
class Neighbourhood:
    """Some nodes and the sampled nodes around them.

    Attributes:
        nodes: int64 [n], positions in the graph; the seeds come first.
        blocks: The edges of each layer, first layer first; targets are the first nodes.
        features: float32 [E, D] of the first layer's edges; those of a later layer's are the first of them.
        scale: float32 [n].
        num_seeds: How many nodes are seeds.
    """

    nodes: Tensor
    blocks: list[Csc]
    features: Tensor
    scale: Tensor
    num_seeds: int


@dataclass(frozen=True)
class LinkBatch:
    """What one training step needs.

    Attributes:
        around: The nodes and what is around them.
        users: int64 [B], seeds.
        items: int64 [B], seeds: what the users are known to have.
        negatives: int64 [M], seeds: items that stand against those of all pairs; or [B, M], those of each pair.
        known: bool [B, M]: which of the negatives that all pairs share the user is known to have after all; or None.
        correction: float32 [B], added to the logits of negatives: log(items the user does not have / how many of them
            were drawn); or None.
        seed: What the step's randomness starts from.
    """

    around: Neighbourhood
    users: Tensor
    items: Tensor
    negatives: Tensor
    known: Tensor | None
    correction: Tensor | None
    seed: int


def draw_negatives(
    users: NDArray[np.int64],
    amount: int,
    candidates: NDArray[np.int64],
    known: ItemLists,
    generator: np.random.Generator,
) -> NDArray[np.int64]:
    """Items each user is not known to have, drawn uniformly, with replacement.

    Args:
        users: int64 [B].
        amount: How many for each, M.
        candidates: Sorted int64, the items to draw from.
        known: What each user has; each list sorted.
        generator: Of the draws.

    Returns:
        int64 [B, M].

    Raises:
        DataError: A user has all candidates.

    Example:
        >>> from sage_attention.recipes.ranking import ItemLists
        >>> known = ItemLists(np.array([0, 2]), np.array([0, 2]))
        >>> draw_negatives(np.array([0]), 3, np.arange(3), known, np.random.default_rng(0)).tolist()
        [[1, 1, 1]]
    """
    rows = np.repeat(users, amount)
    drawn = candidates[generator.integers(0, len(candidates), len(rows))]
    num_items = int(max(candidates[-1], known.items.max(initial=0))) + 1
    owners = np.repeat(np.arange(len(known.indptr) - 1, dtype=np.int64), np.diff(known.indptr))
    pairs = owners * num_items + known.items  # sorted, as users and each user's items are
    left = np.arange(len(rows), dtype=np.int64)
    for _ in range(_ROUNDS):
        wanted = rows[left] * num_items + drawn[left]
        places = np.minimum(np.searchsorted(pairs, wanted), len(pairs) - 1)
        left = left[pairs[places] == wanted]
        if len(left) == 0:
            return drawn.reshape(len(users), amount)
        drawn[left] = candidates[generator.integers(0, len(candidates), len(left))]
    for place in left.tolist():  # of the few users who have nearly all: what is left is listed
        free = np.setdiff1d(candidates, known.of(int(rows[place])), assume_unique=True)
        if len(free) == 0:
            raise DataError(None, "users who lack at least one item", "a user who has all of them")
        drawn[place] = free[generator.integers(0, len(free))]
    return drawn.reshape(len(users), amount)


def neighbourhood(
    messages: MessageGraph,
    seeds: NDArray[np.int64],
    fan_outs: list[int],
    seed: int,
    without: NDArray[np.bool_] | None = None,
) -> Neighbourhood:
    """Samples what is around some nodes.

    Args:
        messages: The graph.
        seeds: int64 [n], nodes, each once.
        fan_outs: In-edges sampled per node, the seeds' first; -1 for all.
        seed: Names the sample.
        without: bool [E], edges to take out of the sample; or None.
    """
    sample = sample_neighbours(messages.graph, seeds, fan_outs, seed=seed, num_threads=1)
    keep = None if without is None else ~without[sample.edge_ids]
    ends = np.cumsum(sample.num_sampled_nodes, dtype=np.int64)
    blocks = [_block(sample, int(ends[k - 1]), int(ends[k]), keep) for k in range(len(fan_outs), 0, -1)]
    edge_ids = sample.edge_ids if keep is None else sample.edge_ids[keep]
    nodes = np.array(sample.nodes)
    return Neighbourhood(
        torch.from_numpy(nodes),
        blocks,
        torch.from_numpy(messages.features[edge_ids]),
        torch.from_numpy(messages.scale[nodes]),
        len(seeds),
    )


def _block(sample: SampledSubgraph, num_targets: int, num_sources: int, keep: NDArray[np.bool_] | None) -> Csc:
    """In-edges of the first nodes of a sample."""
    indptr = np.array(sample.indptr[: num_targets + 1])
    sources = sample.sources[: indptr[-1]]
    if keep is not None:
        kept = keep[: indptr[-1]]
        sources = sources[kept]
        indptr = np.concatenate([[0], np.cumsum(kept, dtype=np.int64)])[indptr]
    indices = sources.astype(np.int32)
    graph = Graph.from_trusted(indptr, indices, num_sources)
    arrays = (indptr, indices, np.arange(len(indices), dtype=np.int64), *(part.copy() for part in graph.transposed))
    return Csc(*(torch.from_numpy(array) for array in arrays))


class LinkBatchSource:
    """Makes the batches of a data set.

    Args:
        messages: The graph of the training pairs and ties.
        num_users: U; the node of item i is U + i.
        users: int64 [P], of the training pairs.
        items: int64 [P].
        known: The items of each user, sorted.
        fan_outs: In-edges sampled per node, those of the pairs' ends first.
        batch_size: Pairs per batch.
        negatives: How many there are: for all pairs of a batch if `shared`, else for each.
        shared: See `negatives`.
        seed: What everything random starts from.
        num_threads: 1 makes each batch when it is asked for; more make it ahead in a second thread.
    """

    def __init__(
        self,
        messages: MessageGraph,
        num_users: int,
        users: NDArray[np.int64],
        items: NDArray[np.int64],
        known: ItemLists,
        *,
        fan_outs: list[int],
        batch_size: int,
        negatives: int,
        shared: bool,
        seed: int,
        num_threads: int,
    ) -> None:
        self.messages = messages
        self.num_users = num_users
        self.users = users
        self.items = items
        self.known = known
        self.fan_outs = fan_outs
        self.batch_size = batch_size
        self.negatives = negatives
        self.shared = shared
        self.seed = seed
        self.num_threads = num_threads
        self.candidates = np.unique(items)

    def __len__(self) -> int:
        return -(-len(self.users) // self.batch_size)

    def batch(self, order: NDArray[np.int64], epoch: int, number: int) -> LinkBatch:
        """The batch with this number of an epoch whose order of pairs is given."""
        pairs = order[number * self.batch_size : (number + 1) * self.batch_size]
        seed = batch_seed(self.seed, epoch, number)
        generator = np.random.Generator(np.random.Philox(seed))
        users, items = self.users[pairs], self.items[pairs]
        known = correction = None
        if self.shared:
            count = min(self.negatives, len(self.candidates))
            negatives = np.sort(generator.choice(self.candidates, count, replace=False))
            known, correction = self._known(users, negatives)
        else:
            negatives = draw_negatives(users, self.negatives, self.candidates, self.known, generator)
        ends = np.concatenate([users, items + self.num_users, negatives.reshape(-1) + self.num_users])
        seeds, places = np.unique(ends, return_inverse=True)
        where = torch.from_numpy(places.reshape(-1).astype(np.int64))
        without = np.zeros(self.messages.graph.num_edges, np.bool_)
        without[pairs] = without[self.messages.num_pairs + pairs] = True
        return LinkBatch(
            neighbourhood(self.messages, seeds, self.fan_outs, seed, without),
            where[: len(users)],
            where[len(users) : 2 * len(users)],
            where[2 * len(users) :].view(negatives.shape),
            known,
            correction,
            seed,
        )

    def _known(self, users: NDArray[np.int64], negatives: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Which shared negatives each user has, and what makes up for how many of the others were not drawn."""
        column = np.full(int(self.candidates[-1]) + 1, -1, np.int64)
        column[negatives] = np.arange(len(negatives), dtype=np.int64)
        rows, items = self.known.cells(users)
        columns = column[items]
        known = np.zeros((len(users), len(negatives)), np.bool_)
        known[rows[columns >= 0], columns[columns >= 0]] = True
        others = len(self.candidates) - np.diff(self.known.indptr)[users]
        drawn = len(negatives) - known.sum(axis=1)
        correction = np.log(np.maximum(others, 1) / np.maximum(drawn, 1)).astype(np.float32)
        return torch.from_numpy(known), torch.from_numpy(correction)

    def epoch(self, epoch: int) -> Generator[LinkBatch, None, None]:
        """The batches of an epoch, in order."""
        generator = np.random.Generator(np.random.Philox(np.random.SeedSequence([self.seed, epoch])))
        order = generator.permutation(len(self.users)).astype(np.int64)
        yield from ahead(lambda number: self.batch(order, epoch, number), len(self), self.num_threads)
