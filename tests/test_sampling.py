"""Sampling against its naive twin, bit for bit; uniformity; invariants; errors."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference import sampling as reference
from sage_attention import ArgumentError, Graph, Workspace, sample_neighbours, sample_one_hop


def widen(graph):
    """The same graph with int64 indices, which the constructors would narrow."""
    return Graph.from_trusted(graph.indptr, graph.indices.astype(np.int64), graph.num_sources, graph.edge_ids)


def assert_same(sample, expected):
    assert sample.nodes.tolist() == expected.nodes
    assert sample.indptr.tolist() == expected.indptr
    assert sample.sources.tolist() == expected.sources
    assert sample.positions.tolist() == expected.positions
    assert sample.num_sampled_nodes == tuple(expected.num_sampled_nodes)
    assert sample.num_sampled_edges == tuple(expected.num_sampled_edges)


def assert_equal(a, b):
    for name in ("nodes", "indptr", "sources", "positions", "edge_ids"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    assert a.num_sampled_nodes == b.num_sampled_nodes
    assert a.num_sampled_edges == b.num_sampled_edges


class Numbers:
    """A long array, read as Python integers one at a time."""

    def __init__(self, array):
        self.array = array

    def __getitem__(self, i):
        return int(self.array[i])


def both(graph, seeds, fan_outs, seed=0, replace=False, num_threads=1):
    sample = sample_neighbours(graph, seeds, fan_outs, seed=seed, replace=replace, num_threads=num_threads)
    lists = Numbers(graph.indptr), Numbers(graph.indices)
    return sample, reference.sample_neighbours(*lists, list(seeds), fan_outs, seed, replace)


PHILOX_ANSWERS = [  # Random123, kat_vectors: philox4x32 10
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), PHILOX_ANSWERS)
def test_reference_philox_known_answers(counter, key, expected):
    assert reference.philox4x32(counter, key) == expected


@pytest.mark.parametrize("index_type", ["int32", "int64"])
@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("fan_outs", [[-1], [1], [3, 2], [5, -1, 2], [20, 17, 16], [64, 33], [89, 1]])
def test_matches_reference(ragged, fan_outs, replace, index_type, num_threads):
    graph = ragged if index_type == "int32" else widen(ragged)
    assert graph.indices.dtype == index_type
    seeds = [5, 200, 5, 0, 302, 17, 200]
    sample, expected = both(graph, seeds, fan_outs, 2**63 + 12345, replace, num_threads)
    assert_same(sample, expected)


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("fan_out", [1, 15, 16, 17, 100, 2048, 2049, 5000, 20_000])
def test_hub_matches_reference(hub, fan_out, replace):
    nodes = [0, 1, 2, 3]
    lists = Numbers(hub.indptr), Numbers(hub.indices)
    got = sample_one_hop(hub, nodes, fan_out, seed=99, hop=4, replace=replace)
    indptr, sources, positions = reference.sample_one_hop(*lists, nodes, fan_out, 99, 4, replace)
    assert got.indptr.tolist() == indptr
    assert got.sources.tolist() == sources
    np.testing.assert_array_equal(got.edge_ids, hub.edge_ids[positions])
    if not replace:
        for begin, end in zip(indptr, indptr[1:]):
            assert len(set(positions[begin:end])) == end - begin


@st.composite
def graphs(draw):
    num_nodes = draw(st.integers(1, 40))
    node = st.integers(0, num_nodes - 1)
    edges = draw(st.lists(st.tuples(node, node), max_size=200))
    edge_index = np.array(edges, np.int64).reshape(-1, 2).T
    return Graph.from_edge_index(edge_index, num_nodes), edge_index


@settings(max_examples=200, deadline=None)
@given(
    graphs(),
    st.data(),
    st.lists(st.one_of(st.just(-1), st.integers(1, 12)), min_size=1, max_size=4),
    st.integers(0, 2**64 - 1),
    st.booleans(),
)
def test_random_graphs(graph_and_edges, data, fan_outs, seed, replace):
    graph, edge_index = graph_and_edges
    seeds = data.draw(st.lists(st.integers(0, graph.num_nodes - 1), max_size=10))
    sample, expected = both(graph, seeds, fan_outs, seed, replace)
    assert_same(sample, expected)
    np.testing.assert_array_equal(sample.nodes[sample.edge_index], edge_index[:, sample.edge_ids])
    assert (np.diff(sample.targets) >= 0).all()


@pytest.mark.parametrize("degree", [20_000, 40_000])
@pytest.mark.parametrize("replace", [False, True])
def test_uniform_over_a_hub(degree, replace):
    """Chi-square over 100 bins of neighbouring in-edges; the incumbent's modulo bias fails this by far."""
    graph = Graph(np.array([0, degree]), np.zeros(degree, np.int32))
    rounds, fan_out, bins = 400, 500, 100
    counts = np.zeros(bins)
    for seed in range(rounds):
        picks = sample_one_hop(graph, [0], fan_out, seed=seed, replace=replace).edge_ids
        counts += np.bincount(picks * bins // degree, minlength=bins)
    expected = rounds * fan_out / bins
    chi_square = ((counts - expected) ** 2 / expected).sum()
    # 99 degrees of freedom: 99.9 % quantile 148.2. Without replacement the spread is a little smaller still.
    assert chi_square < 148.2
    halves = counts[: bins // 2].sum() / counts[bins // 2 :].sum()
    assert 0.99 < halves < 1.01


def test_uniform_over_short_rows():
    """Each in-edge of a row of 7 is picked equally often, each pair of 5 too."""
    num_nodes = 40_000
    graph = Graph(np.arange(num_nodes + 1) * 7, np.zeros(num_nodes * 7, np.int32))
    one = sample_one_hop(graph, np.arange(num_nodes), 3, seed=5).edge_ids % 7
    expected = num_nodes * 3 / 7
    assert ((np.bincount(one) - expected) ** 2 / expected).sum() < 22.5  # 6 degrees of freedom, 99.9 %
    graph = Graph(np.arange(num_nodes + 1) * 5, np.zeros(num_nodes * 5, np.int32))
    two = np.sort(sample_one_hop(graph, np.arange(num_nodes), 2, seed=6).edge_ids.reshape(-1, 2) % 5, axis=1)
    pairs = np.bincount(two[:, 0] * 5 + two[:, 1])
    pairs = pairs[pairs > 0]
    assert len(pairs) == 10
    assert ((pairs - num_nodes / 10) ** 2 / (num_nodes / 10)).sum() < 27.9  # 9 degrees of freedom, 99.9 %


def test_hops_nodes_and_seeds_draw_independently(hub):
    picks = {
        (seed, hop, node): tuple(sample_one_hop(hub, [node], 20, seed=seed, hop=hop).sources.tolist())
        for seed in (0, 1, 2**32, 2**63)
        for hop in (0, 1)
        for node in (0, 1)
    }
    assert len(set(picks.values())) == len(picks)


def test_one_hop_equals_each_hop(ragged):
    """What a node gives depends on (seed, hop, node) alone, not on the batch it is in."""
    sample = sample_neighbours(ragged, [9, 4, 100], [4, 3, 2], seed=77)
    bounds = np.cumsum((0, *sample.num_sampled_nodes))
    for hop in range(3):
        rows = range(bounds[hop], bounds[hop + 1])
        alone = [sample_one_hop(ragged, [sample.nodes[row]], (4, 3, 2)[hop], seed=77, hop=hop) for row in rows]
        begin, end = sample.indptr[bounds[hop]], sample.indptr[bounds[hop + 1]]
        np.testing.assert_array_equal(
            np.concatenate([one.sources for one in alone]), sample.nodes[sample.sources[begin:end]]
        )
        np.testing.assert_array_equal(np.concatenate([one.edge_ids for one in alone]), sample.edge_ids[begin:end])


def test_duplicate_seeds():
    """In-edges 9 to 5, 8 to 7: the case in which the incumbent returns wrong sources silently."""
    graph = Graph.from_edge_index([[9, 8, 5], [5, 7, 8]], num_nodes=10)
    sample = sample_neighbours(graph, [5, 5, 7], [-1, -1])
    assert sample.nodes.tolist() == [5, 5, 7, 9, 8]
    assert sample.nodes[sample.sources].tolist() == [9, 9, 8, 5]
    assert sample.sources[-1] == 0
    assert sample.num_sampled_nodes == (3, 2, 0)


def test_same_for_any_number_of_threads(hub):
    seeds = np.random.default_rng(0).integers(0, hub.num_nodes, 3000)
    for fan_outs in ([15, 10, 5], [-1], [30, 30]):
        for replace in (False, True):
            samples = [
                sample_neighbours(hub, seeds, fan_outs, seed=1, replace=replace, num_threads=n) for n in (1, 2, 8, 0)
            ]
            for other in samples[1:]:
                assert_equal(samples[0], other)
    one, two = (sample_one_hop(hub, seeds, 15, num_threads=n) for n in (1, 8))
    for a, b in zip(one, two):
        np.testing.assert_array_equal(a, b)


def test_concurrent_callers(hub):
    seeds = np.arange(2000)
    expected = [sample_neighbours(hub, seeds, [10, 5], seed=s, num_threads=1) for s in range(4)]
    shared = Workspace()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        jobs = [
            pool.submit(
                sample_neighbours,
                hub,
                seeds,
                [10, 5],
                seed=i % 4,
                num_threads=2,
                workspace=shared if i % 2 else None,
            )
            for i in range(64)
        ]
        for i, job in enumerate(jobs):
            assert_equal(job.result(), expected[i % 4])


def test_workspace_serves_several_graphs(ragged, hub):
    workspace = Workspace()
    for _ in range(3):
        for graph in (ragged, hub):
            assert_equal(
                sample_neighbours(graph, [1, 2, 3], [5, 5], workspace=workspace),
                sample_neighbours(graph, [1, 2, 3], [5, 5]),
            )
    again = pickle.loads(pickle.dumps(workspace))
    assert sample_neighbours(ragged, [1], [2], workspace=again).num_seeds == 1


def _child(graph, queue):
    queue.put(sample_neighbours(graph, np.arange(500), [10, 10], seed=3, num_threads=2))


@pytest.mark.parametrize(
    "method",
    [pytest.param("fork", marks=pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")), "spawn"],
)
def test_child_processes(hub, method):
    expected = sample_neighbours(hub, np.arange(500), [10, 10], seed=3, num_threads=2)
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    process = context.Process(target=_child, args=(hub, queue))
    process.start()
    got = queue.get(timeout=60)
    process.join()
    assert process.exitcode == 0
    assert_equal(got, expected)


@pytest.mark.parametrize("graph", [Graph([0], []), Graph([0, 0, 0], [])], ids=["no nodes", "no edges"])
def test_nothing_to_sample(graph):
    sample = sample_neighbours(graph, [], [3, -1])
    assert (sample.num_nodes, sample.num_edges, sample.num_seeds) == (0, 0, 0)
    assert sample.indptr.tolist() == [0]
    assert sample.edge_index.shape == (2, 0)
    one = sample_one_hop(graph, np.array([], int), 3)
    assert one.indptr.tolist() == [0]


@pytest.mark.parametrize("replace", [False, True])
def test_isolated_nodes(replace):
    graph = Graph([0, 0, 0, 0], [])
    sample = sample_neighbours(graph, [2, 0, 2], [3, 3], replace=replace)
    assert sample.nodes.tolist() == [2, 0, 2]
    assert sample.indptr.tolist() == [0, 0, 0, 0]
    assert sample.num_sampled_nodes == (3, 0, 0)
    assert sample.num_sampled_edges == (0, 0)


def test_bipartite_one_hop():
    graph = Graph.from_edge_index([[4, 3, 0], [1, 1, 0]], num_nodes=(5, 2))
    one = sample_one_hop(graph, [1, 0, 1], -1)
    assert one.sources.tolist() == [4, 3, 0, 4, 3]
    assert one.edge_ids.tolist() == [0, 1, 2, 0, 1]
    with pytest.raises(ArgumentError, match="graph: expected a graph whose sources are its targets"):
        sample_neighbours(graph, [0], [1])


def test_large_graph_without_edges_to_most_nodes():
    """Above 2^24 nodes relabelling uses a hash table, which grows between hops."""
    num_nodes = 2**24 + 50
    rng = np.random.default_rng(1)
    targets = np.sort(rng.integers(0, 3000, 60_000))
    indptr = np.searchsorted(targets, np.arange(num_nodes + 1)).astype(np.int64)
    sources = np.where(rng.random(60_000) < 0.5, rng.integers(0, 3000, 60_000), num_nodes - 1 - targets)
    graph = Graph(indptr, sources)
    seeds = [0, 1, 2, 1, 5, num_nodes - 1]
    for fan_outs in ([2, 3, 4, 5], [15, 10]):
        for threads in (1, 2):
            sample, expected = both(graph, seeds, fan_outs, 8, False, threads)
            assert_same(sample, expected)


def test_layers_match_trim_to_layer(ragged):
    sample = sample_neighbours(ragged, [1, 50, 120], [4, 3, 2], seed=2)
    for k in range(3):
        layer = sample.layer(k)
        kept = 3 - k
        assert layer.num_edges == sum(sample.num_sampled_edges[:kept])
        assert layer.num_sources == sum(sample.num_sampled_nodes[: kept + 1])
        assert layer.num_targets == sum(sample.num_sampled_nodes[:kept])
        np.testing.assert_array_equal(layer.to_edge_index(), sample.edge_index[:, : layer.num_edges])
        assert layer.indices.dtype == np.int32
        Graph(layer.indptr, layer.indices, layer.num_sources)  # validates
    for k in (-1, 3):
        with pytest.raises(ArgumentError, match="k: expected an integer in"):
            sample.layer(k)


def test_arrays_outlive_their_sample(ragged):
    nodes = sample_neighbours(ragged, np.arange(100), [5]).nodes
    copy = nodes.copy()
    for seed in range(20):
        sample_neighbours(ragged, np.arange(100), [5], seed=seed)
    np.testing.assert_array_equal(nodes, copy)
    with pytest.raises(ValueError, match="read-only"):
        nodes[0] = 1


@pytest.mark.parametrize("ids", [True, False], ids=["edge ids", "CSC order"])
def test_pickle_carries_no_graph(hub, ids):
    graph = hub if ids else Graph(hub.indptr, hub.indices)
    sample = sample_neighbours(graph, [5, 6], [3, 3])
    data = pickle.dumps(sample)
    assert len(data) < 5000
    assert_equal(pickle.loads(data), sample)
    assert_equal(pickle.loads(pickle.dumps(pickle.loads(data))), sample)
    assert repr(sample).startswith("SampledSubgraph(2 seeds, ")


def test_accepts_tensors_and_other_integers(ragged):
    torch = pytest.importorskip("torch", minversion="2")
    expected = sample_neighbours(ragged, [3, 4], [2, 2])
    for seeds in (torch.tensor([3, 4]), np.array([3, 4], np.uint8), (3, 4), np.array([9, 3, 4], "<i2")[1:]):
        assert_equal(sample_neighbours(ragged, seeds, np.array([2, 2])), expected)


BAD = [
    ({"graph": None}, "graph: expected a sage_attention.Graph, got NoneType"),
    ({"seeds": [303]}, r"seeds: expected values in \[0, 303\), got 303"),
    ({"seeds": [-1]}, r"seeds: expected values in \[0, 303\), got -1"),
    ({"seeds": [0.5]}, "seeds: expected an array of integers of shape .*, got dtype float64"),
    ({"seeds": [True]}, "seeds: expected an array of integers of shape .*, got dtype bool"),
    ({"seeds": [[1]]}, "seeds: expected an array of integers of shape .*, got shape"),
    ({"seeds": "abc"}, "seeds: expected"),
    ({"fan_outs": []}, "fan_outs: expected a non-empty list of integers, got an empty one"),
    ({"fan_outs": 5}, "fan_outs: expected a non-empty list of integers, got 5"),
    ({"fan_outs": [5, 0]}, r"fan_outs\[1\]: expected -1 \(all\) or at least 1, got 0"),
    ({"fan_outs": [-2]}, r"fan_outs\[0\]: expected an integer in \[-1, 4294967296\], got -2"),
    ({"fan_outs": [1.5]}, r"fan_outs\[0\]: expected an integer"),
    ({"seed": -1}, "seed: expected an integer in"),
    ({"seed": 2**64}, "seed: expected an integer in"),
    ({"replace": 1}, "replace: expected True or False, got 1"),
    ({"num_threads": -1}, "num_threads: expected an integer in"),
    ({"num_threads": True}, "num_threads: expected an integer in"),
    ({"workspace": 3}, "workspace: expected a Workspace or None, got int"),
]


@pytest.mark.parametrize(("bad", "message"), BAD)
def test_errors(ragged, bad, message):
    arguments = {"graph": ragged, "seeds": [1], "fan_outs": [2], **bad}
    with pytest.raises(ArgumentError, match=message):
        sample_neighbours(**arguments)


BAD_HOP = [
    ({"nodes": [303]}, r"nodes: expected values in \[0, 303\), got 303"),
    ({"fan_out": 0}, "fan_out: expected -1"),
    ({"hop": -1}, "hop: expected an integer in"),
    ({"hop": 2**31}, "hop: expected an integer in"),
]


@pytest.mark.parametrize(("bad", "message"), BAD_HOP)
def test_one_hop_errors(ragged, bad, message):
    arguments = {"graph": ragged, "nodes": [1], "fan_out": 2, **bad}
    with pytest.raises(ArgumentError, match=message):
        sample_one_hop(**arguments)


def test_broken_arrays_are_errors_not_crashes(ragged):
    """Arrays changed behind the graph's back: found where they are touched."""
    indices = ragged.indices.copy()
    indices[:] = 400
    broken = Graph.from_trusted(ragged.indptr, indices, ragged.num_sources)
    with pytest.raises(ArgumentError, match=r"indices: expected values in \[0, 303\), got 400 at position"):
        sample_neighbours(broken, np.arange(303), [5, 5], num_threads=2)
    with pytest.raises(ArgumentError, match=r"indices: expected values in \[0, 303\), got 400 at position"):
        sample_one_hop(broken, np.arange(303), 5)
    indptr = ragged.indptr.copy()
    indptr[100] = 10**9
    broken = Graph.from_trusted(indptr, ragged.indices, ragged.num_sources)
    with pytest.raises(ArgumentError, match="indptr: expected 0 <= indptr"):
        sample_neighbours(broken, np.arange(303), [5])
