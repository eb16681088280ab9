"""Batches from a feature store and a graph store: as from the data that they were filled with."""

from __future__ import annotations

import pickle

import pytest

pytest.importorskip("torch_geometric", reason="the layer takes the place of PyTorch Geometric's classes")

import torch
from torch_geometric.data import Data, EdgeAttr, HeteroData, TensorAttr

from pyg_cases import BUYS, KNOWS, SOLD, Edges, Features, assert_aligned, made_data, made_hetero, same, stored
from sage_attention.pyg import LinkNeighborLoader, NeighborLoader, NeighborSampler

LAYOUTS = ["coo", "sorted", "csr", "csc"]


def store_of(data, layout, time=None, edge_names=("edge_attr",), **kept):
    """Both stores, and the data in the order that edges are stored in."""
    features, edges = Features(), Edges()
    if isinstance(data, Data):
        size = (data.num_nodes,) * 2
        found, attrs, order = stored(data.edge_index, size, layout, time)
        edges.put_edge_index(found, EdgeAttr(edge_type=None, **attrs))
        features.put_tensor(data.x, TensorAttr(None, "x", None))
        for name in edge_names:
            features.put_tensor(data[name][order], TensorAttr(kept.get("group"), name, None))
        ordered = Data(x=data.x, edge_index=data.edge_index[:, order], edge_attr=data.edge_attr[order])
        return features, edges, ordered
    ordered = HeteroData()
    layouts = dict(zip(data.edge_types, layout if isinstance(layout, list) else [layout] * 3))
    for name in data.node_types:
        features.put_tensor(data[name].x, TensorAttr(name, "x", None))
        ordered[name].x = data[name].x
    for edge_type, store in data.edge_items():
        size = (data[edge_type[0]].num_nodes, data[edge_type[-1]].num_nodes)
        times = None if time is None else time(edge_type)
        found, attrs, order = stored(store.edge_index, size, layouts[edge_type], times)
        edges.put_edge_index(found, EdgeAttr(edge_type=edge_type, **attrs))
        ordered[edge_type].edge_index = store.edge_index[:, order]
        ordered[edge_type].edge_attr = store.edge_attr[order]
        for name in edge_names:
            features.put_tensor(store[name][order], TensorAttr(edge_type, name, None))
    return features, edges, ordered


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout):
    """Edge ids are positions among the edges as they are stored, and edges have their features."""
    features, edges, ordered = store_of(made_data(), layout)
    loader = NeighborLoader((features, edges), [3, 2], torch.arange(40), batch_size=16, seed=1)
    for batch in loader:
        assert_aligned(batch, ordered)
        assert batch.num_nodes == len(batch.n_id)
        assert torch.equal(batch.n_id[: batch.batch_size], batch.input_id)
    (batch,) = NeighborLoader((features, edges), [-1], torch.arange(40), batch_size=40)
    assert batch.e_id.sort().values.tolist() == list(range(200))


@pytest.mark.parametrize("layout", [*LAYOUTS, ["csr", "csc", "coo"]])
def test_layouts_over_types(layout):
    features, edges, ordered = store_of(made_hetero(), layout)
    loader = NeighborLoader((features, edges), {BUYS: [3, 2], SOLD: [2, 2], KNOWS: [1, -1]}, "item", batch_size=16)
    for batch in loader:
        assert set(batch.edge_types) == set(ordered.edge_types)
        assert_aligned(batch, ordered)
    (batch,) = NeighborLoader((features, edges), [-1], ("item", torch.arange(20)), batch_size=20)
    assert batch[BUYS].e_id.sort().values.tolist() == list(range(120))


def test_the_batches_of_data_that_is_stored_sorted():
    data = made_data()
    features, edges, ordered = store_of(data, "sorted")
    pairs = zip(
        NeighborLoader((features, edges), [3, 2], torch.arange(40), batch_size=16, seed=1),
        NeighborLoader(ordered, [3, 2], torch.arange(40), batch_size=16, seed=1),
    )
    for from_stores, from_data in pairs:
        del from_stores.num_nodes
        assert same(from_stores, from_data)


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("filter_per_worker", [False, True])
def test_transforms_see_features_of_edges(prefetch, filter_per_worker):
    features, edges, ordered = store_of(made_hetero(), "coo")
    calls = []

    def transform(batch):
        assert_aligned(batch, ordered)
        calls.append(batch)
        return len(calls)

    def on_output(out):
        calls.append(out)
        return out

    loader = NeighborLoader(
        (features, edges), [2], "item", transform=transform, transform_sampler_output=on_output, batch_size=10,
        prefetch=prefetch, filter_per_worker=filter_per_worker,
    )  # fmt: skip
    assert list(loader) == [2, 4]


def test_only_what_a_batch_needs_is_fetched():
    features, edges, _ = store_of(made_data(num_nodes=400), "csc")
    loader = NeighborLoader((features, edges), [2], torch.arange(5), batch_size=5)
    features.asked.clear()
    (batch,) = loader
    assert sorted(features.asked, key=str) == [(None, "edge_attr", batch.num_edges), (None, "x", batch.num_nodes)]


@pytest.mark.parametrize("num_edges", [200, 40])
@pytest.mark.parametrize(
    ("group", "name", "of_edges"),
    [
        (None, "edge_attr", True),
        (None, "score", None),  # of edges if there are as many rows and not as many nodes
        (("node", "to", "node"), "score", True),
    ],
)
def test_whose_a_tensor_is_without_types(num_edges, group, name, of_edges):
    data = made_data(num_edges=num_edges)
    data[name] = torch.arange(num_edges).view(-1, 1) * 100
    features, edges, ordered = store_of(data, "coo", edge_names=(name,), group=group)
    (batch,) = NeighborLoader((features, edges), [2], torch.arange(5), batch_size=5)
    of_edges = num_edges == 200 if of_edges is None else of_edges
    assert torch.equal(batch[name], ordered.edge_attr[batch.e_id if of_edges else batch.n_id])
    assert torch.equal(batch.x, ordered.x[batch.n_id])


@pytest.mark.parametrize("num_workers", [0, pytest.param(2, marks=pytest.mark.filterwarnings("ignore"))])
def test_links(num_workers):
    features, edges, ordered = store_of(made_hetero(), "sorted")
    loader = LinkNeighborLoader(
        (features, edges), [2, 2], edge_label_index=(BUYS, None), neg_sampling="binary", batch_size=60,
        num_workers=num_workers, seed=1,
    )  # fmt: skip
    for batch in loader:
        assert_aligned(batch, ordered)
        index = batch[BUYS].edge_label_index[:, batch[BUYS].edge_label == 1]
        found = torch.stack([batch["user"].n_id[index[0]], batch["item"].n_id[index[1]]])
        assert torch.equal(found, ordered[BUYS].edge_index[:, batch[BUYS].input_id])


def test_times_of_nodes():
    data = made_hetero(1)
    features, edges, ordered = store_of(data, "csc", time=lambda key: data[key[0]].time[data[key].edge_index[0]])
    for name in data.node_types:
        features.put_tensor(data[name].time, TensorAttr(name, "time", None))
        ordered[name].time = data[name].time
    loaders = [
        NeighborLoader(source, [3, 2], "item", time_attr="time", batch_size=5, seed=1)
        for source in ((features, edges), ordered)
    ]
    for from_stores, from_data in zip(*loaders):
        assert_aligned(from_stores, ordered)
        for name in data.node_types:
            assert torch.equal(from_stores[name].n_id, from_data[name].n_id)
            assert torch.equal(from_stores[name].time, from_data[name].time)


def test_times_of_edges_over_types():
    data = made_hetero(1)
    features, edges, _ = store_of(data, "csc", time=lambda key: data[key].edge_time, edge_names=("edge_time",))
    times = torch.arange(20)
    loader = NeighborLoader((features, edges), [3, 2], "item", times, time_attr="edge_time", batch_size=5)
    for batch in loader:
        for edge_type in batch.edge_types:
            allowed = batch["item"].seed_time[batch[edge_type[-1]].batch[batch[edge_type].edge_index[1]]]
            assert (batch[edge_type].edge_time <= allowed).all()


@pytest.mark.parametrize("name", ["time", "edge_time"])
def test_times_without_types(name):
    """They are those of nodes if they are called so, as in PyTorch Geometric, else those of edges."""
    data = made_data(1)
    by_edge = data.time[data.edge_index[0]] if name == "time" else data.edge_time
    features, edges, ordered = store_of(data, "sorted", time=by_edge)
    order = stored(data.edge_index, (40, 40), "sorted", by_edge)[2]
    values = data.time if name == "time" else data.edge_time[order]
    features.put_tensor(values, TensorAttr(None, name, None))
    ordered[name] = values
    loaders = [
        NeighborLoader(source, [3, 2], torch.arange(40), torch.arange(40) % 20, time_attr=name, batch_size=8, seed=1)
        for source in ((features, edges), ordered)
    ]
    for from_stores, from_data in zip(*loaders):
        assert torch.equal(from_stores.e_id, from_data.e_id)
        assert torch.equal(from_stores[name], from_data[name])


@pytest.mark.parametrize("hetero", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_backward(hetero, layout):
    features, edges, ordered = store_of(made_hetero() if hetero else made_data(), layout)
    sampler = NeighborSampler((features, edges), [2, 2], sample_direction="backward")
    loader = NeighborLoader((features, edges), [1], "user" if hetero else torch.arange(9), neighbor_sampler=sampler)
    found = 0
    for batch in loader:
        for store, whole, source, target in (
            [(batch[key], ordered[key], batch[key[0]], batch[key[-1]]) for key in batch.edge_types]
            if hetero
            else [(batch, ordered, batch, batch)]
        ):
            ends = torch.stack([source.n_id[store.edge_index[0]], target.n_id[store.edge_index[1]]])
            assert torch.equal(ends, whole.edge_index[:, store.e_id])
            assert torch.equal(store.edge_attr, whole.edge_attr[store.e_id])
            found += store.num_edges
    assert found > 0


def test_bidirectional():
    features, edges, ordered = store_of(made_data(), "csc")
    (batch,) = NeighborLoader((features, edges), [2], torch.arange(9), subgraph_type="bidirectional", batch_size=9)
    assert torch.equal(batch.edge_attr, ordered.edge_attr[batch.e_id])
    features, edges, _ = store_of(made_hetero(), "csc")
    (batch,) = NeighborLoader((features, edges), [2], "item", subgraph_type="bidirectional", batch_size=20)
    assert "edge_attr" not in batch[BUYS]


def test_classes_of_batches():
    class Own(HeteroData):
        pass

    features, edges, ordered = store_of(made_hetero(), "csc")
    (batch,) = NeighborLoader((features, edges), [2], "item", custom_cls=Own, batch_size=20)
    assert isinstance(batch, Own)
    assert_aligned(batch, ordered)


def test_stores_without_features_of_edges_or_nodes():
    features, edges, ordered = store_of(made_data(), "csc", edge_names=())
    (batch,) = NeighborLoader((features, edges), [2], torch.arange(9), batch_size=9)
    assert "edge_attr" not in batch
    (batch,) = NeighborLoader((Features(), edges), [2], torch.arange(9), batch_size=9)
    ends = batch.n_id[batch.edge_index]
    assert torch.equal(ends, ordered.edge_index[:, batch.e_id])


def test_they_travel():
    features, edges, _ = store_of(made_hetero(), "coo")
    loader = NeighborLoader((features, edges), [2], "item", batch_size=20, seed=1)
    other = pickle.loads(pickle.dumps(loader))
    (one,), (two,) = loader, other
    assert same(one, two)


def test_edges_of_unknown_size():
    features, edges = Features(), Edges()
    edges.put_edge_index(torch.tensor([[0, 7], [1, 2]]), EdgeAttr(None, "coo"))
    assert NeighborSampler((features, edges), [1]).num_nodes == 8
    features.put_tensor(torch.ones(10, 1), TensorAttr(None, "x", None))
    features.put_tensor(torch.tensor([5, 6]), TensorAttr(None, "edge_attr", None))
    (batch,) = NeighborLoader((features, edges), [1], torch.tensor([2, 9]), batch_size=2)
    assert (batch.n_id.tolist(), batch.edge_attr.tolist()) == ([2, 9, 7], [6])


@pytest.mark.parametrize(
    ("layout", "change", "error", "message"),
    [
        ("csc", {"weight_attr": "weight"}, NotImplementedError, "'weight_attr' argument not yet supported"),
        ("csr", {"time_attr": "time"}, ValueError, "either COO or CSC"),
        ("coo", {"time_attr": "time"}, ValueError, "sorted by destination, and by source time"),
        ("csc", {"time_attr": "age"}, ValueError, "did not find any temporal data"),
        ("csc", {"time_attr": "time", "sample_direction": "backward"}, NotImplementedError, "backward"),
    ],
)
def test_errors(layout, change, error, message):
    features, edges, _ = store_of(made_data(), layout)
    with pytest.raises(error, match=message):
        NeighborSampler((features, edges), [1], **change)


def test_errors_over_types():
    features, edges, _ = store_of(made_hetero(), "csc", edge_names=("edge_time",))
    with pytest.raises(ValueError, match="did not find any temporal data"):
        NeighborSampler((features, edges), [1], time_attr="age")
    features.put_tensor(torch.zeros(20, dtype=torch.int64), TensorAttr("item", "edge_time", None))
    with pytest.raises(ValueError, match="both node-level and edge-level"):
        NeighborSampler((features, edges), [1], time_attr="edge_time")
