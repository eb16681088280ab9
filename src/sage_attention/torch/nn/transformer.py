"""TransformerConv: PyG's layer with the same arguments, parameters and results."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sage_attention.errors import ArgumentError
from sage_attention.torch import ops

from .layer import AttentionLayer, Channels, Features, Output
from .linear import Linear, matrix

if TYPE_CHECKING:
    from .adjacency import Adjacency
    from .edges import Edges

__all__ = ["TransformerConv"]


class TransformerConv(AttentionLayer):
    """Dot-product graph attention (Shi et al., 2021), as ``torch_geometric.nn.TransformerConv``.

    The weight of edge j -> i is the softmax over the in-edges of i of q_i . (k_j [+ W_e e_ij]) / sqrt(C); the
    output is the weighted sum of v_j [+ W_e e_ij], mixed with a linear map of x_i. Edge features are never
    projected: the queries are carried to their space (W_e' q_i), and their weighted sum is projected once per
    target.

    Args:
        in_channels: Size of the input rows, or of source and target rows; -1 takes it from the first input.
        out_channels: Size of the output per head.
        heads: Number of heads.
        concat: Concatenate the heads; otherwise take their mean.
        beta: Learn how much of the output comes from the target's own row.
        dropout: Chance that an attention weight is set to zero in training.
        edge_dim: Size of the edge features, or None for none.
        bias: Learn additive biases of the projections.
        root_weight: Add a linear map of the target's own row.
        **kwargs: ``aggr`` and ``flow``, of which only the defaults are supported.

    Raises:
        ArgumentError: An argument has a value that cannot be.

    Example:
        >>> layer = TransformerConv(16, 8, heads=2)
        >>> layer(torch.randn(4, 16), torch.tensor([[0, 1, 2], [1, 2, 3]])).shape
        torch.Size([4, 16])
    """

    def __init__(
        self,
        in_channels: Channels,
        out_channels: int,
        heads: int = 1,
        concat: bool = True,
        beta: bool = False,
        dropout: float = 0.0,
        edge_dim: int | None = None,
        bias: bool = True,
        root_weight: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(in_channels, out_channels, heads, concat, dropout, edge_dim, **kwargs)
        self.beta = beta and root_weight
        self.root_weight = root_weight
        width, total = heads * out_channels, self.total_out_channels
        source_channels, target_channels = self._source_target_channels()
        self.lin_key = Linear(source_channels, width, bias=bias)
        self.lin_query = Linear(target_channels, width, bias=bias)
        self.lin_value = Linear(source_channels, width, bias=bias)
        self.lin_edge = None if edge_dim is None else Linear(edge_dim, width, bias=False)
        # Also without root_weight, as in PyG's checkpoints.
        self.lin_skip = Linear(target_channels, total, bias=bias)
        self.lin_beta = Linear(3 * total, 1, bias=False) if self.beta else None
        self.reset_parameters()

    def forward(
        self,
        x: Features,
        edge_index: Adjacency,
        edge_attr: Tensor | None = None,
        return_attention_weights: bool | None = None,
    ) -> Output:
        """Attends every target to its in-edges.

        Args:
            x: [N, F] rows of all nodes, or those of sources [S, F_s] and targets [R, F_t].
            edge_index: [2, E] sources and targets, or what :mod:`~sage_attention.torch.nn.adjacency` lists.
            edge_attr: [E, D] or [E] edge features in the order of the edges, as ``edge_dim`` says; without it
                [E, H, C] (or what expands to it), added to the values as it is.
            return_attention_weights: True or False: also return the edges with their weights.

        Returns:
            [R, H * C] or [R, C]; with weights ``(out, (edge_index [2, E], weights [E, H]))``, the weights
            before dropout.

        Raises:
            ArgumentError: Shapes do not fit together, or an index is out of range.
        """
        x_src, x_dst = self._sources_and_targets(x)
        if x_dst is None:
            raise ArgumentError("x", "rows of sources and of targets", "None for the targets")
        query = self._split_heads(self.lin_query(x_dst))
        key = self._split_heads(self.lin_key(x_src))
        value = self._split_heads(self.lin_value(x_src))
        if self.lin_edge is not None and edge_attr is None:
            raise ArgumentError("edge_attr", f"edge features of {self.edge_dim} columns (edge_dim)", None)

        raw = edge_attr if self.lin_edge is None else None
        edges = self._gather(edge_index, None if raw is not None else edge_attr, value, query.size(0))
        wants_weights = isinstance(return_attention_weights, bool)
        out, weights = self._attend(edges, query, key, value, raw, wants_weights)

        out = self._merge_heads(out)
        if self.root_weight:
            own = self.lin_skip(x_dst)
            if self.lin_beta is None:
                out = out + own
            else:
                beta = self.lin_beta(torch.cat([out, own, out - own], dim=-1)).sigmoid()
                out = beta * own + (1 - beta) * out
        if weights is None:
            return out
        # A sparse adjacency comes back as it was given, without the weights in it, as in PyG.
        shown = edge_index if isinstance(edge_index, Tensor) else edges.with_weights(weights)[0]
        return out, (shown, weights)

    def _attend(
        self, edges: Edges, query: Tensor, key: Tensor, value: Tensor, raw: Tensor | None, wants_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        """[R, H, C] the weighted sums, and [E, H] the weights before dropout."""
        features, edge_queries, by_head = edges.features, None, None
        if features is not None and self.lin_edge is not None:
            weight = matrix(self.lin_edge, features.size(1), features)
            assert weight is not None  # noqa: S101  # an identity was given
            by_head = weight.view(self.heads, self.out_channels, weight.size(1))
            edge_queries = torch.einsum("nhc,hcd->nhd", query, by_head.to(query.dtype))
        dropout, scale = self._dropout_now(), 1.0 / math.sqrt(self.out_channels)
        before = wants_weights and raw is None
        out, edge_out, weights = ops.dot_attention(
            edges.csc,
            query,
            key,
            value,
            edge_features=features,
            edge_queries=edge_queries,
            scale=scale,
            dropout=dropout,
            return_weights=before or raw is not None,
            weights_before_dropout=before,
        )
        if edge_out is not None and by_head is not None:
            out = out + torch.einsum("nhd,hcd->nhc", edge_out, by_head.to(edge_out.dtype))
        if raw is not None:
            assert weights is not None  # noqa: S101  # asked for above
            out = out + self._sum_of_raw(edges, raw, weights)
            if wants_weights and dropout > 0:
                # Those at hand are after dropout, as the sum needs them.
                csc = edges.csc
                weights = ops.dot_attention(csc, query, key, value, scale=scale, return_weights=True)[2]
        return out, weights if wants_weights else None

    def _sum_of_raw(self, edges: Edges, raw: Tensor, weights: Tensor) -> Tensor:
        """[R, H, C] the weighted sum of edge features that have the shape of values."""
        if raw.dim() != 3 or raw.size(0) not in (1, weights.size(0)):
            raise ArgumentError(
                "edge_attr",
                f"none, or shape [{weights.size(0)}, {self.heads}, {self.out_channels}] to add to the values",
                list(raw.shape),
                "give the layer edge_dim for edge features of another size",
            )
        csc = edges.csc
        degrees = csc.indptr.diff()
        rows = torch.arange(degrees.numel(), device=degrees.device)
        rows = rows.repeat_interleave(degrees, output_size=csc.indices.numel())
        targets = torch.empty_like(rows).index_copy_(0, csc.edge_ids, rows)
        summands = weights.unsqueeze(-1) * raw.to(weights.dtype)
        base = weights.new_zeros(degrees.numel(), self.heads, self.out_channels)
        return base.index_add(0, targets, summands.expand(-1, -1, self.out_channels))
