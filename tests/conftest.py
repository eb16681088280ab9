"""Fixtures for all tests; those of graphs, sampling and attention."""

from __future__ import annotations

import signal

import numpy as np
import pytest

from sage_attention import Graph, _native

HUB_DEGREE = 50_000


@pytest.fixture(autouse=True)
def _heeded():
    """Ctrl-C as at a prompt: a shell script's background jobs, these tests perhaps, are started with it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(params=["scalar", "avx2", "neon"])
def cpu_level(request):
    """Runs the test once per CPU level this machine has."""
    if request.param not in _native.available_cpu_levels():
        pytest.skip(f"this machine cannot run {request.param}")
    before = _native.cpu_level()
    _native.set_cpu_level(request.param)
    yield request.param
    _native.set_cpu_level(before)


@pytest.fixture(params=[1, 2])
def num_threads(request):
    """Runs the test on one thread and on two."""
    return request.param


@pytest.fixture(scope="session")
def ragged_edges():
    """[2, E]: empty rows, rows of 1 to 90 edges, duplicates, self loops; ids in no order."""
    num_nodes = 300
    rng = np.random.default_rng(7)
    degrees = rng.integers(0, 90, num_nodes) * (rng.random(num_nodes) < 0.8)
    targets = np.repeat(np.arange(num_nodes), degrees)
    sources = rng.integers(0, num_nodes, len(targets))
    loops = rng.choice(num_nodes, 20, replace=False)
    edges = np.concatenate([[sources, targets], [loops, loops], [sources[:50], targets[:50]]], axis=1)
    return rng.permutation(edges, axis=1)


@pytest.fixture(scope="session")
def ragged(ragged_edges):
    """A small graph with everything that is awkward in it."""
    return Graph.from_edge_index(ragged_edges, num_nodes=303)


@pytest.fixture(scope="session")
def hub():
    """Node 0 has 50,000 in-edges, node 1 has 70,000 (beyond 2^16), others few or none."""
    rng = np.random.default_rng(3)
    num_nodes = 60_000
    few = 90_000
    targets = np.concatenate([np.zeros(HUB_DEGREE, int), np.ones(70_000, int), rng.integers(2, num_nodes, few)])
    sources = rng.integers(0, num_nodes, len(targets))
    return Graph.from_edge_index(rng.permutation(np.stack([sources, targets]), axis=1), num_nodes)
