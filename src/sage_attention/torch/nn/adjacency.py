"""What a layer may be given as edges, brought to one form."""

from __future__ import annotations

import threading
import weakref
from typing import Any, NamedTuple, Protocol, Union, runtime_checkable

import torch
from torch import Tensor

from sage_attention.errors import ArgumentError
from sage_attention.torch.ops import Csc

__all__ = [
    "Adjacency",
    "CscGraph",
    "Unified",
    "csc_to_edge_index",
    "grouped_by_source",
    "is_sparse",
    "sparse_like",
    "unify",
]

_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
_SPARSE = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc)


@runtime_checkable
class CscGraph(Protocol):
    """Any object that holds the in-edges of its targets, such as ``sage_attention.Graph``.

    It may also have ``edge_ids`` [E], each edge's position among the edge features. SciPy's matrices have no
    ``num_sources``, which is well: those by row would be read as those by column.
    """

    indptr: Any  # [R + 1] integers
    indices: Any  # [E] integers
    num_sources: int


Adjacency = Union[Tensor, Csc, CscGraph]


class Unified(NamedTuple):
    """An adjacency in one form.

    Attributes:
        edge_index: [2, E] int32 or int64, or None where a CSC was given.
        csc: The CSC given, or None.
        values: [E, ...] of a sparse adjacency, or None.
        num_sources: As the adjacency states it, or None.
        num_targets: As the adjacency states it, or None.
        identity: Tensors that stand for the adjacency from call to call; none if made for this call.
    """

    edge_index: Tensor | None
    csc: Csc | None
    values: Tensor | None
    num_sources: int | None
    num_targets: int | None
    identity: tuple[Tensor, ...]


def unify(adjacency: Adjacency, device: torch.device) -> Unified:
    """Brings an adjacency to one form.

    Args:
        adjacency: ``edge_index`` [2, E], CSC, graph in CSC order, or sparse [targets, sources].
        device: Where a graph of NumPy arrays goes.

    Returns:
        The same edges, in the same order.

    Raises:
        ArgumentError: It is none of these.

    Example:
        >>> unify(torch.eye(3).to_sparse(), torch.device("cpu")).edge_index
        tensor([[0, 1, 2],
                [0, 1, 2]])
    """
    if isinstance(adjacency, Tensor):
        if adjacency.layout in _SPARSE:
            rows, columns, values = _entries(adjacency)
            num_targets, num_sources = adjacency.shape[:2]
            edge_index = torch.stack([columns, rows])
            return Unified(edge_index, None, values, num_sources, num_targets, ())
        return Unified(_checked(adjacency), None, None, None, None, (adjacency,))
    if isinstance(adjacency, Csc):
        identity = (adjacency.indices, adjacency.indptr, adjacency.edge_ids)
        return Unified(None, adjacency, None, None, adjacency.indptr.numel() - 1, identity)
    if isinstance(adjacency, CscGraph):
        csc = _csc_of(adjacency, device)
        return Unified(None, csc, None, adjacency.num_sources, csc.indptr.numel() - 1, csc[:3])
    raise ArgumentError(
        "edge_index",
        "an integer tensor [2, num_edges], a Csc, a graph with indptr and indices, or a sparse tensor",
        type(adjacency).__name__,
        "of a torch_sparse.SparseTensor or a SciPy matrix pass torch.stack([sources, targets])",
    )


def csc_to_edge_index(csc: Csc) -> Tensor:
    """The edges of a CSC in the caller's order.

    Args:
        csc: E edges.

    Returns:
        [2, E], of the type of ``csc.indices``.

    Example:
        >>> csc_to_edge_index(Csc(torch.tensor([0, 2]), torch.tensor([5, 7]), torch.tensor([1, 0])))
        tensor([[7, 5],
                [0, 0]])
    """
    degrees = csc.indptr.diff()
    rows = torch.arange(degrees.numel(), device=degrees.device, dtype=csc.indices.dtype)
    targets = torch.repeat_interleave(rows, degrees, output_size=csc.indices.numel())
    edge_index = torch.stack([csc.indices, targets])
    return torch.empty_like(edge_index).index_copy_(1, csc.edge_ids, edge_index)


def grouped_by_source(csc: Csc, num_sources: int) -> Csc:
    """A CSC that is used again, with what the backward pass needs and would otherwise sort each time.

    Args:
        csc: E edges.
        num_sources: S.

    Returns:
        The same edges; the same object where there is nothing to gain.

    Example:
        >>> csc = Csc(torch.tensor([0, 2]), torch.tensor([2, 0]), torch.tensor([0, 1]))
        >>> grouped_by_source(csc, 3).source_indptr
        tensor([0, 1, 1, 2])
    """
    if not torch.is_grad_enabled() or csc.source_indptr is not None or csc.indptr.device.type != "cpu":
        return csc
    with torch.inference_mode(False):
        return Csc(*csc[:3], *torch.ops.sage_attention.by_source(csc.indptr, csc.indices, num_sources))


def is_sparse(adjacency: Adjacency) -> bool:
    """Whether an adjacency is a sparse tensor.

    Args:
        adjacency: What a layer was given as edges.

    Example:
        >>> is_sparse(torch.eye(3).to_sparse())
        True
    """
    return isinstance(adjacency, Tensor) and adjacency.layout in _SPARSE


def sparse_like(adjacency: Tensor, edge_index: Tensor, weights: Tensor) -> Tensor:
    """A sparse tensor with attention weights as its entries.

    Args:
        adjacency: Gives shape and layout.
        edge_index: [2, E] sources and targets, in the order of a tensor of that layout.
        weights: [E, H].

    Returns:
        [targets, sources, H], of the layout of ``adjacency``.

    Example:
        >>> edge_index = torch.tensor([[1, 0], [0, 1]])
        >>> sparse_like(torch.eye(2).to_sparse(), edge_index, torch.ones(2, 4)).shape
        torch.Size([2, 2, 4])
    """
    size = (*adjacency.shape[:2], *weights.shape[1:])
    columns, rows = edge_index[0], edge_index[1]
    if adjacency.layout == torch.sparse_coo:
        indices = torch.stack([rows, columns])
        return torch.sparse_coo_tensor(indices, weights, size, check_invariants=False, is_coalesced=True)
    by_row = adjacency.layout == torch.sparse_csr
    major, minor = (rows, columns) if by_row else (columns, rows)
    bounds = torch.arange(size[0 if by_row else 1] + 1, device=major.device)
    pointers = torch.searchsorted(major.contiguous(), bounds)
    make = torch.sparse_csr_tensor if by_row else torch.sparse_csc_tensor
    made: Tensor = make(pointers, minor, weights, size, check_invariants=False)
    return made


_graphs: weakref.WeakKeyDictionary[Any, tuple[tuple[Any, ...], Csc]] = weakref.WeakKeyDictionary()
_graphs_lock = threading.Lock()


def _csc_of(graph: CscGraph, device: torch.device) -> Csc:
    """The tensors of a graph of arrays; those of read-only arrays are kept as long as the graph."""
    arrays = (graph.indptr, graph.indices, getattr(graph, "edge_ids", None))
    constant = not any(getattr(getattr(a, "flags", None), "writeable", a is not None) for a in arrays)
    if constant:
        with _graphs_lock:
            source, known = _graphs.get(graph, ((), None))
        same = len(source) == len(arrays) and all(a is b for a, b in zip(source, arrays))
        if known is not None and same and known.indptr.device == device:
            again = grouped_by_source(known, graph.num_sources)
            if again is not known:
                with _graphs_lock:
                    _graphs[graph] = (arrays, again)
            return again
    # PyTorch has no read-only tensors, so read-only arrays are copied.
    tensors = [None if a is None else (torch.tensor if constant else torch.as_tensor)(a) for a in arrays]
    indptr, indices, edge_ids = (None if t is None else t.to(device) for t in tensors)
    assert indptr is not None  # noqa: S101  # the protocol says so
    assert indices is not None  # noqa: S101
    edge_ids = torch.arange(indices.numel(), device=device) if edge_ids is None else edge_ids.long()
    csc = Csc(indptr.long(), indices, edge_ids)
    if constant:
        with _graphs_lock:
            _graphs[graph] = (arrays, csc)
    return csc


def _checked(edge_index: Tensor) -> Tensor:
    if edge_index.dtype not in _INTEGERS:
        raise ArgumentError("edge_index", "integers", edge_index.dtype)
    if edge_index.dim() != 2 or edge_index.size(0) != 2:
        hint = "pass edge_index.t()" if edge_index.dim() == 2 and edge_index.size(1) == 2 else ""
        raise ArgumentError("edge_index", "shape [2, num_edges]", list(edge_index.shape), hint)
    as_tensor = getattr(edge_index, "as_tensor", None)  # PyG's EdgeIndex: its metadata is of no use here
    plain: Tensor = edge_index if as_tensor is None else as_tensor()
    return plain if plain.dtype in (torch.int64, torch.int32) else plain.long()


def _entries(adjacency: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Row, column and value of each entry of a sparse tensor, in its own order."""
    if adjacency.layout == torch.sparse_coo:
        indices = adjacency._indices()  # noqa: SLF001
        return indices[0], indices[1], adjacency._values()  # noqa: SLF001
    by_row = adjacency.layout == torch.sparse_csr
    pointers = adjacency.crow_indices() if by_row else adjacency.ccol_indices()
    minor = (adjacency.col_indices() if by_row else adjacency.row_indices()).long()
    numbers = torch.arange(pointers.numel() - 1, device=pointers.device)
    major = torch.repeat_interleave(numbers, pointers.diff().long(), output_size=minor.numel())
    return (major, minor, adjacency.values()) if by_row else (minor, major, adjacency.values())
