"""GATConv against PyG's, over every option."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
pyg_nn = pytest.importorskip("torch_geometric.nn", reason="compares with PyTorch Geometric")

from sage_attention.errors import ArgumentError  # noqa: E402
from sage_attention.torch import GATConv  # noqa: E402

DTYPES = [torch.float32, torch.float64]
FILLS = ["mean", "add", "min", "max", "mul", 2, 0.5, torch.tensor([0.1, 0.2, 0.3])]


def pair(*arguments, dtype, **options):
    """PyG's layer and ours, from the same seed."""
    torch.manual_seed(7)
    theirs = pyg_nn.GATConv(*arguments, **options).to(dtype).eval()
    torch.manual_seed(7)
    return theirs, GATConv(*arguments, **options).to(dtype).eval()


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
            5, 4, heads, concat, 0.2, 0.6, add_self_loops, edge_dim, "mean", bias, residual, dtype=dtype
        )
        if edge_dim == 0:
            for layer in (theirs, ours):
                layer(x, square_graph.edge_index, edge_attr)  # gives the lazy empty map its size
        same(theirs, ours, [x, square_graph.edge_index, edge_attr], return_attention_weights=weights)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("heads", [1, 2, 8])
@pytest.mark.parametrize("edge_dim", [None, 3])
@pytest.mark.parametrize("channels", [5, (5, 3), (3, 5)])
def test_bipartite(bipartite_graph, same, dtype, heads, edge_dim, channels):
    x_src, x_dst, edge_attr = features(bipartite_graph, channels, dtype, edge_dim)
    for loops, concat, residual in [(True, True, False), (False, False, True), (False, True, True)]:
        theirs, ours = pair(
            channels,
            4,
            heads,
            concat,
            add_self_loops=loops,
            edge_dim=edge_dim,
            residual=residual,
            dtype=dtype,
        )
        for size in (None, (9, 7)):
            same(
                theirs,
                ours,
                [(x_src, x_dst), bipartite_graph.edge_index, edge_attr, size],
                return_attention_weights=True,
            )


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_tensor_into_two_projections(square_graph, same, dtype):
    x, _, _ = features(square_graph, 5, dtype)
    theirs, ours = pair((5, 5), 4, 2, residual=True, dtype=dtype)
    same(theirs, ours, [x, square_graph.edge_index], return_attention_weights=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("channels", [5, (5, 3)])
@pytest.mark.parametrize("add_self_loops", [True, False])
@pytest.mark.parametrize("residual", [True, False])
def test_without_targets(square_graph, bipartite_graph, same, dtype, channels, add_self_loops, residual):
    theirs, ours = pair(channels, 4, 2, add_self_loops=add_self_loops, residual=residual, dtype=dtype)
    x, _, _ = features(square_graph, channels, dtype)
    same(theirs, ours, [(x, None), square_graph.edge_index], return_attention_weights=True)
    if not add_self_loops:  # with them PyG takes the number of sources for that of targets, and fails
        x, _, _ = features(bipartite_graph, channels, dtype)
        same(theirs, ours, [(x, None), bipartite_graph.edge_index], size=(9, 7))


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


@pytest.mark.parametrize("edge_dim", [None, 1])
def test_flat_edge_features(square_graph, same, edge_dim):
    x, _, _ = features(square_graph, 5, torch.float64)
    edge_attr = torch.linspace(-1, 1, 47, dtype=torch.float64)
    theirs, ours = pair(5, 4, 2, edge_dim=edge_dim, dtype=torch.float64)
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
    layer = GATConv(5, 4, add_self_loops=False)
    torch.nn.init.normal_(layer.bias)
    out = layer(torch.randn(3, 5), torch.tensor([[0], [1]]))
    assert torch.equal(out[2], layer.bias)


def test_dropout_in_training():
    layer = GATConv(5, 4, 8, dropout=0.5, add_self_loops=False).train()
    edge_index = torch.randint(0, 50, (2, 2000))
    x = torch.randn(50, 5)
    torch.manual_seed(0)
    out, (_, weights) = layer(x, edge_index, return_attention_weights=True)
    dropped = float((weights == 0).float().mean())
    assert 0.45 < dropped < 0.55
    for project in ("before", "after"):
        layer.project = project
        torch.manual_seed(0)
        torch.testing.assert_close(layer(x, edge_index), out)
        assert float((layer(x, edge_index) - out).abs().max()) > 0.01  # another draw
    # The output is what the returned weights select.
    values = layer.lin(x).view(-1, 8, 4)
    message = weights.unsqueeze(-1) * values[edge_index[0]]
    expected = torch.zeros(50, 8, 4).index_add(0, edge_index[1], message).flatten(1) + layer.bias
    torch.testing.assert_close(out, expected)


def test_refuses_what_pyg_would_misread(square_graph):
    x = torch.randn(12, 5)
    layer = GATConv(5, 4)
    with pytest.raises(ArgumentError, match=r"shape \[2, num_edges\]"):
        layer(x, square_graph.edge_index.t())
    with pytest.raises(ArgumentError, match="integers"):
        layer(x, square_graph.edge_index.float())
    with pytest.raises(ArgumentError, match="num_nodes, channels"):
        layer(x.unsqueeze(0), square_graph.edge_index)
    with pytest.raises(ArgumentError, match="size"):
        layer(x, square_graph.edge_index, size=(12, 13))
    with pytest.raises(ArgumentError, match="one row per edge"):
        GATConv(5, 4, edge_dim=3)(x, square_graph.edge_index, torch.randn(46, 3))
    with pytest.raises(ArgumentError, match="3 columns"):
        GATConv(5, 4, edge_dim=3)(x, square_graph.edge_index, torch.randn(47, 2))
    with pytest.raises(ArgumentError, match="fill_value"):
        GATConv(5, 4, edge_dim=3, fill_value="middle")
    for options in ({"aggr": "mean"}, {"flow": "target_to_source"}, {"nonsense": 1}, {"dropout": 1.0}):
        with pytest.raises(ArgumentError, match=next(iter(options))):
            GATConv(5, 4, **options)


@pytest.mark.parametrize("bad", [-1, 12])
@pytest.mark.parametrize("end", [0, 1])
def test_index_out_of_range(square_graph, bad, end):
    edge_index = square_graph.edge_index.clone()
    edge_index[end, 5] = bad
    with pytest.raises((ArgumentError, IndexError)):
        GATConv(5, 4)(torch.randn(12, 5), edge_index)


def test_old_checkpoints_load():
    layer, fresh = GATConv(5, 4, 2), GATConv(5, 4, 2)
    state = layer.state_dict()
    weight = state.pop("lin.weight")
    state["lin_src.weight"] = weight
    fresh.load_state_dict(state)
    assert torch.equal(fresh.lin.weight, weight)
    state["lin_dst.weight"] = weight.clone()
    fresh.load_state_dict(state)
    assert set(state) == {
        "att_src",
        "att_dst",
        "bias",
        "lin_src.weight",
        "lin_dst.weight",
    }  # not ours to change
    state["lin_dst.weight"] = weight + 1
    with pytest.raises(RuntimeError, match=r"lin\.weight"):
        fresh.load_state_dict(state)
    nested = torch.nn.ModuleList([GATConv(5, 4, 2)])
    nested.load_state_dict({f"0.{key}": value for key, value in state.items() if key != "lin_dst.weight"})
    assert torch.equal(nested[0].lin.weight, weight)
