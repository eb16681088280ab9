"""Swapping layers in models as people write them."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
pyg_nn = pytest.importorskip("torch_geometric.nn", reason="converts models of PyTorch Geometric")

from sage_attention.errors import ArgumentError  # noqa: E402
from sage_attention.torch import convert_check, nn  # noqa: E402
from sage_attention.torch.convert import ConversionError, convert  # noqa: E402

OURS = (nn.GATConv, nn.GATv2Conv, nn.TransformerConv)
THEIRS = (pyg_nn.GATConv, pyg_nn.GATv2Conv, pyg_nn.TransformerConv)


@pytest.fixture
def graph():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(12, 5, generator=generator)
    return x, torch.randint(0, 11, (2, 40), generator=generator), torch.randn(40, 3, generator=generator)


def count(model, kinds):
    return sum(isinstance(module, kinds) for module in model.modules())


LAYERS = [
    lambda: pyg_nn.GATConv(5, 4, 2),
    lambda: pyg_nn.GATConv((5, 5), 4, 2, concat=False, residual=True, bias=False, negative_slope=0.1),
    lambda: pyg_nn.GATConv(5, 4, 2, edge_dim=3, fill_value="max", add_self_loops=False, dropout=0.3),
    lambda: pyg_nn.GATConv(-1, 4, 2, edge_dim=3, fill_value=torch.tensor([1.0, 2.0, 3.0])),
    lambda: pyg_nn.GATConv((-1, -1), 4),
    lambda: pyg_nn.GATv2Conv(5, 4, 2, edge_dim=3, residual=True, concat=False),
    lambda: pyg_nn.GATv2Conv((5, 5), 4, 2, share_weights=True),
    lambda: pyg_nn.GATv2Conv(-1, 4, 2, bias=False, aggr="sum"),
    lambda: pyg_nn.TransformerConv(5, 4, 2, edge_dim=3, beta=True),
    lambda: pyg_nn.TransformerConv(5, 4, 2, bias=False, root_weight=False, concat=False),
    lambda: pyg_nn.TransformerConv((-1, -1), 4, 2, edge_dim=-1),
]


@pytest.mark.parametrize("make", LAYERS)
def test_every_kind_of_layer(make, graph):
    original = make()
    twin = copy.deepcopy(original)
    state = torch.random.get_rng_state()
    converted = convert(original)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert isinstance(converted, OURS)
    assert list(converted.state_dict()) == list(twin.state_dict())
    assert [id(p) for p in converted.parameters()] == [id(p) for p in original.parameters()]
    x, edge_index, edge_attr = graph
    inputs = (x, edge_index, edge_attr) if original.edge_dim is not None else (x, edge_index)
    torch.manual_seed(1)
    expected = twin.eval()(*inputs)
    torch.manual_seed(1)
    torch.testing.assert_close(converted.eval()(*inputs), expected)
    assert repr(converted) == repr(twin)


class Nested(torch.nn.Module):
    """A model with layers in every kind of container."""

    def __init__(self):
        super().__init__()
        self.first = pyg_nn.GATConv(5, 4, 2, dropout=0.5)
        self.many = torch.nn.ModuleList([pyg_nn.GATv2Conv(8, 4, 2), torch.nn.ReLU()])
        self.named = torch.nn.ModuleDict({"a": pyg_nn.TransformerConv(8, 8)})
        self.sequential = pyg_nn.Sequential(
            "x, edge_index", [(pyg_nn.GATConv(8, 8), "x, edge_index -> x"), torch.nn.ReLU(inplace=True)]
        )
        self.again = self.named["a"]
        self.other = pyg_nn.GCNConv(8, 2)

    def forward(self, x, edge_index):
        x = self.first(x, edge_index).relu()
        x = self.many[1](self.many[0](x, edge_index))
        x = self.named["a"](x, edge_index)
        x = self.sequential(x, edge_index)
        return self.other(self.again(x, edge_index), edge_index)


def test_nested_containers(graph):
    model = Nested().eval()
    x, edge_index, _ = graph
    expected = model(x, edge_index)
    names = [name for name, _ in model.named_modules()]
    assert convert(model) is model
    assert count(model, THEIRS) == 0
    assert count(model, OURS) == 4
    assert model.again is model.named["a"]
    kept = [name for name in names if "aggr_module" not in name or name.startswith("other.")]
    assert [name for name, _ in model.named_modules()] == kept
    torch.testing.assert_close(model(x, edge_index), expected)
    assert not any(module.training for module in model.modules())


def test_training_goes_on(graph):
    x, edge_index, _ = graph
    torch.manual_seed(0)
    model = pyg_nn.GAT(5, 8, num_layers=2, out_channels=3, heads=2, dropout=0.0)
    twin = copy.deepcopy(model)
    optimisers = [torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9) for m in (model, twin)]
    losses = []
    for step in range(6):
        if step == 3:
            convert(model)
        for m, optimiser in zip((model, twin), optimisers):
            optimiser.zero_grad()
            loss = m(x, edge_index).square().sum()
            loss.backward()
            optimiser.step()
            losses.append(float(loss.detach()))
    assert losses[0] > losses[-1]
    assert losses[::2] == pytest.approx(losses[1::2], rel=1e-4)
    assert count(model, OURS) == 2


@pytest.mark.parametrize("v2", [False, True])
@pytest.mark.parametrize("jk", [None, "cat"])
def test_models_of_pyg(graph, v2, jk):
    x, edge_index, edge_attr = graph
    model = pyg_nn.GAT(5, 8, 3, 4, v2=v2, jk=jk, heads=2, edge_dim=3).eval()
    expected = model(x, edge_index, edge_attr=edge_attr)
    convert(model)
    assert count(model, OURS) == 3
    torch.testing.assert_close(model(x, edge_index, edge_attr=edge_attr), expected)


def test_heterogeneous_models():
    model = pyg_nn.HeteroConv(
        {
            ("a", "to", "b"): pyg_nn.GATConv((-1, -1), 4, add_self_loops=False),
            ("b", "of", "a"): pyg_nn.TransformerConv((3, 5), 4),
            ("a", "is", "a"): pyg_nn.GATv2Conv(5, 4),
        }
    )
    x = {"a": torch.randn(6, 5), "b": torch.randn(4, 3)}
    edge_index = {
        ("a", "to", "b"): torch.tensor([[0, 5, 2], [3, 1, 1]]),
        ("b", "of", "a"): torch.tensor([[0, 3], [5, 5]]),
        ("a", "is", "a"): torch.tensor([[0, 1], [1, 1]]),
    }
    convert(model)
    assert count(model, OURS) == 3
    out = model(x, edge_index)
    twin = copy.deepcopy(model)
    twin.convs = pyg_nn.module_dict.ModuleDict(
        {
            ("a", "to", "b"): pyg_nn.GATConv((5, 3), 4, add_self_loops=False),
            ("b", "of", "a"): pyg_nn.TransformerConv((3, 5), 4),
            ("a", "is", "a"): pyg_nn.GATv2Conv(5, 4),
        }
    )
    twin.load_state_dict(model.state_dict())
    expected = twin(x, edge_index)
    for kind in ("a", "b"):
        torch.testing.assert_close(out[kind], expected[kind])


def test_to_hetero_before():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = pyg_nn.GATConv((-1, -1), 4, add_self_loops=False)

        def forward(self, x, edge_index):
            return self.conv(x, edge_index).relu()

    metadata = (["a", "b"], [("a", "to", "b"), ("b", "of", "a")])
    model = pyg_nn.to_hetero(Model(), metadata)
    x = {"a": torch.randn(6, 5), "b": torch.randn(4, 3)}
    edge_index = {
        ("a", "to", "b"): torch.tensor([[0, 5], [3, 1]]),
        ("b", "of", "a"): torch.tensor([[0], [5]]),
    }
    expected = model(x, edge_index)
    convert(model)
    assert count(model, OURS) == 2
    out = model(x, edge_index)
    torch.testing.assert_close(out["a"], expected["a"])
    torch.testing.assert_close(out["b"], expected["b"])


def test_module_hooks_move(graph):
    x, edge_index, _ = graph
    seen = []
    model = torch.nn.ModuleList([pyg_nn.GATConv(5, 4)])
    handle = model[0].register_forward_hook(lambda module, _inputs, _output: seen.append(module))
    model[0].lin.register_forward_hook(lambda _module, _inputs, output: output * 2)
    expected = model[0](x, edge_index)
    del seen[:]
    convert(model)
    assert seen == []  # the check does not show itself to hooks
    torch.testing.assert_close(model[0](x, edge_index), expected)
    assert seen == [model[0]]
    handle.remove()
    model[0](x, edge_index)
    assert len(seen) == 1


class OwnMessage(pyg_nn.GATConv):
    """A layer that computes something else."""

    def message(self, x_j, alpha):
        return 2 * super().message(x_j, alpha)


class OwnSizes(pyg_nn.GATConv):
    """The same layer under a shorter name."""

    def __init__(self, channels):
        super().__init__(channels, channels, heads=2, concat=False)


def test_what_is_left_and_why(graph):
    hooked = pyg_nn.GATConv(5, 4)
    hooked.register_message_forward_hook(lambda _module, _inputs, output: output)
    replaced = pyg_nn.GATConv(5, 4)
    replaced.forward = replaced.forward
    model = torch.nn.ModuleDict(
        {
            "own": OwnMessage(5, 4),
            "sizes": OwnSizes(5),
            "hooked": hooked,
            "replaced": replaced,
            "mean": pyg_nn.TransformerConv(5, 4, aggr="mean"),
            "flow": pyg_nn.GATConv(5, 4, flow="target_to_source"),
            "plain": pyg_nn.GATConv(5, 4),
        }
    )
    model["own"](*graph[:2])  # PyG writes methods into the class on first use
    before = dict(model.items())
    _, report = convert(model, return_report=True)
    assert {layer.name for layer in report.converted} == {"sizes", "plain"}
    reasons = {layer.name: layer.reason for layer in report.left}
    assert "OwnMessage is a GATConv with its own message" in reasons["own"]
    assert "hooks inside message passing" in reasons["hooked"]
    assert "forward was replaced" in reasons["replaced"]
    assert "aggr" in reasons["mean"]
    assert "flip" in reasons["flow"]
    for name in reasons:
        assert model[name] is before[name]
    assert "2 of 7 attention layers converted" in str(report)
    assert "own: OwnMessage, left:" in str(report)
    with pytest.warns(UserWarning, match="0 of 5 attention layers converted"):
        convert(model)


def test_nothing_to_convert():
    with pytest.warns(UserWarning, match="no GATConv"):
        convert(torch.nn.Linear(3, 4))
    with pytest.raises(ArgumentError, match="model"):
        convert("model")


def test_a_mismatch_leaves_the_model_alone(monkeypatch):
    model = torch.nn.Sequential(pyg_nn.GATConv(5, 4), pyg_nn.GATv2Conv(5, 4))
    before = list(model)
    honest = nn.GATv2Conv.forward

    def wrong(self, *arguments, **options):
        out, weights = honest(self, *arguments, **options)
        return out * (1 + 1e-4), weights

    monkeypatch.setattr(nn.GATv2Conv, "forward", wrong)
    with pytest.raises(ConversionError, match=r"^1: expected .* output .* unchanged"):
        convert(model)
    assert list(model) == before
    convert(model, check=False)
    assert isinstance(model[1], nn.GATv2Conv)


def test_a_wrong_gradient_is_found(monkeypatch):
    honest = nn.TransformerConv.forward

    def wrong(self, x, *arguments, **options):
        return honest(self, x.detach(), *arguments, **options)

    monkeypatch.setattr(nn.TransformerConv, "forward", wrong)
    with pytest.raises(ConversionError, match="gradient of x"):
        convert(torch.nn.ModuleList([pyg_nn.TransformerConv(5, 4)]))


@pytest.mark.parametrize("size", [1e3, 1e-6, float("inf"), float("nan")])
def test_the_check_does_not_mistake_rounding_for_errors(size):
    layer = pyg_nn.GATConv(5, 4, 2)
    with torch.no_grad():
        layer.att_src.mul_(size)
        layer.lin.weight.mul_(1 if size > 1 else 10)
    assert isinstance(convert(layer), nn.GATConv)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_types_and_frozen_parameters(dtype):
    layer = pyg_nn.GATConv(5, 4, 2).to(dtype).requires_grad_(False)
    converted = convert(layer)
    assert all(p.dtype == dtype and not p.requires_grad for p in converted.parameters())
    with torch.inference_mode():
        convert(pyg_nn.GATConv(5, 4, 2))


def test_the_check_touches_no_gradient():
    layer = pyg_nn.GATConv(5, 4, 2)
    layer.lin.weight.grad = torch.ones_like(layer.lin.weight)
    convert(layer)
    assert layer.lin.weight.grad.eq(1).all()
    assert layer.att_src.grad is None


def test_the_check_covers_edges_that_are_odd():
    inputs = convert_check._inputs(pyg_nn.GATConv(5, 4))
    edge_index = inputs[1]
    assert (edge_index[0] == edge_index[1]).any()
    assert torch.unique(edge_index, dim=1).size(1) < edge_index.size(1)
    assert len(torch.unique(edge_index)) < len(inputs[0])
