"""Reads node labels, and with them a split where the file has one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sage_attention.errors import DataError
from sage_attention.recipes.ids import ID_NAMES, IdColumn, ids_from_column
from sage_attention.recipes.tables import check_file, file_kind, import_pyarrow, open_table, quoted
from sage_attention.recipes.tables_numpy import npz_int, read_npy

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from sage_attention.recipes.tables import PathLike, Table

__all__ = ["PARTS", "LabelTable", "class_index", "read_labels"]

PARTS = ("train", "val", "test")
_SPLIT_WORDS = {"train": 0, "val": 1, "valid": 1, "validation": 1, "test": 2}
_LABELS = ("label", "labels", "class", "target", "category", "y")
_INTEGER = re.compile(r"[+-]?[0-9]+\Z")


@dataclass(frozen=True)
class LabelTable:
    """Labels as their file has them, in its order.

    Attributes:
        path: The file.
        labels: int64 [n], positions in `class_names`, -1 where there is no label.
        class_names: Sorted: by value if all are integers, else by code point.
        id_column: The id of each row, or None where row k is node k.
        split: int8 [n], 0 train, 1 val, 2 test, -1 none of them; or None if the file has no split.
        label_column: Name or 1-based number of the column of labels, for messages.
        split_column: The same of the split.
    """

    path: Path
    labels: NDArray[np.int64]
    class_names: list[str]
    id_column: IdColumn | None = None
    split: NDArray[np.int8] | None = None
    label_column: str | int | None = None
    split_column: str | int | None = None

    @property
    def ids(self) -> NDArray[Any] | None:
        """The id of each row, int64 or text [n], or None where row k is node k."""
        return None if self.id_column is None else self.id_column.values

    def row(self, index: int) -> int | None:
        """Return the editor's row of the k-th label."""
        return index + 1 if self.id_column is None else self.id_column.row(index)

    def __len__(self) -> int:
        return int(self.labels.size)


def read_labels(
    path: PathLike,
    *,
    id_column: str | int | None = None,
    label_column: str | int | None = None,
    split_column: str | int | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
    encoding: str | None = None,
) -> LabelTable:
    r"""Read node labels.

    | format | what it holds |
    |---|---|
    | .csv .tsv .tab .txt | columns of ids, of labels (integers or text) and perhaps of the split |
    | .parquet .pq | the same |
    | .npy | integers [N], row k = node k |

    No label is an empty cell, or -1 where all labels are integers. The split column holds train, val (also
    valid, validation), test, or nothing. Without being told, ids are in the column of a usual name
    (id, node, ...), else in the first; labels in the column named label, class, target, category or y,
    else in the only one left; the split in the one named split, or, in a file without a header, in a third
    column that holds nothing but these words.

    Args:
        path: The file.
        id_column: Name or 1-based number of the column of ids (tables only).
        label_column: Name or 1-based number of the column of labels (tables only).
        split_column: Name or 1-based number of the column of the split (tables only).
        delimiter: What separates the cells of a text file; None to find out.
        header: Whether the first row of a text file is a header; None to find out.
        encoding: Of a text file without a byte order mark; None for UTF-8.

    Returns:
        The labels, each node once.

    Raises:
        DataError: The file is missing or damaged, an id comes twice, a split word is unknown, no row has a
            label.
        ArgumentError: `delimiter` is not one character, or no encoding has that name.
        MissingDependencyError: The format needs PyArrow and it is not installed.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "labels.csv")
        >>> _ = path.write_text("id,kind\n0,cat\n1,ant\n2,cat\n")
        >>> labels = read_labels(path)
        >>> labels.class_names, labels.labels.tolist()
        (['ant', 'cat'], [1, 0, 1])
    """
    kind = file_kind(path, ("text", "parquet", "npy"))
    if kind != "npy":
        table = open_table(path, delimiter=delimiter, header=header, encoding=encoding)
        return _from_table(table, id_column, label_column, split_column)
    file = check_file(path)
    for column in (id_column, label_column, split_column):
        if column is not None:
            raise DataError(file, "a table when columns are asked for", f"column {quoted(column)} of a .npy file")
    labels, names = class_index(file, npz_int(file, None, read_npy(file)))
    return LabelTable(file, labels, names)


def class_index(
    path: Path, values: NDArray[np.int64], column: str | None = None
) -> tuple[NDArray[np.int64], list[str]]:
    """Number the classes of integer labels.

    Args:
        path: The file, for messages.
        values: int64 [n], -1 = no label.
        column: What the file calls them.

    Returns:
        int64 [n] positions in the second, or -1; the classes' names, sorted by value.

    Raises:
        DataError: A label below -1, or no label at all.
    """
    if values.size and int(values.min()) < -1:
        at = int(np.argmax(values < -1))
        raise DataError(path, "a label of 0 or more, or -1 for none", str(values[at]), row=at + 1, column=column)
    classes, index = np.unique(values, return_inverse=True)
    labels = index.reshape(-1).astype(np.int64)
    if classes.size and classes[0] == -1:
        labels -= 1
        classes = classes[1:]
    if classes.size == 0:
        raise DataError(path, "at least one label", "none", column=column)
    return labels, [str(c) for c in classes.tolist()]


def _from_table(
    table: Table, id_column: str | int | None, label_column: str | int | None, split_column: str | int | None
) -> LabelTable:
    if len(table.names) < 2:
        raise table.one_column("columns of ids and of labels")
    at_id, at_label, at_split = _chosen(table, id_column, label_column, split_column)
    guessed = (at_split, label_column) == (None, None) and not table.has_header and len(table.names) == 3
    if guessed:
        at_split = next(i for i in range(3) if i not in (at_id, at_label))
    wanted = [i for i in (at_id, at_label, at_split) if i is not None]
    read = table.columns(list(dict.fromkeys(wanted)))
    ids = ids_from_column(table, at_id, read[at_id])
    ids.check_unique("one label per node")
    labels, names = _labels(table, at_label, read[at_label])
    split = None
    if at_split is not None:
        split = _split(table, at_split, read[at_split], guessed=guessed)
    named = None if at_split is None else table.label(at_split)
    made = LabelTable(table.path, labels, names, ids, split, table.label(at_label), named)
    if split is not None:
        _check_labelled(made, split)
    return made


def _chosen(
    table: Table, id_column: str | int | None, label_column: str | int | None, split_column: str | int | None
) -> tuple[int, int, int | None]:
    split = table.find_first(["split"]) if split_column is None else table.find(split_column)
    label = None if label_column is None else table.find(label_column)
    if id_column is not None:
        ids = table.find(id_column)
    else:
        usual = table.find_first(ID_NAMES)
        left = [i for i in range(len(table.names)) if i not in (label, split)]
        ids = usual if usual is not None and usual in left else left[0] if left else 0
    if label is None:
        label = table.find_first(_LABELS)
        left = [i for i in range(len(table.names)) if i not in (ids, split)]
        if label is None or label not in left:
            if len(left) != 1 and (table.has_header or len(left) != 2):
                shown = ", ".join(quoted(table.label(i)) for i in left) or "no other column"
                raise DataError(table.path, "one column of labels", shown, hint="say which with label_column")
            label = left[0]
    if len({ids, label, split}) != 3:
        shown = ", ".join(quoted(table.label(i)) for i in (ids, label, split) if i is not None)
        raise DataError(table.path, "different columns for id, label and split", shown)
    return ids, label, split


def _factorised(table: Table, position: int, column: Any) -> tuple[NDArray[np.int64], list[str]]:
    """Return for each cell its position among the different texts of the column, and these."""
    pa = import_pyarrow("reading tables")
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = column.type
    name = table.label(position)
    if pa.types.is_floating(kind):
        # Integers with gaps come out of pandas as floats: 0.0, 1.0, NaN.
        values = column.to_numpy()
        none = np.isnan(values)
        odd = ~none & ((values != np.floor(values)) | (np.abs(values) >= 2**53))
        if odd.any():
            at = int(np.argmax(odd))
            raise DataError(table.path, "a class", values[at], row=table.row(at), column=name)
        column = pa.chunked_array([pa.array(np.where(none, 0, values).astype(np.int64), mask=none)])
    elif not (
        pa.types.is_integer(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_null(kind)
    ):
        raise DataError(table.path, "integers or text", f"the type {kind}", column=name)
    cells = pc.fill_null(column.cast(pa.string()), "")
    different = pc.unique(cells)
    codes = pc.index_in(cells, value_set=different).to_numpy()
    return np.asarray(codes, dtype=np.int64), [text.strip() for text in different.to_pylist()]


def _labels(table: Table, position: int, column: Any) -> tuple[NDArray[np.int64], list[str]]:
    codes, texts = _factorised(table, position, column)
    present = {text for text in texts if text}
    integers = all(_INTEGER.match(text) for text in present)
    if integers:
        present.discard("-1")
    if not present:
        raise DataError(table.path, "at least one label", "none", column=table.label(position))
    names = sorted(present, key=lambda text: (int(text), text)) if integers else sorted(present)
    place = {name: i for i, name in enumerate(names)}
    return np.array([place.get(text, -1) for text in texts], np.int64)[codes], names


def _split(table: Table, position: int, column: Any, *, guessed: bool) -> NDArray[np.int8]:
    codes, words = _factorised(table, position, column)
    known = [-1 if word == "" else _SPLIT_WORDS.get(word.lower(), -2) for word in words]
    split = np.array(known, np.int8)[codes]
    wrong = split == -2
    if wrong.any():
        at = int(np.argmax(wrong))
        expected, hint = "train, val, test or nothing", ""
        if guessed:
            hint = "if this is no split, say which column holds the labels with label_column"
        got = quoted(words[int(codes[at])])
        raise DataError(table.path, expected, got, row=table.row(at), column=table.label(position), hint=hint)
    return split


def _check_labelled(table: LabelTable, split: NDArray[np.int8]) -> None:
    bare = (split >= 0) & (table.labels < 0)
    if bare.any():
        at = int(np.argmax(bare))
        raise DataError(
            table.path,
            f"a label, as the node is in {PARTS[int(split[at])]}",
            "none",
            row=table.row(at),
            column=table.label_column,
            hint="leave its split empty",
        )
