"""int64 arrays that see the native library's memory, which is freed with the last of them."""

from __future__ import annotations

import ctypes
import weakref
from array import array
from typing import TYPE_CHECKING, Any, cast

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = ["NativeMemory", "numbers"]

_INT64 = np.dtype(np.int64).str


class NativeMemory:
    """Frees a native object when the last array on its memory is gone.

    Args:
        pointer: Pointer to the object.
        free: The library's function that frees it.
    """

    def __init__(self, pointer: Any, free: Callable[[Any], None]) -> None:
        weakref.finalize(self, free, pointer).atexit = False

    def view(self, start: int | None, count: int) -> NDArray[np.int64]:
        """int64 [count], read-only, at the address `start`."""
        return cast("NDArray[np.int64]", np.asarray(_Piece(self, start, count)))


class _Piece:
    """What NumPy needs to see `count` int64 of an owner's memory as an array."""

    def __init__(self, owner: NativeMemory, start: int | None, count: int) -> None:
        self._owner = owner
        self.__array_interface__ = {
            "shape": (count,),
            "typestr": _INT64,
            "data": (start or 0, True),
            "version": 3,
        }


def numbers(start: int, count: int) -> tuple[int, ...]:
    """`count` int64 at an address, as Python's."""
    return tuple(array("q", ctypes.string_at(start, 8 * count)))
