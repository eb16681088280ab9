"""The attention operators in plain PyTorch: any device, any float type, differentiable any number of times.

They keep the contract of :mod:`sage_attention.torch.ops`, which calls them where no native kernel exists.
They are the naive side of each operator, so an ``[E, H, C]`` array does occur, but only in chunks of edges
that the backward pass computes again; what stays in memory is O(edges x heads). Under ``torch.compile`` the
edges are one chunk, which the compiler fuses itself.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Callable

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

if TYPE_CHECKING:
    from .ops import Csc

__all__ = ["dot_attention", "gat_attention", "gatv2_attention"]

_CHUNK_ELEMENTS = 1 << 22  # elements of the largest temporary: 16 MB of float32


def gat_attention(
    csc: Csc,
    values: Tensor,
    source_logits: Tensor,
    target_logits: Tensor | None = None,
    *,
    edge_features: Tensor | None = None,
    edge_weight: Tensor | None = None,
    bias: Tensor | None = None,
    negative_slope: float = 0.2,
    dropout: float = 0.0,
    dropout_seed: int | Tensor | None = None,
    return_weights: bool = False,
    weights_before_dropout: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Additive attention: the score is LeakyReLU(source_logits_j + target_logits_i + edge_weight_h . e_ij).

    Args:
        csc: E edges grouped by R targets.
        values: [S, H, C], any float type.
        source_logits: [S, H].
        target_logits: [R, H], or None for none.
        edge_features: [E, D] in the caller's edge order, or None.
        edge_weight: [H, D], given exactly where edge_features is.
        bias: [H, C], added to ``out``, or None.
        negative_slope: Slope of LeakyReLU below zero.
        dropout: Chance that a weight is set to zero; the others are divided by 1 - dropout.
        dropout_seed: Seed of the mask, an int or an int64 tensor of one element; None draws from
            PyTorch's default generator of the device.
        return_weights: Return the softmax weights too.
        weights_before_dropout: The returned weights are those before dropout.

    Returns:
        ``out`` [R, H, C], zeros (or the bias) for a target without edges, and the weights [E, H] in the caller's edge
        order, or None. Both have the type of ``values``.

    Raises:
        IndexError: An index of ``csc`` is out of range (CPU only; other devices report it their own way).

    Example:
        >>> from sage_attention.torch.ops import Csc
        >>> csc = Csc(torch.tensor([0, 2]), torch.tensor([0, 1]), torch.tensor([0, 1]))
        >>> out, _ = gat_attention(csc, torch.tensor([[[1.0]], [[3.0]]]), torch.zeros(2, 1))
        >>> out
        tensor([[[2.]]])
    """
    with _no_autocast(values.device.type):
        targets = _targets(csc)
        scores = _wide(source_logits).index_select(0, csc.indices)
        if target_logits is not None:
            scores = scores + _wide(target_logits).index_select(0, targets)
        if edge_features is not None and edge_weight is not None:
            by_edge = functional.linear(_wide(edge_features), _wide(edge_weight))  # [E, H]
            scores = scores + by_edge.index_select(0, csc.edge_ids)
        scores = functional.leaky_relu(scores, negative_slope)
        before, after = _weights(scores, targets, csc, dropout, dropout_seed)
        out = _weighted_sum(csc, targets, after, values, bias)
        shown = before if weights_before_dropout else after
        return out.to(values.dtype), _in_callers_order(shown, csc, values.dtype) if return_weights else None


def gatv2_attention(
    csc: Csc,
    values: Tensor,
    queries: Tensor,
    attention: Tensor,
    *,
    edge_features: Tensor | None = None,
    edge_weight: Tensor | None = None,
    bias: Tensor | None = None,
    negative_slope: float = 0.2,
    dropout: float = 0.0,
    dropout_seed: int | Tensor | None = None,
    return_weights: bool = False,
    weights_before_dropout: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Dynamic additive attention: scores attention_h . LeakyReLU(values_j + queries_i + edge_weight e_ij).

    Args:
        csc: E edges grouped by R targets.
        values: [S, H, C], both keys and values, any float type.
        queries: [R, H, C].
        attention: [H, C].
        edge_features: [E, D] in the caller's edge order, or None.
        edge_weight: [H * C, D], given exactly where edge_features is.
        bias: [H, C], added to ``out``, or None.
        negative_slope: Slope of LeakyReLU below zero.
        dropout: Chance that a weight is set to zero; the others are divided by 1 - dropout.
        dropout_seed: Seed of the mask, an int or an int64 tensor of one element; None draws from
            PyTorch's default generator of the device.
        return_weights: Return the softmax weights too.
        weights_before_dropout: The returned weights are those before dropout.

    Returns:
        ``out`` [R, H, C] and the weights [E, H] or None, as in :func:`gat_attention`.

    Raises:
        IndexError: An index of ``csc`` is out of range (CPU only).

    Example:
        >>> from sage_attention.torch.ops import Csc
        >>> csc = Csc(torch.tensor([0, 2]), torch.tensor([0, 1]), torch.tensor([0, 1]))
        >>> values = torch.tensor([[[1.0]], [[3.0]]])
        >>> gatv2_attention(csc, values, torch.zeros(1, 1, 1), torch.zeros(1, 1))[0]
        tensor([[[2.]]])
    """
    with _no_autocast(values.device.type):
        targets = _targets(csc)
        heads, channels = values.shape[1:]

        def scores_of(first: int, last: int) -> Tensor:
            hidden = _wide(values.index_select(0, csc.indices[first:last]))
            hidden = hidden + _wide(queries).index_select(0, targets[first:last])
            if edge_features is not None and edge_weight is not None:
                features = _wide(edge_features).index_select(0, csc.edge_ids[first:last])
                hidden = hidden + functional.linear(features, _wide(edge_weight)).view(-1, heads, channels)
            return (functional.leaky_relu(hidden, negative_slope) * _wide(attention)).sum(-1)

        chunks = _chunks(csc, heads * channels)
        scores = torch.cat([_recomputed(scores_of, chunk, len(chunks)) for chunk in chunks])
        before, after = _weights(scores, targets, csc, dropout, dropout_seed)
        out = _weighted_sum(csc, targets, after, values, bias)
        shown = before if weights_before_dropout else after
        return out.to(values.dtype), _in_callers_order(shown, csc, values.dtype) if return_weights else None


def dot_attention(
    csc: Csc,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    edge_features: Tensor | None = None,
    edge_queries: Tensor | None = None,
    bias: Tensor | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    dropout_seed: int | Tensor | None = None,
    return_weights: bool = False,
    weights_before_dropout: bool = False,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Dot-product attention: the score is scale * (queries_i . keys_j + edge_queries_i . e_ij).

    Args:
        csc: E edges grouped by R targets.
        queries: [R, H, C].
        keys: [S, H, C].
        values: [S, H, C], any float type.
        edge_features: [E, D] in the caller's edge order, or None.
        edge_queries: [R, H, D], the queries seen from the space of the edge features; given exactly where
            edge_features is.
        bias: [H, C], added to ``out``, or None.
        scale: Factor of the scores; None is 1 / sqrt(C).
        dropout: Chance that a weight is set to zero; the others are divided by 1 - dropout.
        dropout_seed: Seed of the mask, an int or an int64 tensor of one element; None draws from
            PyTorch's default generator of the device.
        return_weights: Return the softmax weights too.
        weights_before_dropout: The returned weights are those before dropout.

    Returns:
        ``out`` [R, H, C]; ``edge_out`` [R, H, D], the sum of weight * e_ij, or None without edge features;
        the weights [E, H] in the caller's edge order, or None. All have the type of ``values``.

    Raises:
        IndexError: An index of ``csc`` is out of range (CPU only).

    Example:
        >>> from sage_attention.torch.ops import Csc
        >>> csc = Csc(torch.tensor([0, 2]), torch.tensor([0, 1]), torch.tensor([0, 1]))
        >>> keys = torch.tensor([[[1.0]], [[3.0]]])
        >>> dot_attention(csc, torch.zeros(1, 1, 1), keys, keys)[0]
        tensor([[[2.]]])
    """
    with _no_autocast(values.device.type):
        targets = _targets(csc)
        heads, channels = values.shape[1:]
        factor = channels**-0.5 if scale is None else scale

        def scores_of(first: int, last: int) -> Tensor:
            rows = targets[first:last]
            near = _wide(keys.index_select(0, csc.indices[first:last]))
            scores = (_wide(queries).index_select(0, rows) * near).sum(-1)
            if edge_features is not None and edge_queries is not None:
                features = _wide(edge_features).index_select(0, csc.edge_ids[first:last])
                scores = scores + (_wide(edge_queries).index_select(0, rows) * features.unsqueeze(1)).sum(-1)
            return factor * scores

        width = heads * max(channels, 0 if edge_features is None else edge_features.size(1))
        chunks = _chunks(csc, width)
        scores = torch.cat([_recomputed(scores_of, chunk, len(chunks)) for chunk in chunks])
        before, after = _weights(scores, targets, csc, dropout, dropout_seed)
        out = _weighted_sum(csc, targets, after, values, bias).to(values.dtype)
        edge_out = None
        if edge_features is not None:
            edge_out = _weighted_edge_sum(csc, targets, after, edge_features).to(values.dtype)
        shown = before if weights_before_dropout else after
        return out, edge_out, _in_callers_order(shown, csc, values.dtype) if return_weights else None


def _no_autocast(device_type: str) -> contextlib.AbstractContextManager[object]:
    """Full precision inside; some devices, as meta, have no autocast to turn off."""
    if not torch.amp.is_autocast_available(device_type):
        return contextlib.nullcontext()
    return torch.autocast(device_type, enabled=False)


def _wide(tensor: Tensor) -> Tensor:
    """The tensor in the type that scores and sums are computed in: at least float32."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def _targets(csc: Csc) -> Tensor:
    """[E] the target of each edge, int64."""
    degrees = csc.indptr.diff()
    rows = torch.arange(degrees.numel(), device=degrees.device)
    return torch.repeat_interleave(rows, degrees, output_size=csc.indices.numel())


def _chunks(csc: Csc, width: int) -> list[tuple[int, int]]:
    """Ranges of edges whose ``[edges, width]`` temporaries are small; at least one, for gradients to flow."""
    num_edges = csc.indices.numel()
    if torch.compiler.is_compiling():
        return [(0, num_edges)]
    step = max(1, _CHUNK_ELEMENTS // max(1, width))
    return [(first, min(first + step, num_edges)) for first in range(0, max(1, num_edges), step)]


def _recomputed(function: Callable[[int, int], Tensor], chunk: tuple[int, int], num_chunks: int) -> Tensor:
    """``function(*chunk)`` whose temporaries do not outlive it where there are many chunks."""
    if num_chunks == 1 or not torch.is_grad_enabled():
        return function(*chunk)
    result: Tensor = checkpoint(function, *chunk, use_reentrant=False, preserve_rng_state=False)
    return result


def _weights(
    scores: Tensor, targets: Tensor, csc: Csc, dropout: float, dropout_seed: int | Tensor | None
) -> tuple[Tensor, Tensor]:
    """[E, H] softmax weights over the edges of each target, before and after dropout."""
    num_rows, heads = csc.indptr.numel() - 1, scores.size(1)
    index = targets.unsqueeze(1).expand(-1, heads)
    largest = scores.new_full((num_rows, heads), -torch.inf)
    largest = largest.scatter_reduce(0, index, scores.detach(), "amax")
    exponents = (scores - largest.index_select(0, targets)).exp()
    total = scores.new_zeros(num_rows, heads).index_add(0, targets, exponents)
    before = exponents / (total + 1e-16).index_select(0, targets)
    if dropout == 0.0:
        return before, before
    if dropout_seed is None:
        return before, functional.dropout(before, dropout)
    generator = torch.Generator(scores.device).manual_seed(int(dropout_seed))
    draws = torch.rand(scores.shape, generator=generator, device=scores.device)
    # By the caller's edge order, so that the mask does not depend on how the edges were grouped.
    keep = draws.index_select(0, csc.edge_ids) >= dropout
    return before, before * keep / (1.0 - dropout)


def _weighted_sum(csc: Csc, targets: Tensor, weights: Tensor, values: Tensor, bias: Tensor | None) -> Tensor:
    """[R, H, C] sums of weight * value over the edges of each target, plus the bias [H, C]."""

    def messages(first: int, last: int) -> Tensor:
        return weights[first:last].unsqueeze(-1) * values.index_select(0, csc.indices[first:last])

    out = _sum_by_target(messages, csc, targets, weights, values.size(2))
    return out if bias is None else out + _wide(bias)


def _weighted_edge_sum(csc: Csc, targets: Tensor, weights: Tensor, edge_features: Tensor) -> Tensor:
    """[R, H, D] sums of weight * edge feature over the edges of each target."""

    def messages(first: int, last: int) -> Tensor:
        features = edge_features.index_select(0, csc.edge_ids[first:last])
        return weights[first:last].unsqueeze(-1) * features.unsqueeze(1)

    return _sum_by_target(messages, csc, targets, weights, edge_features.size(1))


def _sum_by_target(
    messages: Callable[[int, int], Tensor], csc: Csc, targets: Tensor, weights: Tensor, width: int
) -> Tensor:
    heads = weights.size(1)
    out = weights.new_zeros(csc.indptr.numel() - 1, heads, width)
    chunks = _chunks(csc, heads * width)
    for first, last in chunks:
        out.index_add_(0, targets[first:last], _recomputed(messages, (first, last), len(chunks)))
    return out


def _in_callers_order(weights: Tensor, csc: Csc, dtype: torch.dtype) -> Tensor:
    return torch.zeros_like(weights).index_copy(0, csc.edge_ids, weights).to(dtype)
