"""GATConv that projects after summing against itself that projects first; which of the two it takes."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

from sage_attention.errors import ArgumentError  # noqa: E402
from sage_attention.torch import GATConv, GATv2Conv, Rows, TransformerConv  # noqa: E402
from sage_attention.torch.nn import gat, order  # noqa: E402

OPTIONS = [
    {},
    {"concat": False},
    {"residual": True, "bias": False},
    {"dropout": 0.4},
    {"add_self_loops": False},
    {"add_self_loops": False, "residual": True, "concat": False},
]


@pytest.fixture
def calls(monkeypatch):
    """How often rows were summed first."""
    made = []
    real = gat.gat_attention_rows
    monkeypatch.setattr(gat, "gat_attention_rows", lambda *a, **k: made.append(1) or real(*a, **k))
    return made


def batch(dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(50, 12, generator=generator, dtype=dtype)
    nodes = torch.randint(0, 50, (30,), generator=generator)
    edges = torch.stack(
        [torch.randint(0, 30, (80,), generator=generator), torch.randint(0, 9, (80,), generator=generator)]
    )
    return table, nodes, edges


def results(layer, x, edges, project):
    layer.project = project
    torch.manual_seed(1)
    layer.zero_grad()
    out = layer(x, edges)
    out.sin().sum().backward()
    return [out.detach(), *(p.grad for p in layer.parameters() if p.grad is not None)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("in_channels", [12, (12, 12)])
@pytest.mark.parametrize("options", OPTIONS)
def test_both_orders_give_the_same(calls, dtype, in_channels, options):
    table, nodes, edges = batch(dtype)
    layer = GATConv(in_channels, 5, heads=3, **options).to(dtype)
    x, rows = table[nodes], Rows(table, nodes)
    first = results(layer, (x, x[:9]), edges, "before")
    assert not calls
    for given in [(x, x[:9]), (rows, rows[:9]), (rows, x[:9]), (x, rows[:9])]:
        after = results(layer, given, edges, "after")
        assert len(after) == len(first)
        for a, b in zip(after, first):
            torch.testing.assert_close(
                a, b, rtol=1e-4 if dtype == torch.float32 else 1e-10, atol=1e-5 if dtype == torch.float32 else 1e-10
            )
    assert len(calls) == 4
    for a, b in zip(results(layer, (rows, rows[:9]), edges, "before"), first):
        assert torch.equal(a, b)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("square", [False, True])
def test_one_head_sums_rows_with_a_gradient(calls, options, square):
    table, nodes, edges = batch()
    x = table[nodes].requires_grad_()
    layer = GATConv(12, 5, **options).double()
    outcomes = []
    for project in ("before", "after"):
        x.grad = None
        outcomes.append((results(layer, x if square else (x, x[:9]), edges, project), x.grad))
    assert not calls
    (first, of_first), (second, of_second) = outcomes
    for a, b in zip([*first, of_first], [*second, of_second]):
        torch.testing.assert_close(a, b)
    assert len(first) == len(second)


def test_square_graph_and_targets_without_rows(calls):
    table, nodes, edges = batch()
    layer = GATConv(12, 5, heads=2).double()
    for x in (table[nodes], Rows(table, nodes)):
        for a, b in zip(results(layer, x, edges, "after"), results(layer, table[nodes], edges, "before")):
            torch.testing.assert_close(a, b)
    layer = GATConv((12, 12), 5, heads=2, add_self_loops=False).double()
    options = {"size": (30, 9)}
    layer.project = "after"
    out = layer((Rows(table, nodes), None), edges, **options)
    layer.project = "before"
    torch.testing.assert_close(out, layer((table[nodes], None), edges, **options))
    assert len(calls) == 3


def test_targets_of_another_size_and_learned_ones(calls):
    table, nodes, edges = batch()
    layer = GATConv((12, 7), 5, heads=2, add_self_loops=False).double()
    own = torch.randn(9, 7, dtype=torch.float64, requires_grad=True)
    grads = []
    for project in ("before", "after"):
        layer.project = project
        out = layer((Rows(table, nodes), own), edges)
        grads.append((out, *torch.autograd.grad(out.sin().sum(), [own, *(p for p in layer.parameters())])))
    for a, b in zip(*grads):
        torch.testing.assert_close(a, b)
    assert len(calls) == 1


def test_where_it_cannot_be_rows_are_projected_first(calls):
    table, nodes, edges = batch(torch.float32)
    x = table[nodes]
    plain = GATConv(12, 5, add_self_loops=False)
    plain.project = "after"
    plain((x.clone().requires_grad_(), x[:9]), edges)
    plain((x, x[:9]), edges, return_attention_weights=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        plain((x, x[:9]), edges)
    hooked = GATConv(12, 5, add_self_loops=False)
    hooked.project = "after"
    hooked.lin.register_forward_hook(lambda *_: None)
    hooked((x, x[:9]), edges)
    with_edges = GATConv(12, 5, add_self_loops=False, edge_dim=2)
    with_edges.project = "after"
    with_edges((Rows(table, nodes), Rows(table, nodes)[:9]), edges, torch.randn(80, 2))
    assert not calls
    with torch.no_grad():
        plain((x.clone().requires_grad_(), x[:9]), edges)
    assert len(calls) == 1


def test_lazy_layer(calls):
    table, nodes, edges = batch(torch.float32)
    layer = GATConv(-1, 5, add_self_loops=False)
    layer.project = "after"
    rows = Rows(table, nodes)
    first, second = layer((rows, rows[:9]), edges), layer((rows, rows[:9]), edges)
    torch.testing.assert_close(first, second)
    assert len(calls) == 1


@pytest.mark.parametrize("layer", [GATv2Conv, TransformerConv])
def test_other_layers_gather(layer):
    table, nodes, edges = batch(torch.float32)
    made = layer(12, 5)
    rows = Rows(table, nodes)
    assert torch.equal(made((rows, rows[:9]), edges), made((table[nodes], table[nodes][:9]), edges))


def test_the_cheaper_order_is_taken(calls):
    """A tree-like batch sums first; where every source has many edges rows are projected first."""
    layer = GATConv(64, 16, heads=8, add_self_loops=False)
    x = torch.randn(400, 64)
    sparse = torch.stack([torch.arange(400), torch.arange(400) % 40])
    dense = torch.stack([torch.arange(40).repeat(200), torch.arange(200).repeat_interleave(40)])
    layer((x, x[:40]), sparse)
    assert len(calls) == 1
    assert order.projects_after(order.Sizes(12_600, 1024, 15_000, 1, 128, 41, False, learned=True), training=True)
    assert not order.projects_after(order.Sizes(1024, 1024, 15_000, 1, 128, 41, False, learned=True), training=True)
    narrow = GATConv(64, 2, heads=8, add_self_loops=False)
    narrow((x[:40], x[:200]), dense)
    layer.double()((x.double(), x[:40].double()), sparse)
    assert len(calls) == 1


def test_unknown_order():
    layer = GATConv(2, 2)
    layer.project = "never"
    with pytest.raises(ArgumentError, match="project"):
        layer(torch.zeros(2, 2), torch.zeros(2, 1, dtype=torch.long))


def test_cost_grows_with_each_size():
    sizes = order.Sizes(100, 50, 200, 4, 16, 8, True)
    for training in (False, True):
        base = order.cost(sizes, training)
        for name in sizes._fields[:-2]:
            more = order.cost(sizes._replace(**{name: getattr(sizes, name) * 2}), training)
            assert all(m >= b for m, b in zip(more, base))
            assert any(m > b for m, b in zip(more, base))
        assert order.cost(sizes._replace(indexed=False), training)[0] < base[0]
