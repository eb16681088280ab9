"""Graphs from and to SciPy, NetworkX and PyTorch Geometric; each is imported only when it is asked for.

All conversions keep duplicate edges and self loops, and the order in which the edges came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ._arrays import as_numpy
from .errors import ArgumentError, MissingDependencyError
from .graph import Graph

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["from_networkx", "from_pyg", "from_scipy", "to_networkx", "to_pyg", "to_scipy"]


def from_scipy(matrix: Any) -> Graph:
    """A graph from a SciPy sparse matrix or array: each stored entry A[i, j] is an edge from i to j.

    Args:
        matrix: [num_sources, num_targets], any format. Stored zeros are edges, stored duplicates count twice.

    Returns:
        The graph; `edge_ids` refers to the order of ``matrix.tocoo().data``.

    Raises:
        ArgumentError: It is no two-dimensional sparse matrix, or the arrays it is made of contradict each other.

    Example:
        >>> import scipy.sparse
        >>> from_scipy(scipy.sparse.csr_array(([1.0, 1.0], ([0, 2], [1, 1])), shape=(3, 3))).indices
        array([0, 2], dtype=int32)
    """
    if not hasattr(matrix, "tocoo") or len(matrix.shape) != 2:
        raise ArgumentError("matrix", "a two-dimensional SciPy sparse matrix or array", type(matrix).__name__)
    try:
        if hasattr(matrix, "check_format"):  # SciPy itself would follow indices that lead nowhere
            matrix.check_format(full_check=True)
        entries = matrix.tocoo()
    except ValueError as error:
        raise ArgumentError("matrix", "a valid sparse matrix", error) from error
    num_sources, num_targets = (int(length) for length in matrix.shape)
    return Graph.from_edge_index(np.stack([entries.row, entries.col]), (num_sources, num_targets))


def to_scipy(graph: Graph, values: Any = None) -> Any:
    """The graph as a ``scipy.sparse.csc_array`` [num_sources, num_targets]: A[i, j] for the edge i to j.

    Args:
        graph: The graph. Duplicate edges become duplicate entries, which SciPy adds up when it multiplies.
        values: [num_edges], one per edge in the order the caller passed the edges; float32 ones if left out.

    Raises:
        ArgumentError: `values` has another shape.
        MissingDependencyError: SciPy is not installed.

    Example:
        >>> to_scipy(Graph([0, 0, 2], [0, 1])).toarray()
        array([[0., 1.],
               [0., 1.]], dtype=float32)
    """
    try:
        import scipy.sparse
    except ImportError as error:
        raise MissingDependencyError("scipy", "to_scipy", "tables") from error
    if values is None:
        data: NDArray[Any] = np.ones(graph.num_edges, np.float32)
    else:
        data = as_numpy("values", values)
        if data.shape != (graph.num_edges,):
            raise ArgumentError("values", f"shape [{graph.num_edges}]", f"shape {list(data.shape)}")
        data = data.copy() if graph.edge_ids is None else data[graph.edge_ids]
    shape = (graph.num_sources, graph.num_targets)
    # Copies: SciPy's own methods sort and sum in place.
    return scipy.sparse.csc_array((data, graph.indices.copy(), graph.indptr.copy()), shape=shape)


def from_networkx(graph: Any) -> Graph:
    """A graph from a NetworkX graph; nodes are numbered in the order of ``graph.nodes``.

    Args:
        graph: Any NetworkX graph. An undirected edge becomes two directed ones, a self loop one.

    Returns:
        The graph; `edge_ids` refers to the order of ``graph.edges``, followed, if undirected, by the same
        edges reversed without the self loops.

    Raises:
        ArgumentError: It is no NetworkX graph.

    Example:
        >>> import networkx
        >>> from_networkx(networkx.path_graph(3)).to_edge_index()
        array([[0, 1, 1, 2],
               [1, 2, 0, 1]])
    """
    if not all(hasattr(graph, name) for name in ("is_directed", "nodes", "edges")):
        raise ArgumentError("graph", "a NetworkX graph", type(graph).__name__)
    number = {node: i for i, node in enumerate(graph.nodes)}
    pairs = [(number[edge[0]], number[edge[1]]) for edge in graph.edges]
    edges = np.array(pairs, np.int64).reshape(-1, 2).T
    if not graph.is_directed():
        edges = np.concatenate([edges, edges[::-1, edges[0] != edges[1]]], axis=1)
    return Graph.from_edge_index(edges, len(number))


def to_networkx(graph: Graph) -> Any:
    """The graph as a ``networkx.MultiDiGraph`` (duplicate edges survive) of nodes 0 .. num_nodes - 1.

    Each edge has the attribute ``edge_id``, its position among the edges the graph was made from.

    Raises:
        ArgumentError: The sources of the graph are not its targets.
        MissingDependencyError: NetworkX is not installed.

    Example:
        >>> list(to_networkx(Graph([0, 0, 2], [0, 1])).edges(data="edge_id"))
        [(0, 1, 0), (1, 1, 1)]
    """
    try:
        import networkx as nx
    except ImportError as error:
        raise MissingDependencyError("networkx", "to_networkx", "test") from error
    result = nx.MultiDiGraph()
    result.add_nodes_from(range(graph.num_nodes))
    sources, targets = graph.to_edge_index().tolist()
    result.add_edges_from((i, j, {"edge_id": e}) for e, (i, j) in enumerate(zip(sources, targets)))
    return result


def from_pyg(data: Any) -> Graph:
    """A graph from a ``torch_geometric.data.Data`` (its `edge_index` and number of nodes).

    Args:
        data: The Data object.

    Returns:
        The graph; `edge_ids` refers to the columns of ``data.edge_index``, the rows of ``data.edge_attr``.

    Raises:
        ArgumentError: It has no `edge_index`: several types of nodes, or another layout.

    Example:
        >>> import torch, torch_geometric
        >>> from_pyg(torch_geometric.data.Data(edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=4))
        Graph(4 nodes, 2 edges, int32)
    """
    edge_index = getattr(data, "edge_index", None)
    if edge_index is None or hasattr(data, "edge_types"):
        raise ArgumentError(
            "data",
            "a torch_geometric Data object with edge_index",
            type(data).__name__,
            "take one edge type of a HeteroData, or pass edges to Graph.from_edge_index",
        )
    num_nodes = data.num_nodes
    return Graph.from_edge_index(edge_index, None if num_nodes is None else int(num_nodes))


def to_pyg(graph: Graph) -> Any:
    """The graph as a ``torch_geometric.data.Data``, `edge_index` in the order the caller passed the edges.

    Raises:
        ArgumentError: The sources of the graph are not its targets.
        MissingDependencyError: PyTorch Geometric is not installed.

    Example:
        >>> to_pyg(Graph([0, 0, 2], [0, 1])).edge_index
        tensor([[0, 1],
                [1, 1]])
    """
    try:
        import torch
        from torch_geometric.data import Data
    except ImportError as error:
        raise MissingDependencyError("torch-geometric", "to_pyg", "pyg") from error
    return Data(edge_index=torch.from_numpy(graph.to_edge_index()), num_nodes=graph.num_nodes)
