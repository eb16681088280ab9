"""Features of edges that lie in a feature store, which PyTorch Geometric's loaders leave there."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from torch_geometric.data import Data, HeteroData

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["StoredEdgeFeatures", "edge_attrs"]


class StoredEdgeFeatures:
    """A mixin before one of PyTorch Geometric's loaders: batches from stores get the features of their edges too.

    A tensor belongs to edges if its group is an edge type. In a store without types it does too if it has one row
    for each edge, unless there are as many nodes and its name does not contain "edge".
    """

    data: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._edge_attrs = [] if isinstance(self.data, (Data, HeteroData)) else edge_attrs(*self.data)

    def filter_fn(self, out: Any) -> Any:
        """Joins what was sampled with its features.

        Args:
            out: What the sampler gave.
        """
        if not self._edge_attrs:
            return super().filter_fn(out)  # type: ignore[misc]
        plain: Any = copy.copy(self)
        feature_store, graph_store = self.data
        plain.data = _WithoutEdges(feature_store, self._edge_attrs), graph_store
        plain.transform, plain._edge_attrs = None, []  # noqa: SLF001
        batch = plain.filter_fn(out)
        _fetch(feature_store, self._edge_attrs, batch)
        transform = self.transform  # type: ignore[attr-defined]
        return batch if transform is None else transform(batch)


class _WithoutEdges:
    """A feature store without the tensors of edges: without types, PyTorch Geometric looks them up by node."""

    def __init__(self, store: Any, left_out: Sequence[Any]) -> None:
        self._store = store
        self._left_out = {_name(attr) for attr in left_out}

    def get_all_tensor_attrs(self) -> list[Any]:
        return [copy.copy(attr) for attr in self._store.get_all_tensor_attrs() if _name(attr) not in self._left_out]

    def multi_get_tensor(self, attrs: Any, *args: Any, **kwargs: Any) -> Any:
        return self._store.multi_get_tensor(attrs, *args, **kwargs)


def _name(attr: Any) -> tuple[Any, Any]:
    return attr.group_name, attr.attr_name


def edge_attrs(feature_store: Any, graph_store: Any) -> list[Any]:
    """The attributes of a feature store that are those of edges, see `StoredEdgeFeatures`.

    Args:
        feature_store: Where they are looked for.
        graph_store: Whose edges they may belong to.
    """
    edge_types = {attr.edge_type for attr in graph_store.get_all_edge_attrs()}
    found = [copy.copy(attr) for attr in feature_store.get_all_tensor_attrs()]
    if edge_types != {None}:
        return [attr for attr in found if attr.group_name in edge_types]
    (stored, *_) = graph_store.get_all_edge_attrs()
    rows, columns = (len(ends) for ends in graph_store.get_edge_index(stored))
    num_edges = rows if stored.layout.value == "csc" else columns
    num_nodes = 0 if stored.size is None else max(stored.size)

    def is_of_edges(attr: Any) -> bool:
        if isinstance(attr.group_name, tuple):
            return True
        size = feature_store.get_tensor_size(copy.copy(attr))
        fits = bool(size) and size[0] == num_edges
        return fits and (num_edges != num_nodes or "edge" in str(attr.attr_name))

    return [attr for attr in found if is_of_edges(attr)]


def _fetch(feature_store: Any, attrs: Sequence[Any], batch: Any) -> None:
    wanted, stores = [], []
    for attr in map(copy.copy, attrs):
        if isinstance(batch, HeteroData):
            store = batch[attr.group_name] if attr.group_name in batch.edge_types else {}
        else:
            store = batch
        if "e_id" in store:  # edges that lead both ways, over types, have none
            attr.index = store["e_id"]
            wanted.append(attr)
            stores.append(store)
    for attr, store, tensor in zip(wanted, stores, feature_store.multi_get_tensor(wanted)):
        store[attr.attr_name] = tensor
