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


def are_floating(name: str, columns: Iterable[Any]) -> bool:
    """Whether some of the times are floating point numbers.

    Args:
        name: What they are called, for the error.
        columns: Tensors or arrays.

    Example:
        >>> are_floating("times", [np.arange(3), np.array([0.5])])
        True
    """
    return any(as_numpy(name, times).dtype.kind == "f" for times in columns)


def as_ordered(name: str, times: Any, floating: bool) -> Any:
    """Times as a sampler takes them: floating point numbers by their order, integers as they are.

    Args:
        name: What they are called, for the error.
        times: Integers, or floating point numbers of up to 64 bits.
        floating: Whether the graph's times are floating point numbers.

    Returns:
        `times`; or int64 of the same shape that are equal and less where the times are.

    Raises:
        ArgumentError: They are neither; there is no order of them (nan); they are integers beyond 2^53, which are
            not exact beside floating point numbers; or they are fractions, and the graph's times are integers.

    Example:
        >>> as_ordered("times", np.array([-0.5, -0.0, 0.0, 1e-300]), True).argsort(kind="stable")
        array([0, 1, 2, 3])
    """
    array = as_numpy(name, times)
    if array.dtype.kind in "mM":
        wanted = "integers or floating point numbers; dates as .astype('datetime64[us]').astype('int64')"
        raise ArgumentError(name, wanted, f"dtype {array.dtype}")
    if not floating:
        return _whole(name, array) if array.dtype.kind == "f" and array.dtype.itemsize <= 8 else times
    if array.dtype.kind not in "fiu" or array.dtype.itemsize > np.dtype(np.float64).itemsize:
        raise ArgumentError(name, "an array of integers or floating point numbers", f"dtype {array.dtype}")
    if array.dtype.kind != "f" and array.size > 0 and max(int(array.max()), -int(array.min())) > _EXACT:
        raise ArgumentError(name, "integers up to 2^53, since other times are floating point numbers", "larger ones")
    numbers = np.ascontiguousarray(array, np.float64) + 0.0  # -0.0 is 0.0
    if np.isnan(numbers).any():
        raise ArgumentError(name, "numbers", f"nan at position {int(np.isnan(numbers).ravel().argmax())}")
    bits = numbers.view(np.int64)
    return np.where(bits >= 0, bits, bits ^ np.int64(2**63 - 1))


def _whole(name: str, array: Any) -> Any:
    """Floating point numbers that are compared with integers, as int64."""
    numbers = array.astype(np.float64)
    whole = (np.floor(numbers) == numbers) & (numbers >= -(2.0**63)) & (numbers < 2.0**63)
    if not whole.all():
        at = int(whole.ravel().argmin())
        raise ArgumentError(
            name, "whole numbers, as the graph's times are integers", f"{array.ravel()[at]} at position {at}",
            "round them, or make the graph's times floating point numbers",
        )  # fmt: skip
    return numbers.astype(np.int64)
