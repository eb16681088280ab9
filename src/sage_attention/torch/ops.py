"""The attention operators for tensors: native on the CPU, plain PyTorch (``fallback.py``) on other devices.

Inputs may be of any float type; the native kernels compute in float64 if an input is float64, else in float32. The
result has the type of ``values``, so under bfloat16 autocast it stays bfloat16.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad

from sage_attention.errors import ArgumentError

from . import direct, fallback, library

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Csc", "Picks", "csc", "dot_attention", "gat_attention", "gatv2_attention"]


class Csc(NamedTuple):
    """E edges grouped by R targets.

    Attributes:
        indptr: int64 [R + 1].
        indices: [E] sources, of the type of the ``edge_index`` it came from.
        edge_ids: int64 [E], position of each edge in that ``edge_index``.
        source_indptr: int64 [S + 1], the same edges grouped by source, for the backward pass; None: it groups
            them itself, each time.
        source_indices: [E] targets.
        source_positions: int64 [E], position of each edge in ``indices``.
    """

    indptr: Tensor
    indices: Tensor
    edge_ids: Tensor
    source_indptr: Tensor | None = None
    source_indices: Tensor | None = None
    source_positions: Tensor | None = None


class Picks(NamedTuple):
    """Which targets attend, and to which of their in-edges: sampled inside the operator, and never stored.

    The backward pass draws the same edges again. Native kernels only (CPU).

    Attributes:
        targets: int64 [R], the target of each row; None: all of them, in order.
        fan_out: In-edges sampled per target, -1 for all.
        replace: Sample with replacement.
        seed: int64 [] or an int; see ``sage_attention.sample_one_hop``, which picks the same edges.
        hop: Of the sampling.
    """

    targets: Tensor | None = None
    fan_out: int = -1
    replace: bool = False
    seed: int | Tensor = 0
    hop: int = 0


def csc(edge_index: Tensor, num_sources: int, num_targets: int, *, by_source: bool = False) -> Csc:
    """Groups edges by target, stably.

    Args:
        edge_index: int32 or int64 [2, E]: sources, targets.
        num_sources: S.
        num_targets: R.
        by_source: Also group them by source: worth it where the edges are used for more than one step.

    Raises:
        ArgumentError: An index is out of range, or `edge_index` has another shape or type.

    Example:
        >>> csc(torch.tensor([[0, 1], [1, 0]]), 2, 2).indices
        tensor([1, 0])
    """
    if edge_index.device.type == "cpu":
        indptr, indices, edge_ids = torch.ops.sage_attention.csc(edge_index, num_sources, num_targets)
        if not by_source:
            return Csc(indptr, indices, edge_ids)
        return Csc(indptr, indices, edge_ids, *torch.ops.sage_attention.by_source(indptr, indices, num_sources))
    sources, targets = edge_index[0], edge_index[1]
    edge_ids = targets.argsort(stable=True)
    bounds = torch.arange(num_targets + 1, device=targets.device, dtype=targets.dtype)
    return Csc(torch.searchsorted(targets[edge_ids], bounds), sources[edge_ids], edge_ids)


def draw_seed() -> Tensor:
    """A seed from torch's default generator, as an int64 tensor: ``torch.manual_seed`` fixes it."""
    return torch.randint(0, 2**63 - 1, (), dtype=torch.int64, device="cpu")  # whatever the default device is


def _native(values: Tensor) -> bool:
    return values.device.type == "cpu"


def _attend(
    edges: Csc,
    score: str,
    tensors: dict[str, Tensor | None],
    *,
    negative_slope: float = 0.2,
    scale: float = 1.0,
    dropout: float = 0.0,
    dropout_seed: int | Tensor | None = None,
    return_weights: bool = False,
    weights_before_dropout: bool = False,
    picks: Picks | None = None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    values = tensors["values"]
    assert values is not None  # noqa: S101 - every caller passes it
    _refuse_tangents(tensors)
    mask_seed: Tensor | None = None
    if dropout > 0:
        mask_seed = draw_seed() if dropout_seed is None else library.seed_tensor(dropout_seed)
    if picks is None:
        inputs = tuple(tensors.values())  # each score's as `direct` wants them
        outputs = direct.attend(
            edges, score, inputs, negative_slope, scale, dropout, mask_seed, return_weights, weights_before_dropout
        )
        if outputs is not None:
            return outputs
    named = {**dict(zip(Csc._fields, edges)), "targets": None if picks is None else picks.targets, **tensors}
    refuse_other_devices(named, values.device)
    result_type = values.dtype
    double = any(t is not None and t.dtype == torch.float64 for t in tensors.values())
    compute = torch.float64 if double else torch.float32
    used = [None if t is None else t.to(compute) for t in (tensors.get(name) for name in library.INPUTS)]
    targets, fan_out, replace, seed, hop = Picks() if picks is None else picks
    for_backward = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in used)
    out, edge_out, weights = torch.ops.sage_attention.forward(
        *edges,
        targets, fan_out, replace, library.seed_tensor(seed), hop,
        score, *used, negative_slope, scale, dropout, mask_seed, weights_before_dropout,
        return_weights, for_backward,
    )[:3]  # fmt: skip
    with_edges = score == "dot" and tensors.get("edge_features") is not None
    return (
        out.to(result_type),
        edge_out.to(result_type) if with_edges else None,
        weights.to(result_type) if return_weights else None,
    )


def _refuse_tangents(tensors: dict[str, Tensor | None]) -> None:
    """Forward-mode differentiation would go on with the tangents lost."""
    if torch.compiler.is_compiling() or forward_ad._current_level < 0:  # noqa: SLF001
        return
    for name, tensor in tensors.items():
        if tensor is not None and forward_ad.unpack_dual(tensor).tangent is not None:  # type: ignore[no-untyped-call]
            raise ArgumentError(name, "a tensor without tangent", "a dual tensor", "take gradients with backward()")


def refuse_other_devices(tensors: Mapping[str, Tensor | None], device: torch.device) -> None:
    """Says which tensor is not beside the others: PyTorch would take the operator of its device, or that of none.

    Args:
        tensors: By name.
        device: Of the others.

    Raises:
        ArgumentError: One is on another device.
    """
    for name, tensor in tensors.items():
        if isinstance(tensor, Tensor) and tensor.device != device:
            raise ArgumentError(name, f"a tensor on {device}, as the others", f"one on {tensor.device}")


def gat_attention(
    csc: Csc,
    values: Tensor,
    source_logits: Tensor,
    target_logits: Tensor | None = None,
    *,
    edge_features: Tensor | None = None,
    edge_weight: Tensor | None = None,
    bias: Tensor | None = None,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """Additive attention (Veličković et al. 2018).

    The score of the edge j to i is LeakyReLU(source_logits_j + target_logits_i + edge_weight_h . e_ij).

    Args:
        csc: E edges of R targets.
        values: [S, H, C], any float type.
        source_logits: [S, H].
        target_logits: [R, H], or None.
        edge_features: [E, D] in the order of the edges ``csc`` was made from, or None.
        edge_weight: [H, D], with edge features.
        bias: [H, C], added to ``out``, or None.
        **options: ``negative_slope`` (0.2); ``dropout`` (0); ``dropout_seed`` (None draws one from torch's
            generator); ``return_weights`` (False); ``weights_before_dropout`` (False); ``picks`` (None), a ``Picks``
            that samples in-edges.

    Returns:
        out [R, H, C], zeros (or the bias) for targets without edges, and the weights [E, H] in the caller's edge
        order or None.

    Raises:
        ArgumentError: A tensor has the wrong shape, or an index is out of range.

    Example:
        >>> edges = csc(torch.tensor([[0, 1], [0, 0]]), 2, 1)
        >>> gat_attention(edges, torch.tensor([[[1.0]], [[3.0]]]), torch.zeros(2, 1))[0]
        tensor([[[2.]]])
    """
    if not _native(values):
        return fallback.gat_attention(
            csc, values, source_logits, target_logits,
            edge_features=edge_features, edge_weight=edge_weight, bias=bias, **options,
        )  # fmt: skip
    tensors = {
        "values": values,
        "source_logits": source_logits,
        "target_logits": target_logits,
        "edge_features": edge_features,
        "edge_weight": edge_weight,
        "bias": bias,
    }
    out, _, weights = _attend(csc, "gat", tensors, **options)
    return out, weights


def gatv2_attention(
    csc: Csc,
    values: Tensor,
    queries: Tensor,
    attention: Tensor,
    *,
    edge_features: Tensor | None = None,
    edge_weight: Tensor | None = None,
    bias: Tensor | None = None,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """Additive attention with dynamic scores (Brody et al. 2022).

    The score of the edge j to i is attention_h . LeakyReLU(values_j + queries_i + edge_weight e_ij).

    Args:
        csc: E edges of R targets.
        values: [S, H, C], keys and values.
        queries: [R, H, C].
        attention: [H, C].
        edge_features: [E, D] in the order of the edges ``csc`` was made from, or None.
        edge_weight: [H * C, D], with edge features.
        bias: [H, C], added to ``out``, or None.
        **options: As of ``gat_attention``.

    Returns:
        out [R, H, C] and the weights [E, H] or None.

    Raises:
        ArgumentError: A tensor has the wrong shape, or an index is out of range.

    Example:
        >>> edges = csc(torch.tensor([[0, 1], [0, 0]]), 2, 1)
        >>> x = torch.tensor([[[1.0]], [[3.0]]])
        >>> gatv2_attention(edges, x, torch.zeros(1, 1, 1), torch.zeros(1, 1))[0]
        tensor([[[2.]]])
    """
    if not _native(values):
        return fallback.gatv2_attention(
            csc, values, queries, attention, edge_features=edge_features, edge_weight=edge_weight, bias=bias, **options
        )
    tensors = {
        "values": values,
        "queries": queries,
        "attention": attention,
        "edge_features": edge_features,
        "edge_weight": edge_weight,
        "bias": bias,
    }
    out, _, weights = _attend(csc, "gatv2", tensors, **options)
    return out, weights


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
    **options: Any,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Scaled dot-product attention (Vaswani et al. 2017).

    The score of the edge j to i is scale * (queries_i . keys_j + edge_queries_i . e_ij).

    Args:
        csc: E edges of R targets.
        queries: [R, H, C].
        keys: [S, H, C].
        values: [S, H, C].
        edge_features: [E, D] in the order of the edges ``csc`` was made from, or None.
        edge_queries: [R, H, D], with edge features.
        bias: [H, C], added to ``out``, or None.
        scale: None is 1/sqrt(C).
        **options: As of ``gat_attention``, without ``negative_slope``.

    Returns:
        out [R, H, C]; the weighted sum of edge features [R, H, D] or None; the weights [E, H] or None.

    Raises:
        ArgumentError: A tensor has the wrong shape, or an index is out of range.

    Example:
        >>> edges = csc(torch.tensor([[0, 1], [0, 0]]), 2, 1)
        >>> x = torch.tensor([[[1.0]], [[3.0]]])
        >>> dot_attention(edges, torch.zeros(1, 1, 1), x, x)[0]
        tensor([[[2.]]])
    """
    if not _native(values):
        return fallback.dot_attention(
            csc, queries, keys, values,
            edge_features=edge_features, edge_queries=edge_queries, bias=bias, scale=scale, **options,
        )  # fmt: skip
    tensors = {
        "values": values,
        "queries": queries,
        "keys": keys,
        "edge_features": edge_features,
        "edge_queries": edge_queries,
        "bias": bias,
    }
    used = 1.0 / math.sqrt(values.shape[-1]) if scale is None else float(scale)
    return _attend(csc, "dot", tensors, scale=used, **options)
