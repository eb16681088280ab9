"""Times that are floating point numbers: as integers of the same order, through every way times are gone by."""

from __future__ import annotations

import sys

import numpy as np
import pytest

pytest.importorskip("torch_geometric", reason="the layer takes the place of PyTorch Geometric's classes")

import torch
from torch_geometric.sampler import NodeSamplerInput

from pyg_cases import BUYS, Edges, Features, made_data, made_hetero
from sage_attention import ArgumentError
from sage_attention.pyg import LinkNeighborLoader, NegativeSampling, NeighborLoader, NeighborSampler, audit
from sage_attention.pyg.times import are_floating, as_ordered

forks = pytest.mark.skipif(sys.platform == "win32", reason="workers are spawned there, see test_epochs.py")

NUMBERS = np.array(
    [-np.inf, -1.8e308, -3e9, -1.0000001, -1.0, -0.5, -1e-300, -5e-324, -0.0, 0.0, 5e-324, 0.5, 1.0, 3e9, np.inf]
)


def fraction(times):
    """The same order in floating point numbers, negative ones among them, few of them integers."""
    return (times.double() - 9.5) / 7


def as_fractions(data):
    for store in data.stores:
        for name in ("time", "edge_time"):
            if name in store:
                store[name] = fraction(store[name])
    return data


def assert_alike(ones, others, times=("time", "edge_time", "seed_time", "edge_label_time")):
    """The batches are the same but for their times, which are those of the same moment."""
    ones, others = list(ones), list(others)
    assert len(ones) == len(others) > 1
    for one, other in zip(ones, others):
        first, second = one.to_dict(), other.to_dict()
        for store, twin in [(first, second), *((first[k], second[k]) for k in first if isinstance(first[k], dict))]:
            assert store.keys() == twin.keys()
            for name, value in store.items():
                if isinstance(value, torch.Tensor):
                    assert torch.equal(fraction(value) if name in times else value, twin[name]), name


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16])
def test_the_order_is_kept(kind):
    with np.errstate(over="ignore"):
        numbers = np.concatenate([NUMBERS, np.random.default_rng(0).normal(size=200) * 100]).astype(kind)
    found = as_ordered("times", numbers, floating=True)
    assert found.dtype == np.int64
    exact = numbers.astype(np.float64)
    assert ((found[:, None] < found) == (exact[:, None] < exact)).all()
    assert ((found[:, None] == found) == (exact[:, None] == exact)).all()
    assert torch.equal(torch.from_numpy(as_ordered("times", torch.from_numpy(numbers), True)), torch.from_numpy(found))


def test_integers_beside_them_are_compared_exactly():
    found = as_ordered("times", np.array([-(2**53), -1, 0, 3, 2**53]), True)
    assert (found == as_ordered("times", np.array([-(2.0**53), -1, 0, 3, 2.0**53]), True)).all()
    integers = np.array([5, 2**62])
    assert as_ordered("times", integers, floating=False) is integers
    assert are_floating("times", [integers, np.ones(2, np.float32)])
    assert not are_floating("times", [integers])


@pytest.mark.parametrize(
    ("times", "message"),
    [
        (np.array([1, np.nan]), "nan at position 1"),
        (np.array([2**53 + 1]), "up to 2\\^53"),
        (np.array([-(2**53) - 1]), "up to 2\\^53"),
        (np.array([True]), "dtype bool"),
        (np.array([1j]), "dtype complex128"),
        (np.array(["2020-01-01"], "datetime64[s]"), "astype\\('datetime64\\[us\\]'\\).astype\\('int64'\\)"),
    ],
)
def test_what_has_no_order(times, message):
    with pytest.raises(ArgumentError, match=message):
        as_ordered("times", times, True)


@pytest.mark.parametrize("made", [made_data, made_hetero])
@pytest.mark.parametrize("time_attr", ["time", "edge_time"])
@pytest.mark.parametrize(
    "options",
    [
        {}, {"temporal_strategy": "last"}, {"strict": True}, {"replace": True}, {"weight_attr": "weight"},
        {"subgraph_type": "induced"}, {"subgraph_type": "induced", "strict": True},
        pytest.param({"num_workers": 2}, marks=forks),
    ],
)  # fmt: skip
def test_nodes(made, time_attr, options):
    seeds = "user" if made is made_hetero else None
    seed_time = torch.arange(30 if seeds else 40) % 20

    def batches(data, input_time):
        return NeighborLoader(
            data, [3, 2], seeds, input_time, time_attr=time_attr, batch_size=10, seed=3, shuffle=True, **options
        )

    assert_alike(batches(made(), seed_time), batches(as_fractions(made()), fraction(seed_time)))
    if options != {"num_workers": 2}:
        assert audit(batches(as_fractions(made()), fraction(seed_time))).ok


def test_seeds_of_several_types_and_times_of_their_own():
    def batches(data):
        return NeighborLoader(data, [3, 2], ["user", "item"], time_attr="time", batch_size=10, seed=3)

    assert_alike(batches(made_hetero()), batches(as_fractions(made_hetero())))


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("mode", [None, "binary", "triplet"])
@pytest.mark.parametrize("edge_type", [None, BUYS])
def test_links(edge_type, mode, strict):
    made = made_data if edge_type is None else made_hetero
    count = 200 if edge_type is None else 120
    seed_time = 12 + torch.arange(count) % 8
    negatives = None if mode is None else NegativeSampling(mode, 2, strict=strict)

    def batches(data, edge_label_time):
        return LinkNeighborLoader(
            data, [3, 2], edge_type, edge_label_time=edge_label_time, neg_sampling=negatives, time_attr="time",
            batch_size=20, seed=5,
        )  # fmt: skip

    assert_alike(batches(made(), seed_time), batches(as_fractions(made()), fraction(seed_time)))


def test_strict_negatives_of_a_source_with_an_edge_to_nearly_all():
    data = made_data(num_nodes=20, num_edges=19, isolated=0)
    data.edge_index = torch.stack([torch.zeros(19, dtype=torch.int64), torch.arange(19)])
    data.time = torch.full((20,), 0.25)
    data.time[19] = 0.75
    options = {"neg_sampling": NegativeSampling("triplet", strict=True), "time_attr": "time", "batch_size": 5}
    for batch in LinkNeighborLoader(data, [1], edge_label_time=torch.full((19,), 0.75), **options):
        assert set(batch.n_id[batch.dst_neg_index].tolist()) == {19}
    with pytest.raises(ArgumentError, match="strict=False"):  # 19 is younger, though by less than 1
        list(LinkNeighborLoader(data, [1], edge_label_time=torch.full((19,), 0.5), **options))


def test_stores():
    def stored(time):
        data = made_data()
        order = np.lexsort((time[data.edge_index[0]].numpy(), data.edge_index[1].numpy()))
        features, edges = Features(), Edges()
        features.put_tensor(time, group_name=None, attr_name="time", index=None)
        edges.put_edge_index(data.edge_index[:, order], edge_type=None, layout="coo", is_sorted=True, size=(40, 40))
        return NeighborLoader((features, edges), [3, 2], torch.arange(40), time_attr="time", batch_size=10, seed=3)

    time = made_data().time
    assert_alike(stored(time), stored(fraction(time)))


def test_narrow_and_whole_numbers_beside_wide_ones():
    data = made_data()
    data.edge_time = torch.full((200,), 0.1)  # float32: more than 0.1
    sampler = NeighborSampler(data, [-1], time_attr="edge_time")

    def picked(time):
        return len(sampler.sample_from_nodes(NodeSamplerInput(None, torch.tensor([1]), torch.tensor([time]))).edge)

    degree = int((data.edge_index[1] == 1).sum())
    assert degree > 0
    assert picked(np.float32(0.1)) == picked(1) == degree
    assert picked(np.float64(0.1)) == picked(0) == 0


@pytest.mark.parametrize("options", [{}, {"strict": True}, {"window": 3}, {"subgraph_type": "induced"}])
@pytest.mark.parametrize("kind", [torch.float16, torch.float32, torch.float64])
def test_whole_numbers_of_seeds_beside_integers_of_the_graph(kind, options):
    """Compared as integers, so exactly: 2^60 + 1 is not 2^60."""
    input_time = torch.arange(40) % 20
    options = {"time_attr": "time", "batch_size": 10, "seed": 3, **options}
    found, expected = (
        [batch.e_id.tolist() for batch in NeighborLoader(made_data(), [3, 2], input_time=times, **options)]
        for times in (input_time.to(kind), input_time)
    )
    assert found == expected
    data = made_data()
    data.edge_time = torch.full((200,), 2**60 + 1)
    seeds = NodeSamplerInput(None, torch.arange(40), torch.full((40,), 2.0**60))
    assert len(NeighborSampler(data, [-1], time_attr="edge_time").sample_from_nodes(seeds).edge) == 0


@pytest.mark.parametrize("mode", [None, "binary", "triplet"])
@pytest.mark.parametrize("edge_type", [None, BUYS])
def test_whole_numbers_of_seed_edges_beside_integers(edge_type, mode):
    found, expected = (
        [
            {name: batch_type.tolist() for name, batch_type in batch.collect("n_id").items()}
            if edge_type else batch.n_id.tolist()
            for batch in LinkNeighborLoader(
                made_data() if edge_type is None else made_hetero(), [3, 2], edge_type, edge_label_time=times,
                neg_sampling=mode, time_attr="time", batch_size=20, seed=5,
            )
        ]
        for times in (12 + torch.arange(200 if edge_type is None else 120) % 8,
                      12.0 + torch.arange(200 if edge_type is None else 120) % 8)
    )  # fmt: skip
    assert found == expected


@pytest.mark.parametrize("number", [0.5, np.inf, -np.inf, np.nan, 2.0**63, 1e300])
def test_seeds_of_no_whole_number_beside_integers(number):
    for kind in (np.float64, np.float32):
        with np.errstate(over="ignore"):
            times = np.array([3, number], kind)
        with pytest.raises(
            ArgumentError, match="times: expected whole numbers, as the graph's times are integers, got"
        ):
            as_ordered("times", times, floating=False)
    assert as_ordered("times", np.array([-(2.0**63), 2.0**62]), floating=False).tolist() == [-(2**63), 2**62]


@pytest.mark.parametrize("kind", [list, np.array])
def test_lists_and_arrays(kind):
    data, times = made_data(), [7, 9, 3]
    options = {"time_attr": "time", "batch_size": 3, "seed": 1}

    def batches(given, labels):
        loader = NeighborLoader(data, [3], input_nodes=torch.arange(3), input_time=given, **options)
        links = LinkNeighborLoader(data, [3], data.edge_index[:, :3], labels, edge_label_time=given, **options)
        return [next(iter(loader)), loader([0, 1, 2], given), next(iter(links)), links(data.edge_index[:, :3], given)]

    expected = batches(torch.tensor(times), torch.tensor([1, 0, 1]))
    for ours, theirs in zip(batches(kind(times), kind([1, 0, 1])), expected):
        assert torch.equal(ours.n_id, theirs.n_id)
        assert torch.equal(ours.edge_index, theirs.edge_index)
    with pytest.raises(ArgumentError, match="input_time: expected an array"):
        NeighborLoader(data, [3], input_nodes=torch.arange(2), input_time=[[1], [1, 2]], **options)


def test_bfloat16():
    def changed(made, name):
        data = made()
        for store in data.stores:
            if name in store:
                store[name] = store[name].bfloat16()
        return data

    why = "expected a dtype that NumPy has, got bfloat16; pass .float\\(\\) of it"
    for made in (made_data, made_hetero):
        with pytest.raises(ArgumentError, match=f"time_attr='time': {why}"):
            NeighborSampler(changed(made, "time"), [2], time_attr="time")
        with pytest.raises(ArgumentError, match=f"weight_attr='weight'.*: {why}"):
            NeighborSampler(changed(made, "weight"), [2], weight_attr="weight")
    with pytest.raises(ArgumentError, match=f"input_time: {why}"):
        list(NeighborLoader(made_data(), [2], time_attr="time", input_time=torch.zeros(40, dtype=torch.bfloat16)))
    for mode in (None, "binary", "triplet"):
        links = LinkNeighborLoader(
            made_data(),
            [2],
            time_attr="time",
            edge_label_time=torch.zeros(200, dtype=torch.bfloat16),
            neg_sampling=mode,
        )
        with pytest.raises(ArgumentError, match=f"edge_label_time: {why}"):
            list(links)


def test_errors():
    data = as_fractions(made_data())
    for options in ({"window": 3}, {"temporal_strategy": "recency", "decay": 0.1}):
        with pytest.raises(ArgumentError, match="time_attr='time': expected integers beside window or recency"):
            NeighborSampler(data, [1], time_attr="time", **options)
    seeds = NodeSamplerInput(None, torch.tensor([1]), torch.tensor([np.nan]))
    with pytest.raises(ArgumentError, match="input_time: expected numbers, got nan at position 0"):
        NeighborSampler(data, [1], time_attr="time").sample_from_nodes(seeds)
    seeds = NodeSamplerInput(None, torch.tensor([1]), torch.tensor([0.5]))
    with pytest.raises(
        ArgumentError, match=r"input_time: expected whole numbers, .* got 0.5 at position 0; round them"
    ):
        NeighborSampler(made_data(), [1], time_attr="time").sample_from_nodes(seeds)
    data.time[5] = np.nan
    with pytest.raises(ArgumentError, match="time_attr='time': expected numbers, got nan"):
        NeighborSampler(data, [1], time_attr="time")
    data.time = np.full(40, "2020-01-01", "datetime64[s]")
    with pytest.raises(ArgumentError, match=r"time_attr='time': .* dates as \.astype"):
        NeighborSampler(data, [1], time_attr="time")
