"""Seeds of several types in one loader: what is in a batch, against the slow model; times; errors."""

from __future__ import annotations

import pytest

pytest.importorskip("torch_geometric", reason="the layer takes the place of PyTorch Geometric's classes")

import torch
import torch_geometric.loader

from pyg_cases import Edges, Features, assert_aligned, copies, made_data, made_hetero, same, twin
from sage_attention import ArgumentError
from sage_attention.pyg import NeighborLoader, NeighborSampler, audit

USERS, ITEMS = torch.tensor([4, 0, 19, 4]), torch.tensor([7, 3])
SEEDS = {"user": USERS, "item": ITEMS}


def seeds_of(batch, name):
    return batch[name].n_id[: batch[name].batch_size]


@pytest.mark.parametrize("disjoint", [False, True])
def test_a_batch_of_both_is_that_of_the_slow_model(disjoint):
    data = made_hetero()
    sampler = NeighborSampler(data, [3, 2], disjoint=disjoint, seed=5)
    loader = NeighborLoader(data, [9], SEEDS, neighbor_sampler=sampler, batch_size=6)
    (batch,) = torch_loader_batches(loader)
    expected, orders = twin(data, [3, 2], {k: v.tolist() for k, v in SEEDS.items()}, seed=5, disjoint=disjoint)
    assert_aligned(batch, data)
    for name in data.node_types:
        assert batch[name].n_id.tolist() == expected.nodes[name]
        assert not disjoint or batch[name].batch.tolist() == expected.trees[name]
    for number, edge_type in enumerate(data.edge_types):
        assert batch[edge_type].e_id.tolist() == orders[number][expected.positions[number]].tolist()
    assert (batch["user"].batch_size, batch["item"].batch_size) == (4, 2)


def torch_loader_batches(loader):
    """Batches that the sampler's own seed names."""
    return [loader(range(len(loader.dataset)))]


def test_positions_run_over_one_type_after_the_other():
    loader = NeighborLoader(made_hetero(), [2], SEEDS, batch_size=3)
    assert (len(loader), len(loader.dataset)) == (2, 6)
    first, second = loader
    assert (seeds_of(first, "user").tolist(), seeds_of(first, "item").tolist()) == ([4, 0, 19], [])
    assert (seeds_of(second, "user").tolist(), seeds_of(second, "item").tolist()) == ([4], [7, 3])
    assert (second["user"].input_id.tolist(), second["item"].input_id.tolist()) == ([3], [0, 1])
    assert first["item"].input_id.dtype == torch.int64
    assert loader.input_nodes is SEEDS
    mixed = loader([5, 0, 1])
    assert (seeds_of(mixed, "user").tolist(), seeds_of(mixed, "item").tolist()) == ([4, 0], [3])


@pytest.mark.parametrize(
    ("input_nodes", "users", "items", "user_ids"),
    [
        (["user", "item"], range(30), range(20), range(30)),
        (("user", "item"), range(30), range(20), range(30)),
        (["item"], [], range(20), []),
        ({"item": None, "user": [5, 6]}, [5, 6], range(20), [0, 1]),
        ({"user": torch.arange(30) % 10 == 2, "item": range(2)}, [2, 12, 22], [0, 1], [2, 12, 22]),
        ({"user": torch.tensor([3], dtype=torch.int32), "item": []}, [3], [], [0]),
    ],
)
def test_ways_to_name_them(input_nodes, users, items, user_ids):
    (batch,) = NeighborLoader(made_hetero(), [2], input_nodes, batch_size=100)
    found = {name: seeds_of(batch, name).tolist() if "batch_size" in batch[name] else [] for name in ("user", "item")}
    assert found == {"user": list(users), "item": list(items)}
    assert batch["user"].get("input_id", torch.tensor([])).tolist() == list(user_ids)


def test_ids_that_are_given():
    loader = NeighborLoader(made_hetero(), [2], SEEDS, input_id={"item": torch.tensor([70, 30])}, batch_size=6)
    (batch,) = loader
    assert (batch["user"].input_id.tolist(), batch["item"].input_id.tolist()) == ([0, 1, 2, 3], [70, 30])


@pytest.mark.parametrize(
    "options",
    [
        {"prefetch": 0},
        {"filter_per_worker": False},
        {"num_workers": 2, "multiprocessing_context": "spawn"},
        {"num_threads": 2, "prefetch": 3},
    ],
)
def test_the_composition_of_batches_is_named_by_the_seed(options):
    def make(**more):
        return NeighborLoader(made_hetero(), [3, 2], ["user", "item"], batch_size=8, shuffle=True, seed=5, **more)

    plain = make()
    first, second = list(plain), list(plain)
    other = make(**options)
    for expected in (first, second):
        found = copies(other)
        assert len(found) == len(expected) == 7
        assert all(same(one, two) for one, two in zip(found, expected))
    mixed = [(batch["user"].batch_size, batch["item"].batch_size) for batch in first]
    assert [sum(sizes) for sizes in mixed] == [8] * 6 + [2]
    assert len(set(mixed)) > 1
    for name, count in (("user", 30), ("item", 20)):
        assert torch.cat([seeds_of(batch, name) for batch in first]).sort().values.tolist() == list(range(count))
    assert not same(first[0], second[0])


def test_resuming():
    def make():
        return NeighborLoader(made_hetero(), [3], ["user", "item"], batch_size=8, shuffle=True, seed=5)

    loader, expected = make(), list(make())
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    other = make()
    other.load_state_dict(state)
    assert all(same(one, two) for one, two in zip(other, expected[1:]))


@pytest.mark.parametrize("time_attr", ["time", "edge_time"])
@pytest.mark.parametrize("given", [True, False])
def test_times(time_attr, given):
    """Each seed limits its own tree; seeds without a time have that of their node."""
    data = made_hetero(3)
    times = {"user": torch.tensor([5, 9, 3, 19]), "item": torch.tensor([12, 2])}
    if not given:
        times = {name: data[name].time[nodes] for name, nodes in SEEDS.items()}
    input_time = times if given or time_attr == "edge_time" else None
    sampler = NeighborSampler(data, [3, 2], time_attr=time_attr, seed=5)
    loader = NeighborLoader(data, [9], SEEDS, input_time, time_attr=time_attr, neighbor_sampler=sampler, batch_size=6)
    batch = loader(range(6))
    expected, orders = twin(
        data, [3, 2], {k: v.tolist() for k, v in SEEDS.items()}, seed=5, disjoint=True, time_attr=time_attr,
        seed_times={k: v.tolist() for k, v in times.items()},
    )  # fmt: skip
    for number, edge_type in enumerate(data.edge_types):
        assert batch[edge_type].e_id.tolist() == orders[number][expected.positions[number]].tolist()
    for name in SEEDS:
        found = batch[name].get("seed_time")
        assert found is None if input_time is None else torch.equal(found, times[name])
    report = audit(loader)
    assert report["times"].verdict == "passed", str(report)
    # a seed that pretends to be older than what its tree has
    batch["user"].seed_time, batch["item"].seed_time = torch.full((4,), -1), times["item"]
    report = audit(batch, data, time_attr=time_attr)
    assert report["times"].verdict == "failed"


def test_times_of_one_of_the_types():
    data = made_hetero(3)
    loader = NeighborLoader(data, [-1], SEEDS, {"item": torch.tensor([1, 2])}, time_attr="time", batch_size=6)
    (batch,) = loader
    assert batch["item"].seed_time.tolist() == [1, 2]
    assert "seed_time" not in batch["user"]
    assert audit(batch, data, time_attr="time").ok


def test_transforms_see_all_of_them():
    calls = []

    def on_output(out):
        calls.append(sorted(out.metadata[0]))
        return out

    def on_batch(batch):
        calls.append((batch["user"].batch_size, batch["item"].batch_size))
        return batch

    loader = NeighborLoader(
        made_hetero(), [2], SEEDS, batch_size=6, transform=on_batch, transform_sampler_output=on_output
    )
    list(loader)
    assert calls == [["item", "user"], (4, 2)]


def test_bidirectional_and_stores():
    data = made_hetero()
    (batch,) = NeighborLoader(data, [2], SEEDS, subgraph_type="bidirectional", batch_size=6)
    assert batch["item"].batch_size == 2
    features, edges = Features(), Edges()
    for name in data.node_types:
        features.put_tensor(data[name].x, group_name=name, attr_name="x", index=None)
    for edge_type in data.edge_types:
        size = data[edge_type[0]].num_nodes, data[edge_type[-1]].num_nodes
        edges.put_edge_index(data[edge_type].edge_index, edge_type=edge_type, layout="coo", size=size)
    (stored,) = NeighborLoader((features, edges), [2], SEEDS, batch_size=6)
    for name, nodes in SEEDS.items():
        assert torch.equal(stored[name].x, data[name].x[stored[name].n_id])
        assert torch.equal(seeds_of(stored, name), nodes)


def test_one_batch_by_hand():
    data = made_hetero()
    loader = NeighborLoader(data, [2], ["user", "item"], time_attr="time")
    batch = loader({"item": [3], "user": torch.tensor([1, 2])}, {"item": torch.tensor([30]), "user": [0, 0]})
    assert (seeds_of(batch, "user").tolist(), seeds_of(batch, "item").tolist()) == ([1, 2], [3])
    assert batch["user"].seed_time.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"input_nodes": {"person": None}}, ArgumentError, "input_nodes: expected node types among 'user', 'item'"),
        ({"input_nodes": ["user", "user"]}, ArgumentError, "each node type once"),
        ({"input_nodes": {}}, ArgumentError, "at least one node type"),
        ({"input_nodes": {"user": torch.ones(7, dtype=torch.bool)}}, ArgumentError, "a mask of 30 nodes"),
        ({"input_nodes": {"user": [30]}}, ArgumentError, "got 30"),
        ({"input_time": {"user": USERS}}, ValueError, "'time_attr' is not"),
        ({"input_time": USERS, "time_attr": "time"}, ArgumentError, "input_time: expected node type -> numbers"),
        ({"input_time": {"user": USERS[:2]}, "time_attr": "time"}, ArgumentError, r"input_time\['user'\]: expected 4"),
        ({"input_time": {"person": USERS}, "time_attr": "time"}, ArgumentError, "input_time: expected types of seeds"),
        ({"time_attr": "edge_time"}, ValueError, "Seed time needs to be specified"),
        ({"input_id": {"item": [1]}}, ArgumentError, r"input_id\['item'\]: expected 2"),
        ({"data": made_data()}, ArgumentError, "the graph has no node types"),
        ({"neighbor_sampler": object()}, ArgumentError, "neighbor_sampler: expected ours"),
    ],
)
def test_errors(change, error, message):
    options = {"data": made_hetero(), "num_neighbors": [2], "input_nodes": SEEDS, **change}
    with pytest.raises(error, match=message):
        list(NeighborLoader(**options))
    with pytest.raises(ArgumentError, match=r"positions in \[0, 6\)"):
        NeighborLoader(made_hetero(), [2], SEEDS)([6])


def test_pyg_takes_one_type():
    """What ours adds; should PyTorch Geometric take several one day, this says so."""
    with pytest.raises(AssertionError):
        torch_geometric.loader.NeighborLoader(
            made_hetero(), [2], SEEDS, neighbor_sampler=NeighborSampler(made_hetero(), [2])
        )
