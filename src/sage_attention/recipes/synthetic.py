"""A made-up social network to try things on: no download, the same on every platform.

A degree-corrected planted-partition graph. It is built from the raw integers of a counter-based generator,
sums, products and square roots only (IEEE 754 fixes them to the last bit), never from ``log``, ``pow`` or a
matrix product, which differ between math libraries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from sage_attention.errors import ArgumentError
from sage_attention.recipes.output import atomic_write, prepare_output_folder, write_npy

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["SyntheticNetwork", "social_network", "write_social_network"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_COMMUNITIES = (
    "climbers", "photographers", "gardeners", "chess players", "home cooks", "musicians", "cyclists",
    "readers", "film lovers", "sailors", "painters", "runners", "birdwatchers", "astronomers", "woodworkers",
    "dancers",
)  # fmt: skip
# A tie stays within the circle with this probability. Some members' circle is not their own community.
_LOYALTY = 0.80
_MISLED_SHARE = 0.05
# Celebrities are tied to everybody, whatever the community: the neighbours attention has to learn to ignore.
_CELEBRITY_SHARE, _CELEBRITY_FACTOR = 0.004, 12
_LARGEST_WEIGHT = 60
_CSV_ROWS_PER_BLOCK = 100_000


@dataclass(frozen=True, eq=False)
class SyntheticNetwork:
    """A social network whose members belong to communities.

    Attributes:
        edge_index: int64 [2, E]; row 0 the sources, row 1 the targets. Every tie stands in both directions,
            sorted by target, then source; nobody is tied to himself and no tie stands twice.
        features: float32 [N, F]. Weak and noisy; all zeros for members who filled in nothing. The last column
            marks celebrities, noisily too.
        labels: int64 [N], the community of each member.
        class_names: Names of the communities.
    """

    edge_index: Integers
    features: npt.NDArray[np.float32]
    labels: Integers
    class_names: tuple[str, ...]


class _Draws:
    """Random numbers from the raw 64-bit output of Philox, which NumPy promises never to change."""

    def __init__(self, seed: int) -> None:
        self._bits = np.random.Philox(key=seed)

    def uniform(self, size: int) -> Floats:
        """float64 [size] in [0, 1), 53 bits each."""
        raw = np.asarray(self._bits.random_raw(size), dtype=np.uint64)
        mantissas: Integers = (raw >> np.uint64(11)).astype(np.int64)
        numbers: Floats = np.multiply(mantissas, 2.0**-53, dtype=np.float64)
        return numbers

    def below(self, bounds: Integers) -> Integers:
        """int64, one draw in [0, bound) for each bound."""
        return (self.uniform(len(bounds)) * bounds).astype(np.int64)

    def bell(self, size: int) -> Floats:
        """float64 [size], mean 0, variance 1, close to normal: a sum of uniforms needs no logarithm."""
        total = self.uniform(size)
        for _ in range(3):
            total = total + self.uniform(size)
        return np.multiply(total - 2.0, np.sqrt(3.0))

    def order(self, size: int) -> Integers:
        """A random permutation, int64 [size]."""
        return np.argsort(self.uniform(size), kind="stable").astype(np.int64)


def _name(community: int) -> str:
    around, which = divmod(community, len(_COMMUNITIES))
    return _COMMUNITIES[which] + (f" {around + 1}" if around else "")


def _community_of_each(draws: _Draws, num_members: int, num_communities: int) -> Integers:
    """Communities of unequal size, from twice the smallest downwards; int64 [N]."""
    shares = 2 * num_communities - np.arange(num_communities, dtype=np.int64)
    ends = np.cumsum(shares) * num_members // shares.sum()
    labels = np.searchsorted(ends, np.arange(num_members, dtype=np.int64), side="right").astype(np.int64)
    return labels[draws.order(num_members)]


def _tie_weights(draws: _Draws, celebrity: npt.NDArray[np.bool_]) -> Integers:
    """How often a member is drawn for a tie: a power law of exponent 2.6, in whole numbers; int64 [N]."""
    root = np.sqrt(1.0 - draws.uniform(len(celebrity)))
    eighth = np.sqrt(np.sqrt(root))
    weights = np.minimum(4.0 / (root * eighth), 4.0 * _LARGEST_WEIGHT).astype(np.int64)
    return np.where(celebrity, weights * _CELEBRITY_FACTOR, weights)


def _draw_ties(
    draws: _Draws, circle: Integers, weights: Integers, celebrity: npt.NDArray[np.bool_], num_ties: int
) -> Integers:
    """Sources and targets of ties, each tie once, no loops; int64 [2, ties]."""
    by_circle = np.argsort(circle, kind="stable")
    # One stub per unit of weight, circle after circle: a uniform stub is a member drawn by weight.
    stubs = np.repeat(by_circle, weights[by_circle])
    ends = np.cumsum(np.bincount(circle, weights=weights).astype(np.int64))
    starts = np.concatenate([np.zeros(1, dtype=np.int64), ends[:-1]])
    source = stubs[draws.below(np.full(num_ties, len(stubs), dtype=np.int64))]
    stays = (draws.uniform(num_ties) < _LOYALTY) & ~celebrity[source]
    low = np.where(stays, starts[circle[source]], 0)
    high = np.where(stays, ends[circle[source]], len(stubs))
    target = stubs[low + draws.below(high - low)]
    first, second = np.minimum(source, target), np.maximum(source, target)
    keys = np.unique((first * len(circle) + second)[first != second])
    return np.stack([keys // len(circle), keys % len(circle)])


def _draw_features(
    draws: _Draws,
    labels: Integers,
    celebrity: npt.NDArray[np.bool_],
    num_features: int,
    signal: float,
    share_empty: float,
) -> npt.NDArray[np.float32]:
    """Weak and noisy hints at the community; float32 [N, F]."""
    num_members, num_communities = len(labels), int(labels.max()) + 1
    hints = num_features - 1
    centres = np.where(draws.uniform(num_communities * hints) < 0.5, -signal, signal).reshape(-1, hints)
    features = np.empty((num_members, num_features), dtype=np.float32)
    for column in range(hints):
        features[:, column] = centres[labels, column] + draws.bell(num_members)
    features[:, hints] = np.where(celebrity, 2.0, 0.0) + 0.5 * draws.bell(num_members)
    features[(draws.uniform(num_members) < share_empty) & ~celebrity] = 0.0
    return features


def social_network(
    num_members: int = 50_000,
    num_communities: int = 8,
    seed: int = 0,
    *,
    mean_degree: float = 12.0,
    num_features: int = 32,
    signal: float = 0.40,
    share_empty: float = 0.12,
) -> SyntheticNetwork:
    """Make up a social network in which the task is to tell each member's community.

    Degrees follow a power law. Most ties stay within the community; some members have misleading neighbours,
    some have no features, and a few celebrities are tied to everyone. With the default settings a linear
    model on features alone gets 60 to 75 %, attention over neighbours above 90 %.

    Args:
        num_members: N.
        num_communities: K, at least 2, at most N.
        seed: The same seed gives the same network, bit for bit, on every platform.
        mean_degree: Ties per member before double ones are dropped, 1 or more.
        num_features: F, 2 or more.
        signal: How strongly each feature hints at the community; noise has standard deviation 1.
        share_empty: Share of members without features, 0 to 1.

    Returns:
        The network.

    Raises:
        ArgumentError: An argument is out of its range.

    Example:
        >>> network = social_network(num_members=1_000, num_communities=4, seed=7)
        >>> network.features.shape, int(network.labels.max())
        ((1000, 32), 3)
    """
    _check(num_members, num_communities, seed, mean_degree, num_features, share_empty)
    draws = _Draws(seed)
    labels = _community_of_each(draws, num_members, num_communities)
    celebrity = draws.uniform(num_members) < _CELEBRITY_SHARE
    weights = _tie_weights(draws, celebrity)
    misled = (draws.uniform(num_members) < _MISLED_SHARE) & ~celebrity
    other = draws.below(np.full(num_members, num_communities - 1, dtype=np.int64))
    other = other + (other >= labels)
    circle = np.where(misled, other, labels)
    ties = _draw_ties(draws, circle, weights, celebrity, int(num_members * mean_degree / 2))
    sources, targets = np.concatenate([ties, ties[::-1]], axis=1)
    order = np.argsort(targets * num_members + sources, kind="stable")
    features = _draw_features(draws, labels, celebrity, num_features, signal, share_empty)
    names = tuple(_name(community) for community in range(num_communities))
    return SyntheticNetwork(np.stack([sources[order], targets[order]]), features, labels, names)


def _check(
    num_members: int,
    num_communities: int,
    seed: int,
    mean_degree: float,
    num_features: int,
    share_empty: float,
) -> None:
    if num_communities < 2:
        raise ArgumentError("num_communities", "2 or more", num_communities)
    if not num_communities <= num_members < 2**31:
        raise ArgumentError("num_members", f"from num_communities ({num_communities}) to 2^31 - 1", num_members)
    if not 0 <= seed < 2**64:
        raise ArgumentError("seed", "an integer from 0 to 2^64 - 1", seed)
    if not 1.0 <= mean_degree <= num_members:
        raise ArgumentError("mean_degree", "from 1 to the number of members", mean_degree)
    if num_features < 2:
        raise ArgumentError("num_features", "2 or more", num_features)
    if not 0.0 <= share_empty <= 1.0:
        raise ArgumentError("share_empty", "from 0 to 1", share_empty)


def _csv_blocks(header: str, columns: list[list[str]]) -> Iterator[str]:
    yield header + "\n"
    for start in range(0, len(columns[0]), _CSV_ROWS_PER_BLOCK):
        rows = slice(start, start + _CSV_ROWS_PER_BLOCK)
        yield "\n".join(map(",".join, zip(*(column[rows] for column in columns)))) + "\n"


def write_social_network(folder: str | os.PathLike[str], network: SyntheticNetwork | None = None) -> Path:
    """Write a made-up network as the files that people have: a table of ties, features, a table of labels.

    ``edges.csv`` (columns ``source,target``; every tie in both directions), ``features.npy`` (float32
    [N, F], row = member) and ``labels.csv`` (columns ``node,label``; the label is the community's name).

    Args:
        folder: Where to; created if missing.
        network: What to write; ``social_network()`` by default.

    Returns:
        The folder.

    Raises:
        SageAttentionError: The folder or a file in it cannot be written.

    Example:
        >>> folder = write_social_network("network", social_network(num_members=1_000))
        >>> sorted(path.name for path in folder.iterdir())
        ['edges.csv', 'features.npy', 'labels.csv']
    """
    network = social_network() if network is None else network
    target = prepare_output_folder(folder)
    names = np.asarray(network.class_names, dtype=object)[network.labels].tolist()
    members = list(map(str, range(len(network.labels))))
    tables = {
        "edges.csv": ("source,target", [list(map(str, row.tolist())) for row in network.edge_index]),
        "labels.csv": ("node,label", [members, names]),
    }
    for file_name, (header, columns) in tables.items():
        with atomic_write(target / file_name, encoding="utf-8") as file:
            file.writelines(_csv_blocks(header, columns))
    write_npy(target / "features.npy", network.features)
    return target
