"""The tables of a result, for the console and for the page: titles, columns and cells."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sage_attention.bench.result import Figure, Result

__all__ = ["Table", "milliseconds", "tables"]


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        title: What it shows.
        lead: What its columns mean.
        columns: Their names.
        left: How many of them, the first ones, are words.
        rows: A cell for each column.
    """

    title: str
    lead: str
    columns: tuple[str, ...]
    left: int
    rows: list[tuple[str, ...]]


def milliseconds(seconds: float) -> str:
    """A time in milliseconds, three digits.

    Example:
        >>> milliseconds(0.12345), milliseconds(1.5), milliseconds(0.00012)
        ('123', '1500', '0.120')
    """
    value = seconds * 1e3
    if value <= 0:
        return "0"
    return f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}"


def _percent(share: float | None) -> str:
    return "" if share is None or math.isnan(share) else f"{share:.0%}"


def _times(figure: Figure) -> tuple[str, ...]:
    timing = figure.timing
    spread = _percent(timing.spread) or "?"
    return milliseconds(timing.median), milliseconds(timing.least), spread, str(len(timing.wall))


def _ratio(figure: Figure) -> str:
    return "" if figure.times_ours is None else f"{figure.times_ours:.2f}"


_TIMES = ("ms", "least", "spread", "rounds")  # with what else a table has they fit into 80 columns
_LEAD = "Median and least of the rounds; spread: between their quartiles, of the median. "
_OURS = "x ours: how many times ours it took, at as many threads. "


def tables(result: Result) -> list[Table]:
    """The tables that have rows."""
    attention = Table(
        "Attention beside the gather limit",
        _LEAD + "Gather adds up the neighbours' rows. Limit: the time in which the rows that every edge must read are "
        "gathered, by the time taken; median over the rounds.",
        ("score", "pass", "threads", *_TIMES, "ns/edge", "GB/s", "limit"),
        2,
        [
            (
                f.score, f.step, str(f.threads), *_times(f), f"{f.ns_per_edge:.1f}",
                "" if f.gb_per_s is None else f"{f.gb_per_s:.1f}", _percent(f.share),
            )
            for f in result.of("attention")
        ],
    )  # fmt: skip
    sampling = Table(
        "Sampling",
        _LEAD + _OURS + "A round is a batch of up to 1024 seeds of its own, with new numbers and edge ids.",
        ("fan-outs", "contender", "threads", *_TIMES, "ns/edge", "x ours"),
        2,
        [
            (f.step, f.contender, str(f.threads), *_times(f), f"{f.ns_per_edge:.1f}", _ratio(f))
            for f in result.of("sampling")
        ],
    )
    beside = Table(
        "Beside PyTorch Geometric",
        _LEAD + _OURS + "Attention from projected values, through torch on all sides; grouping the edges and compiling "
        "are not counted.",
        ("score", "pass", "contender", "threads", *_TIMES, "x ours"),
        3,
        [(f.score, f.step, f.contender, str(f.threads), *_times(f), _ratio(f)) for f in result.of("peers")],
    )
    return [table for table in (attention, sampling, beside) if table.rows]
