"""Negative edges: how they are distributed, what they are never."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chisquare

pytest.importorskip("torch_geometric", reason="the layer takes the place of PyTorch Geometric's classes")

import torch
import torch_geometric.loader
from torch_geometric.data import Data
from torch_geometric.sampler import EdgeSamplerInput
from torch_geometric.sampler import NegativeSampling as PygNegativeSampling

from pyg_cases import BUYS, KNOWS, SOLD, made_data, made_hetero
from sage_attention import ArgumentError
from sage_attention.pyg import LinkNeighborLoader, NegativeSampling, NeighborSampler


def pairs(batch, mode, edge_type=None):
    """The negative pairs of a batch, int64 [2, n]."""
    source, target, edges = (batch,) * 3
    if edge_type is not None:
        source, target, edges = batch[edge_type[0]], batch[edge_type[-1]], batch[edge_type]
    if mode == "triplet":
        negative = target.dst_neg_index.view(len(target.dst_neg_index), -1)
        sources = source.src_index.repeat_interleave(negative.shape[1])
        return torch.stack([source.n_id[sources], target.n_id[negative.reshape(-1)]])
    row, col = edges.edge_label_index[:, edges.edge_label == 0]
    return torch.stack([source.n_id[row], target.n_id[col]])


def drawn(data, negatives, edge_type=None, epochs=1, **options):
    loader = LinkNeighborLoader(
        data, [0], edge_label_index=options.pop("edge_label_index", edge_type), neg_sampling=negatives,
        batch_size=options.pop("batch_size", 50), seed=1, **options,
    )  # fmt: skip
    mode = negatives["mode"] if isinstance(negatives, dict) else negatives.mode.value
    return torch.cat([pairs(batch, mode, edge_type) for _ in range(epochs) for batch in loader], dim=1)


def keys(edge_index):
    return edge_index[0] * 1_000_000 + edge_index[1]


@pytest.mark.parametrize("mode", ["binary", "triplet"])
@pytest.mark.parametrize("edge_type", [None, BUYS, KNOWS])
def test_ends_are_uniform(edge_type, mode):
    data = made_data() if edge_type is None else made_hetero()
    found = drawn(data, PygNegativeSampling(mode, 10), edge_type, epochs=5)
    counts = (data.num_nodes,) * 2
    if edge_type is not None:
        counts = data[edge_type[0]].num_nodes, data[edge_type[-1]].num_nodes
    assert chisquare(np.bincount(found[1], minlength=counts[1])).pvalue > 1e-4
    if mode == "binary":
        assert chisquare(np.bincount(found[0], minlength=counts[0])).pvalue > 1e-4
        joint = np.bincount((found[0] % 5) * 5 + found[1] % 5, minlength=25)  # neither end depends on the other
        assert chisquare(joint).pvalue > 1e-4


@pytest.mark.parametrize("kind", [torch.float32, torch.int64])
def test_ends_by_weight(kind):
    data = made_hetero()
    src_weight, dst_weight = (torch.arange(30) % 4).to(kind), (torch.arange(20) % 3).to(kind)
    found = drawn(data, PygNegativeSampling("binary", 10, src_weight, dst_weight), BUYS, epochs=5)
    for nodes, weight in zip(found, (src_weight, dst_weight)):
        counts = np.bincount(nodes, minlength=len(weight))
        assert (counts[weight == 0] == 0).all()
        expected = weight[weight > 0].double().numpy()
        assert chisquare(counts[weight > 0], expected / expected.sum() * counts.sum()).pvalue > 1e-4


def test_more_than_2_to_the_24_nodes_with_weights():
    """Fault 7: torch.multinomial, which the incumbent draws with, takes no more categories."""
    count = 2**24 + 10
    weight = torch.zeros(count)
    weight[[3, count - 1]] = torch.tensor([1.0, 3.0])
    data = Data(num_nodes=count)
    inputs = EdgeSamplerInput(None, torch.arange(2000), torch.arange(2000))
    negatives = NegativeSampling("triplet", dst_weight=weight)
    out = NeighborSampler(data, [], seed=1).sample_from_edges(inputs, negatives)
    found = out.node[out.metadata[3]]
    assert set(found.tolist()) == {3, count - 1}
    assert chisquare([int((found == 3).sum()), int((found > 3).sum())], [500, 1500]).pvalue > 1e-4
    assert negatives.sample(5, "dst", count).shape == (5,)


@pytest.mark.parametrize("mode", ["binary", "triplet"])
def test_numbers_of_weights_that_do_not_fit(mode):
    """Fault 6: the incumbent trips over its own message."""
    data = made_data()
    for weight in (torch.ones(39), torch.ones(41)):
        with pytest.raises(ValueError, match=f"number of nodes 40 \\(got {len(weight)}\\)"):
            drawn(data, PygNegativeSampling(mode, dst_weight=weight))
        with pytest.raises(ValueError, match=f"number of nodes 40 \\(got {len(weight)}\\)"):
            NegativeSampling(mode, dst_weight=weight).sample(3, "dst", 40)


@pytest.mark.parametrize(
    "weight", [torch.zeros(40), -torch.ones(40), torch.full((40,), np.inf), torch.full((40,), np.nan)]
)
def test_weights_that_are_none(weight):
    with pytest.raises(ValueError, match="at least 0, not all 0"):
        drawn(made_data(), PygNegativeSampling("triplet", dst_weight=weight))


def test_one_end_by_hand():
    negatives = NegativeSampling("binary", src_weight=torch.tensor([0.0, 1.0]))
    assert negatives.sample(3, "src").tolist() == [1, 1, 1]
    assert negatives.sample(100, "dst", 3).unique().tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="num_nodes"):
        negatives.sample(3, "dst")
    with pytest.raises(ValueError, match="no nodes"):
        negatives.sample(3, "dst", 0)


@pytest.mark.parametrize("mode", ["binary", "triplet"])
@pytest.mark.parametrize("weighted", [False, True])
def test_negatives_are_never_younger_than_their_edge(mode, weighted):
    """Also with weights; and those as old are as likely as others."""
    data = made_data(1)
    times = data.edge_time.clamp(min=int(data.time.min()))
    weight = (torch.arange(40) % 3 + 1).float() if weighted else None
    loader = LinkNeighborLoader(
        data, [0], edge_label_index=data.edge_index, edge_label_time=times, time_attr="time", batch_size=50, seed=2,
        neg_sampling=PygNegativeSampling(mode, 4, src_weight=weight, dst_weight=weight),
    )  # fmt: skip
    expected, counts = np.zeros(40), np.zeros(40)
    for _ in range(10):
        for batch in loader:
            found = pairs(batch, mode)
            limits = times[batch.input_id]
            limits = limits.repeat_interleave(4) if mode == "triplet" else limits.repeat(4)
            assert (data.time[found[1]] <= limits).all()
            if mode == "binary":
                assert (data.time[found[0]] <= limits).all()
            counts += np.bincount(found[1], minlength=40)
            share = (data.time.view(1, -1) <= limits.view(-1, 1)).double() * (1 if weight is None else weight)
            expected += (share / share.sum(1, keepdim=True)).sum(0).numpy()
    often = expected > 0
    assert chisquare(counts[often], expected[often]).pvalue > 1e-4


def test_where_all_nodes_are_younger_the_oldest_is_taken():
    data = Data(edge_index=torch.tensor([[0], [1]]), num_nodes=3, time=torch.tensor([7, 5, 6]))
    loader = LinkNeighborLoader(
        data, [1], edge_label_time=torch.tensor([2]), time_attr="time", neg_sampling=PygNegativeSampling("triplet", 5)
    )
    (batch,) = loader
    assert batch.n_id[batch.dst_neg_index].tolist() == [[1] * 5]


@pytest.mark.parametrize("mode", ["binary", "triplet"])
@pytest.mark.parametrize("disjoint", [False, True])
@pytest.mark.parametrize("edge_type", [None, BUYS, SOLD, KNOWS])
def test_strict_negatives_are_no_edges(edge_type, mode, disjoint):
    data = made_data() if edge_type is None else made_hetero()
    edge_index = data.edge_index if edge_type is None else data[edge_type].edge_index
    loose = drawn(data, PygNegativeSampling(mode, 5), edge_type, disjoint=disjoint)
    strict = drawn(data, NegativeSampling(mode, 5, strict=True), edge_type, disjoint=disjoint)
    assert torch.isin(keys(loose), keys(edge_index)).any()
    assert not torch.isin(keys(strict), keys(edge_index)).any()
    assert strict.shape == loose.shape


@pytest.mark.parametrize("mode", ["binary", "triplet"])
def test_strict_negatives_are_no_seed_edges_either(mode):
    """As when the edges to be found are not in the graph that messages go over."""
    hidden = torch.cartesian_prod(torch.arange(10), torch.arange(9)).t()  # of 10 x 10 pairs
    data = Data(edge_index=torch.tensor([[0], [0]]), num_nodes=10)
    found = drawn(data, {"mode": mode, "amount": 3, "strict": True}, edge_label_index=hidden, batch_size=7)
    assert set(found[1].tolist()) == {9}
    assert set(found[0].tolist()) <= set(range(10))


def test_strict_negatives_in_the_loader_of_pyg():
    """There the sampler knows the graph and the seed edges of the batch."""
    hidden = torch.cartesian_prod(torch.arange(10), torch.arange(9)).t()
    data = Data(edge_index=torch.empty(2, 0, dtype=torch.int64), num_nodes=10)
    loader = torch_geometric.loader.LinkNeighborLoader(
        data, [1], edge_label_index=hidden, neighbor_sampler=NeighborSampler(data, [1]), batch_size=90,
        neg_sampling=NegativeSampling("triplet", 2, strict=True),
    )  # fmt: skip
    (batch,) = loader
    assert set(pairs(batch, "triplet")[1].tolist()) == {9}


def test_loaders_that_share_a_sampler_keep_their_own_seed_edges():
    data = Data(edge_index=torch.empty(2, 0, dtype=torch.int64), num_nodes=10)
    sampler, negatives = NeighborSampler(data, [1], seed=1), NegativeSampling("triplet", 20, strict=True)
    seeds = [torch.tensor([[0] * 9, [node for node in range(10) if node != left]]) for left in (4, 7)]
    loaders = [
        LinkNeighborLoader(data, [1], edge_label_index=edges, neighbor_sampler=sampler, neg_sampling=negatives)
        for edges in seeds
    ]
    for loader, left in zip(loaders, (4, 7)):
        assert {node for batch in loader for node in pairs(batch, "triplet")[1].tolist()} == {left}


def test_strict_negatives_are_uniform_over_what_is_left():
    rng = np.random.default_rng(0)
    dense = torch.from_numpy(np.argwhere(rng.random((12, 12)) < 0.7).T)
    data = Data(edge_index=dense, num_nodes=12)
    binary = drawn(data, NegativeSampling("binary", 20, strict=True), epochs=3)
    left = np.setdiff1d(np.arange(144), (dense[0] * 12 + dense[1]).numpy())
    counts = np.bincount(binary[0] * 12 + binary[1], minlength=144)
    assert counts.sum() == counts[left].sum()
    assert chisquare(counts[left]).pvalue > 1e-4


def test_strict_negatives_where_next_to_nothing_is_left():
    """All pairs but one are edges, and many sources have an edge to every target."""
    full = torch.cartesian_prod(torch.arange(60), torch.arange(60)).t()
    data = Data(edge_index=full[:, (full[0] != 17) | (full[1] != 41)], num_nodes=60)
    seeds = torch.tensor([[17], [3]])
    for mode in ("binary", "triplet"):
        found = drawn(data, NegativeSampling(mode, 3, strict=True), edge_label_index=seeds)
        assert found.t().tolist() == [[17, 41]] * 3
    with pytest.raises(ArgumentError, match=r"neg_sampling: expected strict=False, or sources without .* source 3"):
        drawn(data, NegativeSampling("triplet", strict=True), edge_label_index=torch.tensor([[3], [3]]))
    with pytest.raises(ArgumentError, match="neg_sampling: expected strict=False, or a graph with fewer edges"):
        drawn(Data(edge_index=full, num_nodes=60), NegativeSampling("binary", strict=True), edge_label_index=seeds)


@pytest.mark.parametrize("mode", ["binary", "triplet"])
def test_strict_with_weights_and_times(mode):
    data = made_data(1)
    times = data.edge_time.clamp(min=int(data.time.min()) + 3)
    weight = (torch.arange(40) % 3).float()
    loader = LinkNeighborLoader(
        data, [0], edge_label_index=data.edge_index, edge_label_time=times, time_attr="time", batch_size=50, seed=2,
        neg_sampling=NegativeSampling(mode, 4, src_weight=weight, dst_weight=weight, strict=True),
    )  # fmt: skip
    for batch in loader:
        found = pairs(batch, mode)
        limits = times[batch.input_id]
        limits = limits.repeat_interleave(4) if mode == "triplet" else limits.repeat(4)
        assert (data.time[found[1]] <= limits).all()
        assert not torch.isin(keys(found), keys(data.edge_index)).any()
        assert (weight[found[1]] > 0).all()


def test_narrow_ids_of_many_nodes():
    """A pair of ids below 2^31 is no number below 2^31."""
    count = 100_000
    edge_index = torch.tensor([[99_998, 99_999], [99_999, 99_998]], dtype=torch.int32)
    weight = torch.zeros(count)
    weight[99_997:] = 1
    data = Data(edge_index=edge_index, num_nodes=count)
    found = drawn(data, NegativeSampling("triplet", 50, dst_weight=weight, strict=True), edge_label_index=edge_index)
    assert not torch.isin(keys(found), keys(edge_index.long())).any()
    assert set(found[1].tolist()) == {99_997, 99_998, 99_999}


def test_each_batch_draws_its_own():
    data = made_data()
    found = drawn(
        data, NegativeSampling("triplet"), edge_label_index=data.edge_index[:, :1].repeat(1, 20), batch_size=1
    )
    assert len(found[1].unique()) > 5
    again = drawn(
        data, NegativeSampling("triplet"), edge_label_index=data.edge_index[:, :1].repeat(1, 20), batch_size=1
    )
    assert torch.equal(found, again)


def test_edges_followed_backward():
    data = Data(edge_index=torch.cartesian_prod(torch.arange(10), torch.arange(9)).t(), num_nodes=10)
    sampler = NeighborSampler(data, [1], sample_direction="backward")
    inputs = EdgeSamplerInput(torch.arange(2), torch.tensor([0, 1]), torch.tensor([0, 1]))
    out = sampler.sample_from_edges(inputs, NegativeSampling("triplet", 5, strict=True))
    assert set(out.node[out.metadata[3]].view(-1).tolist()) == {9}
