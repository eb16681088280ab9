"""What the three layers have in common: states, lazy sizes, types, copies, compilation."""

from __future__ import annotations

import copy
import io

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from sage_attention.torch import GATConv, GATv2Conv, TransformerConv  # noqa: E402

KINDS = [GATConv, GATv2Conv, TransformerConv]
OPTIONS = [
    (GATConv, {}),
    (GATConv, {"edge_dim": 3, "residual": True, "concat": False, "bias": False}),
    (GATv2Conv, {}),
    (GATv2Conv, {"edge_dim": 3, "residual": True, "concat": False}),
    (GATv2Conv, {"share_weights": True, "bias": False}),
    (TransformerConv, {}),
    (TransformerConv, {"edge_dim": 3, "beta": True, "concat": False}),
    (TransformerConv, {"root_weight": False, "bias": False}),
]


def pyg(kind):
    """PyG's layer of the same name."""
    module = pytest.importorskip("torch_geometric.nn", reason="compares with PyTorch Geometric")
    return getattr(module, kind.__name__)


@pytest.mark.parametrize("in_channels", [5, (5, 3), -1, (-1, -1)], ids=str)
@pytest.mark.parametrize(("kind", "options"), OPTIONS)
def test_states_in_both_directions(kind, options, in_channels):
    if in_channels == (5, 3) and options.get("share_weights"):
        in_channels = (5, 5)
    theirs, ours = pyg(kind)(in_channels, 4, 2, **options), kind(in_channels, 4, 2, **options)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert repr(ours) == repr(theirs)
    ours.load_state_dict(theirs.state_dict(), strict=True)
    theirs.load_state_dict(ours.state_dict(), strict=True)
    full = pyg(kind)(5, 4, 2, **options) if not isinstance(in_channels, tuple) else None
    if full is not None:
        ours.load_state_dict(full.state_dict(), strict=True)
        for name, value in full.state_dict().items():
            assert torch.equal(ours.state_dict()[name], value)


@pytest.mark.parametrize("in_channels", [-1, (-1, -1)], ids=str)
@pytest.mark.parametrize(("kind", "options"), OPTIONS)
def test_lazy_sizes(same, square_graph, kind, options, in_channels):
    if options.get("root_weight") is False:
        pytest.skip("lin_skip is never used, so never gets a size; PyG's neither")
    torch.manual_seed(3)
    theirs = pyg(kind)(in_channels, 4, 2, **options)
    torch.manual_seed(3)
    ours = kind(in_channels, 4, 2, **options)
    x = torch.randn(12, 5)
    edge_attr = torch.randn(47, 3) if "edge_dim" in options else None
    for layer in (theirs, ours):
        torch.manual_seed(4)
        layer(x, square_graph.edge_index, edge_attr)
    same(theirs, ours, [x, square_graph.edge_index, edge_attr])


@pytest.mark.parametrize(("kind", "options"), OPTIONS)
def test_reset_parameters(kind, options):
    theirs, ours = pyg(kind)(5, 4, 2, **options), kind(5, 4, 2, **options)
    for layer in (theirs, ours):
        torch.manual_seed(5)
        layer.reset_parameters()
    for mine, yours in zip(ours.parameters(), theirs.parameters()):
        assert torch.equal(mine, yours)


@pytest.mark.parametrize(("kind", "options"), OPTIONS)
def test_copies(square_graph, kind, options):
    layer = kind(5, 4, 2, **options)
    x, edge_attr = torch.randn(12, 5), torch.randn(47, 3) if "edge_dim" in options else None
    expected = layer(x, square_graph.edge_index, edge_attr)
    twin = copy.deepcopy(layer)
    assert torch.equal(twin(x, square_graph.edge_index, edge_attr), expected)
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    assert torch.equal(loaded(x, square_graph.edge_index, edge_attr), expected)
    assert copy.deepcopy(kind(-1, 4, 2, **options))(x, square_graph.edge_index, edge_attr).shape == expected.shape


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("kind", "options"), OPTIONS)
def test_half_types(square_graph, kind, options, dtype):
    layer = kind(5, 4, 2, **options)
    x, edge_attr = torch.randn(12, 5), torch.randn(47, 3) if "edge_dim" in options else None
    expected = layer(x, square_graph.edge_index, edge_attr)
    layer = layer.to(dtype)
    x = x.to(dtype).requires_grad_()
    edge_attr = None if edge_attr is None else edge_attr.to(dtype)
    out, (_, weights) = layer(x, square_graph.edge_index, edge_attr, return_attention_weights=True)
    assert out.dtype == weights.dtype == x.dtype
    torch.testing.assert_close(out.float(), expected, atol=0.1, rtol=0.05)
    out.sum().backward()
    assert x.grad.dtype == dtype
    assert x.grad.isfinite().all()


@pytest.mark.parametrize(("kind", "options"), OPTIONS)
def test_autocast(square_graph, kind, options):
    layer = kind(5, 4, 2, **options)
    x, edge_attr = torch.randn(12, 5), torch.randn(47, 3) if "edge_dim" in options else None
    expected = layer(x, square_graph.edge_index, edge_attr)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = layer(x, square_graph.edge_index, edge_attr)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), expected, atol=0.1, rtol=0.05)
    out.float().sum().backward()
    assert all(p.grad is None or p.grad.dtype == torch.float32 for p in layer.parameters())


class Largest(TorchDispatchMode):
    """Notes the largest tensor that any operator returns."""

    numel = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in torch.utils._pytree.tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                self.numel = max(self.numel, tensor.numel())
        return result


@pytest.mark.parametrize("edge_dim", [None, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_no_array_of_edges_heads_and_channels(kind, edge_dim):
    layer = kind(5, 16, 4, edge_dim=edge_dim)
    x, edge_index = torch.randn(20, 5, requires_grad=True), torch.randint(0, 20, (2, 3000))
    edge_attr = None if edge_dim is None else torch.randn(3000, edge_dim, requires_grad=True)
    with Largest() as largest:
        out, (_, weights) = layer(x, edge_index, edge_attr, return_attention_weights=True)
        (out.sum() + weights.sum()).backward()
    assert largest.numel <= 3020 * 4  # edges with self loops, by heads; with channels it would be 16 times that


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_through_weights(square_graph, kind):
    layer = kind(3, 2, 2).double()
    edge_index = square_graph.edge_index

    def function(x, *parameters):
        named = dict(zip([name for name, _ in layer.named_parameters()], parameters))
        arguments = {"return_attention_weights": True}
        out, (_, weights) = torch.func.functional_call(layer, named, (x, edge_index), arguments)
        return out, weights

    x = torch.randn(12, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(function, (x, *layer.parameters()))


@pytest.mark.parametrize("kind", KINDS)
def test_adapters_on_projections_are_respected(square_graph, kind):
    layer = kind((5, 3), 4, 2, edge_dim=3)
    x = (torch.randn(12, 5), torch.randn(12, 3))
    edge_attr = torch.randn(47, 3)
    theirs = pyg(kind)((5, 3), 4, 2, edge_dim=3)
    theirs.load_state_dict(layer.state_dict())
    for which in (layer, theirs):
        for child in which.children():
            if hasattr(child, "weight"):
                child.register_forward_hook(lambda _module, _inputs, output: 0.5 * output)
    expected = theirs(x, square_graph.edge_index, edge_attr)
    torch.testing.assert_close(layer(x, square_graph.edge_index, edge_attr), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_optimiser_state_carries_over(square_graph, kind):
    theirs, ours = pyg(kind)(5, 4, 2), kind(5, 4, 2)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(12, 5)
    first = torch.optim.SGD(theirs.parameters(), lr=0.01, momentum=0.9)
    for _ in range(2):
        first.zero_grad()
        theirs(x, square_graph.edge_index).square().sum().backward()
        first.step()
    ours.load_state_dict(theirs.state_dict())
    second = torch.optim.SGD(ours.parameters(), lr=0.01, momentum=0.9)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    for layer, optimiser in ((theirs, first), (ours, second)):
        optimiser.zero_grad()
        layer(x, square_graph.edge_index).square().sum().backward()
        optimiser.step()
    for mine, yours in zip(ours.parameters(), theirs.parameters()):
        torch.testing.assert_close(mine, yours, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("kind", "options"),
    [(GATConv, {}), (GATConv, {"add_self_loops": False}), (GATv2Conv, {}), (TransformerConv, {})],
)
def test_compiles(square_graph, kind, options):
    layer = kind(5, 4, 2, **options)
    x = torch.randn(12, 5)
    expected = layer(x, square_graph.edge_index)
    torch._dynamo.reset()
    compiled = torch.compile(layer, backend="aot_eager")
    out = compiled(x, square_graph.edge_index)
    torch.testing.assert_close(out, expected)
    out.sum().backward()
    assert all(parameter.grad is not None for parameter in layer.parameters())
