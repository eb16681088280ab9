"""Who samples mini-batches, each from seeds of its own: on shared ones, who comes later finds them in the cache."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

import numpy as np

from sage_attention.errors import SageAttentionError
from sage_attention.sampling import sample_neighbours

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from sage_attention.bench.problem import Problem

__all__ = ["PYG_LIB", "PygLibSampler", "Sampler", "pyg_lib_missing", "pyg_lib_samplers"]

PYG_LIB = "pyg-lib"
_SEEDS = 1024


class Sampler:
    """Ours, from NumPy alone.

    Args:
        problem: The graph.
        fan_outs: In-edges of each node, hop by hop.
        threads: How many to use.

    Attributes:
        edges: How many edges each batch had.
    """

    contender = "ours"

    def __init__(self, problem: Problem, fan_outs: Sequence[int], threads: int) -> None:
        self.problem = problem
        self.fan_outs = list(fan_outs)
        self.threads = threads
        self.edges: list[int] = []
        self._batch = 0
        self._rng = np.random.default_rng([problem.seed, threads, *fan_outs, *self.contender.encode()])
        self.seeds: NDArray[np.int64] = np.empty(0, np.int64)
        self.renew()

    @property
    def step(self) -> str:
        """Name of its fan-outs."""
        return ",".join(map(str, self.fan_outs))

    def renew(self) -> None:
        """Draws the seeds of the next batch; not timed."""
        nodes = self.problem.graph.num_nodes
        self.seeds = self._rng.choice(nodes, min(_SEEDS, nodes), replace=False).astype(np.int64)
        self._batch += 1

    def sample(self) -> Any:
        """Samples the batch; sources, new numbers and edge ids included."""
        sample = sample_neighbours(
            self.problem.graph, self.seeds, self.fan_outs, seed=self._batch, num_threads=self.threads
        )
        self.edges.append(len(sample.edge_ids))
        return sample


class PygLibSampler(Sampler):
    """pyg-lib's, in the call that PyTorch Geometric's loader makes; in a graph of one kind of nodes it uses one thread.

    Args:
        problem: The graph.
        fan_outs: In-edges of each node, hop by hop.
        indptr: Tensor, int64 [N + 1].
        indices: Tensor, int64 [E].
    """

    contender = PYG_LIB

    def __init__(self, problem: Problem, fan_outs: Sequence[int], indptr: Any, indices: Any) -> None:
        super().__init__(problem, fan_outs, 1)
        self._csc = indptr, indices

    def sample(self) -> Any:
        """Samples the batch: sources, targets, nodes, edge ids, and how many nodes and edges each hop brought."""
        import torch
        from pyg_lib.sampler import neighbor_sample  # type: ignore[import-not-found,import-untyped,unused-ignore]

        sample = neighbor_sample(*self._csc, torch.from_numpy(self.seeds), self.fan_outs, csc=True)
        self.edges.append(len(sample[0]))
        return sample

    def check(self) -> None:
        """Looks at a batch: edges of the graph, and as many of the seeds as there should be.

        Raises:
            SageAttentionError: They are not.
        """
        graph = self.problem.graph
        sources, _, nodes, edge_ids, _, edges_by_hop = self.sample()
        self.edges.clear()
        wanted = int(np.minimum(graph.in_degrees[self.seeds], self.fan_outs[0]).sum())
        same = np.array_equal(nodes.numpy()[sources.numpy()], graph.indices[edge_ids.numpy()])
        if edges_by_hop[0] != wanted or not same:
            raise SageAttentionError(
                f"bench: sampling: expected {wanted} in-edges of the seeds from {PYG_LIB}, got {edges_by_hop[0]}"
                f"{'' if same else ', and sources that the graph does not have there'}; nothing is timed that is "
                "wrong: please report it"
            )


def pyg_lib_missing(problem: Problem, free: int | None) -> str:
    """Why pyg-lib cannot be measured, or nothing; nothing is loaded.

    Args:
        problem: The graph, of which it needs a copy with ids of 64 bits.
        free: Bytes that are free, None if nobody knows.
    """
    try:
        found = importlib.util.find_spec("pyg_lib")
    except ValueError:  # a module that was put into sys.modules by hand
        found = None
    if found is None:
        return "pyg_lib is not installed"
    needed = 8 * (problem.graph.num_edges + problem.graph.num_targets)
    if free is not None and needed * 1.15 > free:
        return f"needs about {needed / 2**30:.1f} GiB, {free / 2**30:.1f} are free"
    return ""


def pyg_lib_samplers(problem: Problem, fan_outs: Sequence[Sequence[int]]) -> list[PygLibSampler]:
    """Those of pyg-lib, one for each list of fan-outs, over one copy of the graph; they have been checked.

    Raises:
        SageAttentionError: They are wrong.
    """
    import torch

    graph = problem.graph
    csc = torch.from_numpy(graph.indptr.astype(np.int64)), torch.from_numpy(graph.indices.astype(np.int64))
    made = [PygLibSampler(problem, one, *csc) for one in fan_outs]
    for one in made:
        one.check()
    return made
