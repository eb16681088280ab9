"""Attention layers with the same weights: PyTorch Geometric's and ours, whole or without projections."""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any, Callable

import torch
from torch import Tensor
from torch_geometric import nn as pyg

from sage_attention.torch import Csc, convert, ops

if TYPE_CHECKING:
    from torch.nn import Module

__all__ = [
    "KINDS",
    "OursAttention",
    "PygAttention",
    "compiled",
    "pair",
    "projected",
    "train_step",
]

KINDS = ("gat", "gatv2", "dot")


def _pyg_layer(kind: str, in_channels: int, channels: int, heads: int) -> Any:
    """A layer of PyTorch Geometric without self loops of its own, so that both sides see the same edges."""
    if kind == "dot":
        return pyg.TransformerConv(in_channels, channels, heads=heads)
    layer = pyg.GATConv if kind == "gat" else pyg.GATv2Conv
    return layer(in_channels, channels, heads=heads, add_self_loops=False)


def pair(kind: str, in_channels: int, channels: int, heads: int) -> tuple[Any, Any]:
    """A layer of PyTorch Geometric, and ours with a copy of its weights."""
    theirs = _pyg_layer(kind, in_channels, channels, heads)
    return theirs, convert(copy.deepcopy(theirs), check=False)


def projected(kind: str, layer: Any, x: Tensor) -> tuple[Tensor, ...]:
    """What attention starts from, values and logits; keys, queries; or queries, keys, values.

    Logits are [N, H], of sources and of targets; all others [N, H, C].
    """
    maps = {
        "gat": ("lin",),
        "gatv2": ("lin_l", "lin_r"),
        "dot": ("lin_query", "lin_key", "lin_value"),
    }[kind]
    with torch.no_grad():
        made = [getattr(layer, name)(x).view(-1, layer.heads, layer.out_channels) for name in maps]
        if kind == "gat":
            made += [(made[0] * vector).sum(dim=-1) for vector in (layer.att_src, layer.att_dst)]
    return tuple(tensor.requires_grad_() for tensor in made)


class PygAttention(torch.nn.Module):
    """What a layer of PyTorch Geometric does with projected values, by its own methods."""

    def __init__(self, kind: str, layer: Any) -> None:
        super().__init__()
        self.kind = kind
        self.layer: Any = layer

    def forward(self, edge_index: Tensor, *tensors: Tensor) -> Any:
        """[N, H, C] of the edges [2, E] and what `projected` gives."""
        layer = self.layer
        if self.kind == "gat":
            values, *logits = tensors
            weights = layer.edge_updater(edge_index, alpha=tuple(logits), edge_attr=None, size=None)
            return layer.propagate(edge_index, x=(values, values), alpha=weights, size=None)
        if self.kind == "gatv2":
            weights = layer.edge_updater(edge_index, x=tensors, edge_attr=None)
            return layer.propagate(edge_index, x=tensors, alpha=weights)
        query, key, value = tensors
        out = layer.propagate(edge_index, query=query, key=key, value=value, edge_attr=None)
        layer._alpha = None  # noqa: SLF001  as its forward does
        return out


class OursAttention(torch.nn.Module):
    """The same by this package's operators."""

    def __init__(self, kind: str, layer: Any) -> None:
        super().__init__()
        self.kind = kind
        self.layer: Any = layer

    def forward(self, csc: Csc, *tensors: Any) -> Any:
        """[N, H, C] of the grouped edges and what `projected` gives."""
        layer = self.layer
        if self.kind == "gat":
            return ops.gat_attention(csc, *tensors)[0]
        if self.kind == "gatv2":
            values, queries = tensors
            return ops.gatv2_attention(csc, values, queries, layer.att[0])[0]
        return ops.dot_attention(csc, *tensors, scale=1.0 / math.sqrt(layer.out_channels))[0]


def compiled(module: Module, *, dynamic: bool = False) -> Any:
    """The module under ``torch.compile``, with a copy of its weights."""
    return torch.compile(copy.deepcopy(module), dynamic=dynamic)


def train_step(run: Callable[[], Tensor], leaves: list[Tensor]) -> Callable[[], Tensor]:
    """A step that computes gradients anew: forward, sum, backward; gives the output."""

    def step() -> Tensor:
        for leaf in leaves:
            leaf.grad = None
        out = run()
        torch.autograd.backward(out.sum())
        return out

    return step
