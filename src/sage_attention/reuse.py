"""Memory of outputs that are gone, kept for the next ones.

A large array fresh from the system costs a page fault every few KiB and is written once more than needed: up to half of
the time a kernel takes to fill it. Training gives the same sizes back step by step. What lies here starts at a cache
line, too: rows of whole lines then touch no line more than they have to.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import ArgumentError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["SMALLEST", "aligned_empty", "empty", "set_reuse_limit"]

SMALLEST = 1 << 20  # bytes; what is smaller is the allocator's business
_LIMIT = 1 << 30
_LINE = 64
_MOST_IDLE = 64  # arrays made meanwhile, after which memory that nobody took goes back to the system


def aligned_empty(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """An array of any content that starts at a cache line."""
    kind = np.dtype(dtype)
    size = _size(shape, kind)
    memory = np.empty(size + _LINE, np.uint8)
    start = -_address(memory) % _LINE
    array: NDArray[Any] = memory[start : start + size].view(kind).reshape(shape)
    return array


def empty(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """The same, in memory of an earlier array where that is large and gone.

    Args:
        shape: Of the array.
        dtype: Of its elements.
    """
    kind = np.dtype(dtype)
    size = _size(shape, kind)
    return np.empty(shape, kind) if size < SMALLEST else _pool.empty(shape, kind, size)


def set_reuse_limit(num_bytes: int) -> int:
    """How much memory of outputs is kept for later ones, in use or not; 1 GiB unless set.

    Outputs and gradients of 1 MiB and more lie in such memory while there is room, on the CPU, from NumPy and from
    PyTorch. It goes back to the system once 64 of them were made and none took it.

    Args:
        num_bytes: 0 keeps none, and gives back what nobody uses.

    Returns:
        The limit before.

    Raises:
        ArgumentError: It is no int, or negative.

    Example:
        >>> before = set_reuse_limit(0)
        >>> set_reuse_limit(before)
        0
    """
    if type(num_bytes) is not int or num_bytes < 0:
        raise ArgumentError("num_bytes", "an int, 0 or more", repr(num_bytes))
    return _pool.set_limit(num_bytes)


def _size(shape: tuple[int, ...], kind: np.dtype[Any]) -> int:
    size = kind.itemsize
    for length in shape:
        size *= length
    return size


def _address(memory: NDArray[Any]) -> int:
    return int(memory.__array_interface__["data"][0])


class _Lent:
    """What NumPy needs to see memory as an array; lives as long as any array on it."""

    __slots__ = ("__array_interface__", "__weakref__", "_memory")

    def __init__(self, memory: NDArray[np.uint8], shape: tuple[int, ...], kind: np.dtype[Any]) -> None:
        self._memory = memory
        start = -(-_address(memory) // _LINE) * _LINE
        self.__array_interface__ = {"shape": shape, "typestr": kind.str, "data": (start, False), "version": 3}


class _Return(weakref.ref):  # type: ignore[type-arg]
    """Comes back, with the memory, when what was lent is gone."""

    __slots__ = ("memory",)
    memory: NDArray[np.uint8]


class _Pool:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._made = 0  # arrays
        self._lent: set[_Return] = set()
        # No line of Python runs when an array goes, so that no Ctrl-C can be lost there.
        self._returned: deque[_Return] = deque()
        self._idle: list[tuple[int, NDArray[np.uint8]]] = []  # arrays made before it came; oldest first

    def empty(self, shape: tuple[int, ...], kind: np.dtype[Any], size: int) -> NDArray[Any]:
        # Nobody waits: another thread is at it, or was when this process was forked.
        if not self._lock.acquire(blocking=False):
            return aligned_empty(shape, kind)
        try:
            memory = self._take(size)
            if memory is None:
                return aligned_empty(shape, kind)
            lent = _Lent(memory, shape, kind)
            back = _Return(lent, self._returned.append)
            back.memory = memory
            self._lent.add(back)
        finally:
            self._lock.release()
        return np.asarray(lent)

    def set_limit(self, limit: int) -> int:
        with self._lock:
            before, self._limit = self._limit, limit
            self._collect()
            self._shrink(limit)
            if self._held() > limit:
                self._lent.clear()  # goes to the system, not here, when its arrays go
            return before

    def _take(self, size: int) -> NDArray[np.uint8] | None:
        step = 1 << (size.bit_length() - 4)  # sizes of batches differ: an eighth more at most
        size = -(-size // step) * step + _LINE
        self._made += 1
        self._collect()
        for place in range(len(self._idle) - 1, -1, -1):  # the last that came may still be in a cache
            if self._idle[place][1].size == size:
                return self._idle.pop(place)[1]
        self._shrink(max(self._limit - size, 0))
        if self._held() + size > self._limit:
            return None
        try:
            return np.empty(size, np.uint8)
        except MemoryError:
            self._shrink(0)
            return np.empty(size, np.uint8)

    def _collect(self) -> None:
        """What came back is idle; what is so for long goes."""
        while self._returned:
            back = self._returned.popleft()
            self._lent.discard(back)
            self._idle.append((self._made, back.memory))
        while self._idle and self._made - self._idle[0][0] > _MOST_IDLE:
            self._idle.pop(0)

    def _shrink(self, limit: int) -> None:
        while self._idle and self._held() > limit:
            self._idle.pop(0)

    def _held(self) -> int:
        return sum(memory.size for _, memory in self._idle) + sum(back.memory.size for back in self._lent)


_pool = _Pool(_LIMIT)
