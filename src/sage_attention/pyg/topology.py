"""What a sampler needs to know of a Data, a HeteroData, or a feature store and a graph store."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch_geometric.data import remote_backend_utils
from torch_geometric.data.graph_store import EdgeLayout
from torch_geometric.sampler.base import DataType
from torch_geometric.sampler.utils import to_csc

from sage_attention._arrays import as_numpy
from sage_attention.errors import ArgumentError
from sage_attention.graph import Graph
from sage_attention.hetero import EdgeType, HeteroSampler, Relation

from .stores import edge_attrs
from .times import are_floating, as_ordered

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["ONE_EDGE_TYPE", "ONE_NODE_TYPE", "Topology"]

# The names of the types of a graph that has one of each.
ONE_NODE_TYPE = "node"
ONE_EDGE_TYPE: EdgeType = ("node", "edge", "node")


@dataclass
class Topology:
    """Graphs, times and weights by type; a homogeneous graph has the one type of each named above.

    Args:
        data: Data, HeteroData, or (FeatureStore, GraphStore).
        time_attr: Name of the attribute that holds times of nodes or of edges, or None.
        weight_attr: Name of the attribute that holds weights of edges, or None.
        backward: Whether edges are followed from sources to targets; their types are then turned around too.
    """

    data: Any
    time_attr: str | None = None
    weight_attr: str | None = None
    backward: bool = False
    data_type: DataType = field(init=False)
    is_hetero: bool = field(init=False)
    num_nodes: dict[str, int] = field(init=False, default_factory=dict)
    graphs: dict[EdgeType, Graph] = field(init=False, default_factory=dict)
    node_time: dict[str, Tensor] = field(init=False, default_factory=dict)
    edge_time: dict[EdgeType, Tensor] = field(init=False, default_factory=dict)
    edge_weight: dict[EdgeType, Tensor] = field(init=False, default_factory=dict)
    floating: bool = field(init=False)  # whether times are floating point numbers

    def __post_init__(self) -> None:
        self.data_type = DataType.from_data(self.data)
        read = {
            DataType.homogeneous: self._read_data,
            DataType.heterogeneous: self._read_hetero_data,
            DataType.remote: self._read_stores,
        }
        read[self.data_type]()
        self.floating = are_floating(
            f"time_attr={self.time_attr!r}", [*self.node_time.values(), *self.edge_time.values()]
        )

    @property
    def is_temporal(self) -> bool:
        """Whether nodes or edges have times."""
        return bool(self.node_time or self.edge_time)

    def ordered(self, name: str, times: Any) -> Any:
        """Times as `sampler` compares them, see `as_ordered`.

        Args:
            name: What they are called, for the error.
            times: As the data has them, or as they are compared with those.
        """
        return as_ordered(name, times, self.floating)

    def sampler(self) -> HeteroSampler:
        """A sampler of these graphs, limited by these times and weights."""
        return HeteroSampler(
            {edge_type: self._relation(edge_type, graph) for edge_type, graph in self.graphs.items()}, self.num_nodes
        )

    def _relation(self, edge_type: EdgeType, graph: Graph) -> Relation:
        try:
            return Relation(graph, _own(self._times(edge_type, graph)), _own(self.edge_weight.get(edge_type)))
        except ArgumentError as error:
            # named as the caller knows it
            name, value = {"times": ("time_attr", self.time_attr), "weights": ("weight_attr", self.weight_attr)}[
                error.argument
            ]
            where = f" in {self._sampled(edge_type)}" if self.is_hetero else ""
            raise ArgumentError(f"{name}={value!r}{where}", error.expected, error.got, error.hint) from error

    def edges(self, edge_type: EdgeType) -> list[Any]:
        """[int64 [2, num_edges]], the edges of a type as the data has them; [] if there is no such type."""
        graph = self.graphs.get(self._sampled(edge_type))
        if graph is None:
            return []
        edge_index = graph.to_edge_index()
        return [edge_index[::-1] if self.backward else edge_index]

    def _times(self, edge_type: EdgeType, graph: Graph) -> Any:
        """The times of edges: their own, or those of the nodes that are reached over them."""
        if edge_type in self.edge_time:
            return self.ordered("times", self.edge_time[edge_type])
        if edge_type[0] not in self.node_time:
            return None
        of_nodes = as_numpy("times", self.ordered("times", self.node_time[edge_type[0]]))
        by_position = of_nodes[graph.indices]
        if graph.edge_ids is None:
            return by_position
        times = np.empty_like(by_position)
        times[graph.edge_ids] = by_position
        return times

    def _read_data(self) -> None:
        data = self.data
        self.is_hetero = False
        self.num_nodes = {ONE_NODE_TYPE: int(data.num_nodes or 0)}
        self.graphs = {ONE_EDGE_TYPE: self._graph(data, (self.num_nodes[ONE_NODE_TYPE],) * 2)}
        if self.time_attr is not None:
            if self.time_attr not in data:
                raise ValueError(_neither(self.time_attr))
            if data.is_node_attr(self.time_attr):
                self.node_time = {ONE_NODE_TYPE: data[self.time_attr]}
            elif data.is_edge_attr(self.time_attr):
                self.edge_time = {ONE_EDGE_TYPE: data[self.time_attr]}
            else:
                raise ValueError(_neither(self.time_attr))
        if self.weight_attr is not None:
            self._check_weight_attr(self.weight_attr in data)
            self.edge_weight = {ONE_EDGE_TYPE: data[self.weight_attr]}

    def _read_hetero_data(self) -> None:
        data, name = self.data, self.time_attr
        self.is_hetero = True
        self.num_nodes = {node_type: int(data[node_type].num_nodes or 0) for node_type in data.node_types}
        for edge_type, store in data.edge_items():
            size = (self.num_nodes[edge_type[0]], self.num_nodes[edge_type[-1]])
            self.graphs[self._sampled(edge_type)] = self._graph(store, size)
        if name is not None:
            on_nodes = any(name in store for store in data.node_stores)
            on_edges = any(name in store for store in data.edge_stores)
            if on_nodes and on_edges:
                raise ValueError(f"The time attribute '{name}' holds both node-level and edge-level information")
            if not on_nodes and not on_edges:
                raise ValueError(_neither(name))
            if on_nodes:
                self.node_time = data.collect(name)
            else:
                self.edge_time = {self._sampled(key): value for key, value in data.collect(name).items()}
        if self.weight_attr is not None:
            weights = {key: store[self.weight_attr] for key, store in data.edge_items() if self.weight_attr in store}
            self._check_weight_attr(bool(weights))
            self.edge_weight = {self._sampled(edge_type): value for edge_type, value in weights.items()}

    def _check_weight_attr(self, found: bool) -> None:
        if not found:
            raise ArgumentError("weight_attr", "the name of an attribute of edges", repr(self.weight_attr))

    def _read_stores(self) -> None:
        feature_store, graph_store = self.data
        stored = graph_store.get_all_edge_attrs()
        if self.weight_attr is not None:
            raise NotImplementedError(
                "'weight_attr' argument not yet supported within 'NeighborSampler' for "
                "'(FeatureStore, GraphStore)' inputs"
            )
        if self.time_attr is not None:
            for attr in stored:
                if attr.layout == EdgeLayout.CSR:
                    raise ValueError("Temporal sampling requires that edges are stored in either COO or CSC layout")
                if not attr.is_sorted:
                    raise ValueError(
                        "Temporal sampling requires that edges are sorted by destination, and by source time within "
                        "local neighborhoods"
                    )
        edge_types = list(dict.fromkeys(attr.edge_type for attr in stored))
        self.is_hetero = edge_types != [None]
        if self.is_hetero:
            named = (attr.group_name for attr in feature_store.get_all_tensor_attrs())
            ends = (end for edge_type in edge_types for end in (edge_type[0], edge_type[-1]))
            node_types = list(dict.fromkeys([*(name for name in named if isinstance(name, str)), *ends]))
            self.num_nodes = {name: remote_backend_utils.size(*self.data, name) for name in node_types}
        else:
            self.num_nodes = {ONE_NODE_TYPE: _num_nodes(feature_store, graph_store)}
        self._read_stored_graphs(graph_store)
        if self.time_attr is not None:
            self._read_stored_times(feature_store)

    def _read_stored_graphs(self, graph_store: Any) -> None:
        if self.backward:
            pointers, others, permutations = graph_store.csr()
        else:
            others, pointers, permutations = graph_store.csc()
        if not self.is_hetero:
            pointers, others, permutations = ({ONE_EDGE_TYPE: found} for found in (pointers, others, permutations))
        for edge_type in pointers:
            key = self._sampled(edge_type)
            permutation = (permutations or {}).get(edge_type)
            self.graphs[key] = _from_csc(
                pointers[edge_type], others[edge_type], permutation, self.num_nodes[key[0]], self.num_nodes[key[-1]]
            )

    def _read_stored_times(self, feature_store: Any) -> None:
        attrs = [copy.copy(a) for a in feature_store.get_all_tensor_attrs() if a.attr_name == self.time_attr]
        for attr in attrs:
            attr.index = None  # all of them
        if not self.is_hetero:
            if len(attrs) != 1:
                raise ValueError("Temporal sampling specified but did not find any temporal data")
            times = feature_store.get_tensor(attrs[0])
            # Stores do not say whether a tensor belongs to nodes or edges; its name does, as in PyTorch Geometric.
            if self.time_attr == "time":
                self.node_time = {ONE_NODE_TYPE: times}
            else:
                self.edge_time = {ONE_EDGE_TYPE: times}
            return
        if not attrs:
            raise ValueError("Temporal sampling specified but did not find any temporal data")
        groups = [attr.group_name for attr in attrs]
        found = dict(zip(groups, feature_store.multi_get_tensor(attrs)))
        if all(isinstance(group, str) for group in groups):
            self.node_time = found
        elif all(isinstance(group, tuple) for group in groups):
            self.edge_time = {self._sampled(edge_type): times for edge_type, times in found.items()}
        else:
            raise ValueError(f"Found time attribute '{self.time_attr}' for both node-level and edge-level types")

    def _sampled(self, edge_type: EdgeType) -> EdgeType:
        """The type of edges as they are followed."""
        return (edge_type[2], edge_type[1], edge_type[0]) if self.backward else edge_type

    def _graph(self, store: Any, size: tuple[int, int]) -> Graph:
        """The edges of a Data, or of a store in a HeteroData, from sources to targets or the other way round."""
        if self.backward:
            size = size[::-1]
        for name in ("adj", "adj_t"):
            if isinstance(getattr(store, name, None), torch.Tensor):
                raise ArgumentError(
                    f"data.{name}", "a torch_sparse.SparseTensor, or edges as edge_index", "a matrix of torch"
                )
        if hasattr(store, "adj") or hasattr(store, "adj_t"):
            pointers, others, permutation = to_csc(store, device="cpu", to_transpose=self.backward)
            return _from_csc(pointers, others, permutation, *size)
        edge_index = store.get("edge_index", None) if hasattr(store, "get") else store.edge_index
        if edge_index is None:
            return Graph.from_edge_index(np.empty((2, 0), np.int64), size)
        edge_index = torch.as_tensor(edge_index).as_subclass(torch.Tensor)
        return Graph.from_edge_index(edge_index.flip(0) if self.backward else edge_index, size)


def _num_nodes(feature_store: Any, graph_store: Any) -> int:
    """The number of nodes without types: what the edges say, else what is seen of nodes in both stores."""
    size = graph_store.get_all_edge_attrs()[0].size
    if size is not None:
        return int(max(size))
    of_edges = {attr.attr_name for attr in edge_attrs(feature_store, graph_store)}
    attrs = [copy.copy(attr) for attr in feature_store.get_all_tensor_attrs() if attr.attr_name not in of_edges]
    seen = [int(feature_store.get_tensor_size(attr)[0]) for attr in attrs]
    rows, columns, _ = graph_store.coo()
    seen += [int(ends.max()) + 1 for ends in (rows, columns) if len(ends)]
    return max(seen, default=0)


def _from_csc(
    pointers: Tensor, others: Tensor, permutation: Tensor | None, num_sources: int, num_targets: int
) -> Graph:
    indptr = _integers(_own(pointers))
    # Stores may leave out targets that no edge leads to at the end.
    missing = num_targets + 1 - len(indptr)
    if missing > 0:
        indptr = np.concatenate([indptr, np.full(missing, indptr[-1] if len(indptr) else 0)])
    return Graph(indptr, _own(others), num_sources, _own(permutation))


def _integers(tensor: Tensor) -> Any:
    return tensor.as_subclass(torch.Tensor).detach().cpu().numpy()


def _own(values: Any) -> Any:
    """A copy: a tensor of the caller gets other memory when it is shared, and an array over it would dangle."""
    return values.clone() if isinstance(values, torch.Tensor) else values


def _neither(name: str) -> str:
    return f"The time attribute '{name}' is neither a node-level or edge-level attribute"
