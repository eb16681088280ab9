"""Text, numbers and SVG elements for a page: everything that comes from a user goes through ``escape``."""

from __future__ import annotations

import html
import math
import unicodedata
from typing import Union

__all__ = ["Attribute", "compact", "element", "escape", "percent", "shorten", "svg", "text_width"]

Attribute = Union[str, int, float]


def escape(text: object) -> str:
    """Make any text safe inside HTML and inside a quoted attribute.

    Args:
        text: Anything; it is turned into a string.

    Returns:
        The text with markup escaped; control characters and half surrogates, which no page may
        hold, replaced.

    Example:
        >>> escape("<script>")
        '&lt;script&gt;'
    """
    plain = str(text).encode("utf-8", errors="replace").decode("utf-8")
    shown = "".join(
        "\ufffd" if unicodedata.category(character) == "Cc" and character not in "\n\t" else character
        for character in plain
    )
    return html.escape(shown, quote=True)


def _is_wide(character: str) -> bool:
    return unicodedata.east_asian_width(character) in "WF"


def text_width(text: str) -> float:
    """Estimate how wide a text is in a proportional font.

    Args:
        text: Any text.

    Returns:
        Its width in units of the font size; Chinese characters count as one, others as a little over a half.
    """
    return sum(1.0 if _is_wide(character) else 0.56 for character in text)


def shorten(text: str, width: float) -> str:
    """Cut a text to a width.

    Args:
        text: Any text.
        width: The most it may take, in units of the font size.

    Returns:
        The text, ended by an ellipsis if it was cut.
    """
    text = " ".join(text.split())
    if text_width(text) <= width:
        return text
    while text and text_width(text) > width - 0.6:
        text = text[:-1]
    return text.rstrip() + "…"


def percent(share: float | None, digits: int = 1) -> str:
    """Write a share as a percentage.

    Args:
        share: From 0 to 1, or None.
        digits: Digits after the point.

    Returns:
        For example ``"93.4 %"``; a dash for None or NaN. Only a share of exactly 1 is ever written as 100 %.
    """
    if share is None or not math.isfinite(share):
        return "–"
    rounded = round(share * 100, digits)
    if rounded >= 100 and share < 1:
        rounded = 100 - 10.0**-digits
    if rounded == int(rounded) and rounded in (0, 100) and share in (0, 1):
        return f"{int(rounded)}\u00a0%"
    return f"{rounded:.{digits}f}\u00a0%"


def compact(number: float) -> str:
    """Write a count in little room.

    Args:
        number: A count.

    Returns:
        For example ``"950"``, ``"9,500"``, ``"12k"``, ``"1.2M"``.
    """
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if number >= limit:
            scaled = number / (1e3 if unit == "k" else limit)
            return f"{scaled:.1f}".rstrip("0").rstrip(".") + unit if scaled < 10 else f"{scaled:.0f}{unit}"
    return f"{number:,.0f}"


def _attribute(name: str, value: Attribute) -> str:
    shown = f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
    return f' {name.rstrip("_").replace("_", "-")}="{escape(shown)}"'


def element(name: str, content: str = "", **attributes: Attribute) -> str:
    """One element.

    Args:
        name: Its name.
        content: Markup inside, escaped already.
        **attributes: ``stroke_width`` stands for ``stroke-width``, ``class_`` for ``class``.

    Returns:
        The markup; always with an end tag.

    Example:
        >>> element("text", "ten", x=1.5, class_="axis")
        '<text x="1.5" class="axis">ten</text>'
    """
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    return f"<{name}{written}>{content}</{name}>"


def svg(key: str, width: float, height: float, title: str, description: str, content: str) -> str:
    """A drawing that a screen reader can announce and that scales with the page.

    Args:
        key: Makes its ids unique on the page.
        width: Width of its coordinate system; also the width it is shown at, if there is room.
        height: Height of its coordinate system.
        title: What it shows, plain text.
        description: What is to be seen in it, plain text.
        content: Elements.

    Returns:
        The markup.
    """
    names = element("title", escape(title), id=f"{key}-title") + element("desc", escape(description), id=f"{key}-desc")
    return element(
        "svg", names + content, viewBox=f"0 0 {width:g} {height:g}", width=float(width), height=float(height),
        role="img", aria_labelledby=f"{key}-title {key}-desc",
    )  # fmt: skip
