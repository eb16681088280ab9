"""Users, items and who used what: one numbering, and a division into train, val and test that leaks nothing.

A pair (user, item) is there once, in the part of its first interaction; its weight is made of the interactions
of that part alone, so that nothing of a later part shows in an earlier one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from sage_attention.errors import DataError, counted
from sage_attention.recipes.edges import EdgeTable, read_edges
from sage_attention.recipes.ids import common_type, universe
from sage_attention.recipes.link_tables import InteractionTable, read_interactions
from sage_attention.recipes.split import check_fractions, check_seed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from sage_attention.recipes.tables import PathLike

__all__ = ["TEST", "TRAIN", "VAL", "LinkDataset", "load_interactions"]

TRAIN, VAL, TEST = 0, 1, 2


def _no_edges() -> NDArray[np.int64]:
    return np.empty((2, 0), np.int64)


@dataclass(frozen=True)
class LinkDataset:
    """Who used what. A user's or an item's position is its number from here on.

    Attributes:
        user_ids: The user's ids, sorted: int64 or text [U].
        item_ids: The items' ids, sorted: int64 or text [I].
        users: int64 [n], the user of each pair; pairs are sorted by user, then item, each there once.
        items: int64 [n].
        part: int8 [n]: TRAIN, VAL or TEST.
        weights: float32 [n], over 0, or None.
        social: int64 [2, S], user to user, both directions, each once, no loops.
        notes: What the reader of the report should know about how the data was taken.
    """

    user_ids: NDArray[Any]
    item_ids: NDArray[Any]
    users: NDArray[np.int64]
    items: NDArray[np.int64]
    part: NDArray[np.int8]
    weights: NDArray[np.float32] | None = None
    social: NDArray[np.int64] = field(default_factory=_no_edges)
    notes: tuple[str, ...] = ()

    @property
    def num_users(self) -> int:
        """How many users there are."""
        return int(self.user_ids.size)

    @property
    def num_items(self) -> int:
        """How many items there are."""
        return int(self.item_ids.size)

    def pairs(self, *parts: int) -> NDArray[np.int64]:
        """int64: the numbers of the pairs of some parts, in their order."""
        return np.flatnonzero(np.isin(self.part, parts))

    def summary(self) -> str:
        """What was read, in a line.

        Example:
            >>> none = np.empty(0, np.int64)
            >>> LinkDataset(np.arange(2), np.arange(3), none, none, none.astype(np.int8)).summary()
            '2 users, 3 items, 0 pairs: 0 to train, 0 to validate, 0 to test'
        """
        counts = np.bincount(self.part, minlength=3)
        friends = ", " + counted(self.social.shape[1] // 2, "social tie") if self.social.size else ""
        return (
            f"{counted(self.num_users, 'user')}, {counted(self.num_items, 'item')}{friends}, "
            f"{counted(len(self.part), 'pair')}: "
            f"{counts[TRAIN]:,} to train, {counts[VAL]:,} to validate, {counts[TEST]:,} to test"
        )


def load_interactions(
    interactions: PathLike | InteractionTable,
    test: PathLike | InteractionTable | None = None,
    social: PathLike | EdgeTable | None = None,
    *,
    how: str = "auto",
    split: Sequence[float] = (0.8, 0.1, 0.1),
    seed: int = 0,
    encoding: str | None = None,
) -> LinkDataset:
    r"""Load interactions, and divide them.

    Args:
        interactions: A file for `read_interactions`, or what it returned.
        test: The same of those to judge by. Pairs that `interactions` has too are left out.
        social: A file for `read_edges` of ties between users, taken in both directions; or what that returned.
        how: ``"time"``: the first interactions are for training, the last for testing; interactions of one time stay
            together. ``"user"``: of each user some pairs by chance, at least one is for training. ``"auto"``: by time
            where there are times.
        split: Fractions for train, val and test; together 1. With a `test` file the last is not used.
        seed: Chooses the pairs of each user.
        encoding: Of text files without a byte order mark; None for UTF-8.

    Returns:
        The data set.

    Raises:
        DataError: A file is wrong, or the files do not fit together; there are no times to divide by, or all are one.
        ArgumentError: `seed` is not an integer from 0 to 2**64 - 1, or no encoding has that name.
        MissingDependencyError: PyArrow is not installed.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "plays.csv")
        >>> _ = path.write_text("user,item,time\nann,x,1\nann,y,2\nbob,x,3\n")
        >>> data = load_interactions(path, split=(0.4, 0.3, 0.3))
        >>> data.users.tolist(), data.items.tolist(), data.part.tolist()
        ([0, 0, 1], [0, 1, 0], [0, 1, 2])
    """
    fractions, seed = check_fractions(split), check_seed(seed)
    if not isinstance(interactions, InteractionTable):
        interactions = read_interactions(interactions, encoding=encoding)
    if test is not None and not isinstance(test, InteractionTable):
        test = read_interactions(test, encoding=encoding)
    if social is not None and not isinstance(social, EdgeTable):
        social = read_edges(social, encoding=encoding)
    if how == "time" and interactions.times is None:
        hint = "name it with --time-column, or divide by user"
        raise DataError(interactions.path, "a column of times to divide by", "none", hint=hint)
    by_time = interactions.times is not None if how == "auto" else how == "time"
    return _joined(interactions, test, social, by_time, fractions, seed)


def _joined(
    table: InteractionTable,
    test: InteractionTable | None,
    social: EdgeTable | None,
    by_time: bool,
    fractions: tuple[float, float, float],
    seed: int,
) -> LinkDataset:
    tables = [table] if test is None else [table, test]
    ends = [] if social is None else [social.source_ids, social.target_ids]
    user_columns = common_type([*(t.user_ids for t in tables), *ends])
    item_columns = common_type([t.item_ids for t in tables])
    user_ids, item_ids = universe(user_columns), universe(item_columns)
    rows = [
        _Rows(user.positions_in(user_ids), item.positions_in(item_ids), t)
        for t, user, item in zip(tables, user_columns, item_columns)
    ]
    if test is not None:
        fractions = _without_test(fractions)
    own = rows[0]
    if by_time:
        row_part = _part_by_time(table, fractions)
        pairs = own.merged(row_part, len(item_ids))
    else:
        pairs = own.merged(np.zeros(len(own.users), np.int8), len(item_ids))
        pairs = pairs.with_part(_part_by_user(pairs.users, fractions, seed))
    notes = [f"Read from {t.path.name}: {t.columns}." for t in tables if t.columns]
    if social is not None and social.read_as:
        notes.append(f"Ties read from {social.path.name}: {social.read_as}.")
    notes.append("Divided " + ("by time: earlier to train, later to test." if by_time else "by chance for each user."))
    if test is not None:
        kept = rows[1].merged(np.full(len(rows[1].users), TEST, np.int8), len(item_ids))
        pairs, repeated = pairs.joined(kept, len(item_ids))
        notes[-1] = "Test pairs are those of their own file; validation pairs were d" + notes[-1][1:]
        if repeated:
            are = "is a training pair" if repeated == 1 else "are training pairs"
            notes.append(f"{counted(repeated, 'test pair')} {are} too and left out.")
    ties = _no_edges()
    if social is not None:
        source, target = (column.positions_in(user_ids) for column in user_columns[-2:])
        ties = _both_ways(source, target, len(user_ids))
    if not (pairs.part == TRAIN).any():
        raise DataError(table.path, "interactions to train on", "none", hint="give a larger first fraction of --split")
    return LinkDataset(user_ids, item_ids, pairs.users, pairs.items, pairs.part, pairs.weights, ties, tuple(notes))


def _without_test(fractions: tuple[float, float, float]) -> tuple[float, float, float]:
    kept = fractions[0] + fractions[1]
    return fractions[0] / kept, fractions[1] / kept, 0.0


@dataclass(frozen=True)
class _Pairs:
    """Distinct pairs, sorted by user, then item."""

    users: NDArray[np.int64]
    items: NDArray[np.int64]
    part: NDArray[np.int8]
    weights: NDArray[np.float32] | None

    def with_part(self, part: NDArray[np.int8]) -> _Pairs:
        return _Pairs(self.users, self.items, part, self.weights)

    def joined(self, other: _Pairs, num_items: int) -> tuple[_Pairs, int]:
        """These and those of `other` that are not among them; and how many are."""
        mine, theirs = self.users * num_items + self.items, other.users * num_items + other.items
        new = ~np.isin(theirs, mine)
        order = np.argsort(np.concatenate([mine, theirs[new]]), kind="stable")

        def put(a: Any, b: Any) -> Any:
            return np.concatenate([a, b[new]])[order]

        weights = None
        if self.weights is not None:
            weights = put(self.weights, np.ones_like(theirs, np.float32) if other.weights is None else other.weights)
        made = _Pairs(put(self.users, other.users), put(self.items, other.items), put(self.part, other.part), weights)
        return made, int(np.count_nonzero(~new))


class _Rows:
    """The rows of a table with positions for ids."""

    def __init__(self, users: NDArray[np.int64], items: NDArray[np.int64], table: InteractionTable) -> None:
        self.users, self.items, self.table = users, items, table

    def merged(self, row_part: NDArray[np.int8], num_items: int) -> _Pairs:
        """Each pair once: in the part of its first row, with the sum of the weights there."""
        keys = self.users * num_items + self.items
        order = np.lexsort((row_part, keys))
        keys, part = keys[order], row_part[order]
        first = np.ones(len(keys), np.bool_)
        np.not_equal(keys[1:], keys[:-1], out=first[1:])
        starts = np.flatnonzero(first)
        group = np.cumsum(first) - 1
        mine = part == part[starts][group]  # rows of a later part tell nothing
        weights = None
        if self.table.weights is not None:
            sums = np.bincount(group, np.where(mine, self.table.weights[order], 0.0))
            weights = np.minimum(sums, np.finfo(np.float32).max).astype(np.float32)
        users, items = np.divmod(keys[starts], max(num_items, 1))
        return _Pairs(users, items, part[starts], weights)


def _part_by_time(table: InteractionTable, fractions: tuple[float, float, float]) -> NDArray[np.int8]:
    times = table.times
    assert times is not None  # noqa: S101 - the caller has seen to it
    ordered = np.sort(times)
    ends = np.cumsum(fractions[:2]) * len(ordered)
    places = np.minimum(np.floor(ends + 0.5).astype(np.int64), len(ordered))
    part = np.zeros(len(times), np.int8)
    for place in places.tolist():
        if place < len(ordered):
            part += (times >= ordered[place]).astype(np.int8)
    if (part > TRAIN).all():
        got = f"{np.count_nonzero(times == ordered[0]):,} of {counted(len(times), 'interaction')} at the first time"
        hint = "use --divide user, or a larger first fraction of --split"
        raise DataError(table.path, "times that tell earlier from later", got, hint=hint)
    return part


def _part_by_user(users: NDArray[np.int64], fractions: tuple[float, float, float], seed: int) -> NDArray[np.int8]:
    """Of each user some pairs by chance; each pair draws one number by its position."""
    draws = np.random.Generator(np.random.Philox(seed)).random(len(users))
    order = np.lexsort((draws, users))
    counts = np.bincount(users)
    start = np.cumsum(counts) - counts
    ordered_users = users[order]
    rank = np.arange(len(users), dtype=np.int64) - start[ordered_users]
    test = np.floor(fractions[2] * counts + 0.5).astype(np.int64)
    val = np.floor(fractions[1] * counts + 0.5).astype(np.int64)
    val = np.minimum(val, np.maximum(counts - test - 1, 0))
    test = np.minimum(test, np.maximum(counts - val - 1, 0))
    part = np.empty(len(users), np.int8)
    part[order] = np.where(rank < test[ordered_users], TEST, np.where(rank < (test + val)[ordered_users], VAL, TRAIN))
    return part


def _both_ways(source: NDArray[np.int64], target: NDArray[np.int64], num_users: int) -> NDArray[np.int64]:
    """Ties in both directions, each once, without loops, sorted."""
    apart = source != target
    source, target = source[apart], target[apart]
    keys = np.unique(np.concatenate([source * num_users + target, target * num_users + source]))
    return np.stack(np.divmod(keys, max(num_users, 1))).astype(np.int64)
