"""Tables of rows in fewer bytes, for inference: float16, bfloat16, or int8 with a scale for each row.

Attention over a graph larger than the caches waits for memory; half or a quarter of the bytes are half or a quarter of
the wait. ``quantize`` makes such a table; ``gat_attention``, ``gatv2_attention``, ``dot_attention`` and ``aggregate``
take it as values and make its numbers float32 again where they are used. There are no gradients through it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ._arrays import as_numpy
from .errors import ArgumentError
from .reuse import aligned_empty

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

__all__ = ["KINDS", "QuantizationError", "QuantizedTable", "quantize"]

# kind -> dtype of the data
KINDS: dict[str, np.dtype[Any]] = {
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(np.uint16),
    "int8": np.dtype(np.int8),
}
_INT8_MOST = 127
# The largest float32 whose product with 127 is none too large for float32.
_LARGEST_SCALE = np.nextafter(np.finfo(np.float32).max / np.float32(_INT8_MOST), np.float32(0))
_PIECE = 1 << 20  # numbers converted at a time, so that a large table needs no second one beside it


@dataclass(frozen=True)
class QuantizationError:
    """How far a table is from the numbers it was made from: each difference relative to the largest number of its row.

    Attributes:
        max: The largest.
        mean: The mean over all numbers; rows of zeros count as exact.
    """

    max: float
    mean: float


@dataclass(frozen=True, eq=False)
class QuantizedTable:
    """A table whose rows are kept in fewer bytes; ``quantize`` makes one.

    Attributes:
        data: C-contiguous, of at least two dimensions, rows first: float16; uint16, the upper halves of float32
            numbers (bfloat16; a tensor of them is ``tensor.view(torch.uint16)``); or int8.
        scales: float32 [rows] with int8, what the bytes of a row are multiplied with; else None.

    Raises:
        ArgumentError: `data` has another type or one dimension only, or `scales` do not belong to it.

    Example:
        >>> table = QuantizedTable(np.array([[1, -2]], np.int8), np.array([0.5], np.float32))
        >>> table.dequantize()
        array([[ 0.5, -1. ]], dtype=float32)
    """

    data: NDArray[Any]
    scales: NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        data = _array("data", self.data)
        if data.dtype not in KINDS.values() or data.ndim < 2:
            expected = "a float16, uint16 (bfloat16) or int8 array of at least two dimensions"
            raise ArgumentError("data", expected, f"{data.dtype} {list(data.shape)}", "make one with quantize()")
        object.__setattr__(self, "data", np.require(data, requirements=("C_CONTIGUOUS", "ALIGNED")))
        if data.dtype != np.int8:
            if self.scales is not None:
                raise ArgumentError("scales", f"None for {self.kind} data", "an array")
            return
        scales = as_numpy("scales", self.scales)
        if scales.dtype != np.float32 or scales.shape != data.shape[:1]:
            expected = f"a float32 array [{data.shape[0]}], one for each row of int8 data"
            got = "None" if self.scales is None else f"{scales.dtype} {list(scales.shape)}"
            raise ArgumentError("scales", expected, got)
        object.__setattr__(self, "scales", np.require(scales, requirements=("C_CONTIGUOUS", "ALIGNED")))

    @property
    def kind(self) -> str:
        """``"float16"``, ``"bfloat16"`` or ``"int8"``."""
        return next(name for name, dtype in KINDS.items() if dtype == self.data.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the numbers it stands for."""
        return self.data.shape

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self.data.ndim

    @property
    def nbytes(self) -> int:
        """Bytes of data and scales."""
        return int(self.data.nbytes) + (0 if self.scales is None else int(self.scales.nbytes))

    def __len__(self) -> int:
        return len(self.data)

    def __repr__(self) -> str:
        return f"QuantizedTable({self.kind}, shape={list(self.shape)}, {self.nbytes} bytes)"

    def dequantize(self) -> NDArray[np.float32]:
        """The numbers it stands for, float32: those that attention works with."""
        out = np.empty(self.shape, np.float32)
        for rows in _pieces(self.shape):
            out[rows] = self._numbers(rows)
        return out

    def error(self, values: Any) -> QuantizationError:
        """How far the table is from `values`.

        Args:
            values: Numbers of the table's shape, usually those it was made from.

        Raises:
            ArgumentError: They are no float32 or float64 numbers, or of another shape.

        Example:
            >>> values = np.array([[1.0, 0.25], [0.0, 0.0]], np.float32)
            >>> quantize(values, "bfloat16").error(values)
            QuantizationError(max=0.0, mean=0.0)
        """
        array = _floats(values)
        if array.shape != self.shape:
            raise ArgumentError("values", f"shape {list(self.shape)}, as the table", f"{list(array.shape)}")
        largest, total = 0.0, 0.0
        for rows in _pieces(self.shape):
            exact = array[rows].astype(np.float64).reshape(rows.stop - rows.start, -1)
            if exact.size == 0:
                continue
            difference = np.abs(self._numbers(rows).reshape(exact.shape) - exact)
            most = np.abs(exact).max(1, keepdims=True)
            relative = np.divide(difference, most, out=difference, where=most > 0)
            largest, total = max(largest, float(relative.max())), total + float(relative.sum())
        return QuantizationError(largest, total / max(self.data.size, 1))

    def _numbers(self, rows: slice) -> NDArray[np.float32]:
        data = self.data[rows]
        numbers: NDArray[np.float32] = data.astype(np.float32)
        if self.scales is not None:
            each_row = (-1,) + (1,) * (self.ndim - 1)
            numbers *= self.scales[rows].reshape(each_row)
        if data.dtype == np.uint16:
            numbers = (data.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return numbers


def quantize(values: Any, kind: str) -> QuantizedTable:
    """Keeps a table of numbers in fewer bytes.

    Args:
        values: float32 or float64, of at least two dimensions, rows first: [S, H, C] for attention, [S, C] for
            ``aggregate``. Float64 numbers are rounded to float32 first.
        kind: ``"bfloat16"``: half the bytes, any number float32 has, 8 bits of precision (an error of at most 0.4 %
            of each number). ``"float16"``: half the bytes, 11 bits (0.05 %), numbers up to 65504. ``"int8"``: a quarter
            of the bytes, 255 steps between the largest number of a row and its opposite (an error of at most 0.4 % of
            that number; more in rows without a number of at least 1.5e-36, whose scale float32 cannot hold in full).

    Returns:
        The table. Numbers are rounded to the nearest, of two equally near ones to the even one.

    Raises:
        ArgumentError: There is no such kind, `values` are no such array, or hold a number that the kind cannot:
            one beyond its range, or with int8 one that is not finite.

    Example:
        >>> from sage_attention import Graph, gat_attention
        >>> graph = Graph.from_edge_index([[0, 1], [2, 2]], num_nodes=3)
        >>> table = quantize(np.array([[[1.0]], [[2.0]], [[9.0]]], np.float32), "int8")
        >>> table.nbytes
        15
        >>> gat_attention(graph, table, np.zeros((3, 1), np.float32))[2]
        array([[1.5]], dtype=float32)
    """
    if kind not in KINDS:
        raise ArgumentError("kind", " or ".join(f'"{name}"' for name in KINDS), repr(kind))
    array = _floats(values)
    data = aligned_empty(array.shape, KINDS[kind])
    scales = np.empty(len(array), np.float32) if kind == "int8" else None
    for rows in _pieces(array.shape):
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            piece = np.ascontiguousarray(array[rows], np.float32)
            if scales is not None:
                _to_int8(piece, data[rows], scales[rows])
            elif kind == "float16":
                data[rows] = piece
            else:
                data[rows] = _to_bfloat16(piece)
        _refuse_lost(QuantizedTable(data[rows], None if scales is None else scales[rows]), array, rows)
    return QuantizedTable(data, scales)


def _array(name: str, value: Any) -> NDArray[Any]:
    if str(getattr(value, "dtype", "")) == "torch.bfloat16":  # NumPy has no such type
        hint = (
            "QuantizedTable(tensor.view(torch.uint16)) takes it as it is, quantize(tensor.float(), ...) makes another"
        )
        raise ArgumentError(name, "an array of a type that NumPy has", "a tensor of bfloat16", hint)
    return as_numpy(name, value)


def _floats(values: Any) -> NDArray[Any]:
    array = _array("values", values)
    if array.ndim < 2 or array.dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
        expected = "a float32 or float64 array of at least two dimensions"
        hint = "reshape it: rows first" if array.ndim < 2 else "convert it: values.astype(np.float32)"
        if array.dtype == np.float16 and array.ndim > 1:
            hint = "QuantizedTable(values) takes it as it is"
        raise ArgumentError("values", expected, f"{array.dtype} {list(array.shape)}", hint)
    return array


def _pieces(shape: tuple[int, ...]) -> Iterator[slice]:
    """Slices of rows of about `_PIECE` numbers."""
    step = max(1, _PIECE // max(int(np.prod(shape[1:], dtype=np.int64)), 1))
    for start in range(0, shape[0], step):
        yield slice(start, min(start + step, shape[0]))


def _to_bfloat16(piece: NDArray[np.float32]) -> NDArray[np.uint16]:
    bits = piece.view(np.uint32)
    half = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    rounded: NDArray[np.uint16] = ((bits + half) >> np.uint32(16)).astype(np.uint16)
    # Rounding could carry not-a-number over into another number.
    odd = np.isnan(piece)
    rounded[odd] = (bits[odd] >> np.uint32(16)) | np.uint32(0x40)
    return rounded


def _to_int8(piece: NDArray[np.float32], data: NDArray[np.int8], scales: NDArray[np.float32]) -> None:
    flat = piece.reshape(len(piece), int(np.prod(piece.shape[1:], dtype=np.int64)))
    most = np.abs(flat).max(1, initial=0.0)
    scales[:] = np.minimum(most / np.float32(_INT8_MOST), _LARGEST_SCALE)
    # Of a row of numbers too small for a scale of their own (or of none) nothing is left.
    steps = np.divide(flat, scales[:, None], out=np.zeros_like(flat), where=scales[:, None] > 0)
    data[:] = np.clip(np.rint(steps), -_INT8_MOST, _INT8_MOST).astype(np.int8).reshape(piece.shape)


def _refuse_lost(table: QuantizedTable, array: NDArray[Any], rows: slice) -> None:
    """Numbers that the kind has no place for: finite ones that became infinite, and int8's that are not finite."""
    exact = array[rows]
    if table.scales is not None:
        with np.errstate(over="ignore"):
            lost = ~np.isfinite(exact.astype(np.float32))
    else:
        lost = np.isfinite(exact) & ~np.isfinite(table.dequantize())
    if not lost.any():
        return
    at = np.unravel_index(int(lost.argmax()), lost.shape)
    place = ", ".join(str(int(i) + (rows.start if axis == 0 else 0)) for axis, i in enumerate(at))
    expected = {
        "float16": "numbers between -65504 and 65504",
        "bfloat16": "numbers in the range of bfloat16",
        "int8": "finite float32 numbers",
    }[table.kind]
    hint = 'use "bfloat16", which has the range of float32' if table.kind == "float16" else ""
    raise ArgumentError(f"values[{place}]", f"{expected} for {table.kind}", float(exact[at]), hint)
