"""What worker processes that are not forked get without a copy each: arrays and tensors in shared memory."""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np
import torch

__all__ = ["Packed", "share_tensors"]


class Packed:
    """An object whose arrays lie in shared memory: a process that gets it sees the same pages.

    Args:
        value: Anything that can be pickled and has NumPy arrays.

    Example:
        >>> Packed({"ids": np.arange(3)}).unpacked()
        {'ids': array([0, 1, 2])}
    """

    def __init__(self, value: Any) -> None:
        found: list[pickle.PickleBuffer] = []
        self._rest = pickle.dumps(value, protocol=5, buffer_callback=found.append)
        self._arrays = [_shared(buffer) for buffer in found]
        self._read_only = [buffer.raw().readonly for buffer in found]

    def unpacked(self) -> Any:
        """The object, its arrays not copied."""
        views = [tensor.numpy().data for tensor in self._arrays]
        return pickle.loads(  # noqa: S301 - its own
            self._rest,
            buffers=[view.toreadonly() if only else view for view, only in zip(views, self._read_only)],
        )


def _shared(buffer: pickle.PickleBuffer) -> torch.Tensor:
    raw = np.frombuffer(buffer.raw(), np.uint8)
    tensor = torch.empty(len(raw), dtype=torch.uint8)
    tensor.share_memory_()  # type: ignore[no-untyped-call]
    tensor.numpy()[:] = raw
    return tensor


def share_tensors(value: Any) -> None:
    """Moves all tensors that would be pickled with an object into shared memory, in place.

    Starting a process does the same, but another thread must not read a tensor meanwhile: its memory is exchanged.

    Args:
        value: Anything that can be pickled.

    Raises:
        TypeError, AttributeError, pickle.PicklingError: It cannot.

    Example:
        >>> tensors = [torch.zeros(3)]
        >>> share_tensors(tensors)
        >>> tensors[0].is_shared()
        True
    """
    _Sharing(io.BytesIO(), protocol=5).dump(value)


class _Sharing(pickle.Pickler):
    """Writes no tensors and no arrays."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, np.ndarray) and obj.dtype != object:
            return int, ()
        if type(obj) in (torch.Tensor, torch.nn.Parameter) and obj.layout == torch.strided:
            if not obj.is_shared():
                obj.share_memory_()
            return int, ()
        return NotImplemented
