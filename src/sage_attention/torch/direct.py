"""The attention operators without PyTorch's dispatcher, which takes longer than attending a small graph.

What the operators of ``library.py`` do is done here by the same native calls on the same numbers, where nobody but
autograd would notice: plain tensors on the CPU, no picks, and no tracing, compiling, dispatch mode, function transform
or profiler. Elsewhere, and where an argument is not as it should be, the answer is None: the operators then do the
work, or say what is wrong. So this file has no messages, and no checks but those that tell whether it may go on.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Optional

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import Parameter

from sage_attention import _native

from . import library
from .library import INPUTS
from .memory import empty

if TYPE_CHECKING:
    from .ops import Csc

__all__ = ["attend", "takes"]

Edges = Sequence[Any]  # a Csc, or what is saved of it
Inputs = Sequence[Optional[Tensor]]  # those of a score, in the order of _ORDER; values are there

_NUM_EDGES = _NUM_INPUTS = 6
_SIZE = ctypes.sizeof(_native.Problem)
_VALUES = INPUTS.index("values")
# The tensors of each score in the order in which they come here, by their places among INPUTS.
_ORDER = {
    "gat": ("values", "source_logits", "target_logits", "edge_features", "edge_weight", "bias"),
    "gatv2": ("values", "queries", "attention", "edge_features", "edge_weight", "bias"),
    "dot": ("values", "queries", "keys", "edge_features", "edge_queries", "bias"),
}
_PLACES = {score: tuple(INPUTS.index(name) for name in names) for score, names in _ORDER.items()}


def _counters() -> tuple[Callable[[], Any], ...]:
    """Functions, one of which gives something true where somebody is to hear of each operator."""
    try:
        return (
            torch._C._len_torch_dispatch_stack,  # noqa: SLF001
            torch._C._len_torch_function_stack,  # noqa: SLF001
            torch._C._are_functorch_transforms_active,  # noqa: SLF001
            torch._C._is_tracing,  # noqa: SLF001
            torch._C._autograd._profiler_enabled,  # noqa: SLF001
        )
    except AttributeError:  # a PyTorch that has other ones: then the operators do it all
        return (lambda: True,)


_COUNTERS = _counters()
_saved_tensors_hooks: Any = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", lambda _: None)  # noqa: SLF001
# Whether what is saved will be needed once more.
_keeps_graph: Any = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True)  # noqa: SLF001


def _watched() -> bool:
    if torch.compiler.is_compiling() or forward_ad._current_level >= 0:  # noqa: SLF001
        return True
    for count in _COUNTERS:  # noqa: SIM110 - any() takes three times as long
        if count():
            return True
    return False


def takes(arguments: Sequence[Any]) -> bool:
    """Whether an operator's kernel may be called as it is.

    Args:
        arguments: Of the operator: plain tensors, or anything else but tensors.
    """
    tensors = [a for a in arguments if isinstance(a, Tensor)]
    if _watched() or not all(map(_is_native, tensors)):
        return False
    try:
        for tensor in tensors:
            tensor.data_ptr()
    except RuntimeError:  # what a function transform wraps looks plain, and may be met where no transform is active
        return False
    return True


def _is_native(tensor: Tensor) -> bool:
    kind = type(tensor)
    return (
        (kind is Tensor or kind is Parameter)
        and tensor.is_cpu
        and tensor.layout is torch.strided
        and not tensor.is_neg()
        and not tensor._is_zerotensor()  # noqa: SLF001
    )


class _Call(NamedTuple):
    """A problem but for its tensors."""

    score: str
    negative_slope: float
    scale: float
    dropout: float
    dropout_seed: int
    before: bool
    return_weights: bool
    with_edges: bool


class _Packed(NamedTuple):
    """A problem as the library takes it, and tensors whose addresses it has that nobody else keeps alive."""

    problem: bytes
    alive: list[Tensor]
    shape: tuple[int, int, int]
    edge_rows: int
    edge_channels: int


def attend(
    edges: Csc,
    score: str,
    inputs: Inputs,
    negative_slope: Any,
    scale: float,
    dropout: Any,
    dropout_seed: Tensor | None,
    return_weights: Any,
    before: Any,
) -> tuple[Tensor, Tensor | None, Tensor | None] | None:
    """The output, that of the edges and the weights, where there are any; or None: the operators are to do it.

    Args:
        edges: E edges of R targets.
        score: "gat", "gatv2" or "dot".
        inputs: The tensors: values, the score's two, edge features, the score's tensor for these, bias.
        negative_slope: Of LeakyReLU.
        scale: Of the dot product.
        dropout: Chance that a weight is dropped.
        dropout_seed: Of the mask, int64 [].
        return_weights: Whether to give the weights.
        before: Whether these are to be those before dropout.
    """
    if _watched() or not type(negative_slope) is type(dropout) is float:
        return None
    if not type(return_weights) is type(before) is bool:
        return None
    seed = 0 if dropout_seed is None else int(dropout_seed) & (2**64 - 1)
    with_edges = score == "dot" and inputs[3] is not None
    call = _Call(score, negative_slope, scale, dropout, seed, before, return_weights, with_edges)
    try:
        packed = _pack(edges, call, inputs)
    except RuntimeError:  # as in `takes`
        return None
    if packed is None:
        return None
    if torch.is_grad_enabled() and True in [tensor.requires_grad for tensor in inputs if tensor is not None]:
        if _saved_tensors_hooks(True):  # checkpoints want as many saved in both passes, whether one is watched or not
            return None
        # Function.apply first asks about function transforms, of which there are none.
        outputs = super(torch.autograd.Function, _Attention).apply(edges, call, packed, *inputs)  # type: ignore[no-untyped-call]
    else:
        outputs = _forward(call, packed, inputs[0], None)
    return outputs[0], outputs[1] if with_edges else None, outputs[-1] if return_weights else None


def _is_index(tensor: Any, size: int, dtype: torch.dtype = torch.int64) -> bool:
    return (
        type(tensor) is Tensor
        and tensor.dtype is dtype
        and tensor.shape == (size,)
        and tensor.is_cpu
        and tensor.layout is torch.strided
    )


def _is_plain(tensor: Any, shape: tuple[int, ...], dtype: torch.dtype) -> bool:
    kind = type(tensor)  # all of `_is_native` once more: a call takes as long as these questions
    return (
        (kind is Tensor or kind is Parameter)
        and tensor.dtype is dtype
        and tensor.shape == shape
        and tensor.is_cpu
        and tensor.layout is torch.strided
        and not tensor.is_neg()
        and not tensor._is_zerotensor()  # noqa: SLF001
    )


def _address(tensor: Tensor, alive: list[Tensor]) -> int:
    if not tensor.is_contiguous():
        tensor = tensor.contiguous()
        alive.append(tensor)
    return tensor.data_ptr()


def _pack(edges: Edges, call: _Call, inputs: Sequence[Any]) -> _Packed | None:
    """The problem for the library, or None where an operator should see it."""
    values, _, _, features, _, _ = inputs
    dtype, score = values.dtype, call.score
    kind, shape = library._FLOAT_TYPES.get(dtype), values.shape  # noqa: SLF001
    indptr, indices, edge_ids, by_indptr, by_indices, by_positions = edges
    if not type(indptr) is type(indices) is Tensor:
        return None
    index_dtype, index_shape = indices.dtype, indices.shape
    index_type = library._INDEX_TYPES.get(index_dtype)  # noqa: SLF001
    if kind is None or index_type is None or len(shape) != 3 or len(index_shape) != 1:
        return None
    sources, heads, channels = shape
    num_edges, rows = index_shape[0], indptr.numel() - 1
    if rows < 0 or not (_is_index(indptr, rows + 1) and _is_index(indices, num_edges, index_dtype)):
        return None
    if edge_ids is not None and not _is_index(edge_ids, num_edges):
        return None
    if by_indptr is not None and not (
        _is_index(by_indptr, sources + 1)
        and _is_index(by_indices, num_edges, index_dtype)
        and _is_index(by_positions, num_edges)
    ):
        return None
    edge_rows, width = num_edges, 0
    if features is not None:
        if features.dim() != 2 or features.shape[0] < num_edges:
            return None
        edge_rows, width = features.shape
    own, wide = (heads, channels), (rows, heads, channels)
    shapes: tuple[tuple[int, ...], ...]
    if score == "gat":
        shapes = shape, (sources, heads), (rows, heads), (edge_rows, width), (heads, width), own
    elif score == "gatv2":
        shapes = shape, wide, own, (edge_rows, width), (heads * channels, width), own
    else:
        shapes = shape, wide, shape, (edge_rows, width), (rows, heads, width), own
    alive: list[Tensor] = []
    addresses = [0] * len(INPUTS)
    for place, tensor, wanted in zip(_PLACES[score], inputs, shapes):
        if tensor is not None:
            if not _is_plain(tensor, wanted, dtype):
                return None
            addresses[place] = _address(tensor, alive)
    problem = _native.pack_problem(
        _SIZE, _native.SCORES[score], kind,
        _address(indptr, alive), _address(indices, alive), rows, sources, num_edges, index_type, 0,
        0 if edge_ids is None else _address(edge_ids, alive), edge_rows, 0, rows, 0, -1, 0, 0,
        heads, channels, width, call.negative_slope, call.scale, call.dropout, call.dropout_seed,
        *addresses, library.num_threads(), call.before, 0, 0, 0, 0,
    )  # fmt: skip
    return _Packed(problem, alive, wide, edge_rows, width)


def _forward(call: _Call, packed: _Packed, values: Any, kept: Tensor | None) -> tuple[Tensor, ...]:
    """The outputs that there are: out, edge_out, weights; what the backward pass needs goes into `kept`."""
    problem, _, shape, edge_rows, width = packed
    rows, heads, channels = shape
    out = empty(values, rows, heads, channels)
    edge_out = empty(values, rows, heads, width) if call.with_edges else None
    weights = empty(values, edge_rows, heads) if call.return_weights else None
    result = _native.pack_result(
        out.data_ptr(),
        0 if edge_out is None else edge_out.data_ptr(),
        *((0, 0, 0, 0) if kept is None else _addresses_kept(call, shape, kept)),
        0 if weights is None else weights.data_ptr(),
    )
    status = _native.library().packed_forward(problem, result)
    if status:
        _native.check(status)
    if edge_out is None:
        return (out,) if weights is None else (out, weights)
    return (out, edge_out) if weights is None else (out, edge_out, weights)


def _size_kept(call: _Call, shape: tuple[int, int, int]) -> int:
    """Elements of what the backward pass needs: row_max, row_sum; gat: positive_out, positive_sum, too."""
    rows, heads, channels = shape
    return rows * heads * (channels + 3 if call.score == "gat" else 2)


def _addresses_kept(call: _Call, shape: tuple[int, int, int], kept: Tensor) -> tuple[int, int, int, int]:
    """Of row_max, row_sum, positive_out and positive_sum, in one tensor: positive_out comes first."""
    rows, heads, channels = shape
    start, narrow = kept.data_ptr(), rows * heads * kept.itemsize
    if call.score != "gat":
        return start, start + narrow, 0, 0
    first = start + narrow * channels
    return first, first + narrow, start, first + 2 * narrow


def _views_kept(call: _Call, shape: Sequence[int], kept: Tensor) -> tuple[Tensor, ...]:
    """The same as the operators take them."""
    rows, heads, channels = shape
    nothing = kept.new_empty(0)
    if call.score != "gat":
        return *kept.view(2, rows, heads), nothing, nothing
    wide = rows * heads * channels
    row_max, row_sum, positive_sum = kept[wide:].view(3, rows, heads)
    return row_max, row_sum, kept[:wide].view(rows, heads, channels), positive_sum


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, edges: Csc, call: _Call, packed: _Packed, *inputs: Any) -> tuple[Tensor, ...]:
        kept = empty(inputs[0], _size_kept(call, packed.shape))
        outputs = _forward(call, packed, inputs[0], kept)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*edges, *inputs, *outputs, kept)
        ctx.call = call
        return outputs

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor | None, *others: Tensor | None) -> tuple[Any, ...]:
        call, saved = ctx.call, ctx.saved_tensors
        edges, inputs = saved[:_NUM_EDGES], saved[_NUM_EDGES : _NUM_EDGES + _NUM_INPUTS]
        outputs, kept = saved[_NUM_EDGES + _NUM_INPUTS : -1], saved[-1]
        if grad_out is None:
            grad_out = torch.zeros_like(outputs[0])
        gradients = grad_out, others[0] if call.with_edges else None, others[-1] if call.return_weights else None
        results = outputs[0], outputs[1] if call.with_edges else None, outputs[-1] if call.return_weights else None
        wanted = ctx.needs_input_grad[3:]
        grads = None
        if not (torch.is_grad_enabled() or _watched()):  # else an operator, whose own gradient says that it has none
            grads = _backward(edges, call, inputs, results, kept, gradients, wanted)
        if grads is None:
            grads = _backward_by_operator(edges, call, inputs, results, kept, gradients, wanted)
        return None, None, None, *grads


def _backward(
    edges: Edges,
    call: _Call,
    inputs: Inputs,
    results: tuple[Tensor | None, ...],
    kept: Tensor,
    gradients: tuple[Tensor | None, ...],
    wanted: Sequence[bool],
) -> list[Tensor | None] | None:
    try:
        packed = _pack(edges, call, inputs)
        if packed is None:
            return None
        problem, alive, shape, edge_rows, width = packed
        kept = kept.contiguous()  # hooks on saved tensors may have changed that
        dtype = kept.dtype
        shapes = (shape, (*shape[:2], width), (edge_rows, shape[1]))
        addresses = []
        for tensor, wide in (*zip(results, shapes), *zip(gradients, shapes), (kept, (_size_kept(call, shape),))):
            if tensor is None:
                addresses.append(0)
            elif _is_plain(tensor, wide, dtype):
                addresses.append(_address(tensor, alive))
            else:
                return None
    except RuntimeError:  # as in `takes`: gradients that come as a batch
        return None
    to_inputs = [0] * len(INPUTS)
    grads: list[Tensor | None] = []
    for place, tensor, want in zip(_PLACES[call.score], inputs, wanted):
        grad = None
        if want and tensor is not None:
            if place == _VALUES and call.score == "gat" and tensor.shape == shape and not _keeps_graph():
                grad = kept[: tensor.numel()].view(shape)  # positive_out, which has been read when this is written
            else:
                grad = empty(tensor, *tensor.shape)
            to_inputs[place] = grad.data_ptr()
        grads.append(grad)
    out, edge_out, weights, *of_gradients, _ = addresses
    status = _native.library().packed_backward(
        problem,
        _native.pack_result(out, edge_out, *_addresses_kept(call, shape, kept), weights),
        _native.pack_transposed(*[0 if tensor is None else _address(tensor, alive) for tensor in edges[3:]]),
        _native.pack_gradients(*of_gradients, *to_inputs),
    )
    if status:
        _native.check(status)
    return grads


def _backward_by_operator(
    edges: Edges,
    call: _Call,
    inputs: Inputs,
    results: tuple[Tensor | None, ...],
    kept: Tensor,
    gradients: tuple[Any, ...],
    wanted: Sequence[bool],
) -> list[Tensor | None]:
    places = _PLACES[call.score]
    by_place, wants = dict(zip(places, inputs)), dict(zip(places, wanted))
    nothing = kept.new_empty(0)
    grads = torch.ops.sage_attention.backward(
        *edges, None, -1, False, None, 0, call.score, *(by_place.get(place) for place in range(len(INPUTS))),
        call.negative_slope, call.scale, call.dropout, library.seed_tensor(call.dropout_seed), call.before,
        *(nothing if tensor is None else tensor for tensor in results),
        *_views_kept(call, gradients[0].shape, kept),
        *gradients, [bool(wants.get(place, False)) for place in range(len(INPUTS))],
    )  # fmt: skip
    return [grads[place] if want else None for place, want in wants.items()]
