"""What a layer may be given as edges, brought to one form."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, Union, runtime_checkable

import torch
from sage_attention.errors import ArgumentError
from sage_attention.torch._interim import Csc
from torch import Tensor

__all__ = ["Adjacency", "CscGraph", "Unified", "csc_to_edge_index", "is_sparse", "sparse_like", "unify"]

_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
_SPARSE = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc)


@runtime_checkable
class CscGraph(Protocol):
    """Any object that holds the in-edges of its targets, such as ``sage_attention.Graph``."""

    indptr: Any  # [R + 1] integers
    indices: Any  # [E] integers


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
        indptr = torch.as_tensor(adjacency.indptr, device=device).long()
        indices = torch.as_tensor(adjacency.indices, device=device)
        edge_ids = getattr(adjacency, "edge_ids", None)
        if edge_ids is None:
            edge_ids = torch.arange(indices.numel(), device=device)
        csc = Csc(indptr, indices, torch.as_tensor(edge_ids, device=device).long())
        return Unified(None, csc, None, None, indptr.numel() - 1, ())
    raise ArgumentError(
        "edge_index",
        "an integer tensor [2, num_edges], a Csc, a graph with indptr and indices, or a sparse tensor",
        type(adjacency).__name__,
        "of a torch_sparse.SparseTensor pass torch.stack([col, row]) of its coo()",
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


def is_sparse(adjacency: Adjacency) -> bool:
    """Whether an adjacency is a sparse tensor.

    Args:
        adjacency: What a layer was given as edges.
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
    """
    size = (*adjacency.shape[:2], *weights.shape[1:])
    columns, rows = edge_index[0], edge_index[1]
    if adjacency.layout == torch.sparse_coo:
        return torch.sparse_coo_tensor(torch.stack([rows, columns]), weights, size, is_coalesced=True)
    by_row = adjacency.layout == torch.sparse_csr
    major, minor = (rows, columns) if by_row else (columns, rows)
    bounds = torch.arange(size[0 if by_row else 1] + 1, device=major.device)
    pointers = torch.searchsorted(major.contiguous(), bounds)
    make = torch.sparse_csr_tensor if by_row else torch.sparse_csc_tensor
    made: Tensor = make(pointers, minor, weights, size)
    return made


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
