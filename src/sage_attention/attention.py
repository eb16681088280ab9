"""Attention over the in-edges of a graph, given or sampled, on NumPy arrays.

``gat_attention``, ``gatv2_attention`` and ``dot_attention`` are what most callers want. They go through
``attention_forward`` and ``attention_backward``, which take one ``AttentionInputs``.
``tests/reference/attention.py`` is the slow, independent truth.

Shapes: S sources, R rows (targets attended), E edges, H heads, C channels per head, D edge channels.
"""

from __future__ import annotations

import copy
import ctypes
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _native, _plain_attention
from ._arrays import as_numpy, integer, integers, unsigned_seed
from .errors import ArgumentError
from .graph import Graph
from .quantized import QuantizedTable
from .reuse import empty

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]

__all__ = [
    "AttentionGradients",
    "AttentionInputs",
    "AttentionOutputs",
    "aggregate",
    "attention_backward",
    "attention_forward",
    "dot_attention",
    "gat_attention",
    "gatv2_attention",
]

# Which arrays a score needs and may have, by name -> shape.
_SHAPES: dict[str, dict[str, tuple[str, ...]]] = {
    "gat": {
        "values": ("S", "H", "C"),
        "source_logits": ("S", "H"),
        "target_logits": ("R", "H"),
        "edge_features": ("E", "D"),
        "edge_weight": ("H", "D"),
        "bias": ("H", "C"),
    },
    "gatv2": {
        "values": ("S", "H", "C"),
        "queries": ("R", "H", "C"),
        "attention": ("H", "C"),
        "edge_features": ("E", "D"),
        "edge_weight": ("H*C", "D"),
        "bias": ("H", "C"),
    },
    "dot": {
        "values": ("S", "H", "C"),
        "keys": ("S", "H", "C"),
        "queries": ("R", "H", "C"),
        "edge_features": ("E", "D"),
        "edge_queries": ("R", "H", "D"),
        "bias": ("H", "C"),
    },
}
_RESULT_SHAPES: dict[str, tuple[str, ...]] = {
    "out": ("R", "H", "C"),
    "edge_out": ("R", "H", "D"),
    "weights": ("E", "H"),
    "row_max": ("R", "H"),
    "row_sum": ("R", "H"),
    "positive_out": ("R", "H", "C"),
    "positive_sum": ("R", "H"),
}
# As they follow in the library's structures.
_RESULT_FIELDS = [field[0] for field in _native.Result._fields_]
_AFTER_KEYS = [field[0] for field in _native.Gradients._fields_[5:]]  # the inputs but values and keys
_DTYPES = (np.dtype(np.float32), np.dtype(np.float64))  # not those of another byte order
_NUMBERS = ("negative_slope", "dropout")
_ONLY_BIAS = {"bias"}
_FLAGS = ("replace", "weights_before_dropout")
_OPTIONAL = {"target_logits", "edge_features", "edge_weight", "edge_queries", "bias"}
# Values and edge features first: the others' shapes go by theirs.
_ORDER = {score: list(dict.fromkeys(("values", "edge_features", *shapes))) for score, shapes in _SHAPES.items()}
_FOREIGN = {score: {name for other in _SHAPES.values() for name in other} - set(own) for score, own in _SHAPES.items()}
_EDGE_PARTNER = {"gat": "edge_weight", "gatv2": "edge_weight", "dot": "edge_queries"}


@dataclass(frozen=True)
class AttentionInputs:
    """One attention problem. All float arrays have one dtype, float32 or float64.

    For inference `values` and `keys` may be ``QuantizedTable``s, beside float32 arrays.

    Attributes:
        score: How an edge from source j to target i is scored, per head:
            ``"gat"``: LeakyReLU(source_logits_j + target_logits_i [+ edge_weight . e_ij]),
            Veličković et al. 2018;
            ``"gatv2"``: attention . LeakyReLU(values_j + queries_i [+ edge_weight e_ij]), Brody et al. 2022;
            ``"dot"``: scale * (queries_i . keys_j [+ edge_queries_i . e_ij]), Vaswani et al. 2017.
        graph: S sources, `graph.num_targets` targets.
        values: [S, H, C], what is summed; gatv2: also the keys.
        keys: [S, H, C], dot only.
        queries: [R, H, C], gatv2 and dot.
        source_logits: [S, H], gat only.
        target_logits: [R, H] or None, gat only.
        attention: [H, C], gatv2 only.
        edge_features: [E, D] or None, rows in the order of the edges the graph was made from.
        edge_weight: [H, D] (gat) or [H*C, D] (gatv2), with edge features.
        edge_queries: [R, H, D], dot with edge features.
        bias: [H, C] or None, added to the output, also where there are no in-edges.
        negative_slope: Of the LeakyReLU.
        scale: Of the dot product; None is 1/sqrt(C).
        dropout: Chance in [0, 1) that a weight is dropped; the others are divided by 1 - dropout.
        dropout_seed: The mask is a pure function of it, the edge and the head.
        targets: int64 [R], the graph's target of each row; None: all targets in order.
        fan_out: In-edges sampled per target, -1 all of them.
        replace: Sample with replacement.
        seed: Of the sampling, see ``sample_one_hop``.
        hop: Of the sampling.
        weights_before_dropout: Whether returned weights are those before dropout.
    """

    score: str
    graph: Graph
    values: Floats | QuantizedTable
    keys: Floats | QuantizedTable | None = None
    queries: Floats | None = None
    source_logits: Floats | None = None
    target_logits: Floats | None = None
    attention: Floats | None = None
    edge_features: Floats | None = None
    edge_weight: Floats | None = None
    edge_queries: Floats | None = None
    bias: Floats | None = None
    negative_slope: float = 0.2
    scale: float | None = None
    dropout: float = 0.0
    dropout_seed: int = 0
    targets: NDArray[np.int64] | None = None
    fan_out: int = -1
    replace: bool = False
    seed: int = 0
    hop: int = 0
    weights_before_dropout: bool = False

    @property
    def num_rows(self) -> int:
        """R."""
        return self.graph.num_targets if self.targets is None else len(self.targets)

    @property
    def heads(self) -> int:
        """H."""
        return int(self.values.shape[1])

    @property
    def channels(self) -> int:
        """C."""
        return int(self.values.shape[2])

    @property
    def edge_channels(self) -> int:
        """D, 0 without edge features."""
        return 0 if self.edge_features is None else int(self.edge_features.shape[1])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the numbers worked with: that of `values`, float32 where those are quantized."""
        return np.dtype(np.float32) if isinstance(self.values, QuantizedTable) else self.values.dtype

    @property
    def attends_whole_graph(self) -> bool:
        """Whether all in-edges of all targets are attended."""
        return self.targets is None and self.fan_out < 0 and not self.replace

    @property
    def used_scale(self) -> float:
        """The scale of the dot product."""
        return 1.0 / math.sqrt(self.channels) if self.scale is None else float(self.scale)


@dataclass(frozen=True)
class AttentionOutputs:
    """What a forward pass gives.

    Attributes:
        out: [R, H, C].
        edge_out: [R, H, D], the weighted sum of edge features (dot with edge features), else None.
        weights: [E, H] softmax weights by edge, in the order of the edges the graph was made from, or None.
        row_max: [R, H], largest score; for the backward pass, as the next three.
        row_sum: [R, H], sum of exp(score - row_max).
        positive_out: [R, H, C], gat: the part of `out` that edges with a positive score gave.
        positive_sum: [R, H], gat: the weights of those.
    """

    out: Floats
    edge_out: Floats | None = None
    weights: Floats | None = None
    row_max: Floats | None = None
    row_sum: Floats | None = None
    positive_out: Floats | None = None
    positive_sum: Floats | None = None


@dataclass(frozen=True)
class AttentionGradients:
    """Gradients of the arrays of an ``AttentionInputs`` that were there; None for the others."""

    values: Floats
    keys: Floats | None = None
    queries: Floats | None = None
    source_logits: Floats | None = None
    target_logits: Floats | None = None
    attention: Floats | None = None
    edge_features: Floats | None = None
    edge_weight: Floats | None = None
    edge_queries: Floats | None = None
    bias: Floats | None = None


def _checked(inputs: AttentionInputs) -> AttentionInputs:
    """The same problem with arrays as the library takes them.

    Raises:
        ArgumentError: Something is missing, superfluous, or of the wrong type or shape.
    """
    shapes = _SHAPES.get(inputs.score)
    if shapes is None:
        raise ArgumentError("score", '"gat", "gatv2" or "dot"', repr(inputs.score))
    graph = _graph(inputs.graph)
    changes: dict[str, Any] = {name: _number(name, getattr(inputs, name)) for name in _NUMBERS}
    if inputs.scale is not None:
        changes["scale"] = _number("scale", inputs.scale)
    for name in _FLAGS:
        if not isinstance(getattr(inputs, name), (bool, np.bool_)):
            raise ArgumentError(name, "True or False", repr(getattr(inputs, name)))
    if inputs.targets is not None:
        changes["targets"] = integers("targets", inputs.targets, (None,)).astype(np.int64, copy=False)
    rows = len(changes["targets"]) if "targets" in changes else graph.num_targets
    values, dtype = _value_table(inputs.values, ("S", "H", "C"))
    heads, channels = values.shape[1:]
    if heads < 1 or channels < 1:
        raise ArgumentError("values", "at least one head and one channel", f"shape {list(values.shape)}")
    sizes = {"S": graph.num_sources, "R": rows, "E": graph.num_edges, "H": heads, "C": channels}
    sizes["H*C"] = heads * channels
    for name in _ORDER[inputs.score]:
        value = values if name == "values" else getattr(inputs, name)
        if name in ("values", "keys") and isinstance(value, QuantizedTable):
            changes[name] = _quantized(name, value, shapes[name], sizes, dtype)
        else:
            changes[name] = _float_array(name, value, shapes[name], sizes, dtype)
    for name in _FOREIGN[inputs.score]:
        if getattr(inputs, name) is not None:
            raise ArgumentError(name, f"None for score {inputs.score!r}", "an array")
    partner = _EDGE_PARTNER[inputs.score]
    if (changes["edge_features"] is None) != (changes[partner] is None):
        raise ArgumentError(partner, "to be given together with edge_features", "only one of them")
    checked = copy.copy(inputs)
    checked.__dict__.update(changes)
    return checked


def _float_array(
    name: str, value: Any, shape: tuple[str, ...], sizes: dict[str, int], dtype: np.dtype[Any]
) -> Floats | None:
    if value is None:
        if name in _OPTIONAL:
            return None
        raise ArgumentError(name, f"an array [{', '.join(shape)}]", "None")
    array = as_numpy(name, value)
    if name == "edge_features" and array.ndim == 2:
        sizes["D"] = array.shape[1]
    wanted = tuple([sizes.get(letter, -1) for letter in shape])
    if array.shape != wanted:
        text = ", ".join(f"{letter}={size}" for letter, size in zip(shape, wanted))
        raise ArgumentError(name, f"shape [{text}]", f"{list(array.shape)}")
    if array.dtype != dtype:
        raise ArgumentError(name, f"{dtype}, as values", array.dtype)
    flags = array.flags
    fits = flags.c_contiguous and flags.aligned
    return array if fits else np.require(array, requirements=("C_CONTIGUOUS", "ALIGNED"))


def _value_table(value: Any, shape: tuple[str, ...]) -> tuple[Any, np.dtype[Any]]:
    """`values` as an array or a table, and the dtype that is worked in."""
    if isinstance(value, QuantizedTable):
        if value.ndim != len(shape):
            raise ArgumentError("values", f"a table [{', '.join(shape)}]", f"shape {list(value.shape)}")
        return value, np.dtype(np.float32)
    array = as_numpy("values", value)
    if array.ndim != len(shape) or array.dtype not in _DTYPES:
        hint = "for inference from float16: QuantizedTable(values)" if array.dtype == np.float16 else ""
        expected = f"a float32 or float64 array [{', '.join(shape)}]"
        raise ArgumentError("values", expected, f"{array.dtype} {list(array.shape)}", hint)
    return array, array.dtype


def _quantized(
    name: str, table: QuantizedTable, shape: tuple[str, ...], sizes: dict[str, int], dtype: np.dtype[Any]
) -> QuantizedTable:
    wanted = tuple(sizes.get(letter, -1) for letter in shape)
    if table.shape != wanted:
        text = ", ".join(f"{letter}={size}" for letter, size in zip(shape, wanted))
        raise ArgumentError(name, f"shape [{text}]", f"{list(table.shape)}")
    if dtype != np.float32:
        raise ArgumentError(name, f"{dtype}, as values", f"a table of {table.kind}", "quantized tables go with float32")
    return table


def _address(array: NDArray[Any] | None) -> int:
    return 0 if array is None else _native.address(array) or 0


def _table(table: Floats | QuantizedTable | None) -> tuple[int, int, int]:
    """A table as the library takes it: address, kind and address of the scales."""
    if isinstance(table, QuantizedTable):
        return _address(table.data), _native.TABLE_KINDS[table.kind], _address(table.scales)
    return _address(table), _native.TABLE_KINDS["plain"], 0


def _refuse_quantized(inputs: AttentionInputs) -> None:
    for name in ("values", "keys"):
        if isinstance(getattr(inputs, name), QuantizedTable):
            raise ArgumentError(
                name,
                "a float32 or float64 array where gradients are wanted",
                f"a table of {getattr(inputs, name).kind}",
                "there are no gradients through a quantized table: train with the numbers it was made from",
            )


def _graph(value: Any) -> Graph:
    if not isinstance(value, Graph):
        raise ArgumentError("graph", "a sage_attention.Graph", type(value).__name__)
    return value


def _number(name: str, value: Any) -> float:
    if type(value) is float:
        return value
    if isinstance(value, (bool, np.bool_, str, bytes)):
        raise ArgumentError(name, "a number", repr(value))
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ArgumentError(name, "a number", repr(value)) from error


def native_problem(inputs: AttentionInputs, num_threads: int) -> bytes:
    """The problem as the library takes it; `inputs` must outlive it and hold contiguous arrays."""
    graph = inputs.graph
    argument = graph._argument()  # noqa: SLF001
    values, values_kind, value_scales = _table(inputs.values)
    keys, keys_kind, key_scales = _table(inputs.keys)
    return _native.pack_problem(
        ctypes.sizeof(_native.Problem),
        _native.SCORES[inputs.score],
        _native.float_type(inputs.dtype),
        *(getattr(argument, field[0]) or 0 for field in argument._fields_),
        _address(graph.edge_ids),
        graph.num_edges,
        _address(inputs.targets),
        inputs.num_rows,
        unsigned_seed(inputs.seed),
        min(integer("fan_out", inputs.fan_out, -1), 2**63 - 1),  # the library says which are too large
        int(inputs.replace),
        integer("hop", inputs.hop, 0, 2**31 - 1),
        inputs.heads,
        inputs.channels,
        inputs.edge_channels,
        float(inputs.negative_slope),
        inputs.used_scale,
        float(inputs.dropout),
        integer("dropout_seed", inputs.dropout_seed, 0, 2**64 - 1),
        values,
        keys,
        *(_address(getattr(inputs, name)) for name in _AFTER_KEYS),
        integer("num_threads", num_threads, 0, 2**31 - 1),
        int(inputs.weights_before_dropout),
        values_kind,
        keys_kind,
        value_scales,
        key_scales,
    )


def _native_result(outputs: AttentionOutputs) -> bytes:
    return _native.pack_result(*(_address(getattr(outputs, name)) for name in _RESULT_FIELDS))


def attention_forward(
    inputs: AttentionInputs, *, for_backward: bool = False, return_weights: bool = False, num_threads: int = 0
) -> AttentionOutputs:
    """Attends; targets without in-edges get zeros, or the bias.

    Args:
        inputs: The problem.
        for_backward: Also give what ``attention_backward`` needs.
        return_weights: Also give the softmax weights; only where the whole graph is attended.
        num_threads: 0 is one per core; the result is the same for any number.

    Returns:
        The outputs, of the dtype of ``inputs.values``; float32 where those are a ``QuantizedTable``.

    Raises:
        ArgumentError: An input is missing, superfluous, or of the wrong type or shape; or a table is quantized and
            `for_backward` asked for.

    Example:
        >>> from sage_attention import Graph
        >>> graph = Graph.from_edge_index([[0, 1], [2, 2]], num_nodes=3)
        >>> ones = np.ones((3, 1, 2), np.float32)
        >>> inputs = AttentionInputs("dot", graph, values=ones, keys=ones, queries=ones)
        >>> attention_forward(inputs).out[2]
        array([[1., 1.]], dtype=float32)
    """
    inputs = _checked(inputs)
    if for_backward:
        _refuse_quantized(inputs)
    if return_weights and not inputs.attends_whole_graph:
        raise ArgumentError(
            "return_weights",
            "False where in-edges are sampled or targets chosen",
            "True",
            "sample first, then attend over the sample's own graph",
        )
    rows, heads, channels, dtype = inputs.num_rows, inputs.heads, inputs.channels, inputs.dtype
    edges = inputs.edge_channels
    gat = inputs.score == "gat"
    per_row = np.empty((rows, heads), dtype) if for_backward else None
    outputs = AttentionOutputs(
        out=empty((rows, heads, channels), dtype),
        edge_out=empty((rows, heads, edges), dtype) if inputs.score == "dot" and edges else None,
        weights=empty((inputs.graph.num_edges, heads), dtype) if return_weights else None,
        row_max=per_row,
        row_sum=None if per_row is None else np.empty_like(per_row),
        positive_out=empty((rows, heads, channels), dtype) if for_backward and gat else None,
        positive_sum=np.empty((rows, heads), dtype) if for_backward and gat else None,
    )
    problem, result = native_problem(inputs, num_threads), _native_result(outputs)
    _native.check(_native.library().packed_forward(problem, result))
    return outputs


def attention_backward(
    inputs: AttentionInputs,
    outputs: AttentionOutputs,
    grad_out: Floats,
    *,
    grad_edge_out: Floats | None = None,
    grad_weights: Floats | None = None,
    num_threads: int = 0,
) -> AttentionGradients:
    """Gradients of a forward pass; picks and scores are recomputed, nothing per edge and channel is stored.

    Args:
        inputs: What went into ``attention_forward``.
        outputs: What came out of it with ``for_backward=True``.
        grad_out: [R, H, C], gradient of ``outputs.out``.
        grad_edge_out: [R, H, D], gradient of ``outputs.edge_out``, or None.
        grad_weights: [E, H], gradient of ``outputs.weights``, or None.
        num_threads: 0 is one per core; the result is the same for any number.

    Raises:
        ArgumentError: A shape or dtype does not fit, `outputs` lacks what the backward pass needs, or a table is
            quantized: there are no gradients through one.

    Example:
        >>> from sage_attention import Graph
        >>> graph = Graph.from_edge_index([[0, 1], [2, 2]], num_nodes=3)
        >>> ones = np.ones((3, 1, 2), np.float32)
        >>> inputs = AttentionInputs("dot", graph, values=ones, keys=ones, queries=ones)
        >>> outputs = attention_forward(inputs, for_backward=True)
        >>> attention_backward(inputs, outputs, np.ones_like(outputs.out)).values[:, 0, 0]
        array([0.5, 0.5, 0. ], dtype=float32)
    """
    inputs = _checked(inputs)
    _refuse_quantized(inputs)
    if getattr(outputs, "row_max", None) is None:
        raise ArgumentError("outputs", "those of attention_forward(..., for_backward=True)", "no row_max")
    sizes = {"R": inputs.num_rows, "E": inputs.graph.num_edges, "H": inputs.heads, "C": inputs.channels}
    sizes["D"] = inputs.edge_channels
    dtype = inputs.dtype
    kept: dict[str, Any] = {
        name: _float_array(f"outputs.{name}", array, shape, sizes, dtype)
        for name, shape in _RESULT_SHAPES.items()
        if (array := getattr(outputs, name)) is not None
    }
    outputs = replace(outputs, **kept)
    if grad_edge_out is not None and outputs.edge_out is None:
        raise ArgumentError("grad_edge_out", "None, as outputs has no edge_out", "an array")
    given = {"out": _float_array("grad_out", grad_out, ("R", "H", "C"), sizes, dtype)}
    for name, value, shape in (
        ("edge_out", grad_edge_out, ("R", "H", "D")),
        ("weights", grad_weights, ("E", "H")),
    ):
        if value is not None:
            given[name] = _float_array(f"grad_{name}", value, shape, sizes, dtype)
    if grad_weights is not None and outputs.weights is None:
        raise ArgumentError("outputs", "weights, as there is a grad_weights", "None")
    wanted = {
        name: empty(array.shape, dtype)
        for name in _SHAPES[inputs.score]
        if (array := getattr(inputs, name)) is not None
    }
    problem, result = native_problem(inputs, num_threads), _native_result(outputs)
    gradients = _native.pack_gradients(
        *(_address(given.get(name)) for name in ("out", "edge_out", "weights")),
        *(_address(wanted.get(name)) for name in ("values", "keys", *_AFTER_KEYS)),
    )
    by_source = _native.pack_transposed(0, 0, 0)
    if inputs.attends_whole_graph:
        by_source = _native.pack_transposed(*(_address(array) for array in inputs.graph.transposed))
    _native.check(_native.library().packed_backward(problem, result, by_source, gradients))
    return AttentionGradients(**wanted)


def gat_attention(
    graph: Graph,
    values: Floats | QuantizedTable,
    source_logits: Floats,
    target_logits: Floats | None = None,
    *,
    return_weights: bool = False,
    num_threads: int = 0,
    **options: Any,
) -> Any:
    """Graph attention (Veličković et al. 2018) over the in-edges of each target.

    Args:
        graph: S sources.
        values: [S, H, C], float32 or float64, or a ``QuantizedTable`` (the other arrays are float32 then).
        source_logits: [S, H].
        target_logits: [R, H] or None.
        return_weights: Return ``(out, weights)`` with weights [E, H] in the order of the graph's edges.
        num_threads: 0 is one per core.
        **options: Any other field of ``AttentionInputs`` (edge features, bias, dropout, sampling).

    Returns:
        out [R, H, C], or ``(out, weights)``.

    Raises:
        ArgumentError: An input is of the wrong type or shape.

    Example:
        >>> from sage_attention import Graph
        >>> graph = Graph.from_edge_index([[0, 1], [2, 2]], num_nodes=3)
        >>> values = np.arange(3, dtype=np.float32).reshape(3, 1, 1)
        >>> gat_attention(graph, values, np.zeros((3, 1), np.float32))[2]
        array([[0.5]], dtype=float32)
    """
    if not return_weights and (not options or options.keys() == _ONLY_BIAS):
        out = _plain_attention.gat(graph, values, source_logits, target_logits, options.get("bias"), num_threads)
        if out is not None:
            return out
    inputs = AttentionInputs("gat", graph, values, source_logits=source_logits, target_logits=target_logits, **options)
    return _out(inputs, return_weights, num_threads)


def gatv2_attention(
    graph: Graph,
    values: Floats | QuantizedTable,
    queries: Floats,
    attention: Floats,
    *,
    return_weights: bool = False,
    num_threads: int = 0,
    **options: Any,
) -> Any:
    """Graph attention with dynamic scores (Brody et al. 2022).

    Args:
        graph: S sources.
        values: [S, H, C], keys and values, float32 or float64, or a ``QuantizedTable``.
        queries: [R, H, C].
        attention: [H, C].
        return_weights: Return ``(out, weights)``.
        num_threads: 0 is one per core.
        **options: Any other field of ``AttentionInputs``.

    Returns:
        out [R, H, C], or ``(out, weights)``.

    Raises:
        ArgumentError: An input is of the wrong type or shape.

    Example:
        >>> from sage_attention import Graph
        >>> graph = Graph.from_edge_index([[0, 1], [2, 2]], num_nodes=3)
        >>> x = np.ones((3, 1, 2), np.float32)
        >>> gatv2_attention(graph, x, x, np.ones((1, 2), np.float32))[2]
        array([[1., 1.]], dtype=float32)
    """
    if not return_weights and (not options or options.keys() == _ONLY_BIAS):
        out = _plain_attention.gatv2(graph, values, queries, attention, options.get("bias"), num_threads)
        if out is not None:
            return out
    inputs = AttentionInputs("gatv2", graph, values, queries=queries, attention=attention, **options)
    return _out(inputs, return_weights, num_threads)


def dot_attention(
    graph: Graph,
    queries: Floats,
    keys: Floats | QuantizedTable,
    values: Floats | QuantizedTable,
    *,
    return_weights: bool = False,
    num_threads: int = 0,
    **options: Any,
) -> Any:
    """Scaled dot-product attention (Vaswani et al. 2017) over the in-edges of each target.

    Args:
        graph: S sources.
        queries: [R, H, C], float32 or float64.
        keys: [S, H, C], or a ``QuantizedTable``.
        values: [S, H, C], or a ``QuantizedTable``, whatever `keys` are.
        return_weights: Return ``(out, weights)``.
        num_threads: 0 is one per core.
        **options: Any other field of ``AttentionInputs``.

    Returns:
        out [R, H, C], or ``(out, weights)``.

    Raises:
        ArgumentError: An input is of the wrong type or shape.

    Example:
        >>> from sage_attention import Graph
        >>> graph = Graph.from_edge_index([[0, 1], [2, 2]], num_nodes=3)
        >>> x = np.ones((3, 1, 2), np.float32)
        >>> dot_attention(graph, x, x, x)[2]
        array([[1., 1.]], dtype=float32)
    """
    if not return_weights and (not options or options.keys() == _ONLY_BIAS):
        out = _plain_attention.dot(graph, queries, keys, values, options.get("bias"), num_threads)
        if out is not None:
            return out
    inputs = AttentionInputs("dot", graph, values, keys=keys, queries=queries, **options)
    return _out(inputs, return_weights, num_threads)


def _out(inputs: AttentionInputs, return_weights: bool, num_threads: int) -> Any:
    outputs = attention_forward(inputs, return_weights=return_weights, num_threads=num_threads)
    return (outputs.out, outputs.weights) if return_weights else outputs.out


def aggregate(
    graph: Graph, values: Floats | QuantizedTable, edge_values: Floats | None = None, *, num_threads: int = 0
) -> Floats:
    """The weighted sum of the neighbours' rows: a sparse times a dense matrix.

    Args:
        graph: S sources, R targets.
        values: [S, C], float32 or float64, or a ``QuantizedTable``.
        edge_values: [E] of the same dtype (float32 with a ``QuantizedTable``), in the order of the edges the graph was
            made from; None is all 1.
        num_threads: 0 is one per core; the result is the same for any number.

    Returns:
        [R, C], of the dtype of `values`, float32 of a ``QuantizedTable``; zeros for targets without in-edges.

    Raises:
        ArgumentError: An array is of the wrong type or shape.

    Example:
        >>> from sage_attention import Graph
        >>> graph = Graph.from_edge_index([[0, 1], [2, 2]], num_nodes=3)
        >>> aggregate(graph, np.array([[1.0], [2.0], [4.0]]))[2]
        array([3.])
    """
    _graph(graph)
    array, dtype = _value_table(values, ("S", "C"))
    sizes = {"S": graph.num_sources, "E": graph.num_edges, "C": array.shape[1]}
    rows: Floats | QuantizedTable | None
    if isinstance(array, QuantizedTable):
        rows = _quantized("values", array, ("S", "C"), sizes, dtype)
    else:
        rows = _float_array("values", array, ("S", "C"), sizes, dtype)
    factors = None
    if edge_values is not None:
        factors = _float_array("edge_values", edge_values, ("E",), sizes, dtype)
        if factors is not None and graph.edge_ids is not None:
            factors = factors[graph.edge_ids]
    out: Floats = empty((graph.num_targets, array.shape[1]), dtype)
    table, kind, scales = _table(rows)
    if out.size:
        _native.check(
            _native.library().sage_attention_aggregate(
                ctypes.byref(graph._argument()),  # noqa: SLF001
                _native.float_type(dtype),
                _native.address(factors),
                table,
                kind,
                scales,
                array.shape[1],
                _native.address(out),
                integer("num_threads", num_threads, 0, 2**31 - 1),
            )
        )
    return out
