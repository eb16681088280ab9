"""Attention over in-edges that attention itself picked, and how far that is from attending them all.

Softmax weights are known for all in-edges, because scores are cheap; only rows of values are not read. So where the
mean of a node's neighbours is known (`neighbour_means`, taken once), those not picked need not be left out: together
they have the weight that the softmax gives them, on their mean. What is left of the error is how attention *differs*
among those not picked, and nothing is left where it does not. Without means no choice of neighbours can do much where
attention is flat: the picks then miss what others would have said, however they are picked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ._arrays import as_numpy, integer, integers
from .attention import AttentionInputs, aggregate, attention_forward
from .errors import ArgumentError
from .graph import Graph
from .guided_sampling import GUIDED_STRATEGIES, GatScores, GuidedOneHop
from .sampling import OneHop, sample_one_hop

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]

__all__ = ["AttentionErrors", "attention_error", "guided_attention", "neighbour_means"]

_STRATEGIES = ("uniform", *GUIDED_STRATEGIES)


@dataclass(frozen=True)
class AttentionErrors:
    """How far attention over a few in-edges is from attention over all, beside what uniform sampling does.

    Attributes:
        fan_out: In-edges picked per node.
        errors: Name -> relative error of the output (Frobenius norm of the difference by that of the output). Names are
            strategies, "uniform" among them, alone and with ", means".
        flatness: Mean of (effective number of in-edges / their number) over nodes with more than the fan-out: the
            exponential of the attention's entropy. 1 is attention that knows no difference.
    """

    fan_out: int
    errors: dict[str, float]
    flatness: float

    def ratio(self, name: str) -> float:
        """Error of a strategy as a part of that of uniform sampling."""
        return self.errors[name] / self.errors["uniform"] if self.errors["uniform"] else float("nan")

    def __str__(self) -> str:
        lines = [f"fan-out {self.fan_out}: error against all in-edges (flatness of the attention {self.flatness:.3f})"]
        for name, error in self.errors.items():
            beside = "" if name == "uniform" else f"  {self.ratio(name):.2f} of uniform's"
            lines.append(f"  {name:<22} {error:.4f}{beside}")
        return "\n".join(lines)


def neighbour_means(graph: Graph, values: Any, *, num_threads: int = 0) -> Floats:
    """The mean of the rows of each node's in-edges, zeros where there are none.

    Args:
        graph: S sources, T targets.
        values: [S, ...], float32 or float64.
        num_threads: 0 is one per core.

    Returns:
        [T, ...], of the dtype of `values`.

    Raises:
        ArgumentError: `values` has another shape or type.

    Example:
        >>> neighbour_means(Graph.from_edge_index([[0, 1], [2, 2]]), np.array([[1.0], [3.0], [9.0]]))[2]
        array([2.])
    """
    rows = as_numpy("values", values)
    if rows.ndim < 1 or rows.shape[0] != graph.num_sources:
        raise ArgumentError("values", f"shape [{graph.num_sources}, ...]", list(rows.shape))
    sums = aggregate(graph, rows.reshape(len(rows), -1), num_threads=num_threads)
    sums /= np.maximum(graph.in_degrees, 1)[:, None].astype(sums.dtype)
    return sums.reshape(graph.num_targets, *rows.shape[1:])


def guided_attention(
    graph: Graph,
    values: Any,
    scores: Any,
    fan_out: int,
    *,
    strategy: str = "top_attention",
    means: Any = None,
    self_loops: bool = False,
    nodes: Any = None,
    seed: int = 0,
    hop: int = 0,
    num_threads: int = 0,
) -> Floats:
    """Attends some in-edges of each node, picked by their attention.

    Args:
        graph: S sources, T targets.
        values: [S, H, C], float32 or float64.
        scores: `GatScores`, or the score of each edge before the softmax, [E, H] in the order the graph was made from.
        fan_out: In-edges picked per node.
        strategy: "top_attention", "importance" or, to compare with, "uniform"; see `sample_one_hop`.
        means: [T, H, C], `neighbour_means(graph, values)` or older ones: in-edges that are not picked then have their
            weight, on their mean. None leaves them out: the weights of the picks add up to 1, those by "importance"
            corrected by their probabilities.
        self_loops: Attend each node itself, too, beyond the fan-out; needs `GatScores` and a graph without self loops.
        nodes: Integers [R], targets to attend; None: all.
        seed: Names the sample.
        hop: Of the sampling.
        num_threads: 0 is one per core; the result is the same for any number.

    Returns:
        [R, H, C], of the dtype of `values`.

    Raises:
        ArgumentError: An argument is not what is said above.

    Example:
        >>> graph = Graph.from_edge_index([[0, 1, 2], [3, 3, 3]])
        >>> values = np.array([1.0, 2.0, 6.0, 0.0]).reshape(4, 1, 1)
        >>> scores = np.log([[1.0], [2.0], [1.0]])
        >>> means = neighbour_means(graph, values)
        >>> guided_attention(graph, values, scores, 1)[3], guided_attention(graph, values, scores, 1, means=means)[3]
        (array([[2.]]), array([[2.75]]))
    """
    rows = _nodes(graph, nodes)
    array = _values(graph, values)
    picks = _picks(graph, rows, fan_out, strategy, scores, seed, hop, num_threads)
    logits = _scores_of(graph, scores, picks, rows, array.shape[1])
    if means is None and isinstance(picks, GuidedOneHop):
        logits = logits + picks.log_corrections[:, None]
    indptr, sources = picks.indptr, picks.sources
    if self_loops:
        indptr, sources, logits = _with_loops(graph, scores, indptr, sources, logits, rows, array.shape[1])
    inputs = _by_logits(indptr, sources, logits, array)
    found = attention_forward(inputs, for_backward=True, num_threads=num_threads)
    if means is None:
        return found.out
    given = as_numpy("means", means)
    out_type, flat = array.dtype, array.reshape(len(array), -1)
    if given.shape != (graph.num_targets, *array.shape[1:]):
        raise ArgumentError("means", f"shape {[graph.num_targets, *array.shape[1:]]}", list(given.shape))
    counts = np.diff(picks.indptr)
    left = graph.in_degrees[rows] - counts
    some = np.flatnonzero(left)
    if isinstance(picks, GuidedOneHop):
        rest = picks.rest_logits[some]
    else:
        rest = _rest_logits(graph, scores, picks, rows, array.shape[1])[some]
    assert found.row_max is not None  # noqa: S101  # asked for above
    assert found.row_sum is not None  # noqa: S101
    with np.errstate(divide="ignore", over="ignore"):
        picked = found.row_max[some] + np.log(found.row_sum[some].astype(np.float64))
        share = 1.0 / (1.0 + np.exp(picked - rest))  # of the rest in the softmax
    # (mean of all * degree - sum of the picks) / those left, in the values' own type and in place
    of_rest = given[rows[some]]
    of_rest *= (counts + left)[some, None, None].astype(out_type)
    of_rest -= aggregate(_local(picks.indptr, picks.sources, len(array)), flat, num_threads=num_threads).reshape(
        len(rows), *array.shape[1:]
    )[some]
    of_rest /= left[some, None, None].astype(out_type)
    out = found.out
    of_rest -= out[some]
    of_rest *= share[:, :, None].astype(out_type)
    out[some] += of_rest
    return out


def attention_error(
    graph: Graph,
    values: Any,
    scores: Any,
    fan_out: int,
    *,
    self_loops: bool = False,
    nodes: Any = None,
    seed: int = 0,
    repeats: int = 3,
    num_threads: int = 0,
) -> AttentionErrors:
    """Measures how far attention over picked in-edges is from attention over all, beside uniform sampling.

    Args:
        graph: As of `guided_attention`, as are `values`, `scores`, `fan_out`, `self_loops` and `nodes`.
        values: [S, H, C].
        scores: `GatScores` or [E, H].
        fan_out: In-edges picked per node.
        self_loops: Attend each node itself, too.
        nodes: Targets to look at; None: all.
        seed: Of the first sample.
        repeats: Samples taken by strategies with chance in them; their root mean square error is reported.
        num_threads: 0 is one per core.

    Returns:
        The errors of "uniform", "top_attention" and "importance", each without and with means.

    Raises:
        ArgumentError: An argument is not what is said above.

    Example:
        >>> graph = Graph.from_edge_index([[0, 1, 2], [3, 3, 3]])
        >>> values = np.array([1.0, 2.0, 6.0, 0.0]).reshape(4, 1, 1)
        >>> errors = attention_error(graph, values, np.zeros((3, 1)), 2)  # attention is flat: the means tell all
        >>> round(errors.errors["top_attention"], 3), errors.errors["top_attention, means"], round(errors.flatness, 3)
        (0.5, 0.0, 1.0)
    """
    count = integer("repeats", repeats, 1, 10_000)
    rows = _nodes(graph, nodes)
    array = _values(graph, values)
    options: dict[str, Any] = {"self_loops": self_loops, "nodes": rows, "num_threads": num_threads}
    full = guided_attention(graph, array, scores, -1, **options)
    scale = float(np.linalg.norm(full)) or 1.0
    means = neighbour_means(graph, array, num_threads=num_threads)
    errors = {}
    for with_means in (False, True):
        for strategy in _STRATEGIES:
            squares = []
            for number in range(1 if strategy == "top_attention" else count):
                out = guided_attention(
                    graph, array, scores, fan_out, strategy=strategy, means=means if with_means else None,
                    seed=seed + number, **options,
                )  # fmt: skip
                squares.append(float(np.linalg.norm(out - full)) ** 2)
            errors[strategy + (", means" if with_means else "")] = float(np.sqrt(np.mean(squares))) / scale
    return AttentionErrors(int(fan_out), errors, _flatness(graph, scores, rows, fan_out, array.shape[1]))


def _nodes(graph: Graph, nodes: Any) -> NDArray[np.int64]:
    if not isinstance(graph, Graph):
        raise ArgumentError("graph", "a sage_attention.Graph", type(graph).__name__)
    if nodes is None:
        return np.arange(graph.num_targets, dtype=np.int64)
    return integers("nodes", nodes, (None,)).astype(np.int64, copy=False)


def _values(graph: Graph, values: Any) -> Floats:
    array = as_numpy("values", values)
    if array.ndim != 3 or array.shape[0] != graph.num_sources or array.dtype not in (np.float32, np.float64):
        wanted = f"a float32 or float64 array [{graph.num_sources}, H, C]"
        raise ArgumentError("values", wanted, f"{array.dtype} {list(array.shape)}")
    return array


def _picks(
    graph: Graph, rows: NDArray[np.int64], fan_out: int, strategy: str, scores: Any, seed: int, hop: int, threads: int
) -> OneHop:
    if strategy not in _STRATEGIES:
        raise ArgumentError("strategy", " or ".join(map(repr, _STRATEGIES)), repr(strategy))
    used = None if strategy == "uniform" else scores
    return sample_one_hop(graph, rows, fan_out, seed=seed, hop=hop, strategy=strategy, scores=used, num_threads=threads)


def _local(indptr: NDArray[np.int64], sources: NDArray[np.int64], num_sources: int) -> Graph:
    return Graph.from_trusted(np.ascontiguousarray(indptr), np.ascontiguousarray(sources), num_sources)


def _by_logits(
    indptr: NDArray[np.int64], sources: NDArray[np.int64], logits: NDArray[np.float64], values: Floats
) -> AttentionInputs:
    """Attention whose scores are given for each edge: as edge features, with a LeakyReLU that changes nothing."""
    heads = values.shape[1]
    return AttentionInputs(
        "gat",
        _local(indptr, sources, len(values)),
        values=values,
        source_logits=np.zeros(values.shape[:2], values.dtype),
        edge_features=logits.astype(values.dtype),
        edge_weight=np.eye(heads, dtype=values.dtype),
        negative_slope=1.0,
    )


def _pair_scores(
    graph: Graph, scores: GatScores, sources: NDArray[np.int64], targets: NDArray[np.int64], heads: int
) -> NDArray[np.float64]:
    source = as_numpy("source_logits", scores.source_logits).reshape(graph.num_sources, -1)
    logits: NDArray[np.float64] = source[sources].astype(np.float64)
    if scores.target_logits is not None:
        logits += as_numpy("target_logits", scores.target_logits).reshape(graph.num_targets, -1)[targets]
    if logits.shape[1] != heads:
        raise ArgumentError("scores", f"{heads} heads, as values", logits.shape[1])
    return np.where(logits > 0, logits, logits * scores.negative_slope)


def _scores_of(graph: Graph, scores: Any, picks: OneHop, rows: NDArray[np.int64], heads: int) -> NDArray[np.float64]:
    """[P, H] the scores of the picks."""
    if isinstance(scores, GatScores):
        return _pair_scores(graph, scores, picks.sources, np.repeat(rows, np.diff(picks.indptr)), heads)
    array = as_numpy("scores", scores)
    if array.shape[:1] != (graph.num_edges,) or array.size != graph.num_edges * heads:
        raise ArgumentError("scores", f"GatScores or shape [{graph.num_edges}, {heads}]", list(array.shape))
    return array.reshape(-1, heads)[picks.edge_ids].astype(np.float64)


def _with_loops(
    graph: Graph,
    scores: Any,
    indptr: NDArray[np.int64],
    sources: NDArray[np.int64],
    logits: NDArray[np.float64],
    rows: NDArray[np.int64],
    heads: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    if not isinstance(scores, GatScores):
        raise ArgumentError("self_loops", "False with scores of edges", True, "put the loops among the edges")
    graph.require_square("graph")
    ends = indptr[1:]
    loops = _pair_scores(graph, scores, rows, rows, heads)
    moved = indptr + np.arange(len(indptr), dtype=np.int64)
    return moved, np.insert(sources, ends, rows), np.insert(logits, ends, loops, axis=0)


def _all(graph: Graph, rows: NDArray[np.int64]) -> OneHop:
    return sample_one_hop(graph, rows, -1)


def _rest_logits(graph: Graph, scores: Any, picks: OneHop, rows: NDArray[np.int64], heads: int) -> NDArray[np.float64]:
    """[R, H] log of the sum of exp(score) over the in-edges not picked: -inf where there are none."""
    every = _all(graph, rows)
    logits = _scores_of(graph, scores, every, rows, heads)
    number = np.repeat(np.arange(len(rows), dtype=np.int64), np.diff(every.indptr))
    picked = np.repeat(np.arange(len(rows), dtype=np.int64), np.diff(picks.indptr))
    width = max(graph.num_edges, 1)
    logits[np.isin(number * width + every.edge_ids, picked * width + picks.edge_ids)] = -np.inf
    largest = np.full((len(rows), heads), -np.inf)
    np.maximum.at(largest, number, logits)
    shift = np.where(np.isfinite(largest), largest, 0.0)
    sums = np.zeros_like(largest)
    np.add.at(sums, number, np.exp(logits - shift[number]))
    with np.errstate(divide="ignore"):
        return shift + np.log(sums)


def _flatness(graph: Graph, scores: Any, rows: NDArray[np.int64], fan_out: int, heads: int) -> float:
    every = _all(graph, rows)
    degrees = np.diff(every.indptr)
    logits = _scores_of(graph, scores, every, rows, heads)
    number = np.repeat(np.arange(len(rows), dtype=np.int64), degrees)
    largest = np.full((len(rows), heads), -np.inf)
    np.maximum.at(largest, number, logits)
    shifted = logits - largest[number]
    sums, moments = np.zeros_like(largest), np.zeros_like(largest)
    np.add.at(sums, number, np.exp(shifted))
    np.add.at(moments, number, np.exp(shifted) * shifted)
    long = degrees > (fan_out if fan_out >= 0 else degrees.max(initial=0))
    if not long.any():
        return float("nan")
    entropy = np.log(sums[long]) - moments[long] / sums[long]
    return float((np.exp(entropy) / degrees[long, None]).mean())
