"""GATConv: PyG's layer with the same arguments, parameters and results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import Parameter, functional

from sage_attention.errors import ArgumentError
from sage_attention.torch import ops
from sage_attention.torch.raw import gat_attention_rows
from sage_attention.torch.rows import Rows, gathered_rows

from .edges import Edges, SelfLoops, check_fill_value
from .guide import Guide, GuidedInputs, attend
from .layer import AttentionLayer, Channels, Features, Output
from .linear import Linear, glorot_, matrix
from .order import Sizes, can_project_after, can_sum_learned, check_order, projects_after

if TYPE_CHECKING:
    from .adjacency import Adjacency

__all__ = ["GATConv"]


class GATConv(AttentionLayer):
    """Graph attention with additive scores (Velickovic et al., 2018), as ``torch_geometric.nn.GATConv``.

    The weight of edge j -> i is the softmax over the in-edges of i of
    LeakyReLU(att_src . W x_j + att_dst . W x_i [+ att_edge . W_e e_ij]); the output is the weighted sum of
    W x_j. No array of edges x heads x channels is made: the edge term is folded into one vector per head.

    Args:
        in_channels: Size of the input rows, or of source and target rows (then with a projection for each);
            -1 takes it from the first input.
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
        bias: Learn an additive bias.
        residual: Add a learned linear map of the target rows.
        **kwargs: ``aggr`` and ``flow``, of which only the defaults are supported.

    Raises:
        ArgumentError: An argument has a value that cannot be.

    Example:
        >>> layer = GATConv(16, 8, heads=2)
        >>> layer(torch.randn(4, 16), torch.tensor([[0, 1, 2], [1, 2, 3]])).shape
        torch.Size([4, 16])
    """

    guide: Guide | None = None
    """How in-edges are picked, or None to attend all; `sage_attention.torch.guide` sets it."""
    project: str = "auto"
    """When rows are projected: "before" they are summed, as the formula says; "after" that, where it is possible (rows
    without gradient, or one head; on the CPU, no edge features, no guide, no weights asked for); "auto": as costs less.
    The numbers are the same but for rounding. See :mod:`~sage_attention.torch.nn.order`."""

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
        residual: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(in_channels, out_channels, heads, concat, dropout, edge_dim, **kwargs)
        self.negative_slope = negative_slope
        self.add_self_loops = add_self_loops
        self.fill_value = check_fill_value(fill_value)
        self.residual = residual
        width = heads * out_channels
        source_channels, target_channels = self._source_target_channels()
        self.lin: Linear | None = None
        self.lin_src: Linear | None = None
        self.lin_dst: Linear | None = None
        if isinstance(in_channels, int):
            self.lin = Linear(in_channels, width, bias=False, glorot=True)
        else:
            self.lin_src = Linear(source_channels, width, bias=False, glorot=True)
            self.lin_dst = Linear(target_channels, width, bias=False, glorot=True)
        self.att_src = Parameter(torch.empty(1, heads, out_channels))
        self.att_dst = Parameter(torch.empty(1, heads, out_channels))
        self.lin_edge: Linear | None = None
        if edge_dim is not None:
            self.lin_edge = Linear(edge_dim, width, bias=False, glorot=True)
            self.att_edge: Parameter | None = Parameter(torch.empty(1, heads, out_channels))
        else:
            self.register_parameter("att_edge", None)
        self.res: Linear | None = None
        if residual:
            self.res = Linear(target_channels, self.total_out_channels, bias=False, glorot=True)
        self.bias = Parameter(torch.empty(self.total_out_channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws all parameters anew, from PyTorch's default generator."""
        super().reset_parameters()
        for vector in (self.att_src, self.att_dst, self.att_edge):
            if vector is not None:
                glorot_(vector)
        if self.bias is not None:
            torch.nn.init.zeros_(self.bias)

    def forward(
        self,
        x: Features,
        edge_index: Adjacency,
        edge_attr: Tensor | None = None,
        size: tuple[int, int] | None = None,
        return_attention_weights: bool | None = None,
    ) -> Output:
        """Attends every target to its in-edges.

        Args:
            x: [N, F] rows of all nodes, or those of sources [S, F_s] and targets [R, F_t]; None for the
                latter leaves their part of the score out. `Rows` of a table need not be gathered first.
            edge_index: [2, E] sources and targets, or what :mod:`~sage_attention.torch.nn.adjacency` lists.
            edge_attr: [E, D] or [E] edge features in the order of the edges; ignored without ``edge_dim``.
            size: (S, R), where the rows do not tell.
            return_attention_weights: If true, also return the edges with their weights.

        Returns:
            [R, H * C] or [R, C]; with weights ``(out, (edge_index [2, E'], weights [E', H]))``, the self
            loops put in coming last, the weights after dropout.

        Raises:
            ArgumentError: Shapes do not fit together, or an index is out of range.
        """
        source, target = self._ends(x)
        projection = self.lin if self.lin is not None else self.lin_src
        assert projection is not None  # noqa: S101  # one of the two is always there
        num_targets = self._check_size(size, source.size(0), None if target is None else target.size(0))
        loops = None
        if self.add_self_loops:
            both = source.size(0) if target is None else min(source.size(0), target.size(0))
            loops = SelfLoops(both if size is None else min(size), self.fill_value)
        used = edge_attr if self.lin_edge is not None else None
        like = source if isinstance(source, Tensor) else source.like()
        edges = self._gather(edge_index, used, like, num_targets, loops)
        if edges.features is None and self.guide is None and not return_attention_weights:
            out = self._projected_after(source, target, edges, projection)
            if out is not None:
                return out

        x_src = gathered_rows(source)
        x_dst = x_src if target is source else None if target is None else gathered_rows(target)
        res = self.res(x_dst) if self.res is not None and x_dst is not None else None
        values = self._split_heads(projection(x_src))
        source_logits, target_logits = self._logits(x_src, x_dst, values, projection)
        features, edge_weight = edges.features, None
        if features is not None:
            edge_weight = self._edge_weight(features)

        if self.guide is not None:
            if return_attention_weights:
                raise ArgumentError("return_attention_weights", "False with a guide", True, "guide(model, None) first")
            rows = GuidedInputs(
                x_src, lambda x: self._split_heads(projection(x)), values, source_logits, target_logits,
                edge_weight, self.negative_slope, self._dropout_now(),
            )  # fmt: skip
            return self._merge_heads(self._guided(self.guide, edges, rows), res, self.bias)

        out, weights = ops.gat_attention(
            edges.csc,
            values,
            source_logits,
            target_logits,
            edge_features=features,
            edge_weight=edge_weight,
            bias=self._bias_inside(self.bias),
            negative_slope=self.negative_slope,
            dropout=self._dropout_now(),
            return_weights=bool(return_attention_weights),
        )
        out = self._merge_heads(out, res, self.bias)
        return out if weights is None else (out, edges.with_weights(weights))

    def _projected_after(
        self, source: Tensor | Rows, target: Tensor | Rows | None, edges: Edges, projection: torch.nn.Module
    ) -> Tensor | None:
        """The output by way of sums of raw rows, or None where that cannot be or costs more."""
        check_order(self.project)
        learned = can_sum_learned(source, self.heads)
        if self.project == "before" or not (learned or can_project_after(source)):
            return None
        weight = matrix(projection, source.size(1))
        if weight is None or weight.dtype != source.dtype:
            return None
        sizes = Sizes(source.size(0), edges.csc.indptr.size(0) - 1, edges.csc.indices.size(0), self.heads,
                      source.size(1), self.out_channels, isinstance(source, Rows), learned)  # fmt: skip
        learns = torch.is_grad_enabled() and any(p.requires_grad for p in self.parameters())
        fast = learned or source.dtype == torch.float32  # raw rows of float64 are for comparing with: not vectorised
        if self.project == "auto" and not (fast and projects_after(sizes, learns)):
            return None
        res = self.res(gathered_rows(target)) if self.res is not None and target is not None else None
        if learned and isinstance(source, Tensor):
            sums, _ = ops.gat_attention(
                edges.csc,
                source.unsqueeze(1),
                functional.linear(source, self._folded(weight, self.att_src)),
                None if target is None else self._target_logits(gathered_rows(target)),
                negative_slope=self.negative_slope,
                dropout=self._dropout_now(),
            )
            out = functional.linear(sums, weight, self.bias if self.concat else None)
            return self._merge_heads(out, res, self.bias)
        own, target_weight, target_logits = target, None, None
        if target is not None:
            of_target = self.lin if self.lin is not None else self.lin_dst
            assert of_target is not None  # noqa: S101  # one of the two is always there
            own_weight = matrix(of_target, target.size(1))
            if own_weight is not None and target.size(1) == source.size(1) and can_project_after(target):
                target_weight = self._folded(own_weight, self.att_dst)
            else:
                own, target_logits = None, self._target_logits(gathered_rows(target))
        out = gat_attention_rows(
            edges.csc,
            source,
            self._folded(weight, self.att_src),
            weight.view(self.heads, self.out_channels, weight.size(1)),
            target_rows=own,
            target_weight=target_weight,
            target_logits=target_logits,
            bias=self._bias_inside(self.bias),
            negative_slope=self.negative_slope,
            dropout=self._dropout_now(),
        )
        return self._merge_heads(out, res, self.bias)

    def _guided(self, guide: Guide, edges: Edges, inputs: GuidedInputs) -> Tensor:
        out: Tensor = attend(guide, edges, inputs, self.training)
        bias = self._bias_inside(self.bias)
        return out if bias is None else out + bias.to(out.dtype)

    def _check_size(self, size: tuple[int, int] | None, num_sources: int, num_targets: int | None) -> int | None:
        if size is None:
            return num_targets
        if size[0] != num_sources or num_targets not in (None, size[1]):
            raise ArgumentError("size", f"the numbers of rows in x, {(num_sources, num_targets)}", tuple(size))
        return size[1]

    def _logits(
        self, x_src: Tensor, x_dst: Tensor | None, values: Tensor, projection: torch.nn.Module
    ) -> tuple[Tensor, Tensor | None]:
        """[S, H] and [R, H], what sources and targets add to the scores.

        att . (W x) = (W' att) . x: unless rows are much wider than the values, that is less work, and it leaves the
        values' gradient alone.
        """
        weight = matrix(projection, x_src.size(1)) if x_src.size(1) <= 2 * self.heads * self.out_channels else None
        if self.lin is not None and x_dst is x_src:
            if weight is None:
                return self._dots(values, self.att_src), self._dots(values, self.att_dst)
            both = torch.cat([self._folded(weight, self.att_src), self._folded(weight, self.att_dst)])
            logits = functional.linear(x_src, both)
            return logits[:, : self.heads].contiguous(), logits[:, self.heads :].contiguous()
        if weight is None:
            source_logits = self._dots(values, self.att_src)
        else:
            source_logits = functional.linear(x_src, self._folded(weight, self.att_src))
        return source_logits, None if x_dst is None else self._target_logits(x_dst)

    def _dots(self, values: Tensor, attention: Tensor) -> Tensor:
        return torch.einsum("nhc,hc->nh", values, attention[0])

    def _target_logits(self, x_dst: Tensor) -> Tensor:
        """[R, H] the targets' part of the score, without projecting them."""
        projection = self.lin if self.lin is not None else self.lin_dst
        assert projection is not None  # noqa: S101  # one of the two is always there
        weight = matrix(projection, x_dst.size(1))
        if weight is None:
            return self._dots(self._split_heads(projection(x_dst)), self.att_dst)
        return functional.linear(x_dst, self._folded(weight, self.att_dst))

    def _edge_weight(self, features: Tensor) -> Tensor:
        """[H, D] the edge projection folded into the attention vector."""
        assert self.lin_edge is not None  # noqa: S101  # callers have asked
        assert self.att_edge is not None  # noqa: S101  # comes with lin_edge
        weight = matrix(self.lin_edge, features.size(1), features)
        assert weight is not None  # noqa: S101  # an identity was given
        return self._folded(weight, self.att_edge)

    def _folded(self, weight: Tensor, attention: Tensor) -> Tensor:
        by_head = weight.view(self.heads, self.out_channels, weight.size(1))
        return torch.einsum("hcf,hc->hf", by_head, attention[0])

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        # Checkpoints of PyG before 2.5 hold the one projection twice, as that of sources and of targets.
        old, new = prefix + "lin_src.weight", prefix + "lin.weight"
        if self.lin is not None and old in state_dict and new not in state_dict:
            twin = state_dict.get(prefix + "lin_dst.weight")
            if twin is None or twin is state_dict[old] or torch.equal(twin, state_dict[old]):
                state_dict[new] = state_dict.pop(old)
                state_dict.pop(prefix + "lin_dst.weight", None)
        super()._load_from_state_dict(state_dict, prefix, *args)
