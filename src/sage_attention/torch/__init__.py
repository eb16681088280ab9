"""SageAttention for PyTorch: operators, and layers that take the place of PyTorch Geometric's."""

from __future__ import annotations

from .nn import GATConv, GATv2Conv, TransformerConv

__all__ = ["GATConv", "GATv2Conv", "TransformerConv"]
