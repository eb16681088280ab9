"""The best items for each user and who spoke for them: what ``sage-attention recommend`` runs. Torch is not needed."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from sage_attention.errors import DataError, MissingDependencyError, counted
from sage_attention.recipes.apply import output_file
from sage_attention.recipes.ids import IdColumn, ids_from_column, positions
from sage_attention.recipes.link_dataset import TEST, TRAIN, VAL
from sage_attention.recipes.link_files import load_recommender
from sage_attention.recipes.link_judge import item_lists, messages_of
from sage_attention.recipes.output import atomic_write
from sage_attention.recipes.ranking import top_items
from sage_attention.recipes.tables import open_table, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from sage_attention.recipes.link_files import Recommender

__all__ = ["Recommendations", "recommend", "recommendations"]

_BLOCK_BYTES = 1 << 25  # of scores
_NAMED = 3  # unknown users, in the line that says how many there are
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})\Z", re.ASCII)
_ALL = (TRAIN, VAL, TEST)


class Recommendations:
    """The best items for some users, column by column; row by row one item, the best first.

    Attributes:
        users: int64 [n], positions.
        ranks: int64 [n], from 1 on.
        items: int64 [n], positions.
        scores: float32 [n].
        popular: bool [n], whether the user is unknown to the model: the score is then the share of users who have it.
        because: int64 [n, B], the nodes that spoke for the item, who said most first; -1 for none.
        shares: float32 [n, B], what each adds to the score.
    """

    def __init__(self, rows: list[tuple[Any, ...]], most: int) -> None:
        def put(at: int, kind: Any, width: tuple[int, ...] = ()) -> Any:
            parts = [np.asarray(row[at], kind) for row in rows]
            return np.concatenate(parts) if parts else np.empty((0, *width), kind)

        self.users: NDArray[np.int64] = put(0, np.int64)
        self.ranks: NDArray[np.int64] = put(1, np.int64)
        self.items: NDArray[np.int64] = put(2, np.int64)
        self.scores: NDArray[np.float32] = put(3, np.float32)
        self.popular: NDArray[np.bool_] = put(4, np.bool_)
        self.because: NDArray[np.int64] = put(5, np.int64, (most,))
        self.shares: NDArray[np.float32] = put(6, np.float32, (most,))


def recommendations(
    known: Recommender, users: NDArray[np.int64], top: int, because: int, num_threads: int = 0
) -> Iterator[Recommendations]:
    """The best items that users do not have yet, block by block of users.

    The model sees all pairs that it was given, those for validation and testing too.

    Args:
        known: The model and its data.
        users: int64 [n], positions.
        top: Most items for a user.
        because: Most neighbours named for an item.
        num_threads: 0 is one per core.

    Yields:
        The rows of some users, in their order.
    """
    data, model = known.data, known.model
    messages = messages_of(data, *_ALL)
    made = model.represent(messages, explain=because > 0, num_threads=num_threads)
    have = item_lists(data, *_ALL)
    popularity = np.bincount(data.items, minlength=data.num_items).astype(np.float32) / max(data.num_users, 1)
    popularity[popularity == 0] = -np.inf
    rows = max(1, _BLOCK_BYTES // (8 * data.num_items))
    for start in range(0, len(users), rows):
        some = users[start : start + rows]
        popular = ~made.connected[some]
        scores = model.scores(made, some)
        scores[popular] = popularity
        scores[have.cells(some)] = -np.inf
        best = top_items(scores, top)
        parts = []
        for at, user in enumerate(some.tolist()):
            items = best[at][scores[at, best[at]] > -np.inf]
            nodes = np.full((len(items), because), -1, np.int64)
            shares = np.zeros((len(items), because), np.float32)
            if because and not popular[at] and len(items):
                neighbours, added = model.spoken(made, messages, user, items)
                order = np.argsort(-added, axis=0, kind="stable")[:because]
                most = np.take_along_axis(added, order, axis=0).T
                nodes[:, : len(order)] = np.where(most > 0, neighbours[order].T, -1)
                shares[:, : len(order)] = np.maximum(most, 0)
            ranks = np.arange(1, len(items) + 1, dtype=np.int64)
            who, why = np.full(len(items), user), np.full(len(items), popular[at])
            parts.append((who, ranks, items, scores[at, items], why, nodes, shares))
        yield Recommendations(parts, because)


def _chosen(known: Recommender, users: str | None, encoding: str | None) -> tuple[NDArray[np.int64], str]:
    """Positions of the users that a file lists, in its order, and what is to be said of others; of all without one."""
    ids = known.data.user_ids
    if users is None:
        return np.arange(len(ids), dtype=np.int64), ""
    table = open_table(users, encoding=encoding)
    position = table.find_first(("user", "user_id", "userid", "id"))
    column = ids_from_column(table, position or 0, table.columns([position or 0])[position or 0])
    if ids.dtype.kind != "i":
        column = column.as_text()
    column.check_unique("each user once")
    return _known(column, ids)


def _known(column: IdColumn, ids: NDArray[Any]) -> tuple[NDArray[np.int64], str]:
    """Positions of those that the model knows, and what is to be said of the others."""
    at = _positions(column, ids)
    unknown = np.flatnonzero(at < 0)
    if len(unknown) == 0:
        return at, ""
    if len(unknown) == len(at):
        got = f"none: {quoted(column.values[0])}" + (f" and {counted(len(at) - 1, 'other')}" if len(at) > 1 else "")
        hint = "are these ids of users, as in training? New users need a training with their interactions"
        raise DataError(column.path, "some user that the model was trained with", got, column=column.column, hint=hint)
    first = ", ".join(f"{quoted(column.values[row])} (row {column.row(int(row))})" for row in unknown[:_NAMED])
    told = (
        f"{column.path}: {len(unknown):,} of {counted(len(at), 'user')} left out, unknown to the model: {first}"
        + (f" and {len(unknown) - _NAMED:,} more" if len(unknown) > _NAMED else "")
        + "; train again with their interactions"
    )
    return at[at >= 0], told


def _positions(column: IdColumn, ids: NDArray[Any]) -> NDArray[np.int64]:
    if not column.is_text or ids.dtype.kind != "i":
        return column.positions_in(ids)
    # Words among numbers are nobody that the model knows; the numbers still are.
    at = np.full(len(column.values), -1, np.int64)
    rows = [row for row, cell in enumerate(column.values.tolist()) if _INTEGER.match(cell)]
    at[rows] = positions(ids, np.array([int(column.values[row]) for row in rows], np.int64))
    return at


def recommend(
    folder: str,
    out: str,
    *,
    users: str | None = None,
    top: int = 20,
    because: int = 3,
    num_threads: int = 0,
    encoding: str | None = None,
) -> tuple[int, int, str]:
    """Writes the best items for each user, as Parquet or CSV, with who spoke for each.

    Columns: ``user``, ``rank``, ``item``, ``score``, ``basis`` (model, or popularity for users without any neighbour),
    and for each of the neighbours named ``because_1`` (its id), ``because_1_is`` (item or user), ``because_1_adds``
    (its part of the score).

    Args:
        folder: The output folder of ``train --task link``.
        out: The file to write: CSV if it ends in ``.csv``, else Parquet.
        users: A table of users; None for all.
        top: Most items for a user.
        because: Most neighbours named for an item.
        num_threads: 0 is one per core.
        encoding: Of text files without a byte order mark; None for UTF-8.

    Returns:
        How many users, how many rows, and a line that says which of `users` the model does not know and are left out;
        "" for none.

    Raises:
        DataError: A file is wrong, all users are unknown, or `out` is named as another kind of file or is one of those
            read.
        SageAttentionError: `out` cannot be written.
    """
    path = output_file(out, (".parquet", ".csv"), (users,))
    known = load_recommender(folder)
    chosen, unknown = _chosen(known, users, encoding)
    try:
        import pyarrow as pa
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError as error:
        raise MissingDependencyError("pyarrow", "Writing recommendations", "tables") from error
    schema = _schema(pa, known, because)
    as_text = str(path).lower().endswith(".csv")
    kind = pa.csv.CSVWriter if as_text else functools.partial(pa.parquet.ParquetWriter, compression="zstd")
    count = 0
    with atomic_write(path) as file, kind(file, schema) as writer:
        for some in recommendations(known, chosen, top, because, num_threads):
            writer.write_table(_table(pa, schema, known, some))
            count += len(some.users)
    return len(chosen), count, unknown


def _schema(pa: Any, known: Recommender, because: int) -> Any:
    def kind(ids: NDArray[Any]) -> Any:
        return pa.int64() if ids.dtype.kind == "i" else pa.string()

    data = known.data
    user, item = kind(data.user_ids), kind(data.item_ids)
    fields = [("user", user), ("rank", pa.int32()), ("item", item), ("score", pa.float32()), ("basis", pa.string())]
    for k in range(1, because + 1):
        fields.append((f"because_{k}", item if user == item or not data.social.size else pa.string()))
        fields += [(f"because_{k}_is", pa.string()), (f"because_{k}_adds", pa.float32())]
    return pa.schema(fields)


def _table(pa: Any, schema: Any, known: Recommender, rows: Recommendations) -> Any:
    data = known.data

    def cells(ids: NDArray[Any], at: NDArray[np.int64], none: NDArray[np.bool_] | None = None) -> Any:
        return pa.array(ids[at].astype(object) if ids.dtype.kind == "U" else ids[at], mask=none)

    columns = [
        cells(data.user_ids, rows.users), pa.array(rows.ranks, pa.int32()), cells(data.item_ids, rows.items),
        pa.array(rows.scores), pa.array(np.where(rows.popular, "popularity", "model").astype(object), pa.string()),
    ]  # fmt: skip
    for k in range(rows.because.shape[1]):
        nodes, none = rows.because[:, k], rows.because[:, k] < 0
        kind = schema.field(f"because_{k + 1}").type
        named = np.zeros(len(nodes), object)
        friend = ~none & (nodes < data.num_users)
        thing = ~none & (nodes >= data.num_users)
        named[friend] = data.user_ids[nodes[friend]]
        named[thing] = data.item_ids[nodes[thing] - data.num_users]
        if kind == pa.string():
            named = np.array([str(name) for name in named.tolist()], object)
        columns.append(pa.array(named, kind, mask=none))
        columns.append(pa.array(np.where(friend, "user", "item").astype(object), pa.string(), mask=none))
        columns.append(pa.array(rows.shares[:, k], mask=none))
    return pa.table(columns, schema=schema)
