"""GAT over raw rows: its naive twin at every CPU level, gradcheck, opcheck, compile, threads, what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the operators for PyTorch need torch")

from tests.windows import ON_WINE, torch_throws  # noqa: E402

from reference.raw_attention import raw_backward, raw_forward  # noqa: E402
from sage_attention import _native  # noqa: E402
from sage_attention.errors import ArgumentError, NativeError  # noqa: E402
from sage_attention.torch import Rows, gat_attention_rows, library, ops, raw  # noqa: E402

LEARNED = ("source_weight", "target_weight", "target_logits", "projection", "bias")


@pytest.fixture(params=_native.available_cpu_levels())
def level(request, monkeypatch):
    monkeypatch.setenv("SAGE_ATTENTION_POISON", "1")
    before = _native.cpu_level()
    _native.set_cpu_level(request.param)
    yield request.param
    _native.set_cpu_level(before)


def make(heads=3, features=11, channels=5, *, dtype=torch.float64, targets="rows", hub=0, indexed=True):
    """Edges with duplicates, self loops, an empty target and a target of `hub` more edges; rows; what is learned."""
    generator = torch.Generator().manual_seed(7)

    def random(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    sources = torch.randint(0, 12, (50,), generator=generator)
    rows = torch.randint(0, 8, (50,), generator=generator)  # target 8 stays empty
    loops = torch.arange(4)
    many = torch.randint(0, 12, (hub,), generator=generator)
    pairs = torch.stack(
        [torch.cat([sources, sources[:3], loops, many]), torch.cat([rows, rows[:3], loops, torch.full((hub,), 2)])]
    )
    edges = ops.csc(pairs, 12, 9)
    table = random(20, features)
    index = torch.randint(0, 20, (12,), generator=generator) if indexed else None
    arguments = {"rows": Rows(table, index), "source_weight": random(heads, features) / features**0.5}
    arguments["projection"] = random(heads, channels, features) / features**0.5
    arguments["bias"] = random(heads, channels)
    if targets == "rows":
        arguments["target_rows"] = arguments["rows"][:9]
        arguments["target_weight"] = random(heads, features) / features**0.5
    elif targets == "logits":
        arguments["target_logits"] = random(9, heads)
    for name in LEARNED:
        if name in arguments:
            arguments[name].requires_grad_()
    return edges, arguments


def naive(edges, arguments, options):
    given = {k: v.detach().numpy() for k, v in arguments.items() if isinstance(v, torch.Tensor)}
    given |= {k: v.gathered().numpy() for k, v in arguments.items() if isinstance(v, Rows)}
    return (
        {"indptr": edges.indptr.numpy(), "indices": edges.indices.numpy(), "edge_ids": edges.edge_ids.numpy()}
        | given
        | options
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (1, 130, 41), (2, 9, 3), (4, 64, 16), (5, 12, 1), (8, 16, 16), (11, 7, 6)]
)
@pytest.mark.parametrize("options", [{}, {"dropout": 0.4, "dropout_seed": 2**64 - 3}, {"negative_slope": 1.5}])
@pytest.mark.usefixtures("level")
def test_equals_its_naive_twin(dtype, shape, options):
    for targets, hub, indexed in [("rows", 0, True), ("logits", 0, False), (None, 400, True), ("rows", 33, False)]:
        edges, arguments = make(*shape, dtype=dtype, targets=targets, hub=hub, indexed=indexed)
        out = gat_attention_rows(edges, **arguments, **options)
        assert out.dtype == dtype
        given = naive(edges, arguments, options)
        grad = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)
        wanted = raw_backward(grad.numpy(), **given)
        grads = torch.autograd.grad(out, [arguments[name] for name in wanted], grad)
        tolerance = 2e-5 if dtype == torch.float32 else 1e-12
        for name, ours, theirs in [
            ("out", out.detach(), raw_forward(**given)),
            *((n, g, wanted[n]) for n, g in zip(wanted, grads)),
        ]:
            # Gradients may cancel: their size is that of what they are sums of.
            size = max(1.0, float(np.abs(theirs).max()), 0.1 * len(edges.indices) ** 0.5)
            assert float(np.abs(ours.numpy() - theirs).max()) <= tolerance * size, (name, targets, hub)


@pytest.mark.parametrize("targets", ["rows", "logits", None])
@pytest.mark.parametrize("options", [{}, {"dropout": 0.4, "dropout_seed": 11}])
def test_gradients(targets, options):
    edges, arguments = make(targets=targets, hub=40)
    names = [name for name in LEARNED if name in arguments]

    def out(*leaves):
        return gat_attention_rows(edges, **{**arguments, **dict(zip(names, leaves))}, **options)

    assert torch.autograd.gradcheck(out, tuple(arguments[name] for name in names))


def test_each_gradient_alone():
    edges, arguments = make()
    names = [name for name in LEARNED if name in arguments]
    whole = torch.autograd.grad(gat_attention_rows(edges, **arguments).sin().sum(), [arguments[n] for n in names])
    for name, expected in zip(names, whole):
        alone = {k: v.detach().requires_grad_(k == name) if k in names else v for k, v in arguments.items()}
        (grad,) = torch.autograd.grad(gat_attention_rows(edges, **alone).sin().sum(), [alone[name]])
        assert torch.equal(grad, expected)


def test_equals_projecting_first():
    """The same edges are dropped, given the same seed."""
    edges, arguments = make(8, 20, 4)
    x, own = arguments["rows"].gathered(), arguments["target_rows"].gathered()
    options = {"dropout": 0.5, "dropout_seed": 5}
    values = torch.einsum("nf,hcf->nhc", x, arguments["projection"])
    first, _ = ops.gat_attention(
        edges,
        values,
        x @ arguments["source_weight"].t(),
        own @ arguments["target_weight"].t(),
        bias=arguments["bias"],
        **options,
    )
    torch.testing.assert_close(gat_attention_rows(edges, **arguments, **options), first, rtol=1e-12, atol=1e-12)


def test_any_number_of_threads_gives_the_same_bits():
    generator = torch.Generator().manual_seed(2)
    pairs = torch.randint(0, 600, (2, 9000), generator=generator)
    edges = ops.csc(pairs, 600, 600)
    rows = torch.randn(600, 33, generator=generator)
    _, arguments = make(4, 33, 8, dtype=torch.float32, targets="logits")
    arguments["target_logits"] = torch.randn(600, 4, generator=generator).requires_grad_()
    arguments["rows"] = rows
    results = []
    for threads in (1, 2, 5):
        library.set_num_threads(threads)
        try:
            out = gat_attention_rows(edges, **arguments, dropout=0.2, dropout_seed=1)
            grads = torch.autograd.grad(out.sin().sum(), [arguments[n] for n in LEARNED if n in arguments])
        finally:
            library.set_num_threads(None)
        results.append([out, *grads])
    for other in results[1:]:
        for a, b in zip(results[0], other):
            assert torch.equal(a, b)


@pytest.mark.parametrize("targets", ["rows", "logits"])
def test_opcheck(targets):
    edges, arguments = make(targets=targets)
    own = arguments.get("target_rows")
    learned = [arguments.get(n) for n in LEARNED]
    inputs = (
        edges.indptr, edges.indices, edges.edge_ids, 12, arguments["rows"].table, arguments["rows"].index,
        None if own is None else own.table, None if own is None else own.index,
        *learned, 0.2, 0.3, torch.tensor(5), True,
    )  # fmt: skip
    torch.library.opcheck(torch.ops.sage_attention.raw_forward.default, inputs)


@pytest.mark.skipif(ON_WINE, reason="torch.compile needs a compiler")
def test_compiles_once_for_batches_of_any_size():
    torch.compiler.reset()
    compiled = torch.compile(
        lambda e, t, i, u, w: gat_attention_rows(e, Rows(t, i), u, w, target_rows=Rows(t, i)[:5], target_weight=u),
        fullgraph=True,
        dynamic=True,
        backend="aot_eager",
    )
    _, arguments = make()
    u, w, table = arguments["source_weight"], arguments["projection"], arguments["rows"].table
    for sources in (12, 17, 30):
        edges = ops.csc(torch.stack([torch.arange(sources), torch.arange(sources) % 5]), sources, 5)
        index = torch.arange(sources) % 20
        got = compiled(edges, table, index, u, w)
        rows = Rows(table, index)
        expected = gat_attention_rows(edges, rows, u, w, target_rows=rows[:5], target_weight=u)
        torch.testing.assert_close(got, expected)
        got.sum().backward()


@torch_throws
def test_no_second_derivatives():
    edges, arguments = make()
    out = gat_attention_rows(edges, **arguments)
    (grad,) = torch.autograd.grad(out.sin().sum(), [arguments["projection"]], create_graph=True)
    with pytest.raises(NativeError, match="first derivatives only"):
        grad.sum().backward()


def test_other_devices_project_first():
    edges, arguments = make()
    expected = gat_attention_rows(edges, **arguments)
    targets = arguments.pop("target_rows")
    plain = raw._plain(
        edges, arguments["rows"], arguments["source_weight"], arguments["projection"],
        targets, arguments["target_weight"], None,
        bias=arguments["bias"], negative_slope=0.2, dropout=0.0, dropout_seed=None,
    )  # fmt: skip
    torch.testing.assert_close(plain, expected)


CHANGES = {
    "table": lambda a: a | {"rows": a["rows"].table[:, :5]},
    "source_weight": lambda a: a | {"source_weight": torch.zeros(3, 4)},
    "target_weight": lambda a: a | {"target_rows": None},
    "target_logits": lambda a: a | {"target_rows": None, "target_weight": None, "target_logits": torch.zeros(9, 2)},
    "projection": lambda a: a | {"projection": torch.zeros(3, 5)},
    "bias": lambda a: a | {"bias": torch.zeros(3, 4)},
    "target_row_ids": lambda a: a | {"target_rows": a["rows"][:4]},
    "row_ids": lambda a: a | {"rows": Rows(a["rows"].table, torch.full((12,), 20))},
    "dropout": lambda a: a | {"dropout": 1.0},
}


@pytest.mark.parametrize("name", CHANGES)
def test_refuses(name):
    edges, arguments = make()
    with pytest.raises(ArgumentError, match=name):
        gat_attention_rows(edges, **CHANGES[name](arguments))


@torch_throws
def test_refuses_a_gradient_of_the_rows():
    edges, arguments = make()
    table = arguments["rows"].table.requires_grad_()
    out = gat_attention_rows(edges, **arguments)
    with pytest.raises(ArgumentError, match="table without gradient"):
        out.sum().backward()
    assert table.grad is None


def test_rows():
    table = torch.arange(12.0).view(6, 2)
    rows = Rows(table, torch.tensor([5, 0, 5]))
    assert rows.shape == (3, 2)
    assert len(rows[:2]) == 2
    assert torch.equal(rows[1:].gathered(), table[[0, 5]])
    plain = Rows(table)
    assert plain.gathered() is table
    assert plain[:4].index is None
    assert torch.equal(plain[2::2].gathered(), table[2::2])
    with pytest.raises(ArgumentError, match="table"):
        Rows(table[0])
    with pytest.raises(ArgumentError, match="index"):
        Rows(table, torch.tensor([0], dtype=torch.int32))


def test_one_tensor_is_elsewhere():
    edges, arguments = make()
    with pytest.raises(ArgumentError, match="bias: expected a tensor on cpu, as the others, got one on meta"):
        gat_attention_rows(edges, **{**arguments, "bias": arguments["bias"].to("meta")})
    with pytest.raises(ArgumentError, match="indices: expected a tensor on cpu, as the others, got one on meta"):
        gat_attention_rows(edges._replace(indices=edges.indices.to("meta")), **arguments)
