"""Tables in fewer bytes, number by number: what each kind means, spelled out with exact arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["dequantize", "quantize"]

# kind -> bits of the exponent, bits of the fraction
_FORMATS = {"float16": (5, 10), "bfloat16": (8, 7)}


def _half_to_even(x: Fraction) -> int:
    below = math.floor(x)
    rest = x - below
    half = Fraction(1, 2)
    return below + (1 if rest > half or (rest == half and below % 2 == 1) else 0)


def _to_bits(value: float, exponent_bits: int, fraction_bits: int) -> int:
    """The nearest number of a binary format, as sixteen bits."""
    bias = (1 << (exponent_bits - 1)) - 1
    infinite = ((1 << exponent_bits) - 1) << fraction_bits
    sign = int(math.copysign(1.0, value) < 0) << 15
    if math.isnan(value):
        return sign | infinite | 1 << (fraction_bits - 1)
    if math.isinf(value):
        return sign | infinite
    exact = abs(Fraction(value))
    # Numbers below the smallest normal one are multiples of the same step.
    exponent = max(math.frexp(value)[1] - 1, 1 - bias) if value else 1 - bias
    steps = _half_to_even(exact / Fraction(2) ** (exponent - fraction_bits))
    # A carry out of the fraction raises the exponent by itself.
    return sign | min(((exponent + bias - 1) << fraction_bits) + steps, infinite)


def _from_bits(bits: int, exponent_bits: int, fraction_bits: int) -> float:
    bias = (1 << (exponent_bits - 1)) - 1
    exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1)
    fraction = bits & ((1 << fraction_bits) - 1)
    if exponent == (1 << exponent_bits) - 1:
        value = math.nan if fraction else math.inf
    elif exponent == 0:
        value = math.ldexp(fraction, 1 - bias - fraction_bits)
    else:
        value = math.ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits)
    return -value if bits >> 15 else value


def quantize(values: Any, kind: str) -> tuple[NDArray[Any], NDArray[np.float32] | None]:
    """Data (bits of float16 and bfloat16 as uint16) and, for int8, scales, of a table of float32 numbers."""
    table = np.asarray(values, np.float32)
    if kind != "int8":
        bits = [_to_bits(float(x), *_FORMATS[kind]) for x in table.ravel()]
        return np.array(bits, np.uint16).reshape(table.shape), None
    data, scales = np.zeros(table.shape, np.int8), np.zeros(len(table), np.float32)
    for r, row in enumerate(table):
        scales[r] = np.float32(max((abs(float(x)) for x in row.ravel()), default=0.0)) / np.float32(127)
        if float(scales[r]) * 127 > float(np.finfo(np.float32).max):  # rounded up, and so would be infinite times 127
            scales[r] = np.nextafter(scales[r], np.float32(0))
        for at, x in np.ndenumerate(row):
            if scales[r] > 0:
                data[r][at] = max(-127, min(127, round(float(np.float32(x) / scales[r]))))
    return data, scales


def dequantize(data: Any, kind: str, scales: Any = None) -> NDArray[np.float64]:
    """float64 numbers that the data of ``quantize`` stand for."""
    flat = np.asarray(data)
    if kind != "int8":
        numbers = [_from_bits(int(bits), *_FORMATS[kind]) for bits in flat.view(np.uint16).ravel()]
        return np.array(numbers, np.float64).reshape(flat.shape)
    out = np.zeros(flat.shape)
    for at, step in np.ndenumerate(flat):
        out[at] = int(step) * float(scales[at[0]])
    return out
