"""Several processes that share the batches of an epoch."""

from __future__ import annotations

import gc
import sys
import threading

import pytest

pytest.importorskip("torch_geometric", reason="the layer takes the place of PyTorch Geometric's classes")

import torch
from torch.utils.data import DistributedSampler

from pyg_cases import copies, made_data, made_hetero, same
from sage_attention import ArgumentError
from sage_attention.pyg import LinkNeighborLoader, NegativeSampling, NeighborLoader

forks = pytest.mark.skipif(sys.platform == "win32", reason="workers are spawned there, see test_epochs.py")


def nodes_loader(**options):
    """40 seeds."""
    options = {"batch_size": 4, "shuffle": True, "seed": 5, **options}
    return NeighborLoader(made_data(num_edges=400), [3, 2], **options)


def links_loader(**options):
    """120 seed edges, and negative ones."""
    options = {"batch_size": 12, "shuffle": True, "seed": 5, **options}
    return LinkNeighborLoader(
        made_data(num_edges=120), [3], neg_sampling=NegativeSampling("binary", 0.5), disjoint=True, **options
    )


def types_loader(**options):
    """50 seeds of two types."""
    options = {"batch_size": 5, "shuffle": True, "seed": 5, **options}
    return NeighborLoader(made_hetero(), [3], ["user", "item"], **options)


def assert_same(found, expected):
    assert len(found) == len(expected)
    assert all(same(one, other) for one, other in zip(found, expected))


@pytest.mark.parametrize("make", [nodes_loader, links_loader, types_loader])
@pytest.mark.parametrize("world_size", [2, 5])
def test_together_they_have_the_batches_of_one_process(make, world_size):
    plain = make()
    assert len(plain) == 10
    loaders = [make(rank=rank, world_size=world_size) for rank in range(world_size)]
    for _ in range(2):  # epochs
        expected = list(plain)
        for rank, loader in enumerate(loaders):
            assert len(loader) == 10 // world_size
            assert_same(list(loader), expected[rank::world_size])


@pytest.mark.parametrize("world_size", [3, 4, 13, 25])
def test_all_have_as_many_batches(world_size):
    """The last round is filled up with the first batches; the seeds are those, the draws are others."""
    expected = list(nodes_loader())
    rounds = -(-10 // world_size)
    found = []
    for rank in range(world_size):
        loader = nodes_loader(rank=rank, world_size=world_size)
        found.append(list(loader))
        assert len(loader) == len(found[-1]) == rounds
    in_order = [found[number % world_size][number // world_size] for number in range(rounds * world_size)]
    assert_same(in_order[:10], expected)
    for number, batch in enumerate(in_order[10:]):
        again = in_order[number % 10]
        assert torch.equal(batch.input_id, again.input_id)
        assert not torch.equal(batch.e_id, again.e_id)
        assert all(not same(batch, other) for other in in_order[10 : 10 + number])


@pytest.mark.parametrize("world_size", [3, 4, 13])
def test_or_the_last_round_is_left_out(world_size):
    expected = list(nodes_loader())
    for rank in range(world_size):
        loader = nodes_loader(rank=rank, world_size=world_size, drop_last=True)
        assert len(loader) == 10 // world_size
        assert_same(list(loader), expected[rank : 10 // world_size * world_size : world_size])


def test_seeds_and_draws_of_ranks_are_apart():
    """No seed comes to two of them, and what they share is drawn anew by each."""
    first, second = (nodes_loader(rank=rank, world_size=2) for rank in range(2))
    for _ in range(3):
        ids = [torch.cat([batch.input_id for batch in loader]) for loader in (first, second)]
        assert torch.cat(ids).sort().values.tolist() == list(range(40))
    hub = torch.zeros(64, dtype=torch.int64)  # the same node in every batch
    data = made_data(num_edges=4000)
    picks = [list(NeighborLoader(data, [5], hub, batch_size=1, seed=5, rank=rank, world_size=2)) for rank in range(2)]
    assert all(not torch.equal(one.e_id, other.e_id) for one, other in zip(*picks))


@pytest.mark.parametrize(
    "options", [{"prefetch": 0}, {"num_threads": 2}, pytest.param({"num_workers": 2}, marks=forks)]
)
@pytest.mark.parametrize("rank", [0, 2])
def test_resuming(rank, options):
    """Each process says for itself how far it is; all say the same."""
    loader = nodes_loader(rank=rank, world_size=3)
    epochs = [list(loader), list(loader)]
    loader = nodes_loader(rank=rank, world_size=3, **options)
    states = [loader.state_dict() for _ in loader]
    assert states[1] == {"seed": 5, "epoch": 0, "batch": 2}
    for number, state in enumerate(states):
        other = nodes_loader(rank=rank, world_size=3, **options)
        other.load_state_dict(state)
        assert_same(list(other), epochs[0][number + 1 :])
        assert_same(list(other), epochs[1])


@pytest.mark.parametrize("make", [types_loader, links_loader])
def test_spawned_workers_of_a_rank(make):
    """Over node types and around edges: some batches of the first epoch are this process's, all later ones theirs."""
    options = {"batch_size": 2, "rank": 1, "world_size": 2}
    plain = make(**options)
    expected = [list(plain), list(plain)]
    loader = make(**options, num_workers=2, multiprocessing_context="spawn", persistent_workers=True)
    batches = iter(loader)
    found = [next(batches).clone()]
    for thread in threading.enumerate():
        if thread.name == "sage-attention-start":
            thread.join()
    found += copies(batches)
    assert_same(found, expected[0])
    assert_same(copies(loader), expected[1])
    del batches, loader
    gc.collect()  # ends the workers


def test_an_empty_epoch():
    for drop_last in (False, True):
        loader = nodes_loader(input_nodes=[], shuffle=False, rank=1, world_size=2, drop_last=drop_last)
        assert len(loader) == len(list(loader)) == 0


def test_the_sampler_of_torch_shares_out_by_itself():
    """Then both processes use the same keys: batch b of each is named alike."""
    found = []
    for rank in range(2):
        sampler = DistributedSampler(range(40), num_replicas=2, rank=rank, seed=3)
        sampler.set_epoch(1)
        found.append(list(nodes_loader(sampler=sampler, shuffle=None)))
    ids = torch.cat([batch.input_id for batches in found for batch in batches])
    assert ids.sort().values.tolist() == list(range(40))
    sampler.set_epoch(1)
    assert_same(list(nodes_loader(sampler=sampler, shuffle=None)), found[1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rank": 2, "world_size": 2}, "rank: expected"),
        ({"rank": -1}, "rank: expected"),
        ({"rank": 1}, "rank: expected"),
        ({"world_size": 0}, "world_size: expected"),
        ({"world_size": 2, "seed": None}, "seed: expected the same number in each"),
        ({"world_size": 2, "shuffle": None, "sampler": DistributedSampler(range(40), 2, 0)}, "sampler: expected"),
    ],
)
def test_errors(change, message):
    with pytest.raises(ArgumentError, match=message):
        nodes_loader(**change)
