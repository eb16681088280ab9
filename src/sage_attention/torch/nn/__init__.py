"""PyG's attention layers on this package's operators; PyTorch Geometric itself is not needed."""

from __future__ import annotations

from .cache import forget
from .gat import GATConv
from .gatv2 import GATv2Conv
from .hgt import HGTConv
from .linear import Linear
from .transformer import TransformerConv

__all__ = ["GATConv", "GATv2Conv", "HGTConv", "Linear", "TransformerConv", "forget"]
