"""Repeatable epochs: the same batches however they are made; resuming; failures and interruptions."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("torch_geometric", reason="the layer takes the place of PyTorch Geometric's classes")

import torch
from torch.utils.data import RandomSampler, WeightedRandomSampler
from torch_geometric.loader import ImbalancedSampler

from pyg_cases import BUYS, copies, made_data, made_hetero, same
from sage_attention import ArgumentError
from sage_attention.pyg import LinkNeighborLoader, NegativeSampling, NeighborLoader

forks = pytest.mark.skipif(sys.platform == "win32", reason="workers are spawned there, see the test of that")


def nodes_loader(**options):
    options = {"batch_size": 8, "shuffle": True, **options}
    return NeighborLoader(made_data(num_edges=400), [3, 2], seed=options.pop("seed", 5), **options)


def links_loader(**options):
    options = {"batch_size": 30, "shuffle": True, **options}
    return LinkNeighborLoader(
        made_hetero(), [3, 2], edge_label_index=BUYS, seed=options.pop("seed", 5), disjoint=True,
        neg_sampling=NegativeSampling("binary", 0.7), **options,
    )  # fmt: skip


def assert_same(found, expected):
    assert len(found) == len(expected)
    assert all(same(one, other) for one, other in zip(found, expected))


def pool_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("sage-attention-loader")]


@pytest.mark.parametrize("make", [nodes_loader, links_loader])
@pytest.mark.parametrize(
    "options",
    [
        {"prefetch": 0},
        {"prefetch": 7},
        {"num_threads": 1},
        {"num_threads": 2},
        {"filter_per_worker": False},
        {"filter_per_worker": False, "prefetch": 0},
        pytest.param({"num_workers": 2}, marks=forks),
        pytest.param({"num_workers": 2, "filter_per_worker": False}, marks=forks),
        pytest.param({"num_workers": 1, "persistent_workers": True, "prefetch_factor": 3}, marks=forks),
    ],
)
def test_the_same_batches_however_they_are_made(make, options):
    plain, other = make(), make(**options)
    first, second = list(plain), list(plain)
    assert_same(copies(other), first)
    assert_same(copies(other), second)
    assert not same(first[0], second[0])  # epochs differ


def test_the_same_batches_in_processes_that_are_spawned():
    loader = nodes_loader(num_workers=2, multiprocessing_context="spawn", persistent_workers=True)
    plain = nodes_loader()
    for _ in range(2):
        assert_same(copies(loader), list(plain))


@pytest.mark.parametrize("options", [{}, {"prefetch": 0}, pytest.param({"num_workers": 2}, marks=forks)])
def test_without_a_seed_torch_names_the_epochs(options):
    expected = None
    for _ in range(2):
        torch.manual_seed(3)
        loader = nodes_loader(seed=None, **options)
        found = copies(loader) + copies(loader)
        if expected is None:
            torch.manual_seed(3)
            plain = nodes_loader(seed=None)
            expected = list(plain) + list(plain)
        assert_same(found, expected)
    torch.manual_seed(4)
    assert not same(next(iter(nodes_loader(seed=None, **options))), expected[0])


def test_seeds_differ():
    assert not same(next(iter(nodes_loader(seed=1))), next(iter(nodes_loader(seed=2))))
    assert same(next(iter(nodes_loader(seed=1))), next(iter(nodes_loader(seed=1))))


def test_what_torch_draws_elsewhere_does_not_matter():
    expected = list(nodes_loader())
    found = []
    for batch in nodes_loader(prefetch=0):
        found.append(batch)
        torch.manual_seed(len(found))
        torch.rand(len(found))
    assert_same(found, expected)


def test_an_iteration_leaves_the_draws_of_the_user_alone():
    draws = []
    for loader in (nodes_loader(), nodes_loader(sampler=ImbalancedSampler(torch.arange(40) % 2), shuffle=None)):
        torch.manual_seed(3)
        batches = iter(loader)
        next(batches)
        draws.append(torch.rand(1).item())
        next(batches)
        draws.append(torch.rand(1).item())
    assert draws[:2] == draws[2:]


@pytest.mark.parametrize(
    "sampler",
    [
        lambda: ImbalancedSampler((torch.arange(40) < 4).long()),
        lambda: WeightedRandomSampler(torch.arange(40).double(), 30),
        lambda: RandomSampler(range(40), replacement=True, num_samples=70),
    ],
)
def test_samplers_of_the_user_are_repeatable_too(sampler):
    make = lambda **options: nodes_loader(sampler=sampler(), shuffle=None, **options)  # noqa: E731
    assert_same(list(make(prefetch=0)), list(make()))
    first, second = make(), list(make())
    one, other = iter(first), iter(first)  # the second of them is another epoch
    mixed = []
    for batch, _ in zip(one, other):
        mixed.append(batch)
    assert_same(mixed, second)


@pytest.mark.parametrize("options", [{}, {"prefetch": 0}, pytest.param({"num_workers": 1}, marks=forks)])
def test_two_iterations_at_a_time(options):
    plain = nodes_loader()
    first, second = list(plain), list(plain)
    loader = nodes_loader(**options)
    both = list(zip(iter(loader), iter(loader)))
    assert_same(copies(one for one, _ in both), first)
    assert_same(copies(other for _, other in both), second)


@pytest.mark.parametrize("options", [{}, {"prefetch": 0}, pytest.param({"num_workers": 2}, marks=forks)])
@pytest.mark.parametrize("make", [nodes_loader, links_loader])
def test_resuming_mid_epoch(make, options):
    loader = make()
    epochs = [list(loader), list(loader), list(loader)]
    loader = make(**options)
    for _ in loader:
        pass
    batches = iter(loader)
    next(batches)
    next(batches)
    state = loader.state_dict()
    assert state == {"seed": 5, "epoch": 1, "batch": 2}
    other = make(**options)
    other.load_state_dict(state)
    assert other.state_dict() == state
    assert_same(copies(other), epochs[1][2:])
    assert_same(copies(other), epochs[2])


def test_where_a_loader_says_it_is():
    loader = nodes_loader()
    assert loader.state_dict() == {"seed": 5, "epoch": 0, "batch": 0}
    counts = [loader.state_dict()["batch"] for _ in loader]
    assert counts == [1, 2, 3, 4, 5]
    assert loader.state_dict() == {"seed": 5, "epoch": 1, "batch": 0}
    loader.set_epoch(7)
    assert loader.state_dict() == {"seed": 5, "epoch": 7, "batch": 0}
    old = iter(loader)
    next(old)
    new = iter(loader)
    next(old)  # it is the newest iteration that counts
    assert loader.state_dict() == {"seed": 5, "epoch": 8, "batch": 0}
    next(new)
    assert loader.state_dict() == {"seed": 5, "epoch": 8, "batch": 1}


def test_a_state_of_the_last_batch_leaves_nothing_of_its_epoch():
    loader = nodes_loader()
    for _ in loader:
        state = loader.state_dict()
    loader.load_state_dict(state)
    assert list(loader) == []
    expected = nodes_loader()
    expected.set_epoch(1)
    assert_same(list(loader), list(expected))


def test_set_epoch():
    loader, other = nodes_loader(), nodes_loader()
    epochs = [list(loader) for _ in range(3)]
    other.set_epoch(2)
    assert_same(list(other), epochs[2])
    other.set_epoch(0)
    assert_same(list(other), epochs[0])
    assert_same(list(other), epochs[1])
    other.load_state_dict({"seed": 5, "epoch": 1, "batch": 3})
    other.set_epoch(1)  # says anew where to begin
    assert_same(list(other), epochs[1])


def test_states_that_do_not_fit():
    loader = nodes_loader()
    with pytest.raises(ArgumentError, match="seed: expected a number"):
        nodes_loader(seed=None).state_dict()
    for wrong in ({}, None, {"seed": 5, "epoch": 0}, {"seed": 5, "epoch": 0, "batch": 0, "more": 0}):
        with pytest.raises(ArgumentError, match="what state_dict gave"):
            loader.load_state_dict(wrong)
    for other in (loader, nodes_loader(seed=None)):
        with pytest.raises(ArgumentError, match="one of a loader with seed"):
            other.load_state_dict({"seed": 6, "epoch": 0, "batch": 0})
    with pytest.raises(ArgumentError, match="batch"):
        loader.load_state_dict({"seed": 5, "epoch": 0, "batch": -1})
    with pytest.raises(ArgumentError, match=rf"\[0, {len(loader)}\], got {len(loader) + 1}"):
        loader.load_state_dict({"seed": 5, "epoch": 0, "batch": len(loader) + 1})
    loader.load_state_dict({"seed": 5, "epoch": 0, "batch": len(loader)})
    assert list(loader) == []
    with pytest.raises(ArgumentError, match="epoch"):
        loader.set_epoch(-1)


def test_lengths():
    loader = nodes_loader()
    assert len(loader) == len(iter(loader)) == 5
    assert len(nodes_loader(prefetch=0, drop_last=True, batch_size=7)) == 5


def test_what_pyg_has_is_there_too():
    loader = nodes_loader()
    assert loader.dataset == range(40) != range(41)
    assert loader.dataset != list(range(40))
    assert {loader.dataset: 1}[loader.dataset] == 1


@pytest.mark.parametrize("options", [{}, {"prefetch": 0}, pytest.param({"num_workers": 1}, marks=forks)])
def test_iterators_without_iter(options):
    """PyTorch Geometric's users ask for torch's own, to see its worker processes."""
    loader = nodes_loader(**options)
    iterator = loader._get_iterator()
    assert len(getattr(iterator, "_workers", [])) == options.get("num_workers", 0)
    assert_same(copies(iterator), list(nodes_loader()))
    assert loader.state_dict()["epoch"] == 0
    other = nodes_loader()
    other.set_epoch(1)
    assert_same(copies(loader), list(other))


@pytest.mark.parametrize("break_after", [0, 1, 3])
def test_an_abandoned_iteration_leaves_no_thread(break_after):
    loader = nodes_loader(prefetch=3)
    for number, _ in enumerate(loader):
        assert len(pool_threads()) == 1
        if number == break_after:
            break
    del _
    assert pool_threads() == []
    iter(loader)
    batches = iter(loader)
    next(batches)
    del batches
    assert pool_threads() == []
    list(loader)
    assert pool_threads() == []


def test_no_more_batches_are_made_ahead_than_asked_for():
    made = []

    class Counting(NeighborLoader):
        def collate_fn(self, index):
            made.append(index)
            return super().collate_fn(index)

    loader = Counting(made_data(), [2], batch_size=4, prefetch=2)
    batches = iter(loader)
    assert made == []
    next(batches)
    next(batches)
    del batches
    assert 2 <= len(made) <= 4
    assert len(loader) == 10


class OwnError(Exception):
    """Known to the tests alone."""


class Failing:
    """Fails at its third call."""

    def __init__(self):
        self.calls = 0

    def __call__(self, found):
        self.calls += 1
        if self.calls == 3:
            raise OwnError("third")
        return found


@pytest.mark.parametrize("options", [{}, {"prefetch": 0}])
@pytest.mark.parametrize("where", ["transform", "transform_sampler_output"])
def test_errors_of_transforms_reach_the_user(where, options):
    loader = nodes_loader(**{where: Failing()}, **options)
    found = []
    with pytest.raises(OwnError, match="third"):
        found.extend(loader)
    assert len(found) <= 2
    assert pool_threads() == []


# A worker that failed makes torch wait 5 seconds for its end.
@pytest.mark.parametrize("options", [{}, {"prefetch": 0}, pytest.param({"num_workers": 1}, marks=forks)])
def test_errors_of_the_sampler_reach_the_user(options):
    nodes = torch.tensor([1, 2, 3, 999, 4])
    batches = []
    loader = nodes_loader(input_nodes=nodes, shuffle=False, batch_size=1, **options)
    with pytest.raises(ArgumentError, match="got 999"):
        batches.extend(batch.input_id.item() for batch in loader)
    assert batches == [0, 1, 2]
    assert pool_threads() == []


def test_the_loader_goes_on_after_an_error():
    loader = nodes_loader(transform=Failing())
    with pytest.raises(OwnError):
        list(loader)
    assert len(list(loader)) == 5


INTERRUPTED = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background are started without
sys.path.insert(0, sys.argv[1])
from pyg_cases import made_data
from sage_attention.pyg import NeighborLoader
loader = NeighborLoader(made_data(num_nodes=4000), [2], batch_size=1, prefetch=4)
try:
    print("ready", flush=True)
    while True:
        for batch in loader:
            pass
except KeyboardInterrupt:
    pass
# One that came while the thread was waited for does not wait for it again, and what it came from ends with this block.
import threading
for thread in threading.enumerate():
    if thread.name.startswith("sage-attention-loader"):
        thread.join(30)
names = [thread.name for thread in threading.enumerate() if thread.name.startswith("sage-attention-loader")]
print("interrupted", names, flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no Ctrl-C can be sent to one process there")
def test_an_interruption_ends_the_loop():
    tests = str(Path(__file__).resolve().parent.parent)
    process = subprocess.Popen([sys.executable, "-c", INTERRUPTED, tests], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=120)[0] == "interrupted []\n"
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait()
