"""Tensors of any content for what the kernels write, in memory of earlier ones where that is large and gone."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import Parameter

from sage_attention import reuse

__all__ = ["empty"]

_TYPES = {torch.float32: "float32", torch.float64: "float64"}
_FEW = reuse.SMALLEST // 8  # elements


def empty(like: Tensor, *shape: int) -> Tensor:
    """A contiguous tensor of this shape, and of the dtype and device of another."""
    kind = type(like)  # first, as the shape of another kind may be symbols
    if (kind is not Tensor and kind is not Parameter) or math.prod(shape) < _FEW:
        return like.new_empty(shape)
    name = _TYPES.get(like.dtype)
    if name is None or not like.is_cpu:
        return like.new_empty(shape)
    return torch.from_numpy(reuse.empty(shape, name))
