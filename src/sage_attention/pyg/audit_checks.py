"""The checks of an audit: each counts what it sees in a batch, and judges the counts of all batches."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import torch
from torch_geometric.data import Data, HeteroData

from sage_attention.errors import ArgumentError

from .negatives import KnownEdges
from .topology import ONE_EDGE_TYPE, ONE_NODE_TYPE, Topology

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from sage_attention.hetero import EdgeType

__all__ = ["CHECKS", "Known"]


class Edges(NamedTuple):
    """The edges of one type in a batch."""

    edge_type: EdgeType
    local: Tensor  # [2, n]
    ends: Tensor  # [2, n], as ids of the data
    store: Any


class Known:
    """What the batches were made from.

    Args:
        data: Data, HeteroData or (FeatureStore, GraphStore).
        loader: The loader, or None.
        time_attr: See `audit`.
        links: See `audit`.
    """

    def __init__(self, data: Any, loader: Any, time_attr: str | None, links: Any) -> None:
        sampler = getattr(loader, "node_sampler", None) or getattr(loader, "link_sampler", None)
        own = getattr(sampler, "_topology", None)
        self.data = data
        label = getattr(getattr(loader, "input_data", None), "label", None)
        # Without negative sampling 0 may be the first of several classes of edges.
        self.zero_is_negative: bool | None = None
        if getattr(loader, "neg_sampling", None) is not None:
            self.zero_is_negative = True
        elif label is not None:
            self.zero_is_negative = bool((label <= 1).all())
        self.topology: Topology = own if own is not None and time_attr is None else Topology(data, time_attr)
        self.node_time: dict[str, Tensor] = self.topology.node_time
        self.edge_time: dict[EdgeType, Tensor] = self.topology.edge_time
        if own is None and time_attr is None and sampler is not None:
            self.node_time = _by_type(getattr(sampler, "node_time", None), ONE_NODE_TYPE)
            self.edge_time = {} if self.node_time else self._edge_times_of(sampler)
        self.strict = bool(getattr(sampler, "strict", False))
        self.window: int | None = getattr(sampler, "window", None)
        self.links = [] if links is None else [np.asarray(torch.as_tensor(links), dtype=np.int64)]
        if any(array.ndim != 2 or len(array) != 2 for array in self.links):
            raise ArgumentError("known_links", "integers of shape [2, n]", list(self.links[0].shape))
        if loader is not None and hasattr(loader, "edge_label_index"):
            given = loader.input_data
            self.links.append(torch.stack([given.row, given.col]).numpy())

    def _edge_times_of(self, sampler: Any) -> dict[EdgeType, Tensor]:
        """PyTorch Geometric's sampler keeps the times in its own order of the edges."""
        if getattr(sampler, "edge_time", None) is None:
            return {}
        permutation = getattr(sampler, "edge_permutation", None)
        if isinstance(sampler.edge_time, dict) or permutation is None:
            return {}
        times = torch.empty_like(sampler.edge_time)
        times[permutation] = sampler.edge_time
        return {ONE_EDGE_TYPE: times}

    @functools.cached_property
    def _edges(self) -> dict[EdgeType, Tensor]:
        return {}

    def edges(self, edge_type: EdgeType) -> Tensor:
        """int64 [2, n]: the edges of a type in the data."""
        if edge_type not in self._edges:
            (found,) = self.topology.edges(edge_type) or [np.empty((2, 0), np.int64)]
            self._edges[edge_type] = torch.from_numpy(np.ascontiguousarray(found, dtype=np.int64))
        return self._edges[edge_type]

    @functools.cache  # noqa: B019 - lives as long as the audit
    def positive(self, edge_type: EdgeType) -> KnownEdges:
        """All edges that a negative one must not be."""
        return KnownEdges([*self.topology.edges(edge_type), *self.links])

    def store(self, batch_type: Any) -> Any:
        """Where the data keeps the attributes of a node or edge type; None if that is a feature store."""
        if isinstance(self.data, HeteroData):
            return self.data[batch_type]
        return self.data if isinstance(self.data, Data) else None


def _by_type(values: Any, name: Any) -> dict[Any, Any]:
    return {} if values is None else values if isinstance(values, dict) else {name: values}


def _edge_views(batch: Any) -> Iterator[Edges]:
    if isinstance(batch, HeteroData):
        for edge_type in batch.edge_types:
            store = batch[edge_type]
            if "edge_index" in store:
                local = store.edge_index
                ends = torch.stack([batch[edge_type[0]].n_id[local[0]], batch[edge_type[-1]].n_id[local[1]]])
                yield Edges(edge_type, local, ends, store)
    elif batch.get("edge_index") is not None:
        yield Edges(ONE_EDGE_TYPE, batch.edge_index, batch.n_id[batch.edge_index], batch)


def _node_views(batch: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(batch, HeteroData):
        for node_type in batch.node_types:
            if "n_id" in batch[node_type]:
                yield node_type, batch[node_type]
    else:
        yield ONE_NODE_TYPE, batch


def _same(one: Tensor, other: Tensor) -> Tensor:
    """Booleans [n]: whether rows are equal; numbers that are none equal one another."""
    equal = one == other
    if one.is_floating_point():
        equal |= one.isnan() & other.isnan()
    return equal if equal.dim() == 1 else equal.flatten(1).all(1)


def _differing(batch_store: Any, data_store: Any, ids: Tensor, *, edges: bool) -> Iterator[tuple[str, int, int]]:
    """Of each attribute with a row for each id: its name, how many rows differ from the data's, how many there are."""
    if data_store is None:
        return
    size = len(ids)
    for name, value in batch_store.items():
        if name in _NO_ATTRIBUTES or not isinstance(value, torch.Tensor) or name not in data_store:
            continue
        if not (data_store.is_edge_attr(name) if edges else data_store.is_node_attr(name)):
            continue
        original = data_store[name]
        if not isinstance(original, torch.Tensor) or value.dim() == 0 or len(value) != size or original.dim() == 0:
            continue
        if value.shape[1:] != original.shape[1:] or len(original) <= int(ids.max() if size else -1):
            continue
        yield name, int((~_same(value, original[ids])).sum()), size


_NO_ATTRIBUTES = {"edge_index", "n_id", "e_id", "batch", "input_id", "seed_time", "edge_label_index", "edge_label"}


def _look_edges(batch: Any, known: Known) -> dict[str, int]:
    counts = {"seen": 0, "wrong": 0, "without": 0}
    for view in _edge_views(batch):
        e_id = view.store.get("e_id")
        if e_id is None:
            counts["without"] += view.local.shape[1]
            continue
        original = known.edges(view.edge_type)
        inside = (e_id >= 0) & (e_id < original.shape[1])
        right = torch.zeros(len(e_id), dtype=torch.bool)
        right[inside] = (original[:, e_id[inside]] == view.ends[:, inside]).all(0)
        counts["seen"] += len(right)
        counts["wrong"] += int((~right).sum())
    return counts


def _look_attributes(batch: Any, known: Known) -> dict[str, int]:
    counts = {"seen": 0}
    for view in _edge_views(batch):
        e_id, store = view.store.get("e_id"), known.store(view.edge_type)
        if e_id is not None:
            for name, wrong, size in _differing(view.store, store, e_id, edges=True):
                counts["seen"] += size
                counts[f"wrong:{name}"] = counts.get(f"wrong:{name}", 0) + wrong
    for node_type, nodes in _node_views(batch):
        for name, wrong, size in _differing(nodes, known.store(node_type), nodes.n_id, edges=False):
            counts["seen"] += size
            counts[f"wrong:{name}"] = counts.get(f"wrong:{name}", 0) + wrong
    return counts


_NO_LIMIT = torch.iinfo(torch.int64).max


def _seed_times(batch: Any, known: Known) -> Tensor | None:
    """The time of each tree, if batches say so."""
    for store in [batch] if isinstance(batch, Data) else batch.edge_stores:
        for name in ("seed_time", "edge_label_time"):
            if isinstance(store.get(name), torch.Tensor):
                return cast("Tensor", store[name])
    # Trees are counted over the types of nodes in their order.
    views = dict(_node_views(batch))
    found = [_times_of_seeds(name, views[name], known) for name in known.topology.num_nodes if name in views]
    given = [times for times in found if times is not None]
    return torch.cat(given) if any(bool((times < _NO_LIMIT).any()) for times in given) else None


def _times_of_seeds(node_type: str, nodes: Any, known: Known) -> Tensor | None:
    """The times of the seeds of one type: those given, else those of the nodes, else none that limit anything."""
    if isinstance(nodes.get("seed_time"), torch.Tensor):
        return cast("Tensor", nodes["seed_time"])
    size = nodes.get("batch_size")
    if not isinstance(size, int):
        return None
    if node_type in known.node_time:
        return known.node_time[node_type][nodes.n_id[:size]]
    return torch.full((size,), _NO_LIMIT)


def _look_times(batch: Any, known: Known) -> dict[str, int]:
    counts = {"seen": 0, "wrong": 0, "mixed": 0}
    times = _seed_times(batch, known)
    if times is None or not (known.node_time or known.edge_time) or len(times) == 0:
        return counts
    trees = {node_type: nodes.get("batch") for node_type, nodes in _node_views(batch)}

    def limit(node_type: str, nodes: Tensor) -> Tensor:
        tree = trees.get(node_type)
        if tree is None:
            counts["mixed"] = 1
            return times.max().expand(len(nodes))
        return times[tree[nodes] % len(times)]

    for view in _edge_views(batch):
        target = view.edge_type[-1]
        if view.edge_type in known.edge_time and view.store.get("e_id") is not None:
            found = known.edge_time[view.edge_type][view.store.e_id]
        elif view.edge_type[0] in known.node_time:
            found = known.node_time[view.edge_type[0]][view.ends[0]]
        else:
            continue
        latest = limit(target, view.local[1])
        if found.is_floating_point() or latest.is_floating_point():
            found, latest = found.double(), latest.double()
        wrong = found > latest
        if known.strict:
            wrong |= found == latest
        if known.window is not None and not counts["mixed"]:
            wrong |= (found < latest - known.window) & (latest < _NO_LIMIT)
        counts["seen"] += len(found)
        counts["wrong"] += int(wrong.sum())
    return counts


def _labelled(batch: Any, known: Known) -> Iterator[tuple[EdgeType, Tensor, Tensor]]:
    """Edge type, positive and negative labelled edges [2, n] as ids of the data."""
    stores = [(ONE_EDGE_TYPE, batch)] if isinstance(batch, Data) else [(name, batch[name]) for name in batch.edge_types]
    for edge_type, store in stores:
        index = store.get("edge_label_index")
        if index is None:
            continue
        ends = torch.stack([_ids(batch, edge_type[0])[index[0]], _ids(batch, edge_type[-1])[index[1]]])
        label = store.get("edge_label")
        positive = torch.ones(ends.shape[1], dtype=torch.bool)
        if label is not None and len(label) == len(positive):
            binary = bool((label <= 1).all()) if known.zero_is_negative is None else known.zero_is_negative
            if binary:
                positive = label.bool() if label.dim() == 1 else label.flatten(1).bool().any(1)
        yield edge_type, ends[:, positive], ends[:, ~positive]
    for edge_type, source, target in _triplets(batch):
        sources = _ids(batch, edge_type[0])[source.src_index]
        targets = _ids(batch, edge_type[-1])
        negative = targets[target.dst_neg_index].reshape(len(sources), -1)
        repeated = sources[:, None].expand_as(negative)
        yield (
            edge_type,
            torch.stack([sources, targets[target.dst_pos_index]]),
            torch.stack([repeated.reshape(-1), negative.reshape(-1)]),
        )


def _triplets(batch: Any) -> Iterator[tuple[EdgeType, Any, Any]]:
    if isinstance(batch, Data):
        if batch.get("src_index") is not None:
            yield ONE_EDGE_TYPE, batch, batch
        return
    for edge_type in batch.edge_types:
        source, target = batch[edge_type[0]], batch[edge_type[-1]]
        if "src_index" in source and "dst_neg_index" in target and "input_id" in batch[edge_type]:
            yield edge_type, source, target


def _ids(batch: Any, node_type: str) -> Tensor:
    return batch.n_id if isinstance(batch, Data) else batch[node_type].n_id  # type: ignore[no-any-return]


def _look_labels(batch: Any, known: Known) -> dict[str, int]:
    counts = {"seen": 0, "wrong": 0}
    for edge_type, positive, _ in _labelled(batch, known):
        for view in _edge_views(batch):
            if view.edge_type == edge_type:
                message = KnownEdges([view.ends.numpy()])
                counts["seen"] += positive.shape[1]
                counts["wrong"] += int(message.hold(*positive.numpy()).sum())
    return counts


def _look_negatives(batch: Any, known: Known) -> dict[str, int]:
    counts = {"seen": 0, "wrong": 0}
    for edge_type, _, negative in _labelled(batch, known):
        counts["seen"] += negative.shape[1]
        counts["wrong"] += int(known.positive(edge_type).hold(*negative.numpy()).sum())
    return counts


def _look_seeds(batch: Any, known: Known) -> dict[str, int]:  # noqa: ARG001
    counts = {"seen": 0, "twice": 0}
    for _, nodes in _node_views(batch):
        size = nodes.get("batch_size")
        if isinstance(size, int):
            counts["seen"] += size
            counts["twice"] += size - len(np.unique(nodes.n_id[:size].numpy()))
    return counts


def _look_degrees(batch: Any, known: Known) -> dict[str, int]:
    counts = {"picked": 0, "there": 0}
    for view in _edge_views(batch):
        graph = known.topology.graphs.get(view.edge_type)
        if graph is not None and view.local.shape[1]:
            rows = torch.from_numpy(np.unique(view.local[1].numpy()))
            node_ids = _ids(batch, view.edge_type[-1])[rows].numpy()
            counts["picked"] += view.local.shape[1]
            counts["there"] += int((graph.indptr[node_ids + 1] - graph.indptr[node_ids]).sum())
    return counts


def _judge_edges(counts: dict[str, int]) -> tuple[str, str]:
    if counts["wrong"]:
        return "failed", f"{counts['wrong']} of {counts['seen']} edges are not the edges of the data that e_id names"
    if counts["seen"]:
        return "passed", f"{counts['seen']} edges are those of the data that e_id names"
    return "unknown", f"{counts['without']} edges without e_id"


def _judge_attributes(counts: dict[str, int]) -> tuple[str, str]:
    wrong = {name[6:]: count for name, count in counts.items() if name.startswith("wrong:") and count}
    if wrong:
        named = ", ".join(f"{name} ({count})" for name, count in sorted(wrong.items()))
        return "failed", f"rows that differ from the data's: {named}"
    if counts["seen"]:
        return "passed", f"{counts['seen']} rows of features and attributes are those of the data"
    return "unknown", "no attributes to compare"


def _judge_times(counts: dict[str, int]) -> tuple[str, str]:
    if counts["wrong"]:
        message = (
            f"{counts['wrong']} of {counts['seen']} edges are from the future of their seed, or outside its window"
        )
        return "failed", message
    if not counts["seen"]:
        return "unknown", "no times; time_attr names the attribute that has them"
    if counts["mixed"]:
        return (
            "note",
            f"{counts['seen']} edges are not younger than the youngest seed of their batch; trees are not disjoint",
        )
    return "passed", f"{counts['seen']} edges are not younger than their seed"


def _judge_labels(counts: dict[str, int]) -> tuple[str, str]:
    if counts["wrong"]:
        return "failed", f"{counts['wrong']} of {counts['seen']} labelled edges are also among the edges of their batch"
    if counts["seen"]:
        return "passed", f"none of {counts['seen']} labelled edges is among the edges of its batch"
    return "unknown", "no labelled edges"


def _judge_negatives(counts: dict[str, int]) -> tuple[str, str]:
    if counts["wrong"]:
        return (
            "failed",
            f"{counts['wrong']} of {counts['seen']} negative edges are edges; NegativeSampling(strict=True)",
        )
    if counts["seen"]:
        return "passed", f"none of {counts['seen']} negative edges is an edge"
    return "unknown", "no negative edges"


def _judge_seeds(counts: dict[str, int]) -> tuple[str, str]:
    if counts["twice"]:
        return "note", f"{counts['twice']} of {counts['seen']} seeds came before in their batch"
    if counts["seen"]:
        return "passed", f"none of {counts['seen']} seeds comes twice in its batch"
    return "unknown", "batches do not say which nodes are seeds"


def _judge_degrees(counts: dict[str, int]) -> tuple[str, str]:
    if not counts["there"]:
        return "unknown", "no edges"
    left_out = 1 - min(1.0, counts["picked"] / counts["there"])
    return "note", f"{left_out:.0%} of the in-edges of the nodes that have some were left out"


@dataclass(frozen=True)
class Check:
    """One check: what it counts in a batch, and its verdict and message on the counts of all."""

    look: Callable[[Any, Known], dict[str, int]]
    judge: Callable[[Any], tuple[str, str]]


CHECKS = {
    "edges": Check(_look_edges, _judge_edges),
    "attributes": Check(_look_attributes, _judge_attributes),
    "times": Check(_look_times, _judge_times),
    "labels": Check(_look_labels, _judge_labels),
    "negatives": Check(_look_negatives, _judge_negatives),
    "seeds": Check(_look_seeds, _judge_seeds),
    "degrees": Check(_look_degrees, _judge_degrees),
}
