"""The linear map inside the layers and its initialisers: PyG's names, shapes, lazy mode, random numbers."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter, UninitializedParameter, functional

from sage_attention.errors import ArgumentError

__all__ = ["Linear", "glorot_", "is_lazy", "matrix"]

# Modules whose output is x @ weight.T + bias and nothing else, by name so that PyG need not be imported. A
# subclass, a parametrised or an adapted (LoRA) module is not among them.
_PLAIN = {
    (__name__, "Linear"),
    ("torch_geometric.nn.dense.linear", "Linear"),
    ("torch.nn.modules.linear", "Linear"),
}


class Linear(torch.nn.Module):
    """``x @ weight.T + bias``, with the input size taken from the first input where it is not given.

    Args:
        in_channels: Size of each input row; -1 takes it from the first input.
        out_channels: Size of each output row.
        bias: Learn an additive bias.
        glorot: Initialise the weight with Glorot's uniform distribution; otherwise as ``torch.nn.Linear``.

    Raises:
        ArgumentError: A size cannot be.

    Example:
        >>> Linear(-1, 4)(torch.ones(3, 2)).shape
        torch.Size([3, 4])
    """

    weight: Tensor
    bias: Tensor | None

    def __init__(self, in_channels: int, out_channels: int, bias: bool = True, *, glorot: bool = False) -> None:
        super().__init__()
        if in_channels < -1:
            raise ArgumentError("in_channels", "-1 or a size", in_channels)
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.glorot = glorot
        if in_channels > 0:
            self.weight = Parameter(torch.empty(out_channels, in_channels))
        else:
            self.weight = UninitializedParameter()
        self.bias = Parameter(torch.empty(out_channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the parameters anew, from PyTorch's default generator, once the input size is known."""
        if self.in_channels <= 0:
            return
        # Both are 1 / sqrt(in_channels), but rounded differently; PyG's rounding gives PyG's very numbers.
        weight_bound = math.sqrt(6 / ((1 + math.sqrt(5) ** 2) * self.in_channels))
        bias_bound = 1.0 / math.sqrt(self.in_channels)
        with torch.no_grad():
            if self.glorot:
                glorot_(self.weight)
            else:
                self.weight.uniform_(-weight_bound, weight_bound)
            if self.bias is not None:
                self.bias.uniform_(-bias_bound, bias_bound)

    def initialize(self, in_channels: int) -> None:
        """Gives a lazy map its input size and its first parameters.

        Args:
            in_channels: The size of each input row.
        """
        if isinstance(self.weight, UninitializedParameter):
            self.in_channels = in_channels
            with torch.no_grad():
                self.weight.materialize((self.out_channels, in_channels))
            self.reset_parameters()

    def forward(self, x: Tensor) -> Tensor:
        """Maps rows.

        Args:
            x: [..., in_channels].

        Returns:
            [..., out_channels].
        """
        if isinstance(self.weight, UninitializedParameter):
            self.initialize(x.size(-1))
        return functional.linear(x, self.weight, self.bias)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        # An uninitialised weight cannot be detached; it is stored as it is.
        lazy = isinstance(self.weight, UninitializedParameter)
        super()._save_to_state_dict(destination, prefix, keep_vars or lazy)
        if lazy and self.bias is not None and not keep_vars:
            destination[prefix + "bias"] = self.bias.detach()

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        weight = state_dict.get(prefix + "weight")
        if isinstance(weight, UninitializedParameter):
            self.in_channels = -1
            self.weight = UninitializedParameter()
        elif weight is not None and isinstance(self.weight, UninitializedParameter):
            self.in_channels = weight.size(-1)
            with torch.no_grad():
                self.weight.materialize((self.out_channels, self.in_channels))
        super()._load_from_state_dict(state_dict, prefix, *args)

    def extra_repr(self) -> str:
        """What ``print`` shows between the parentheses."""
        return f"{self.in_channels}, {self.out_channels}, bias={self.bias is not None}"


def glorot_(tensor: Tensor) -> Tensor:
    """Fills a tensor with Glorot's uniform distribution over its last two sizes.

    Args:
        tensor: [..., a, b].

    Returns:
        The same tensor.

    Example:
        >>> glorot_(torch.empty(4, 2)).abs().max() <= 1
        tensor(True)
    """
    bound = math.sqrt(6.0 / (tensor.size(-2) + tensor.size(-1)))
    with torch.no_grad():
        return tensor.uniform_(-bound, bound)


def is_lazy(linear: torch.nn.Module) -> bool:
    """Whether a linear map still waits for its input size.

    Args:
        linear: The module.

    Example:
        >>> is_lazy(Linear(-1, 4))
        True
    """
    return isinstance(getattr(linear, "weight", None), UninitializedParameter)


def matrix(linear: torch.nn.Module, in_channels: int, like: Tensor | None = None) -> Tensor | None:
    """The matrix of a linear map without bias, for folding it into another.

    A hook or an adapter may make a module compute something else than its ``weight`` says. Then the matrix is
    read off the identity, or, where that would cost too much, there is none.

    Args:
        linear: A module that maps [n, in_channels] to [n, out_channels] linearly.
        in_channels: Size of its input rows.
        like: Gives the type and device of the identity; None: no identity is tried.

    Returns:
        [out_channels, in_channels], or None.

    Example:
        >>> linear = Linear(2, 3, bias=False)
        >>> matrix(linear, 2) is linear.weight
        True
    """
    if (type(linear).__module__, type(linear).__qualname__) in _PLAIN and not (
        is_lazy(linear) or linear._forward_hooks or linear._forward_pre_hooks or linear._backward_hooks  # noqa: SLF001
    ):
        weight = linear.weight
        return weight if isinstance(weight, Tensor) else None
    if like is None:
        return None
    identity = torch.eye(in_channels, dtype=like.dtype, device=like.device)
    mapped: Tensor = linear(identity)
    return mapped.t()
