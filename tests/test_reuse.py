"""Memory of outputs that are gone serves the next ones, and never two at once."""

from __future__ import annotations

import gc
import os
import signal
import threading

import numpy as np
import pytest

from sage_attention import Graph, aggregate, gat_attention, reuse, set_reuse_limit
from sage_attention.errors import ArgumentError

MIB = 1 << 20


@pytest.fixture
def pool():
    return reuse._Pool(16 * MIB)


def make(pool, size=2 * MIB, kind="float32"):
    kind = np.dtype(kind)
    return pool.empty((size // kind.itemsize,), kind, size)


def start(array):
    return array.__array_interface__["data"][0]


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_memory_comes_again(pool, kind):
    first = make(pool, kind=kind)
    place = start(first)
    assert first.flags.c_contiguous
    assert first.flags.writeable
    assert first.dtype == kind
    assert place % 64 == 0
    other = make(pool, kind=kind)
    assert abs(start(other) - place) >= first.nbytes
    del first
    assert start(make(pool, kind=kind)) == place


def test_a_view_keeps_it(pool):
    first = make(pool)
    first[:] = 7
    view = first[10:20].reshape(2, 5)
    del first
    other = make(pool)
    other[:] = 0
    assert (view == 7).all()


def test_sizes_that_differ_a_little_share(pool):
    first = make(pool, 2 * MIB + 4)
    place = start(first)
    del first
    assert start(make(pool, 2 * MIB + 200_000)) == place
    assert start(make(pool, 3 * MIB)) != place


def test_beyond_the_limit_is_the_system_s(pool):
    kept = [make(pool, 4 * MIB) for _ in range(5)]
    assert len(pool._lent) == 3
    assert all(start(array) % 64 == 0 for array in kept)
    kept.clear()
    make(pool, 8 * MIB)  # the room of idle memory is given to it
    assert pool._held() <= 16 * MIB


def test_what_nobody_takes_goes_back(pool):
    make(pool)
    for _ in range(reuse._MOST_IDLE + 2):
        make(pool, 4 * MIB)
    assert [memory.size for _, memory in pool._idle if memory.size < 4 * MIB] == []


def test_a_lower_limit(pool):
    kept, idle = make(pool), make(pool)
    kept[:] = 3
    del idle
    assert pool.set_limit(0) == 16 * MIB
    assert pool._held() == 0
    make(pool)[:] = 5
    assert (kept == 3).all()
    del kept
    assert pool._held() == 0


def test_no_memory_then_idle_memory_goes(pool, monkeypatch):
    idle = make(pool)
    del idle
    tried = []

    def scarce(*arguments):
        tried.append(arguments)
        if len(tried) == 1:
            raise MemoryError
        return np.zeros(*arguments)

    monkeypatch.setattr(reuse.np, "empty", scarce)
    assert make(pool, 4 * MIB).sum() == 0
    assert len(tried) == 2
    assert not pool._idle


def test_threads_never_share(pool):
    wrong = []

    def work(number):
        for _ in range(200):
            array = make(pool, MIB)
            array[:] = number
            if not (array == number).all():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_thread_at_it_is_not_waited_for(pool):
    with pool._lock:
        array = make(pool)
    assert len(pool._lent) == 0
    assert start(array) % 64 == 0


def test_outputs_are_right_in_memory_that_was_used():
    graph = Graph.from_edge_index([[0, 1, 1], [2, 2, 0]], 3000)
    values = np.random.default_rng(0).standard_normal((3000, 2, 64)).astype(np.float32)
    logits = values[:, :, 0].copy()
    expected = gat_attention(graph, values, logits, logits).copy()
    places = set()
    for _ in range(5):
        out = gat_attention(graph, values, logits, logits)
        places.add(start(out))
        np.testing.assert_array_equal(out, expected)
        out[:] = np.nan
        del out
    assert len(places) == 1
    assert not np.isnan(aggregate(graph, values.reshape(3000, -1))).any()


@pytest.mark.parametrize("limit", [-1, 1.5, True, "1 GiB", None])
def test_bad_limit(limit):
    with pytest.raises(ArgumentError, match="num_bytes: expected an int, 0 or more"):
        set_reuse_limit(limit)


def test_tensors():
    torch = pytest.importorskip("torch", minversion="2")
    from sage_attention import torch as sage

    edges = sage.csc(torch.tensor([[0, 1, 1], [2, 2, 0]]), 3000, 3000)
    values = torch.randn(3000, 2, 64, requires_grad=True)
    logits = torch.randn(3000, 2)
    places = []
    for _ in range(4):
        out = sage.gat_attention(edges, values, logits, logits)[0]
        (grad,) = torch.autograd.grad(out, values, torch.ones_like(out))
        assert out.is_contiguous()
        assert grad.is_contiguous()
        assert torch.isfinite(out).all()
        assert torch.isfinite(grad).all()
        places.append({out.data_ptr(), grad.data_ptr()})
        out.detach().fill_(float("nan"))
        grad.fill_(float("nan"))
        del out, grad
        gc.collect()
    assert places[1] == places[2] == places[3]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_process_forked_while_a_thread_is_at_it():
    with reuse._pool._lock:
        number = os.fork()
        if number == 0:
            signal.alarm(20)
            right = reuse.empty((MIB,), np.float32).shape == (MIB,)
            os._exit(0 if right else 1)
    assert os.waitpid(number, 0)[1] == 0


def test_arrays_outlive_the_pool():
    """At the end of a process modules may go before arrays do."""
    pool = reuse._Pool(16 * MIB)
    array = make(pool)
    array[:] = 3
    del pool
    gc.collect()
    others = [np.zeros(2 * MIB // 4, np.float32) for _ in range(4)]
    assert (array == 3).all()
    assert not any(other.any() for other in others)
