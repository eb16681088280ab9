"""Graph: construction, validation, transposition, conversions, pickling."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sage_attention import ArgumentError, Graph


def assert_equal(a, b):
    assert (a.num_sources, a.num_targets, a.num_edges) == (b.num_sources, b.num_targets, b.num_edges)
    np.testing.assert_array_equal(a.indptr, b.indptr)
    np.testing.assert_array_equal(a.indices, b.indices)
    assert a.indices.dtype == b.indices.dtype
    np.testing.assert_array_equal(a.edge_ids, b.edge_ids)


def naive_csc(edge_index, num_targets):
    """(indptr, indices, edge_ids) by a stable sort."""
    order = np.argsort(edge_index[1], kind="stable")
    indptr = np.concatenate([[0], np.cumsum(np.bincount(edge_index[1], minlength=num_targets))])
    return indptr, edge_index[0][order], order


def test_from_edge_index_matches_a_stable_sort(ragged, ragged_edges):
    indptr, indices, order = naive_csc(ragged_edges, 303)
    np.testing.assert_array_equal(ragged.indptr, indptr)
    np.testing.assert_array_equal(ragged.indices, indices)
    np.testing.assert_array_equal(ragged.edge_ids, order)
    np.testing.assert_array_equal(ragged.in_degrees, np.diff(indptr))
    assert ragged.indices.dtype == np.int32
    assert ragged.indptr.dtype == ragged.edge_ids.dtype == np.int64
    assert repr(ragged) == f"Graph(303 nodes, {ragged.num_edges} edges, int32)"


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 30), st.integers(1, 30), st.data())
def test_edges_come_back_as_they_were(num_sources, num_targets, data):
    edge = st.tuples(st.integers(0, num_sources - 1), st.integers(0, num_targets - 1))
    edges = np.array(data.draw(st.lists(edge, max_size=100)), np.int64).reshape(-1, 2).T
    graph = Graph.from_edge_index(edges, (num_sources, num_targets))
    np.testing.assert_array_equal(graph.to_edge_index(), edges)
    indptr, indices, order = naive_csc(edges, num_targets)
    np.testing.assert_array_equal(graph.indptr, indptr)
    np.testing.assert_array_equal(graph.indices, indices)
    np.testing.assert_array_equal(np.arange(len(order)) if graph.edge_ids is None else graph.edge_ids, order)
    by_source = graph.transposed
    turned = Graph(by_source.indptr, by_source.indices, num_targets)
    np.testing.assert_array_equal(graph.indices[by_source.positions], turned.to_edge_index()[1])
    for source in range(num_sources):
        row = by_source.indices[by_source.indptr[source] : by_source.indptr[source + 1]]
        assert row.tolist() == sorted(edges[1][edges[0] == source])


def test_edges_in_order_need_no_ids():
    graph = Graph.from_edge_index([[2, 0, 1], [0, 0, 2]])
    assert graph.edge_ids is None
    assert graph.num_nodes == 3
    np.testing.assert_array_equal(graph.to_edge_index(), [[2, 0, 1], [0, 0, 2]])


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32, np.uint32, np.int64, np.uint64, ">i8"])
def test_index_types(dtype):
    graph = Graph.from_edge_index(np.array([[0, 3], [1, 1]]).astype(dtype))
    assert graph.indices.dtype == np.int32
    assert graph.indices.tolist() == [0, 3]


def test_ids_beyond_int32():
    num_sources = 2**31 + 10
    graph = Graph([0, 2], [num_sources - 1, 3], num_sources=num_sources)
    assert graph.indices.dtype == np.int64
    same = Graph.from_edge_index([[num_sources - 1, 3], [0, 0]], (num_sources, 1))
    assert_equal(graph, same)
    assert repr(graph) == "Graph(2147483658 sources, 1 targets, 2 edges, int64)"


def test_torch_tensors():
    torch = pytest.importorskip("torch", minversion="2")
    edges = torch.tensor([[0, 3, 1], [1, 1, 0]])
    assert_equal(Graph.from_edge_index(edges), Graph.from_edge_index(edges.numpy()))
    assert_equal(Graph.from_edge_index(edges.t().contiguous().t()), Graph.from_edge_index(edges.numpy()))


def test_nothing_is_copied_that_fits():
    indptr, indices = np.array([0, 1, 2], np.int64), np.array([1, 0], np.int32)
    graph = Graph(indptr, indices)
    assert np.shares_memory(graph.indptr, indptr)
    assert np.shares_memory(graph.indices, indices)


def test_immutable(ragged):
    for array in (ragged.indptr, ragged.indices, ragged.edge_ids, ragged.in_degrees, *ragged.transposed):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    with pytest.raises(AttributeError):
        ragged.num_sources = 3


def test_empty():
    for graph in (
        Graph([0], []),
        Graph.from_edge_index([[], []]),
        Graph.from_edge_index(np.empty((2, 0), int), 0),
    ):
        assert (graph.num_sources, graph.num_targets, graph.num_edges) == (0, 0, 0)
        assert graph.to_edge_index().shape == (2, 0)
        assert graph.transposed.indptr.tolist() == [0]
    graph = Graph.from_edge_index([[], []], (3, 2))
    assert graph.transposed.indptr.tolist() == [0, 0, 0, 0]


def test_pickle(ragged):
    ragged.transposed  # noqa: B018  what is cached stays here
    again = pickle.loads(pickle.dumps(ragged))
    assert_equal(again, ragged)
    with pytest.raises(ValueError, match="read-only"):
        again.indices[0] = 1
    assert "transposed" not in vars(again)


def test_scipy(ragged):
    sparse = pytest.importorskip("scipy.sparse")
    matrix = sparse.random(30, 20, 0.2, "csr", random_state=1)
    graph = Graph.from_scipy(matrix)
    assert (graph.num_sources, graph.num_targets) == (30, 20)
    np.testing.assert_array_equal(graph.to_edge_index(), matrix.nonzero())
    np.testing.assert_array_equal(graph.to_scipy(matrix.data).toarray(), matrix.toarray())
    for other in (matrix.tocsc(), matrix.tocoo(), sparse.csr_array(matrix)):
        np.testing.assert_array_equal(Graph.from_scipy(other).to_scipy().toarray(), (matrix != 0).toarray())
    counted = np.zeros((303, 303))
    np.add.at(counted, tuple(ragged.to_edge_index()), 1)
    np.testing.assert_array_equal(ragged.to_scipy().toarray(), counted)
    assert_equal(Graph.from_scipy(ragged.to_scipy()), Graph(ragged.indptr, ragged.indices))
    with pytest.raises(ArgumentError, match="values: expected shape"):
        ragged.to_scipy([1.0])
    with pytest.raises(ArgumentError, match="matrix: expected a two-dimensional SciPy"):
        Graph.from_scipy(np.eye(3))


@pytest.mark.parametrize("kind", ["csr_array", "csc_array"])
@pytest.mark.parametrize("part", ["indices", "indptr"])
def test_scipy_matrix_of_parts_that_contradict_each_other(kind, part):
    """SciPy does not look at them, and would read and write beyond them."""
    sparse = pytest.importorskip("scipy.sparse")
    matrix = getattr(sparse, kind)(np.eye(3))
    getattr(matrix, part)[1] = 10**6
    with pytest.raises(ArgumentError, match="matrix: expected a valid sparse matrix"):
        Graph.from_scipy(matrix)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.to_sparse(), r"an array, got Tensor of layout torch.sparse_coo; pass .to_dense\(\) of it"),
        (lambda t: t.to("meta"), "an array, got Tensor on the device meta"),
        (lambda t: t.bfloat16(), r"a dtype that NumPy has, got bfloat16; pass .float\(\) of it"),
        (lambda t: t.cfloat().conj(), r"an array, got Tensor that is conjugated when read; pass .resolve_conj\(\)"),
    ],
    ids=["sparse", "meta", "bfloat16", "conjugated"],
)
def test_tensors_without_an_array(change, message):
    torch = pytest.importorskip("torch", minversion="2")
    with pytest.raises(ArgumentError, match="edge_index: expected " + message):
        Graph.from_edge_index(change(torch.ones(2, 3)))


def test_networkx():
    nx = pytest.importorskip("networkx")
    undirected = nx.Graph([("a", "b"), ("b", "c"), ("c", "c")])
    graph = Graph.from_networkx(undirected)
    assert graph.to_edge_index().T.tolist() == [[0, 1], [1, 2], [2, 2], [1, 0], [2, 1]]
    many = nx.MultiDiGraph([(0, 1), (0, 1), (2, 0)])
    graph = Graph.from_networkx(many)
    assert graph.to_edge_index().T.tolist() == [[0, 1], [0, 1], [2, 0]]
    assert sorted(graph.to_networkx().edges()) == sorted(many.edges())
    assert sorted(d["edge_id"] for *_, d in graph.to_networkx().edges(data=True)) == [0, 1, 2]
    assert Graph.from_networkx(nx.empty_graph(4)).num_nodes == 4
    with pytest.raises(ArgumentError, match="graph: expected a NetworkX graph, got int"):
        Graph.from_networkx(3)
    with pytest.raises(ArgumentError, match="a graph whose sources are its targets"):
        Graph([0, 1], [1], num_sources=2).to_networkx()


def test_pyg(ragged):
    torch = pytest.importorskip("torch", minversion="2")
    data_module = pytest.importorskip("torch_geometric.data")
    data = ragged.to_pyg()
    assert data.num_nodes == 303
    assert_equal(Graph.from_pyg(data), ragged)
    isolated = data_module.Data(x=torch.zeros(5, 2), edge_index=torch.tensor([[0, 1], [1, 2]]))
    assert Graph.from_pyg(isolated).num_nodes == 5
    for bad in (data_module.Data(x=torch.zeros(5, 2)), data_module.HeteroData(), 3):
        with pytest.raises(ArgumentError, match="data: expected a torch_geometric Data object"):
            Graph.from_pyg(bad)


BAD = [
    (([], []), "indptr: expected at least one element"),
    (([1, 2], [0, 0]), "indptr: expected 0 at position 0, got 1"),
    (([0, 2, 1], [0]), "indptr: expected never to fall, got 1 after 2 at position 2"),
    (([0, 2], [0]), r"indptr: expected 1 \(the number of edges\) at the end, got 2"),
    (([0, 1], [1]), r"indices: expected values in \[0, 1\), got 1 at position 0"),
    (([0, 1], [-1]), r"indices: expected values in \[0, 1\), got -1 at position 0"),
    (([0, 1], [2**32]), r"indices: expected values in \[0, 1\), got 4294967296 at position 0"),
    (([0, 1], [0.0]), "indices: expected an array of integers .*, got dtype float64"),
    (([0, 1], [[0]]), "indices: expected an array of integers .*, got shape"),
    (([0, 1], [[0], [0, 1]]), "indices: expected an array, got list"),
    (([0, 1], [0], -1), r"num_sources: expected an integer in \[0, \d+\], got -1"),
    (([0, 1], [0], 1.5), r"num_sources: expected an integer in \[0, \d+\], got 1.5"),
    (([0, 1], [0], None, [0, 1]), "edge_ids: expected an array of integers of shape"),
    (([0, 1], [0], None, [1]), r"edge_ids: expected values in \[0, 1\), got 1"),
    (([0, 2], [0, 0], None, [1, 1]), "edge_ids: expected each edge once, got no 0"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_errors(arguments, message):
    with pytest.raises(ArgumentError, match=message):
        Graph(*arguments)


BAD_EDGES = [
    (([0, 1],), r"edge_index: expected an array of integers of shape \[2, \*\], got shape \[2\]"),
    (([[0, 1]] * 3,), r"edge_index: expected an array of integers of shape \[2, \*\], got shape \[3, 2\]"),
    (([[0.5], [1]],), "edge_index: .*got dtype float64"),
    (([[True], [False]],), "edge_index: .*got dtype bool"),
    (([["a"], ["b"]],), "edge_index: .*got dtype <U1"),
    ((np.array([[2**63], [0]], np.uint64),), r"edge_index: expected values below 2\^63"),
    (([[0], [-1]],), "edge_index: expected ids of at least 0, got -1"),
    (([[0], [3]], 3), r"edge_index: expected targets in \[0, 3\), got 3"),
    (([[3], [0]], (3, 9)), r"edge_index: expected sources in \[0, 3\), got 3"),
    (([[0], [0]], -1), r"num_nodes: expected an integer in \[0, \d+\], got -1"),
    (([[0], [0]], (1, 2, 3)), r"num_nodes: expected an integer or \(num_sources, num_targets\)"),
    (([[0], [0]], (1, "a")), r"num_nodes\[1\]: expected an integer in \[0, \d+\], got 'a'"),
    (([[2**62], [0]],), r"edge_index: expected ids below 2\^59, got 4611686018427387904"),
    (([[2**63 - 1], [0]],), r"edge_index: expected ids below 2\^59"),
    (([[0], [0]], 2**62), r"num_nodes: expected an integer in \[0, \d+\], got 4611686018427387904"),
    (([[0], [0]], (1, 2**63)), r"num_nodes\[1\]: expected an integer in"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD_EDGES)
def test_edge_errors(arguments, message):
    with pytest.raises(ArgumentError, match=message):
        Graph.from_edge_index(*arguments)


def test_not_square():
    graph = Graph([0, 1], [1], num_sources=2)
    with pytest.raises(ArgumentError, match="num_nodes: expected a graph whose sources are its targets"):
        graph.num_nodes  # noqa: B018


def test_import_is_light():
    code = (
        "import sys, sage_attention; "
        "heavy = {'numpy', 'torch', 'scipy', 'ctypes', 'sage_attention.graph'} & set(sys.modules); "
        "print(sorted(heavy), 'Graph' in dir(sage_attention)); "
        "sage_attention.Graph; print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["[] True", "False"]


def test_unknown_name():
    import sage_attention

    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        sage_attention.nonsense  # noqa: B018
