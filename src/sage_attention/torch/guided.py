"""Guided attention for models: set how their GAT layers pick in-edges, and measure what that costs.

sage_attention.torch.guide(model, 5)                            # attend the 5 most attended in-edges, mean of the rest
print(sage_attention.torch.guide_error(model, 5, x, edge_index))  # error of each layer beside uniform sampling's
"""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import Tensor

from sage_attention.errors import ArgumentError
from sage_attention.guided_attending import AttentionErrors

from .nn import GATConv
from .nn.guide import STRATEGIES, Guide

__all__ = ["guide", "guide_error"]

Model = TypeVar("Model", bound=torch.nn.Module)


def guide(
    model: Model, fan_out: int | None, strategy: str = "top_attention", *, means: bool = True, seed: int = 0
) -> Model:
    """Makes the GAT layers of a model attend a few in-edges of each target, picked by their own attention.

    Args:
        model: Holds layers ``sage_attention.torch.GATConv``; ``convert`` swaps those of PyTorch Geometric first.
        fan_out: In-edges per target, the self loops that a layer puts in not counted; None: all again.
        strategy: "top_attention", "importance" (see `sage_attention.sample_one_hop`), or "uniform" to compare with.
        means: Whether in-edges not picked keep their weight, on the mean of their values. The means of inputs that need
            no gradient are taken once, and again when they change; other means in each call, which then reads as much
            as attending all. False leaves them out; picks by "importance" are then corrected by their probabilities.
        seed: Of the picks in evaluation; in training torch's generator draws one in each call.

    Returns:
        The model, changed in place.

    Raises:
        ArgumentError: The model has no such layer, or an argument is not what is said above.

    Example:
        >>> model = guide(GATConv(4, 8), 2)
        >>> model(torch.randn(5, 4), torch.tensor([[0, 1, 2, 3], [4, 4, 4, 4]])).shape
        torch.Size([5, 8])
    """
    layers = _layers(model)
    made = [None if fan_out is None else Guide(fan_out, strategy, means, seed, hop) for hop in range(len(layers))]
    for layer, how in zip(layers.values(), made):
        layer.guide = how
    return model


def guide_error(
    model: torch.nn.Module, fan_out: int, *inputs: Any, seed: int = 0, repeats: int = 3, **keywords: Any
) -> dict[str, AttentionErrors]:
    """Measures how far guided layers are from layers that attend all in-edges, beside uniform sampling.

    Each layer gets what it gets in the model where all in-edges are attended.

    Args:
        model: Holds layers ``sage_attention.torch.GATConv``.
        fan_out: In-edges per target.
        *inputs: What the model is called with.
        seed: Of the first sample.
        repeats: Samples taken by strategies with chance in them.
        **keywords: What the model is called with.

    Returns:
        Name of the layer -> its errors, which can be printed; the layer's output is what it returns, bias and all.

    Raises:
        ArgumentError: The model has no such layer.

    Example:
        >>> edge_index = torch.stack([torch.arange(1, 20), torch.zeros(19, dtype=torch.long)])
        >>> errors = guide_error(GATConv(4, 8), 5, torch.randn(20, 4), edge_index)
        >>> list(errors[""].errors)[:2]
        ['uniform', 'top_attention']
    """
    layers = _layers(model)
    calls: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {}
    before = {name: layer.guide for name, layer in layers.items()}
    training = {module: module.training for module in model.modules()}
    hooks = []
    try:
        model.eval()
        for name, layer in layers.items():
            layer.guide = None

            def keep(_: Any, positional: Any, named: Any, name: str = name) -> None:
                calls.setdefault(name, (positional, named))

            hooks.append(layer.register_forward_pre_hook(keep, with_kwargs=True))
        with torch.no_grad():
            model(*inputs, **keywords)
            for hook in hooks:
                hook.remove()
            return {
                name: _errors(layers[name], fan_out, seed, repeats, positional, named)
                for name, (positional, named) in calls.items()
            }
    finally:
        for hook in hooks:
            hook.remove()
        for name, layer in layers.items():
            layer.guide = before[name]
        for module, mode in training.items():
            module.training = mode


def _layers(model: torch.nn.Module) -> dict[str, GATConv]:
    layers = {name: module for name, module in model.named_modules() if isinstance(module, GATConv)}
    if layers:
        return layers
    hint = "convert(model) swaps those of PyTorch Geometric; scores of GATv2Conv and TransformerConv read whole rows"
    raise ArgumentError("model", "a model with layers sage_attention.torch.GATConv", type(model).__name__, hint)


def _errors(
    layer: GATConv, fan_out: int, seed: int, repeats: int, inputs: tuple[Any, ...], keywords: dict[str, Any]
) -> AttentionErrors:
    full = layer(*inputs, **keywords)
    scale = float(torch.linalg.vector_norm(full)) or 1.0
    errors = {}
    for means in (False, True):
        for strategy in STRATEGIES:
            squares = []
            for number in range(1 if strategy == "top_attention" else repeats):
                layer.guide = Guide(fan_out, strategy, means, seed + number)
                squares.append(float(torch.linalg.vector_norm(layer(*inputs, **keywords) - full)) ** 2)
            errors[strategy + (", means" if means else "")] = (sum(squares) / len(squares)) ** 0.5 / scale
    layer.guide = None
    edge_index, weights = layer(*inputs, **{**keywords, "return_attention_weights": True})[1]
    return AttentionErrors(fan_out, errors, _flatness(layer, edge_index, weights, len(full), fan_out))


def _flatness(layer: GATConv, edge_index: Tensor, weights: Tensor, num_rows: int, fan_out: int) -> float:
    """Effective number of in-edges by their number, in rows of more than the fan-out; not told for sparse tensors."""
    if edge_index.layout != torch.strided:
        return float("nan")
    sources, targets = edge_index.long()
    if layer.add_self_loops:
        others = sources != targets
        targets, weights = targets[others], weights[others]
    weights = weights.double()
    zeros = weights.new_zeros(num_rows, weights.size(1))
    sums = zeros.index_add(0, targets, weights)
    entropy = sums.log() - zeros.index_add(0, targets, torch.xlogy(weights, weights)) / sums
    degrees = torch.bincount(targets, minlength=num_rows)
    long = degrees > fan_out
    return float((entropy[long].exp() / degrees[long].unsqueeze(1)).mean())
