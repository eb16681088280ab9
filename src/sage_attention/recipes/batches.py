"""Mini-batches: a pure function of (seed, epoch, number), made one ahead in a second thread.

Batch b of epoch e holds the b-th piece of the training nodes in the order (seed, e) puts them, and the neighbours
(seed, e, b) samples for them. So a resumed run, or one with other threads, sees the same batches.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, TypeVar

import numpy as np
import torch
from torch import Tensor

from sage_attention.graph import Graph
from sage_attention.inference import feature_graph, is_sparse
from sage_attention.sampling import SampledSubgraph, sample_neighbours
from sage_attention.torch.ops import Csc

if TYPE_CHECKING:
    from collections.abc import Generator

    from numpy.typing import NDArray

__all__ = ["Batch", "BatchSource", "SparseRows", "ahead", "batch_seed"]

T = TypeVar("T")

_AHEAD = 2  # batches in memory beside the one in use
_SECONDS_TO_CTRL_C = 0.25


def batch_seed(seed: int, epoch: int, batch: int) -> int:
    """64 bits that belong to one batch; its sampling and its dropout start from them."""
    return int(np.random.SeedSequence([seed, epoch, batch]).generate_state(1, np.uint64)[0])


@dataclass(frozen=True)
class SparseRows:
    """Some rows of a sparse feature matrix: a graph from columns to rows with a value per edge."""

    graph: Graph
    values: NDArray[np.float32]

    def dropped(self, chance: float) -> SparseRows:
        """The same with each entry set to zero by chance, the others scaled up; from torch's generator."""
        if chance == 0:
            return self
        values = torch.nn.functional.dropout(torch.from_numpy(self.values), chance).numpy()
        return SparseRows(self.graph, values)


@dataclass(frozen=True)
class Batch:
    """What one training step needs.

    Attributes:
        features: The input rows of all nodes of the batch, float32 [n, F] or sparse.
        blocks: The edges of each layer, first layer first; targets are the first nodes.
        labels: int64 [num_seeds].
        seed: What the step's randomness starts from.
    """

    features: Tensor | SparseRows
    blocks: list[Csc]
    labels: Tensor
    seed: int


def _block(sample: SampledSubgraph, num_targets: int, num_sources: int) -> Csc:
    """In-edges of the first nodes of a sample, each node's self loop last."""
    indptr = sample.indptr[: num_targets + 1] + np.arange(num_targets + 1, dtype=np.int64)
    loops = indptr[1:] - 1
    indices = np.empty(indptr[-1], np.int32)
    sampled = np.ones(len(indices), np.bool_)
    sampled[loops] = False
    indices[loops] = np.arange(num_targets, dtype=np.int32)
    indices[sampled] = sample.sources[: sample.indptr[num_targets]]
    graph = Graph.from_trusted(indptr, indices, num_sources)
    by_source = graph.transposed
    arrays = (indptr, indices, np.arange(len(indices), dtype=np.int64), *(array.copy() for array in by_source))
    return Csc(*(torch.from_numpy(array) for array in arrays))


def _result(future: Future[T]) -> T:
    """Waits for a batch in short turns: on Windows nothing, not even Ctrl-C, ends the wait for a lock."""
    while not wait([future], timeout=_SECONDS_TO_CTRL_C).done:
        pass
    return future.result()


def ahead(make: Callable[[int], T], count: int, num_threads: int) -> Generator[T, None, None]:
    """Gives ``make(0)``, ``make(1)`` ... in order.

    Args:
        make: Makes the batch of a number.
        count: How many batches there are.
        num_threads: 1 makes each when it is asked for; more make it ahead in a second thread.

    Example:
        >>> list(ahead(lambda number: number * number, 3, num_threads=2))
        [0, 1, 4]
    """
    if num_threads == 1:
        for number in range(count):
            yield make(number)
        return
    with ThreadPoolExecutor(1) as pool:
        waiting = deque(pool.submit(make, number) for number in range(min(_AHEAD, count)))
        try:
            for number in range(count):
                batch = _result(waiting.popleft())
                if number + _AHEAD < count:
                    waiting.append(pool.submit(make, number + _AHEAD))
                yield batch
        finally:
            for future in waiting:
                future.cancel()


class BatchSource:
    """Makes the batches of a data set.

    Args:
        graph: N nodes, without self loops.
        features: float32 [N, F], dense or SciPy CSR.
        labels: int64 [N].
        nodes: int64, the nodes to learn from.
        fan_outs: In-edges sampled per node, first those of the seeds (the last layer).
        batch_size: Seeds per batch.
        seed: What everything random starts from.
        num_threads: 1 makes each batch when it is asked for; more make it ahead in a second thread.
    """

    def __init__(
        self,
        graph: Graph,
        features: Any,
        labels: NDArray[np.int64],
        nodes: NDArray[np.int64],
        *,
        fan_outs: list[int],
        batch_size: int,
        seed: int,
        num_threads: int,
    ) -> None:
        self.graph = graph
        self.features = features
        self.labels = labels
        self.nodes = nodes
        self.fan_outs = fan_outs
        self.batch_size = batch_size
        self.seed = seed
        self.num_threads = num_threads

    def __len__(self) -> int:
        return -(-len(self.nodes) // self.batch_size)

    def batch(self, order: NDArray[np.int64], epoch: int, number: int) -> Batch:
        """The batch with this number of an epoch whose order of nodes is given."""
        seeds = order[number * self.batch_size : (number + 1) * self.batch_size]
        seed = batch_seed(self.seed, epoch, number)
        sample = sample_neighbours(self.graph, seeds, self.fan_outs, seed=seed, num_threads=1)
        ends = np.cumsum(sample.num_sampled_nodes, dtype=np.int64)
        blocks = [_block(sample, int(ends[k - 1]), int(ends[k])) for k in range(len(self.fan_outs), 0, -1)]
        rows = self.features[sample.nodes]
        features: Tensor | SparseRows
        if is_sparse(self.features):
            features = SparseRows(feature_graph(rows), np.ascontiguousarray(rows.data, dtype=np.float32))
            _ = features.graph.transposed  # here, ahead of the step that needs it
        else:
            features = torch.from_numpy(np.ascontiguousarray(rows, dtype=np.float32))
        return Batch(features, blocks, torch.from_numpy(self.labels[seeds]), seed)

    def epoch(self, epoch: int) -> Generator[Batch, None, None]:
        """The batches of an epoch, in order."""
        generator = np.random.Generator(np.random.Philox(np.random.SeedSequence([self.seed, epoch])))
        order = generator.permutation(self.nodes)
        yield from ahead(lambda number: self.batch(order, epoch, number), len(self), self.num_threads)
