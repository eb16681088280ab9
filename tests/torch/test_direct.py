"""Calls without PyTorch's dispatcher give what the operators give, to the bit, unless somebody looks for operators."""

from __future__ import annotations

import contextlib

import pytest
import torch
from tests.windows import torch_throws
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from sage_attention.errors import NativeError
from sage_attention.torch import csc, direct, dot_attention, gat_attention, gatv2_attention
from sage_attention.torch.raw import gat_attention_rows

S, R, H, C, D = 5, 4, 2, 3, 2
EDGES = torch.tensor([[0, 4, 1, 2, 3, 4], [3, 0, 2, 2, 0, 2]])
CALLS = {"gat": gat_attention, "gatv2": gatv2_attention, "dot": dot_attention}
SHAPES = {
    "gat": {"values": (S, H, C), "source_logits": (S, H), "target_logits": (R, H)},
    "gatv2": {"values": (S, H, C), "queries": (R, H, C), "attention": (H, C)},
    "dot": {"queries": (R, H, C), "keys": (S, H, C), "values": (S, H, C)},
}
OF_EDGES = {"gat": {"edge_weight": (H, D)}, "gatv2": {"edge_weight": (H * C, D)}, "dot": {"edge_queries": (R, H, D)}}


class Operators(TorchDispatchMode):
    """Lets all pass, and notes our operators."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        if function.namespace == "sage_attention":
            self.names.append(function.__name__.partition(".")[0])
        return function(*arguments, **(keywords or {}))


@pytest.fixture
def packed(monkeypatch):
    """Counts the problems that are made without the dispatcher."""
    made = []
    pack = direct._pack

    def counted(*arguments):
        made.append(pack(*arguments))
        return made[-1]

    monkeypatch.setattr(direct, "_pack", counted)
    return made


def tensors_of(score, edge_features=False, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    shapes = dict(SHAPES[score])
    if edge_features:
        shapes |= {"edge_features": (EDGES.size(1), D), **OF_EDGES[score]}
    shapes["bias"] = (H, C)
    made = {name: torch.randn(shape, generator=generator, dtype=dtype) for name, shape in shapes.items()}
    return {name: tensor.requires_grad_() for name, tensor in made.items()}


def attended(score, tensors, by_source=True, **options):
    """The outputs there are, of the operator that takes edges first."""
    outputs = CALLS[score](csc(EDGES, S, R, by_source=by_source), **tensors, **options)
    return [output for output in outputs if output is not None]


def gradients(outputs, tensors):
    total = sum((output * torch.arange(1.0, output.numel() + 1).view_as(output)).sum() for output in outputs)
    return torch.autograd.grad(total, tuple(tensors.values()))


OPTIONS = [
    {},
    {"return_weights": True},
    {"dropout": 0.4, "dropout_seed": 2**63 + 5, "return_weights": True, "weights_before_dropout": True},
]


@pytest.mark.parametrize("by_source", [False, True])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("edge_features", [False, True])
@pytest.mark.parametrize("score", CALLS)
def test_the_same_to_the_bit(score, edge_features, options, by_source, packed):
    tensors = tensors_of(score, edge_features)
    outputs = attended(score, tensors, by_source, **options)
    grads = gradients(outputs, tensors)
    assert len(packed) == 2  # forward and backward
    assert None not in packed
    with Operators() as seen:
        expected = attended(score, tensors, by_source, **options)
        expected_grads = gradients(expected, tensors)
    assert seen.names[-2:] == ["forward", "backward"]
    assert len(packed) == 2
    for got, wanted in zip((*outputs, *grads), (*expected, *expected_grads)):
        torch.testing.assert_close(got, wanted, rtol=0, atol=0)
    with torch.no_grad():
        for got, wanted in zip(attended(score, tensors, by_source, **options), expected):
            torch.testing.assert_close(got, wanted, rtol=0, atol=0)
    assert len(packed) == 3


@pytest.mark.parametrize("score", CALLS)
def test_backward_where_operators_are_looked_for(score):
    tensors = tensors_of(score, edge_features=True)
    outputs = attended(score, tensors, return_weights=True)
    expected = gradients(attended(score, tensors, return_weights=True), tensors)
    with Operators() as seen:
        grads = gradients(outputs, tensors)
    assert seen.names == ["backward"]
    for got, wanted in zip(grads, expected):
        torch.testing.assert_close(got, wanted, rtol=0, atol=0)


@pytest.mark.parametrize("score", CALLS)
def test_gradients_of_some(score):
    tensors = tensors_of(score, edge_features=True)
    expected = dict(zip(tensors, gradients(attended(score, tensors), tensors)))
    for name in tensors:
        one = {other: tensor if other == name else tensor.detach() for other, tensor in tensors.items()}
        (got,) = gradients(attended(score, one), {name: tensors[name]})
        torch.testing.assert_close(got, expected[name], rtol=0, atol=0)


@pytest.mark.parametrize("score", CALLS)
def test_other_forms(score, packed):
    """By column, and negated without having been written so."""
    tensors = {name: tensor.detach() for name, tensor in tensors_of(score).items()}
    expected = attended(score, tensors)[0]
    by_column = {name: tensor.t().contiguous().t() if tensor.dim() == 2 else tensor for name, tensor in tensors.items()}
    torch.testing.assert_close(attended(score, by_column)[0], expected, rtol=0, atol=0)
    assert packed[-1].alive
    negated = torch.complex(torch.zeros(S, H, C), -tensors["values"]).conj().imag
    assert negated.is_neg()
    torch.testing.assert_close(attended(score, {**tensors, "values": negated})[0], expected, rtol=0, atol=0)
    assert packed[-1] is None


def test_the_profiler_sees_the_operators():
    tensors = tensors_of("gat")
    with torch.profiler.profile() as profile:
        attended("gat", tensors)
    assert "sage_attention::forward" in {event.key for event in profile.key_averages()}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_function_modes_and_tracing_see_the_operators(packed):
    tensors = tensors_of("gat")
    edges = csc(EDGES, S, R)
    with torch.overrides.BaseTorchFunctionMode():
        attended("gat", tensors)
    values = tensors["values"].detach()
    traced = torch.jit.trace(lambda x: gat_attention(edges, x, torch.zeros(S, H))[0], values, check_trace=False)
    graph = traced.graph
    assert "sage_attention::forward" in str(graph)
    assert packed == []


@torch_throws
def test_what_changed_before_the_backward_pass_is_noticed():
    tensors = tensors_of("gat")
    (out,) = attended("gat", tensors)
    with torch.no_grad():
        tensors["values"].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_gradient_of_values_takes_memory_that_is_read_for_the_last_time(monkeypatch, dtype):
    """Not where the graph is kept: then it is read once more."""
    tensors = {name: tensor for name, tensor in tensors_of("gat", True, dtype).items() if name != "target_logits"}
    tensors["target_logits"] = torch.randn(S, H, dtype=dtype, requires_grad=True)
    shapes = []
    empty = direct.empty
    monkeypatch.setattr(direct, "empty", lambda like, *shape: shapes.append(shape) or empty(like, *shape))

    def run(**options):
        (out, _) = gat_attention(csc(EDGES, S, S, by_source=True), **tensors)
        total = (out * torch.arange(1.0, out.numel() + 1).view_as(out)).sum()
        shapes.clear()
        first = torch.autograd.grad(total, tuple(tensors.values()), **options)
        return total, first, shapes.count((S, H, C))

    total, kept, made = run(retain_graph=True)
    again = torch.autograd.grad(total, tuple(tensors.values()))
    _, lost, made_then = run()
    assert (made, made_then) == (1, 0)
    for one, two, three in zip(kept, again, lost):
        torch.testing.assert_close(two, one, rtol=0, atol=0)
        torch.testing.assert_close(three, one, rtol=0, atol=0)


def test_hooks_on_saved_tensors():
    tensors = tensors_of("gat", edge_features=True)
    expected = gradients(attended("gat", tensors), tensors)
    kept = []

    def put(tensor):
        kept.append(tensor)
        return len(kept) - 1

    with torch.autograd.graph.saved_tensors_hooks(put, lambda place: kept[place].clone()):
        outputs = attended("gat", tensors)
    assert any(tensor is tensors["values"] or tensor.data_ptr() == tensors["values"].data_ptr() for tensor in kept)
    for got, wanted in zip(gradients(outputs, tensors), expected):
        torch.testing.assert_close(got, wanted, rtol=0, atol=0)


@torch_throws
@pytest.mark.parametrize("score", CALLS)
def test_second_derivatives_are_refused(score):
    tensors = tensors_of(score)
    (out,) = attended(score, tensors)[:1]
    (grad,) = torch.autograd.grad(out.square().sum(), tensors["values"], create_graph=True)
    with pytest.raises(NativeError, match="first derivatives only"):
        grad.sum().backward()


@torch_throws
@pytest.mark.parametrize("score", CALLS)
def test_gradients_that_come_as_a_batch(score):
    """PyTorch wraps them, and no function transform is active where they are used."""
    tensors = tensors_of(score)
    (out,) = attended(score, tensors)
    grads = torch.randn(2, R, H, C)
    (got,) = torch.autograd.grad(out, tensors["values"], grads, retain_graph=True, is_grads_batched=True)
    for one, grad in zip(got, grads):
        (wanted,) = torch.autograd.grad(out, tensors["values"], grad, retain_graph=True)
        torch.testing.assert_close(one, wanted, rtol=0, atol=0)


@torch_throws
def test_what_a_function_transform_left_behind():
    tensors, (table, learned), left = tensors_of("gat"), rows_of(), []

    def keep(values, weight):
        left.extend([values, weight])
        return values.sum() + weight.sum()

    torch.func.grad(keep)(tensors["values"].detach(), learned["source_weight"].detach())
    expected = attended("gat", tensors)[0]
    torch.testing.assert_close(attended("gat", {**tensors, "values": left[0]})[0], expected, rtol=0, atol=0)
    edges = csc(EDGES, S, R)
    got = gat_attention_rows(edges, table, **{**learned, "source_weight": left[1]})
    torch.testing.assert_close(got, gat_attention_rows(edges, table, **learned), rtol=0, atol=0)


@pytest.mark.parametrize("forward", [False, True])
def test_checkpoints_of_which_one_pass_is_watched(forward):
    tensors = tensors_of("gat")
    expected = gradients(attended("gat", tensors), tensors)
    watched, other = Operators(), contextlib.nullcontext()
    with watched if forward else other:
        out = checkpoint(lambda: attended("gat", tensors)[0], use_reentrant=False)
    with other if forward else watched:
        grads = gradients([out], tensors)
    for got, wanted in zip(grads, expected):
        torch.testing.assert_close(got, wanted, rtol=0, atol=0)


def rows_of():
    generator = torch.Generator().manual_seed(0)
    shapes = {"source_weight": (H, D), "projection": (H, C, D), "target_logits": (R, H), "bias": (H, C)}
    learned = {name: torch.randn(s, generator=generator).requires_grad_() for name, s in shapes.items()}
    return torch.randn(S, D, generator=generator), learned


@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_raw_rows(dropout):
    table, learned = rows_of()
    edges = csc(EDGES, S, R)

    def run():
        out = gat_attention_rows(edges, table, **learned, dropout=dropout, dropout_seed=7)
        return [out, *gradients([out], learned)]

    got = run()
    with Operators() as seen:
        expected = run()
    assert seen.names == ["raw_forward", "raw_backward"]
    for one, wanted in zip(got, expected):
        torch.testing.assert_close(one, wanted, rtol=0, atol=0)


def test_raw_rows_without_the_dispatcher(monkeypatch):
    table, learned = rows_of()
    monkeypatch.setattr(torch.ops.sage_attention, "raw_forward", None)
    monkeypatch.setattr(torch.ops.sage_attention, "raw_backward", None)
    out = gat_attention_rows(csc(EDGES, S, R), table, **learned)
    gradients([out], learned)
