"""BidirectionalNeighborSampler against PyTorch Geometric's own way to merge the same samples, which is slow."""

from __future__ import annotations

import copy
import pickle
import sys

import numpy as np
import pytest

pytest.importorskip("torch_geometric", reason="the layer takes the place of PyTorch Geometric's classes")

import torch
import torch_geometric.sampler
from torch_geometric.data import Data
from torch_geometric.sampler import EdgeSamplerInput, NegativeSampling, NodeSamplerInput

from pyg_cases import PYG, Edges, Features, copies, made_data, made_hetero, same
from sage_attention import ArgumentError
from sage_attention.pyg import BidirectionalNeighborSampler, LinkNeighborLoader, NeighborLoader, NeighborSampler, audit

forks = pytest.mark.skipif(sys.platform == "win32", reason="workers are spawned there, see the test of that")


def sampled(sampler, nodes):
    return sampler.sample_from_nodes(NodeSamplerInput(None, torch.as_tensor(nodes)))


@pytest.mark.skipif(PYG < (2, 7), reason="there is none yet")
@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize(
    ("fan_outs", "disjoint"),
    # Trees of several hops PyTorch Geometric mixes up, or breaks at.
    [([-1], False), ([-1, -1], False), ([-1, 0, -1], False), ([-1] * 4, False), ([-1], True)],
)
def test_is_what_pyg_would_merge(monkeypatch, fan_outs, disjoint, stored):
    monkeypatch.setattr("torch_geometric.sampler.neighbor_sampler.NeighborSampler", NeighborSampler)
    data = made_data(num_nodes=30, num_edges=40)
    if stored:
        edges = Edges()
        edges.put_edge_index(data.edge_index, edge_type=None, layout="coo", size=(30, 30))
        data = Features(), edges
    twin = torch_geometric.sampler.BidirectionalNeighborSampler(data, fan_outs, disjoint=disjoint)
    sampler = BidirectionalNeighborSampler(data, fan_outs, disjoint=disjoint)
    for seeds in ([3], [5, 2, 17, 29], list(range(30))):
        out, expected = sampled(sampler, seeds), sampled(twin, seeds)
        for name in ("node", "row", "col", "edge"):
            assert torch.equal(getattr(out, name), getattr(expected, name)), name
        assert (out.batch is None) == (not disjoint)
        assert not disjoint or torch.equal(out.batch, expected.batch)
        assert out.num_sampled_nodes == expected.num_sampled_nodes
        assert out.num_sampled_edges == expected.num_sampled_edges
        assert sum(out.num_sampled_nodes) == len(out.node)


@pytest.mark.parametrize("fan_outs", [[-1, -1], [-1, 0, -1], [-1] * 4])
def test_a_tree_is_what_its_seed_alone_finds(fan_outs):
    data = made_data(num_nodes=30, num_edges=40)
    seeds = [5, 2, 17, 29, 2]
    out = sampled(BidirectionalNeighborSampler(data, fan_outs, disjoint=True), seeds)
    assert out.node[: len(seeds)].tolist() == seeds
    assert out.batch[: len(seeds)].tolist() == list(range(len(seeds)))
    assert torch.equal(out.batch[out.row], out.batch[out.col])
    for tree, seed in enumerate(seeds):
        alone = sampled(BidirectionalNeighborSampler(data, fan_outs), [seed])
        assert out.node[out.batch == tree].tolist() == alone.node.tolist()
        of_tree = out.batch[out.row] == tree
        for name in ("row", "col"):
            ends = getattr(out, name)[of_tree]
            assert out.node[ends].tolist() == alone.node[getattr(alone, name)].tolist()
        assert out.edge[of_tree].tolist() == alone.edge.tolist()


@pytest.mark.parametrize("disjoint", [False, True])
@pytest.mark.parametrize("options", [{}, {"replace": True}, {"weight_attr": "weight"}])
def test_edges_are_those_of_the_data_and_at_most_as_many_as_asked_for(options, disjoint):
    data = made_data()
    out = sampled(BidirectionalNeighborSampler(data, [2, 3], disjoint=disjoint, seed=3, **options), [4, 9, 30])
    assert torch.equal(out.node[torch.stack([out.row, out.col])], data.edge_index[:, out.edge])
    edges = list(zip(out.row.tolist(), out.col.tolist(), out.edge.tolist()))
    assert len(set(edges)) == len(edges)
    assert not disjoint or bool((out.batch[out.row] == out.batch[out.col]).all())
    nodes = list(zip(out.node.tolist(), [0] * len(out.node) if out.batch is None else out.batch.tolist()))
    assert len(set(nodes)) == len(nodes)
    steps = np.cumsum(out.num_sampled_edges)
    first = torch.stack([out.row, out.col])[:, : steps[1]]
    assert np.bincount(first[1, : steps[0]], minlength=3).max() <= 2  # in-edges of the first hop
    assert np.bincount(first[0, steps[0] :], minlength=3).max() <= 2  # out-edges
    if "weight_attr" in options:
        assert bool((data.weight[out.edge] > 0).all())


def test_repeated_seeds_have_rows_and_edges_of_their_own():
    data = Data(edge_index=torch.tensor([[0, 1, 2], [1, 2, 0]]), num_nodes=3)
    out = sampled(BidirectionalNeighborSampler(data, [-1]), [1, 1, 0])
    assert out.node.tolist() == [1, 1, 0, 2]
    edges = sorted(zip(out.row.tolist(), out.col.tolist(), out.edge.tolist()))
    # 0 -> 1 to both of them, 1 -> 2 from both of them, 2 -> 0
    assert edges == [(0, 3, 1), (1, 3, 1), (2, 0, 0), (2, 1, 0), (3, 2, 2)]


def test_ways_and_hops_draw_for_themselves():
    """In a graph that goes both ways, in- and out-edges of a node stand in the same order."""
    spokes = torch.arange(1, 65)
    edge_index = torch.stack([torch.cat([spokes, spokes * 0]), torch.cat([spokes * 0, spokes])])
    data = Data(edge_index=edge_index, num_nodes=65)
    alike = 0
    for seed in range(200):
        out = sampled(BidirectionalNeighborSampler(data, [1], seed=seed), [0])
        alike += len(out.node) == 2
    assert alike < 15  # 3 of 200 are expected


def test_many_edges_stay_small():
    """Fault 8: the memory is of the order of nodes and edges, not of one times the other (400 GB here)."""
    data = made_data(7, num_nodes=100_000, num_edges=500_000, isolated=0)
    out = sampled(BidirectionalNeighborSampler(data, [-1, -1]), torch.arange(20_000))
    assert len(out.edge) > 400_000
    assert torch.equal(out.node[torch.stack([out.row, out.col])], data.edge_index[:, out.edge])


@pytest.mark.parametrize(
    "options", [{}, {"prefetch": 0}, {"num_threads": 2}, pytest.param({"num_workers": 2}, marks=forks)]
)
def test_in_loaders(options):
    data = made_data()

    def batches(**options):
        sampler = BidirectionalNeighborSampler(data, [2, 2], seed=1, num_threads=options.pop("num_threads", 0))
        loader = NeighborLoader(data, None, neighbor_sampler=sampler, batch_size=8, shuffle=True, seed=4, **options)
        assert audit(loader).ok
        loader.set_epoch(0)
        return copies(loader) if options.get("num_workers") else list(loader)

    found, expected = batches(**options), batches()
    assert len(found) == 5
    assert all(same(one, other) for one, other in zip(found, expected))
    for batch in found:
        assert torch.equal(batch.x, data.x[batch.n_id])
        assert torch.equal(batch.edge_attr, data.edge_attr[batch.e_id])


def test_links():
    data = made_data()
    sampler = BidirectionalNeighborSampler(data, [2])
    for batch in LinkNeighborLoader(data, None, neighbor_sampler=sampler, batch_size=16):
        assert torch.equal(batch.n_id[batch.edge_label_index], data.edge_index[:, batch.input_id])
        assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])


def test_bidirectional_subgraphs():
    out = sampled(BidirectionalNeighborSampler(made_data(), [2, 2], "bidirectional"), [1, 2])
    edges = set(zip(out.row.tolist(), out.col.tolist()))
    assert edges == {(target, source) for source, target in edges}


def test_they_travel_and_are_copied():
    sampler = BidirectionalNeighborSampler(made_data(), [2, 2], seed=9)
    expected = sampled(sampler, [3, 4])
    for other in (pickle.loads(pickle.dumps(sampler)), copy.copy(sampler), copy.deepcopy(sampler)):
        assert str(sampled(other, [3, 4])) == str(expected)
    sampler.share()
    assert str(sampled(sampler, [3, 4])) == str(expected)


def test_what_can_be_set():
    data = made_data()
    sampler = BidirectionalNeighborSampler(data, [-1])
    sampler.num_neighbors = [-1, -1]
    sampler.disjoint = True
    assert str(sampled(sampler, [3, 4])) == str(
        sampled(BidirectionalNeighborSampler(data, [-1, -1], disjoint=True), [3, 4])
    )
    sampler.num_neighbors = []
    assert sampled(sampler, [3, 4]).num_sampled_nodes == [2]


def test_errors():
    data = made_data()
    with pytest.raises(RuntimeError, match="edge delimited"):
        BidirectionalNeighborSampler(data, {("node", "edge", "node"): [1]})
    with pytest.raises(NotImplementedError, match="temporal"):
        BidirectionalNeighborSampler(data, [1], time_attr="time")
    with pytest.raises(NotImplementedError, match="heterogeneous"):
        BidirectionalNeighborSampler(made_hetero(), [1])
    for options in ({"subgraph_type": "induced"}, {"directed": False}):
        with pytest.raises(ArgumentError, match="subgraph_type: expected 'directional' or 'bidirectional'"):
            BidirectionalNeighborSampler(data, [1], **options)
    sampler = BidirectionalNeighborSampler(data, [1])
    edges = EdgeSamplerInput(None, torch.tensor([0]), torch.tensor([1]))
    with pytest.raises(RuntimeError, match="negative sampling"):
        sampler.sample_from_edges(edges, NegativeSampling("binary"))
    with pytest.raises(NotImplementedError, match="temporal"):
        sampler.sample_from_nodes(NodeSamplerInput(None, torch.tensor([1]), torch.tensor([1])))
