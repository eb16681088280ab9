"""Batches in pinned memory, so that copies keep nobody waiting. CUDA is faked: to pin is to copy, and is noted."""

from __future__ import annotations

import threading
import types

import pytest

pytest.importorskip("torch_geometric", reason="the layer takes the place of PyTorch Geometric's classes")

import torch

from pyg_cases import BUYS, Edges, Features, made_data, made_hetero, same
from sage_attention.pyg import LinkNeighborLoader, NeighborLoader


class Pinned:
    """Which tensors have been pinned, in order, and by which threads."""

    def __init__(self):
        self.tensors = []
        self.threads = set()

    def pin(self, tensor):
        if any(tensor is other for other in self.tensors):
            return tensor
        self.threads.add(threading.current_thread())
        self.tensors.append(tensor.detach().clone())
        return self.tensors[-1]

    def places(self, batch):
        """When each tensor of a batch was pinned; ValueError if one was not."""
        identities = {id(tensor): place for place, tensor in enumerate(self.tensors)}
        return [identities[id(tensor)] for tensor in tensors_of(batch)]


def tensors_of(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if hasattr(value, "to_dict"):
        value = value.to_dict()
    values = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else []
    return [tensor for each in values for tensor in tensors_of(each)]


@pytest.fixture
def pinned(monkeypatch):
    found = Pinned()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor, *_: found.pin(tensor))
    if hasattr(torch, "accelerator"):
        monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
        monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: types.SimpleNamespace(type="cuda"))
    return found


def in_stores():
    data = made_data()
    features, edges = Features(), Edges()
    features.put_tensor(data.x, group_name=None, attr_name="x", index=None)
    features.put_tensor(data.edge_attr, group_name=None, attr_name="edge_attr", index=None)
    edges.put_edge_index(data.edge_index, edge_type=None, layout="coo", size=(40, 40))
    return features, edges


LOADERS = {
    "nodes": lambda **options: NeighborLoader(made_data(), [3, 2], batch_size=8, seed=1, **options),
    "types": lambda **options: NeighborLoader(
        made_hetero(), [3, 2], ["user", "item"], batch_size=16, seed=1, **options
    ),
    "links": lambda **options: LinkNeighborLoader(
        made_hetero(), [3], edge_label_index=BUYS, neg_sampling="binary", batch_size=32, seed=1, **options
    ),
    "stores": lambda **options: NeighborLoader(in_stores(), [3, 2], torch.arange(40), batch_size=8, seed=1, **options),
}


@pytest.mark.parametrize("kind", LOADERS)
@pytest.mark.parametrize("prefetch", [0, 1, 3])
@pytest.mark.parametrize("options", [{}, {"filter_per_worker": True}, {"filter_per_worker": False}])
def test_all_that_is_handed_out_is_pinned_in_order(pinned, kind, prefetch, options):
    expected = list(LOADERS[kind](prefetch=prefetch))
    assert not pinned.tensors
    found = list(LOADERS[kind](prefetch=prefetch, pin_memory=True, **options))
    assert len(found) == len(expected) > 1
    assert all(same(one, other) for one, other in zip(found, expected))
    last = -1
    for batch in found:
        places = pinned.places(batch)
        assert len(places) > 5
        assert min(places) > last
        last = max(places)
    # Whoever iterates has the device; what makes batches ahead has not been told of one.
    assert pinned.threads == {threading.current_thread()}


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("filter_per_worker", [False, True])
def test_what_a_transform_returns_is_pinned(pinned, prefetch, filter_per_worker):
    def transform(batch):
        batch.added = batch.x * 2
        return batch

    options = {"prefetch": prefetch, "filter_per_worker": filter_per_worker, "transform": transform}
    for batch in LOADERS["nodes"](pin_memory=True, **options):
        assert torch.equal(batch.added, batch.x * 2)
        pinned.places(batch)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_copies_do_not_wait(pinned, monkeypatch, prefetch):
    """`to(device, non_blocking=True)` reaches each tensor, which has been pinned."""
    asked = []
    real = torch.Tensor.to

    def to(tensor, *_, **kwargs):
        asked.append((tensor, kwargs.get("non_blocking", False)))
        return real(tensor, "cpu")

    loader = LOADERS["nodes"](pin_memory=True, prefetch=prefetch)
    for batch in loader:
        with monkeypatch.context() as patch:
            patch.setattr(torch.Tensor, "to", to)
            copied = batch.to("cuda", non_blocking=True)
        assert same(copied, batch)
    assert len(asked) > 5 * len(loader)
    pinned.places([tensor for tensor, _ in asked])
    assert all(non_blocking for _, non_blocking in asked)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_nothing_is_pinned_without_need(pinned, prefetch):
    list(LOADERS["nodes"](prefetch=prefetch))
    loader = LOADERS["nodes"](prefetch=prefetch, pin_memory=True)
    loader([0, 1])  # by hand, as PyTorch Geometric's
    assert not pinned.tensors
