"""Turns what callers pass (arrays, lists, torch tensors) into the NumPy arrays the library works on."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import ArgumentError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["as_numpy", "integer", "integers", "read_only", "unsigned_seed"]

_INT64_MAX = 2**63 - 1


def as_numpy(name: str, value: Any) -> NDArray[Any]:
    """Any array-like as a NumPy array, without a copy where possible.

    Torch tensors are recognised by what they can do, so that torch is never imported here.

    Args:
        name: The argument's name, for the error.
        value: Array, (nested) sequence, or tensor on any device.

    Raises:
        ArgumentError: It cannot be made an array (ragged lists, bfloat16 or sparse tensors).
    """
    if type(value) is np.ndarray:
        return value
    if str(getattr(value, "dtype", "")) == "torch.bfloat16":
        raise ArgumentError(
            name, "a dtype that NumPy has", "bfloat16", "pass .float() of it, which is the same numbers"
        )
    is_tensor = hasattr(value, "detach") and hasattr(value, "numpy")
    if is_tensor:
        _check_array_inside(name, value)
    try:
        if is_tensor:
            value = value.detach().cpu().numpy()
        return np.asarray(value)
    # RuntimeError: torch's, for what else has no array inside
    except (ValueError, TypeError, RuntimeError) as error:
        raise ArgumentError(name, "an array", f"{type(value).__name__} ({error})") from error


def _check_array_inside(name: str, tensor: Any) -> None:
    """Refuses tensors whose numbers lie in no array, before torch does so without a remedy."""
    layout = str(getattr(tensor, "layout", "torch.strided"))
    if layout != "torch.strided":
        raise ArgumentError(name, "an array", f"{type(tensor).__name__} of layout {layout}", "pass .to_dense() of it")
    if getattr(getattr(tensor, "device", None), "type", "cpu") == "meta":
        raise ArgumentError(name, "an array", f"{type(tensor).__name__} on the device meta, which holds no numbers")
    if getattr(tensor, "is_conj", bool)():
        got = f"{type(tensor).__name__} that is conjugated when read"
        raise ArgumentError(name, "an array", got, "pass .resolve_conj() of it")


def integers(name: str, value: Any, shape: tuple[int | None, ...]) -> NDArray[np.integer[Any]]:
    """An array-like of integers as a C-contiguous, aligned int32 or int64 array.

    Args:
        name: The argument's name, for the error.
        value: What the caller passed; an empty sequence counts as integers.
        shape: Required shape, None for any length.

    Raises:
        ArgumentError: It holds no integers (booleans are none), has another shape, or does not fit int64.
    """
    array = as_numpy(name, value)
    text = "[" + ", ".join("*" if length is None else str(length) for length in shape) + "]"
    fits = array.ndim == len(shape) and all(wanted is None or wanted == got for wanted, got in zip(shape, array.shape))
    if not fits:
        raise ArgumentError(name, f"an array of integers of shape {text}", f"shape {list(array.shape)}")
    if array.size == 0 and array.dtype.kind in "fiu":
        return np.ascontiguousarray(array, dtype=np.int64)
    if array.dtype.kind not in "iu":
        raise ArgumentError(name, f"an array of integers of shape {text}", f"dtype {array.dtype}")
    if array.dtype == np.uint64 and int(array.max()) > _INT64_MAX:
        raise ArgumentError(name, "values below 2^63", int(array.max()))
    kept = array.dtype if array.dtype in (np.dtype(np.int32), np.dtype(np.int64)) else np.dtype(np.int64)
    return np.require(array, dtype=kept, requirements=("C_CONTIGUOUS", "ALIGNED"))


def integer(name: str, value: Any, low: int, high: int | None = None) -> int:
    """A single integer in [low, high], as a Python int.

    Raises:
        ArgumentError: It is no integer (booleans are none) or outside.
    """
    if type(value) is int and value >= low and (high is None or value <= high):
        return value
    expected = f"an integer of at least {low}" if high is None else f"an integer in [{low}, {high}]"
    if isinstance(value, (bool, np.bool_)):
        raise ArgumentError(name, expected, value)
    try:
        number = operator.index(value)
    except TypeError as error:
        raise ArgumentError(name, expected, f"{value!r}") from error
    if number < low or (high is not None and number > high):
        raise ArgumentError(name, expected, number)
    return number


def unsigned_seed(value: Any) -> int:
    """A seed: an integer in [0, 2^64).

    Raises:
        ArgumentError: It is not.
    """
    return integer("seed", value, 0, 2**64 - 1)


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """A view nobody can write through; the array itself stays as it is."""
    view: NDArray[Any] = array.view()
    view.flags.writeable = False
    return view
