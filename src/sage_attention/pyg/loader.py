"""NeighborLoader and LinkNeighborLoader: PyTorch Geometric's, with our sampler."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
import torch_geometric.loader
from torch_geometric.sampler import EdgeSamplerInput, NodeSamplerInput

from sage_attention._arrays import as_numpy
from sage_attention.errors import ArgumentError

from .epochs import Epochs
from .negatives import NegativeSampling
from .sampler import NeighborSampler
from .seeds import SeveralSeedTypes, TypedSeeds, names_types
from .stores import StoredEdgeFeatures

__all__ = ["LinkNeighborLoader", "NeighborLoader"]


class NeighborLoader(Epochs, SeveralSeedTypes, StoredEdgeFeatures, torch_geometric.loader.NeighborLoader):  # type: ignore[misc]
    """Mini-batches around seed nodes.

    Args:
        data: Data, HeteroData, or (FeatureStore, GraphStore).
        num_neighbors: Fan-outs, one for each hop, -1 for all; or edge type -> fan-outs.
        input_nodes: Seed nodes: indices, a mask, or (node type, either); all nodes by default. Those of several
            types in one loader: {node type: indices, a mask, or None for all}, or a list of node types. A batch then
            takes `batch_size` of them all, and has `input_id` and `batch_size` for each type.
        input_time: Times of the seeds, if not those of the nodes; by type, if the seeds are. Needs `time_attr`.
        replace: As `NeighborSampler`'s, and so are the arguments up to `weight_attr`.
        subgraph_type: See there.
        disjoint: See there.
        temporal_strategy: See there.
        time_attr: See there.
        weight_attr: See there.
        transform: Is given each batch and returns what takes its place.
        transform_sampler_output: Is given what was sampled, before features are fetched.
        is_sorted: Accepted; the order is found out.
        filter_per_worker: Whether worker processes fetch the features.
        neighbor_sampler: A sampler to use; the arguments about sampling are then not looked at.
        directed: False is the old name of subgraph_type="induced".
        strategy: As `NeighborSampler`'s, and so are `strict`, `window` and `decay`.
        strict: See there.
        window: See there.
        seed: Names the sequence of batches: order and samples of each epoch. None: torch's generator does.
        num_threads: Threads that sample a batch, 0 for one per core. The result does not depend on it.
        prefetch: Batches that a thread has ready ahead where there are no worker processes, or while these start and
            are not forked; 0 for none. Features from stores are fetched, and transforms called, by the caller's thread.
        rank: Which of `world_size` processes this one is. Process `rank` is given the batches `rank`,
            `rank + world_size` ... of those that one process would be given; needs a seed, the same in all of them.
        world_size: Processes that share the batches of an epoch. All are given as many: the last round is filled up
            with the first batches, drawn anew, or left out with `drop_last`.
        **kwargs: torch's DataLoader's: batch_size, shuffle, drop_last, num_workers ...

    Raises:
        ValueError: As PyTorch Geometric's.
        ArgumentError: As `NeighborSampler`'s.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> data = Data(torch.eye(4), torch.tensor([[0, 1, 2], [1, 2, 3]]))
        >>> loader = NeighborLoader(data, [1, 1], input_nodes=torch.tensor([3]), batch_size=1)
        >>> next(iter(loader)).n_id
        tensor([3, 2, 1])
    """

    def __init__(
        self,
        data: Any,
        num_neighbors: Any,
        input_nodes: Any = None,
        input_time: Any = None,
        replace: bool = False,
        subgraph_type: Any = "directional",
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        time_attr: str | None = None,
        weight_attr: str | None = None,
        transform: Any = None,
        transform_sampler_output: Any = None,
        is_sorted: bool = False,
        filter_per_worker: bool | None = None,
        neighbor_sampler: Any = None,
        directed: bool = True,
        *,
        strategy: str | None = None,
        strict: bool = False,
        window: int | None = None,
        decay: float | None = None,
        seed: int | None = None,
        num_threads: int = 0,
        prefetch: int = 2,
        rank: int = 0,
        world_size: int = 1,
        **kwargs: Any,
    ) -> None:
        if neighbor_sampler is None:
            neighbor_sampler = NeighborSampler(
                data, num_neighbors, subgraph_type, replace, disjoint, temporal_strategy, time_attr, weight_attr,
                is_sorted, directed=directed, strategy=strategy, strict=strict, window=window, decay=decay,
                seed=seed, num_threads=num_threads,
            )  # fmt: skip
        typed = None
        if names_types(input_nodes):
            typed = _typed_seeds(input_nodes, input_time, kwargs.pop("input_id", None), neighbor_sampler)
            # A stand-in: as many of one type.
            name, count = next(iter(typed.nodes)), len(typed)
        super().__init__(
            data, num_neighbors,
            input_nodes if typed is None else (name, torch.zeros(count, dtype=torch.int64)),
            _as_tensor("input_time", input_time) if typed is None else None,
            time_attr=time_attr, transform=transform, transform_sampler_output=transform_sampler_output,
            filter_per_worker=filter_per_worker, neighbor_sampler=neighbor_sampler,
            seed=seed, prefetch=prefetch, rank=rank, world_size=world_size, **kwargs,
        )  # fmt: skip
        _require_one_each(len(self.input_data.node), input_time=self.input_data.time)
        if typed is not None:
            self.input_nodes, self.input_time, self.input_data = input_nodes, input_time, typed

    def __call__(self, index: Any, input_time: Any = None) -> Any:
        """One batch, outside of an iteration.

        Args:
            index: Positions [n] among the input nodes; with `input_time`, nodes. Or {node type: nodes}.
            input_time: Times of the nodes [n], by type if these are.
        """
        if isinstance(index, Mapping):
            typed = TypedSeeds.read(index, input_time, None, self.node_sampler.num_nodes)
            loader = copy.copy(self)
            loader.input_data = typed
            return loader.filter_fn(self.node_sampler.sample_from_nodes(typed))
        if input_time is None:
            return super().__call__(index)
        nodes = torch.as_tensor(index)
        times = _as_tensor("input_time", input_time)
        inputs = NodeSamplerInput(torch.arange(len(nodes)), nodes, times, self.input_data.input_type)
        return self.filter_fn(self.node_sampler.sample_from_nodes(inputs))


def _as_tensor(name: str, values: Any) -> Any:
    """Lists and arrays as tensors, which is what PyTorch Geometric's loaders take."""
    return values if values is None or isinstance(values, torch.Tensor) else torch.from_numpy(as_numpy(name, values))


def _require_one_each(num_seeds: int, **given: Any) -> None:
    """Refuses what is not said of each seed: times of all nodes beside some of them would be those of other ones."""
    for name, values in given.items():
        if values is not None and (values.dim() == 0 or len(values) != num_seeds):
            raise ArgumentError(name, f"{num_seeds}, one for each seed", f"shape {list(values.shape)}")


def _typed_seeds(input_nodes: Any, input_time: Any, input_id: Any, sampler: Any) -> TypedSeeds:
    if not isinstance(sampler, NeighborSampler):
        raise ArgumentError("neighbor_sampler", "ours, with seeds of several types", type(sampler).__name__)
    if not sampler.is_hetero:
        raise ArgumentError("input_nodes", "indices or a mask: the graph has no node types", f"{input_nodes!r}")
    if input_time is not None and not sampler.is_temporal:
        raise ValueError(
            "Received conflicting 'input_time' and 'time_attr' arguments: 'input_time' is set while 'time_attr' is not"
        )
    return TypedSeeds.read(input_nodes, input_time, input_id, sampler.num_nodes)


class LinkNeighborLoader(Epochs, StoredEdgeFeatures, torch_geometric.loader.LinkNeighborLoader):  # type: ignore[misc]
    """Mini-batches around seed edges.

    Args:
        data: Data, HeteroData, or (FeatureStore, GraphStore).
        num_neighbors: Fan-outs, one for each hop, -1 for all; or edge type -> fan-outs.
        edge_label_index: Seed edges [2, n], or (edge type, seed edges); all edges by default.
        edge_label: Labels of the seed edges.
        edge_label_time: Times of the seed edges. Goes together with `time_attr`.
        replace: As `NeighborSampler`'s, and so are `subgraph_type` to `temporal_strategy`.
        subgraph_type: See there.
        disjoint: See there.
        temporal_strategy: See there.
        neg_sampling: Which edges that are not there join each batch: our NegativeSampling or PyTorch Geometric's.
        neg_sampling_ratio: Its old name for binary ones.
        time_attr: As `NeighborSampler`'s.
        weight_attr: As `NeighborSampler`'s.
        transform: Is given each batch and returns what takes its place.
        transform_sampler_output: Is given what was sampled, before features are fetched.
        is_sorted: Accepted; the order is found out.
        filter_per_worker: Whether worker processes fetch the features.
        neighbor_sampler: A sampler to use; the arguments about sampling are then not looked at.
        directed: False is the old name of subgraph_type="induced".
        strategy: As `NeighborSampler`'s, and so are `strict`, `window` and `decay`.
        strict: See there. The ends of negative edges may be as old as the seed edge all the same.
        window: See there.
        seed: As `NeighborLoader`'s, and so are `num_threads` and `prefetch`.
        num_threads: See there.
        prefetch: See there.
        rank: As `NeighborLoader`'s, and so is `world_size`.
        world_size: See there.
        **kwargs: torch's DataLoader's: batch_size, shuffle, drop_last, num_workers ...

    Raises:
        ValueError: As PyTorch Geometric's.
        ArgumentError: As `NeighborSampler`'s.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> data = Data(torch.eye(4), torch.tensor([[0, 1, 2], [1, 2, 3]]))
        >>> loader = LinkNeighborLoader(data, [1], edge_label_index=torch.tensor([[0], [3]]), batch_size=1)
        >>> batch = next(iter(loader))
        >>> batch.n_id, batch.edge_label_index
        (tensor([0, 3, 2]), tensor([[0],
                [1]]))
    """

    neg_sampling: Any

    def __init__(
        self,
        data: Any,
        num_neighbors: Any,
        edge_label_index: Any = None,
        edge_label: Any = None,
        edge_label_time: Any = None,
        replace: bool = False,
        subgraph_type: Any = "directional",
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        neg_sampling: Any = None,
        neg_sampling_ratio: float | None = None,
        time_attr: str | None = None,
        weight_attr: str | None = None,
        transform: Any = None,
        transform_sampler_output: Any = None,
        is_sorted: bool = False,
        filter_per_worker: bool | None = None,
        neighbor_sampler: Any = None,
        directed: bool = True,
        *,
        strategy: str | None = None,
        strict: bool = False,
        window: int | None = None,
        decay: float | None = None,
        seed: int | None = None,
        num_threads: int = 0,
        prefetch: int = 2,
        rank: int = 0,
        world_size: int = 1,
        **kwargs: Any,
    ) -> None:
        if neighbor_sampler is None:
            neighbor_sampler = NeighborSampler(
                data, num_neighbors, subgraph_type, replace, disjoint, temporal_strategy, time_attr, weight_attr,
                is_sorted, directed=directed, strategy=strategy, strict=strict, window=window, decay=decay,
                seed=seed, num_threads=num_threads,
            )  # fmt: skip
        super().__init__(
            data, num_neighbors, edge_label_index, _as_tensor("edge_label", edge_label),
            _as_tensor("edge_label_time", edge_label_time),
            neg_sampling=NegativeSampling.cast(neg_sampling), neg_sampling_ratio=neg_sampling_ratio,
            time_attr=time_attr, transform=transform, transform_sampler_output=transform_sampler_output,
            filter_per_worker=filter_per_worker, neighbor_sampler=neighbor_sampler,
            seed=seed, prefetch=prefetch, rank=rank, world_size=world_size, **kwargs,
        )  # fmt: skip
        seeds = self.input_data
        named = {"edge_label": seeds.label, "edge_label_time": seeds.time, "input_id": seeds.input_id}
        _require_one_each(len(seeds.row), **named)
        negatives: Any = self.neg_sampling
        if getattr(negatives, "strict", False):
            self.neg_sampling = negatives.beside(torch.stack([self.input_data.row, self.input_data.col]))

    def __call__(self, index: Any, input_time: Any = None) -> Any:
        """One batch, outside of an iteration.

        Args:
            index: Positions [n] among the seed edges, or edges [2, n].
            input_time: Times of such edges [n].
        """
        edges = torch.as_tensor(index)
        if edges.dim() == 1:
            return super().__call__(index)
        positions = torch.arange(edges.shape[1])
        times = _as_tensor("input_time", input_time)
        inputs = EdgeSamplerInput(positions, *edges, time=times, input_type=self.input_data.input_type)
        return self.filter_fn(self.link_sampler.sample_from_edges(inputs, self.neg_sampling))
