"""NeighborLoader: what is in its batches, and its arguments one by one."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from scipy.stats import chisquare

pytest.importorskip("torch_geometric", reason="the layer takes the place of PyTorch Geometric's classes")

import torch
import torch_geometric.loader
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import ImbalancedSampler, NodeLoader
from torch_geometric.nn import SAGEConv, to_hetero
from torch_geometric.nn.models import GraphSAGE
from torch_geometric.sampler import NumNeighbors
from torch_geometric.utils import trim_to_layer

from pyg_cases import BUYS, KNOWS, PYG, SOLD, assert_aligned, copies, made_data, made_hetero, same
from sage_attention import ArgumentError
from sage_attention.pyg import NeighborLoader, NeighborSampler


def test_a_batch_holds_what_belongs_to_its_nodes_and_edges():
    data = made_data()
    loader = NeighborLoader(data, [3, 2], batch_size=16, shuffle=True)
    assert isinstance(loader, torch_geometric.loader.NeighborLoader)
    assert (str(loader), len(loader), len(loader.dataset)) == ("NeighborLoader()", 3, 40)
    seen = []
    for batch in loader:
        assert_aligned(batch, data)
        assert type(batch.edge_index) is torch.Tensor
        assert batch.batch_size == len(batch.input_id)
        assert torch.equal(batch.n_id[: batch.batch_size], batch.input_id)
        assert (sum(batch.num_sampled_nodes), sum(batch.num_sampled_edges)) == (batch.num_nodes, batch.num_edges)
        assert (batch.num_sampled_nodes[0], len(batch.num_sampled_nodes), len(batch.num_sampled_edges)) == (
            batch.batch_size, 3, 2,
        )  # fmt: skip
        assert batch.batch is None
        assert torch.equal(batch.time, data.time[batch.n_id])
        assert torch.equal(batch.edge_time, data.edge_time[batch.e_id])
        seen.append(batch.input_id)
    assert torch.cat(seen).sort().values.tolist() == list(range(40))


@pytest.mark.parametrize("fan_outs", [[3, 2], {BUYS: [3, 1], SOLD: [0, 2], KNOWS: [-1, 0]}])
def test_batches_over_types(fan_outs):
    data = made_hetero()
    loader = NeighborLoader(data, fan_outs, input_nodes=("item", torch.tensor([4, 9, 0, 1])), batch_size=2)
    for number, batch in enumerate(loader):
        assert_aligned(batch, data)
        assert batch["item"].input_id.tolist() == [2 * number, 2 * number + 1]
        assert batch["item"].n_id[:2].tolist() == [[4, 9], [0, 1]][number]
        assert batch["item"].batch_size == 2
        assert "batch_size" not in batch["user"]
        for store in batch.node_stores:
            assert sum(store.num_sampled_nodes) == store.num_nodes
        for store in batch.edge_stores:
            assert sum(store.num_sampled_edges) == store.num_edges


@pytest.mark.parametrize(
    ("input_nodes", "nodes", "input_id"),
    [
        (None, range(40), range(40)),
        (torch.tensor([7, 3, 7]), [7, 3, 7], [0, 1, 2]),
        (torch.tensor([7, 3], dtype=torch.int32), [7, 3], [0, 1]),
        ([7, 3], [7, 3], [0, 1]),
        (range(5, 8), [5, 6, 7], [0, 1, 2]),
        (torch.arange(40) % 20 == 2, [2, 22], [2, 22]),  # a mask: the nodes
    ],
)
def test_input_nodes(input_nodes, nodes, input_id):
    (batch,) = NeighborLoader(made_data(), [2], input_nodes=input_nodes, batch_size=100)
    assert batch.n_id[: batch.batch_size].tolist() == list(nodes)
    assert batch.input_id.tolist() == list(input_id)
    assert_aligned(batch, made_data())


@pytest.mark.parametrize("input_nodes", ["item", ("item", None), ("item", torch.ones(20, dtype=torch.bool))])
def test_input_nodes_of_a_type(input_nodes):
    (batch,) = NeighborLoader(made_hetero(), [2], input_nodes=input_nodes, batch_size=100)
    assert batch["item"].input_id.tolist() == list(range(20))


def test_input_ids_that_are_given():
    loader = NeighborLoader(made_data(), [2], input_nodes=torch.tensor([7, 3]), input_id=torch.tensor([70, 30]))
    assert [batch.input_id.tolist() for batch in loader] == [[70], [30]]


@pytest.mark.parametrize("time_attr", ["time", "edge_time"])
@pytest.mark.parametrize("strategy", ["uniform", "last"])
def test_nothing_is_younger_than_its_seed(time_attr, strategy):
    data = made_data()
    times = torch.arange(40) % 20
    loader = NeighborLoader(
        data, [3, 3], input_time=times, time_attr=time_attr, temporal_strategy=strategy, batch_size=16
    )
    for batch in loader:
        assert_aligned(batch, data)
        assert torch.equal(batch.seed_time, times[batch.input_id])
        allowed = batch.seed_time[batch.batch]
        if time_attr == "time":
            assert (batch.time <= allowed)[batch.batch_size :].all()
        else:
            assert (batch.edge_time <= allowed[batch.edge_index[1]]).all()
        assert torch.equal(batch.batch[: batch.batch_size], torch.arange(batch.batch_size))
        assert torch.equal(batch.batch[batch.edge_index[0]], batch.batch[batch.edge_index[1]])


def test_last_takes_the_latest():
    data = Data(edge_index=torch.tensor([[1, 2, 3, 4], [0, 0, 0, 0]]), num_nodes=5, stamp=torch.tensor([5, 3, 9, 4]))
    loader = NeighborLoader(
        data, [2], torch.tensor([0, 0]), torch.tensor([8, 20]), time_attr="stamp", temporal_strategy="last"
    )
    assert [batch.e_id.tolist() for batch in loader] == [[3, 0], [0, 2]]


def test_trees_are_apart():
    data = made_data()
    (batch,) = NeighborLoader(data, [3, 3], torch.tensor([3, 3, 8]), disjoint=True, batch_size=3)
    assert_aligned(batch, data)
    assert batch.batch[:3].tolist() == [0, 1, 2]
    assert torch.equal(batch.batch[batch.edge_index[0]], batch.batch[batch.edge_index[1]])
    both = torch.stack([batch.n_id, batch.batch])
    assert both.unique(dim=1).shape[1] == batch.num_nodes


def test_weights_of_zero_are_never_picked():
    data = made_data()
    for batch in NeighborLoader(data, [-1, 2], weight_attr="weight", batch_size=10, replace=False):
        assert_aligned(batch, data)
        assert (batch.weight > 0).all()


def test_replace_draws_more_than_there_are():
    data = Data(edge_index=torch.tensor([[1], [0]]), num_nodes=2, edge_attr=torch.tensor([5.0]))
    (batch,) = NeighborLoader(data, [4], torch.tensor([0]), replace=True)
    assert batch.edge_index.tolist() == [[1, 1, 1, 1], [0, 0, 0, 0]]
    assert batch.edge_attr.tolist() == [5.0] * 4


@pytest.mark.parametrize("filter_per_worker", [None, False, True])
def test_bidirectional_and_induced(filter_per_worker):
    data = made_data()
    options = {"batch_size": 10, "filter_per_worker": filter_per_worker}
    for batch in NeighborLoader(data, [3, 2], subgraph_type="bidirectional", **options):
        assert torch.equal(batch.edge_attr, data.edge_attr[batch.e_id])
        assert batch.edge_index.unique(dim=1).shape[1] == batch.num_edges
        assert sorted(map(tuple, batch.edge_index.t().tolist())) == sorted(
            map(tuple, batch.edge_index.flip(0).t().tolist())
        )
    for batch in NeighborLoader(data, [3, 2], subgraph_type="induced", **options):
        assert_aligned(batch, data)
        inside = torch.isin(data.edge_index, batch.n_id).all(0)
        assert batch.num_edges == int(inside.sum())


def test_isolated_nodes_and_graphs_without_edges():
    (batch,) = NeighborLoader(made_data(), [3, 3], torch.tensor([38, 39]), batch_size=2)
    assert (batch.n_id.tolist(), batch.num_edges) == ([38, 39], 0)
    for loader in (
        NeighborLoader(Data(num_nodes=10), [2], batch_size=10),
        NeighborLoader(Data(num_nodes=10), [], batch_size=10),
        NeighborLoader(Data(x=torch.ones(10, 1), edge_index=torch.empty(2, 0, dtype=torch.int64)), [2], batch_size=10),
    ):
        (batch,) = loader
        assert batch.num_nodes == 10
    assert list(NeighborLoader(Data(num_nodes=0), [2])) == []


def test_numbers_of_nodes_that_are_not_said():
    data = Data(edge_index=torch.tensor([[0, 7], [1, 2]]), edge_attr=torch.tensor([3, 4]))
    with pytest.warns(UserWarning, match="num_nodes"):
        loader = NeighborLoader(data, [1], torch.tensor([2]))
    (batch,) = loader
    assert (batch.n_id.tolist(), batch.edge_attr.tolist()) == ([2, 7], [4])


def test_everything_a_loader_of_torch_takes():
    data = made_data()
    assert [len(batch.input_id) for batch in NeighborLoader(data, [1], batch_size=16)] == [16, 16, 8]
    assert [len(batch.input_id) for batch in NeighborLoader(data, [1], batch_size=16, drop_last=True)] == [16, 16]
    own = torch.utils.data.SubsetRandomSampler([4, 5, 6])
    loader = NeighborLoader(data, [1], batch_size=2, sampler=own)
    assert sorted(torch.cat([batch.input_id for batch in loader]).tolist()) == [4, 5, 6]
    loader = NeighborLoader(data, [1], batch_sampler=[[5], [6, 7, 8]])
    assert [batch.input_id.tolist() for batch in loader] == [[5], [6, 7, 8]]
    batches = list(NeighborLoader(data, [1], input_nodes=torch.tensor([5, 6]), batch_size=None))
    assert [(batch.batch_size, batch.n_id[0].item()) for batch in batches] == [(1, 5), (1, 6)]
    loader = NeighborLoader(data, [1], batch_size=None, sampler=[torch.tensor([3, 4]), torch.tensor([5])])
    assert [batch.input_id.tolist() for batch in loader] == [[3, 4], [5]]
    assert len(loader) == 2


def test_samplers_that_repeat_nodes():
    """Fault 3 as users meet it."""
    data = made_data()
    data.y = (torch.arange(40) < 3).long()
    loader = NeighborLoader(data, [2, 2], batch_size=20, sampler=ImbalancedSampler(data))
    repeats = 0
    for batch in loader:
        assert_aligned(batch, data)
        repeats += batch.batch_size - len(batch.input_id.unique())
    assert repeats > 0


@pytest.mark.filterwarnings("ignore:.*pin_memory")
@pytest.mark.parametrize("prefetch", [0, 2])
def test_pinned_memory_where_there_is_no_accelerator(prefetch):
    loader = NeighborLoader(made_data(), [2], batch_size=40, pin_memory=True, prefetch=prefetch)
    (batch,) = loader
    assert_aligned(batch, made_data())
    assert batch.x.is_pinned() == torch.cuda.is_available()


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("filter_per_worker", [False, True])
def test_transforms(prefetch, filter_per_worker):
    """Each is called once for each batch, in the thread of the caller."""
    data, threads = made_data(), []

    def on_output(out):
        threads.append(threading.current_thread())
        assert out.node.dtype == torch.int64
        out.edge = None
        return out

    def on_batch(batch):
        threads.append(threading.current_thread())
        batch.calls = batch.get("calls", 0) + 1
        return batch

    loader = NeighborLoader(
        data, [2, 2], batch_size=20, transform=on_batch, transform_sampler_output=on_output, prefetch=prefetch,
        filter_per_worker=filter_per_worker,
    )  # fmt: skip
    batches = list(loader)
    assert [batch.calls for batch in batches] == [1, 1]
    assert [batch.edge_attr for batch in batches] == [None, None]
    assert threads == [threading.current_thread()] * 4
    assert loader([0]).calls == 1


def test_a_transform_may_return_anything():
    loader = NeighborLoader(made_data(), [2], batch_size=20, transform=lambda batch: (batch.x, batch.edge_index))
    assert [len(found) for found in loader] == [2, 2]


@pytest.mark.parametrize("prefetch", [0, 2])
def test_gradients_are_as_in_the_thread_of_the_caller(prefetch):
    data = made_data()
    data.x.requires_grad_()
    loader = NeighborLoader(data, [2], batch_size=40, prefetch=prefetch)
    (batch,) = loader
    assert batch.x.requires_grad
    with torch.no_grad():
        (batch,) = loader
    assert not batch.x.requires_grad


def test_one_batch_by_hand():
    data = made_data()
    loader = NeighborLoader(data, [2, 2], torch.tensor([4, 5, 6]), seed=1)
    batch = loader([1, 2])
    assert (batch.input_id.tolist(), batch.n_id[:2].tolist()) == ([1, 2], [5, 6])
    assert_aligned(batch, data)
    assert same(batch, loader(torch.tensor([1, 2])))
    free = NeighborLoader(made_data(num_edges=900), [2, 2])
    assert len({tuple(free([1, 2]).e_id.tolist()) for _ in range(5)}) > 1
    timed = NeighborLoader(data, [2], time_attr="time")
    assert (timed(torch.tensor([4, 5]), torch.tensor([3, 3])).time[2:] <= 3).all()


def test_batches_of_an_epoch_draw_for_themselves():
    """The same seed in every batch meets other neighbours each time."""
    degree, repeats = 20, 2000
    data = Data(edge_index=torch.stack([torch.arange(1, degree + 1), torch.zeros(degree, dtype=torch.int64)]))
    data.num_nodes = degree + 1
    loader = NeighborLoader(data, [1], torch.zeros(repeats, dtype=torch.int64), seed=3)
    counts = np.bincount([int(batch.e_id) for batch in loader], minlength=degree)
    assert chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize("loader_class", [NeighborLoader, torch_geometric.loader.NeighborLoader, NodeLoader])
def test_our_sampler_where_pyg_takes_one(loader_class):
    data = made_data()
    sampler = NeighborSampler(data, [3, 2], seed=4)
    options = (
        {"node_sampler": sampler} if loader_class is NodeLoader else {"num_neighbors": [9], "neighbor_sampler": sampler}
    )
    for batch in loader_class(data, **options, batch_size=16):
        assert_aligned(batch, data)
        assert len(batch.num_sampled_edges) == 2


def test_a_sampler_of_pyg_in_our_loader():
    class Alone(NeighborSampler.__mro__[1]):  # BaseSampler
        def sample_from_nodes(self, inputs):
            assert threading.current_thread() is threading.main_thread()
            out = NeighborSampler(made_data(), [0]).sample_from_nodes(inputs)
            out.metadata = (inputs.input_id, inputs.time)
            return out

        def sample_from_edges(self, inputs, neg_sampling=None):
            raise NotImplementedError

    batches = list(NeighborLoader(made_data(), [5], neighbor_sampler=Alone(), batch_size=20))
    assert [batch.num_edges for batch in batches] == [0, 0]


def test_trimming_by_layers_gives_the_output_of_the_whole_graph():
    data = made_data()
    torch.manual_seed(0)
    convs = [SAGEConv(1, 4), SAGEConv(4, 4), SAGEConv(4, 2)]

    def forward(x, edge_index, counts=None):
        for number, conv in enumerate(convs):
            if counts is not None:
                x, edge_index, _ = trim_to_layer(number, *counts, x, edge_index)
            x = conv(x, edge_index).relu()
        return x

    whole = forward(data.x, data.edge_index)
    for batch in NeighborLoader(data, [-1, -1, -1], batch_size=7):
        trimmed = forward(batch.x, batch.edge_index, (batch.num_sampled_nodes, batch.num_sampled_edges))
        torch.testing.assert_close(trimmed[: batch.batch_size], whole[batch.input_id])


@pytest.mark.skipif(PYG < (2, 7), reason="its to_hetero needs what newer versions of torch have not")
def test_trimming_over_types():
    data = made_hetero()
    torch.manual_seed(0)

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = SAGEConv(1, 4), SAGEConv(4, 2)

        def forward(self, x, edge_index):
            return self.second(self.first(x, edge_index).relu(), edge_index)

    net = to_hetero(Net(), data.metadata())
    whole = net(data.x_dict, data.edge_index_dict)["item"]
    for batch in NeighborLoader(data, [-1, -1], "item", batch_size=7):
        found = net(batch.x_dict, batch.edge_index_dict)["item"]
        store = batch["item"]
        torch.testing.assert_close(found[: store.batch_size], whole[store.input_id])
        x, edge_index, _ = trim_to_layer(
            1, batch.num_sampled_nodes_dict, batch.num_sampled_edges_dict, batch.x_dict, batch.edge_index_dict
        )
        for edge_type, edges in edge_index.items():
            assert edges.shape[1] == batch[edge_type].num_sampled_edges[0]
        assert {name: len(values) for name, values in x.items()} == {
            name: sum(batch[name].num_sampled_nodes[:-1]) for name in batch.node_types
        }


@pytest.mark.parametrize("cache", [False, True])
def test_inference_layer_by_layer(cache):
    data = made_data()
    torch.manual_seed(0)
    model = GraphSAGE(1, 4, 2, 3).eval()
    loader = NeighborLoader(data, [-1], batch_size=7)
    torch.testing.assert_close(model.inference(loader, cache=cache), model(data.x, data.edge_index))


def test_features_of_arrays_and_read_only_files(tmp_path):
    data = made_data()
    x = np.memmap(tmp_path / "x", np.float32, "w+", shape=(40, 2))
    x[:] = np.arange(80).reshape(40, 2)
    x.flush()
    data.x = np.memmap(tmp_path / "x", np.float32, "r", shape=(40, 2))
    (batch,) = NeighborLoader(data, [2], torch.tensor([4, 5]), batch_size=2)
    assert torch.equal(batch.x, torch.from_numpy(np.array(data.x))[batch.n_id])


def test_what_is_no_feature_stays_as_it_is():
    data = made_data()
    data.name, data.table = "made", torch.ones(7, 2)
    (batch,) = NeighborLoader(data, [2], torch.tensor([4, 5]), batch_size=2)
    assert (batch.name, batch.table.shape) == ("made", (7, 2))
    assert data.edge_index.shape == (2, 200)  # not touched


def test_fan_outs_as_pyg_says_them():
    data = made_hetero()
    fan_outs = NumNeighbors({BUYS: [1, 1]}, default=[0, 0])
    (batch,) = NeighborLoader(data, fan_outs, "item", batch_size=20)
    assert batch[BUYS].num_edges > 0
    assert batch[SOLD].num_edges == batch[KNOWS].num_edges == 0


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"seed": 0.5}, ArgumentError, "seed: expected"),
        ({"prefetch": -1}, ArgumentError, "prefetch: expected"),
        ({"num_threads": -1}, ArgumentError, "num_threads: expected"),
        ({"input_time": torch.zeros(40)}, ValueError, "'time_attr' is not set"),
        ({"time_attr": "age"}, ValueError, "neither"),
        ({"weight_attr": "mass"}, ArgumentError, "weight_attr"),
        ({"num_neighbors": 3}, ArgumentError, "num_neighbors: expected a list"),
        ({"num_neighbors": [2**32 + 1]}, ArgumentError, "num_neighbors: expected at most 4294967296, .*; -1 takes all"),
        ({"num_neighbors": [2**70]}, ArgumentError, "num_neighbors: expected at most"),
        ({"input_nodes": torch.tensor([40])}, ArgumentError, "got 40"),
        (
            {"input_nodes": torch.arange(4), "input_time": torch.arange(40), "time_attr": "time"},
            ArgumentError,
            r"input_time: expected 4, one for each seed, got shape \[40\]",
        ),
        ({"batch_size": 0}, ValueError, "batch_size"),
        ({"unknown": 1}, TypeError, "unknown"),
    ],
)
def test_errors(change, error, message):
    with pytest.raises(error, match=message):
        list(NeighborLoader(made_data(), **{"num_neighbors": [2], **change}))


def test_seeds_of_a_type_that_no_edge_leads_to():
    data = HeteroData()
    data["a"].x, data["b"].x = torch.eye(3), torch.eye(4)
    data["a", "b"].edge_index = torch.tensor([[0, 1], [1, 2]])
    (batch,) = NeighborLoader(data, [2], "a", batch_size=3)
    assert (batch["a"].num_nodes, batch["b"].num_nodes, batch["a", "b"].num_edges) == (3, 0, 0)


def test_the_sampler_in_the_loader_of_pyg_with_spawned_workers():
    """Starting them moves the data's tensors, which no array of the sampler may lie in."""
    data = made_data(num_edges=400)
    order = data.edge_index[1].argsort(stable=True)  # then the sampler need not bring the edges in order
    data = Data(x=data.x, edge_index=data.edge_index[:, order], edge_time=data.edge_time[order].sort().values)
    sampler = NeighborSampler(data, [3, 2], time_attr="edge_time", seed=1)
    options = {"neighbor_sampler": sampler, "batch_size": 20, "input_time": torch.full((40,), 15)}
    options["time_attr"] = "edge_time"
    expected = list(torch_geometric.loader.NeighborLoader(data, [3, 2], **options))
    spawned = torch_geometric.loader.NeighborLoader(
        data, [3, 2], num_workers=1, multiprocessing_context="spawn", **options
    )
    assert all(same(one, other) for one, other in zip(copies(spawned), expected))
    again = torch_geometric.loader.NeighborLoader(data, [3, 2], **options)
    assert all(same(one, other) for one, other in zip(list(again), expected))
