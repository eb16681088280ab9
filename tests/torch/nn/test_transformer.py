"""TransformerConv against PyG's, over every option."""

from __future__ import annotations

import itertools

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
pyg_nn = pytest.importorskip("torch_geometric.nn", reason="compares with PyTorch Geometric")

from sage_attention.errors import ArgumentError  # noqa: E402
from sage_attention.torch import TransformerConv  # noqa: E402

DTYPES = [torch.float32, torch.float64]


def pair(*arguments, dtype, **options):
    """PyG's layer and ours, from the same seed."""
    torch.manual_seed(7)
    theirs = pyg_nn.TransformerConv(*arguments, **options).to(dtype).eval()
    torch.manual_seed(7)
    return theirs, TransformerConv(*arguments, **options).to(dtype).eval()


def rows(number, channels, dtype, seed=1):
    """Random features."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(number, channels, generator=generator, dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("heads", [1, 2, 8])
@pytest.mark.parametrize("edge_dim", [None, 0, 3])
@pytest.mark.parametrize("concat", [True, False])
def test_square(square_graph, same, dtype, heads, edge_dim, concat):
    x = rows(12, 5, dtype)
    edge_attr = None if edge_dim is None else rows(47, edge_dim, dtype, 2)
    for beta, bias, root_weight in itertools.product([True, False], repeat=3):
        theirs, ours = pair(5, 4, heads, concat, beta, 0.6, edge_dim, bias, root_weight, dtype=dtype)
        if edge_dim == 0:
            for layer in (theirs, ours):
                layer(x, square_graph.edge_index, edge_attr)  # gives the lazy empty map its size
        weights = {True: True, False: None}[beta]
        same(theirs, ours, [x, square_graph.edge_index, edge_attr], return_attention_weights=weights)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("heads", [1, 2, 8])
@pytest.mark.parametrize("edge_dim", [None, 3])
@pytest.mark.parametrize("channels", [5, (5, 3), (3, 5)])
def test_bipartite(bipartite_graph, same, dtype, heads, edge_dim, channels):
    source, target = (channels, channels) if isinstance(channels, int) else channels
    x = (rows(9, source, dtype), rows(7, target, dtype, 3))
    edge_attr = None if edge_dim is None else rows(33, edge_dim, dtype, 2)
    for concat, beta in itertools.product([True, False], repeat=2):
        theirs, ours = pair(channels, 4, heads, concat, beta, edge_dim=edge_dim, dtype=dtype)
        inputs = [x, bipartite_graph.edge_index, edge_attr]
        same(theirs, ours, inputs, return_attention_weights=False)  # any bool, even False, returns them


@pytest.mark.parametrize("shape", [(47, 2, 4), (47, 1, 1), (47, 2, 1), (47, 1, 4), (1, 2, 4)])
def test_features_of_the_shape_of_values_are_added_to_them(square_graph, same, shape):
    theirs, ours = pair(5, 4, 2, dtype=torch.float64)
    edge_attr = torch.randn(shape, dtype=torch.float64)
    same(theirs, ours, [rows(12, 5, torch.float64), square_graph.edge_index, edge_attr])
    theirs, ours = pair(5, 4, 2, dropout=0.5, dtype=torch.float64)
    inputs = [rows(12, 5, torch.float64), square_graph.edge_index, edge_attr]
    same(theirs, ours, inputs, return_attention_weights=True)


@pytest.mark.parametrize("edge_dim", [None, 3])
def test_no_edges(same, edge_dim):
    x = torch.randn(4, 5, dtype=torch.float64)
    edge_attr = None if edge_dim is None else torch.empty(0, 3, dtype=torch.float64)
    theirs, ours = pair(5, 4, 2, edge_dim=edge_dim, dtype=torch.float64)
    inputs = [x, torch.empty(2, 0, dtype=torch.long), edge_attr]
    same(theirs, ours, inputs, return_attention_weights=True)


def test_weights_are_those_before_dropout(square_graph):
    x = torch.randn(12, 5)
    layer = TransformerConv(5, 4, 2, dropout=0.5, root_weight=False).train()
    out, (edge_index, weights) = layer(x, square_graph.edge_index, return_attention_weights=True)
    quiet, (_, expected) = layer.eval()(x, square_graph.edge_index, return_attention_weights=True)
    assert edge_index is square_graph.edge_index
    torch.testing.assert_close(weights, expected)
    assert not torch.allclose(out, quiet)
    layer.train()
    extra = torch.randn(47, 2, 4)
    _, (_, weights) = layer(x, square_graph.edge_index, extra, return_attention_weights=True)
    torch.testing.assert_close(weights, expected)


def test_refuses_what_pyg_would_misread(square_graph):
    x, edge_index = torch.randn(12, 5), square_graph.edge_index
    with pytest.raises(ArgumentError, match="3 columns"):
        TransformerConv(5, 4, edge_dim=3)(x, edge_index)
    with pytest.raises(ArgumentError, match="3 columns"):
        TransformerConv(5, 4, edge_dim=3)(x, edge_index, torch.randn(47, 2))
    with pytest.raises(ArgumentError, match="edge_dim for edge features"):
        TransformerConv(5, 4)(x, edge_index, torch.randn(47, 4))
    with pytest.raises(ArgumentError, match="sources and of targets"):
        TransformerConv(5, 4)((x, None), edge_index)
    with pytest.raises(ArgumentError, match="aggr"):
        TransformerConv(5, 4, aggr="max")
