"""Native memory goes with its owner."""

from __future__ import annotations

import ctypes
import gc

import numpy as np
import pytest

from sage_attention import Graph, Workspace, _memory, _native, sample_neighbours


class Owner:
    """Anything."""


@pytest.fixture
def freed():
    return []


@pytest.fixture
def free(freed):
    return ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(freed.append)


def test_no_numbers_need_no_address(free, monkeypatch):
    """NumPy up to 2.0, the newest for Python 3.9, makes no array of address 0."""
    monkeypatch.setattr(_memory, "_Piece", None)
    for start in (None, 0, 64):
        nothing = _memory.NativeMemory(1, free).view(start, 0)
        assert nothing.dtype == np.int64
        assert nothing.shape == (0,)
        assert not nothing.flags.writeable


def test_what_goes_is_freed_once(free, freed):
    one, other = Owner(), Owner()
    _memory.free_with(one, free, 1)
    _memory.free_with(other, free, 2)
    assert freed == []
    del other
    assert freed == [2]
    gc.collect()
    del one
    assert freed == [2, 1]


def test_owners_in_a_cycle(free, freed):
    owner = Owner()
    owner.itself = owner
    _memory.free_with(owner, free, 3)
    del owner
    gc.collect()
    assert freed == [3]


def test_many_owners_leave_nothing_behind(free, freed):
    kept = [Owner() for _ in range(500)]
    for number in range(500):
        _memory.free_with(kept[number], free, number + 1)
    for number in range(5000):
        _memory.free_with(Owner(), free, number + 1001)
    assert freed == list(range(1001, 6001))
    assert len(_memory._farewells) < 4 * 500 + 200
    kept.clear()
    assert sorted(freed) == [*range(1, 501), *range(1001, 6001)]


def test_an_interruption_while_memory_is_freed_is_not_lost():
    interrupt = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(("PyErr_SetInterrupt", ctypes.pythonapi))
    owner = Owner()
    _memory.free_with(owner, interrupt, 1)
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - comes at any of the next lines
        del owner
        for _ in range(100):
            pass


def test_samples_and_workspaces_are_freed_by_the_library(monkeypatch):
    found = []
    monkeypatch.setattr(_memory, "free_with", lambda *arguments: found.append(arguments))
    graph = Graph.from_edge_index(np.array([[0, 1], [1, 2]]))
    sample_neighbours(graph, [2], [1, 1], workspace=Workspace())
    _, free, pointer = found[0]
    assert free is _native.library().sage_attention_sample_free
    assert pointer
    free(pointer)
