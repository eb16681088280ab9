"""NeighborSampler against the slow model, option by option; its errors; distributions."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from scipy.stats import chisquare

pytest.importorskip("torch_geometric", reason="the layer takes the place of PyTorch Geometric's classes")

import torch
from torch_geometric import sampler as pyg_sampler
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import EdgeSamplerInput, NodeSamplerInput
from torch_geometric.sampler.base import DataType, NumNeighbors, SubgraphType

from pyg_cases import BUYS, KNOWS, PYG, SOLD, made_data, made_hetero, twin
from sage_attention import ArgumentError
from sage_attention.pyg import NeighborSampler


def sampled(sampler, nodes, time=None, input_type=None):
    return sampler.sample_from_nodes(NodeSamplerInput(None, torch.as_tensor(nodes), time, input_type))


def assert_is(out, expected, orders):
    """An output of a homogeneous graph is what the slow model says."""
    assert out.node.tolist() == expected.nodes["node"]
    assert out.row.tolist() == expected.sources[0]
    assert out.col.tolist() == expected.targets[0]
    assert out.edge.tolist() == orders[0][expected.positions[0]].tolist()
    assert out.num_sampled_nodes == expected.num_sampled_nodes["node"]
    assert out.num_sampled_edges == expected.num_sampled_edges[0]
    assert {t.dtype for t in (out.node, out.row, out.col, out.edge)} == {torch.int64}


@pytest.mark.parametrize("fan_outs", [[3, 2], [-1, 2, 1], [0, 4], [50], []])
@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("disjoint", [False, True])
def test_nodes_edges_and_counts_are_those_of_the_slow_model(fan_outs, replace, disjoint):
    data = made_data()
    sampler = NeighborSampler(data, fan_outs, replace=replace, disjoint=disjoint, seed=7)
    seeds = [5, 1, 30, 39, 1]  # one twice, one isolated
    out = sampled(sampler, seeds)
    expected, orders = twin(data, fan_outs, {"node": seeds}, seed=7, replace=replace, disjoint=disjoint)
    assert_is(out, expected, orders)
    assert (out.batch is None) == (not disjoint)
    if disjoint:
        assert out.batch.tolist() == expected.trees["node"]
    assert out.orig_row is None
    assert out.orig_col is None
    assert out.metadata == (None, None)


@pytest.mark.parametrize("time_attr", ["time", "edge_time"])
@pytest.mark.parametrize("strategy", ["uniform", "last"])
@pytest.mark.parametrize("replace", [False, True])
def test_times_of_nodes_and_of_edges(time_attr, strategy, replace):
    data = made_data(1)
    sampler = NeighborSampler(data, [2, 3], replace=replace, time_attr=time_attr, temporal_strategy=strategy, seed=3)
    seeds, times = [5, 1, 30, 5], torch.tensor([10, 3, 19, 2])
    out = sampled(sampler, seeds, times)
    expected, orders = twin(
        data, [2, 3], {"node": seeds}, seed=3, replace=replace, disjoint=True, time_attr=time_attr,
        seed_times={"node": times.tolist()}, last_only=strategy == "last",
    )  # fmt: skip
    assert_is(out, expected, orders)
    assert out.batch.tolist() == expected.trees["node"]
    assert out.metadata[1] is times or torch.equal(out.metadata[1], times)
    found = data[time_attr][out.node[out.row] if time_attr == "time" else out.edge]
    assert (found <= times[out.batch[out.col]]).all()
    assert sampler.is_temporal
    assert sampler.disjoint


@pytest.mark.parametrize("time_attr", ["time", "edge_time"])
def test_what_is_as_old_as_the_seed_is_picked(time_attr):
    data = Data(edge_index=torch.tensor([[1, 2, 3], [0, 0, 0]]), num_nodes=4)
    data.time, data.edge_time = torch.tensor([9, 4, 5, 6]), torch.tensor([4, 5, 6])
    out = sampled(NeighborSampler(data, [-1], time_attr=time_attr), [0], torch.tensor([5]))
    assert out.node.tolist() == [0, 1, 2]


def test_seeds_without_a_time_of_their_own_have_that_of_their_node():
    data = made_data(1)
    sampler = NeighborSampler(data, [4], time_attr="time", seed=3)
    own = sampled(sampler, [5, 1, 30])
    given = sampled(sampler, [5, 1, 30], data.time[[5, 1, 30]])
    assert own.edge.tolist() == given.edge.tolist()
    with pytest.raises(ValueError, match="Seed time needs to be specified"):
        sampled(NeighborSampler(data, [4], time_attr="edge_time"), [5])


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("fan_out", [-1, 1, 3, 50])
def test_weights(replace, fan_out):
    """Zeros are never picked (fault 5), also where the fan-out takes all."""
    data = made_data(2)
    sampler = NeighborSampler(data, [fan_out, 2], replace=replace, weight_attr="weight", seed=11)
    seeds = list(range(0, 40, 4))
    out = sampled(sampler, seeds)
    expected, orders = twin(data, [fan_out, 2], {"node": seeds}, seed=11, replace=replace, weight_attr="weight")
    assert_is(out, expected, orders)
    assert (data.weight[out.edge] > 0).all()


def test_weights_together_with_times():
    data = made_data(2)
    sampler = NeighborSampler(data, [3, 2], time_attr="edge_time", weight_attr="weight", seed=11)
    seeds, times = [1, 2, 3], torch.tensor([15, 9, 19])
    expected, orders = twin(
        data, [3, 2], {"node": seeds}, seed=11, disjoint=True, weight_attr="weight", time_attr="edge_time",
        seed_times={"node": times.tolist()},
    )  # fmt: skip
    assert_is(sampled(sampler, seeds, times), expected, orders)


FAN_OUTS = {BUYS: [3, 0, 2], SOLD: [2, 4, -1], KNOWS: [0, 1, 1]}


@pytest.mark.parametrize("disjoint", [False, True])
@pytest.mark.parametrize("fan_outs", [[3, 2], FAN_OUTS])
def test_types(fan_outs, disjoint):
    data = made_hetero()
    sampler = NeighborSampler(data, fan_outs, disjoint=disjoint, seed=5)
    assert (sampler.node_types, sampler.edge_types) == data.metadata()
    out = sampled(sampler, [4, 0, 19], input_type="item")
    expected, orders = twin(data, fan_outs, {"item": [4, 0, 19]}, seed=5, disjoint=disjoint)
    for name in data.node_types:
        assert out.node[name].tolist() == expected.nodes[name]
        assert out.num_sampled_nodes[name] == expected.num_sampled_nodes[name]
        assert not disjoint or out.batch[name].tolist() == expected.trees[name]
    for number, edge_type in enumerate(data.edge_types):
        assert out.row[edge_type].tolist() == expected.sources[number]
        assert out.col[edge_type].tolist() == expected.targets[number]
        assert out.edge[edge_type].tolist() == orders[number][expected.positions[number]].tolist()
        assert out.num_sampled_edges[edge_type] == expected.num_sampled_edges[number]


def test_types_with_times_of_nodes():
    data = made_hetero(3)
    sampler = NeighborSampler(data, [3, 3], time_attr="time", seed=5)
    out = sampled(sampler, [4, 0, 19], torch.tensor([12, 5, 19]), "item")
    expected, orders = twin(
        data, [3, 3], {"item": [4, 0, 19]}, seed=5, disjoint=True, time_attr="time", seed_times={"item": [12, 5, 19]}
    )
    for number, edge_type in enumerate(data.edge_types):
        assert out.edge[edge_type].tolist() == orders[number][expected.positions[number]].tolist()
    assert sampler.node_time.keys() == {"user", "item"}
    assert sampler.edge_time is None


def test_types_without_times_are_not_limited():
    data = made_hetero(3)
    del data["user"].time
    data["item"].time = torch.full((20,), 100)
    out = sampled(NeighborSampler(data, [-1], time_attr="time"), [4, 0], torch.tensor([1, 1]), "item")
    assert out.row[BUYS].numel() == int(torch.isin(data[BUYS].edge_index[1], torch.tensor([4, 0])).sum())
    out = sampled(NeighborSampler(data, [-1], time_attr="time"), [4, 0], torch.tensor([1, 1]), "user")
    assert out.row[SOLD].numel() == 0
    assert out.row[KNOWS].numel() > 0


def test_seeds_of_a_type_that_no_edge_leads_to():
    data = HeteroData()
    data["a"].num_nodes, data["b"].num_nodes = 3, 4
    data["a", "to", "b"].edge_index = torch.tensor([[0, 1, 2], [1, 2, 3]])
    out = sampled(NeighborSampler(data, [2, 2]), [2, 0], input_type="a")
    assert out.node["a"].tolist() == [2, 0]
    assert out.node["b"].numel() == out.row["a", "to", "b"].numel() == 0
    assert out.num_sampled_nodes == {"a": [2, 0, 0], "b": [0, 0, 0]}
    assert out.num_sampled_edges == {("a", "to", "b"): [0, 0]}


@pytest.mark.parametrize("made", [made_data, made_hetero])
def test_backward_is_forward_on_the_turned_graph(made):
    data = made(4)
    turned = copy.copy(data)
    if made is made_data:
        turned.edge_index = data.edge_index.flip(0)
        backward, forward = (
            sampled(NeighborSampler(graph, [2, 2], sample_direction=way, seed=1), [3, 8])
            for graph, way in ((data, "backward"), (turned, "forward"))
        )
        assert torch.equal(backward.node, forward.node)
        assert torch.equal(backward.row, forward.col)
        assert torch.equal(backward.col, forward.row)
        assert torch.equal(backward.edge, forward.edge)
        ends = torch.stack([backward.node[backward.row], backward.node[backward.col]])
        assert torch.equal(ends, data.edge_index[:, backward.edge])
        return
    sampler = NeighborSampler(data, {BUYS: [2, 2], SOLD: [1, 1], KNOWS: [0, 3]}, sample_direction="backward", seed=1)
    assert sampler.edge_types == data.edge_types
    out = sampled(sampler, [3, 8], input_type="user")
    assert out.edge.keys() == set(data.edge_types)
    assert out.num_sampled_edges[BUYS][0] > 0
    assert out.num_sampled_edges[SOLD][0] == out.num_sampled_edges[KNOWS][0] == 0
    for edge_type in data.edge_types:
        ends = torch.stack([out.node[edge_type[0]][out.row[edge_type]], out.node[edge_type[-1]][out.col[edge_type]]])
        assert torch.equal(ends, data[edge_type].edge_index[:, out.edge[edge_type]])


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_induced_is_all_edges_between_the_nodes(direction):
    data = made_data(5)
    sampler = NeighborSampler(data, [2, 2], "induced", sample_direction=direction, seed=1)
    out = sampled(sampler, [3, 8, 39])
    plain = sampled(NeighborSampler(data, [2, 2], sample_direction=direction, seed=1), [3, 8, 39])
    assert torch.equal(out.node, plain.node)
    inside = torch.isin(data.edge_index, out.node).all(0).nonzero().view(-1)
    assert out.edge.sort().values.tolist() == inside.tolist()
    ends = torch.stack([out.node[out.row], out.node[out.col]])
    assert torch.equal(ends, data.edge_index[:, out.edge])
    assert out.num_sampled_nodes is None
    assert out.num_sampled_edges is None


def test_induced_over_types():
    data = made_hetero(5)
    out = sampled(NeighborSampler(data, [2, 2], SubgraphType.induced, seed=1), [3, 8], input_type="item")
    for edge_type in data.edge_types:
        sources, targets = data[edge_type].edge_index
        inside = torch.isin(sources, out.node[edge_type[0]]) & torch.isin(targets, out.node[edge_type[-1]])
        assert out.edge[edge_type].sort().values.tolist() == inside.nonzero().view(-1).tolist()


@pytest.mark.parametrize("limits", [None, {}, {"strict": True}, {"window": 4}])
@pytest.mark.parametrize("time_attr", ["time", "edge_time"])
def test_induced_in_trees_is_all_edges_of_a_tree_not_from_its_future(limits, time_attr):
    """The same by looking at every edge for every tree."""
    data, seeds, now = made_data(5), [3, 8, 3, 21], torch.tensor([12, 19, 4, 9])
    options = {"disjoint": True} if limits is None else {"time_attr": time_attr, **limits}
    times = None if limits is None else now
    out = sampled(NeighborSampler(data, [3, 2], "induced", seed=1, **options), seeds, times)
    plain = sampled(NeighborSampler(data, [3, 2], seed=1, **options), seeds, times)
    assert torch.equal(out.node, plain.node)
    assert torch.equal(out.batch, plain.batch)
    expected = []
    for at, (tree, node) in enumerate(zip(out.batch.tolist(), out.node.tolist())):
        place = {int(out.node[i]): i for i in (out.batch == tree).nonzero().view(-1)}
        for edge, (source, target) in enumerate(data.edge_index.t().tolist()):
            when = int(data.time[source] if time_attr == "time" else data.edge_time[edge])
            age = 1 if limits is None else int(now[tree]) - when
            allowed = age >= int((limits or {}).get("strict", False)) and age <= (limits or {}).get("window", 99)
            if target == node and source in place and allowed:
                expected.append((at, place[source], edge))
    assert sorted(zip(out.col.tolist(), out.row.tolist(), out.edge.tolist())) == sorted(expected)
    assert (out.col[1:] >= out.col[:-1]).all()
    assert len(expected) > len(set(plain.edge.tolist())) / 2


def test_induced_in_trees_over_types_some_of_them_without_a_time():
    data = made_hetero(5)
    del data["user"].time
    options = {"time_attr": "time", "seed": 1}
    sampler = NeighborSampler(data, [3, 3], "induced", **options)
    out = sampler._sample({"user": torch.tensor([1, 4]), "item": torch.tensor([3, 8])})
    for edge_type in data.edge_types:
        source, target = edge_type[0], edge_type[-1]
        expected = []
        for edge, (a, b) in enumerate(data[edge_type].edge_index.t().tolist()):
            for at, (tree, node) in enumerate(zip(out.batch[target].tolist(), out.node[target].tolist())):
                # trees 0 and 1 are of users, which have no time; only items are too young to be seen
                limit = None if tree < 2 else int(data["item"].time[[3, 8][tree - 2]])
                young = source == "item" and limit is not None and int(data["item"].time[a]) > limit
                if node == b and not young:
                    known = (out.batch[source] == tree) & (out.node[source] == a)
                    expected += [(at, int(i), edge) for i in known.nonzero().view(-1)]
        got = zip(out.col[edge_type].tolist(), out.row[edge_type].tolist(), out.edge[edge_type].tolist())
        assert sorted(got) == sorted(expected)


def test_bidirectional_in_trees_stays_in_them():
    data = made_data(6)
    out = sampled(NeighborSampler(data, [3, 2], "bidirectional", disjoint=True, seed=1), [3, 8, 3])
    plain = sampled(NeighborSampler(data, [3, 2], disjoint=True, seed=1), [3, 8, 3])
    assert torch.equal(out.batch[out.row], out.batch[out.col])
    once = set(zip(plain.row.tolist(), plain.col.tolist()))
    assert set(zip(out.row.tolist(), out.col.tolist())) == once | {(b, a) for a, b in once}


def test_bidirectional_is_each_edge_both_ways():
    data = made_data(6)
    out = sampled(NeighborSampler(data, [3, 2], "bidirectional", seed=1), [3, 8])
    plain = sampled(NeighborSampler(data, [3, 2], seed=1), [3, 8])
    found = set(zip(out.row.tolist(), out.col.tolist()))
    one_way = list(zip(plain.row.tolist(), plain.col.tolist()))
    assert found == set(one_way) | {(col, row) for row, col in one_way}
    assert len(found) == len(out.row) == len(out.edge)
    assert (out.col.diff() >= 0).all()
    assert out.num_sampled_nodes is None
    assert out.orig_row is None
    for row, col, edge in zip(out.row, out.col, out.edge):
        assert {int(out.node[row]), int(out.node[col])} == set(data.edge_index[:, edge].tolist())


def test_bidirectional_can_keep_the_edges_as_they_were():
    sampler = NeighborSampler(made_data(6), [3, 2], "bidirectional", seed=1)
    sampler.keep_orig_edges = True
    out = sampled(sampler, [3, 8])
    plain = sampled(NeighborSampler(made_data(6), [3, 2], seed=1), [3, 8])
    assert torch.equal(out.orig_row, plain.row)
    assert torch.equal(out.orig_col, plain.col)
    assert out.num_sampled_nodes == plain.num_sampled_nodes


def test_bidirectional_over_types_drops_edge_ids():
    data = made_hetero(5)
    del data[KNOWS]
    out = sampled(NeighborSampler(data, [3], "bidirectional", seed=1), [3, 8], input_type="item")
    assert torch.equal(out.row[BUYS], out.col[SOLD])
    assert torch.equal(out.col[BUYS], out.row[SOLD])
    assert out.edge[BUYS] is None
    assert out.edge[SOLD] is None


@pytest.mark.skipif(PYG < (2, 7), reason="there is none yet")
def test_within_the_bidirectional_sampler_of_pyg(monkeypatch):
    """Fault 8: the merge is PyTorch Geometric's own, but the samples it merges can be ours."""
    monkeypatch.setattr("torch_geometric.sampler.neighbor_sampler.NeighborSampler", NeighborSampler)
    data = Data(edge_index=torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]]), num_nodes=5)
    out = sampled(pyg_sampler.BidirectionalNeighborSampler(data, [-1, -1]), [2])
    assert sorted(out.node.tolist()) == [0, 1, 2, 3, 4]
    assert sorted(out.edge.tolist()) == [0, 1, 2, 3]


def test_bidirectional_of_many_edges_stays_small():
    """Fault 8: memory is of the order of the edges, not of nodes times edges (80 GB here)."""
    data = made_data(7, num_nodes=100_000, num_edges=500_000, isolated=0)
    out = sampled(NeighborSampler(data, [5, 5], "bidirectional", seed=1), torch.arange(5000))
    assert out.node.numel() > 50_000
    assert out.row.numel() > 100_000
    assert torch.equal(out.row.sort().values, out.col.sort().values)


@pytest.mark.parametrize("made", [made_data, made_hetero])
def test_narrow_ids(made):
    input_type = None if made is made_data else "item"
    wide, narrow = (
        sampled(
            NeighborSampler(made(8, dtype=dtype), [3, 3], seed=2), torch.tensor([3, 8], dtype=dtype), None, input_type
        )
        for dtype in (torch.int64, torch.int32)
    )
    assert str(wide) == str(narrow)


def test_is_sorted_is_not_believed():
    data = made_data(9)
    for time_attr in (None, "time", "edge_time"):
        times = torch.tensor([12, 15])
        truth, lie = (
            sampled(NeighborSampler(data, [3, 3], time_attr=time_attr, is_sorted=said, seed=2), [3, 8], times)
            for said in (False, True)
        )
        assert str(truth) == str(lie)


def test_memory_and_threads_change_nothing():
    data = made_data(9, num_nodes=3000, num_edges=60_000)
    first, second = (
        sampled(NeighborSampler(data, [10, 10], share_memory=share, num_threads=threads, seed=2), torch.arange(500))
        for share, threads in ((False, 1), (True, 2))
    )
    assert str(first) == str(second)
    assert torch.equal(first.edge, second.edge)


def test_types_are_the_same_on_any_number_of_threads():
    """Fault 2: the incumbent's threads race for one generator over types."""
    data = made_hetero(9, num_users=3000, num_items=3000, num_edges=60_000)
    outs = [
        sampled(NeighborSampler(data, [10, 10], num_threads=threads, seed=2), torch.arange(2000), None, "item")
        for threads in (1, 2, 2, 2)
    ]
    for out in outs[1:]:
        for edge_type in data.edge_types:
            assert torch.equal(out.edge[edge_type], outs[0].edge[edge_type])


def test_repeated_seeds_keep_their_own_neighbours():
    """Fault 3: the incumbent returns sources [7, 7, 9]."""
    data = Data(edge_index=torch.tensor([[9, 8], [5, 7]]), num_nodes=10)
    out = sampled(NeighborSampler(data, [-1]), [5, 5, 7])
    assert out.node[out.row].tolist() == [9, 9, 8]
    assert out.node[out.col].tolist() == [5, 5, 7]
    assert out.num_sampled_nodes == [3, 2]


@pytest.mark.parametrize("time_attr", ["time", "edge_time"])
def test_times_beyond_32_bits_on_narrow_ids(time_attr):
    """Fault 4: the incumbent cuts times to the width of the ids."""
    late = 2**40
    data = Data(edge_index=torch.tensor([[1, 2], [0, 0]], dtype=torch.int32), num_nodes=3)
    data.time = torch.tensor([late, late, late + 2**33])
    data.edge_time = torch.tensor([late, late + 2**33])
    out = sampled(NeighborSampler(data, [-1], time_attr=time_attr), [0], torch.tensor([late + 1]))
    assert out.node.tolist() == [0, 1]


@pytest.mark.parametrize("disjoint", [False, True])
def test_a_batch_needs_no_table_of_all_nodes(disjoint):
    """Fault 9: the incumbent fills 8 bytes for each node of graphs below a million, in each call; here that is 8 TB."""
    data = HeteroData()
    data["few"].num_nodes, data["many"].num_nodes = 2, 2**40
    edge_type = ("many", "to", "few")
    data[edge_type].edge_index = torch.tensor([[2**40 - 1, 5, 2**33], [0, 0, 1]])
    out = sampled(NeighborSampler(data, [-1], disjoint=disjoint), [0, 1], input_type="few")
    assert out.node["many"].tolist() == [2**40 - 1, 5, 2**33]


@pytest.mark.parametrize("degree", [20_000, 40_000])
@pytest.mark.parametrize("replace", [False, True])
def test_picks_of_a_hub_are_uniform(degree, replace):
    """Fault 1: in the incumbent low positions come up to twice as often."""
    edges = torch.stack([torch.arange(1, degree + 1), torch.zeros(degree, dtype=torch.int64)])
    sampler = NeighborSampler(Data(edge_index=edges, num_nodes=degree + 1), [100], replace=replace)
    torch.manual_seed(1)
    counts = sum(np.bincount(sampled(sampler, [0]).edge.numpy() * 20 // degree, minlength=20) for _ in range(400))
    assert counts.sum() == 40_000
    assert chisquare(counts).pvalue > 1e-4


def test_weighted_picks_of_a_hub():
    degree = 30_000
    weight = torch.arange(degree) % 7
    edges = torch.stack([torch.arange(1, degree + 1), torch.zeros(degree, dtype=torch.int64)])
    data = Data(edge_index=edges, num_nodes=degree + 1, weight=weight.double())
    sampler = NeighborSampler(data, [100], replace=True, weight_attr="weight")
    torch.manual_seed(1)
    counts = sum(np.bincount(weight[sampled(sampler, [0]).edge].numpy(), minlength=7) for _ in range(200))
    assert counts[0] == 0
    expected = np.bincount(weight.numpy(), weights=weight.numpy())[1:]
    assert chisquare(counts[1:], expected / expected.sum() * counts.sum()).pvalue > 1e-4


def test_draws_follow_torch_or_the_seed():
    data = made_data(9, num_edges=600)
    free, named = NeighborSampler(data, [2, 2]), NeighborSampler(data, [2, 2], seed=1)

    def drawn(sampler, torch_seed):
        torch.manual_seed(torch_seed)
        return [sampled(sampler, range(20)).edge.tolist() for _ in range(2)]

    assert drawn(free, 0) == drawn(free, 0)
    assert drawn(free, 0) != drawn(free, 1)
    assert drawn(free, 0)[0] != drawn(free, 0)[1]
    assert drawn(named, 0) == drawn(named, 1)
    assert drawn(named, 0)[0] == drawn(named, 0)[1]


def test_empty_graphs():
    for data in (Data(num_nodes=3), Data(edge_index=torch.empty(2, 0, dtype=torch.int64), num_nodes=3)):
        out = sampled(NeighborSampler(data, [2, -1]), [2, 0])
        assert (out.node.tolist(), out.row.tolist(), out.num_sampled_nodes, out.num_sampled_edges) == (
            [2, 0], [], [2, 0, 0], [0, 0],
        )  # fmt: skip
    out = sampled(NeighborSampler(Data(num_nodes=0), [2]), torch.empty(0, dtype=torch.int64))
    assert out.node.numel() == 0
    out = sampled(NeighborSampler(made_data(), [2, 2]), torch.tensor([]))  # float32, as torch makes it
    assert (out.node.numel(), out.num_sampled_nodes) == (0, [0, 0, 0])


def test_nodes_that_are_counted_by_the_edges():
    data = Data(edge_index=torch.tensor([[0, 7], [1, 2]]))
    assert sampled(NeighborSampler(data, [1]), [2]).node.tolist() == [2, 7]
    assert NeighborSampler(data, [1]).num_nodes == 8


def test_what_other_code_reads():
    data, hetero = made_data(), made_hetero()
    sampler = NeighborSampler(data, [3, 2])
    assert len(sampler.num_neighbors) == 2
    assert sampler.num_neighbors.values == [3, 2]
    assert sampler.data_type == DataType.homogeneous
    assert (sampler.num_nodes, sampler.node_types, sampler.edge_types) == (40, [None], [None])
    assert (sampler.is_hetero, sampler.is_temporal, sampler.disjoint) == (False, False, False)
    assert (sampler.edge_permutation, sampler.node_time, sampler.edge_time) == (None, None, None)
    sampler.num_neighbors = [1]
    assert sampled(sampler, [1]).num_sampled_edges == [1]
    sampler.disjoint = True
    assert sampled(sampler, [1]).batch.tolist() == [0, 0]
    typed = NeighborSampler(hetero, NumNeighbors({BUYS: [1]}, default=[2]), time_attr="edge_time")
    assert typed.num_neighbors.get_values(hetero.edge_types) == {BUYS: [1], SOLD: [2], KNOWS: [2]}
    assert (typed.data_type, typed.num_nodes) == (DataType.heterogeneous, {"user": 30, "item": 20})
    assert typed.edge_time.keys() == set(hetero.edge_types)
    assert typed.node_time is None


def test_samplers_travel_and_are_copied():
    sampler = NeighborSampler(made_data(), [3, 2], seed=4)
    out = sampled(sampler, [4, 9])
    for other in (pickle.loads(pickle.dumps(sampler)), copy.copy(sampler), copy.deepcopy(sampler)):
        assert str(sampled(other, [4, 9])) == str(out)
    other = copy.copy(sampler)
    other.num_neighbors = [0]
    found = other.sample_from_edges(EdgeSamplerInput(None, torch.tensor([1]), torch.tensor([2])))
    assert found.num_sampled_edges == [0]


def test_an_old_argument_warns():
    with pytest.warns(UserWarning, match="subgraph_type='induced'"):
        sampler = NeighborSampler(made_data(), [1], directed=False)
    assert sampler.subgraph_type == SubgraphType.induced


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"subgraph_type": "sideways"}, ValueError, "sideways"),
        ({"sample_direction": "sideways"}, ArgumentError, "sample_direction: expected 'forward' or 'backward'"),
        ({"temporal_strategy": "first"}, ArgumentError, "temporal_strategy: expected 'uniform', 'last' or 'recency'"),
        ({"time_attr": "age"}, ValueError, "'age' is neither a node-level or edge-level attribute"),
        ({"time_attr": "x"}, ArgumentError, "time_attr.*integers"),
        ({"time_attr": "time", "sample_direction": "backward"}, NotImplementedError, "backward"),
        ({"weight_attr": "mass"}, ArgumentError, "weight_attr: expected .* attribute of edges, got 'mass'"),
        ({"weight_attr": "x"}, ArgumentError, r"weight_attr.*numbers of shape \[200\]"),
        ({"weight_attr": "below"}, ArgumentError, "weight_attr.*at least 0, got -1.0 at position 7"),
        ({"seed": -1}, ArgumentError, "seed: expected"),
        ({"num_threads": 1.5}, ArgumentError, "num_threads: expected"),
        ({"num_neighbors": 5}, ArgumentError, "num_neighbors: expected"),
        ({"num_neighbors": [2, -3]}, ArgumentError, "num_neighbors: expected"),
        ({"num_neighbors": [0.5]}, ArgumentError, "num_neighbors: expected"),
    ],
)
@pytest.mark.parametrize("made", [made_data, made_hetero])
def test_errors_of_the_constructor(made, change, error, message):
    data = made()
    for store in [data] if made is made_data else data.edge_stores:
        store.below = torch.ones(store.num_edges)
        store.below[7] = -1
    if made is made_hetero:
        message = message.replace("[200", "[120")
        if change == {"weight_attr": "x"}:
            pytest.skip("no edges have that name")
    with pytest.raises(error, match=message):
        NeighborSampler(data, **{"num_neighbors": [2], **change})


def test_errors_over_types():
    data = made_hetero()
    both = copy.copy(data)
    both["user"].edge_time = torch.zeros(30, dtype=torch.int64)
    with pytest.raises(ValueError, match="holds both node-level and edge-level information"):
        NeighborSampler(both, [1], time_attr="edge_time")
    seeds = NodeSamplerInput(None, torch.tensor([1]), None, "item")
    with pytest.raises(ValueError, match="hops must be the same across all"):
        NeighborSampler(data, {BUYS: [1], SOLD: [1, 2], KNOWS: [1]}).sample_from_nodes(seeds)
    with pytest.raises(ValueError, match="Missing number of neighbors"):
        NeighborSampler(data, {BUYS: [1]}).sample_from_nodes(seeds)
    if PYG < (2, 7):
        return
    with pytest.raises(ValueError, match="Not all edge types"):
        NeighborSampler(data, {**{key: [1] for key in data.edge_types}, ("a", "b", "c"): [1]}).sample_from_nodes(seeds)


def test_errors_of_a_call():
    sampler = NeighborSampler(made_data(), [1])
    for wrong in ([40], [-1]):
        with pytest.raises(ArgumentError, match=f"expected values in \\[0, 40\\), got {wrong[0]}"):
            sampled(sampler, wrong)
    with pytest.raises(ArgumentError, match="integers"):
        sampled(sampler, [0.5])


def test_edges_to_nodes_that_are_not_there():
    with pytest.raises(ArgumentError, match="9"):
        NeighborSampler(Data(edge_index=torch.tensor([[0, 9], [1, 1]]), num_nodes=3), [1])


def test_sparse_matrices_of_torch_are_refused_with_a_reason():
    data = Data(num_nodes=2)
    data.adj_t = torch.eye(2).to_sparse_csr()
    with pytest.raises(ArgumentError, match=r"data.adj_t: expected .*edge_index"):
        NeighborSampler(data, [1])


@pytest.mark.parametrize("time_attr", ["time", "edge_time"])
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("window", [None, 0, 6])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temporal_strategy": "last"},
        {"temporal_strategy": "recency", "decay": 0.3},
        {"weight_attr": "weight"},
        {"temporal_strategy": "recency", "decay": 0.3, "weight_attr": "weight", "replace": True},
        {"replace": True},
    ],
)
def test_strict_times_and_windows(time_attr, strict, window, options):
    """[t - window, t) or [t - window, t], with everything else that says how is picked."""
    data = made_data(1)
    sampler = NeighborSampler(data, [3, 2], time_attr=time_attr, strict=strict, window=window, seed=3, **options)
    seeds, times = [5, 1, 30, 5, 9], torch.tensor([10, 3, 19, 2, 14])
    out = sampled(sampler, seeds, times)
    expected, orders = twin(
        data, [3, 2], {"node": seeds}, seed=3, disjoint=True, time_attr=time_attr,
        seed_times={"node": times.tolist()}, strict=strict, window=window,
        last_only=options.get("temporal_strategy") == "last", replace=options.get("replace", False),
        weight_attr=options.get("weight_attr"), decay=options.get("decay"),
    )  # fmt: skip
    assert_is(out, expected, orders)
    found = data[time_attr][out.node[out.row] if time_attr == "time" else out.edge]
    age = times[out.batch[out.col]] - found
    assert (age >= int(strict)).all()
    assert window is None or (age <= window).all()


def test_strategies_of_the_core():
    """What the core can do is said in its words, and what does not go together is refused when the sampler is made."""
    data = made_data(1)
    seeds = [5, 1, 30, 9]
    out = sampled(NeighborSampler(data, [3, 2], strategy="labor", seed=3), seeds)
    expected, orders = twin(data, [3, 2], {"node": seeds}, seed=3, labor="labor")
    assert_is(out, expected, orders)
    for change, message in [
        ({"strategy": "sideways"}, "strategy: expected one of"),
        ({"strategy": "labor", "replace": True}, "replace: expected False"),
        ({"strategy": "labor", "weight_attr": "weight"}, "have weights"),
        ({"strategy": "labor", "temporal_strategy": "last", "time_attr": "time"}, "strategy: expected None beside"),
        ({"strict": True}, "strict, window, decay: expected time_attr"),
        ({"window": 3}, "strict, window, decay: expected time_attr"),
        ({"strategy": "recency", "decay": 1.0}, "strict, window, decay: expected time_attr"),
        ({"temporal_strategy": "recency", "time_attr": "time"}, "decay: expected a number"),
        ({"temporal_strategy": "recency", "time_attr": "time", "decay": -1}, "decay: expected a number in"),
        ({"decay": 1.0, "time_attr": "time"}, "decay: expected None with strategy 'uniform'"),
        ({"window": -1, "time_attr": "time"}, "window: expected"),
    ]:
        with pytest.raises(ArgumentError, match=message):
            NeighborSampler(data, [2], **change)


@pytest.mark.parametrize("kind", ["edge_time", "weight"])
def test_no_array_of_a_sampler_lies_in_a_tensor_of_the_data(kind):
    """torch gives a tensor other memory when it is shared; what looked at the old one would look at nothing."""
    data = Data(edge_index=torch.tensor([[1, 2, 3], [0, 0, 1]]), num_nodes=4)
    data.edge_time, data.weight = torch.tensor([3, 4, 5]), torch.ones(3, dtype=torch.float64)
    options = {"time_attr": "edge_time"} if kind == "edge_time" else {"weight_attr": "weight"}
    sampler = NeighborSampler(data, [-1], **options)
    ((_, relation),) = sampler._sampler.relations.items()
    arrays = [relation.graph.indptr, relation.graph.indices, relation.edge_times, relation._weights]
    for tensor in (data.edge_index, data.edge_time, data.weight):
        assert not any(np.shares_memory(array, tensor.numpy()) for array in arrays if array is not None)
