"""Times that are floating point numbers, as integers of the same order, which is all that a sampler looks at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sage_attention._arrays import as_numpy
from sage_attention.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["are_floating", "as_ordered"]

_EXACT = 2**53  # integers up to here are floating point numbers of 64 bits


def are_floating(columns: Iterable[Any]) -> bool:
    """Whether some of the times are floating point numbers.

    Args:
        columns: Tensors or arrays.

    Example:
        >>> are_floating([np.arange(3), np.array([0.5])])
        True
    """
    return any(as_numpy("times", times).dtype.kind == "f" for times in columns)


def as_ordered(name: str, times: Any, floating: bool) -> Any:
    """Times as a sampler takes them: floating point numbers by their order, integers as they are.

    Args:
        name: What they are called, for the error.
        times: Integers, or floating point numbers of up to 64 bits.
        floating: Whether they are compared with floating point numbers.

    Returns:
        `times`; or int64 of the same shape that are equal and less where the times are.

    Raises:
        ArgumentError: They are neither; there is no order of them (nan); or they are integers beyond 2^53, which are
            not exact beside floating point numbers.

    Example:
        >>> as_ordered("times", np.array([-0.5, -0.0, 0.0, 1e-300]), True).argsort(kind="stable")
        array([0, 1, 2, 3])
    """
    array = as_numpy(name, times)
    if array.dtype.kind in "mM":
        wanted = "integers or floating point numbers; dates as .astype('datetime64[us]').astype('int64')"
        raise ArgumentError(name, wanted, f"dtype {array.dtype}")
    if not floating:
        return times
    if array.dtype.kind not in "fiu" or array.dtype.itemsize > np.dtype(np.float64).itemsize:
        raise ArgumentError(name, "an array of integers or floating point numbers", f"dtype {array.dtype}")
    if array.dtype.kind != "f" and array.size > 0 and max(int(array.max()), -int(array.min())) > _EXACT:
        raise ArgumentError(name, "integers up to 2^53, since other times are floating point numbers", "larger ones")
    numbers = np.ascontiguousarray(array, np.float64) + 0.0  # -0.0 is 0.0
    if np.isnan(numbers).any():
        raise ArgumentError(name, "numbers", f"nan at position {int(np.isnan(numbers).ravel().argmax())}")
    bits = numbers.view(np.int64)
    return np.where(bits >= 0, bits, bits ^ np.int64(2**63 - 1))
