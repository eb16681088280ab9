"""Edges as the operators take them: grouped by target, self loops replaced, features in matching order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sage_attention.errors import ArgumentError
from sage_attention.torch import ops

from .adjacency import Adjacency, Unified, csc_to_edge_index, grouped_by_source, is_sparse, sparse_like, unify
from .cache import Topology, remembered

if TYPE_CHECKING:
    from sage_attention.torch.ops import Csc

__all__ = ["Edges", "SelfLoops", "check_fill_value", "gather"]

_REDUCTIONS = {"add": "sum", "sum": "sum", "mean": "mean", "min": "amin", "max": "amax", "mul": "prod"}


@dataclass(frozen=True)
class SelfLoops:
    """Self loops to put in place of those the graph has.

    Attributes:
        num_nodes: Nodes 0 .. num_nodes - 1 get one each, after all other edges.
        fill_value: Their features: a number, a tensor [D] or [1, D], or how to reduce those of the node's
            in-edges ("mean", "add", "min", "max", "mul"); None is 1.
    """

    num_nodes: int
    fill_value: float | Tensor | str | None


def check_fill_value(fill_value: float | Tensor | str | None) -> float | Tensor | str | None:
    """Refuses what :class:`SelfLoops` cannot fill with.

    Args:
        fill_value: As a layer got it.

    Returns:
        The same.

    Raises:
        ArgumentError: It is no number, no tensor and no known reduction.

    Example:
        >>> check_fill_value("mean")
        'mean'
    """
    known = isinstance(fill_value, str) and fill_value in _REDUCTIONS
    if not (known or fill_value is None or isinstance(fill_value, (int, float, Tensor))):
        wanted = f"a number, a tensor or one of {', '.join(_REDUCTIONS)}"
        raise ArgumentError("fill_value", wanted, repr(fill_value))
    return fill_value


@dataclass(frozen=True)
class Edges:
    """Edges as the operators take them.

    Attributes:
        csc: The edges, self loops included, grouped by target.
        features: [E, D] in the order that ``csc.edge_ids`` counts in, or None.
        given: The adjacency as the layer got it.
        unified: The same in one form.
        topology: How the edges were changed and grouped.
    """

    csc: Csc
    features: Tensor | None
    given: Adjacency
    unified: Unified
    topology: Topology

    def with_weights(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """The pair that layers return beside their output.

        Args:
            weights: [E, H] in the order that ``csc.edge_ids`` counts in.

        Returns:
            ``edge_index`` [2, E] with the self loops and the weights [E, H]; for a sparse adjacency a sparse
            tensor [targets, sources, H] and its values.
        """
        given, loops = self.given, self.topology.num_loops
        if loops is None and isinstance(given, Tensor) and not is_sparse(given):
            return given, weights
        edge_index = self.unified.edge_index
        if edge_index is None:
            # The grouping given is in the caller's order, the grouping with loops in that order with loops.
            edge_index = csc_to_edge_index(self.csc)
        elif loops is not None:
            edge_index = _with_loops(edge_index, self.topology.kept, loops)
        if not (isinstance(given, Tensor) and is_sparse(given)):
            return edge_index, weights
        if loops is not None:
            # A sparse tensor keeps its entries by row (target) and column; CSC by column and row.
            major, minor = (0, 1) if given.layout == torch.sparse_csc else (1, 0)
            order = (edge_index[major] * max(given.shape[:2]) + edge_index[minor]).argsort(stable=True)
            edge_index, weights = edge_index[:, order], weights[order]
        return sparse_like(given, edge_index, weights), weights


def gather(
    adjacency: Adjacency,
    edge_attr: Tensor | None,
    like: Tensor,
    num_targets: int | None,
    self_loops: SelfLoops | None = None,
) -> Edges:
    """Edges and their features, checked, with self loops replaced if wanted, grouped by target.

    Args:
        adjacency: ``edge_index`` [2, E], CSC, graph in CSC order, or sparse [targets, sources].
        edge_attr: [E] or [E, D] in the order of the edges, or None.
        like: [S, ...] what the sources index; the edge features take its type.
        num_targets: R, or None for as many as the adjacency states, or else as there are sources.
        self_loops: The loops to put in, or None to leave the edges alone.

    Returns:
        The edges.

    Raises:
        ArgumentError: The adjacency or the features have a wrong shape, or the numbers do not fit together.

    Example:
        >>> edges = gather(torch.tensor([[1], [0]]), None, torch.zeros(2, 4), 2, SelfLoops(2, "mean"))
        >>> edges.with_weights(torch.ones(3, 1))[0]
        tensor([[1, 0, 1],
                [0, 0, 1]])
    """
    unified = unify(adjacency, like.device)
    num_sources = like.size(0)
    if num_targets is None:
        num_targets = num_sources if unified.num_targets is None else unified.num_targets
    _check_size("targets", unified.num_targets, num_targets)
    _check_size("sources", unified.num_sources, num_sources)
    if edge_attr is None and unified.values is not None and unified.values.dim() > 1:
        edge_attr = unified.values
    topology = _topology(unified, num_sources, num_targets, self_loops)
    features = None if edge_attr is None else _features(edge_attr, unified, topology, like.dtype, self_loops)
    return Edges(topology.csc, features, adjacency, unified, topology)


def _check_size(what: str, stated: int | None, wanted: int) -> None:
    if stated is not None and stated != wanted:
        raise ArgumentError("edge_index", f"a graph of {wanted} {what}, as many as there are features", stated)


def _topology(unified: Unified, num_sources: int, num_targets: int, self_loops: SelfLoops | None) -> Topology:
    edge_index, csc = unified.edge_index, unified.csc
    if self_loops is None and csc is not None:
        return Topology(csc, None, None)

    def build() -> Topology:
        plain = edge_index if csc is None else csc_to_edge_index(csc)
        assert plain is not None  # noqa: S101  # one of the two is always there
        if self_loops is None:
            return Topology(ops.csc(plain, num_sources, num_targets), None, None)
        kept: Tensor | None = (plain[0] != plain[1]).nonzero().view(-1)
        if kept is not None and kept.numel() == plain.size(1):
            kept = None  # no loops to remove: spares a copy of the edge features
        full = _with_loops(plain, kept, self_loops.num_nodes)
        return Topology(ops.csc(full, num_sources, num_targets), kept, self_loops.num_nodes)

    def again(topology: Topology) -> Topology:
        return topology._replace(csc=grouped_by_source(topology.csc, num_sources))

    num_loops = None if self_loops is None else self_loops.num_nodes
    return remembered(unified.identity, (num_sources, num_targets, num_loops), build, again)


def _with_loops(edge_index: Tensor, kept: Tensor | None, num_loops: int) -> Tensor:
    loops = torch.arange(num_loops, dtype=edge_index.dtype, device=edge_index.device).expand(2, -1)
    return torch.cat([edge_index if kept is None else edge_index[:, kept], loops], dim=1)


def _features(
    edge_attr: Tensor, unified: Unified, topology: Topology, dtype: torch.dtype, self_loops: SelfLoops | None
) -> Tensor:
    """[E, D] features of the edges, self loops included."""
    num_edges = unified.csc.indices.numel() if unified.edge_index is None and unified.csc is not None else -1
    if unified.edge_index is not None:
        num_edges = unified.edge_index.size(1)
    if edge_attr.dim() not in (1, 2) or edge_attr.size(0) != num_edges:
        raise ArgumentError("edge_attr", f"shape [{num_edges}, edge_dim], one row per edge", list(edge_attr.shape))
    edge_attr = edge_attr.view(-1, 1) if edge_attr.dim() == 1 else edge_attr
    if not (edge_attr.dtype == torch.float32 and dtype in (torch.float16, torch.bfloat16)):
        edge_attr = edge_attr.to(dtype)  # under autocast the values are narrow and the features need not be
    if self_loops is None:
        return edge_attr
    if topology.kept is not None:
        edge_attr = edge_attr.index_select(0, topology.kept)
    fill = self_loops.fill_value
    num_nodes, width = self_loops.num_nodes, edge_attr.size(1)
    if isinstance(fill, str):
        loops = _reduced(edge_attr, unified, topology, fill, num_nodes)
    elif isinstance(fill, Tensor):
        loops = fill.to(edge_attr).expand(num_nodes, width)
    else:
        loops = edge_attr.new_full((num_nodes, width), 1.0 if fill is None else fill)
    return torch.cat([edge_attr, loops])


def _reduced(edge_attr: Tensor, unified: Unified, topology: Topology, reduction: str, num_nodes: int) -> Tensor:
    """[N, D] the features of each node's in-edges, reduced to one row."""
    edge_index = unified.edge_index
    if edge_index is None and unified.csc is not None:
        edge_index = csc_to_edge_index(unified.csc)
    assert edge_index is not None  # noqa: S101  # one of the two is always there
    targets = edge_index[1] if topology.kept is None else edge_index[1, topology.kept]
    targets = targets.long()
    # Targets past the last loop (more targets than sources) get a row that is cut off again.
    num_rows = topology.csc.indptr.numel() - 1
    if reduction == "mean":
        # Not scatter_reduce: its gradient is several times slower.
        count = edge_attr.new_zeros(num_rows).index_add_(0, targets, edge_attr.new_ones(targets.numel()))
        total = edge_attr.new_zeros(num_rows, edge_attr.size(1)).index_add(0, targets, edge_attr)
        return (total / count.clamp(min=1).unsqueeze(1))[:num_nodes]
    base = edge_attr.new_zeros(num_rows, edge_attr.size(1))
    if reduction in ("add", "sum"):
        return base.index_add(0, targets, edge_attr)[:num_nodes]
    index = targets.unsqueeze(1).expand_as(edge_attr)
    if reduction == "mul":
        return (base + 1).scatter_reduce(0, index, edge_attr, "prod")[:num_nodes]
    return base.scatter_reduce(0, index, edge_attr, _REDUCTIONS[reduction], include_self=False)[:num_nodes]
