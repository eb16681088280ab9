"""Attention guided by itself: a GAT layer attends the few in-edges that its own scores pick.

Scores are one number per head and node, so that looking at all in-edges is cheap; rows of values are read for those
picked. The others keep the weight that the softmax gives them, on the mean of their values (see
`sage_attention.guided_attending`), unless the guide says otherwise. Picks are made on the CPU; everything is
differentiable, the choice itself apart.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from sage_attention.errors import ArgumentError
from sage_attention.graph import Graph
from sage_attention.guided_sampling import GUIDED_STRATEGIES, GatScores, GuidedOneHop
from sage_attention.sampling import sample_one_hop
from sage_attention.torch import library, ops

if TYPE_CHECKING:
    from .edges import Edges

__all__ = ["STRATEGIES", "Guide", "GuidedInputs", "attend"]

STRATEGIES = ("uniform", *GUIDED_STRATEGIES)


class _Kept(NamedTuple):
    tensors: tuple[weakref.ref[Tensor], ...]
    versions: tuple[int, ...]
    made: Any


@dataclass
class Guide:
    """How a GAT layer picks the in-edges that it attends; `sage_attention.torch.guide` sets it.

    Attributes:
        fan_out: In-edges per target, self loops that the layer puts in not counted.
        strategy: "top_attention", "importance", or "uniform" to compare with.
        means: Whether those not picked count with their mean.
        seed: Of the picks in evaluation; in training each call draws one from torch's generator.
        hop: Number of the layer: another layer picks others by chance.
    """

    fan_out: int
    strategy: str = "top_attention"
    means: bool = True
    seed: int = 0
    hop: int = 0
    _memory: dict[str, _Kept] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        if isinstance(self.fan_out, bool) or not isinstance(self.fan_out, int) or self.fan_out < 1:
            raise ArgumentError("fan_out", "an integer of at least 1", repr(self.fan_out))
        if self.strategy not in STRATEGIES:
            raise ArgumentError("strategy", " or ".join(map(repr, STRATEGIES)), repr(self.strategy))

    def remembered(self, name: str, tensors: tuple[Tensor, ...], make: Callable[[], Any]) -> Any:
        """What `make` gives, kept until one of the tensors that it is made of changes or is gone.

        Args:
            name: Of what is kept.
            tensors: What it is made of.
            make: Makes it.
        """
        if any(tensor.is_inference() for tensor in tensors):  # they have no version
            return make()
        versions = tuple(tensor._version for tensor in tensors)  # noqa: SLF001
        known = self._memory.get(name)
        if known is not None and known.versions == versions and all(r() is t for r, t in zip(known.tensors, tensors)):
            return known.made
        kept = _Kept(tuple(weakref.ref(tensor) for tensor in tensors), versions, make())
        self._memory[name] = kept
        return kept.made

    def __reduce__(self) -> tuple[Any, ...]:
        return Guide, (self.fan_out, self.strategy, self.means, self.seed, self.hop)


@dataclass(frozen=True)
class GuidedInputs:
    """What a layer attends with.

    Attributes:
        rows: [S, F] what the values are projections of.
        project: The projection, [n, F] to [n, H, C].
        values: [S, H, C].
        source_logits: [S, H].
        target_logits: [R, H] or None.
        edge_weight: [H, D] or None.
        negative_slope: Of the LeakyReLU.
        dropout: Chance that the weight of a picked edge is set to zero.
    """

    rows: Tensor
    project: Callable[[Tensor], Tensor]
    values: Tensor
    source_logits: Tensor
    target_logits: Tensor | None
    edge_weight: Tensor | None
    negative_slope: float
    dropout: float


@dataclass(frozen=True)
class _Plain:
    """The in-edges that are picked from, without the self loops that the layer put in.

    Attributes:
        csc: The edges; ``edge_ids`` are rows of the edge features.
        targets: [E].
        degrees: [R].
        num_loops: The first so many targets have a self loop each.
    """

    csc: ops.Csc
    targets: Tensor
    degrees: Tensor
    num_loops: int

    @property
    def num_edges(self) -> int:
        return self.csc.indices.numel()


def _plain(edges: Edges) -> _Plain:
    csc, loops = edges.csc, edges.topology.num_loops or 0
    indptr, indices, edge_ids = csc.indptr, csc.indices, csc.edge_ids
    if loops:
        kept = edge_ids < indices.numel() - loops
        indices, edge_ids = indices[kept], edge_ids[kept]
        indptr = indptr - torch.arange(indptr.numel(), device=indptr.device).clamp_(max=loops)
    degrees = indptr.diff()
    numbers = torch.arange(degrees.numel(), device=degrees.device)
    targets = torch.repeat_interleave(numbers, degrees, output_size=indices.numel())
    return _Plain(ops.Csc(indptr, indices, edge_ids), targets, degrees, loops)


def _array(tensor: Tensor) -> np.ndarray[Any, Any]:
    tensor = tensor.detach().cpu()
    array: np.ndarray[Any, Any] = (tensor if tensor.dtype == torch.float64 else tensor.float()).numpy()
    return array


def _scores(inputs: GuidedInputs, features: Tensor | None, sources: Tensor, targets: Tensor, rows: Tensor) -> Tensor:
    """[n, H] scores of some edges; `rows` are theirs among the edge features."""
    z = inputs.source_logits.index_select(0, sources)
    if inputs.target_logits is not None:
        z = z + inputs.target_logits.index_select(0, targets)
    if features is not None and inputs.edge_weight is not None:
        z = z + functional.linear(features.index_select(0, rows), inputs.edge_weight.to(features.dtype))
    z = z if z.dtype == torch.float64 else z.float()
    return functional.leaky_relu(z, inputs.negative_slope)


def _log_sums(logits: Tensor, targets: Tensor, num_rows: int) -> Tensor:
    """[R, H] log of the sum of exp(logit) by target; -inf where nothing is summed."""
    index = targets.unsqueeze(1).expand_as(logits)
    largest = logits.new_full((num_rows, logits.size(1)), -torch.inf)
    largest = largest.scatter_reduce(0, index, logits.detach(), "amax")
    shift = torch.where(largest.isfinite(), largest, torch.zeros_like(largest))
    sums = torch.zeros_like(shift).index_add(0, targets, (logits - shift.index_select(0, targets)).exp())
    some = sums > 0
    return torch.where(some, shift + torch.where(some, sums, torch.ones_like(sums)).log(), -torch.inf)


@torch.compiler.disable  # type: ignore[untyped-decorator, unused-ignore]
def attend(guide: Guide, edges: Edges, inputs: GuidedInputs, training: bool) -> Tensor:
    """Attends the in-edges that a guide picks.

    Args:
        guide: How to pick.
        edges: The layer's edges, self loops included.
        inputs: What to attend with.
        training: Whether to draw a new seed.

    Returns:
        [R, H, C], of the type of the values; zeros for targets without in-edges.

    Raises:
        ArgumentError: A score is not finite.
    """
    plain: _Plain = guide.remembered("plain", edges.csc[:3], lambda: _plain(edges))
    device, num_rows, heads = inputs.values.device, plain.degrees.numel(), inputs.values.size(1)
    picks = _picks(guide, plain, edges.features, inputs, training)
    positions = torch.from_numpy(picks.edge_ids).to(device)
    sources, targets = plain.csc.indices[positions].long(), plain.targets[positions]
    loops = torch.arange(plain.num_loops, device=device)
    all_sources, all_targets = torch.cat([sources, loops]), torch.cat([targets, loops])
    rows = torch.cat([plain.csc.edge_ids[positions], loops + plain.num_edges])
    logits = _scores(inputs, edges.features, all_sources, all_targets, rows)
    if guide.strategy == "importance" and not guide.means:
        correction = torch.zeros(logits.size(0), 1, dtype=logits.dtype, device=device)
        correction[: len(positions), 0] = torch.from_numpy(picks.log_corrections).to(correction)
        logits = logits + correction
    order = torch.argsort(all_targets, stable=True)
    indptr = torch.from_numpy(picks.indptr).to(device)
    with_loops = indptr + torch.arange(num_rows + 1, device=device).clamp_(max=plain.num_loops)
    # Scores of their own for each edge: as edge features, with a LeakyReLU that changes nothing.
    zeros = torch.zeros(inputs.values.shape[:2], dtype=logits.dtype, device=device)
    one = torch.eye(heads, dtype=logits.dtype, device=device)
    csc = ops.Csc(with_loops, all_sources[order], order)
    out, _ = ops.gat_attention(
        csc, inputs.values, zeros, edge_features=logits, edge_weight=one, negative_slope=1.0, dropout=inputs.dropout
    )
    some = (plain.degrees > indptr.diff()).nonzero().view(-1)
    if not guide.means or some.numel() == 0:
        return out
    rest = _rest_logits(picks, plain, edges.features, inputs, positions)[some]
    share = torch.sigmoid(rest - _log_sums(logits, all_targets, num_rows)[some]).unsqueeze(2)
    picked = ops.Csc(indptr, sources, torch.arange(len(positions), device=device))
    of_rest = _rest_means(guide, plain, inputs, picked, some)
    mixed = share * (of_rest - out.index_select(0, some))
    return out.index_add(0, some, mixed.to(out.dtype))


def _picks(guide: Guide, plain: _Plain, features: Tensor | None, inputs: GuidedInputs, training: bool) -> Any:
    scores: Any = None
    num_sources, num_rows = inputs.values.size(0), plain.degrees.numel()
    if guide.strategy != "uniform":
        if features is None:
            target = None if inputs.target_logits is None else _array(inputs.target_logits)
            source = _array(inputs.source_logits)
            scores = GatScores(source, None if target is None else target.astype(source.dtype), inputs.negative_slope)
        else:
            with torch.no_grad():
                scores = _array(_scores(inputs, features, plain.csc.indices.long(), plain.targets, plain.csc.edge_ids))

    def make_graph() -> Graph:
        indptr, indices = (t.cpu().numpy() for t in plain.csc[:2])
        return Graph.from_trusted(indptr, indices, num_sources)

    graph = guide.remembered("graph", plain.csc[:3], make_graph)
    seed = int(ops.draw_seed()) if training else guide.seed
    nodes = np.arange(num_rows, dtype=np.int64)
    return sample_one_hop(
        graph, nodes, guide.fan_out, seed=seed, hop=guide.hop, strategy=guide.strategy, scores=scores,
        num_threads=library.num_threads(),
    )  # fmt: skip


def _rest_logits(picks: Any, plain: _Plain, features: Tensor | None, inputs: GuidedInputs, positions: Tensor) -> Tensor:
    """[R, H] the score of all in-edges together that were not picked."""
    learned = (inputs.source_logits, inputs.target_logits, inputs.edge_weight, features)
    needs_grad = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in learned)
    if isinstance(picks, GuidedOneHop) and not needs_grad:
        known = torch.from_numpy(picks.rest_logits).to(inputs.values.device)
        return known if inputs.values.dtype == torch.float64 else known.float()
    logits = _scores(inputs, features, plain.csc.indices.long(), plain.targets, plain.csc.edge_ids)
    logits = logits.index_fill(0, positions, -torch.inf)
    return _log_sums(logits, plain.targets, plain.degrees.numel())


def _rest_means(guide: Guide, plain: _Plain, inputs: GuidedInputs, picked: ops.Csc, some: Tensor) -> Tensor:
    """[n, H, C] mean of the values of the in-edges of some rows that were not picked."""

    def mean(csc: ops.Csc, values: Tensor) -> Tensor:
        return ops.gat_attention(csc, values, values.new_zeros(values.shape[:2]))[0]

    if inputs.rows.requires_grad:
        of_all = mean(plain.csc, inputs.values)[some]
    else:
        # The mean of projected rows is the projected mean, which is the same in every epoch.
        def make() -> Tensor:
            with torch.no_grad():
                return mean(plain.csc, inputs.rows.unsqueeze(1)).squeeze(1)

        means = guide.remembered("means", (inputs.rows, *plain.csc[:3]), make)
        of_all = inputs.project(means.index_select(0, some))
    degrees = plain.degrees[some].view(-1, 1, 1).to(of_all.dtype)
    counts = picked.indptr.diff()[some].view(-1, 1, 1).to(of_all.dtype)
    return (degrees * of_all - counts * mean(picked, inputs.values)[some]) / (degrees - counts)
