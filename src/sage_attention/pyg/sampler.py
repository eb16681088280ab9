"""NeighborSampler: PyTorch Geometric's sampler, on our core."""

from __future__ import annotations

import contextlib
import copy
import itertools
import warnings
import zlib
from contextvars import ContextVar
from multiprocessing.context import get_spawning_popen
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch_geometric.sampler import BaseSampler, HeteroSamplerOutput, SamplerOutput
from torch_geometric.sampler.base import NumNeighbors, SubgraphType
from torch_geometric.sampler.neighbor_sampler import node_sample

from sage_attention._arrays import integer
from sage_attention.errors import ArgumentError
from sage_attention.hetero import MAX_FAN_OUT

from .induced import induced
from .links import LinkSampling
from .seeds import TypedSeeds
from .sharing import Packed
from .topology import ONE_EDGE_TYPE, ONE_NODE_TYPE, Topology

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor
    from torch_geometric.sampler import EdgeSamplerInput, NegativeSampling, NodeSamplerInput

    from sage_attention.hetero import EdgeType, HeteroSample

__all__ = ["NeighborSampler", "draws_named"]

_NAMED: ContextVar[int | None] = ContextVar("_NAMED", default=None)


@contextlib.contextmanager
def draws_named(key: int) -> Iterator[None]:
    """What is sampled meanwhile, by this thread, is named by `key`, whatever the sampler.

    Args:
        key: An integer in [0, 2^63).
    """
    token = _NAMED.set(key)
    try:
        yield
    finally:
        _NAMED.reset(token)


class NeighborSampler(BaseSampler):  # type: ignore[misc]
    """Samples neighbours for PyTorch Geometric's loaders, with the arguments of its own sampler.

    It also goes where PyTorch Geometric's goes: ``NeighborLoader(..., neighbor_sampler=...)``.

    Args:
        data: Data, HeteroData, or (FeatureStore, GraphStore).
        num_neighbors: Fan-outs, one for each hop, -1 for all; or edge type -> fan-outs.
        subgraph_type: "directional"; "bidirectional": each edge also the other way round; "induced": all edges
            between the nodes found, in trees those of one tree; with times none from its future.
        replace: Draw independently, also where a node has fewer in-edges than the fan-out.
        disjoint: Each seed grows a tree of its own.
        temporal_strategy: With times, "uniform", "last", or "recency", the more likely the younger (see `decay`).
        time_attr: Attribute that holds times of nodes or edges, integers or floating point numbers: only what is not
            younger than the seed is picked. Trees are then disjoint. Goes together with weights.
        weight_attr: Attribute that holds weights of edges, at least 0: an edge is picked in proportion to it.
        is_sorted: Accepted; the order is found out.
        share_memory: Accepted; the graph is never copied into worker processes that are forked.
        directed: False is the old name of "induced".
        sample_direction: "forward", over in-edges, or "backward".
        strategy: How in-edges are picked where `temporal_strategy` does not say it: one of `HeteroSampler.sample`'s
            strategies, such as "labor"; None for uniformly, or by weight.
        strict: With times: what is as old as the seed is not picked either.
        window: With times: what is older than the seed by more is not picked; None for any age.
        decay: For "recency": an edge is picked in proportion to exp(-decay * age), times its weight if it has one.
        seed: Names what is sampled: the same seed nodes then always get the same neighbours; in trees, a seed that
            comes again in a batch gets others than the first time. None: a new name for each call, from torch's
            generator (`torch.manual_seed`).
        num_threads: Threads to use; 0 for one per core, one in a worker process. The result does not depend on it.

    Raises:
        ArgumentError: Weights or times are not what is said above, or an edge leads to a node that is not there.
        ValueError: As PyTorch Geometric's, for combinations that it refuses too.

    Example:
        >>> from torch_geometric.data import Data
        >>> from torch_geometric.sampler import NodeSamplerInput
        >>> data = Data(edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]), num_nodes=4)
        >>> out = NeighborSampler(data, [1, 1]).sample_from_nodes(NodeSamplerInput(None, torch.tensor([3])))
        >>> out.node, out.row, out.col
        (tensor([3, 2, 1]), tensor([1, 2]), tensor([0, 1]))
    """

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
        is_sorted: bool = False,  # noqa: ARG002
        share_memory: bool = False,  # noqa: ARG002
        directed: bool = True,
        sample_direction: str = "forward",
        *,
        strategy: str | None = None,
        strict: bool = False,
        window: int | None = None,
        decay: float | None = None,
        seed: int | None = None,
        num_threads: int = 0,
    ) -> None:
        if not directed:
            subgraph_type = SubgraphType.induced
            warnings.warn(
                f"The usage of the 'directed' argument in '{type(self).__name__}' is deprecated. Use "
                f"`subgraph_type='induced'` instead.",
                stacklevel=2,
            )
        if sample_direction not in ("forward", "backward"):
            raise ArgumentError("sample_direction", "'forward' or 'backward'", f"{sample_direction!r}")
        if temporal_strategy not in ("uniform", "last", "recency"):
            raise ArgumentError("temporal_strategy", "'uniform', 'last' or 'recency'", f"{temporal_strategy!r}")
        if sample_direction == "backward" and time_attr is not None:
            raise NotImplementedError("Temporal Sampling not yet supported for backward sampling")
        self.sample_direction = sample_direction
        self.subgraph_type = SubgraphType(subgraph_type)
        self._topology = Topology(data, time_attr, weight_attr, sample_direction == "backward")
        self._sampler = self._topology.sampler()
        self.num_neighbors = num_neighbors
        self.replace = replace
        self.disjoint = disjoint
        self.temporal_strategy = temporal_strategy
        self.strategy = strategy
        self.strict = bool(strict)
        self.window = None if window is None else integer("window", window, 0, 2**63 - 1)
        self.decay = decay
        if time_attr is None and (self.strict or window is not None or decay is not None):
            raise ArgumentError("strict, window, decay", "time_attr beside them: they go by times", "no time_attr")
        if self._topology.floating and (window is not None or temporal_strategy == "recency"):
            raise ArgumentError(
                f"time_attr={time_attr!r}", "integers beside window or recency", "floating point numbers"
            )
        if strategy is not None and temporal_strategy != "uniform":
            raise ArgumentError("strategy", f"None beside temporal_strategy={temporal_strategy!r}", repr(strategy))
        self._sampler.sample({}, [], **self._options)  # says what does not go together here and now
        self.keep_orig_edges = False
        self.seed = None if seed is None else integer("seed", seed, 0, 2**63 - 1)
        self.num_threads = integer("num_threads", num_threads, 0, 2**31 - 1)
        self.links = LinkSampling(self._topology)
        self._packed: Packed | None = None

    def share(self) -> None:
        """Moves the graph into shared memory: processes that are not forked then get it without a copy each."""
        if self._packed is None:
            self._packed = Packed((self._sampler, self._topology.graphs))
            self._sampler, self._topology.graphs = self._packed.unpacked()

    def __getstate__(self) -> dict[str, Any]:
        if get_spawning_popen() is None:
            return {**self.__dict__, "_packed": None}
        self.share()
        topology = copy.copy(self._topology)
        topology.graphs = {}
        return {**self.__dict__, "_sampler": None, "_topology": topology, "links": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._packed is not None:
            self._sampler, self._topology.graphs = self._packed.unpacked()
            self.links = LinkSampling(self._topology)

    # ---- what PyTorch Geometric's code asks of a sampler

    @property
    def num_neighbors(self) -> NumNeighbors:
        """The fan-outs."""
        return self._num_neighbors

    @num_neighbors.setter
    def num_neighbors(self, value: Any) -> None:
        found = value if isinstance(value, NumNeighbors) else NumNeighbors(value)
        lists = [*(found.values.values() if isinstance(found.values, dict) else [found.values]), found.default or []]
        if not all(isinstance(counts, (list, tuple)) for counts in lists):
            raise ArgumentError(
                "num_neighbors", "a list of integers, one for each hop; or edge type -> list", f"{value!r}"
            )
        for count in itertools.chain.from_iterable(lists):
            if integer("num_neighbors", count, -1) > MAX_FAN_OUT:
                raise ArgumentError("num_neighbors", f"at most {MAX_FAN_OUT}", count, "-1 takes all neighbours")
        self._num_neighbors = found

    @property
    def data_type(self) -> Any:
        """Where the graph comes from."""
        return self._topology.data_type

    @property
    def is_hetero(self) -> bool:
        """Whether there are several node or edge types."""
        return self._topology.is_hetero

    @property
    def is_temporal(self) -> bool:
        """Whether nodes or edges have times."""
        return self._topology.is_temporal

    @property
    def disjoint(self) -> bool:
        """Whether each seed grows a tree of its own; with times each does."""
        return self._disjoint or self.is_temporal

    @disjoint.setter
    def disjoint(self, value: bool) -> None:
        self._disjoint = value

    @property
    def node_types(self) -> list[Any]:
        """Names of the node types, [None] in a homogeneous graph."""
        return list(self._topology.num_nodes) if self.is_hetero else [None]

    @property
    def edge_types(self) -> list[Any]:
        """Names of the edge types, [None] in a homogeneous graph."""
        return [self._original(edge_type) for edge_type in self._topology.graphs] if self.is_hetero else [None]

    @property
    def num_nodes(self) -> Any:
        """Number of nodes, or node type -> number."""
        return self._topology.num_nodes if self.is_hetero else self._topology.num_nodes[ONE_NODE_TYPE]

    @property
    def node_time(self) -> Any:
        """Times of nodes, or node type -> times; None if there are none."""
        times = self._topology.node_time
        return (times or None) if self.is_hetero else times.get(ONE_NODE_TYPE)

    @property
    def edge_time(self) -> Any:
        """Times of edges, or edge type -> times; None if there are none."""
        times = self._topology.edge_time
        return (times or None) if self.is_hetero else times.get(ONE_EDGE_TYPE)

    @property
    def edge_permutation(self) -> None:
        """None: edge ids are positions among the edges of the data already."""
        return

    def sample_from_nodes(self, inputs: NodeSamplerInput | TypedSeeds) -> SamplerOutput | HeteroSamplerOutput:
        """Samples the neighbourhood of nodes.

        Args:
            inputs: The seed nodes, and their times.
        """
        if isinstance(inputs, TypedSeeds):
            out = self._sample(inputs.nodes, inputs.times)
            out.metadata = inputs.input_ids, inputs.times
            return self._finished(out)
        return self._finished(node_sample(inputs, self._sample))

    def sample_from_edges(
        self, inputs: EdgeSamplerInput, neg_sampling: NegativeSampling | None = None
    ) -> SamplerOutput | HeteroSamplerOutput:
        """Samples the neighbourhood of both ends of edges.

        Args:
            inputs: The seed edges, their labels and times.
            neg_sampling: Which edges that are not there join them.
        """
        # Each batch draws negative edges of its own, whichever worker it comes to.
        batch = zlib.crc32(torch.cat([inputs.row, inputs.col]).numpy().tobytes())
        generator = torch.Generator().manual_seed((self._key() + batch * 0x9E3779B97F4A7C15) % 2**63)
        return self._finished(self.links.run(inputs, neg_sampling, self._sample, self.disjoint, generator))

    # ---- sampling

    def _sample(self, seed: Any, seed_time: Any = None, fan_outs: Any = None) -> SamplerOutput | HeteroSamplerOutput:
        """Samples from nodes, or from node type -> nodes, and times alike. PyTorch Geometric's own samplers call it."""
        seeds = seed if isinstance(seed, dict) else {ONE_NODE_TYPE: seed}
        given = seed_time if isinstance(seed_time, dict) else {ONE_NODE_TYPE: seed_time}
        times = {name: self._seed_time(name, nodes, given.get(name)) for name, nodes in seeds.items()}
        known_times = {
            name: self._topology.ordered(f"input_time[{name!r}]" if self.is_hetero else "input_time", value)
            for name, value in times.items()
            if value is not None
        }
        found = self._sampler.sample(
            seeds,
            fan_outs or self._fan_outs(),
            seed_times=known_times,
            seed=self._key(),
            **self._options,
            num_threads=self._threads,
        )
        if self.subgraph_type == SubgraphType.induced:
            limits = {"strict": self.strict, "window": self.window, "num_threads": self._threads}
            found = induced(self._sampler, found, known_times, **limits)
        return self._hetero_output(found) if self.is_hetero else self._output(found)

    @property
    def _options(self) -> dict[str, Any]:
        """How is picked, in the words of `HeteroSampler.sample`."""
        return {
            "replace": self.replace,
            "disjoint": self.disjoint,
            "strategy": self.strategy or self.temporal_strategy,
            "strict": self.strict,
            "window": self.window,
            "decay": self.decay,
        }

    @property
    def _threads(self) -> int:
        # Worker processes share the cores among them.
        return self.num_threads or (0 if torch.utils.data.get_worker_info() is None else 1)

    def _key(self) -> int:
        named = _NAMED.get()
        if named is not None:
            return named
        if self.seed is not None:
            return self.seed
        return int(torch.randint(0, 2**63 - 1, ()))

    def _fan_outs(self) -> Any:
        if not self.is_hetero:
            return {ONE_EDGE_TYPE: self.num_neighbors.get_values()}
        by_type = self.num_neighbors.get_values(self.edge_types)
        return {edge_type: by_type[self._original(edge_type)] for edge_type in self._topology.graphs}

    def _seed_time(self, node_type: str, nodes: Tensor, given: Tensor | None) -> Tensor | None:
        """The times of seeds: those given, else their own, else none."""
        if not self.is_temporal:
            return None
        if given is None and self._topology.edge_time:
            raise ValueError("Seed time needs to be specified")
        if given is None and node_type in self._topology.node_time:
            return self._topology.node_time[node_type][nodes]
        return given

    def _original(self, edge_type: EdgeType) -> EdgeType:
        """The name in the data of edges that may be followed backward."""
        return (edge_type[2], edge_type[1], edge_type[0]) if self.sample_direction == "backward" else edge_type

    def _ends(self, found: HeteroSample, edge_type: EdgeType) -> tuple[Tensor, Tensor]:
        ends = _tensor(found.sources[edge_type]), _tensor(found.targets[edge_type])
        return ends[::-1] if self.sample_direction == "backward" else ends

    def _output(self, found: HeteroSample) -> SamplerOutput:
        row, col = self._ends(found, ONE_EDGE_TYPE)
        return SamplerOutput(
            node=_tensor(found.nodes[ONE_NODE_TYPE]),
            row=row,
            col=col,
            edge=_tensor(found.edge_ids[ONE_EDGE_TYPE]),
            batch=None if found.trees is None else _tensor(found.trees[ONE_NODE_TYPE]),
            num_sampled_nodes=_listed(found.num_sampled_nodes.get(ONE_NODE_TYPE)),
            num_sampled_edges=_listed(found.num_sampled_edges.get(ONE_EDGE_TYPE)),
        )

    def _hetero_output(self, found: HeteroSample) -> HeteroSamplerOutput:
        names = {edge_type: self._original(edge_type) for edge_type in found.sources}
        ends = {name: self._ends(found, edge_type) for edge_type, name in names.items()}
        trees = found.trees
        return HeteroSamplerOutput(
            node={name: _tensor(nodes) for name, nodes in found.nodes.items()},
            row={name: row for name, (row, _) in ends.items()},
            col={name: col for name, (_, col) in ends.items()},
            edge={name: _tensor(found.edge_ids[edge_type]) for edge_type, name in names.items()},
            batch=None if trees is None else {name: _tensor(tree) for name, tree in trees.items()},
            num_sampled_nodes={name: list(counts) for name, counts in found.num_sampled_nodes.items()} or None,
            num_sampled_edges={names[edge_type]: list(counts) for edge_type, counts in found.num_sampled_edges.items()}
            or None,
        )

    def _finished(self, out: Any) -> Any:
        if self.subgraph_type == SubgraphType.bidirectional:
            return out.to_bidirectional(keep_orig_edges=self.keep_orig_edges)
        return out


def _listed(counts: tuple[int, ...] | None) -> list[int] | None:
    return None if counts is None else list(counts)


class _Writable:
    """An array of the library's memory as torch wants it: its own to write to."""

    def __init__(self, array: Any) -> None:
        self._array = array
        interface = dict(array.__array_interface__)
        self.__array_interface__ = {**interface, "data": (interface["data"][0], False)}


def _tensor(array: Any) -> Tensor:
    return torch.from_numpy(np.asarray(_Writable(array)))
