"""Stands in for ``ops`` until it exists."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .fallback import dot_attention, gat_attention, gatv2_attention

__all__ = ["Csc", "csc", "dot_attention", "gat_attention", "gatv2_attention"]


class Csc(NamedTuple):
    """Edges grouped by target."""

    indptr: Tensor
    indices: Tensor
    edge_ids: Tensor


def csc(edge_index: Tensor, num_sources: int, num_targets: int) -> Csc:
    """Group edges by target."""
    sources, targets = edge_index[0], edge_index[1]
    if sources.numel() and not (int(sources.min()) >= 0 and int(sources.max()) < num_sources):
        raise IndexError("source out of range")
    if targets.numel() and not (int(targets.min()) >= 0 and int(targets.max()) < num_targets):
        raise IndexError("target out of range")
    edge_ids = targets.argsort(stable=True)
    bounds = torch.arange(num_targets + 1, device=targets.device, dtype=targets.dtype)
    return Csc(torch.searchsorted(targets[edge_ids], bounds), sources[edge_ids], edge_ids)
