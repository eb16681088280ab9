"""Remembers how an ``edge_index`` was grouped by target: full-batch training and stacked layers sort once.

One memory serves all layers, because the layers of a model are given the same ``edge_index``. It holds
nothing alive: an entry goes when its tensor goes. It is never stale as far as PyTorch can tell: an entry
counts only for the very tensor, at the version it had (every in-place operation raises it). Memory that
PyTorch does not own (a NumPy array behind the tensor, memory shared with another process) changes without a
new version; there the contents are compared with a copy. Writing through ``tensor.data`` or
``tensor.numpy()`` is hidden from PyTorch and so from here; call :func:`forget` after it.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Callable, NamedTuple

import torch
from torch import Tensor
from torch.utils.weak import TensorWeakRef, WeakTensorKeyDictionary

if TYPE_CHECKING:
    from sage_attention.torch.ops import Csc

__all__ = ["Topology", "forget", "remembered"]

_MOST_SHAPES = 4  # of one edge_index: with and without self loops, one or two pairs of sizes


class Topology(NamedTuple):
    """Edges grouped by target.

    Attributes:
        csc: The grouping; its ``edge_ids`` count the kept edges first, then the self loops put in.
        kept: Positions of the edges that were kept, or None for all.
        num_loops: Number of self loops put in, or None where the edges were left alone.
    """

    csc: Csc
    kept: Tensor | None
    num_loops: int | None


class _Entry(NamedTuple):
    versions: tuple[object, ...]
    others: tuple[TensorWeakRef, ...]
    contents: tuple[Tensor | None, ...]
    topologies: dict[tuple[object, ...], Topology]


_entries = WeakTensorKeyDictionary()
_lock = threading.Lock()


def remembered(
    tensors: tuple[Tensor, ...],
    shape: tuple[object, ...],
    build: Callable[[], Topology],
    again: Callable[[Topology], Topology],
) -> Topology:
    """The topology that ``build`` makes of ``tensors``, from memory where they are unchanged.

    Args:
        tensors: What the topology is made of; none: nothing is remembered. The topology must not share memory
            with the first, or neither would ever be freed.
        shape: Number of sources, of targets and of self loops, or whatever else it depends on.
        build: Makes the topology.
        again: Called on one that was remembered; what it returns is remembered in its place.

    Returns:
        The topology.
    """
    if not tensors or torch.compiler.is_compiling() or not all(_is_trackable(tensor) for tensor in tensors):
        return build()
    first, others = tensors[0], tensors[1:]
    versions = tuple(_version(tensor) for tensor in tensors)
    with _lock:
        entry: _Entry | None = _entries.get(first)  # type: ignore[no-untyped-call]
    found: Topology | None = None
    if entry is not None and _is_current(entry, tensors, versions):
        found = entry.topologies.get(shape)
    else:
        contents = tuple(_plain(tensor).clone() if _is_foreign(tensor) else None for tensor in tensors)
        entry = _Entry(versions, tuple(TensorWeakRef(tensor) for tensor in others), contents, {})
    with torch.inference_mode(False):  # training may need later what an evaluation has grouped
        topology = build() if found is None else again(found)
    with _lock:
        if shape not in entry.topologies and len(entry.topologies) >= _MOST_SHAPES:
            entry.topologies.clear()
        entry.topologies[shape] = topology
        _entries[first] = entry
    return topology


def forget() -> None:
    """Forgets all groupings, as is needed only after writing to an ``edge_index`` behind PyTorch's back.

    Example:
        >>> edge_index = torch.tensor([[0], [1]])
        >>> edge_index.numpy()[0, 0] = 1
        >>> forget()
    """
    with _lock:
        _entries.clear()


def _plain(tensor: Tensor) -> Tensor:
    """The tensor itself, without PyG's ``EdgeIndex`` around it."""
    as_tensor = getattr(tensor, "as_tensor", None)
    return tensor if as_tensor is None else as_tensor()


def _is_trackable(tensor: Tensor) -> bool:
    # Inference tensors have no version; those of tracing and of function transforms no identity that lasts.
    return type(_plain(tensor)) is Tensor and not tensor.is_inference() and not _plain(tensor).is_inference()


def _version(tensor: Tensor) -> tuple[object, ...]:
    plain = _plain(tensor)
    # EdgeIndex counts its own in-place operations, and the tensor inside it those made on that.
    return tensor._version, plain._version, plain.data_ptr(), plain.shape, plain.stride(), plain.dtype  # noqa: SLF001


def _is_foreign(tensor: Tensor) -> bool:
    return not _plain(tensor).untyped_storage().resizable()


def _is_current(entry: _Entry, tensors: tuple[Tensor, ...], versions: tuple[object, ...]) -> bool:
    return (
        entry.versions == versions
        and all(ref() is tensor for ref, tensor in zip(entry.others, tensors[1:]))
        and all(copy is None or torch.equal(copy, _plain(tensor)) for copy, tensor in zip(entry.contents, tensors))
    )
