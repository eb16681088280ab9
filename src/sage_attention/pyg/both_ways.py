"""BidirectionalNeighborSampler: PyTorch Geometric's, which follows edges both ways, on our core."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch_geometric.sampler import SamplerOutput
from torch_geometric.sampler.base import NumNeighbors, SubgraphType

from sage_attention.errors import ArgumentError

from .sampler import NeighborSampler, draws_named
from .topology import ONE_EDGE_TYPE, ONE_NODE_TYPE

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor
    from torch_geometric.sampler import EdgeSamplerInput

__all__ = ["BidirectionalNeighborSampler"]

_GOLDEN = 0x9E3779B97F4A7C15


class BidirectionalNeighborSampler(NeighborSampler):
    """Samples in-edges and out-edges of each node, hop by hop, in graphs of one type and without times.

    Args:
        data: Data or (FeatureStore, GraphStore).
        num_neighbors: Fan-outs, one for each hop, -1 for all: so many in-edges and so many out-edges.
        subgraph_type: "directional"; or "bidirectional": each edge also the other way round.
        replace: As `NeighborSampler`'s. An edge that is drawn twice, or from both its ends, is in the sample once.
        disjoint: As `NeighborSampler`'s.
        temporal_strategy: Accepted; there are no times.
        time_attr: None.
        weight_attr: As `NeighborSampler`'s.
        is_sorted: Accepted; the order is found out.
        share_memory: Accepted.
        directed: Accepted if True.
        strategy: As `NeighborSampler`'s.
        seed: As `NeighborSampler`'s. In- and out-edges, and those of each hop, have draws of their own.
        num_threads: As `NeighborSampler`'s.

    Raises:
        ArgumentError: As `NeighborSampler`'s; or `subgraph_type` is "induced".
        RuntimeError: Fan-outs are given by edge type.
        NotImplementedError: There are several types, or times.

    Example:
        >>> from torch_geometric.data import Data
        >>> from torch_geometric.sampler import NodeSamplerInput
        >>> data = Data(edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]), num_nodes=4)
        >>> sampler = BidirectionalNeighborSampler(data, [1])
        >>> out = sampler.sample_from_nodes(NodeSamplerInput(None, torch.tensor([1])))
        >>> out.node, out.row, out.col
        (tensor([1, 0, 2]), tensor([1, 0]), tensor([0, 2]))
    """

    _backward: NeighborSampler | None = None

    def __init__(
        self,
        data: Any,
        num_neighbors: Any,
        subgraph_type: SubgraphType | str = "directional",
        replace: bool = False,
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        time_attr: str | None = None,
        weight_attr: str | None = None,
        is_sorted: bool = False,
        share_memory: bool = False,
        directed: bool = True,
        *,
        strategy: str | None = None,
        seed: int | None = None,
        num_threads: int = 0,
    ) -> None:
        values = num_neighbors.values if isinstance(num_neighbors, NumNeighbors) else num_neighbors
        if isinstance(values, dict):
            raise RuntimeError("BidirectionalNeighborSampler does not yet support edge delimited sampling.")
        if time_attr is not None:
            raise NotImplementedError("BidirectionalNeighborSampler does not yet support temporal sampling.")
        if not directed or SubgraphType(subgraph_type) == SubgraphType.induced:
            raise ArgumentError("subgraph_type", "'directional' or 'bidirectional'", "'induced'")
        arguments = (data, num_neighbors, subgraph_type, replace, disjoint, temporal_strategy, None, weight_attr)
        options: dict[str, Any] = {"strategy": strategy, "seed": seed, "num_threads": num_threads}
        super().__init__(*arguments, is_sorted, share_memory, **options)
        if self.is_hetero:
            raise NotImplementedError("BidirectionalNeighborSampler does not yet support heterogeneous sampling.")
        self._backward = NeighborSampler(*arguments, sample_direction="backward", **options)

    @property
    def disjoint(self) -> bool:
        """Whether each seed grows a tree of its own."""
        return self._disjoint

    @disjoint.setter
    def disjoint(self, value: bool) -> None:
        self._disjoint = value
        if self._backward is not None:
            self._backward.disjoint = value

    def share(self) -> None:
        """Moves the graph into shared memory: processes that are not forked then get it without a copy each."""
        super().share()
        if self._backward is not None:
            self._backward.share()

    def sample_from_edges(self, inputs: EdgeSamplerInput, neg_sampling: Any = None) -> SamplerOutput:
        """Samples the neighbourhood of both ends of edges.

        Args:
            inputs: The seed edges and their labels.
            neg_sampling: None.

        Raises:
            RuntimeError: It is not.
        """
        if neg_sampling is not None:
            raise RuntimeError("BidirectionalNeighborSampler does not yet support negative sampling.")
        return super().sample_from_edges(inputs)

    def _sample(self, seed: Any, seed_time: Any = None, fan_outs: Any = None) -> SamplerOutput:
        if seed_time is not None:
            raise NotImplementedError("BidirectionalNeighborSampler does not yet support temporal sampling.")
        key = self._key()
        found = _Found(seed, self._topology.num_nodes[ONE_NODE_TYPE], self.disjoint)
        fan_outs = (fan_outs or self._fan_outs())[ONE_EDGE_TYPE]
        for hop, fan_out in enumerate(fan_outs):
            frontier = found.frontier()
            for way, step in enumerate((super()._sample, self._backward_step)):
                with draws_named((key + (2 * hop + way) * _GOLDEN) % 2**63):
                    found.add(step(frontier.nodes, None, {ONE_EDGE_TYPE: [fan_out]}), frontier)
        return found.output()

    def _backward_step(self, *arguments: Any) -> Any:
        return self._backward._sample(*arguments)  # type: ignore[union-attr]  # noqa: SLF001


class _Frontier:
    """Nodes to be expanded: their rows in the sample, their ids, their trees."""

    def __init__(self, rows: NDArray[np.int64], nodes: NDArray[np.int64], trees: NDArray[np.int64]) -> None:
        self.rows, self.nodes, self.trees = rows, torch.from_numpy(nodes), trees


class _Found:
    """What several samples of one hop add up to.

    Args:
        seed: int64 [n].
        num_nodes: Of the graph.
        disjoint: Whether each seed has a tree of its own.
    """

    def __init__(self, seed: Tensor, num_nodes: int, disjoint: bool) -> None:
        seeds = seed.numpy().astype(np.int64)
        self._num_nodes = num_nodes
        self._disjoint = disjoint
        self._num_expanded = 0
        self._nodes, self._trees = seeds, np.arange(len(seeds), dtype=np.int64) if disjoint else np.zeros_like(seeds)
        # A node is known by its tree and its id; a seed that comes again has a row that nothing else leads to.
        keys = self._trees * num_nodes + seeds
        again = np.ones(len(seeds), np.bool_)
        again[np.unique(keys, return_index=True)[1]] = False
        self._keys = np.where(again, -1 - np.arange(len(seeds), dtype=np.int64), keys)
        self._edges = [np.empty((0, 3), np.int64)]  # rows of sources and targets, ids
        self._num_nodes_sampled: list[int] = []

    def frontier(self) -> _Frontier:
        """The nodes that have been found since the last one."""
        rows = np.arange(self._num_expanded, len(self._nodes), dtype=np.int64)
        self._num_expanded = len(self._nodes)
        return _Frontier(rows, self._nodes[rows], self._trees[rows])

    def add(self, out: SamplerOutput, frontier: _Frontier) -> None:
        """Adds what a sampler found around a frontier."""
        known = len(self._nodes)
        nodes = out.node.numpy()[len(frontier.rows) :]
        trees = np.zeros_like(nodes) if out.batch is None else frontier.trees[out.batch.numpy()[len(frontier.rows) :]]
        keys, first, inverse = np.unique(
            np.concatenate([self._keys, trees * self._num_nodes + nodes]), return_index=True, return_inverse=True
        )
        order = np.argsort(first)  # those that are known come first, and stay where they are
        rows = np.empty_like(order)
        rows[order] = np.arange(len(order), dtype=np.int64)
        self._keys = keys[order]
        self._nodes = np.concatenate([self._nodes, nodes])[first[order]]
        self._trees = np.concatenate([self._trees, trees])[first[order]]
        row_of = np.concatenate([frontier.rows, rows[inverse.reshape(-1)[known:]]])
        self._edges.append(np.stack([row_of[out.row.numpy()], row_of[out.col.numpy()], out.edge.numpy()], 1))
        self._num_nodes_sampled += [0 if self._num_nodes_sampled else known, len(self._nodes) - known]

    def output(self) -> SamplerOutput:
        """All of it; each edge once."""
        edges = np.concatenate(self._edges)
        first = np.sort(np.unique(edges, axis=0, return_index=True)[1])
        ends = np.cumsum([len(part) for part in self._edges])
        row, col, edge = torch.from_numpy(np.ascontiguousarray(edges[first].T))
        return SamplerOutput(
            node=torch.from_numpy(self._nodes),
            row=row,
            col=col,
            edge=edge,
            batch=torch.from_numpy(self._trees) if self._disjoint else None,
            num_sampled_nodes=self._num_nodes_sampled or [len(self._nodes)],
            num_sampled_edges=np.diff(np.searchsorted(first, ends)).tolist(),
        )
