"""Charts as inline SVG: curves over epochs, bars with intervals, a tail on logarithmic axes.

A chart gets numbers and returns markup. Colours and fonts come from the page's style sheet (classes ``grid``,
``axis``, ``first``, ``second``), so that one drawing serves light, dark and paper.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Callable

from sage_attention.errors import counted
from sage_attention.recipes.markup import compact, element, escape, percent, svg, text_width

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Bar", "Curve", "bar_chart", "curve_chart", "nice_ticks", "tail_chart"]

WIDTH, HEIGHT = 480.0, 290.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 58.0, 14.0, 34.0, 46.0
_FONT = 12.0
_MOST_POINTS = 400
_FEW_DOTS = 60
_FEW = 30  # below this many nodes a share is shown as unsure


@dataclass(frozen=True)
class Curve:
    """One curve.

    Attributes:
        name: Written at its end.
        style: Class in the style sheet: ``first`` or ``second``.
        points: (x, y), ascending in x. A y that is not finite leaves a gap.
    """

    name: str
    style: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Bar:
    """One bar, a share of some nodes.

    Attributes:
        label: What stands below it.
        share: Its height, 0 to 1.
        low: Lower end of its interval.
        high: Upper end of its interval.
        count: How many nodes it stands for.
    """

    label: str
    share: float
    low: float
    high: float
    count: int


def nice_ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers that cover a range.

    Args:
        low: Smallest value.
        high: Largest value.
        about: How many ticks, roughly.

    Returns:
        Ascending ticks; the first is at most ``low``, the last at least ``high``; at least two.

    Example:
        >>> nice_ticks(0.0, 0.9)
        [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    if not high > low:
        pad = abs(low) * 0.1 or 1.0
        low, high = low - pad, high + pad
    rough = (high - low) / max(about, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * one for one in (1, 2, 2.5, 5, 10) if power * one >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    digits = max(0, 2 - math.floor(math.log10(step)))
    return [round(number * step, digits) for number in range(first, last + 1)]


def _scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    return lambda value: start + (value - low) / (high - low) * (end - start)


def _text(x: float, y: float, text: str, style: str = "axis", anchor: str = "middle") -> str:
    return element("text", escape(text), x=x, y=y, class_=style, text_anchor=anchor)


def _frame(
    y_ticks: Sequence[tuple[float, str]], x_ticks: Sequence[tuple[float, str]], x_label: str, y_label: str,
    left: float = _LEFT, right: float = WIDTH - _RIGHT,
) -> str:  # fmt: skip
    """Grid lines, tick labels and axis titles; ticks are (pixel, label)."""
    bottom = HEIGHT - _BOTTOM
    parts = [element("line", x1=left, x2=right, y1=y, y2=y, class_="grid") for y, _ in y_ticks]
    parts += [_text(left - 8, y + 4, label, anchor="end") for y, label in y_ticks]
    parts += [element("line", x1=left, x2=right, y1=bottom, y2=bottom, class_="baseline")]
    parts += [_text(x, bottom + 18, label) for x, label in x_ticks]
    parts += [_text((left + right) / 2, HEIGHT - 8, x_label, "axis-title")]
    parts += [_text(4, 14, y_label, "axis-title", "start")]
    return "".join(parts)


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most some hundred points, the last one always among them."""
    stride = -(-len(points) // _MOST_POINTS)
    kept = list(points[::stride]) if points else []
    if points and kept[-1] != points[-1]:
        kept.append(points[-1])
    return kept


def _runs(points: Sequence[tuple[float, float]]) -> list[list[tuple[float, float]]]:
    """The stretches between values that are not finite."""
    runs: list[list[tuple[float, float]]] = [[]]
    for x, y in points:
        if math.isfinite(y):
            runs[-1].append((x, y))
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def _draw_curve(curve: Curve, x_of: Callable[[float], float], y_of: Callable[[float], float]) -> str:
    parts = []
    for run in _runs(_thinned(curve.points)):
        places = [(x_of(x), y_of(y)) for x, y in run]
        if len(places) > 1:
            line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
            parts.append(element("polyline", points=line, class_=f"curve {curve.style}"))
        if len(places) <= 2:
            parts += [element("circle", cx=x, cy=y, r=3.5, class_=f"dot {curve.style}") for x, y in places]
    return "".join(parts)


def _spread(places: list[float], gap: float) -> list[float]:
    """Push labels apart that would overlap; order is kept."""
    order = sorted(range(len(places)), key=places.__getitem__)
    result = list(places)
    for before, after in zip(order, order[1:]):
        result[after] = max(result[after], result[before] + gap)
    return result


def _epoch_ticks(first: float, last: float) -> list[float]:
    """Round epochs, and the first one unless it would touch the next."""
    ticks = [tick for tick in nice_ticks(first, last) if first <= tick <= last and tick == int(tick)]
    if len(ticks) < 2:
        return [first, last]
    return [first, *ticks] if ticks[0] - first > 0.4 * (ticks[1] - ticks[0]) else ticks


def curve_chart(
    key: str, title: str, description: str, curves: Sequence[Curve], y_label: str,
    y_texts: Callable[[Sequence[float]], list[str]],
    y_range: tuple[float | None, float | None] = (None, None),
    mark: tuple[float, float, str] | None = None,
) -> str:  # fmt: skip
    """Draw curves over epochs.

    Args:
        key: Makes its ids unique on the page.
        title: Title for screen readers.
        description: Description for screen readers.
        curves: What to draw; those without a finite value are left out.
        y_label: What the vertical axis shows.
        y_texts: How to write the ticks of the vertical axis.
        y_range: Fixed ends of the vertical axis; None to follow the values.
        mark: A point to ring and what to write at it.

    Returns:
        SVG markup, or an empty string if there is nothing to draw.
    """
    drawn = [curve for curve in curves if any(math.isfinite(y) for _, y in curve.points)]
    if not drawn:
        return ""
    values = [y for curve in drawn for _, y in curve.points if math.isfinite(y)]
    low = min(values) if y_range[0] is None else y_range[0]
    y_ticks = nice_ticks(low, max(values))
    if y_range[1] is not None:
        y_ticks = [tick for tick in y_ticks if tick <= y_range[1]]
        if len(y_ticks) < 2:
            y_ticks = [0.0, y_range[1]]
    top = max(y_ticks[-1], max(values))
    places = [x for curve in drawn for x, _ in curve.points]
    first, last = min(places), max(places)
    name_room = max(text_width(curve.name) for curve in drawn) * _FONT + 14
    right = WIDTH - name_room
    if last > first:
        x_of = _scale(first, last, _LEFT + 6, right)
        ticks = _epoch_ticks(first, last)
    else:
        centre = (_LEFT + right) / 2
        x_of, ticks = (lambda _: centre), [first]
    y_of = _scale(y_ticks[0], top, HEIGHT - _BOTTOM, _TOP)
    parts = [
        _frame([(y_of(tick), text) for tick, text in zip(y_ticks, y_texts(y_ticks))],
               [(x_of(tick), f"{tick:,.0f}") for tick in ticks], "epoch", y_label, right=right)
    ]  # fmt: skip
    parts += [_draw_curve(curve, x_of, y_of) for curve in drawn]
    ends = [_runs(curve.points)[-1][-1] for curve in drawn]
    for curve, end, y in zip(drawn, ends, _spread([y_of(y) for _, y in ends], 15.0)):
        x = max(x_of(end[0]), (_LEFT + right) / 2)
        parts.append(_text(x + 8, y + 4, curve.name, f"name {curve.style}", "start"))
    if mark is not None:
        x, y = x_of(mark[0]), y_of(mark[1])
        parts.append(element("circle", cx=x, cy=y, r=5.0, class_="ring first"))
        anchor = "end" if x > (_LEFT + right) / 2 else "start"
        parts.append(_text(x, y - 11, mark[2], "value", anchor))
    return svg(key, WIDTH, HEIGHT, title, description, "".join(parts))


def bar_chart(
    key: str, title: str, description: str, bars: Sequence[Bar], line: float, x_label: str, y_label: str
) -> str:
    """Draw shares as bars with their 95 % intervals.

    Args:
        key: Makes its ids unique on the page.
        title: Title for screen readers.
        description: Description for screen readers.
        bars: At least one.
        line: A share to compare with, drawn dashed.
        x_label: What the horizontal axis shows.
        y_label: What the vertical axis shows.

    Returns:
        SVG markup. Bars that stand for few nodes are pale.
    """
    right, bottom = WIDTH - _RIGHT, HEIGHT - _BOTTOM
    y_of = _scale(0.0, 1.0, bottom - 16, _TOP + 6)
    slot = (right - _LEFT) / len(bars)
    width = min(slot * 0.68, 56.0)
    parts, labels = [], []
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        style = "grid" if tick else "baseline"
        parts.append(element("line", x1=_LEFT, x2=right, y1=y_of(tick), y2=y_of(tick), class_=style))
        parts.append(_text(_LEFT - 8, y_of(tick) + 4, percent(tick, 0), anchor="end"))
    for number, bar in enumerate(bars):
        x = _LEFT + slot * (number + 0.5)
        few = " few" if bar.count < _FEW else ""
        tip = element("title", escape(f"{bar.label}: {percent(bar.share)} of {counted(bar.count, 'node')} right, 95 % "
                                      f"interval {percent(bar.low)} to {percent(bar.high)}"))  # fmt: skip
        if bar.count:
            parts.append(element("rect", tip, x=x - width / 2, y=y_of(bar.share), width=width,
                                 height=y_of(0.0) - y_of(bar.share), class_=f"bar{few}"))  # fmt: skip
            parts.append(element("line", x1=x, x2=x, y1=y_of(bar.low), y2=y_of(bar.high), class_="whisker"))
            labels.append(_text(x, y_of(bar.high) - 6, percent(bar.share, 0), "value"))
        parts.append(_text(x, y_of(0.0) + 16, bar.label))
        parts.append(_text(x, y_of(0.0) + 31, compact(bar.count), "axis faint"))
    parts.append(element("line", x1=_LEFT, x2=right, y1=y_of(line), y2=y_of(line), class_="reference"))
    parts += labels  # last, so that their halo interrupts the dashed line
    parts.append(_text((_LEFT + right) / 2, HEIGHT - 4, x_label, "axis-title"))
    parts.append(_text(4, 14, y_label, "axis-title", "start"))
    parts.append(_text(_LEFT - 8, y_of(0.0) + 31, "nodes", "axis faint", "end"))
    return svg(key, WIDTH, HEIGHT, title, description, "".join(parts))


def tail_chart(
    key: str, title: str, description: str, degrees: Sequence[int], shares: Sequence[float], x_label: str,
    y_label: str,
) -> str:  # fmt: skip
    """Draw which share of the nodes has at least so many neighbours, both axes logarithmic.

    Args:
        key: Makes its ids unique on the page.
        title: Title for screen readers.
        description: Description for screen readers.
        degrees: Ascending, from 1 upwards; at least one.
        shares: One for each degree, above 0, descending.
        x_label: What the horizontal axis shows.
        y_label: What the vertical axis shows.

    Returns:
        SVG markup.
    """
    x_high = max(1, math.ceil(math.log10(max(degrees)) - 1e-9))
    y_low = min(-1, math.floor(math.log10(min(shares)) + 1e-9))
    y_powers = range(0, -y_low + 1, math.ceil(-y_low / 6))
    y_names = [percent(10.0**-power, max(0, power - 2)) for power in y_powers]
    left = max(_LEFT, max(text_width(name) for name in y_names) * _FONT + 16)
    x_of = _scale(0.0, x_high, left + 6, WIDTH - _RIGHT - 12)
    y_of = _scale(y_low, 0.0, HEIGHT - _BOTTOM, _TOP)
    x_ticks = [(x_of(power), compact(10**power)) for power in range(0, x_high + 1, math.ceil(x_high / 7))]
    y_ticks = [(y_of(-power), name) for power, name in zip(y_powers, y_names)]
    places = [(x_of(math.log10(degree)), y_of(math.log10(share))) for degree, share in zip(degrees, shares)]
    parts = [_frame(y_ticks, x_ticks, x_label, y_label, left=left)]
    if len(places) > 1:
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(element("polyline", points=line, class_="curve first"))
    dots = places if len(places) <= _FEW_DOTS else places[-1:]
    parts += [element("circle", cx=x, cy=y, r=2.8, class_="dot first") for x, y in dots]
    return svg(key, WIDTH, HEIGHT, title, description, "".join(parts))
