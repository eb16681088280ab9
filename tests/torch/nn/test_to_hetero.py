"""The layers over node and edge types: PyG's to_hetero and HeteroConv take them as its own, with its results."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
pyg_nn = pytest.importorskip("torch_geometric.nn", reason="compares with PyTorch Geometric")

import sage_attention.torch as ours  # noqa: E402
from sage_attention.errors import SageAttentionError  # noqa: E402

BUYS, SOLD, KNOWS = ("user", "buys", "item"), ("item", "sold", "user"), ("user", "knows", "user")
METADATA = (["user", "item"], [BUYS, SOLD, KNOWS])
COUNTS = {"user": 9, "item": 7}
KINDS = ["GATConv", "GATv2Conv", "TransformerConv"]


def made(widths=None):
    generator = torch.Generator().manual_seed(1)
    widths = widths or {"user": 5, "item": 5}
    x = {name: torch.randn(count, widths[name], generator=generator) for name, count in COUNTS.items()}
    edges, attributes = {}, {}
    for edge_type in METADATA[1]:
        ends = [torch.randint(0, COUNTS[end] - 1, (20,), generator=generator) for end in (edge_type[0], edge_type[-1])]
        edges[edge_type] = torch.stack(ends)
        attributes[edge_type] = torch.randn(20, 3, generator=generator)
    return x, edges, attributes


def options_of(kind, **more):
    return {"heads": 2, "edge_dim": 3, **({} if kind == "TransformerConv" else {"add_self_loops": False}), **more}


class Net(torch.nn.Module):
    """Two layers, with edge features."""

    def __init__(self, layer, kind, channels):
        super().__init__()
        self.first = layer(channels, 4, **options_of(kind))
        self.second = layer((8, 8), 3, **options_of(kind, concat=False))

    def forward(self, x, edge_index, edge_attr):
        x = self.first(x, edge_index, edge_attr).relu()
        return self.second(x, edge_index, edge_attr)


def computed(model, x, edges, attributes):
    leaves = {name: rows.clone().requires_grad_() for name, rows in x.items()}
    out = model(leaves, edges, attributes)
    loss = sum((rows * torch.linspace(-1, 1, rows.numel()).view_as(rows)).sum() for rows in out.values())
    gradients = torch.autograd.grad(loss, [*leaves.values(), *model.parameters()], allow_unused=True)
    return out, gradients


def assert_same(one, other, inputs):
    (out, gradients), (expected, theirs) = computed(one, *inputs), computed(other, *inputs)
    assert out.keys() == expected.keys()
    for name, rows in expected.items():
        torch.testing.assert_close(out[name], rows, rtol=1e-4, atol=1e-5)
    for mine, yours in zip(gradients, theirs):
        assert (mine is None) == (yours is None)
        if yours is not None:
            torch.testing.assert_close(mine, yours, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("aggr", ["sum", "mean", "max"])
def test_to_hetero(kind, aggr):
    models = []
    for module in (pyg_nn, ours):
        torch.manual_seed(7)
        models.append(pyg_nn.to_hetero(Net(getattr(module, kind), kind, (5, 5)), METADATA, aggr))
    theirs, mine = models
    assert list(mine.state_dict()) == list(theirs.state_dict())
    layer = mine.first["user__buys__item"]
    assert isinstance(layer, getattr(ours, kind))
    mine.load_state_dict(theirs.state_dict())
    assert_same(mine, theirs, made())


@pytest.mark.parametrize("kind", KINDS)
def test_to_hetero_with_sizes_from_the_first_input(kind):
    """The usual way, as types have rows of different sizes."""
    inputs = made({"user": 6, "item": 4})
    torch.manual_seed(7)
    theirs = pyg_nn.to_hetero(Net(getattr(pyg_nn, kind), kind, (-1, -1)), METADATA)
    mine = pyg_nn.to_hetero(Net(getattr(ours, kind), kind, (-1, -1)), METADATA)
    with torch.no_grad():
        theirs(*inputs)
        mine(*inputs)
    mine.load_state_dict(theirs.state_dict())
    assert_same(mine, theirs, inputs)


@pytest.mark.parametrize("kind", KINDS)
def test_converted_before_and_after(kind):
    """Also the other way round: PyG's model is made heterogeneous, and converted."""
    torch.manual_seed(7)
    net = Net(getattr(pyg_nn, kind), kind, (5, 5))
    theirs = pyg_nn.to_hetero(net, METADATA)
    after = ours.convert(copy.deepcopy(theirs))
    assert_same(after, theirs, made())
    before = pyg_nn.to_hetero(ours.convert(copy.deepcopy(net)), METADATA)
    before.load_state_dict(theirs.state_dict())
    assert_same(before, theirs, made())


@pytest.mark.parametrize("kind", KINDS)
def test_hetero_conv(kind):
    """Each edge type has a layer of its own, with sources and targets of its own sizes."""
    widths = {"user": 6, "item": 4}
    x, edges, attributes = made(widths)
    layers = []
    for module in (pyg_nn, ours):
        torch.manual_seed(7)
        layers.append(
            pyg_nn.HeteroConv(
                {
                    edge_type: getattr(module, kind)(
                        (widths[edge_type[0]], widths[edge_type[-1]]), 4, **options_of(kind)
                    )
                    for edge_type in METADATA[1]
                },
                aggr="sum",
            )
        )
    theirs, mine = layers
    for one, other in zip(mine.parameters(), theirs.parameters()):
        assert torch.equal(one, other)
    found, expected = (layer(x, edges, edge_attr_dict=attributes) for layer in (mine, theirs))
    for name, rows in expected.items():
        torch.testing.assert_close(found[name], rows, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_they_are_of_pygs_class_in_name_only(kind):
    layer = getattr(ours, kind)(5, 4, heads=2)
    assert isinstance(layer, pyg_nn.MessagePassing)
    assert isinstance(layer, getattr(ours, kind))
    assert (type(layer).__name__, type(layer).__module__) == (kind, getattr(ours, kind).__module__)
    assert type(layer) is type(getattr(ours, kind)(3, 2))
    assert "aggr_module" not in dict(layer.named_modules())
    x, edge_index = torch.randn(4, 5), torch.tensor([[0, 1, 2], [1, 2, 3]])
    for other in (copy.copy(layer), copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert type(other) is type(layer)
        assert torch.equal(other(x, edge_index), layer(x, edge_index))

    class Own(getattr(ours, kind)):
        """A layer of the user."""

    assert isinstance(Own(5, 4), pyg_nn.MessagePassing)
    assert isinstance(Own(5, 4), Own)


def test_explainers_are_told_that_masks_are_not_heeded():
    layer = ours.GATConv(5, 4)
    assert layer.explain is None
    layer.explain = False
    with pytest.raises(SageAttentionError, match="cannot be explained by masks on edges"):
        layer.explain = True


PLAIN = """
import sys, pickle
sys.modules["torch_geometric"] = None  # importing it fails
layer = pickle.load(open(sys.argv[1], "rb"))
import sage_attention.torch as ours
assert type(layer) is ours.GATConv, type(layer).__mro__
assert type(ours.GATConv(5, 4)) is ours.GATConv
print(layer.heads)
"""


def test_without_pyg_they_are_the_plain_classes(tmp_path):
    """Also those that were pickled where it was loaded."""
    path = tmp_path / "layer.pickle"
    path.write_bytes(pickle.dumps(ours.GATConv(5, 4, heads=2)))
    done = subprocess.run([sys.executable, "-c", PLAIN, str(path)], capture_output=True, text=True, check=False)
    assert done.stdout == "2\n", done.stderr
