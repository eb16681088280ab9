"""The confusion matrix as a heat map, recall and precision of each class beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sage_attention.errors import counted
from sage_attention.recipes.markup import compact, element, escape, percent, shorten, svg, text_width
from sage_attention.recipes.scores import ClassScore, condense

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

__all__ = ["MOST_CLASSES", "ORDINARY_ON_DARK", "ORDINARY_ON_LIGHT", "matrix_chart"]

MOST_CLASSES = 16  # more are condensed to the largest ones and "all others"
_KEPT = 12
_FONT = 12.0
_LONGEST_NAME = 15.0  # in units of the font size
_GAP, _BAR, _NUMBERS = 26.0, 74.0, 62.0
# Shares of ink up to which the count has the ordinary colour on a dark page and on a light one; between them
# the style sheet decides.
ORDINARY_ON_DARK, ORDINARY_ON_LIGHT = 0.59, 0.865


def _cell(x: float, y: float, size: float, count: int, share: float, style: str, tip: str) -> str:
    inner = element("title", escape(tip))
    parts = [element("rect", inner, x=x + 1, y=y + 1, width=size - 2, height=size - 2, rx=3, class_="cell")]
    if count:
        # The square root lets rare mistakes be seen; a share of 1 is full ink.
        ink = {"wrong": 0.06 + 0.94 * share**0.5, "right": 0.08 + 0.92 * share, "mixed": 0.2}[style]
        parts.append(element("rect", inner, x=x + 1, y=y + 1, width=size - 2, height=size - 2, rx=3,
                             class_=f"heat {style}", fill_opacity=ink))  # fmt: skip
        text = "count" if ink <= ORDINARY_ON_DARK else "count middle" if ink <= ORDINARY_ON_LIGHT else "count deep"
        parts.append(element("text", escape(compact(count)), x=x + size / 2, y=y + size / 2 + 4, class_=text,
                             text_anchor="middle"))  # fmt: skip
    return "".join(parts)


def _meter(x: float, y: float, share: float | None) -> str:
    """A small bar with its percentage; y is its middle."""
    track = element("rect", x=x, y=y - 4, width=_BAR, height=8, rx=4, class_="track")
    bar = "" if not share else element("rect", x=x, y=y - 4, width=_BAR * share, height=8, rx=4, class_="meter")
    label = element("text", escape(percent(share)), x=x + _BAR + 52, y=y + 4, class_="axis ink", text_anchor="end")
    return track + bar + label


def _side_columns(x: float, top: float, size: float, scores: Sequence[ClassScore | None]) -> str:
    """Number of nodes, recall and precision of each row."""
    columns = (x + 44, x + 66, x + 66 + _BAR + _NUMBERS + 14)
    parts = [
        element("text", "nodes", x=columns[0], y=top - 10, class_="axis-title", text_anchor="end"),
        element("text", "recall", x=columns[1], y=top - 10, class_="axis-title"),
        element("text", "precision", x=columns[2], y=top - 10, class_="axis-title"),
    ]
    for row, score in enumerate(scores):
        if score is not None:
            y = top + (row + 0.5) * size
            parts.append(element("text", escape(compact(score.support)), x=columns[0], y=y + 4,
                                 class_="axis ink", text_anchor="end"))  # fmt: skip
            parts += [_meter(columns[1], y, score.recall), _meter(columns[2], y, score.precision)]
    return "".join(parts)


def matrix_chart(counts: npt.NDArray[np.int64], class_names: Sequence[str], scores: Sequence[ClassScore]) -> str:
    """Draw which class was taken for which.

    Args:
        counts: int64 [K, K]; row: the true class, column: the predicted one.
        class_names: K names.
        scores: K scores.

    Returns:
        SVG markup. With more than 16 classes the 12 largest are drawn and the others lumped together.
    """
    names, shown, rows = list(class_names), counts, list(scores)
    beside: list[ClassScore | None] = list(rows)
    lumped = len(names) > MOST_CLASSES
    if lumped:
        shown, kept = condense(counts, _KEPT)
        names = [*(class_names[one] for one in kept), counted(len(class_names) - _KEPT, "other")]
        beside = [*(scores[one] for one in kept), None]
    size = 58.0 if len(names) <= 4 else 46.0 if len(names) <= 13 else 38.0
    short = [shorten(name, _LONGEST_NAME) for name in names]
    widest = max(text_width(name) for name in short) * _FONT
    left, top = widest + 34, widest * 0.72 + 44
    parts = [
        element("text", "predicted class", x=left, y=14, class_="axis-title"),
        element("text", "true class", x=widest + 22, y=top - 10, class_="axis-title", text_anchor="end"),
    ]
    for number, name in enumerate(short):
        middle = (number + 0.5) * size
        parts.append(
            element("text", escape(name), x=left - 12, y=top + middle + 4, class_="axis ink", text_anchor="end")
        )
        x, y = left + middle + 3, top - 9
        parts.append(
            element("text", escape(name), x=x, y=y, class_="axis ink", transform=f"rotate(-45 {x:.1f} {y:.1f})")
        )
    for row, name in enumerate(names):
        total = int(shown[row].sum())
        for column, other in enumerate(names):
            count = int(shown[row, column])
            share = count / total if total else 0.0
            style = "wrong" if row != column else "right"
            if lumped and row == column == _KEPT:
                style = "mixed"  # hits and mistakes among the lumped classes, in one cell
            tip = f"{name} taken for {other}: {count:,} of {total:,} ({percent(share)})"
            parts.append(_cell(left + column * size, top + row * size, size, count, share, style, tip))
    end = left + len(names) * size
    parts.append(_side_columns(end + _GAP, top, size, beside))
    width = max(end + _GAP + 66 + 2 * (_BAR + _NUMBERS) + 14, end + widest * 0.72)
    hits, total = int(counts.trace()), int(counts.sum())
    description = (
        f"Rows are the true classes, columns the predicted ones; {counted(total, 'node')}, {hits:,} of them right. "
        "The table of classes below gives every number."
    )
    return svg("confusion", width, top + len(names) * size + 6, "Confusion matrix", description, "".join(parts))
