"""What quantized tables do to the outputs of a model: its own, on its own data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable

import numpy as np

from ._arrays import as_numpy
from .errors import ArgumentError
from .quantized import KINDS, QuantizedTable, quantize

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

__all__ = ["QuantizationReport", "quantization_report"]


@dataclass(frozen=True)
class QuantizationReport:
    """A model over tables of one kind beside the same model over float32.

    Attributes:
        kind: ``"float16"``, ``"bfloat16"`` or ``"int8"``.
        bytes_kept: Bytes of all tables by those of their numbers as float32.
        table_max: The largest error of a number in the tables, relative to the largest number of its row.
        output_max: The largest difference between two outputs, relative to the largest output.
        output_mean: The mean difference, relative to the mean magnitude of the outputs.
        same_choice: Part of the rows of the outputs whose largest number stays where it is: of the nodes that keep
            their class, where outputs are a classifier's.
    """

    kind: str
    bytes_kept: float
    table_max: float
    output_max: float
    output_mean: float
    same_choice: float

    def __str__(self) -> str:
        return (
            f"{self.kind}: {self.bytes_kept:.0%} of the bytes, outputs off by at most {self.output_max:.2%} "
            f"(mean {self.output_mean:.2%}), {self.same_choice:.2%} of rows choose the same"
        )


def quantization_report(
    model: Callable[[Callable[[Any], Any]], Any], kinds: Iterable[str] = tuple(KINDS)
) -> dict[str, QuantizationReport]:
    """Runs a model over tables of each kind and compares its outputs with those over float32.

    Args:
        model: Called with a function ``keep``; runs the model with ``keep(table)`` in place of each table that is to be
            quantized, and returns its outputs, [rows, columns...]. ``NodeClassifier.forward`` takes ``keep`` itself.
        kinds: Which kinds to try; without it all three.

    Returns:
        A report for each kind, in the order of `kinds`.

    Raises:
        ArgumentError: There is no such kind; the model keeps no table; its outputs are no array of at least one row and
            two dimensions, or change their shape from kind to kind; or ``quantize`` refuses a table.

    Example:
        >>> from sage_attention import Graph, gat_attention
        >>> graph = Graph.from_edge_index([[0, 1, 2], [2, 2, 0]])
        >>> values = np.linspace(-1, 1, 3 * 2 * 64, dtype=np.float32).reshape(3, 2, 64)
        >>> logits = np.zeros((3, 2), np.float32)
        >>> reports = quantization_report(lambda keep: gat_attention(graph, keep(values), logits), ["int8"])
        >>> print(reports["int8"])
        int8: 26% of the bytes, outputs off by at most 0.39% (mean 0.29%), 100.00% of rows choose the same
    """
    kinds = list(kinds)
    for kind in kinds:
        if kind not in KINDS:
            raise ArgumentError("kinds", " or ".join(f'"{name}"' for name in KINDS), repr(kind))
    wanted = _outputs(model(lambda table: table), None)
    return {kind: _report(model, kind, wanted) for kind in kinds}


def _outputs(value: Any, wanted: NDArray[np.float64] | None) -> NDArray[np.float64]:
    array = as_numpy("model", value)
    if array.dtype.kind not in "biuf" or array.ndim < 2 or array.size == 0:
        expected = "outputs that are real numbers [rows, columns...], at least one"
        raise ArgumentError("model", expected, f"{array.dtype} {list(array.shape)}", "return the outputs to compare")
    if wanted is not None and array.shape != wanted.shape:
        raise ArgumentError("model", f"outputs {list(wanted.shape)}, as with float32", f"{list(array.shape)}")
    return array.astype(np.float64)


def _report(model: Callable[[Callable[[Any], Any]], Any], kind: str, wanted: NDArray[np.float64]) -> QuantizationReport:
    kept = numbers = 0
    worst = 0.0

    def keep(table: Any) -> QuantizedTable:
        nonlocal kept, numbers, worst
        made = quantize(table, kind)
        kept, numbers, worst = kept + made.nbytes, numbers + made.data.size, max(worst, made.error(table).max)
        return made

    got = _outputs(model(keep), wanted)
    if not numbers:
        raise ArgumentError("model", "a call of keep() for each table to quantize", "none, or empty tables only")
    same = (got == wanted) | (np.isnan(got) & np.isnan(wanted))
    with np.errstate(invalid="ignore"):
        difference = np.where(same, 0.0, np.abs(got - wanted))
    difference[np.isnan(difference)] = np.inf  # a number on one side only
    magnitude = np.abs(wanted[np.isfinite(wanted)])
    rows = len(wanted)
    choices = got.reshape(rows, -1).argmax(1) == wanted.reshape(rows, -1).argmax(1)
    return QuantizationReport(
        kind,
        kept / (4 * numbers),
        worst,
        _relative(float(difference.max()), float(magnitude.max(initial=0.0))),
        _relative(float(difference.mean()), float(magnitude.mean()) if magnitude.size else 0.0),
        float(choices.mean()),
    )


def _relative(difference: float, magnitude: float) -> float:
    if difference == 0:
        return 0.0
    return difference / magnitude if magnitude > 0 else float("inf")
