"""What the three layers have in common: options, checks, and the step from parameters to operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Union

import torch
from torch import Tensor

from sage_attention.errors import ArgumentError
from sage_attention.torch.rows import Rows, gathered_rows

from .edges import Edges, SelfLoops, gather
from .message_passing import known_to_pyg

if TYPE_CHECKING:
    from typing_extensions import Self

    from .adjacency import Adjacency

__all__ = ["AttentionLayer", "Channels", "Features", "Output"]

Channels = Union[int, "tuple[int, int]"]
Features = Union[Tensor, Rows, "tuple[Tensor | Rows, Tensor | Rows | None]"]
Output = Union[Tensor, "tuple[Tensor, tuple[Tensor, Tensor]]"]


class AttentionLayer(torch.nn.Module):
    """Base of the layers: the options all of them have. Not for use by itself.

    Args:
        in_channels: Size of the input rows, or of source and target rows; -1 takes it from the first input.
        out_channels: Size of the output per head.
        heads: Number of heads.
        concat: Concatenate the heads; otherwise take their mean.
        dropout: Chance that an attention weight is set to zero in training.
        edge_dim: Size of the edge features, or None for none.
        aggr: Only the sum is an attention; "add" and "sum" are its names.
        flow: Only "source_to_target".
        options: Anything else is refused.

    Raises:
        ArgumentError: An option has a value that cannot be.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:  # noqa: ARG004, D102
        return super().__new__(known_to_pyg(cls))

    def __init__(
        self,
        in_channels: Channels,
        out_channels: int,
        heads: int,
        concat: bool,
        dropout: float,
        edge_dim: int | None,
        *,
        aggr: Any = "add",
        flow: str = "source_to_target",
        **options: Any,
    ) -> None:
        torch.nn.Module.__init__(self)  # not that of MessagePassing, which layers are of in name only
        name = type(self).__name__
        if isinstance(in_channels, Sequence) and len(in_channels) != 2:
            raise ArgumentError("in_channels", "a size, or those of sources and targets", in_channels)
        if out_channels < 1 or heads < 1:
            raise ArgumentError("out_channels, heads", "at least 1", (out_channels, heads))
        if not 0.0 <= dropout < 1.0:
            raise ArgumentError("dropout", "a chance of at least 0 and less than 1", dropout)
        if str(aggr) not in ("add", "sum", "SumAggregation()"):
            raise ArgumentError("aggr", f"'add': {name} sums what the weights select", aggr)
        if flow != "source_to_target":
            raise ArgumentError("flow", "'source_to_target'", repr(flow), "pass edge_index.flip(0) instead")
        if options.pop("decomposed_layers", 1) != 1 or options:
            raise ArgumentError(f"arguments of {name}", "those in its documentation", sorted(options))
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.heads = heads
        self.concat = concat
        self.dropout = dropout
        self.edge_dim = edge_dim
        self.aggr = aggr
        self.flow = flow
        self.node_dim = 0

    def __setstate__(self, state: dict[str, Any]) -> None:
        torch.nn.Module.__setstate__(self, state)  # type: ignore[no-untyped-call]  # MessagePassing's wants what its constructor makes

    @property
    def total_out_channels(self) -> int:
        """Size of the output rows."""
        return self.out_channels * (self.heads if self.concat else 1)

    def reset_parameters(self) -> None:
        """Draws all parameters anew, from PyTorch's default generator."""
        for child in self.children():
            child.reset_parameters()  # type: ignore[operator]  # all of them are linear maps

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.in_channels}, {self.out_channels}, heads={self.heads})"

    def _source_target_channels(self) -> tuple[int, int]:
        channels = self.in_channels
        return (channels, channels) if isinstance(channels, int) else (channels[0], channels[1])

    def _ends(self, x: Features) -> tuple[Tensor | Rows, Tensor | Rows | None]:
        """The rows of sources and of targets, as they were given."""
        sources, targets = (x, x) if isinstance(x, (Tensor, Rows)) else (x[0], x[1])
        for end in (sources, targets):
            if isinstance(end, Tensor) and end.dim() != 2:
                raise ArgumentError("x", "shape [num_nodes, channels]", list(end.shape))
        return sources, targets

    def _sources_and_targets(self, x: Features) -> tuple[Tensor, Tensor | None]:
        """The same as tensors."""
        sources, targets = self._ends(x)
        gathered = gathered_rows(sources)
        return gathered, gathered if targets is sources else None if targets is None else gathered_rows(targets)

    def _split_heads(self, projected: Tensor) -> Tensor:
        return projected.view(-1, self.heads, self.out_channels)

    def _bias_inside(self, bias: Tensor | None) -> Tensor | None:
        """The bias [H, C] where it can be added inside the attention: that spares a copy of the output."""
        return bias.view(self.heads, self.out_channels) if self.concat and bias is not None else None

    def _merge_heads(self, out: Tensor, res: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
        """[R, H * C] or [R, C], with the residual, and the bias unless it was added inside."""
        out = out.reshape(-1, self.heads * self.out_channels) if self.concat else out.mean(dim=1)
        out = out if res is None else out + res
        return out if self.concat or bias is None else out + bias.to(out.dtype)

    def _dropout_now(self) -> float:
        return self.dropout if self.training else 0.0

    def _gather(
        self,
        adjacency: Adjacency,
        edge_attr: Tensor | None,
        values: Tensor,
        num_targets: int | None,
        self_loops: SelfLoops | None = None,
    ) -> Edges:
        edges = gather(adjacency, edge_attr, values, num_targets, self_loops)
        width = None if edges.features is None else edges.features.size(1)
        if width is not None and self.edge_dim is not None and self.edge_dim not in (-1, 0, width):
            raise ArgumentError("edge_attr", f"{self.edge_dim} columns (edge_dim)", width)
        return edges
