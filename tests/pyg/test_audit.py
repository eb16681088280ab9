"""The audit finds each planted mistake in batches, ours or PyTorch Geometric's, and is quiet on healthy loaders."""

from __future__ import annotations

import pytest

pytest.importorskip("torch_geometric", reason="the layer takes the place of PyTorch Geometric's classes")

import torch
import torch_geometric.loader
from torch_geometric.data import Data, HeteroData

from pyg_cases import made_data
from sage_attention import ArgumentError
from sage_attention.pyg import AuditError, LinkNeighborLoader, NegativeSampling, NeighborLoader, NeighborSampler, audit

NODES, EDGES = 120, 1500
BUYS, BY = ("user", "buys", "item"), ("item", "by", "user")


def homogeneous(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return Data(
        x=torch.randn(NODES, 3, generator=generator),
        edge_index=torch.randint(0, NODES, (2, EDGES), generator=generator),
        edge_attr=torch.randn(EDGES, 2, generator=generator),
        time=torch.arange(NODES),
        edge_time=torch.randint(0, NODES, (EDGES,), generator=generator),
    )


def heterogeneous():
    generator = torch.Generator().manual_seed(1)
    ends = torch.stack(
        [torch.randint(0, 40, (500,), generator=generator), torch.randint(0, 60, (500,), generator=generator)]
    )
    data = HeteroData()
    data["user"].x, data["item"].x = torch.randn(40, 2), torch.randn(60, 2)
    data["user"].time, data["item"].time = torch.arange(40), torch.arange(60)
    data[BUYS].edge_index, data[BY].edge_index = ends, ends.flip(0)
    data[BUYS].edge_attr = torch.randn(500, 1)
    return data


def pairs(edge_index):
    return set(map(tuple, edge_index.t().tolist()))


def apart(data, links):
    """The data without links, in either direction."""
    held = pairs(links) | pairs(links.flip(0))
    keep = torch.tensor([pair not in held for pair in map(tuple, data.edge_index.t().tolist())])
    return Data(x=data.x, edge_index=data.edge_index[:, keep])


def verdicts(report):
    return {finding.check: finding.verdict for finding in report.findings}


HEALTHY = {
    "plain": lambda: NeighborLoader(homogeneous(), [4, 3], batch_size=30),
    "by time of nodes": lambda: NeighborLoader(homogeneous(), [4, 3], batch_size=30, time_attr="time"),
    "by time of edges": lambda: NeighborLoader(
        homogeneous(), [4, 3], batch_size=30, time_attr="edge_time", input_time=torch.arange(NODES)
    ),
    "several types": lambda: NeighborLoader(
        heterogeneous(), [4, 3], input_nodes="item", batch_size=9, time_attr="time"
    ),
    "PyTorch Geometric's loader": lambda: torch_geometric.loader.NeighborLoader(
        homogeneous(), [4, 3], batch_size=30, neighbor_sampler=NeighborSampler(homogeneous(), [4, 3])
    ),
    "strict negatives": lambda: LinkNeighborLoader(
        apart(homogeneous(), homogeneous().edge_index[:, :50]), [4, 3],
        edge_label_index=homogeneous().edge_index[:, :50],
        neg_sampling=NegativeSampling("triplet", 3, strict=True), batch_size=20,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HEALTHY)
def test_quiet_on_healthy_loaders(name):
    report = audit(HEALTHY[name](), batches=None)
    assert report.ok, str(report)
    assert report["edges"].verdict == report["attributes"].verdict == "passed"
    assert report["times"].verdict == ("passed" if "time" in name or name == "several types" else "unknown")
    assert report["negatives"].verdict == ("passed" if "negatives" in name else "unknown")
    report.raise_if_failed()


def test_future_edges():
    """A loader that does not go by the times that there are."""
    loader = NeighborLoader(homogeneous(), [4, 3], batch_size=30)
    for attr in ("time", "edge_time"):
        source = loader if attr == "time" else NeighborLoader(
            homogeneous(), [4, 3], batch_size=1, input_time=torch.arange(NODES), time_attr="time"
        )  # fmt: skip
        report = audit(source, time_attr=attr, batches=None)
        assert verdicts(report)["times"] == "failed"
        assert "from the future" in report["times"].message
        with pytest.raises(AuditError, match=r"times: .* from the future"):
            report.raise_if_failed()


def test_one_future_edge_among_many():
    data = homogeneous()
    batch = next(iter(NeighborLoader(data, [4, 3], batch_size=30, time_attr="time")))
    assert audit(batch, data, time_attr="time")["times"].verdict == "passed"
    young = int(batch.batch[batch.edge_index[1, 0]])
    batch.seed_time = batch.time[: batch.batch_size].clone()
    batch.seed_time[young] = -1
    assert audit(batch, data, time_attr="time")["times"].verdict == "failed"


@pytest.mark.parametrize("several", [False, True])
def test_shifted_edge_features_and_ids(several):
    data = heterogeneous() if several else homogeneous()
    seeds = ("item", None) if several else None
    batch = next(iter(NeighborLoader(data, [4, 3], input_nodes=seeds, batch_size=30)))
    store = batch[BUYS] if several else batch
    assert audit(batch, data).ok
    store.edge_attr = store.edge_attr.roll(1, 0)
    report = audit(batch, data)
    assert verdicts(report)["attributes"] == "failed"
    assert "edge_attr" in report["attributes"].message
    assert verdicts(report)["edges"] == "passed"
    store.e_id = store.e_id.roll(1)
    assert verdicts(audit(batch, data))["edges"] == "failed"
    store.e_id = store.e_id + 10**6
    assert verdicts(audit(batch, data))["edges"] == "failed"


def test_features_of_other_nodes():
    data = homogeneous()
    batch = next(iter(NeighborLoader(data, [4, 3], batch_size=30)))
    batch.x = batch.x.clone()
    batch.x[5] = 7
    assert audit(batch, data)["attributes"].message == "rows that differ from the data's: x (1)"


def test_leaked_labels():
    """The edges to be predicted are among those that messages go over."""
    data = homogeneous()
    report = audit(LinkNeighborLoader(data, [-1], edge_label_index=data.edge_index[:, :50], batch_size=25))
    assert verdicts(report)["labels"] == "failed"
    assert report["labels"].message == "50 of 50 labelled edges are also among the edges of their batch"


@pytest.mark.parametrize("mode", ["binary", "triplet"])
def test_false_negatives(mode):
    data = Data(x=torch.eye(6), edge_index=torch.cartesian_prod(torch.arange(6), torch.arange(6)).t())
    links = torch.tensor([[0, 1], [1, 2]])
    report = audit(
        LinkNeighborLoader(data, [2], edge_label_index=links, neg_sampling=NegativeSampling(mode), batch_size=2)
    )
    assert report["negatives"].verdict == "failed"


def test_false_negatives_among_links_that_are_not_in_the_data():
    data = Data(x=torch.eye(4), edge_index=torch.empty(2, 0, dtype=torch.long))
    held_out = torch.cartesian_prod(torch.arange(4), torch.arange(4)).t()
    loader = LinkNeighborLoader(
        data, [2], edge_label_index=held_out[:, :1], neg_sampling="triplet", batch_size=1, seed=0
    )
    assert audit(loader, known_links=held_out)["negatives"].verdict == "failed"


def test_labels_of_several_classes_are_no_negatives():
    data = homogeneous()
    label = torch.arange(50) % 3
    report = audit(LinkNeighborLoader(data, [2], edge_label_index=data.edge_index[:, :50], edge_label=label))
    assert report["negatives"].verdict == "unknown"


@pytest.mark.parametrize("options", [{"seed": 3}, {"seed": 3, "prefetch": 0}, {}, {"generator": 5}])
@pytest.mark.parametrize("kind", [NeighborLoader, torch_geometric.loader.NeighborLoader])
def test_a_loader_is_where_it_was(kind, options):
    """Its batches are those that would have come without an audit, and so is what is drawn afterwards."""
    options = dict(options)
    data = made_data()
    if kind is not NeighborLoader:
        options.pop("seed", None), options.pop("prefetch", None)
        options["neighbor_sampler"] = NeighborSampler(data, [3, 2])

    def run(audits):
        torch.manual_seed(11)
        given = {**options}
        if "generator" in given:
            given["generator"] = torch.Generator().manual_seed(given["generator"])
        loader = kind(data, [3, 2], batch_size=4, shuffle=True, **given)
        reports = [audit(loader) for _ in range(audits)]
        assert all(report.ok and report.batches == 10 for report in reports)
        assert len({str(report) for report in reports}) <= 1
        found = []
        for number, batch in enumerate(loader):
            found.append((batch.input_id.tolist(), batch.n_id.tolist()))
            if audits and number == 2:
                audit(loader, batches=2)
                if "seed" in given:
                    assert loader.state_dict() == {"seed": 3, "epoch": 0, "batch": 3}
        return found, torch.rand(1).item()

    assert run(0) == run(2)


def test_notes():
    data = homogeneous()
    report = audit(NeighborLoader(data, [2], input_nodes=torch.tensor([3, 3, 8]), batch_size=3))
    assert report["seeds"].message == "1 of 3 seeds came before in their batch"
    assert report["degrees"].verdict == "note"
    whole = audit(NeighborLoader(data, [-1], batch_size=10))
    assert whole["degrees"].message.startswith("0% ")
    assert "✓ edges" in str(whole)
    with pytest.raises(KeyError):
        whole["edge"]


def test_errors():
    data = homogeneous()
    batch = next(iter(NeighborLoader(data, [2])))
    with pytest.raises(ArgumentError, match="data: expected what the batches were made from"):
        audit(batch)
    with pytest.raises(ArgumentError, match="source: expected a loader"):
        audit(7, data)
    with pytest.raises(ArgumentError, match="batches: expected an integer"):
        audit(batch, data, batches=0)
    with pytest.raises(ArgumentError, match="known_links"):
        audit(batch, data, known_links=[1, 2])
    with pytest.raises(ValueError, match="neither a node-level or edge-level"):
        audit(batch, data, time_attr="age")


@pytest.mark.parametrize(("option", "at_fault"), [({"strict": True}, 5), ({"window": 3}, 1)])
def test_what_a_strict_sampler_or_one_with_a_window_must_not_pick(option, at_fault):
    """The limits are the sampler's; an edge beyond them is a fault though it is not from the future."""
    data = Data(edge_index=torch.tensor([[1, 2], [0, 0]]), num_nodes=3, edge_time=torch.tensor([4, 3]))
    loader = NeighborLoader(data, [-1], torch.tensor([0]), torch.tensor([5]), time_attr="edge_time", **option)
    assert audit(loader)["times"].verdict == "passed"
    loader.node_sampler.edge_time[0] = at_fault  # the sampler keeps its own, in its own order
    assert audit(loader)["times"].verdict == "failed"
