"""int64 arrays that see the native library's memory, which is freed with the last of them."""

from __future__ import annotations

import ctypes
import threading
import weakref
from array import array
from typing import TYPE_CHECKING, Any, cast

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = ["NativeMemory", "free_with", "numbers"]

_INT64 = np.dtype(np.int64).str
_NOTHING = np.empty(0, np.int64)
_NOTHING.flags.writeable = False


class _Farewell(weakref.ref):  # type: ignore[type-arg]
    """Is passed to its callback, a native function, as a pointer."""

    __slots__ = ("_as_parameter_",)
    _as_parameter_: Any


_farewells: list[_Farewell] = []
_most_farewells = 64  # before those that have done their work are looked for
_lock = threading.Lock()


def free_with(owner: Any, free: Callable[[Any], None], pointer: Any) -> None:
    """Frees a native object when its owner is gone; not at exit.

    No line of Python runs then, as in `weakref.finalize`: a Ctrl-C that came in it would be printed and forgotten.

    Args:
        owner: Any object of Python that can be weakly referenced.
        free: The library's function that frees the object; takes one pointer.
        pointer: The object, as the function takes it.
    """
    global _farewells, _most_farewells
    farewell = _Farewell(owner, free)
    farewell._as_parameter_ = pointer
    with _lock:
        if len(_farewells) >= _most_farewells:
            _farewells = [one for one in _farewells if one() is not None]
            _most_farewells = 2 * len(_farewells) + 64
        _farewells.append(farewell)


class NativeMemory:
    """Frees a native object when the last array on its memory is gone.

    Args:
        pointer: Pointer to the object.
        free: The library's function that frees it.
    """

    def __init__(self, pointer: Any, free: Callable[[Any], None]) -> None:
        free_with(self, free, pointer)

    def view(self, start: int | None, count: int) -> NDArray[np.int64]:
        """int64 [count], read-only, at the address `start`."""
        if count == 0:
            return _NOTHING  # the library has no address for it, and NumPy up to 2.0 takes none for no array
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
