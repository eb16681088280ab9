"""GAT over raw rows, projected after summing, written as the formulas are: edge by edge, in float64.

    s_ijh = LeakyReLU(u_h . x_j + v_h . x_i),  alpha_ijh = softmax over j,  z_ih = sum_j alpha_ijh m_ijh x_j
    out_ih = W_h z_ih + b_h

with m the dropout mask. Gradients follow by the chain rule; rows have none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .sampling import philox4x32

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

__all__ = ["raw_backward", "raw_forward"]


def _mask(edge: int, heads: int, dropout: float, seed: int) -> Array:
    """[H], what the weights of an edge are multiplied with."""
    if dropout == 0:
        return np.ones(heads)
    key = (seed & (2**32 - 1), seed >> 32)
    words = [philox4x32((h // 4, 0x80000000, edge & (2**32 - 1), edge >> 32), key)[h % 4] for h in range(heads)]
    return np.array([0.0 if word < int(dropout * 2**32) else 1.0 / (1.0 - dropout) for word in words])


class _Row:
    """One target: its sources' rows, arguments of LeakyReLU, weights and mask."""

    def __init__(self, i: int, inputs: dict[str, Any]) -> None:
        begin, end = inputs["indptr"][i], inputs["indptr"][i + 1]
        u, slope = inputs["source_weight"], inputs["negative_slope"]
        heads = len(u)
        self.x = np.array([inputs["rows"][j] for j in inputs["indices"][begin:end]]).reshape(-1, u.shape[1])
        self.own = None if inputs["target_rows"] is None else inputs["target_rows"][i]
        argument = self.x @ u.T
        if self.own is not None:
            argument = argument + inputs["target_weight"] @ self.own
        if inputs["target_logits"] is not None:
            argument = argument + inputs["target_logits"][i]
        self.slope = np.where(argument > 0, 1.0, slope)
        score = argument * self.slope
        power = np.exp(score - score.max(0)) if len(score) else score
        self.alpha = power / power.sum(0) if len(score) else score
        ids = range(begin, end) if inputs["edge_ids"] is None else inputs["edge_ids"][begin:end]
        masks = [_mask(int(e), heads, inputs["dropout"], inputs["dropout_seed"]) for e in ids]
        self.mask = np.array(masks).reshape(-1, heads)
        self.z = np.einsum("nh,nf->hf", self.alpha * self.mask, self.x)


def _inputs(**given: Any) -> dict[str, Any]:
    inputs: dict[str, Any] = {
        "target_rows": None, "target_weight": None, "target_logits": None, "bias": None, "edge_ids": None,
        "negative_slope": 0.2, "dropout": 0.0, "dropout_seed": 0,
    }  # fmt: skip
    for name, value in given.items():
        floating = isinstance(value, np.ndarray) and value.dtype.kind == "f"
        inputs[name] = value.astype(np.float64) if floating else value
    return inputs


def raw_forward(**given: Any) -> Array:
    """float64 [R, H, C] of ``indptr``, ``indices``, ``rows`` [S, F], ``source_weight``, ``projection``, and options."""
    inputs = _inputs(**given)
    projection = inputs["projection"]
    out = np.zeros((len(inputs["indptr"]) - 1, *projection.shape[:2]))
    for i in range(len(out)):
        out[i] = np.einsum("hcf,hf->hc", projection, _Row(i, inputs).z)
        if inputs["bias"] is not None:
            out[i] += inputs["bias"]
    return out


def raw_backward(grad_out: Any, **given: Any) -> dict[str, Array]:
    """float64 gradients of what is learned, by name; for the options see ``raw_forward``."""
    inputs = _inputs(**given)
    names = ("source_weight", "target_weight", "target_logits", "projection", "bias")
    grads = {name: np.zeros(inputs[name].shape) for name in names if inputs[name] is not None}
    for i, g in enumerate(np.asarray(grad_out, np.float64)):
        row = _Row(i, inputs)
        of_z = np.einsum("hc,hcf->hf", g, inputs["projection"])
        of_alpha = np.einsum("hf,nf->nh", of_z, row.x) * row.mask
        of_score = row.alpha * (of_alpha - (row.alpha * of_alpha).sum(0))
        of_argument = of_score * row.slope
        grads["projection"] += np.einsum("hc,hf->hcf", g, row.z)
        grads["source_weight"] += of_argument.T @ row.x
        if row.own is not None:
            grads["target_weight"] += np.outer(of_argument.sum(0), row.own)
        if "target_logits" in grads:
            grads["target_logits"][i] += of_argument.sum(0)
        if "bias" in grads:
            grads["bias"] += g
    return grads
