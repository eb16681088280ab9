"""Reads who used what: user, item, and where the file has them weight and time; or a list of items per user."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sage_attention.errors import DataError
from sage_attention.recipes.encodings import check_encoding, check_utf8, decoded
from sage_attention.recipes.ids import IdColumn, ids_from_arrow, ids_from_column
from sage_attention.recipes.tables import (
    check_file,
    file_kind,
    import_pyarrow,
    open_table,
    quoted,
    read_bytes,
    simplified,
)

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from sage_attention.recipes.tables import PathLike, Table

__all__ = ["InteractionTable", "read_interactions"]

# fmt: off
_USERS = ("user", "user_id", "userid", "users", "uid", "member", "customer", "customer_id", "visitor", "visitorid")
_ITEMS = ("item", "item_id", "itemid", "items", "iid", "product", "product_id", "artist", "artist_id", "artistid",
          "movie", "movie_id", "movieid", "song", "track", "track_id", "book", "book_id", "isbn", "business_id")
_WEIGHTS = ("weight", "count", "counts", "plays", "play_count", "listens", "listen_count", "rating", "ratings", "stars",
            "value", "score", "quantity", "frequency")
_TIMES = ("time", "timestamp", "unixtime", "unix_time", "date", "datetime", "event_time", "created_at", "ts")
# fmt: on
_LIST_LINES = 200  # looked at to tell lists of items from a table
_INTEGER = re.compile(rb"(?:0|[1-9][0-9]*)\Z")
_AN_AGE_OF_SECONDS = 1e8  # 1973: in a file without a header larger numbers in a column are times, not counts


@dataclass(frozen=True)
class InteractionTable:
    """Interactions as their file has them, in its order, repeated ones too.

    Attributes:
        path: The file.
        user_ids: Who, with what is needed to point at a row.
        item_ids: What.
        weights: float64 [n], each over 0, or None.
        times: float64 [n], or None: in what unit does not matter.
        columns: What each was read from, in a line for the user.
    """

    path: Path
    user_ids: IdColumn
    item_ids: IdColumn
    weights: NDArray[np.float64] | None = None
    times: NDArray[np.float64] | None = None
    columns: str = ""

    def __len__(self) -> int:
        return int(self.user_ids.values.size)


def read_interactions(
    path: PathLike,
    *,
    user: str | int | None = None,
    item: str | int | None = None,
    weight: str | int | None = None,
    time: str | int | None = None,
    layout: str = "auto",
    encoding: str | None = None,
) -> InteractionTable:
    r"""Read who used what.

    | format | what it holds |
    |---|---|
    | .csv .tsv .tab .txt .edges .edgelist | a row per interaction: user, item, and perhaps weight and time |
    | .parquet .pq | the same |
    | .txt ..., `layout="lists"` | a line per user: the user, then the items, between blanks (as LightGCN's files) |

    Columns are known by usual names (user, item, weight or count or rating ..., time or timestamp ...), else by order:
    user, item, and of what follows in a file without a header a column of numbers over 100,000,000 holds times, the
    first other one weights.

    Args:
        path: The file.
        user: Name or 1-based number of the column of users (tables only, as are the next three).
        item: Of the column of items.
        weight: Of the column of weights (how often, how much: numbers over 0); ``"none"`` reads none.
        time: Of the column of times: numbers, or dates as 2011-05-03 or 2011-05-03 17:20:00; ``"none"`` reads none.
        layout: ``"table"``, ``"lists"``, or ``"auto"``: lists where blanks separate integers, lines are of different
            lengths and no two begin alike.
        encoding: Of a text file without a byte order mark; None for UTF-8.

    Returns:
        The interactions.

    Raises:
        DataError: The file is missing or damaged, has no interactions or no such column, or a row is wrong.
        ArgumentError: No encoding has that name.
        MissingDependencyError: PyArrow is not installed.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "plays.csv")
        >>> _ = path.write_text("user,item,plays\nann,The Cure,3\nbob,ABBA,1\n")
        >>> plays = read_interactions(path)
        >>> plays.user_ids.values.tolist(), plays.item_ids.values.tolist(), plays.weights.tolist()
        (['ann', 'bob'], ['The Cure', 'ABBA'], [3.0, 1.0])
    """
    kind = file_kind(path, ("text", "parquet"))
    asked = [column for column in (user, item, weight, time) if column is not None]
    if kind == "text" and layout != "table" and not asked:
        lists = _lists(check_file(path), encoding, sure=layout == "lists")
        if lists is not None:
            return lists
    if layout == "lists":
        got = f"column {quoted(asked[0])}" if asked else f"a {kind} file"
        raise DataError(str(path), "a text file and no names of columns, as for lists of items", got)
    named = any(isinstance(column, str) and simplified(column) != "none" for column in asked)
    # Who names a column says that the first row has names.
    table = open_table(path, encoding=encoding, header=True if named and kind == "text" else None)
    return _from_table(table, user, item, weight, time)


def _lists(path: Path, encoding: str | None, *, sure: bool) -> InteractionTable | None:
    """Lines of a user and its items, or None if it does not look like that."""
    body = decoded(path, read_bytes(path), check_encoding(encoding))
    lines = body.splitlines()
    full = [line.split() for line in lines[:_LIST_LINES] if line.strip() and not line.lstrip().startswith((b"#", b"%"))]
    if not sure:
        widths = {len(cells) for cells in full}
        integers = all(_INTEGER.match(cell) for cells in full for cell in cells)
        if not integers or len(widths) < 2 or len({cells[0] for cells in full}) < len(full):
            return None
    check_utf8(path, body)
    users: list[bytes] = []
    items: list[bytes] = []
    rows: list[int] = []
    first_row: dict[bytes, int] = {}
    for number, line in enumerate(lines, start=1):
        cells = line.split()
        if not cells or cells[0].startswith((b"#", b"%")):
            continue
        if cells[0] in first_row:
            got = f"user {quoted(cells[0].decode())} again (first on row {first_row[cells[0]]})"
            raise DataError(path, "one line per user", got, row=number, hint="if it is a table, say --layout table")
        first_row[cells[0]] = number
        users.extend([cells[0]] * (len(cells) - 1))
        items.extend(cells[1:])
        rows.extend([number] * (len(cells) - 1))
    if not items:
        raise DataError(path, "users with their items", "no item")
    pa = import_pyarrow("reading tables")
    ids = []
    for name, cells in (("of users", users), ("of items", items)):
        place = IdColumn(np.empty(0, np.int64), path, name, rows.__getitem__, untyped=True)
        ids.append(ids_from_arrow(place, pa.chunked_array([pa.array(cells, pa.binary()).cast(pa.string())])))
    return InteractionTable(path, ids[0], ids[1], columns="a list of items for each user")


def _from_table(
    table: Table, user: str | int | None, item: str | int | None, weight: str | int | None, time: str | int | None
) -> InteractionTable:
    if len(table.names) < 2:
        raise table.one_column("columns of users and of items")
    at: dict[str, int | None] = {
        "user": _chosen(table, "user", user, _USERS),
        "item": _chosen(table, "item", item, _ITEMS),
        "weight": _chosen(table, "weight", weight, _WEIGHTS),
        "time": _chosen(table, "time", time, _TIMES),
    }
    free = [i for i in range(len(table.names)) if i not in at.values()]
    for name in ("user", "item"):
        if at[name] is None:
            if not free:
                raise DataError(table.path, f"a column of {name}s", "none left", hint=f"say which with --{name}-column")
            at[name] = free.pop(0)
    used = [i for i in at.values() if i is not None]
    if len(set(used)) < len(used):
        shown = ", ".join(quoted(table.label(i)) for i in used)
        raise DataError(table.path, "a column of its own for each of user, item, weight and time", shown)
    guess = [] if table.has_header else free
    read = table.columns(list(dict.fromkeys([*used, *guess])))
    ids = [ids_from_column(table, i, read[i]) for i in used[:2]]
    for i in guess:
        numbers = _numbers(table, i, read[i], must=False)
        if numbers is None:
            continue
        name = "time" if float(numbers.min()) > _AN_AGE_OF_SECONDS else "weight"
        if at[name] is None and {"weight": weight, "time": time}[name] is None:
            at[name] = i
    weights = None if at["weight"] is None else _numbers(table, at["weight"], read[at["weight"]])
    if weights is not None and not (weights > 0).all():
        row = int(np.argmin(weights > 0))
        label = table.label(at["weight"] or 0)
        hint = "drop such rows, or read no weights with --weight-column none"
        raise DataError(table.path, "a weight over 0", f"{weights[row]:g}", row=table.row(row), column=label, hint=hint)
    times = None if at["time"] is None else _times(table, at["time"], read[at["time"]])
    told = table.read_as(
        {name: i for name, i in at.items() if i is not None}, f"say --user-column {quoted(table.top[at['user'] or 0])}"
    )
    return InteractionTable(table.path, ids[0], ids[1], weights, times, told)


def _chosen(table: Table, what: str, asked: str | int | None, usual: tuple[str, ...]) -> int | None:
    if asked is not None:
        if isinstance(asked, str) and simplified(asked) == "none" and "none" not in map(simplified, table.names):
            return None
        try:
            return table.find(asked)
        except DataError as error:
            hint = f"say with --{what}-column which has {what}s"
            raise DataError(table.path, error.expected, error.got, hint=hint) from None
    return table.find_first(usual)


def _numbers(table: Table, position: int, column: Any, *, must: bool = True) -> Any:
    """The column as float64 [n]; where it is not, an error, or None if it need not be."""
    pa = import_pyarrow("reading tables")
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    try:
        if table.untyped:
            column = pc.utf8_trim_whitespace(column)
        values = column.cast(pa.float64(), safe=False)
        array = pc.fill_null(values, float("nan")).to_numpy()
    except (pa.ArrowException, TypeError, ValueError):
        array = None
    if array is not None and np.isfinite(array).all():
        return np.asarray(array, np.float64)
    if not must:
        return None
    at = int(np.argmin(np.isfinite(array))) if array is not None else _first_odd(column)
    got = quoted(column[at].as_py())
    raise DataError(table.path, "a finite number", got, row=table.row(at), column=table.label(position))


def _first_odd(column: Any) -> int:
    """The first cell that is no number, of a column that is not all numbers."""
    for at, cell in enumerate(column.to_pylist()):
        try:
            if np.isfinite(float(cell)):
                continue
        except (TypeError, ValueError):
            pass
        return at
    return 0


def _times(table: Table, position: int, column: Any) -> Any:
    """The column as float64 [n]: numbers as they are, dates as seconds."""
    pa = import_pyarrow("reading tables")
    numbers = _numbers(table, position, column, must=False)
    if numbers is not None:
        return numbers
    try:
        stamps = column.cast(pa.timestamp("us"))
        if stamps.null_count == 0:
            return np.asarray(stamps.cast(pa.int64()).to_numpy(), np.float64) / 1e6
    except (pa.ArrowException, ValueError):
        pass
    at = 0
    for at, cell in enumerate(column.to_pylist()):  # noqa: B007 -- where it stops is wanted
        try:
            if pa.array([cell]).cast(pa.timestamp("us")).null_count:
                break
        except (pa.ArrowException, ValueError):
            break
    hint = "numbers, or dates as 2011-05-03 or 2011-05-03 17:20:00"
    got = quoted(column[at].as_py())
    raise DataError(table.path, "a time", got, row=table.row(at), column=table.label(position), hint=hint)
