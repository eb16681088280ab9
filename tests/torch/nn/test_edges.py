"""Whatever a layer is given as edges, it computes the same; and an edge_index is grouped once."""

from __future__ import annotations

import gc
import threading
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

from sage_attention import Graph  # noqa: E402
from sage_attention.errors import ArgumentError  # noqa: E402
from sage_attention.torch import GATConv, GATv2Conv, TransformerConv  # noqa: E402
from sage_attention.torch.nn import cache, edges, forget  # noqa: E402

LAYERS = [
    (GATConv, {"edge_dim": 3}),
    (GATConv, {"edge_dim": 3, "add_self_loops": False}),
    (GATv2Conv, {"edge_dim": 3}),
    (TransformerConv, {"edge_dim": 3}),
]


@pytest.fixture(autouse=True)
def _empty_memory():
    forget()


@pytest.fixture
def sorts(monkeypatch):
    """Counts how often edges are grouped."""
    calls = []
    csc = edges.ops.csc
    monkeypatch.setattr(edges.ops, "csc", lambda *args: (calls.append(args[1:]), csc(*args))[1])
    return calls


@pytest.mark.parametrize(("kind", "options"), LAYERS)
def test_csc_and_graph(square_graph, kind, options):
    layer = kind(5, 4, 2, **options).double()
    x = torch.randn(12, 5, dtype=torch.float64)
    edge_attr = torch.randn(47, 3, dtype=torch.float64)
    edge_index = square_graph.edge_index
    out, (index, weights) = layer(x, edge_index, edge_attr, return_attention_weights=True)
    csc = edges.ops.csc(edge_index, 12, 12)
    other, (same_index, same_weights) = layer(x, csc, edge_attr, return_attention_weights=True)
    assert torch.equal(same_index, index)
    torch.testing.assert_close(same_weights, weights)
    torch.testing.assert_close(other, out)
    graph = SimpleNamespace(indptr=csc.indptr.numpy(), indices=csc.indices.numpy(), num_sources=12)
    other = layer(x, graph, edge_attr[csc.edge_ids])
    torch.testing.assert_close(other, out)
    graph.edge_ids = csc.edge_ids.numpy()
    torch.testing.assert_close(layer(x, graph, edge_attr), out)


@pytest.mark.parametrize(("kind", "options"), LAYERS)
def test_graph_of_this_package(square_graph, kind, options, sorts):
    graph = Graph.from_edge_index(square_graph.edge_index.numpy(), 12)
    layer, x, edge_attr = kind(5, 4, 2, **options), torch.randn(12, 5), torch.randn(47, 3)
    out, (index, weights) = layer(x, graph, edge_attr, return_attention_weights=True)
    wanted, (wanted_index, wanted_weights) = layer(x, square_graph.edge_index, edge_attr, return_attention_weights=True)
    torch.testing.assert_close(out, wanted)
    torch.testing.assert_close(weights, wanted_weights)
    assert torch.equal(index, wanted_index)
    del sorts[:]
    torch.testing.assert_close(layer(x, graph, edge_attr), wanted)
    assert sorts == []
    gone = weakref.ref(graph)
    del graph
    gc.collect()
    assert gone() is None


def test_sizes_of_a_graph_are_checked(square_graph):
    graph = Graph.from_edge_index(square_graph.edge_index.numpy(), 12)
    with pytest.raises(ArgumentError, match="13 targets"):
        GATConv(5, 4)(torch.randn(13, 5), graph)
    with pytest.raises(ArgumentError, match="13 sources"):
        GATConv(5, 4)((torch.randn(13, 5), torch.randn(12, 5)), graph)


def test_refuses_scipy_matrices():
    scipy_sparse = pytest.importorskip("scipy.sparse", reason="needs SciPy")
    matrix = scipy_sparse.csr_matrix(np.eye(12))
    with pytest.raises(ArgumentError, match="SciPy"):
        GATConv(5, 4)(torch.randn(12, 5), matrix)


def test_csc_states_the_number_of_targets(bipartite_graph):
    csc = edges.ops.csc(bipartite_graph.edge_index, 9, 7)
    layer = GATConv(5, 4, add_self_loops=False)
    assert layer((torch.randn(9, 5), None), csc).shape == (7, 4)
    with pytest.raises(ArgumentError, match="9 targets"):
        layer(torch.randn(9, 5), csc)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.uint8])
@pytest.mark.parametrize("kind", [GATConv, TransformerConv])
def test_small_integers(square_graph, kind, dtype):
    layer, x = kind(5, 4, 2), torch.randn(12, 5)
    expected = layer(x, square_graph.edge_index)
    assert torch.equal(layer(x, square_graph.edge_index.to(dtype)), expected)


def test_int32_stays_int32(square_graph):
    edge_index = square_graph.edge_index.int()
    _, (index, _) = GATConv(5, 4)(torch.randn(12, 5), edge_index, return_attention_weights=True)
    assert index.dtype == torch.int32


@pytest.mark.parametrize("kind", ["GATConv", "GATv2Conv", "TransformerConv"])
@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_sparse_adjacency(square_graph, kind, layout):
    pyg_nn = pytest.importorskip("torch_geometric.nn", reason="compares with PyTorch Geometric")
    index = torch.unique(square_graph.edge_index.flip(0), dim=1)  # a sparse tensor has no duplicates
    adjacency = torch.sparse_coo_tensor(index, torch.ones(index.size(1)), (12, 12)).coalesce()
    adjacency = adjacency if layout == "coo" else adjacency.to_sparse_csr()
    x = torch.randn(12, 5)
    for options in [{}] if kind == "TransformerConv" else [{}, {"add_self_loops": False}]:
        theirs = getattr(pyg_nn, kind)(5, 4, 2, **options)
        ours = {"GATConv": GATConv, "GATv2Conv": GATv2Conv, "TransformerConv": TransformerConv}[kind](
            5, 4, 2, **options
        )
        ours.load_state_dict(theirs.state_dict())
        out, (matrix, weights) = ours(x, adjacency, return_attention_weights=True)
        wanted, (wanted_matrix, wanted_weights) = theirs(x, adjacency, return_attention_weights=True)
        torch.testing.assert_close(out, wanted)
        torch.testing.assert_close(weights, wanted_weights)
        assert matrix.layout == wanted_matrix.layout
        torch.testing.assert_close(matrix.to_dense(), wanted_matrix.to_dense())


def test_sparse_by_column(square_graph):
    index = torch.unique(square_graph.edge_index.flip(0), dim=1)
    adjacency = torch.sparse_coo_tensor(index, torch.ones(index.size(1)), (12, 12)).coalesce()
    x, layer = torch.randn(12, 5), GATConv(5, 4, 2)
    out, (matrix, _) = layer(x, adjacency.to_sparse_csc(), return_attention_weights=True)
    wanted, (wanted_matrix, _) = layer(x, adjacency, return_attention_weights=True)
    torch.testing.assert_close(out, wanted)
    assert matrix.layout == torch.sparse_csc
    torch.testing.assert_close(matrix.to_dense(), wanted_matrix.to_dense())


@pytest.mark.parametrize("kind", ["GATConv", "GATv2Conv"])
def test_sparse_adjacency_with_features(square_graph, kind):
    pyg_nn = pytest.importorskip("torch_geometric.nn", reason="compares with PyTorch Geometric")
    index = torch.unique(square_graph.edge_index.flip(0), dim=1)
    adjacency = torch.sparse_coo_tensor(index, torch.randn(index.size(1), 3), (12, 12, 3)).coalesce()
    theirs = getattr(pyg_nn, kind)(5, 4, 2, edge_dim=3, add_self_loops=False)
    ours = {"GATConv": GATConv, "GATv2Conv": GATv2Conv}[kind](5, 4, 2, edge_dim=3, add_self_loops=False)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(12, 5)
    torch.testing.assert_close(ours(x, adjacency), theirs(x, adjacency))


def test_edge_index_of_pyg(square_graph, sorts):
    pyg = pytest.importorskip("torch_geometric", reason="needs its EdgeIndex")
    x, layer = torch.randn(12, 5), GATConv(5, 4, 2)
    plain = layer(x, square_graph.edge_index)
    edge_index = pyg.EdgeIndex(square_graph.edge_index, sparse_size=(12, 12))
    assert torch.equal(layer(x, edge_index), plain)
    del sorts[:]
    assert torch.equal(layer(x, edge_index), plain)
    assert sorts == []
    ordered, _ = edge_index.sort_by("col")
    torch.testing.assert_close(layer(x, ordered), plain)
    other = square_graph.edge_index.clone()
    other[0, 0] = (other[0, 0] + 1) % 9
    edge_index[0, 0] = int(other[0, 0])
    assert torch.equal(layer(x, edge_index), layer(x, other))
    other[0, 1] = (other[0, 1] + 1) % 9
    edge_index.as_tensor()[0, 1] = int(other[0, 1])
    assert torch.equal(layer(x, edge_index), layer(x, other))


def test_refuses_other_things():
    with pytest.raises(ArgumentError, match="SparseTensor"):
        GATConv(5, 4)(torch.randn(3, 5), [[0], [1]])


def test_layers_and_epochs_share_one_grouping(square_graph, sorts):
    x = torch.randn(12, 8)
    model = [GATConv(8, 4, 2), GATv2Conv(8, 4, 2), GATConv(8, 4, 2, add_self_loops=False)]
    for _ in range(3):
        for layer in model:
            layer(x, square_graph.edge_index)
    assert len(sorts) == 2  # with self loops and without


def test_memory_is_never_stale(square_graph, sorts):
    x, layer = torch.randn(12, 5), TransformerConv(5, 4)
    edge_index = square_graph.edge_index.clone()

    def is_right():
        del sorts[:]
        out = layer(x, edge_index)
        again = len(sorts)
        assert torch.equal(out, layer(x, edge_index.clone()))
        return again

    assert is_right() == 1
    assert is_right() == 0
    edge_index[1, 3] = (edge_index[1, 3] + 1) % 9
    assert is_right() == 1
    edge_index.add_(1)
    assert is_right() == 1
    row = edge_index[0]
    row.sub_(1)
    assert is_right() == 1
    edge_index.resize_(2, 20)
    assert is_right() == 1
    edge_index.set_(square_graph.edge_index.clone())
    assert is_right() == 1
    edge_index.data = square_graph.edge_index[:, :30].clone()
    assert is_right() == 1
    edge_index.numpy()[0, 0] = 0 if edge_index[0, 0] else 1
    forget()
    assert is_right() == 1


def test_memory_of_others_is_compared(square_graph, sorts):
    x, layer = torch.randn(12, 5), GATConv(5, 4)
    array = square_graph.edge_index.numpy().copy()
    edge_index = torch.from_numpy(array)
    layer(x, edge_index)
    layer(x, edge_index)
    assert len(sorts) == 1
    array[1, 3] = (array[1, 3] + 1) % 9
    assert torch.equal(layer(x, edge_index), layer(x, torch.from_numpy(np.array(array))))


def test_memory_depends_on_the_numbers_of_nodes(square_graph):
    layer = GATConv(5, 4)
    for number in (12, 20, 12, 15):
        x = torch.randn(number, 5)
        assert torch.equal(layer(x, square_graph.edge_index), layer(x, square_graph.edge_index.clone()))


def test_memory_of_a_csc_depends_on_all_of_it(square_graph):
    x, layer = torch.randn(12, 5), GATConv(5, 4)
    csc = edges.ops.csc(square_graph.edge_index, 12, 12)
    layer(x, csc)
    other = csc._replace(indptr=torch.arange(13).clamp(max=11) * 4 + (torch.arange(13) == 12) * 3)
    assert torch.equal(layer(x, other), layer(x, csc.__class__(*(part.clone() for part in other[:3]))))


def test_memory_keeps_nothing_alive(square_graph):
    layer, x = GATConv(5, 4), torch.randn(12, 5)
    edge_index = square_graph.edge_index.clone()
    layer(x, edge_index)
    assert len(cache._entries) == 1
    gone = weakref.ref(edge_index)
    del edge_index
    gc.collect()
    assert gone() is None
    assert len(cache._entries) == 0
    csc = edges.ops.csc(square_graph.edge_index, 12, 12)
    layer(x, csc)
    assert len(cache._entries) == 1
    del csc
    gc.collect()
    assert len(cache._entries) == 0


def test_inference_mode(square_graph):
    layer, x = GATConv(5, 4), torch.randn(12, 5)
    expected = layer(x, square_graph.edge_index)
    with torch.inference_mode():
        assert torch.equal(layer(x, square_graph.edge_index), expected)
        edge_index = square_graph.edge_index.clone()
        assert torch.equal(layer(x, edge_index), expected)
        edge_index[1, 3] = (edge_index[1, 3] + 1) % 9
        assert not torch.equal(layer(x, edge_index), expected)


def test_training_after_inference(square_graph, sorts):
    layer, x = GATConv(5, 4), torch.randn(12, 5)
    with torch.inference_mode():
        layer(x, square_graph.edge_index)
    layer(x, square_graph.edge_index).sum().backward()
    assert len(sorts) == 1


def test_threads(square_graph):
    layer, x = GATConv(5, 4), torch.randn(12, 5)
    expected = layer(x, square_graph.edge_index).detach()
    wrong = []

    def work():
        for _ in range(50):
            edge_index = square_graph.edge_index.clone()
            both = (edge_index, square_graph.edge_index)
            wrong.extend(given for given in both if not torch.equal(layer(x, given), expected))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
