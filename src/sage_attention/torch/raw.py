"""GAT over raw rows, projected after aggregating: the operator and its gradients.

All heads of a GAT layer weigh the same rows x_j, and projecting is linear. So the rows are summed first, one sum per
head and target, and only the sums are projected, inside the operator. The rows are read where they lie, by way of an
index: the features of a sampled batch need not be copied out of their table.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

import torch
from torch import Tensor

from sage_attention import _native
from sage_attention.errors import ArgumentError

from . import direct, fallback, library, ops
from .library import _LIBRARY, _address, _graph, _register, _seed, num_threads
from .memory import empty
from .rows import Rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .ops import Csc

__all__ = ["gat_attention_rows"]


_PROBLEM = (
    "Tensor indptr, Tensor indices, Tensor? edge_ids, SymInt num_sources, Tensor table, Tensor? row_ids, "
    "Tensor? target_table, Tensor? target_row_ids, Tensor source_weight, Tensor? target_weight, Tensor? target_logits, "
    "Tensor projection, Tensor? bias, float negative_slope, float dropout, Tensor? dropout_seed"
)
_NUM_PROBLEM = 16
# Places of what is learned among them.
_SOURCE_WEIGHT, _TARGET_WEIGHT, _TARGET_LOGITS, _PROJECTION, _BIAS = range(8, 13)
_LEARNED = (_SOURCE_WEIGHT, _TARGET_WEIGHT, _TARGET_LOGITS, _PROJECTION, _BIAS)

_LIBRARY.define(f"raw_forward({_PROBLEM}, bool for_backward) -> (Tensor, Tensor, Tensor)")
_LIBRARY.define(
    f"raw_backward({_PROBLEM}, Tensor row_max, Tensor row_sum, Tensor grad_out, bool[] wanted) -> "
    "(Tensor, Tensor, Tensor, Tensor, Tensor)"
)


class _Arguments(NamedTuple):
    indptr: Tensor
    indices: Tensor
    edge_ids: Tensor | None
    num_sources: int
    table: Tensor
    row_ids: Tensor | None
    target_table: Tensor | None
    target_row_ids: Tensor | None
    source_weight: Tensor
    target_weight: Tensor | None
    target_logits: Tensor | None
    projection: Tensor
    bias: Tensor | None
    negative_slope: float
    dropout: float
    dropout_seed: Tensor | None


def _problem(a: _Arguments) -> tuple[_native.RawProblem, _Arguments]:
    """The native structure, and the contiguous tensors whose addresses it holds."""
    if a.table.dim() != 2 or a.table.dtype not in library._FLOAT_TYPES:  # noqa: SLF001
        got = f"{a.table.dtype} {list(a.table.shape)}"
        raise ArgumentError("table", "a float32 or float64 tensor [N, F]", got)
    if a.projection.dim() != 3:
        raise ArgumentError("projection", "shape [H, C, F]", list(a.projection.shape))
    heads, channels, features = a.projection.shape
    rows = a.indptr.numel() - 1
    shapes = {
        "table": (a.table.shape[0], features),
        "target_table": (None if a.target_table is None else a.target_table.shape[0], features),
        "source_weight": (heads, features),
        "target_weight": (heads, features),
        "target_logits": (rows, heads),
        "projection": (heads, channels, features),
        "bias": (heads, channels),
    }
    for name, shape in shapes.items():
        tensor = getattr(a, name)
        if tensor is not None and (tuple(tensor.shape) != shape or tensor.dtype != a.table.dtype):
            expected = f"shape {list(shape)} of {a.table.dtype}"
            raise ArgumentError(name, expected, f"{list(tensor.shape)} of {tensor.dtype}")
    sizes = {"indptr": None, "edge_ids": a.indices.numel(), "row_ids": a.num_sources, "target_row_ids": rows}
    for name, size in sizes.items():
        tensor = getattr(a, name)
        if tensor is not None and (tensor.dtype != torch.int64 or tensor.dim() != 1):
            raise ArgumentError(name, "an int64 tensor of one dimension", f"{tensor.dtype} {list(tensor.shape)}")
        if tensor is not None and size is not None and tensor.numel() != size:
            raise ArgumentError(name, f"{size} elements", tensor.numel())
    if a.indptr.numel() == 0:
        raise ArgumentError("indptr", "at least one element", "an empty tensor")
    if (a.target_table is None) != (a.target_weight is None):
        raise ArgumentError("target_weight", "one with target_table, none without", a.target_weight)
    contiguous: list[Any] = [value.contiguous() if isinstance(value, Tensor) else value for value in a]
    kept = _Arguments(*contiguous)
    addresses = {
        name: _address(getattr(kept, name))
        for name in ("edge_ids", "table", "source_weight", "target_weight", "target_logits", "projection", "bias")
    }
    target_table = None
    if kept.target_table is not None:
        # No rows at all are not the same as no table: then any address will do.
        target_table = _address(kept.target_table) or kept.projection.data_ptr()
    native = _native.RawProblem(
        struct_size=ctypes.sizeof(_native.RawProblem),
        dtype=library._FLOAT_TYPES[a.table.dtype],  # noqa: SLF001
        num_threads=num_threads(),
        graph=_graph(kept.indptr, kept.indices, a.num_sources),
        heads=heads,
        features=features,
        channels=channels,
        num_table_rows=a.table.shape[0],
        row_ids=_address(kept.row_ids),
        target_table=target_table,
        num_target_table_rows=0 if a.target_table is None else a.target_table.shape[0],
        target_row_ids=_address(kept.target_row_ids),
        negative_slope=a.negative_slope,
        dropout=a.dropout,
        dropout_seed=_seed(a.dropout_seed),
        **addresses,
    )
    return native, kept


def _forward_fake(*arguments: Any) -> tuple[Tensor, ...]:
    a, for_backward = _Arguments(*arguments[:_NUM_PROBLEM]), arguments[_NUM_PROBLEM]
    rows, (heads, channels) = a.indptr.shape[0] - 1, a.projection.shape[:2]
    kept = a.table.new_empty(rows, heads) if for_backward else a.table.new_empty(0)
    return empty(a.table, rows, heads, channels), kept, torch.empty_like(kept)


def _forward(*arguments: Any) -> tuple[Tensor, ...]:
    native, kept = _problem(_Arguments(*arguments[:_NUM_PROBLEM]))
    outputs = _forward_fake(*kept, arguments[_NUM_PROBLEM])
    _native.check(_native.library().sage_attention_raw_forward(ctypes.byref(native), *(_address(t) for t in outputs)))
    return outputs


def _backward_fake(*arguments: Any) -> tuple[Tensor, ...]:
    learned, wanted = [arguments[place] for place in _LEARNED], arguments[-1]
    return tuple(
        empty(t, *t.shape) if w and t is not None else arguments[4].new_empty(0) for t, w in zip(learned, wanted)
    )


def _backward(*arguments: Any) -> tuple[Tensor, ...]:
    native, kept = _problem(_Arguments(*arguments[:_NUM_PROBLEM]))
    row_max, row_sum, grad_out = (t.contiguous() for t in arguments[_NUM_PROBLEM:-1])
    rows, (heads, channels) = kept.indptr.numel() - 1, kept.projection.shape[:2]
    for name, tensor, shape in (
        ("row_max", row_max, (rows, heads)),
        ("row_sum", row_sum, (rows, heads)),
        ("grad_out", grad_out, (rows, heads, channels)),
    ):
        if tuple(tensor.shape) != shape or tensor.dtype != kept.table.dtype:
            expected = f"shape {list(shape)} of {kept.table.dtype}"
            raise ArgumentError(name, expected, f"{list(tensor.shape)} of {tensor.dtype}")
    outputs = _backward_fake(*arguments)
    gradients = _native.RawGradients(
        out=_address(grad_out),
        row_max=_address(row_max),
        row_sum=_address(row_sum),
        source_weight=_address(outputs[0]),
        target_weight=_address(outputs[1]),
        target_logits=_address(outputs[2]),
        projection=_address(outputs[3]),
    )
    _native.check(_native.library().sage_attention_raw_backward(ctypes.byref(native), ctypes.byref(gradients)))
    if outputs[4].numel() > 0:
        torch.sum(grad_out, 0, out=outputs[4])
    return outputs


def _setup_context(ctx: Any, inputs: Sequence[Any], output: tuple[Tensor, ...]) -> None:
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(*output[1:])
    ctx.save_for_backward(*(a for a in inputs[:_NUM_PROBLEM] if isinstance(a, Tensor)), *output[1:])
    ctx.constants = [None if isinstance(a, Tensor) else (a,) for a in inputs[:_NUM_PROBLEM]]
    ctx.for_backward = inputs[-1]


class _RawAttention(torch.autograd.Function):
    """The forward operator, or its kernel, and its gradient; registered by hand as `library.py` says why."""

    @staticmethod
    def forward(ctx: Any, kernel: Callable[..., tuple[Tensor, ...]], *arguments: Any) -> tuple[Tensor, ...]:
        outputs = kernel(*arguments)
        _setup_context(ctx, arguments, outputs)
        return outputs

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor | None, *_: Tensor | None) -> tuple[Any, ...]:
        needed = ctx.needs_input_grad[1:]
        gradients: list[Tensor | None] = [None] * (_NUM_PROBLEM + 1)
        if grad_out is None:
            return None, *gradients
        if not ctx.for_backward:
            raise ArgumentError("for_backward", "True where a gradient is asked for", "False")
        for place, name in ((4, "table"), (6, "target_table")):
            if needed[place]:
                raise ArgumentError(name, "a table without gradient", "one that requires it", "pass it through a layer")
        saved = list(ctx.saved_tensors)
        arguments = [saved.pop(0) if constant is None else constant[0] for constant in ctx.constants]
        wanted = [bool(needed[place]) for place in _LEARNED]
        straight = not torch.is_grad_enabled() and direct.takes([*arguments, *saved, grad_out])
        kernel = _backward if straight else torch.ops.sage_attention.raw_backward
        grads = kernel(*arguments, *saved, grad_out, wanted)
        for place, grad, want in zip(_LEARNED, grads, wanted):
            gradients[place] = grad if want else None
        return None, *gradients


def _below_autograd(*arguments: Any) -> tuple[Tensor, ...]:
    with torch._C._AutoDispatchBelowAutograd():  # noqa: SLF001
        return torch.ops.sage_attention.raw_forward.default(*arguments)  # type: ignore[no-any-return]


def _with_gradients(kernel: Callable[..., tuple[Tensor, ...]], arguments: Sequence[Any]) -> tuple[Tensor, ...]:
    if torch.is_grad_enabled() and any(isinstance(a, Tensor) and a.requires_grad for a in arguments):
        return _RawAttention.apply(kernel, *arguments)  # type: ignore[no-any-return,no-untyped-call]
    return kernel(*arguments)


_register("raw_forward", _forward, _forward_fake)
_register("raw_backward", _backward, _backward_fake)
torch.library.register_autograd(
    "sage_attention::raw_backward",
    library._no_second_derivatives,  # noqa: SLF001
    setup_context=library._keep_nothing,  # noqa: SLF001
    lib=_LIBRARY,
)
_LIBRARY.impl("raw_forward", lambda *arguments: _with_gradients(_below_autograd, arguments), "Autograd")


def gat_attention_rows(
    csc: Csc,
    rows: Rows | Tensor,
    source_weight: Tensor,
    projection: Tensor,
    *,
    target_rows: Rows | Tensor | None = None,
    target_weight: Tensor | None = None,
    target_logits: Tensor | None = None,
    bias: Tensor | None = None,
    negative_slope: float = 0.2,
    dropout: float = 0.0,
    dropout_seed: int | Tensor | None = None,
) -> Tensor:
    """GAT over rows that have not been projected.

    The score of the edge j to i is LeakyReLU(source_weight_h . x_j + target_weight_h . x_i); the output is
    projection_h (sum over j of weight_ijh x_j) + bias_h. It is what ``gat_attention`` gives of projected rows.

    Args:
        csc: E edges of R targets.
        rows: [S, F] rows of the sources.
        source_weight: [H, F].
        projection: [H, C, F].
        target_rows: [R, F] rows of the targets, or None.
        target_weight: [H, F], with `target_rows`.
        target_logits: [R, H], what targets add to the scores, in place of these two; or None.
        bias: [H, C], or None.
        negative_slope: Slope of LeakyReLU below zero.
        dropout: Chance that a weight is set to zero; others are divided by 1 - dropout.
        dropout_seed: None draws one from torch's generator. Given the same seed, ``gat_attention`` drops the same.

    Returns:
        [R, H, C]; the bias, or zeros, for targets without edges. Gradients flow to all but the rows.

    Raises:
        ArgumentError: A tensor has the wrong shape or type, an index is out of range, or the rows want a gradient.

    Example:
        >>> edges = ops.csc(torch.tensor([[0, 1], [0, 0]]), 2, 1)
        >>> rows = Rows(torch.tensor([[5.0], [3.0], [1.0]]), torch.tensor([2, 1]))
        >>> gat_attention_rows(edges, rows, torch.zeros(1, 1), torch.ones(1, 1, 1))
        tensor([[[2.]]])
    """
    sources = rows if isinstance(rows, Rows) else Rows(rows)
    targets = target_rows if target_rows is None or isinstance(target_rows, Rows) else Rows(target_rows)
    if sources.table.device.type != "cpu":
        return _plain(csc, sources, source_weight, projection, targets, target_weight, target_logits,
                      bias=bias, negative_slope=negative_slope, dropout=dropout, dropout_seed=dropout_seed)  # fmt: skip
    ops._refuse_tangents(  # noqa: SLF001
        {"rows": sources.table, "source_weight": source_weight, "target_weight": target_weight,
         "target_logits": target_logits, "projection": projection, "bias": bias}
    )  # fmt: skip
    compute = sources.table.dtype
    learned = [
        None if t is None else t.to(compute) for t in (source_weight, target_weight, target_logits, projection, bias)
    ]
    seed: Tensor | None = None
    if dropout > 0:
        seed = ops.draw_seed() if dropout_seed is None else library.seed_tensor(dropout_seed)
    for_backward = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in learned)
    arguments = (
        csc.indptr, csc.indices, csc.edge_ids if dropout > 0 else None, sources.size(0), sources.table, sources.index,
        None if targets is None else targets.table, None if targets is None else targets.index,
        *learned, negative_slope, dropout, seed, for_backward,
    )  # fmt: skip
    if type(negative_slope) is type(dropout) is float and direct.takes(arguments):
        return _with_gradients(_forward, arguments)[0]
    ops.refuse_other_devices(
        {name: a for name, a in zip(_Arguments._fields, arguments) if isinstance(a, Tensor)}, sources.table.device
    )
    out: Tensor = torch.ops.sage_attention.raw_forward(*arguments)[0]
    return out


def _plain(
    csc: Csc,
    sources: Rows,
    source_weight: Tensor,
    projection: Tensor,
    targets: Rows | None,
    target_weight: Tensor | None,
    target_logits: Tensor | None,
    **options: Any,
) -> Tensor:
    """The same, projected first, where there are no native kernels."""
    x = sources.gathered()
    if targets is not None and target_weight is not None:
        target_logits = targets.gathered() @ target_weight.t()
    values = torch.einsum("nf,hcf->nhc", x, projection)
    return fallback.gat_attention(csc, values, x @ source_weight.t(), target_logits, **options)[0]
