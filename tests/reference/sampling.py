"""The naive truth for sampling: Philox 4x32-10, Floyd's algorithm, one hop, several hops. Python only.

Written from the published descriptions, not from the native code, and read by the tests only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ReferenceSample", "philox4x32", "pick_row", "sample_neighbours", "sample_one_hop"]

_MASK = 2**32 - 1
_WIDE_DEGREE = 2**16


class ReferenceSample(NamedTuple):
    """What `sample_neighbours` of this module finds; the fields are those of `SampledSubgraph`."""

    nodes: list[int]
    indptr: list[int]
    sources: list[int]
    positions: list[int]
    num_sampled_nodes: list[int]
    num_sampled_edges: list[int]


def philox4x32(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Philox 4x32-10 of Salmon et al. (SC11): four random words of 32 bits.

    Example:
        >>> [f"{word:08x}" for word in philox4x32((0, 0, 0, 0), (0, 0))]
        ['6627e8d5', 'e169c58d', 'bc57ac4c', '9b00dbd8']
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        high0, low0 = divmod(0xD2511F53 * c0, 2**32)
        high1, low1 = divmod(0xCD9E8D57 * c2, 2**32)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + 0x9E3779B9) & _MASK, (k1 + 0xBB67AE85) & _MASK
    return c0, c1, c2, c3


def _draw(seed: int, hop: int, node: int, degree: int, number: int, bound: int) -> int:
    """Draw `number` of a row in [0, bound): 32 bits for rows shorter than 2^16, else 64."""
    bits = 32 if degree < _WIDE_DEGREE else 64
    block, place = divmod(number * bits, 128)
    words = philox4x32((block & _MASK, hop, node & _MASK, node >> 32), (seed & _MASK, seed >> 32))
    stream = sum(word << (32 * i) for i, word in enumerate(words))
    return ((stream >> place) & ((1 << bits) - 1)) * bound >> bits


def pick_row(seed: int, hop: int, node: int, degree: int, fan_out: int, replace: bool = False) -> list[int]:
    """Which of the in-edges 0 .. degree - 1 of a node are picked, in pick order.

    Example:
        >>> pick_row(seed=0, hop=0, node=5, degree=3, fan_out=-1)
        [0, 1, 2]
    """
    if fan_out < 0 or (not replace and fan_out >= degree):
        return list(range(degree))
    if replace:
        return [_draw(seed, hop, node, degree, t, degree) for t in range(fan_out if degree else 0)]
    picks: list[int] = []
    taken: set[int] = set()
    for t, last in enumerate(range(degree - fan_out, degree)):
        drawn = _draw(seed, hop, node, degree, t, last + 1)
        picks.append(last if drawn in taken else drawn)
        taken.add(picks[-1])
    return picks


def sample_one_hop(
    indptr: Sequence[int],
    indices: Sequence[int],
    nodes: Sequence[int],
    fan_out: int,
    seed: int = 0,
    hop: int = 0,
    replace: bool = False,
) -> tuple[list[int], list[int], list[int]]:
    """One hop from `nodes`: (indptr, sources, positions in `indices`), grouped by node.

    Example:
        >>> sample_one_hop([0, 2, 3], [0, 1, 0], [1, 0], -1)
        ([0, 1, 3], [0, 0, 1], [2, 0, 1])
    """
    starts = [0]
    positions: list[int] = []
    for node in nodes:
        begin, end = indptr[node], indptr[node + 1]
        positions += [begin + pick for pick in pick_row(seed, hop, node, end - begin, fan_out, replace)]
        starts.append(len(positions))
    return starts, [indices[position] for position in positions], positions


def sample_neighbours(
    indptr: Sequence[int],
    indices: Sequence[int],
    seeds: Sequence[int],
    fan_outs: Sequence[int],
    seed: int = 0,
    replace: bool = False,
) -> ReferenceSample:
    """Several hops with relabelling: each hop expands the nodes the hop before found first.

    Example:
        >>> sample_neighbours([0, 0, 1, 2], [0, 1], [2], [1, 1]).nodes
        [2, 1, 0]
    """
    nodes = list(seeds)
    local: dict[int, int] = {}
    for position, node in enumerate(nodes):
        local.setdefault(node, position)
    found = ReferenceSample(nodes, [0], [], [], [len(nodes)], [])
    frontier = list(nodes)
    for hop, fan_out in enumerate(fan_outs):
        starts, sources, positions = sample_one_hop(indptr, indices, frontier, fan_out, seed, hop, replace)
        offset = found.indptr[-1]
        found.indptr.extend(offset + start for start in starts[1:])
        found.positions.extend(positions)
        known = len(nodes)
        for source in sources:
            if source not in local:
                local[source] = len(nodes)
                nodes.append(source)
            found.sources.append(local[source])
        frontier = nodes[known:]
        found.num_sampled_nodes.append(len(frontier))
        found.num_sampled_edges.append(len(sources))
    return found
