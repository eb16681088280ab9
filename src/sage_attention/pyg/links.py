"""Seed edges: their ends become seed nodes, and edges that are not there join them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from sage_attention._arrays import as_numpy
from sage_attention.errors import ArgumentError

from .negatives import KnownEdges, NodeDraws, draw_pairs_apart, draw_targets_apart
from .topology import ONE_EDGE_TYPE

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Generator
    from torch_geometric.sampler import EdgeSamplerInput

    from .topology import Topology

__all__ = ["LinkSampling"]

_DRAWS_KEPT = 8


class _Ends(NamedTuple):
    """The ends of the seed edges, then those of negative ones, and their times."""

    sources: Tensor
    targets: Tensor
    source_times: Tensor | None
    target_times: Tensor | None


class LinkSampling:
    """Samples the neighbourhood of both ends of edges.

    Args:
        topology: The graph.
    """

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._draws: dict[Any, NodeDraws] = {}
        self._known: dict[Any, KnownEdges] = {}

    def run(
        self, inputs: EdgeSamplerInput, negatives: Any, sample: Callable[..., Any], disjoint: bool, generator: Generator
    ) -> Any:
        """The sample around a batch of seed edges.

        Args:
            inputs: The seed edges, their labels and times.
            negatives: PyTorch Geometric's NegativeSampling or ours, or None.
            sample: Samples from nodes and their times.
            disjoint: Whether it grows a tree from each node.
            generator: Of the negative draws.
        """
        if inputs.time is not None and not disjoint:
            raise ValueError("Seed edges have times, but neither nodes nor edges do: 'time_attr' needs to be specified")
        if inputs.time is not None:
            self.topology.ordered("edge_label_time", inputs.time)  # says what is wrong by the name the user knows
        if inputs.row.is_floating_point() or inputs.col.is_floating_point():
            raise ArgumentError("edge_label_index", "integers", inputs.row.dtype)
        label = inputs.label
        num_pos = len(inputs.row)
        ends = _Ends(inputs.row.long(), inputs.col.long(), inputs.time, inputs.time)
        if negatives is not None:
            ends = self._with_negatives(ends, inputs.input_type, negatives, disjoint, generator)
            if negatives.is_binary():
                label = torch.ones(num_pos) if label is None else label
                num_neg = len(ends.sources) - num_pos
                label = torch.cat([label, label.new_zeros(num_neg, *label.shape[1:])])
        out, sources, targets = _sample_ends(ends, inputs.input_type, num_pos, sample, disjoint)
        if negatives is None or negatives.is_binary():
            out.metadata = (inputs.input_id, torch.stack([sources, targets]), label, ends.source_times)
        else:
            negative = targets[num_pos:].view(-1, num_pos).t() if disjoint else targets[num_pos:].view(num_pos, -1)
            positive = targets[:num_pos]
            out.metadata = (inputs.input_id, sources, positive, negative.squeeze(-1), ends.source_times)
        return out

    def _with_negatives(
        self, ends: _Ends, input_type: Any, negatives: Any, disjoint: bool, generator: Generator
    ) -> _Ends:
        num_pos = len(ends.sources)
        amount = math.ceil(negatives.amount)
        edge_type = ONE_EDGE_TYPE if input_type is None else input_type
        known = self._edges_known(edge_type, ends, negatives) if getattr(negatives, "strict", False) else []
        if negatives.is_triplet():
            # In trees, those of one round of negatives stand together; otherwise those of one source.
            spread = Tensor.repeat if disjoint else Tensor.repeat_interleave
            others = spread(ends.sources, amount).numpy()
            times = None if ends.source_times is None else spread(ends.source_times, amount)
            draws = self._draws_of(edge_type[-1], negatives.dst_weight)
            drawn = draw_targets_apart(draws, others, known, self._array(times), generator)
            targets = torch.cat([ends.targets, torch.from_numpy(drawn)])
            return ends._replace(targets=targets, target_times=_joined(ends.source_times, times))
        num_neg = math.ceil(num_pos * negatives.amount)
        times = None if ends.source_times is None else ends.source_times.repeat(amount)[:num_neg]
        sources, others = draw_pairs_apart(
            self._draws_of(edge_type[0], negatives.src_weight), self._draws_of(edge_type[-1], negatives.dst_weight),
            num_neg, known, self._array(times), generator,
        )  # fmt: skip
        times = _joined(ends.source_times, times)
        return _Ends(
            torch.cat([ends.sources, torch.from_numpy(sources)]), torch.cat([ends.targets, torch.from_numpy(others)]),
            times, times,
        )  # fmt: skip

    def _edges_known(self, edge_type: Any, ends: _Ends, negatives: Any) -> list[KnownEdges]:
        """What no negative edge may be: the edges of the graph, the seed edges of the loader, else of the batch."""
        if edge_type not in self._known:
            self._known[edge_type] = KnownEdges(self.topology.edges(edge_type))
        seeds = getattr(negatives, "seed_edges", None)
        if seeds is None:
            seeds = KnownEdges([torch.stack([ends.sources, ends.targets]).numpy()])
        return [self._known[edge_type], seeds]

    def _draws_of(self, node_type: str, weight: Any) -> NodeDraws:
        key = node_type, id(weight)
        draws = self._draws.get(key)
        if draws is None or draws.weight is not weight:
            draws = NodeDraws(self.topology.num_nodes[node_type], weight, self.topology.node_time.get(node_type))
            self._draws = {**self._draws, key: draws} if len(self._draws) < _DRAWS_KEPT else {key: draws}
        return draws

    def _array(self, times: Tensor | None) -> Any:
        """As they are compared with the times of nodes: integers with integers."""
        if times is None or self.topology.floating:
            return None if times is None else times.numpy()
        return as_numpy("edge_label_time", self.topology.ordered("edge_label_time", times))


def _joined(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    return None if first is None or second is None else torch.cat([first, second])


def _sample_ends(
    ends: _Ends, input_type: Any, num_pos: int, sample: Callable[..., Any], disjoint: bool
) -> tuple[Any, Tensor, Tensor]:
    """The sample, and the positions of the ends in it."""
    num_sources = len(ends.sources)
    apart = input_type is not None and input_type[0] != input_type[-1]
    if apart:
        seeds = {input_type[0]: ends.sources, input_type[-1]: ends.targets}
        times = {input_type[0]: ends.source_times, input_type[-1]: ends.target_times}
        places = {name: torch.arange(len(nodes)) for name, nodes in seeds.items()}
    else:
        name = None if input_type is None else input_type[0]
        seeds = {name: torch.cat([ends.sources, ends.targets])}
        times = {name: None}
        if ends.source_times is not None and ends.target_times is not None:
            times = {name: torch.cat([ends.source_times, ends.target_times])}
        places = {name: torch.arange(len(seeds[name]))}
    if not disjoint:
        for name, nodes in seeds.items():
            seeds[name], places[name] = torch.unique(nodes, return_inverse=True)
    if input_type is None:
        out = sample(seeds[None], times[None])
    else:
        out = sample(seeds, times if ends.source_times is not None else None)
    if apart:
        sources, targets = places[input_type[0]], places[input_type[-1]]
    else:
        ((_, both),) = places.items()
        sources, targets = both[:num_sources], both[num_sources:]
    if disjoint and num_pos > 0:
        # Trees are counted over both ends; the same number stands for what belongs to one seed edge.
        def edge_of(tree: Tensor) -> Tensor:
            return torch.where(tree < num_sources, tree, tree - num_sources) % num_pos

        out.batch = (
            edge_of(out.batch) if input_type is None else {key: edge_of(tree) for key, tree in out.batch.items()}
        )
    return out, sources, targets
