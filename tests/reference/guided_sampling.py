"""The naive truth for sampling guided by attention. Python only, on lists.

Written from the rules in `core/include/sage_attention.h`, not from the native code, and read by the tests only. Floats
of Python are IEEE doubles, so that picks and probabilities agree to the bit.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from .sampling import philox4x32

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["GuidedRow", "pick_by_attention", "portable_exp", "systematic"]


class GuidedRow(NamedTuple):
    """Picks of one row: places in it, their probabilities, and per head the largest score and the rest's sum."""

    places: list[int]
    probabilities: list[float]
    row_max: list[float]
    rest_sum: list[float]


def portable_exp(x: float) -> float:
    """exp(x) for x <= 0: 2^n times the Taylor polynomial of degree 13 of what is left, 0 below -700.

    Example:
        >>> abs(portable_exp(-1.5) - math.exp(-1.5)) < 1e-16
        True
    """
    if not x >= -700:
        return 0.0
    n = float(round(x * float.fromhex("0x1.71547652b82fep+0")))
    r = (x - n * float.fromhex("0x1.62e42feep-1")) - n * float.fromhex("0x1.a39ef35793c76p-33")
    total = 1.0 / math.factorial(13)
    for k in range(12, -1, -1):
        total = total * r + 1.0 / math.factorial(k)
    return math.ldexp(total, int(n))


def systematic(weights: Sequence[float], count: int, share: float) -> tuple[list[int], list[float]]:
    """Exactly `count` of some items, with probabilities in proportion to their weights, which never rise.

    Example:
        >>> systematic([4.0, 1.0, 1.0, 1.0, 1.0], 2, 0.6)
        ([0, 3], [1.0, 0.25])
    """
    suffix = [0.0]
    for weight in reversed(weights):
        suffix.append(suffix[-1] + weight)
    suffix.reverse()
    places: list[int] = []
    while len(places) < count and suffix[len(places)] > 0:
        at = len(places)
        if not weights[at] * (count - at) >= suffix[at]:
            break
        places.append(at)
    certain = len(places)
    wanted, total = count - certain, suffix[certain]

    def chance(i: int) -> float:
        return weights[i] / total * wanted if total > 0 else wanted / (len(weights) - certain)

    position = 0.0
    for i in range(certain, len(weights)):
        position += chance(i)
        if len(places) < count and position > share + (len(places) - certain):
            places.append(i)
    for i in range(len(weights) - 1, certain - 1, -1):
        if len(places) < count and i not in places and chance(i) > 0:
            places.append(i)
    places.sort()
    return places, [1.0 if i < certain else chance(i) for i in places]


def pick_by_attention(
    scores: Sequence[Sequence[float]], fan_out: int, strategy: str, seed: int = 0, hop: int = 0, node: int = 0
) -> GuidedRow:
    """Which in-edges of a node are picked.

    Args:
        scores: Of each in-edge, by head.
        fan_out: How many; -1 for all.
        strategy: "top_attention" or "importance".
        seed: Of the draw.
        hop: Of the draw.
        node: The target.

    Example:
        >>> pick_by_attention([[0.0], [2.0], [1.0]], 2, "top_attention").places
        [1, 2]
    """
    degree = len(scores)
    heads = len(scores[0]) if scores else 0
    if fan_out < 0 or fan_out >= degree:
        return GuidedRow(list(range(degree)), [1.0] * degree, [0.0] * heads, [0.0] * heads)
    row_max = [max(row[h] for row in scores) for h in range(heads)]
    powers = [[portable_exp(row[h] - row_max[h]) for h in range(heads)] for row in scores]
    sums = [0.0] * heads
    for row in powers:
        sums = [a + b for a, b in zip(sums, row)]
    inverse = [1 / total for total in sums]
    attention = [max(row[h] * inverse[h] for h in range(heads)) for row in powers]
    keys = [row[0] for row in scores] if heads == 1 else attention
    order = sorted(range(degree), key=lambda place: (-keys[place], place))
    if strategy == "top_attention":
        places, probabilities = order[:fan_out], [1.0] * fan_out
    else:
        words = philox4x32((0, hop, node % 2**32, node >> 32), (seed % 2**32, seed >> 32))
        share = ((words[1] << 32 | words[0]) >> 11) / 2**53
        found, probabilities = systematic([attention[place] for place in order], fan_out, share)
        places = [order[i] for i in found]
    rest = [0.0] * heads
    for place, row in enumerate(powers):
        if place not in places:
            rest = [a + b for a, b in zip(rest, row)]
    return GuidedRow(places, probabilities, row_max, rest)
