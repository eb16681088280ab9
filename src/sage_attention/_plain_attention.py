"""The straight way to the kernels: a whole graph, arrays as the library takes them, no options but a bias.

``attention.py`` asks each argument what it is, so that it can say what is wrong, and that takes longer than attending a
small graph does. Here is only asked whether all is as it mostly is. Where it is not the answer is None, and nothing has
been done: ``attention.py`` then goes its own way. Written out for speed: a call of a function takes as long as a check.

Shapes: S sources, R targets, H heads, C channels per head; the bias, if there is one, is [H, C].
"""

from __future__ import annotations

import math
from ctypes import addressof, c_char, sizeof
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy import ndarray

from . import _native
from .graph import Graph
from .reuse import empty

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["dot", "gat", "gatv2"]

_SIZE = sizeof(_native.Problem)
_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
_MOST_THREADS = 2**31 - 1
_bytes_of: Any = c_char.from_buffer  # refuses what is empty, read-only or not contiguous


def gat(
    graph: Any, values: Any, source_logits: Any, target_logits: Any, bias: Any, num_threads: Any
) -> NDArray[Any] | None:
    """Output [R, H, C] of values [S, H, C], source_logits [S, H] and target_logits [R, H] or None; or None."""
    if type(graph) is not Graph or not type(values) is type(source_logits) is ndarray or values.ndim != 3:
        return None
    packed, sources, targets = graph._packed  # noqa: SLF001
    (rows, heads, _), dtype = values.shape, values.dtype
    if rows != sources or source_logits.shape != (rows, heads) or source_logits.dtype is not dtype:
        return None
    if target_logits is None:
        of_targets = 0
    elif type(target_logits) is ndarray and target_logits.shape == (targets, heads) and target_logits.dtype is dtype:
        of_targets = _address(target_logits)
        if not of_targets:
            return None
    else:
        return None
    of_sources = _address(source_logits)
    if not of_sources:
        return None
    return _out(0, packed, targets, values, 0, 0, of_sources, of_targets, 0, bias, num_threads)


def gatv2(graph: Any, values: Any, queries: Any, attention: Any, bias: Any, num_threads: Any) -> NDArray[Any] | None:
    """Output [R, H, C] of values [S, H, C], queries [R, H, C] and attention [H, C]; or None."""
    if type(graph) is not Graph or not type(values) is type(queries) is type(attention) is ndarray or values.ndim != 3:
        return None
    packed, sources, targets = graph._packed  # noqa: SLF001
    (rows, heads, channels), dtype = values.shape, values.dtype
    if rows != sources or queries.shape != (targets, heads, channels) or attention.shape != (heads, channels):
        return None
    if not queries.dtype is attention.dtype is dtype:
        return None
    of_queries, vectors = _address(queries), _address(attention)
    if not (of_queries and vectors):
        return None
    return _out(1, packed, targets, values, 0, of_queries, 0, 0, vectors, bias, num_threads)


def dot(graph: Any, queries: Any, keys: Any, values: Any, bias: Any, num_threads: Any) -> NDArray[Any] | None:
    """Output [R, H, C] of queries [R, H, C], keys [S, H, C] and values [S, H, C]; or None."""
    if type(graph) is not Graph or not type(values) is type(queries) is type(keys) is ndarray or values.ndim != 3:
        return None
    packed, sources, targets = graph._packed  # noqa: SLF001
    shape, dtype = values.shape, values.dtype
    rows, heads, channels = shape
    if rows != sources or queries.shape != (targets, heads, channels) or keys.shape != shape:
        return None
    if not queries.dtype is keys.dtype is dtype:
        return None
    of_queries, of_keys = _address(queries), _address(keys)
    if not (of_queries and of_keys):
        return None
    return _out(2, packed, targets, values, of_keys, of_queries, 0, 0, 0, bias, num_threads)


def _address(array: NDArray[Any]) -> int:
    """Of an array's bytes; 0 where it is empty, not contiguous or not aligned."""
    flags = array.flags
    if flags.carray:  # writeable, too
        try:
            return addressof(_bytes_of(array))
        except (TypeError, ValueError):
            pass
    return (_native.address(array) or 0) if flags.c_contiguous and flags.aligned and array.size else 0


def _out(
    score: int,
    packed: bytes,
    targets: int,
    values: NDArray[Any],
    keys: int,
    queries: int,
    source_logits: int,
    target_logits: int,
    attention: int,
    bias: Any,
    num_threads: Any,
) -> NDArray[Any] | None:
    table, dtype = _address(values), values.dtype
    if not (table and targets) or type(num_threads) is not int or not 0 <= num_threads <= _MOST_THREADS:
        return None
    if dtype is _FLOAT32:
        kind = _native.FLOAT32
    elif dtype is _FLOAT64:
        kind = _native.FLOAT64
    else:
        return None
    _, heads, channels = values.shape
    of_bias = 0
    if bias is not None:
        if type(bias) is not ndarray or bias.shape != (heads, channels) or bias.dtype is not dtype:
            return None
        of_bias = _address(bias)
        if not of_bias:
            return None
    out = empty((targets, heads, channels), dtype)
    status = _native.library().packed_forward(
        _native.pack_plain_problem(
            _SIZE, score, kind, packed, heads, channels, 0.2, 1.0 / math.sqrt(channels),
            table, keys, queries, source_logits, target_logits, attention, of_bias, num_threads,
        ),
        _native.pack_out(addressof(_bytes_of(out))),
    )  # fmt: skip
    if status:
        _native.check(status)
    return out
