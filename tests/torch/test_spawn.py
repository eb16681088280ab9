"""Worker processes that start from nothing, as all do on Windows: what is sent to them, and what comes back."""

from __future__ import annotations

import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest

pytest.importorskip("torch", reason="workers of a torch data loader")

import torch

from sage_attention import ArgumentError, DataError, Graph, SageAttentionError, sample_neighbours
from sage_attention.errors import MissingDependencyError, NativeError
from sage_attention.inference import ModelConfig
from sage_attention.torch.nn import GATConv, GATv2Conv, TransformerConv

SEEDS = 40


class Sampler:
    """Collates seeds into a sample, as a loader for training does; holds the graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def __call__(self, seeds):
        return sample_neighbours(self.graph, np.array(seeds, np.int64), [4, 3], seed=7, num_threads=1)


def make_graph():
    return Graph.from_edge_index(np.random.default_rng(1).integers(0, 200, (2, 3000)), 200)


def attend(graph):
    """A task of a worker: the native library is loaded anew there."""
    layer = GATConv(8, 4)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.fill_(0.1)
        out = layer(torch.ones(graph.num_nodes, 8), torch.from_numpy(graph.to_edge_index()))
    return out.numpy()


def refuse(kind):
    if kind == "argument":
        Graph([0, 1], [5])
    if kind == "data":
        raise DataError("e.csv", "a number", "'x'", row=3, column="target", hint="write one")
    raise MissingDependencyError("pyarrow", "reading tables", "tables")


def test_samples_come_out_of_spawned_workers():
    graph = make_graph()
    _ = graph.transposed, graph.in_degrees  # what is cached stays at home
    loader = torch.utils.data.DataLoader(
        range(SEEDS), batch_size=10, num_workers=2, multiprocessing_context="spawn", collate_fn=Sampler(graph)
    )
    samples = list(loader)
    assert len(samples) == SEEDS // 10
    for number, sample in enumerate(samples):
        here = Sampler(graph)(range(10 * number, 10 * number + 10))
        for name in ("nodes", "indptr", "sources", "edge_ids"):
            np.testing.assert_array_equal(getattr(sample, name), getattr(here, name))


def test_errors_and_results_come_out_of_a_pool():
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        graph = make_graph()
        np.testing.assert_array_equal(pool.submit(attend, graph).result(), attend(graph))
        with pytest.raises(ArgumentError, match="indices: expected"):
            pool.submit(refuse, "argument").result()
        with pytest.raises(DataError, match="row 3") as caught:
            pool.submit(refuse, "data").result()
        assert (caught.value.path, caught.value.row, caught.value.hint) == ("e.csv", 3, "write one")
        with pytest.raises(MissingDependencyError, match="pip install"):
            pool.submit(refuse, "package").result()


@pytest.mark.parametrize(
    "error",
    [
        SageAttentionError("one"),
        ArgumentError("a", "b", 3, "hint"),
        DataError(None, "b", "c"),
        DataError("f.csv", "b", "c", column=2),
        MissingDependencyError("p", "n", "e"),
        NativeError("n"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_travel_whole(error):
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert again.__dict__ == error.__dict__


@pytest.mark.parametrize(
    "thing",
    [
        make_graph(),
        Sampler(make_graph())([1, 2]),
        ModelConfig(3, ["a"]),
        GATConv(3, 2, heads=2),
        GATv2Conv(3, 2, edge_dim=1),
        TransformerConv(3, 2),
    ],
    ids=lambda thing: type(thing).__name__,
)
def test_objects_travel(thing):
    data = pickle.dumps(thing)
    assert pickle.dumps(pickle.loads(data))
    assert type(pickle.loads(data)) is type(thing)
