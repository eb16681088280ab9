"""LinkNeighborLoader: seed edges, labels, times, batches; its arguments one by one."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("torch_geometric", reason="the layer takes the place of PyTorch Geometric's classes")

import torch
import torch_geometric.loader
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import EdgeSamplerInput
from torch_geometric.sampler import NegativeSampling as PygNegativeSampling

from pyg_cases import BUYS, KNOWS, PYG, SOLD, assert_aligned, made_data, made_hetero
from sage_attention import ArgumentError
from sage_attention.pyg import LinkNeighborLoader, NegativeSampling, NeighborSampler


def ends(batch):
    """The ids of both ends of what is labelled."""
    return batch.n_id[batch.edge_label_index]


def typed_ends(batch, edge_type=BUYS):
    index = batch[edge_type].edge_label_index
    return torch.stack([batch[edge_type[0]].n_id[index[0]], batch[edge_type[-1]].n_id[index[1]]])


@pytest.mark.parametrize("disjoint", [False, True])
def test_seed_edges(disjoint):
    data = made_data()
    loader = LinkNeighborLoader(data, [3, 2], disjoint=disjoint, batch_size=32, shuffle=True)
    assert isinstance(loader, torch_geometric.loader.LinkNeighborLoader)
    assert (str(loader), len(loader)) == ("LinkNeighborLoader()", 7)
    seen = []
    for batch in loader:
        assert_aligned(batch, data)
        assert torch.equal(ends(batch), data.edge_index[:, batch.input_id])
        assert "edge_label" not in batch
        assert "edge_label_time" not in batch
        if disjoint:
            assert torch.equal(batch.edge_label_index.view(-1), torch.arange(2 * len(batch.input_id)))
            own = torch.arange(len(batch.input_id))
            assert torch.equal(batch.batch[batch.edge_label_index], torch.stack([own, own]))
            assert torch.equal(batch.batch[batch.edge_index[0]], batch.batch[batch.edge_index[1]])
        else:  # seeds once each, in order
            seeds = batch.n_id[: batch.num_sampled_nodes[0]]
            assert torch.equal(seeds, data.edge_index[:, batch.input_id].unique())
        seen.append(batch.input_id)
    assert torch.cat(seen).sort().values.tolist() == list(range(200))


@pytest.mark.parametrize("disjoint", [False, True])
@pytest.mark.parametrize("edge_type", [BUYS, KNOWS])
def test_seed_edges_of_a_type(edge_type, disjoint):
    data = made_hetero()
    loader = LinkNeighborLoader(data, [3, 2], edge_label_index=edge_type, disjoint=disjoint, batch_size=32)
    for batch in loader:
        assert_aligned(batch, data)
        found = batch[edge_type].input_id
        assert torch.equal(typed_ends(batch, edge_type), data[edge_type].edge_index[:, found])
        if disjoint:
            index = batch[edge_type].edge_label_index
            assert torch.equal(batch[edge_type[0]].batch[index[0]], torch.arange(len(found)))
            assert torch.equal(batch[edge_type[-1]].batch[index[1]], torch.arange(len(found)))


@pytest.mark.parametrize(
    "edge_label_index",
    [BUYS, ("user", "item"), (BUYS, None), (("user", "item"), torch.tensor([[3, 1], [2, 2]])),
     (BUYS, torch.tensor([[3, 1], [2, 2]], dtype=torch.int32))],
)  # fmt: skip
def test_ways_to_name_the_seed_edges(edge_label_index):
    data = made_hetero()
    loader = LinkNeighborLoader(data, [2], edge_label_index=edge_label_index, batch_size=200)
    (batch,) = loader
    given = edge_label_index[1] if isinstance(edge_label_index[1], torch.Tensor) else data[BUYS].edge_index
    assert torch.equal(typed_ends(batch), given.long())


def test_seed_edges_that_are_not_in_the_graph():
    data, seeds = made_data(), torch.tensor([[39, 38, 0], [38, 39, 39]])
    loader = LinkNeighborLoader(data, [3], edge_label_index=seeds, edge_label=torch.tensor([7, 8, 9]), batch_size=3)
    (batch,) = loader
    assert torch.equal(ends(batch), seeds)
    assert batch.edge_label.tolist() == [7, 8, 9]
    assert_aligned(batch, data)


def test_graphs_without_edges():
    seeds = torch.tensor([[3, 1, 3], [2, 2, 2]])
    (batch,) = LinkNeighborLoader(Data(num_nodes=5), [2, 2], edge_label_index=seeds, batch_size=3)
    assert batch.n_id.tolist() == [1, 2, 3]
    data = HeteroData()
    data["a"].num_nodes, data["b"].num_nodes = 5, 6
    loader = LinkNeighborLoader(data, [], edge_label_index=(("a", "to", "b"), seeds), batch_size=3)
    (batch,) = loader
    assert (batch["a"].n_id.tolist(), batch["b"].n_id.tolist()) == ([1, 3], [2])
    assert PYG < (2, 7) or batch.input_type == ("a", "to", "b")


@pytest.mark.parametrize("amount", [0.3, 1, 1.5, 2])
@pytest.mark.parametrize("disjoint", [False, True])
def test_binary_negatives_come_after_the_positives(amount, disjoint):
    data = made_data()
    loader = LinkNeighborLoader(
        data, [2], neg_sampling=NegativeSampling("binary", amount), disjoint=disjoint, batch_size=32
    )
    for batch in loader:
        num_pos, num_neg = len(batch.input_id), math.ceil(len(batch.input_id) * amount)
        assert batch.edge_label_index.shape == (2, num_pos + num_neg)
        assert torch.equal(ends(batch)[:, :num_pos], data.edge_index[:, batch.input_id])
        assert batch.edge_label.dtype == torch.float32
        assert batch.edge_label.tolist() == [1.0] * num_pos + [0.0] * num_neg
        assert_aligned(batch, data)
        if disjoint:
            wanted = torch.arange(num_pos + num_neg) % num_pos
            assert torch.equal(batch.batch[batch.edge_label_index], torch.stack([wanted, wanted]))


@pytest.mark.parametrize("amount", [0.3, 1.5])
@pytest.mark.parametrize("edge_type", [BUYS, SOLD, KNOWS])  # the type of the sources before that of the targets, or not
def test_batches_of_fractional_amounts_over_types(edge_type, amount):
    data = made_hetero()
    loader = LinkNeighborLoader(
        data, [2], edge_label_index=edge_type, neg_sampling=PygNegativeSampling("binary", amount), disjoint=True,
        batch_size=7,
    )  # fmt: skip
    for batch in loader:
        num_pos = len(batch[edge_type].input_id)
        index = batch[edge_type].edge_label_index
        wanted = torch.arange(index.shape[1]) % num_pos
        assert torch.equal(batch[edge_type[0]].batch[index[0]], wanted)
        assert torch.equal(batch[edge_type[-1]].batch[index[1]], wanted)
        for key in batch.edge_types:
            row, col = batch[key].edge_index
            assert torch.equal(batch[key[0]].batch[row], batch[key[-1]].batch[col])


@pytest.mark.parametrize("shape", [(), (3,)])
@pytest.mark.parametrize("lowest", [0, 4])
def test_labels(shape, lowest):
    """Of any shape and kind; if 0 is among them it moves to 1, as 0 is what negatives have."""
    data = made_data()
    label = torch.arange(200).view(-1, *[1] * len(shape)).expand(200, *shape) + lowest
    loader = LinkNeighborLoader(data, [2], edge_label=label, neg_sampling_ratio=1.0, batch_size=50)
    for batch in loader:
        moved = label[batch.input_id] + (lowest == 0)
        assert torch.equal(batch.edge_label, torch.cat([moved, torch.zeros_like(moved)]))
        assert batch.edge_label.dtype == torch.int64
    (batch,) = LinkNeighborLoader(data, [2], edge_label=label, batch_size=200)
    assert torch.equal(batch.edge_label, label)


@pytest.mark.parametrize("amount", [1, 3])
@pytest.mark.parametrize("disjoint", [False, True])
@pytest.mark.parametrize("edge_type", [None, BUYS, SOLD, KNOWS])
def test_triplets(edge_type, amount, disjoint):
    data = made_data() if edge_type is None else made_hetero()
    loader = LinkNeighborLoader(
        data, [2], edge_label_index=edge_type, neg_sampling={"mode": "triplet", "amount": amount}, disjoint=disjoint,
        batch_size=32,
    )  # fmt: skip
    for batch in loader:
        assert_aligned(batch, data)
        source, target, edges, whole = batch, batch, batch, data
        if edge_type is not None:
            source, target, edges, whole = (
                batch[edge_type[0]], batch[edge_type[-1]], batch[edge_type], data[edge_type],
            )  # fmt: skip
        assert "edge_label_index" not in edges
        assert torch.equal(source.n_id[source.src_index], whole.edge_index[0, edges.input_id])
        assert torch.equal(target.n_id[target.dst_pos_index], whole.edge_index[1, edges.input_id])
        num_pos = len(edges.input_id)
        assert target.dst_neg_index.shape == ((num_pos,) if amount == 1 else (num_pos, amount))
        assert int(target.dst_neg_index.max()) < target.num_nodes
        if disjoint:
            own = torch.arange(num_pos)
            assert torch.equal(source.batch[source.src_index], own)
            assert torch.equal(target.batch[target.dst_pos_index], own)
            assert torch.equal(target.batch[target.dst_neg_index].view(num_pos, -1), own.view(-1, 1).expand(-1, amount))


@pytest.mark.parametrize("time_attr", ["time", "edge_time"])
@pytest.mark.parametrize("neg_sampling", [None, "binary", "triplet"])
def test_nothing_is_younger_than_the_seed_edge(neg_sampling, time_attr):
    data = made_data(1)
    times = data.edge_time + 3
    loader = LinkNeighborLoader(
        data, [3, 3], edge_label_time=times, time_attr=time_attr, batch_size=32, edge_label_index=data.edge_index,
        neg_sampling=None if neg_sampling is None else PygNegativeSampling(neg_sampling, 2),
    )  # fmt: skip
    for batch in loader:
        assert_aligned(batch, data)
        allowed = times[batch.input_id]
        given = batch.seed_time if neg_sampling == "triplet" else batch.edge_label_time
        assert torch.equal(given[: len(allowed)], allowed)
        assert neg_sampling != "binary" or torch.equal(given, allowed.repeat(3))
        assert int(batch.batch.max()) + 1 == len(batch.input_id)
        limit = allowed[batch.batch]
        if time_attr == "time":
            assert (batch.time <= limit)[batch.num_sampled_nodes[0] :].all()
        else:
            assert (batch.edge_time <= limit[batch.edge_index[1]]).all()


@pytest.mark.parametrize("neg_sampling", ["binary", "triplet"])
@pytest.mark.parametrize("edge_type", [BUYS, SOLD])
def test_times_over_types(edge_type, neg_sampling):
    data = made_hetero(1)
    times = torch.arange(120) % 20
    loader = LinkNeighborLoader(
        data, [3, 3], edge_label_index=edge_type, edge_label_time=times, time_attr="time", batch_size=32,
        neg_sampling=PygNegativeSampling(neg_sampling, 1 if neg_sampling == "triplet" else 0.4),
    )  # fmt: skip
    for batch in loader:
        allowed = times[batch[edge_type].input_id]
        for store in batch.node_stores:
            assert (store.time <= allowed[store.batch])[store.num_sampled_nodes[0] :].all()
        if neg_sampling == "triplet":
            assert torch.equal(batch[edge_type[0]].seed_time, allowed)
            assert torch.equal(batch[edge_type[-1]].seed_time, allowed)


def test_our_sampler_in_the_loader_of_pyg():
    data = made_data()
    sampler = NeighborSampler(data, [3, 2], seed=4)
    loader = torch_geometric.loader.LinkNeighborLoader(
        data, [9], neighbor_sampler=sampler, batch_size=32, neg_sampling_ratio=0.5
    )
    for batch in loader:
        assert_aligned(batch, data)
        assert len(batch.edge_label) == math.ceil(1.5 * len(batch.input_id))


def test_other_arguments_reach_the_sampler():
    data = made_data()
    (batch,) = LinkNeighborLoader(data, [-1], weight_attr="weight", batch_size=200)
    assert (batch.weight > 0).all()
    (batch,) = LinkNeighborLoader(data, [2], subgraph_type="induced", batch_size=200)
    assert batch.num_edges == int(torch.isin(data.edge_index, batch.n_id).all(0).sum())
    (batch,) = LinkNeighborLoader(data, [2], subgraph_type="bidirectional", batch_size=200)
    assert torch.equal(batch.edge_index.unique(dim=1), batch.edge_index.flip(0).unique(dim=1))
    (batch,) = LinkNeighborLoader(data, [50], replace=True, edge_label_index=data.edge_index[:, :1])
    assert batch.num_edges == 50 * len(data.edge_index[:, :1].unique())
    (batch,) = LinkNeighborLoader(
        made_hetero(), {BUYS: [2], SOLD: [0], KNOWS: [0]}, edge_label_index=BUYS, batch_size=120
    )
    assert (batch[SOLD].num_edges, batch[KNOWS].num_edges) == (0, 0)
    for batch in LinkNeighborLoader(
        data, [-1], edge_label_time=data.edge_time, time_attr="edge_time", strict=True, window=4, batch_size=50
    ):
        age = batch.edge_label_time[batch.batch[batch.edge_index[1]]] - batch.edge_time
        assert age.min() == 1
        assert age.max() == 4
    loader = LinkNeighborLoader(data, [2], strategy="labor", seed=3)
    assert loader.link_sampler.strategy == "labor"
    loader = LinkNeighborLoader(data, [2], transform=lambda batch: batch.num_nodes, filter_per_worker=False)
    assert all(isinstance(found, int) for found in loader)
    assert [len(batch.input_id) for batch in LinkNeighborLoader(data, [1], batch_size=150, drop_last=True)] == [150]


@pytest.mark.parametrize("mode", ["binary", "triplet"])
def test_one_batch_by_hand(mode):
    data = made_data()
    loader = LinkNeighborLoader(data, [2], neg_sampling=NegativeSampling(mode), batch_size=4)
    batch = loader([3, 4])
    assert batch.input_id.tolist() == [3, 4]
    batch = loader(torch.tensor([[1, 2], [3, 4]]))  # edges
    index = torch.stack([batch.src_index, batch.dst_pos_index]) if mode == "triplet" else batch.edge_label_index[:, :2]
    assert batch.n_id[index].tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"edge_label_time": torch.zeros(200)}, ValueError, "edge_label_time"),
        ({"time_attr": "time"}, ValueError, "'edge_label_time' is not set"),
        ({"edge_label": torch.ones(200), "neg_sampling": "triplet"}, ValueError, "'edge_label' needs to be undefined"),
        ({"neg_sampling": {"mode": "pairs"}}, ValueError, "pairs"),
        ({"neg_sampling": {"mode": "binary", "amount": 0}}, ValueError, "amount"),
        ({"neg_sampling": {"mode": "triplet", "amount": 1.5}}, ValueError, "integer"),
        ({"edge_label_index": torch.tensor([[40], [0]])}, ArgumentError, "got 40"),
        (
            {"edge_label_index": torch.tensor([[0.5], [1.0]])},
            ArgumentError,
            "edge_label_index: expected integers, got tor",
        ),
        ({"edge_label": torch.ones(199)}, ArgumentError, "edge_label: expected 200, one for each seed"),
        (
            {"edge_label_time": torch.ones(201), "time_attr": "time"},
            ArgumentError,
            "edge_label_time: expected 200, one",
        ),
        ({"seed": -1}, ArgumentError, "seed: expected"),
        ({"prefetch": None}, ArgumentError, "prefetch: expected"),
        ({"weight_attr": "mass"}, ArgumentError, "weight_attr"),
    ],
)
def test_errors(change, error, message):
    with pytest.raises(error, match=message):
        list(LinkNeighborLoader(made_data(), **{"num_neighbors": [2], **change}))


def test_seed_edges_with_times_in_a_graph_without():
    inputs = EdgeSamplerInput(None, torch.tensor([1]), torch.tensor([2]), time=torch.tensor([3]))
    with pytest.raises(ValueError, match="'time_attr' needs to be specified"):
        NeighborSampler(made_data(), [1]).sample_from_edges(inputs)
