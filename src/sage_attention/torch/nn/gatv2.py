"""GATv2Conv: PyG's layer with the same arguments, parameters and results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import Parameter

from sage_attention.errors import ArgumentError
from sage_attention.torch import ops

from .edges import SelfLoops, check_fill_value
from .layer import AttentionLayer, Channels, Features, Output
from .linear import Linear, glorot_, matrix

if TYPE_CHECKING:
    from .adjacency import Adjacency

__all__ = ["GATv2Conv"]


class GATv2Conv(AttentionLayer):
    """Graph attention with dynamic scores (Brody et al., 2022), as ``torch_geometric.nn.GATv2Conv``.

    The weight of edge j -> i is the softmax over the in-edges of i of
    att . LeakyReLU(W_l x_j + W_r x_i [+ W_e e_ij]); the output is the weighted sum of W_l x_j. No array of
    edges x heads x channels is made.

    Args:
        in_channels: Size of the input rows, or of source and target rows; -1 takes it from the first input.
        out_channels: Size of the output per head.
        heads: Number of heads.
        concat: Concatenate the heads; otherwise take their mean.
        negative_slope: Slope of LeakyReLU below zero.
        dropout: Chance that an attention weight is set to zero in training.
        add_self_loops: Put one self loop at every node that is both source and target, in place of those
            given.
        edge_dim: Size of the edge features, or None for none.
        fill_value: Edge features of the self loops: a number, a tensor, or how to reduce those of the node's
            in-edges ("mean", "add", "min", "max", "mul").
        bias: Learn additive biases, of the projections and of the output.
        share_weights: Use one projection for sources and targets.
        residual: Add a learned linear map of the target rows.
        **kwargs: ``aggr`` and ``flow``, of which only the defaults are supported.

    Raises:
        ArgumentError: An argument has a value that cannot be.

    Example:
        >>> layer = GATv2Conv(16, 8, heads=2)
        >>> layer(torch.randn(4, 16), torch.tensor([[0, 1, 2], [1, 2, 3]])).shape
        torch.Size([4, 16])
    """

    def __init__(
        self,
        in_channels: Channels,
        out_channels: int,
        heads: int = 1,
        concat: bool = True,
        negative_slope: float = 0.2,
        dropout: float = 0.0,
        add_self_loops: bool = True,
        edge_dim: int | None = None,
        fill_value: float | Tensor | str = "mean",
        bias: bool = True,
        share_weights: bool = False,
        residual: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(in_channels, out_channels, heads, concat, dropout, edge_dim, **kwargs)
        self.negative_slope = negative_slope
        self.add_self_loops = add_self_loops
        self.fill_value = check_fill_value(fill_value)
        self.residual = residual
        self.share_weights = share_weights
        width = heads * out_channels
        source_channels, target_channels = self._source_target_channels()
        self.lin_l = Linear(source_channels, width, bias=bias, glorot=True)
        self.lin_r = self.lin_l if share_weights else Linear(target_channels, width, bias=bias, glorot=True)
        self.att = Parameter(torch.empty(1, heads, out_channels))
        self.lin_edge = None if edge_dim is None else Linear(edge_dim, width, bias=False, glorot=True)
        self.res: Linear | None = None
        if residual:
            self.res = Linear(target_channels, self.total_out_channels, bias=False, glorot=True)
        self.bias = Parameter(torch.empty(self.total_out_channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws all parameters anew, from PyTorch's default generator."""
        for linear in (self.lin_l, self.lin_r, self.lin_edge, self.res):
            if linear is not None:
                linear.reset_parameters()
        glorot_(self.att)
        if self.bias is not None:
            torch.nn.init.zeros_(self.bias)

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
            edge_attr: [E, D] or [E] edge features in the order of the edges; only with ``edge_dim``.
            return_attention_weights: If true, also return the edges with their weights.

        Returns:
            [R, H * C] or [R, C]; with weights ``(out, (edge_index [2, E'], weights [E', H]))``, the self
            loops put in coming last, the weights after dropout.

        Raises:
            ArgumentError: Shapes do not fit together, or an index is out of range.
        """
        x_l, x_r = self._sources_and_targets(x)
        if x_r is None:
            raise ArgumentError("x", "rows of sources and of targets", "None for the targets")
        res = None if self.res is None else self.res(x_r)
        values = self._split_heads(self.lin_l(x_l))
        shared = self.share_weights and x_l is x_r
        queries = values if shared else self._split_heads(self.lin_r(x_r))

        loops = None
        if self.add_self_loops:
            loops = SelfLoops(min(values.size(0), queries.size(0)), self.fill_value)
        edges = self._gather(edge_index, edge_attr, values, queries.size(0), loops)
        features, edge_weight = edges.features, None
        if features is not None:
            if self.lin_edge is None:
                raise ArgumentError("edge_attr", "none, as the layer has no edge_dim", list(features.shape))
            edge_weight = matrix(self.lin_edge, features.size(1), features)

        out, weights = ops.gatv2_attention(
            edges.csc,
            values,
            queries,
            self.att[0],
            edge_features=features,
            edge_weight=edge_weight,
            bias=self._bias_inside(self.bias),
            negative_slope=self.negative_slope,
            dropout=self._dropout_now(),
            return_weights=bool(return_attention_weights),
        )
        out = self._merge_heads(out, res, self.bias)
        return out if weights is None else (out, edges.with_weights(weights))
