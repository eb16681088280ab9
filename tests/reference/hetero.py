"""The naive truth for sampling over node and edge types, by time, by weight, in trees. Python only.

Written from the rules (PyTorch Geometric's for structure, `core/include/sage_attention.h` for what names a draw), not
from the native code, and read by the tests only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .labor import pick_labor
from .recency import faded
from .sampling import philox4x32, pick_row

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["ReferenceHeteroSample", "ReferenceRelation", "pick_weighted", "sample_hetero"]

_MASK = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15
_ATTEMPTS = 8


class ReferenceRelation(NamedTuple):
    """Edges from nodes of one type to nodes of another: CSC by target, times ascending in each target."""

    source_type: str
    target_type: str
    indptr: Sequence[int]
    indices: Sequence[int]
    fan_outs: Sequence[int]
    times: Sequence[int] | None = None
    weights: Sequence[float] | None = None


class ReferenceHeteroSample(NamedTuple):
    """Per type: nodes, trees, nodes per hop. Per relation: sources, targets, positions, edges per hop."""

    nodes: dict[str, list[int]]
    trees: dict[str, list[int]]
    num_sampled_nodes: dict[str, list[int]]
    sources: list[list[int]]
    targets: list[list[int]]
    positions: list[list[int]]
    num_sampled_edges: list[list[int]]


def _mix(x: int) -> int:
    """The finaliser of SplitMix64 (Steele et al., OOPSLA 2014; constants of Stafford's variant 13)."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & _MASK
    return x ^ (x >> 31)


def _share(seed: int, hop: int, node: int, number: int) -> float:
    """Draw `number` of a row in [0, 1)."""
    words = philox4x32((number // 2, hop, node % 2**32, node >> 32), (seed % 2**32, seed >> 32))
    low, high = words[2 * (number % 2) : 2 * (number % 2) + 2]
    return ((high << 32 | low) >> 11) / 2**53


def pick_weighted(
    seed: int,
    hop: int,
    node: int,
    sums: Sequence[float],
    first: int,
    last: int,
    fan_out: int,
    replace: bool,
    times: Sequence[int] | None = None,
    decay: float = 0.0,
) -> list[int]:
    """Which of the in-edges first .. last - 1 of a row are picked, in pick order.

    Args:
        seed: Of the draws.
        hop: Of the draws.
        node: The target.
        sums: Running sums of the weights of the whole row.
        first: The first in-edge that may be picked.
        last: The one after the last.
        fan_out: How many; -1 for all.
        replace: Whether one may be picked again.
        times: When each in-edge came to be, where weights fade; each sum is then that of weights faded until its time.
        decay: How fast they fade.

    Example:
        >>> pick_weighted(0, 0, 5, [1.0, 2.0, 4.0], 0, 3, fan_out=-1, replace=False)
        [0, 1, 2]
    """
    allowed = range(first, last)
    if fan_out < 0 or (not replace and fan_out >= len(allowed)):
        return list(allowed)

    def seen_from(then: int, p: int, weight: float) -> float:
        return weight if times is None else faded(weight, decay, times[then] - times[p])

    def before(then: int, p: int) -> float:
        return seen_from(then, p - 1, sums[p - 1]) if p else 0.0

    picks: list[int] = []
    for t in range(fan_out if allowed else 0):
        number = t if replace else t * (_ATTEMPTS + 1)
        for attempt in range(1 if replace else _ATTEMPTS):
            base = before(last - 1, first)
            wanted = base + _share(seed, hop, node, number + attempt) * (sums[last - 1] - base)
            drawn = next((p for p in allowed if seen_from(last - 1, p, sums[p]) > wanted), last - 1)
            if replace or drawn not in picks:
                picks.append(drawn)
                break
        else:
            rest = [p for p in allowed if p not in picks]
            weights = [seen_from(rest[-1], p, sums[p] - before(p, p)) for p in rest]
            weight = 0.0
            for each in weights:
                weight += each
            wanted, weight = _share(seed, hop, node, number + _ATTEMPTS) * weight, 0.0
            for p, each in zip(rest, weights):
                weight += each
                if weight > wanted or p == rest[-1]:
                    picks.append(p)
                    break
    return picks


def _row(
    relation: ReferenceRelation,
    node: int,
    fan_out: int,
    time: int | None,
    last_only: bool,
    strict: bool,
    window: int | None,
    decay: float | None,
) -> tuple[int, int, list[float]]:
    """The in-edges of a node that its tree's time allows, counted within the row, and the row's running sums."""
    begin, end = relation.indptr[node], relation.indptr[node + 1]
    first, last = 0, end - begin
    if relation.times is not None and time is not None:
        times = relation.times[begin:end]
        allowed = [
            p
            for p, t in enumerate(times)
            if (t < time if strict else t <= time) and (window is None or t >= time - window)
        ]
        first, last = (allowed[0], allowed[-1] + 1) if allowed else (0, 0)
        if last_only and fan_out >= 0:
            first = max(first, last - fan_out)
    sums: list[float] = []
    if relation.weights is not None or (decay is not None and relation.times is not None):
        total = 0.0
        for place in range(begin, end):
            if decay is not None and relation.times is not None and place > begin:
                total = faded(total, decay, relation.times[place] - relation.times[place - 1])
            total += 1.0 if relation.weights is None else relation.weights[place]
            sums.append(total)
    return first, last, sums


def sample_hetero(
    relations: Sequence[ReferenceRelation],
    num_nodes: Mapping[str, int],
    seeds: Mapping[str, Sequence[int]],
    *,
    seed: int = 0,
    replace: bool = False,
    disjoint: bool = False,
    seed_times: Mapping[str, Sequence[int]] | None = None,
    last_only: bool = False,
    strict: bool = False,
    window: int | None = None,
    labor: str | None = None,
    decay: float | None = None,
) -> ReferenceHeteroSample:
    """As `sage_attention.hetero.HeteroSampler.sample`.

    Args:
        relations: In the order that names a sample.
        num_nodes: Node type -> number of nodes.
        seeds: Node type -> seeds.
        seed: Names the sample.
        replace: Draw independently.
        disjoint: Each seed grows a tree of its own.
        seed_times: Node type -> time of each seed.
        last_only: The latest in-edges only.
        strict: Not those as old as the seed either.
        window: Not those older by more.
        labor: "labor" or "labor_sequential", instead of uniform draws.
        decay: Weights fade by exp(-decay) in a unit of time.

    Example:
        >>> edges = ReferenceRelation("a", "a", [0, 0, 1], [0], [-1])
        >>> sample_hetero([edges], {"a": 2}, {"a": [1]}).nodes
        {'a': [1, 0]}
    """
    types = list(num_nodes)
    nodes: dict[str, list[int]] = {name: list(seeds.get(name, ())) for name in types}
    trees: dict[str, list[int]] = {}
    roots: list[tuple[int, int | None]] = []  # what a tree's draws differ by, its time
    for number, name in enumerate(types):
        times = (seed_times or {}).get(name)
        trees[name] = list(range(len(roots), len(roots) + len(nodes[name])))
        for i, node in enumerate(nodes[name]):
            key = _mix((node * 64 + number + 1) * _GOLDEN & _MASK)
            if copy := nodes[name][:i].count(node):
                key = _mix((key + copy * _GOLDEN) & _MASK)
            roots.append((key, None if times is None else times[i]))
    position: dict[str, dict[tuple[int, int], int]] = {name: {} for name in types}
    for name in types:
        for i, node in enumerate(nodes[name]):
            position[name].setdefault((trees[name][i] if disjoint else 0, node), i)
    hops = {len(relation.fan_outs) for relation in relations}
    (num_hops,) = hops
    begin = dict.fromkeys(types, 0)
    out = ReferenceHeteroSample(
        nodes, trees, {name: [len(nodes[name])] for name in types},
        [[] for _ in relations], [[] for _ in relations], [[] for _ in relations], [[] for _ in relations],
    )  # fmt: skip
    for hop in range(num_hops):
        end = {name: len(nodes[name]) for name in types}
        for number, relation in enumerate(relations):
            source, target, fan_out = relation.source_type, relation.target_type, relation.fan_outs[hop]
            picked = 0
            for at in range(begin[target], end[target]) if fan_out else ():
                node, tree = nodes[target][at], trees[target][at] if disjoint else 0
                keyed_by = types.index(source) if labor else number
                key = seed if keyed_by == 0 else _mix((seed + keyed_by * _GOLDEN) & _MASK)
                time = None
                if disjoint:
                    key, time = _mix(key ^ roots[tree][0]), roots[tree][1]
                first, last, sums = _row(relation, node, fan_out, time, last_only, strict, window, decay)
                if labor:
                    start = relation.indptr[node]
                    row = relation.indices[start + first : start + last]
                    picks = [first + p for p in pick_labor(key, hop, row, fan_out, labor == "labor_sequential")]
                elif sums:
                    ages = None
                    if decay is not None and relation.times is not None:
                        ages = relation.times[relation.indptr[node] : relation.indptr[node + 1]]
                    picks = pick_weighted(key, hop, node, sums, first, last, fan_out, replace, ages, decay or 0.0)
                else:
                    picks = [first + p for p in pick_row(key, hop, node, last - first, fan_out, replace)]
                for p in picks:
                    place = relation.indptr[node] + p
                    found = relation.indices[place]
                    known = position[source].setdefault((tree, found), len(nodes[source]))
                    if known == len(nodes[source]):
                        nodes[source].append(found)
                        trees[source].append(tree)
                    out.sources[number].append(known)
                    out.targets[number].append(at)
                    out.positions[number].append(place)
                picked += len(picks)
            out.num_sampled_edges[number].append(picked)
        for name in types:
            begin[name] = end[name]
            out.num_sampled_nodes[name].append(len(nodes[name]) - end[name])
    return out
