"""GATv2Conv against PyG's, over every option."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
pyg_nn = pytest.importorskip("torch_geometric.nn", reason="compares with PyTorch Geometric")

from sage_attention.errors import ArgumentError  # noqa: E402
from sage_attention.torch import GATv2Conv  # noqa: E402

DTYPES = [torch.float32, torch.float64]
FILLS = ["mean", "add", "min", "max", "mul", 2, 0.5, torch.tensor([0.1, 0.2, 0.3])]


def pair(*arguments, dtype, **options):
    """PyG's layer and ours, from the same seed."""
    torch.manual_seed(7)
    theirs = pyg_nn.GATv2Conv(*arguments, **options).to(dtype).eval()
    torch.manual_seed(7)
    return theirs, GATv2Conv(*arguments, **options).to(dtype).eval()


def features(graph, channels, dtype, edge_dim=None):
    """Rows of sources and targets, and edge features."""
    generator = torch.Generator().manual_seed(1)
    source, target = (channels, channels) if isinstance(channels, int) else channels
    x_src = torch.randn(graph.num_sources, source, generator=generator, dtype=dtype)
    x_dst = torch.randn(graph.num_targets, target, generator=generator, dtype=dtype)
    num_edges = graph.edge_index.size(1)
    edge_attr = None
    if edge_dim is not None:
        edge_attr = torch.randn(num_edges, edge_dim, generator=generator, dtype=dtype)
    return x_src, x_dst, edge_attr


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("heads", [1, 2, 8])
@pytest.mark.parametrize("edge_dim", [None, 0, 3])
@pytest.mark.parametrize("add_self_loops", [True, False])
@pytest.mark.parametrize("concat", [True, False])
def test_square(square_graph, same, dtype, heads, edge_dim, add_self_loops, concat):
    x, _, edge_attr = features(square_graph, 5, dtype, edge_dim)
    for bias, residual, weights in [(True, False, True), (False, True, None), (True, True, True)]:
        theirs, ours = pair(
            5,
            4,
            heads,
            concat,
            0.2,
            0.6,
            add_self_loops,
            edge_dim,
            "mean",
            bias,
            weights is None,
            residual,
            dtype=dtype,
        )
        if edge_dim == 0:
            for layer in (theirs, ours):
                layer(x, square_graph.edge_index, edge_attr)  # gives the lazy empty map its size
        same(theirs, ours, [x, square_graph.edge_index, edge_attr], return_attention_weights=weights)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("heads", [1, 2, 8])
@pytest.mark.parametrize("edge_dim", [None, 3])
@pytest.mark.parametrize(
    ("channels", "share_weights"), [(5, False), ((5, 3), False), ((3, 5), False), (5, True), ((5, 5), True)]
)
def test_bipartite(bipartite_graph, same, dtype, heads, edge_dim, channels, share_weights):
    x_src, x_dst, edge_attr = features(bipartite_graph, channels, dtype, edge_dim)
    for loops, concat, residual in [(True, True, False), (False, False, True), (False, True, True)]:
        theirs, ours = pair(
            channels,
            4,
            heads,
            concat,
            add_self_loops=loops,
            edge_dim=edge_dim,
            share_weights=share_weights,
            residual=residual,
            dtype=dtype,
        )
        inputs = [(x_src, x_dst), bipartite_graph.edge_index, edge_attr]
        same(theirs, ours, inputs, return_attention_weights=True)


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_tensor_into_two_projections(square_graph, same, dtype):
    x, _, _ = features(square_graph, 5, dtype)
    theirs, ours = pair((5, 5), 4, 2, residual=True, dtype=dtype)
    same(theirs, ours, [x, square_graph.edge_index], return_attention_weights=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fill_value", FILLS, ids=str)
def test_fill_values(square_graph, same, dtype, fill_value):
    x, _, edge_attr = features(square_graph, 5, dtype, 3)
    theirs, ours = pair(5, 4, 2, edge_dim=3, fill_value=fill_value, dtype=dtype)
    same(theirs, ours, [x, square_graph.edge_index, edge_attr], return_attention_weights=True)
    theirs, ours = pair((5, 5), 4, 2, edge_dim=3, fill_value=fill_value, dtype=dtype)
    same(theirs, ours, [(x, x), square_graph.edge_index, edge_attr], return_attention_weights=True)


@pytest.mark.parametrize("negative_slope", [0.0, 0.2, 1.0, -0.5])
def test_negative_slope(square_graph, same, negative_slope):
    x, _, edge_attr = features(square_graph, 5, torch.float64, 3)
    theirs, ours = pair(5, 4, 2, negative_slope=negative_slope, edge_dim=3, dtype=torch.float64)
    same(theirs, ours, [x, square_graph.edge_index, edge_attr], return_attention_weights=True)


def test_flat_edge_features(square_graph, same):
    x, _, _ = features(square_graph, 5, torch.float64)
    edge_attr = torch.linspace(-1, 1, 47, dtype=torch.float64)
    theirs, ours = pair(5, 4, 2, edge_dim=1, dtype=torch.float64)
    same(theirs, ours, [x, square_graph.edge_index, edge_attr], return_attention_weights=True)


def test_edge_features_left_out(square_graph, same):
    x, _, _ = features(square_graph, 5, torch.float64)
    theirs, ours = pair(5, 4, 2, edge_dim=3, dtype=torch.float64)
    same(theirs, ours, [x, square_graph.edge_index], return_attention_weights=True)


@pytest.mark.parametrize("add_self_loops", [True, False])
@pytest.mark.parametrize("edge_dim", [None, 3])
def test_no_edges(same, add_self_loops, edge_dim):
    x = torch.randn(4, 5, dtype=torch.float64)
    edge_index = torch.empty(2, 0, dtype=torch.long)
    edge_attr = None if edge_dim is None else torch.empty(0, 3, dtype=torch.float64)
    theirs, ours = pair(5, 4, 2, add_self_loops=add_self_loops, edge_dim=edge_dim, dtype=torch.float64)
    same(theirs, ours, [x, edge_index, edge_attr], return_attention_weights=True)


def test_no_nodes(same):
    theirs, ours = pair(5, 4, 2, dtype=torch.float64)
    same(theirs, ours, [torch.empty(0, 5, dtype=torch.float64), torch.empty(2, 0, dtype=torch.long)])


def test_isolated_nodes_get_the_bias():
    layer = GATv2Conv(5, 4, add_self_loops=False)
    torch.nn.init.normal_(layer.bias)
    out = layer(torch.randn(3, 5), torch.tensor([[0], [1]]))
    assert torch.equal(out[2], layer.bias)


def test_dropout_in_training():
    layer = GATv2Conv(5, 4, 8, dropout=0.5, add_self_loops=False).train()
    edge_index = torch.randint(0, 50, (2, 2000))
    x = torch.randn(50, 5)
    torch.manual_seed(0)
    out, (_, weights) = layer(x, edge_index, return_attention_weights=True)
    dropped = float((weights == 0).float().mean())
    assert 0.45 < dropped < 0.55
    torch.manual_seed(0)
    assert torch.equal(layer(x, edge_index), out)
    assert not torch.equal(layer(x, edge_index), out)
    # The output is what the returned weights select.
    values = layer.lin_l(x).view(-1, 8, 4)
    message = weights.unsqueeze(-1) * values[edge_index[0]]
    expected = torch.zeros(50, 8, 4).index_add(0, edge_index[1], message).flatten(1) + layer.bias
    torch.testing.assert_close(out, expected)


def test_refuses_what_pyg_would_misread(square_graph):
    x = torch.randn(12, 5)
    layer = GATv2Conv(5, 4)
    with pytest.raises(ArgumentError, match=r"shape \[2, num_edges\]"):
        layer(x, square_graph.edge_index.t())
    with pytest.raises(ArgumentError, match="integers"):
        layer(x, square_graph.edge_index.float())
    with pytest.raises(ArgumentError, match="num_nodes, channels"):
        layer(x.unsqueeze(0), square_graph.edge_index)
    with pytest.raises(ArgumentError, match="sources and of targets"):
        layer((x, None), square_graph.edge_index)
    with pytest.raises(ArgumentError, match="no edge_dim"):
        layer(x, square_graph.edge_index, torch.randn(47, 3))
    with pytest.raises(ArgumentError, match="one row per edge"):
        GATv2Conv(5, 4, edge_dim=3)(x, square_graph.edge_index, torch.randn(46, 3))
    with pytest.raises(ArgumentError, match="3 columns"):
        GATv2Conv(5, 4, edge_dim=3)(x, square_graph.edge_index, torch.randn(47, 2))
    with pytest.raises(ArgumentError, match="fill_value"):
        GATv2Conv(5, 4, edge_dim=3, fill_value="middle")
    for options in ({"aggr": "mean"}, {"flow": "target_to_source"}, {"nonsense": 1}, {"dropout": 1.0}):
        with pytest.raises(ArgumentError, match=next(iter(options))):
            GATv2Conv(5, 4, **options)


@pytest.mark.parametrize("bad", [-1, 12])
@pytest.mark.parametrize("end", [0, 1])
def test_index_out_of_range(square_graph, bad, end):
    edge_index = square_graph.edge_index.clone()
    edge_index[end, 5] = bad
    with pytest.raises((ArgumentError, IndexError)):
        GATv2Conv(5, 4)(torch.randn(12, 5), edge_index)
