"""The naive truth for random walks. Python only.

Written from the papers (node2vec: Grover and Leskovec, KDD 2016; rejection: Yang et al., "KnightKing", SOSP 2019) and
from what `core/include/sage_attention.h` says of draws, not from the native code, and read by the tests only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .sampling import philox4x32

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["node2vec_chances", "random_walk"]

_MASK = 2**64 - 1
_ATTEMPTS = 16


def _bits(seed: int, step: int, node: int, number: int) -> int:
    words = philox4x32((number // 2, step, node % 2**32, node >> 32), (seed % 2**32, seed >> 32))
    return words[2 * (number % 2)] | words[2 * (number % 2) + 1] << 32


def _share(seed: int, step: int, node: int, number: int) -> float:
    return (_bits(seed, step, node, number) >> 11) / 2**53


def _stream(seed: int, number: int) -> int:
    """SplitMix64's output number `number`; the first one is the seed itself."""
    if number == 0:
        return seed
    x = (seed + number * 0x9E3779B97F4A7C15) & _MASK
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & _MASK
    return x ^ (x >> 31)


def node2vec_chances(
    before: int, following: Sequence[int], of_before: Sequence[int], p: float, q: float
) -> list[float]:
    """What the steps to each of `following` are weighed by.

    Args:
        before: The node the walk came from.
        following: Where the walk can go.
        of_before: Where it could have gone from the node before.
        p: Return parameter.
        q: In-out parameter.

    Example:
        >>> node2vec_chances(before=0, following=[0, 1, 2], of_before=[1, 5], p=2.0, q=4.0)
        [0.5, 1.0, 0.25]
    """
    return [1 / p if node == before else 1.0 if node in of_before else 1 / q for node in following]


def random_walk(
    rows: Sequence[Sequence[int]],
    weights: Sequence[Sequence[float]] | None,
    first: int,
    length: int,
    *,
    number: int = 0,
    restart: float = 0.0,
    p: float = 1.0,
    q: float = 1.0,
    seed: int = 0,
) -> tuple[list[int], list[int]]:
    """One walk: its nodes, and for each step which of the node's edges it takes; -1 as `sage_attention.walks` has it.

    Args:
        rows: For each node, ascending, the nodes that its edges lead to.
        weights: Of these edges, or None.
        first: Where the walk begins.
        length: Its steps.
        number: Its number among the walks from there.
        restart: The chance to be back at `first`.
        p: Return parameter.
        q: In-out parameter.
        seed: Names the walk.

    Example:
        >>> random_walk([[1], [2], []], None, 0, 3)
        ([0, 1, 2, -1], [0, 0, -1])
    """
    key = _stream(seed, number)
    nodes, edges, before = [first], [], -1
    for step in range(length):
        at, edge = nodes[-1], -1
        if at >= 0 and restart > 0 and _share(key, step, first, 0) < restart:
            nodes.append(first)
            before = -1
        elif at < 0 or not rows[at]:
            nodes.append(-1)
        else:
            edge = _edge(rows, None if weights is None else weights[at], at, before, (p, q), (key, step, first))
            before = at
            nodes.append(rows[at][edge])
        edges.append(edge)
    return nodes, edges


def _edge(
    rows: Sequence[Sequence[int]],
    weights: Sequence[float] | None,
    at: int,
    before: int,
    factors: tuple[float, float],
    draw: tuple[int, int, int],
) -> int:
    row = rows[at]
    sums = [0.0]
    for weight in weights or []:
        sums.append(sums[-1] + weight)

    def drawn(attempt: int) -> int:
        if weights is None:
            return _bits(*draw, 2 * attempt + 1) * len(row) >> 64
        wanted = _share(*draw, 2 * attempt + 1) * sums[-1]
        return next((i for i, total in enumerate(sums[1:]) if total > wanted), len(row) - 1)

    if before < 0 or factors == (1.0, 1.0):
        return drawn(0)
    chances = node2vec_chances(before, row, rows[before], *factors)
    most = max(1 / factors[0], 1.0, 1 / factors[1])
    for attempt in range(_ATTEMPTS):
        edge = drawn(attempt)
        if _share(*draw, 2 * attempt + 2) * most < chances[edge]:
            return edge
    # in the order of the sums, as rounding goes
    masses = [(1.0 if weights is None else sums[i + 1] - sums[i]) * chances[i] for i in range(len(row))]
    total = 0.0
    for mass in masses:
        total += mass
    wanted, so_far = _share(*draw, 2 * _ATTEMPTS + 1) * total, 0.0
    for i, mass in enumerate(masses):
        so_far += mass
        if so_far > wanted:
            return i
    return len(row) - 1
