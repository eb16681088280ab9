"""Workers that are not forked: the first batches come from this process, and nothing is copied for each of them."""

from __future__ import annotations

import gc
import itertools
import pickle
import threading
import time
from typing import ClassVar

import pytest

pytest.importorskip("torch_geometric", reason="the layer takes the place of PyTorch Geometric's classes")

import numpy as np
import torch

from pyg_cases import copies, made_data, same
from sage_attention import Graph
from sage_attention.pyg import NeighborLoader, NeighborSampler
from sage_attention.pyg.sharing import Packed, share_tensors
from sage_attention.pyg.starting import AreYouThere, Gate, Handover, Start, WhileWorkersStart

SPAWN = {"num_workers": 2, "multiprocessing_context": "spawn"}


def loader(**options):
    options = {"batch_size": 2, "shuffle": True, "seed": 5, **options}
    return NeighborLoader(made_data(num_edges=400), [3, 2], **options)


def starting():
    return [thread for thread in threading.enumerate() if thread.name == "sage-attention-start"]


def wait_for_starts():
    for thread in starting():
        thread.join()


class Workers:
    """torch's iterator over workers, in this thread; it answers when it may."""

    def __init__(self, gate, questions):
        self.may_answer = threading.Event()
        self.ended = []
        self._gate, self._count = gate, questions
        self._reset(None)
        self.resets = 0

    def _reset(self, _):
        self.resets = getattr(self, "resets", 0) + 1
        self._indices = iter(self._gate)
        self._tasks = list(itertools.islice(self._indices, self._count))

    def __iter__(self):
        return self

    def __next__(self):
        self.may_answer.wait()
        if not self._tasks:
            raise StopIteration
        task = self._tasks.pop(0)
        self._tasks.extend(itertools.islice(self._indices, 1))
        return task if isinstance(task, AreYouThere) else ("worker", task)


def handover(count=20, persistent=False):
    indices = range(count)
    gate = Gate(indices)
    workers = Workers(gate, 4)
    start = Start(gate, lambda: workers, 2)

    def here(picked):
        for index in picked:
            yield "here", index

    return WhileWorkersStart(
        Handover(start, indices, here, lambda batch: batch, 4, object() if persistent else None)
    ), workers, start  # fmt: skip


@pytest.mark.parametrize("first", [0, 1, 7, 19])
def test_workers_go_on_where_this_process_was(first):
    batches, workers, start = handover()
    found = list(itertools.islice(batches, first))
    workers.may_answer.set()
    start.thread.join()
    found += batches
    assert found == [("here" if index < first else "worker", index) for index in range(20)]
    assert start.batches is None  # are let go of


def test_an_epoch_that_is_over_before_they_are_there():
    batches, workers, start = handover()
    assert list(batches) == [("here", index) for index in range(20)]
    workers.may_answer.set()
    start.thread.join()
    assert list(batches) == []


@pytest.mark.parametrize("first", [0, 3, 20])
def test_persistent_workers_have_the_later_epochs(first):
    batches, workers, start = handover(persistent=True)
    assert len(list(itertools.islice(batches, first))) == first
    workers.may_answer.set()
    start.thread.join()
    list(batches)
    batches._reset(None)
    assert workers.resets == 1
    assert list(batches) == [("worker", index) for index in range(20)]


def test_workers_that_cannot_start():
    def begin():
        raise OSError("no room")

    gate = Gate(range(9))
    start = Start(gate, begin, 2)
    start.thread.join()
    with pytest.raises(OSError, match="no room"):
        WhileWorkersStart(Handover(start, range(9), iter, lambda batch: batch, 4, None))


def test_one_start_at_a_time_and_none_that_nobody_wants():
    begun = []
    batches, workers, _ = handover()
    second = Start(Gate(range(3)), lambda: begun.append(1), 2)
    second.give_up()
    time.sleep(0.05)
    assert second.thread.is_alive()
    workers.may_answer.set()
    second.thread.join(10)
    assert not second.thread.is_alive()
    assert begun == []
    del batches


class Held(Start):
    """Notes which starts begin, and holds each until it may."""

    begun: ClassVar[list[str]] = []
    may_go_on = threading.Event()

    def __init__(self, gate, begin, num_workers):
        def noted():
            self.begun.append(threading.current_thread().name)
            self.may_go_on.wait()
            return begin()

        super().__init__(gate, noted, num_workers)


@pytest.fixture
def held(monkeypatch):
    wait_for_starts()
    Held.begun.clear()
    Held.may_go_on.clear()
    monkeypatch.setattr("sage_attention.pyg.epochs.Start", Held)
    yield Held
    Held.may_go_on.set()
    wait_for_starts()


def test_of_many_loaders_that_are_finished_at_once_one_begins(held):
    expected = list(loader())
    others = [loader(**SPAWN) for _ in range(4)]
    for other in others[:3]:
        assert all(same(one, two) for one, two in zip(list(other), expected))
    next(iter(others[3]))
    list(others[0])  # once more
    assert len(starting()) == 5
    held.may_go_on.set()
    wait_for_starts()
    assert len(held.begun) == 1
    assert not torch.multiprocessing.active_children()


def test_the_end_of_the_interpreter_waits_for_no_start_that_has_not_begun(held, monkeypatch):
    others = [loader(**SPAWN, persistent_workers=True) for _ in range(3)]
    batches = [iter(other) for other in others]
    assert all(next(each) is not None for each in batches)
    over = threading.Thread()
    monkeypatch.setattr(threading, "main_thread", lambda: over)
    held.may_go_on.set()
    wait_for_starts()
    assert len(held.begun) == 1
    assert not torch.multiprocessing.active_children()
    with pytest.raises(RuntimeError, match="the interpreter ended"):
        list(batches[2])
    del batches, others
    gc.collect()


def test_workers_that_nobody_wants_any_more_answer_before_they_end():
    """One that is ended while it sends may abort, which torch reports by an error in the main thread."""
    batches, workers, start = handover()
    next(batches)
    del batches
    workers.may_answer.set()
    start.thread.join(10)
    assert not start.thread.is_alive()
    assert workers._tasks == []
    assert list(workers._indices) == []
    assert start.batches is None


class OwnError(Exception):
    """Known to the tests alone."""


def failing_in_workers(batch):
    if torch.utils.data.get_worker_info() is not None:
        raise OwnError("of a worker")
    return batch


@pytest.mark.parametrize("options", [{}, {"filter_per_worker": False}])
def test_errors_of_transforms_in_workers_reach_the_user(options):
    other = loader(**SPAWN, transform=failing_in_workers, **options)
    batches = iter(other)
    next(batches)
    wait_for_starts()
    if options:  # the caller's process gathers and transforms then
        assert len(list(batches)) == 19
    else:
        with pytest.raises(OwnError, match="of a worker"):
            list(batches)
    del batches
    gc.collect()


@pytest.mark.parametrize("options", [{}, {"persistent_workers": True, "filter_per_worker": False}])
def test_spawned_workers_take_over(options):
    """Batches from both are those of one process; the first does not wait for the workers."""
    plain, other = loader(), loader(**SPAWN, **options)
    expected = list(plain)
    batches = iter(other)
    found = [next(batches).clone()]
    assert starting()
    wait_for_starts()
    found += [batch.clone() for batch in batches]
    assert len(found) == 20
    assert all(same(one, two) for one, two in zip(found, expected))
    assert all(same(one, two) for one, two in zip(copies(other), list(plain)))
    del batches, other
    gc.collect()
    wait_for_starts()


def test_letting_go_of_an_epoch_ends_its_threads():
    other = loader(**SPAWN)
    next(iter(other))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("sage-attention-loader")]
    wait_for_starts()
    assert not [process for process in torch.multiprocessing.active_children() if process.is_alive()]


def worker_says(_):
    pass


@pytest.mark.parametrize("options", [{"prefetch": 0}, {"worker_init_fn": worker_says}, {"timeout": 100}])
def test_where_workers_make_all_batches(options):
    other = loader(num_workers=1, multiprocessing_context="spawn", **options)
    assert not other._makes_first_batches()
    assert loader(**SPAWN)._makes_first_batches()


def test_packed_arrays_are_seen_not_copied():
    graph = Graph.from_edge_index([[0, 2, 1], [1, 1, 0]])
    packed = Packed((graph, graph.indptr))
    one, other = packed.unpacked(), packed.unpacked()
    assert one[0].indices.tolist() == [1, 0, 2]
    assert not one[0].indices.flags.writeable
    assert np.shares_memory(one[0].indices, other[0].indices)
    assert not np.shares_memory(one[0].indices, graph.indices)
    assert Packed(np.empty(0, np.int64)).unpacked().shape == (0,)


def test_a_sampler_that_was_shared_samples_as_before_and_is_copied():
    plain, sampler = (NeighborSampler(made_data(), [3, 2], seed=2) for _ in range(2))
    sampler.share()
    sampler.share()
    other = pickle.loads(pickle.dumps(sampler))
    found = [each._sample(torch.arange(9)) for each in (plain, sampler, other)]
    assert found[0].edge.tolist() == found[1].edge.tolist() == found[2].edge.tolist()


def test_all_tensors_are_shared_first():
    data = made_data()
    weights = [torch.ones(3), torch.nn.Parameter(torch.zeros(2))]
    x = data.x.clone()
    share_tensors({"data": data, "weights": weights})
    assert data.x.is_shared()
    assert data.edge_index.is_shared()
    assert all(tensor.is_shared() for tensor in weights)
    assert torch.equal(data.x, x)
    with pytest.raises((AttributeError, pickle.PicklingError)):
        share_tensors(lambda: 0)
