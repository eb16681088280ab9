"""Bars for times and shares, in the style of the training report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sage_attention.recipes.charts import nice_ticks
from sage_attention.recipes.markup import element, escape, shorten, svg, text_width

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["WIDTH", "Chart", "Lane"]

WIDTH = 720.0
_FONT = 12.0
_BAR, _SLOT, _GAP = 14.0, 20.0, 12.0
_TOP, _BOTTOM, _RIGHT = 12.0, 44.0, 120.0
_MOST_LABEL = 260.0


@dataclass(frozen=True)
class Lane:
    """One bar.

    Attributes:
        group: Bars of one group lie together, under its name.
        label: What stands at its left.
        value: Its length.
        low: Where its whisker begins.
        high: Where it ends.
        shown: What is written at its end.
        first: Whether it is ours.
    """

    group: str
    label: str
    value: float
    low: float
    high: float
    shown: str
    first: bool = True


@dataclass(frozen=True)
class Chart:
    """Horizontal bars from zero, with whiskers.

    Attributes:
        title: For screen readers.
        lanes: The bars, one at least.
        label: What the axis shows.
        tick: How to write a tick.
        reference: A value to compare with, drawn dashed.
    """

    title: str
    lanes: Sequence[Lane]
    label: str
    tick: Callable[[float], str]
    reference: float | None = None

    def svg(self, key: str) -> str:
        """A drawing for a page.

        Args:
            key: Makes its ids unique on the page.

        Example:
            >>> Chart("A", [Lane("", "one", 1.0, 0.9, 1.1, "1")], "x", str).svg("a")[:4]
            '<svg'
        """
        told = "; ".join(f"{lane.group}, {lane.label}: {lane.shown}" for lane in self.lanes)
        height, content = self.elements()
        return svg(key, WIDTH, height, self.title, told, content)

    def elements(self) -> tuple[float, str]:
        """How high it is, and what is to be seen."""
        groups: dict[str, list[Lane]] = {}
        for lane in self.lanes:
            groups.setdefault(lane.group, []).append(lane)
        left = min(_MOST_LABEL, max(text_width(lane.label) for lane in self.lanes) * _FONT) + 16
        height = _TOP + _BOTTOM + sum(_SLOT * (len(lanes) + bool(name)) + _GAP for name, lanes in groups.items())
        ticks = nice_ticks(0.0, max([self.reference or 0.0, *(max(lane.value, lane.high) for lane in self.lanes)]))
        scale = (WIDTH - _RIGHT - left) / ticks[-1]
        bottom = height - _BOTTOM
        parts = []
        for value in ticks:
            x, style = left + value * scale, "grid" if value else "baseline"
            parts.append(element("line", x1=x, x2=x, y1=_TOP, y2=bottom, class_=style))
            label = escape(self.tick(value))
            parts.append(element("text", label, x=x, y=bottom + 16, class_="axis", text_anchor="middle"))
        if self.reference is not None:
            x = left + self.reference * scale
            parts.append(element("line", x1=x, x2=x, y1=_TOP, y2=bottom, class_="reference"))
        y = _TOP
        for name, lanes in groups.items():
            if name:
                parts.append(element("text", escape(name), x=0.0, y=y + 14, class_="value"))
                y += _SLOT
            for lane in lanes:
                parts += _drawn(lane, y, left, scale)
                y += _SLOT
            y += _GAP
        middle = (left + WIDTH - _RIGHT) / 2
        title = escape(self.label)
        parts.append(element("text", title, x=middle, y=height - 6, class_="axis-title", text_anchor="middle"))
        return height, "".join(parts)


def _drawn(lane: Lane, y: float, left: float, scale: float) -> list[str]:
    centre, end = y + _SLOT / 2, left + lane.value * scale
    tip = element("title", escape(f"{lane.group} {lane.label}: {lane.shown}".strip()))
    style = "bar" if lane.first else "bar few"
    shown = max(end, left + lane.high * scale) + 7
    return [
        element("text", escape(shorten(lane.label, _MOST_LABEL / _FONT)), x=left - 8, y=centre + 4, class_="axis",
                text_anchor="end"),
        element("rect", tip, x=left, y=centre - _BAR / 2, width=max(end - left, 1.0), height=_BAR, class_=style),
        element("line", x1=left + lane.low * scale, x2=left + lane.high * scale, y1=centre, y2=centre,
                class_="whisker"),
        element("text", escape(lane.shown), x=shown, y=centre + 4, class_="value", text_anchor="start"),
    ]  # fmt: skip
