"""Graphs, stores and a slow twin for the tests of sage_attention.pyg."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from reference import hetero as reference

pytest.importorskip("torch_geometric")

from tests.windows import ON_WINE
from torch_geometric import __version__ as version
from torch_geometric.data import Data, EdgeAttr, FeatureStore, GraphStore, HeteroData, TensorAttr
from torch_geometric.data.graph_store import EdgeLayout

PYG = tuple(map(int, version.split(".")[:2]))

BUYS, SOLD, KNOWS = ("user", "buys", "item"), ("item", "sold", "user"), ("user", "knows", "user")


def made_data(seed=0, num_nodes=40, num_edges=200, isolated=3, dtype=torch.int64):
    """Shuffled edges with parallel ones and self loops; features and edge features say whose they are."""
    rng = np.random.default_rng(seed)
    edge_index = torch.from_numpy(rng.integers(0, num_nodes - isolated, (2, num_edges))).to(dtype)
    return Data(
        x=torch.arange(num_nodes, dtype=torch.float32).view(-1, 1) * 10,
        edge_index=edge_index,
        edge_attr=torch.arange(num_edges).view(-1, 1) * 100,
        time=torch.from_numpy(rng.integers(0, 20, num_nodes)),
        edge_time=torch.from_numpy(rng.integers(0, 20, num_edges)),
        weight=torch.from_numpy(rng.integers(0, 4, num_edges).astype(np.float32)),
    )


def made_hetero(seed=0, num_users=30, num_items=20, num_edges=120, dtype=torch.int64):
    """Three relations, none of them in any order."""
    rng = np.random.default_rng(seed)
    data = HeteroData()
    counts = {"user": num_users, "item": num_items}
    for name, count in counts.items():
        data[name].x = torch.arange(count, dtype=torch.float32).view(-1, 1) * 10
        data[name].time = torch.from_numpy(rng.integers(0, 20, count))
    for edge_type in (BUYS, SOLD, KNOWS):
        ends = [rng.integers(0, counts[end], num_edges) for end in (edge_type[0], edge_type[-1])]
        data[edge_type].edge_index = torch.from_numpy(np.stack(ends)).to(dtype)
        data[edge_type].edge_attr = torch.arange(num_edges).view(-1, 1) * 100
        data[edge_type].edge_time = torch.from_numpy(rng.integers(0, 20, num_edges))
        data[edge_type].weight = torch.from_numpy(rng.integers(0, 4, num_edges).astype(np.float32))
    return data


if ON_WINE:
    # PyTorch Geometric asks `index != UNSET`: torch throws inside, and Wine destroys what is thrown once too often.
    # Here, not in a fixture: spawned workers, too, come by on their way to the stores.
    UNSET = TensorAttr().index
    TensorAttr.is_set = lambda attr, key: getattr(attr, key) is not UNSET


class Features(FeatureStore):
    """Tensors in a dict."""

    def __init__(self):
        super().__init__()
        self.tensors = {}
        self.asked = []  # (group, name, number of rows), as they are fetched

    def _put_tensor(self, tensor, attr):
        self.tensors[attr.group_name, attr.attr_name] = tensor
        return True

    def _get_tensor(self, attr):
        tensor = self.tensors[attr.group_name, attr.attr_name]
        found = tensor if attr.index is None else tensor[attr.index]
        self.asked.append((attr.group_name, attr.attr_name, len(found)))
        return found

    def _remove_tensor(self, attr):
        return self.tensors.pop((attr.group_name, attr.attr_name), None) is not None

    def _get_tensor_size(self, attr):
        return self.tensors[attr.group_name, attr.attr_name].size()

    def get_all_tensor_attrs(self):
        return [TensorAttr(*key) for key in self.tensors]


class Edges(GraphStore):
    """Edge indices in a dict."""

    def __init__(self):
        super().__init__()
        self.found = {}

    def _put_edge_index(self, edge_index, attr):
        self.found[attr.edge_type, attr.layout.value, attr.is_sorted, attr.size] = edge_index
        return True

    def _get_edge_index(self, attr):
        return self.found.get((attr.edge_type, attr.layout.value, attr.is_sorted, attr.size))

    def _remove_edge_index(self, attr):
        return self.found.pop((attr.edge_type, attr.layout.value, attr.is_sorted, attr.size), None) is not None

    def get_all_edge_attrs(self):
        return [EdgeAttr(*key) for key in self.found]


def stored(edge_index, size, layout, time=None):
    """(what the store is given, its attributes without the type, original id of each stored edge)."""
    row, col = edge_index
    order = torch.arange(len(row))
    if layout == "csr":
        order = torch.argsort(row, stable=True)
    elif layout != "coo":
        keys = (col.numpy(),) if time is None else (time.numpy(), col.numpy())
        order = torch.from_numpy(np.lexsort(keys))
    row, col = row[order], col[order]
    if layout == "csr":
        rowptr = torch.searchsorted(row, torch.arange(size[0] + 1))
        return (rowptr, col), {"layout": EdgeLayout.CSR, "size": size}, order
    if layout == "csc":
        colptr = torch.searchsorted(col, torch.arange(size[1] + 1))
        return (row, colptr), {"layout": EdgeLayout.CSC, "is_sorted": True, "size": size}, order
    return (row, col), {"layout": EdgeLayout.COO, "is_sorted": layout == "sorted", "size": size}, order


def twin(data, num_neighbors, seeds, *, seed, seed_times=None, time_attr=None, weight_attr=None, **options):
    """The slow model on the edges of `data`, sorted here. Seeds by type; "node" in a homogeneous graph.

    Returns:
        The sample, and per relation the original id of each of its positions.
    """
    hetero = isinstance(data, HeteroData)
    stores = {edge_type: data[edge_type] for edge_type in data.edge_types} if hetero else {("node", "e", "node"): data}
    num_nodes = {name: data[name].num_nodes for name in data.node_types} if hetero else {"node": data.num_nodes}
    relations, orders = [], []
    for edge_type, store in stores.items():
        row, col = store.edge_index.numpy().astype(np.int64)
        sources = data[edge_type[0]] if hetero else data
        times = None
        if time_attr is not None:
            times = sources.time.numpy()[row] if time_attr == "time" else store[time_attr].numpy()
        order = np.lexsort((col,) if times is None else (times, col))
        weights = None if weight_attr is None else store[weight_attr].numpy().astype(np.float64)
        order = order if weights is None else order[weights[order] > 0]
        indptr = np.searchsorted(col[order], np.arange(num_nodes[edge_type[-1]] + 1))
        relations.append(
            reference.ReferenceRelation(
                edge_type[0], edge_type[-1], indptr.tolist(), row[order].tolist(),
                num_neighbors[edge_type] if isinstance(num_neighbors, dict) else num_neighbors,
                None if times is None else times[order].tolist(), None if weights is None else weights[order].tolist(),
            )
        )  # fmt: skip
        orders.append(torch.from_numpy(order))
    sample = reference.sample_hetero(relations, num_nodes, seeds, seed=seed, seed_times=seed_times, **options)
    return sample, orders


def assert_aligned(batch, data):
    """The nodes, edges and features of a batch are those of the graph, and its edges are in CSC order by target."""
    stores = [(batch[key], data[key], key) for key in batch.edge_types] if isinstance(batch, HeteroData) else None
    if stores is None:
        stores = [(batch, data, (None, None))]
        ends = {None: batch}
    else:
        ends = {name: batch[name] for name in batch.node_types}
    for name, store in ends.items():
        whole = data if name is None else data[name]
        assert torch.equal(store.x, whole.x[store.n_id])
    for store, whole, key in stores:
        both = (ends[key[0]].n_id[store.edge_index[0]], ends[key[-1]].n_id[store.edge_index[1]])
        assert torch.equal(torch.stack(both), whole.edge_index[:, store.e_id].long())
        assert torch.equal(store.edge_attr, whole.edge_attr[store.e_id])
        assert (store.edge_index[1].diff() >= 0).all()


def same(one, other):
    """Whether two batches hold the same."""
    first, second = one.to_dict(), other.to_dict()
    return _same(first, second)


def _same(first, second):
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(_same(first[key], second[key]) for key in first)
    if isinstance(first, torch.Tensor):
        return torch.equal(first, second)
    return first == second


def copies(batches):
    """The batches of an iteration, apart from the memory they share with worker processes."""
    return [copy.deepcopy(batch) for batch in batches]
