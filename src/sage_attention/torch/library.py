"""The native operators as PyTorch sees them: schemas, CPU kernels, fake kernels, gradients.

``torch.ops.sage_attention.csc``, ``.forward`` and ``.backward`` are functional and cover every score; ``ops.py`` gives
them names and defaults. Absent tensors come back empty (shape [0]), for a schema cannot say "maybe".
"""

from __future__ import annotations

import ctypes
from typing import Any, Callable

import torch
from torch import Tensor

from sage_attention import _native
from sage_attention.errors import ArgumentError, NativeError

from .memory import empty

__all__ = ["num_threads", "seed_tensor", "set_num_threads"]

_LIBRARY: Any = torch.library.Library("sage_attention", "DEF")  # type: ignore[no-untyped-call]

# The tensors of a problem, in the order in which every operator takes and gives them.
INPUTS = (
    "values",
    "keys",
    "queries",
    "source_logits",
    "target_logits",
    "attention",
    "edge_features",
    "edge_weight",
    "edge_queries",
    "bias",
)
_OUTPUTS = ("out", "edge_out", "weights", "row_max", "row_sum", "positive_out", "positive_sum")
_PROBLEM = (
    "Tensor indptr, Tensor indices, Tensor? edge_ids, "
    "Tensor? source_indptr, Tensor? source_indices, Tensor? source_positions, "
    "Tensor? targets, int fan_out, bool replace, Tensor? seed, int hop, "
    "str score, Tensor values, " + ", ".join(f"Tensor? {name}" for name in INPUTS[1:]) + ", "
    "float negative_slope, float scale, float dropout, Tensor? dropout_seed, bool weights_before_dropout"
)
_NUM_PROBLEM = 27  # arguments of _PROBLEM
_FIRST_INPUT = 12  # place of `values` among them

_LIBRARY.define("csc(Tensor edge_index, SymInt num_sources, SymInt num_targets) -> (Tensor, Tensor, Tensor)")
_LIBRARY.define("by_source(Tensor indptr, Tensor indices, SymInt num_sources) -> (Tensor, Tensor, Tensor)")
_LIBRARY.define(
    f"forward({_PROBLEM}, bool return_weights, bool for_backward) -> (" + ", ".join("Tensor" for _ in _OUTPUTS) + ")"
)
_LIBRARY.define(
    f"backward({_PROBLEM}, "
    + ", ".join(f"Tensor {name}" for name in (f"result_{n}" for n in _OUTPUTS))
    + ", Tensor grad_out, Tensor? grad_edge_out, Tensor? grad_weights, bool[] wanted) -> "
    "(" + ", ".join("Tensor" for _ in INPUTS) + ")"
)

_threads: int | None = None


def num_threads() -> int:
    """Threads the operators use: what ``set_num_threads`` said, else ``torch.get_num_threads()``."""
    return torch.get_num_threads() if _threads is None else _threads


def set_num_threads(count: int | None) -> None:
    """Sets the threads of the native operators apart from torch's own; None follows torch again.

    Args:
        count: From 1 to 2^31 - 1, or None. Results never depend on it.

    Raises:
        ArgumentError: It is neither.

    Example:
        >>> set_num_threads(2)
        >>> num_threads()
        2
    """
    global _threads
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or not 1 <= count < 2**31):
        raise ArgumentError("count", "a number of threads from 1 to 2^31 - 1, or None", repr(count))
    _threads = count


def _address(tensor: Tensor | None) -> int | None:
    return None if tensor is None or tensor.numel() == 0 else tensor.data_ptr()


def _contiguous(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.contiguous()


def _seed(tensor: Tensor | None) -> int:
    return 0 if tensor is None else int(tensor) & (2**64 - 1)


def seed_tensor(seed: int | Tensor) -> Tensor:
    """A seed in [0, 2^64) as the int64 of the same bits.

    Args:
        seed: Of the mask or of the picks.

    Raises:
        ArgumentError: It does not fit.

    Example:
        >>> seed_tensor(2**64 - 1)
        tensor(-1)
    """
    if isinstance(seed, Tensor):
        return seed.cpu()
    if not -(2**63) <= seed < 2**64:
        raise ArgumentError("seed", "an integer in [0, 2^64)", seed)
    # The operators are those of the CPU, whatever the default device is.
    return torch.tensor(seed - 2**64 if seed >= 2**63 else seed, dtype=torch.int64, device="cpu")


_INDEX_TYPES = {torch.int32: _native.INT32, torch.int64: _native.INT64}
_FLOAT_TYPES = {torch.float32: _native.FLOAT32, torch.float64: _native.FLOAT64}


def _index_type(name: str, tensor: Tensor) -> int:
    index_type = _INDEX_TYPES.get(tensor.dtype)
    if index_type is None:
        raise ArgumentError(name, "an int32 or int64 tensor", tensor.dtype)
    return index_type


class _Problem:
    """The arguments of a problem: checked, contiguous, and as the native structure."""

    def __init__(self, *arguments: Any) -> None:
        (indptr, indices, edge_ids, *by_source, targets, fan_out, replace, seed, hop, score) = arguments[:12]
        tensors = arguments[12 : 12 + len(INPUTS)]
        (negative_slope, scale, dropout, dropout_seed, before) = arguments[12 + len(INPUTS) : _NUM_PROBLEM]
        if score not in _native.SCORES:
            raise ArgumentError("score", '"gat", "gatv2" or "dot"', repr(score))
        if not 0 <= hop < 2**31:  # before it is narrowed
            raise ArgumentError("hop", "from 0 to 2^31 - 1", hop)
        # Kept as attributes: the structure holds addresses only.
        self.indptr, self.indices = indptr.contiguous(), indices.contiguous()
        self.edge_ids, self.targets = _contiguous(edge_ids), _contiguous(targets)
        self.by_source = [_contiguous(t) for t in by_source]
        self.inputs: dict[str, Tensor | None] = {name: _contiguous(tensor) for name, tensor in zip(INPUTS, tensors)}
        values = tensors[0]
        if values.dim() != 3 or values.dtype not in _FLOAT_TYPES:
            raise ArgumentError(
                "values", "a float32 or float64 tensor [S, H, C]", f"{values.dtype} {list(values.shape)}"
            )
        self.rows = indptr.numel() - 1 if targets is None else targets.numel()
        self.heads, self.channels = values.shape[1], values.shape[2]
        features = self.inputs["edge_features"]
        self.edge_channels = 0 if features is None else features.shape[-1]
        self.num_edges = indices.numel()
        self.num_edge_rows = self.num_edges if features is None else features.shape[0]
        self.score = score
        self._check_shapes(values)
        index = {"indptr": indptr, "edge_ids": edge_ids, "targets": targets}
        index.update(zip(("source_indptr", "source_positions"), by_source[::2]))
        for name, tensor in index.items():
            if tensor is not None and (tensor.dtype != torch.int64 or tensor.dim() != 1):
                raise ArgumentError(name, "an int64 tensor of one dimension", f"{tensor.dtype} {list(tensor.shape)}")
        if indptr.numel() == 0:
            raise ArgumentError("indptr", "at least one element", "an empty tensor")
        if edge_ids is not None and edge_ids.numel() != self.num_edges:
            raise ArgumentError("edge_ids", f"{self.num_edges} elements", edge_ids.numel())
        self._check_by_source(values.shape[0])
        self.native = _native.Problem(
            struct_size=ctypes.sizeof(_native.Problem),
            score=_native.SCORES[score],
            dtype=_FLOAT_TYPES[values.dtype],
            graph=_graph(self.indptr, self.indices, values.shape[0]),
            edge_ids=_address(self.edge_ids),
            num_edge_rows=self.num_edge_rows,
            # No targets at all are not the same as all targets (null): then any address will do.
            targets=_address(self.targets) or (None if targets is None else self.indptr.data_ptr()),
            num_rows=self.rows,
            sampling=_native.Sampling(_seed(seed), fan_out, int(replace), hop),
            heads=self.heads,
            channels=self.channels,
            edge_channels=self.edge_channels,
            negative_slope=negative_slope,
            scale=scale,
            dropout=dropout,
            dropout_seed=_seed(dropout_seed),
            num_threads=num_threads(),
            weights_before_dropout=int(before),
            **{name: _address(tensor) for name, tensor in self.inputs.items()},
        )

    def _check_by_source(self, num_sources: int) -> None:
        indptr, indices, positions = self.by_source
        if indptr is None:
            return
        expected = f"{num_sources + 1} elements, with source_indices and source_positions of {self.num_edges}"
        if indices is None or positions is None:
            raise ArgumentError("source_indptr", expected, "no source_indices or no source_positions")
        sizes = indptr.numel(), indices.numel(), positions.numel()
        if sizes != (num_sources + 1, self.num_edges, self.num_edges) or indices.dtype != self.indices.dtype:
            raise ArgumentError("source_indptr", expected, f"{sizes}, {indices.dtype}")

    def _check_shapes(self, values: Tensor) -> None:
        sources, heads, channels, edges = values.shape[0], self.heads, self.channels, self.edge_channels
        shapes = {
            "keys": (sources, heads, channels),
            "queries": (self.rows, heads, channels),
            "source_logits": (sources, heads),
            "target_logits": (self.rows, heads),
            "attention": (heads, channels),
            "edge_features": (self.num_edge_rows, edges),
            "edge_weight": (heads * channels if self.score == "gatv2" else heads, edges),
            "edge_queries": (self.rows, heads, edges),
            "bias": (heads, channels),
        }
        for name, shape in shapes.items():
            tensor = self.inputs[name]
            if tensor is None:
                continue
            if tuple(tensor.shape) != shape:
                raise ArgumentError(name, f"shape {list(shape)}", f"{list(tensor.shape)}")
            if tensor.dtype != values.dtype or tensor.device != values.device:
                expected = f"{values.dtype} on {values.device}, as values"
                raise ArgumentError(name, expected, f"{tensor.dtype} on {tensor.device}")
        if self.num_edge_rows < self.num_edges:
            raise ArgumentError("edge_features", f"a row for each of {self.num_edges} edges", self.num_edge_rows)


def _graph(indptr: Tensor, indices: Tensor, num_sources: int) -> _native.GraphArgument:
    return _native.GraphArgument(
        indptr=_address(indptr),
        indices=_address(indices),
        num_targets=indptr.numel() - 1,
        num_sources=num_sources,
        num_edges=indices.numel(),
        index_type=_index_type("indices", indices),
        trusted=0,
    )


def _csc(edge_index: Tensor, num_sources: int, num_targets: int) -> tuple[Tensor, Tensor, Tensor]:
    if edge_index.dim() != 2 or edge_index.shape[0] != 2:
        raise ArgumentError("edge_index", "shape [2, E]", f"{list(edge_index.shape)}")
    index_type = _index_type("edge_index", edge_index)
    edges = edge_index.contiguous()
    num_edges = edges.shape[1]
    indptr = torch.empty(num_targets + 1, dtype=torch.int64)
    indices = torch.empty(num_edges, dtype=edges.dtype)
    edge_ids = torch.empty(num_edges, dtype=torch.int64)
    _native.check(
        _native.library().sage_attention_coo_to_csc(
            _address(edges[0]), _address(edges[1]), index_type, num_edges, num_sources, num_targets,
            _address(indptr), _address(indices), _address(edge_ids),
        )
    )  # fmt: skip
    return indptr, indices, edge_ids


def _csc_fake(edge_index: Tensor, _num_sources: int, num_targets: int) -> tuple[Tensor, Tensor, Tensor]:
    num_edges = edge_index.shape[1]
    return (
        edge_index.new_empty(num_targets + 1, dtype=torch.int64),
        edge_index.new_empty(num_edges),
        edge_index.new_empty(num_edges, dtype=torch.int64),
    )


def _by_source(indptr: Tensor, indices: Tensor, num_sources: int) -> tuple[Tensor, Tensor, Tensor]:
    indptr, indices = indptr.contiguous(), indices.contiguous()
    outputs = _by_source_fake(indptr, indices, num_sources)
    graph = _graph(indptr, indices, num_sources)
    _native.check(_native.library().sage_attention_transpose(ctypes.byref(graph), *(_address(t) for t in outputs)))
    return outputs


def _by_source_fake(_indptr: Tensor, indices: Tensor, num_sources: int) -> tuple[Tensor, Tensor, Tensor]:
    return (
        indices.new_empty(num_sources + 1, dtype=torch.int64),
        torch.empty_like(indices),
        indices.new_empty(indices.shape[0], dtype=torch.int64),
    )


def _forward_fake(*arguments: Any) -> tuple[Tensor, ...]:
    indptr, indices, targets, score, values = (arguments[i] for i in (0, 1, 6, 11, 12))
    edge_features = arguments[_FIRST_INPUT + INPUTS.index("edge_features")]
    return_weights, for_backward = arguments[_NUM_PROBLEM:]
    rows = indptr.shape[0] - 1 if targets is None else targets.shape[0]
    heads, channels = values.shape[1], values.shape[2]
    gat = score == "gat" and for_backward
    with_edges = score == "dot" and edge_features is not None
    weight_rows = indices.shape[0] if edge_features is None else edge_features.shape[0]
    return (
        empty(values, rows, heads, channels),
        empty(values, rows, heads, edge_features.shape[1]) if with_edges else values.new_empty(0),
        empty(values, weight_rows, heads) if return_weights else values.new_empty(0),
        values.new_empty(rows, heads) if for_backward else values.new_empty(0),
        values.new_empty(rows, heads) if for_backward else values.new_empty(0),
        empty(values, rows, heads, channels) if gat else values.new_empty(0),
        values.new_empty(rows, heads) if gat else values.new_empty(0),
    )


def _forward(*arguments: Any) -> tuple[Tensor, ...]:
    problem = _Problem(*arguments[:_NUM_PROBLEM])
    outputs = _forward_fake(*arguments)
    result = _native.Result(**{name: _address(t) for name, t in zip(_OUTPUTS, outputs)})
    _native.check(_native.library().sage_attention_forward(ctypes.byref(problem.native), ctypes.byref(result)))
    return outputs


def _backward_fake(*arguments: Any) -> tuple[Tensor, ...]:
    tensors = arguments[_FIRST_INPUT : _FIRST_INPUT + len(INPUTS)]
    wanted = arguments[-1]
    return tuple(
        empty(t, *t.shape) if w and t is not None else tensors[0].new_empty(0) for t, w in zip(tensors, wanted)
    )


def _check_results(problem: _Problem, results: list[Tensor | None], grads: list[Tensor | None]) -> None:
    """Refuses what did not come out of the forward operator for this problem, before its memory is read."""
    rows, heads, channels, edges = problem.rows, problem.heads, problem.channels, problem.edge_channels
    wide, narrow = (rows, heads, channels), (rows, heads)
    shapes = (wide, (rows, heads, edges), (problem.num_edge_rows, heads), narrow, narrow, wide, narrow)
    required = {"out", "row_max", "row_sum"}
    values = problem.inputs["values"]
    for name, tensor, shape in (
        *zip((f"result_{n}" for n in _OUTPUTS), results, shapes),
        *zip(("grad_out", "grad_edge_out", "grad_weights"), grads, shapes),
    ):
        if tensor is None or (tensor.numel() == 0 and name.removeprefix("result_") not in required):
            continue
        if tuple(tensor.shape) != shape or (values is not None and tensor.dtype != values.dtype):
            raise ArgumentError(name, f"shape {list(shape)}, as values", f"{tensor.dtype} {list(tensor.shape)}")


def _backward(*arguments: Any) -> tuple[Tensor, ...]:
    problem = _Problem(*arguments[:_NUM_PROBLEM])
    results = [_contiguous(t) for t in arguments[_NUM_PROBLEM : _NUM_PROBLEM + len(_OUTPUTS)]]
    grads = [_contiguous(t) for t in arguments[_NUM_PROBLEM + len(_OUTPUTS) : -1]]
    _check_results(problem, results, grads)
    outputs = _backward_fake(*arguments)
    result = _native.Result(**{name: _address(t) for name, t in zip(_OUTPUTS, results)})
    addresses = {name: _address(t) for name, t in zip(("out", "edge_out", "weights"), grads)}
    addresses.update({name: _address(t) for name, t in zip(INPUTS, outputs)})
    by_source = _native.Transposed(*(_address(t) for t in problem.by_source))
    _native.check(
        _native.library().sage_attention_backward(
            ctypes.byref(problem.native),
            ctypes.byref(result),
            ctypes.byref(by_source),
            ctypes.byref(_native.Gradients(**addresses)),
        )
    )
    return outputs


class _Attention(torch.autograd.Function):
    """The forward operator and its gradient.

    Registered by hand: ``torch.library.register_autograd`` takes ten times as long to get to the kernel, as it looks
    up the default of each of these many arguments in every call.
    """

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Tensor, ...]:
        outputs = _below_autograd(*arguments)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*outputs[3:])
        ctx.save_for_backward(*(a for a in arguments[:_NUM_PROBLEM] if isinstance(a, Tensor)), *outputs)
        ctx.constants = [None if isinstance(a, Tensor) else (a,) for a in arguments[:_NUM_PROBLEM]]
        ctx.for_backward = arguments[-1]
        return outputs

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor | None, *other_grads: Tensor | None) -> tuple[Any, ...]:
        if not ctx.for_backward:
            raise ArgumentError("for_backward", "True where a gradient is asked for", "False")
        saved = list(ctx.saved_tensors)
        arguments = [saved.pop(0) if constant is None else constant[0] for constant in ctx.constants]
        if grad_out is None:
            grad_out = torch.zeros_like(saved[0])
        places = range(_FIRST_INPUT, _FIRST_INPUT + len(INPUTS))
        wanted = [bool(ctx.needs_input_grad[place]) for place in places]
        grads = torch.ops.sage_attention.backward(*arguments, *saved, grad_out, *other_grads[:2], wanted)
        gradients: list[Tensor | None] = [None] * len(ctx.needs_input_grad)
        for place, grad, want in zip(places, grads, wanted):
            gradients[place] = grad if want else None
        return tuple(gradients)


def _below_autograd(*arguments: Any) -> tuple[Tensor, ...]:
    with torch._C._AutoDispatchBelowAutograd():  # noqa: SLF001
        return torch.ops.sage_attention.forward.default(*arguments)  # type: ignore[no-any-return]


def _forward_with_gradients(*arguments: Any) -> tuple[Tensor, ...]:
    inputs = arguments[_FIRST_INPUT : _FIRST_INPUT + len(INPUTS)]
    if torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in inputs):
        return _Attention.apply(*arguments)  # type: ignore[no-any-return,no-untyped-call]
    return _below_autograd(*arguments)


def _keep_nothing(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    """The context of a backward pass that is never differentiated."""


def _no_second_derivatives(_ctx: Any, *_grads: Tensor | None) -> tuple[Any, ...]:
    # Without this, PyTorch would go on with gradients that lack the attention's part.
    raise NativeError(
        "the attention operators have first derivatives only: a gradient of a gradient needs the layers of PyTorch "
        "Geometric, or tensors on a device for which there are no native operators"
    )


def _register(name: str, kernel: Callable[..., Any], fake: Callable[..., Any]) -> None:
    _LIBRARY.impl(name, kernel, "CPU")
    torch.library.register_fake(f"sage_attention::{name}", fake, lib=_LIBRARY)


_register("csc", _csc, _csc_fake)
_register("by_source", _by_source, _by_source_fake)
_register("forward", _forward, _forward_fake)
_register("backward", _backward, _backward_fake)
torch.library.register_autograd(
    "sage_attention::backward", _no_second_derivatives, setup_context=_keep_nothing, lib=_LIBRARY
)
_LIBRARY.impl("forward", _forward_with_gradients, "Autograd")
