"""Attention, written as the formulas are: target by target, every intermediate spelled out, in float64.

Slow and independent of the native library, except that sampled edges come from ``reference.sampling``.
Gradients follow from the chain rule by hand; the tests hold them against finite differences.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .sampling import philox4x32, sample_one_hop

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sage_attention.attention import AttentionInputs

    Array = NDArray[np.float64]

__all__ = ["aggregate", "attention_backward", "attention_forward", "dropout_scales"]

_MASK = 2**32 - 1
_DROPOUT_HOP = 0x80000000


def dropout_scales(inputs: AttentionInputs, edges: NDArray[np.int64]) -> Array:
    """What each weight is multiplied with: [len(edges), H], 0 or 1 / (1 - dropout)."""
    heads = inputs.heads
    if inputs.dropout == 0:
        return np.ones((len(edges), heads))
    threshold = int(inputs.dropout * 2**32)
    key = (inputs.dropout_seed & _MASK, inputs.dropout_seed >> 32)
    scales = np.empty((len(edges), heads))
    for k, edge in enumerate(int(edge) for edge in edges):
        for h in range(heads):
            word = philox4x32((h // 4, _DROPOUT_HOP, edge & _MASK, edge >> 32), key)[h % 4]
            scales[k, h] = 0.0 if word < threshold else 1.0 / (1.0 - inputs.dropout)
    return scales


def _attended(inputs: AttentionInputs) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """indptr, sources and edge ids of the edges that are attended."""
    graph = inputs.graph
    targets = range(graph.num_targets) if inputs.targets is None else np.asarray(inputs.targets).tolist()
    indptr, sources, positions = sample_one_hop(
        graph.indptr.tolist(),
        graph.indices.tolist(),
        targets,
        inputs.fan_out,
        seed=inputs.seed,
        hop=inputs.hop,
        replace=inputs.replace,
    )
    edges = np.asarray(positions, np.int64)
    if graph.edge_ids is not None:
        edges = graph.edge_ids[edges]
    return np.asarray(indptr), np.asarray(sources, np.int64), edges


def _double(value: Any) -> Any:
    return None if value is None else np.asarray(value, dtype=np.float64)


class _Row:
    """Scores and weights of one target's edges, with what the gradients need."""

    def __init__(self, inputs: AttentionInputs, i: int, sources: Any, edges: Any) -> None:
        self.sources, self.edges = sources, edges
        self.v = _double(inputs.values)[sources]  # [n, H, C]
        e = None if inputs.edge_features is None else _double(inputs.edge_features)[edges]  # [n, D]
        self.e: Any = e
        heads, channels = inputs.heads, inputs.channels
        if inputs.score == "gat":
            z = _double(inputs.source_logits)[sources]  # [n, H]
            if inputs.target_logits is not None:
                z = z + _double(inputs.target_logits)[i]
            if e is not None:
                z = z + e @ _double(inputs.edge_weight).T
            self.z = z
            self.slope = np.where(z > 0, 1.0, inputs.negative_slope)
            score = z * self.slope
        elif inputs.score == "gatv2":
            z = self.v + _double(inputs.queries)[i]  # [n, H, C]
            if e is not None:
                z = z + (e @ _double(inputs.edge_weight).T).reshape(-1, heads, channels)
            self.z = z
            self.slope = np.where(z > 0, 1.0, inputs.negative_slope)
            score = (z * self.slope * _double(inputs.attention)).sum(-1)
        else:
            self.k = _double(inputs.keys)[sources]
            score = (self.k * _double(inputs.queries)[i]).sum(-1)
            if e is not None:
                score = score + e @ _double(inputs.edge_queries)[i].T
            score = score * inputs.used_scale
        self.scales = dropout_scales(inputs, edges)
        if len(edges):
            exponent = np.exp(score - score.max(0))
            self.weights = exponent / (exponent.sum(0) + 1e-16)
        else:
            self.weights = np.zeros((0, heads))
        self.applied = self.weights * self.scales


def attention_forward(inputs: AttentionInputs) -> dict[str, Any]:
    """float64 `out` [R, H, C], `edge_out` [R, H, D] or None, `weights` [E, H] (0 where not attended)."""
    indptr, sources, edges = _attended(inputs)
    out = np.zeros((inputs.num_rows, inputs.heads, inputs.channels))
    if inputs.bias is not None:
        out += _double(inputs.bias)
    with_edges = inputs.score == "dot" and inputs.edge_channels > 0
    edge_out = np.zeros((inputs.num_rows, inputs.heads, inputs.edge_channels)) if with_edges else None
    weights = np.zeros((inputs.graph.num_edges, inputs.heads))
    for i in range(inputs.num_rows):
        part = slice(indptr[i], indptr[i + 1])
        row = _Row(inputs, i, sources[part], edges[part])
        out[i] += np.einsum("nh,nhc->hc", row.applied, row.v)
        if edge_out is not None:
            edge_out[i] = np.einsum("nh,nd->hd", row.applied, row.e)
        weights[edges[part]] = row.weights if inputs.weights_before_dropout else row.applied
    return {"out": out, "edge_out": edge_out, "weights": weights}


def attention_backward(
    inputs: AttentionInputs, grad_out: Any, grad_edge_out: Any = None, grad_weights: Any = None
) -> dict[str, Array]:
    """float64 gradients of all arrays of `inputs` that are there, by name."""
    indptr, sources, edges = _attended(inputs)
    names = (
        "values", "keys", "queries", "source_logits", "target_logits",
        "attention", "edge_features", "edge_weight", "edge_queries", "bias",
    )  # fmt: skip
    grads = {n: np.zeros(getattr(inputs, n).shape) for n in names if getattr(inputs, n) is not None}
    for i in range(inputs.num_rows):
        part = slice(indptr[i], indptr[i + 1])
        row = _Row(inputs, i, sources[part], edges[part])
        g = _double(grad_out)[i]  # [H, C]
        if "bias" in grads:
            grads["bias"] += g
        of_applied = np.einsum("hc,nhc->nh", g, row.v)
        if grad_edge_out is not None:
            of_applied = of_applied + row.e @ _double(grad_edge_out)[i].T
            np.add.at(grads["edge_features"], row.edges, row.applied @ _double(grad_edge_out)[i])
        of_weights = of_applied * row.scales
        if grad_weights is not None:
            extra = _double(grad_weights)[row.edges]
            of_weights = of_weights + (extra if inputs.weights_before_dropout else extra * row.scales)
        of_score = row.weights * (of_weights - (row.weights * of_weights).sum(0))  # [n, H]
        np.add.at(grads["values"], row.sources, row.applied[:, :, None] * g)
        _score_gradients(inputs, i, row, of_score, grads)
    return grads


def _score_gradients(inputs: AttentionInputs, i: int, row: _Row, of_score: Array, grads: dict[str, Array]) -> None:
    if inputs.score == "gat":
        of_z = of_score * row.slope
        np.add.at(grads["source_logits"], row.sources, of_z)
        if "target_logits" in grads:
            grads["target_logits"][i] += of_z.sum(0)
        if row.e is not None:
            grads["edge_weight"] += of_z.T @ row.e
            np.add.at(grads["edge_features"], row.edges, of_z @ _double(inputs.edge_weight))
    elif inputs.score == "gatv2":
        of_z = of_score[:, :, None] * _double(inputs.attention) * row.slope  # [n, H, C]
        grads["attention"] += (of_score[:, :, None] * row.z * row.slope).sum(0)
        np.add.at(grads["values"], row.sources, of_z)
        grads["queries"][i] += of_z.sum(0)
        if row.e is not None:
            flat = of_z.reshape(len(of_z), inputs.heads * inputs.channels)
            grads["edge_weight"] += flat.T @ row.e
            np.add.at(grads["edge_features"], row.edges, flat @ _double(inputs.edge_weight))
    else:
        of_score = of_score * inputs.used_scale
        np.add.at(grads["keys"], row.sources, of_score[:, :, None] * _double(inputs.queries)[i])
        grads["queries"][i] += np.einsum("nh,nhc->hc", of_score, row.k)
        if row.e is not None:
            grads["edge_queries"][i] += of_score.T @ row.e
            np.add.at(grads["edge_features"], row.edges, of_score @ _double(inputs.edge_queries)[i])


def aggregate(graph: Any, values: Any, edge_values: Any = None) -> Array:
    """float64 [R, C], the weighted sum of the neighbours' rows."""
    edges = graph.to_edge_index()
    factors = np.ones(graph.num_edges) if edge_values is None else _double(edge_values)
    out = np.zeros((graph.num_targets, np.shape(values)[1]))
    np.add.at(out, edges[1], factors[:, None] * _double(values)[edges[0]])
    return out
