"""Runs a converted layer beside the original on a small random graph and compares what they compute.

Both compute in float32, and the original in float64 too, which is taken for the truth: where scores are so
large that float32 itself is off, the conversion is not blamed.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from typing import Any, Callable

import torch
from torch import Tensor

from sage_attention.errors import SageAttentionError

from .nn.linear import is_lazy

__all__ = ["ConversionError", "check_conversion"]

_TOLERANCE = 1e-5
_NUM_SOURCES, _NUM_TARGETS, _NUM_EDGES = 9, 7, 30
_LAZY_CHANNELS, _LAZY_EDGE_CHANNELS = 5, 3  # sizes tried where a layer has none yet


class ConversionError(SageAttentionError, RuntimeError):
    """A converted layer does not compute what the original does.

    Args:
        layer: Name of the layer in the model.
        quantity: What differs: the output, the weights, or a gradient.
        error: Largest difference, relative to the largest value.
        tolerance: The difference that rounding explains.
    """

    def __init__(self, layer: str, quantity: str, error: float, tolerance: float) -> None:
        self.layer = layer
        self.quantity = quantity
        super().__init__(
            f"{layer}: expected the converted layer to compute the same {quantity} as the original within "
            f"{tolerance:.1e}, got a difference of {error:.1e}; the model was left unchanged; please report "
            "the layer and its options"
        )


def check_conversion(name: str, layer: Any, twin: Callable[[Any], torch.nn.Module]) -> None:
    """Compares a layer with its conversion; neither the layer nor PyTorch's random numbers change.

    Args:
        name: Name of the layer, for the error.
        layer: PyG's layer.
        twin: Makes the conversion of such a layer.

    Raises:
        ConversionError: They differ by more than rounding.
    """
    with torch.random.fork_rng(devices=[]), torch.inference_mode(False), torch.enable_grad():
        torch.manual_seed(0)
        original = _bare_copy(layer).cpu().float().eval()
        inputs = _inputs(original)
        with torch.no_grad():
            original(*inputs)  # gives lazy maps their sizes
        single = _computed(original, inputs)
        mine = _computed(twin(original), inputs)
        truth = _computed(copy.deepcopy(original).double(), inputs)
    gradients = [value for key, value in truth.items() if key.startswith("gradient")]
    largest = max((_largest(value) for value in gradients), default=0.0)
    for quantity, exact in truth.items():
        # A gradient may vanish by cancellation; what rounding leaves of it is judged by the others.
        size = max(largest if quantity.startswith("gradient") else _largest(exact), 1e-30)
        tolerance = max(_TOLERANCE, 4 * _difference(single[quantity], exact) / size)
        error = _difference(mine[quantity], exact) / size
        if error > tolerance:
            raise ConversionError(name, quantity, error, tolerance)


def _bare_copy(layer: Any) -> Any:
    """A copy without the hooks of the user, which must not see the check."""
    twin = copy.deepcopy(layer)
    for module in twin.modules():
        for name in ("_forward_hooks", "_backward_hooks", "_forward_pre_hooks", "_backward_pre_hooks"):
            # A lazy map gets its size from a hook.
            if not (is_lazy(module) and name == "_forward_pre_hooks"):
                vars(module)[name] = OrderedDict()
    return twin


def _inputs(layer: Any) -> list[Any]:
    """Features, edges with duplicates, self loops and isolated nodes, and edge features that fit a layer."""
    bipartite = not isinstance(layer.in_channels, int)
    num_targets = _NUM_TARGETS if bipartite else _NUM_SOURCES
    generator = torch.Generator().manual_seed(0)

    def rows(number: int, linear: Any, otherwise: int) -> Tensor:
        width = otherwise if is_lazy(linear) else linear.in_channels
        return torch.randn(number, width, generator=generator)

    maps = dict(layer.named_modules())
    source = next(maps[key] for key in ("lin", "lin_src", "lin_l", "lin_key") if key in maps)
    target = next((maps[key] for key in ("lin_dst", "lin_r", "lin_query") if key in maps), source)
    x: Any = rows(_NUM_SOURCES, source, _LAZY_CHANNELS)
    if bipartite:
        x = (x, rows(num_targets, target, _LAZY_CHANNELS))
    edge_index = torch.stack(
        [
            torch.randint(0, _NUM_SOURCES - 1, (_NUM_EDGES,), generator=generator),
            torch.randint(0, num_targets - 1, (_NUM_EDGES,), generator=generator),
        ]
    )
    edge_index[:, -3:] = edge_index[:, :3]
    edge_index[1, 3] = edge_index[0, 3] = 2
    inputs = [x, edge_index]
    if layer.lin_edge is not None:
        inputs.append(rows(_NUM_EDGES, layer.lin_edge, _LAZY_EDGE_CHANNELS))
    return inputs


def _computed(layer: Any, inputs: list[Any]) -> dict[str, Tensor]:
    """Output, attention weights, and the gradients of a random functional of both."""
    dtype = next(layer.parameters()).dtype
    leaves = {f"parameter {name}": parameter for name, parameter in layer.named_parameters()}
    kinds = iter(("x", "target x", "edge_attr") if isinstance(inputs[0], tuple) else ("x", "edge_attr"))

    def leaf(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(leaf(part) for part in value)
        if not value.is_floating_point():
            return value
        tensor = value.to(dtype, copy=True).requires_grad_()
        leaves[next(kinds)] = tensor
        return tensor

    frozen = [parameter for parameter in leaves.values() if not parameter.requires_grad]
    for parameter in frozen:
        parameter.requires_grad_()
    out, (_, weights) = layer(*[leaf(value) for value in inputs], return_attention_weights=True)
    generator = torch.Generator().manual_seed(1)
    loss = (out * torch.randn(out.shape, generator=generator)).sum()
    loss = loss + (weights * torch.randn(weights.shape, generator=generator)).sum()
    gradients = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    computed = {"output": out.detach(), "attention weights": weights.detach()}
    for (name, tensor), gradient in zip(leaves.items(), gradients):
        computed[f"gradient of {name}"] = torch.zeros_like(tensor) if gradient is None else gradient
    return computed


def _largest(value: Tensor) -> float:
    finite = value[value.isfinite()]
    return float(finite.abs().max()) if finite.numel() else 0.0


def _difference(value: Tensor, exact: Tensor) -> float:
    """Largest difference where the truth is a number at all."""
    finite = exact.isfinite()
    if not bool(finite.any()):
        return 0.0
    difference = (value.double() - exact)[finite].abs().max()
    return float("inf") if bool(difference.isnan()) else float(difference)
