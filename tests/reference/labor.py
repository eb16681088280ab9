"""The naive truth for LABOR: which in-edges of one node are picked. Python only.

Written from the paper (Balin and Catalyurek, "Layer-Neighbor Sampling: Defusing Neighborhood Explosion in GNNs",
NeurIPS 2023), with exact fractions, not from the native code, and read by the tests only.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from .sampling import philox4x32

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["pick_labor", "random_number"]


def random_number(seed: int, hop: int, source: int) -> Fraction:
    """What all targets of a hop share for a source, in [0, 1).

    Example:
        >>> 0 <= random_number(seed=0, hop=0, source=5) < 1
        True
    """
    words = philox4x32((2**32 - 1, hop, source % 2**32, source >> 32), (seed % 2**32, seed >> 32))
    return Fraction(words[1] * 2**32 + words[0], 2**64)


def pick_labor(seed: int, hop: int, sources: Sequence[int], fan_out: int, sequential: bool = False) -> list[int]:
    """Which of the in-edges from `sources` to one node are picked, ascending.

    Args:
        seed: Of the random numbers.
        hop: Of the random numbers.
        sources: Where the node's in-edges come from.
        fan_out: How many are wanted; -1 for all.
        sequential: Exactly as many, or all.

    Example:
        >>> pick_labor(seed=0, hop=0, sources=[7, 8, 9], fan_out=-1)
        [0, 1, 2]
    """
    everyone = range(len(sources))
    if fan_out < 0 or fan_out >= len(sources):
        return list(everyone)
    numbers = [random_number(seed, hop, source) for source in sources]
    if sequential:
        return sorted(sorted(everyone, key=lambda p: (numbers[p], p))[:fan_out])
    return [p for p in everyone if numbers[p] < Fraction(fan_out, len(sources))]
