"""Results looked at before anything is timed: against NumPy, against what must hold, and between numbers of threads."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from sage_attention.errors import SageAttentionError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sage_attention.attention import AttentionGradients, AttentionInputs
    from sage_attention.bench.problem import Scored

__all__ = ["check_scored", "digest", "expected_rows"]

TOLERANCE = 1e-4  # of the largest value
_TARGETS = 16
_MOST_EDGES = 20_000  # of a target that is computed by NumPy


def digest(array: NDArray[Any]) -> int:
    """A number that tells arrays apart; bit by bit, as results on any number of threads are promised to be the same."""
    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def expected_rows(inputs: AttentionInputs, targets: NDArray[np.int64]) -> NDArray[np.float64]:
    """The attention of some targets, written out in float64.

    Args:
        inputs: Without edge features, bias and dropout.
        targets: int64 [K], each with an in-edge.

    Returns:
        [K, H, C].
    """
    graph = inputs.graph
    values: NDArray[Any] = np.asarray(inputs.values)
    rows = []
    for target in targets:
        sources = graph.indices[graph.indptr[target] : graph.indptr[target + 1]]
        value = values[sources].astype(np.float64)  # [D, H, C]
        scores = _scores(inputs, sources, int(target), value)
        weights = np.exp(scores - scores.max(axis=0))
        weights /= weights.sum(axis=0)
        rows.append((weights[:, :, None] * value).sum(axis=0))
    return np.stack(rows)


def _array(array: Any, where: Any) -> NDArray[np.float64]:
    return np.asarray(array[where], np.float64)


def _scores(
    inputs: AttentionInputs, sources: NDArray[Any], target: int, value: NDArray[np.float64]
) -> NDArray[np.float64]:
    """[D, H]."""
    slope = inputs.negative_slope
    if inputs.score == "gat":
        raw = _array(inputs.source_logits, sources) + _array(inputs.target_logits, target)
        return np.where(raw > 0, raw, slope * raw)
    query = _array(inputs.queries, target)
    if inputs.score == "gatv2":
        raw = value + query
        scores: NDArray[np.float64] = (_array(inputs.attention, ...) * np.where(raw > 0, raw, slope * raw)).sum(axis=2)
        return scores
    return np.asarray((_array(inputs.keys, sources) * query).sum(axis=2) * inputs.used_scale)


def check_scored(scored: Scored, threads: int) -> dict[str, int]:
    """Looks at the results of a gather and of both passes.

    The forward pass and the gather are written out in NumPy for some targets. Of the gradients two equations are looked
    at that hold over the whole graph, because outputs are linear in the values, and scores in their factors.

    Args:
        scored: What is to be timed; it is prepared.
        threads: With how many.

    Returns:
        name of a step -> digest of its result.

    Raises:
        SageAttentionError: Results are wrong.
    """
    inputs = scored.inputs
    scored.prepare(threads)
    graph = inputs.graph
    degrees = np.diff(graph.indptr)
    usable = np.flatnonzero((degrees > 0) & (degrees <= _MOST_EDGES))
    targets = np.random.default_rng(0).permutation(usable)[:_TARGETS]
    out, summed = scored.forward(threads), scored.gather(threads)
    if len(targets):
        _compare(scored, "forward", out[targets], expected_rows(inputs, targets))
        rows = [scored.rows[graph.indices[graph.indptr[t] : graph.indptr[t + 1]]].sum(0, np.float64) for t in targets]
        _compare(scored, "gather", summed[targets], np.stack(rows))
    gradients = scored.backward(threads)
    _check_gradients(scored, gradients)
    return {"gather": digest(summed), "forward": digest(out), "backward": digest(gradients.values)}


def _compare(scored: Scored, name: str, got: NDArray[Any], wanted: NDArray[np.float64]) -> None:
    error = float(np.abs(got - wanted).max()) / max(float(np.abs(wanted).max()), 1e-30)
    if not error <= TOLERANCE:
        raise SageAttentionError(
            f"bench: {scored.score}, {name}: expected NumPy's results within {TOLERANCE:g} of the largest, got a "
            f"difference of {error:.1e}; nothing is timed that is wrong: please report it"
        )


def _product(first: Any, second: Any) -> float:
    return float(np.einsum("ijk,ijk->", first, second, dtype=np.float64))


def _check_gradients(scored: Scored, gradients: AttentionGradients) -> None:
    inputs, out = scored.inputs, scored.outputs.out if scored.outputs is not None else None
    linear = _product(out, out)  # the gradient of out is out
    of_values = _product(inputs.values, gradients.values)
    if inputs.score == "gatv2":
        # The values are keys too. Scores are homogeneous in (keys, queries), and in the attention vector.
        of_scores = float(np.sum(np.multiply(inputs.attention, gradients.attention, dtype=np.float64)))  # type: ignore[arg-type]
        pairs = [(of_values + _product(inputs.queries, gradients.queries), linear + of_scores)]
    else:
        pairs = [(of_values, linear)]
    if inputs.score == "dot":
        pairs.append((_product(inputs.keys, gradients.keys), _product(inputs.queries, gradients.queries)))
    for got, wanted in pairs:
        error = abs(got - wanted) / max(linear, 1e-30)
        if not error <= TOLERANCE:
            raise SageAttentionError(
                f"bench: {scored.score}, backward: expected gradients that agree with each other within {TOLERANCE:g}, "
                f"got a difference of {error:.1e}; nothing is timed that is wrong: please report it"
            )
