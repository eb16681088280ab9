"""Opens a user's table, whatever its format, and finds columns in it.

Contract: whatever is wrong with the file becomes one `DataError`; what PyArrow, zipfile or the operating
system raised never reaches the caller. The formats live beside this file: `tables_text` (CSV and kin),
`tables_parquet`, `tables_numpy` (NPY and NPZ).
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from sage_attention._paths import check_name, shown_path, system_path
from sage_attention.errors import ArgumentError, DataError, MissingDependencyError, counted
from sage_attention.recipes.system_errors import BRIEFLY, patiently

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import ModuleType

__all__ = [
    "PathLike",
    "Table",
    "check_file",
    "file_kind",
    "import_pyarrow",
    "import_sparse",
    "open_table",
    "quoted",
    "read_bytes",
    "simplified",
]

PathLike = Union[str, "os.PathLike[str]"]

_KINDS = {
    ".csv": "text",
    ".tsv": "text",
    ".tab": "text",
    ".txt": "text",
    ".edges": "text",
    ".edgelist": "text",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".npy": "npy",
    ".npz": "npz",
    ".json": "json",
}
_HINTS = {
    ".gz": "decompress it first",
    ".zip": "unpack it first",
    ".bz2": "decompress it first",
    ".zst": "decompress it first",
    ".xlsx": "in Excel choose 'Save as', 'CSV UTF-8'",
    ".xls": "in Excel choose 'Save as', 'CSV UTF-8'",
    ".pkl": "pickles are never loaded; save it as .npy, .npz or .parquet",
    ".pickle": "pickles are never loaded; save it as .npy, .npz or .parquet",
    ".pt": "pickles are never loaded; save it as .npy, .npz or .parquet",
}
_LONGEST_SHOWN = 60
_REST_SHOWN = 5  # columns that are not read
_NUMBER = re.compile(r"\s*[+-]?[\d.][-\d.,:/eE+ ]*\Z")  # or a date


def quoted(value: object) -> str:
    """Return a cell as an error message shows it: quoted, and cut where it is long.

    Example:
        >>> quoted("a")
        "'a'"
    """
    text = str(value)
    return repr(text) if len(text) <= _LONGEST_SHOWN else repr(text[:_LONGEST_SHOWN]) + "..."


def check_file(path: PathLike) -> Path:
    """Return the path of a file that exists, can be read and is not empty.

    Args:
        path: What the user gave.

    Returns:
        The path to open it by, as `system_path` makes it.

    Raises:
        DataError: There is no such file, it is a directory, it cannot be read, or it is empty.

    Example:
        >>> check_file("no such.csv")
        Traceback (most recent call last):
        sage_attention.errors.DataError: no such.csv: expected an existing file, got nothing at this path
    """
    try:
        check_name(path)
        file = system_path(path)
        if file.is_dir():
            raise DataError(file, "a file", "a directory")
        with patiently(file.open, "rb", delays=BRIEFLY) as stream:
            if not stream.read(1):
                raise DataError(file, "a table", "an empty file (0 bytes)")
    except FileNotFoundError:
        hint = "" if file.parent.is_dir() else f"there is no folder {shown_path(file.parent)} either"
        raise DataError(file, "an existing file", "nothing at this path", hint=hint) from None
    except PermissionError:
        raise DataError(
            file,
            "a readable file",
            "permission denied",
            hint="check its permissions, or close what holds it open",
        ) from None
    except DataError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a NUL character in the path
        raise DataError(str(path), "a readable file", _reason(error)) from None
    return file


def read_bytes(path: Path) -> bytes:
    """Return the whole content of a file.

    Raises:
        DataError: The file cannot be read.
    """
    try:
        return patiently(path.read_bytes, delays=BRIEFLY)
    except OSError as error:
        raise DataError(path, "a readable file", _reason(error)) from None


def _reason(error: Exception) -> str:
    return (error.strerror or type(error).__name__) if isinstance(error, OSError) else str(error)


def file_kind(path: PathLike, allowed: Sequence[str]) -> str:
    """Tell a file's format from its extension.

    Args:
        path: The file; its letters' case does not matter.
        allowed: The formats the caller reads, of ``text``, ``parquet``, ``npy``, ``npz``, ``json``.

    Returns:
        One of `allowed`.

    Raises:
        ArgumentError: `path` is not a path at all.
        DataError: The extension is unknown, or belongs to a format that is not allowed here.

    Example:
        >>> file_kind("Edges.TSV", ["text", "npy"])
        'text'
    """
    if not isinstance(path, (str, os.PathLike)):
        raise ArgumentError("path", "a path", type(path).__name__)
    suffix = Path(path).suffix.lower()
    kind = _KINDS.get(suffix)
    if kind not in allowed or kind is None:
        known = ", ".join(s for s, k in _KINDS.items() if k in allowed)
        raise DataError(
            Path(path),
            f"a file ending in one of {known}",
            quoted(suffix) if suffix else "no extension",
            hint=_HINTS.get(suffix, ""),
        )
    return kind


def import_pyarrow(needed_for: str) -> ModuleType:
    """Return PyArrow, or say how to get it.

    Raises:
        MissingDependencyError: PyArrow is not installed.
    """
    try:
        import pyarrow as pa
    except ImportError:
        raise MissingDependencyError("pyarrow", needed_for, "tables") from None
    return pa  # type: ignore[no-any-return]


def import_sparse(needed_for: str) -> Any:
    """Return `scipy.sparse`, or say how to get it.

    Raises:
        MissingDependencyError: SciPy is not installed.
    """
    try:
        import scipy.sparse
    except ImportError:
        raise MissingDependencyError("scipy", needed_for, "tables") from None
    return scipy.sparse


class Table(ABC):
    """A file of named columns, opened but not yet read.

    Attributes:
        path: The file.
        names: One name per column; "1", "2", ... where the file has no header.
        has_header: Whether the names come from the file.
        top: The cells of the first row: names, or data where there is no header.
        top_row: The editor's row of the header, or of the first data row where there is none.
        untyped: Whether the file holds text only, so that it is for us to tell numbers from text.
    """

    path: Path
    names: tuple[str, ...]
    has_header: bool
    top: tuple[str, ...]
    top_row: int
    untyped: bool

    @abstractmethod
    def columns(self, text: Sequence[int], numbers: Sequence[int] = ()) -> dict[int, Any]:
        """Read some columns.

        Args:
            text: Positions of columns wanted as they are (from an untyped file: as strings).
            numbers: Positions of columns wanted as float32.

        Returns:
            One `pyarrow.ChunkedArray` per position, all of the same length, at least 1.

        Raises:
            DataError: No rows, a ragged row, a cell that is not a number, a damaged file.
        """

    @abstractmethod
    def row(self, index: int) -> int | None:
        """Return the 1-based row, as an editor shows it, of the data row `index` (0-based)."""

    @abstractmethod
    def cell(self, index: int, position: int) -> str | None:
        """Return one cell as the file has it, or None where that cannot be told any more."""

    def label(self, position: int) -> str | int:
        """Return what an error message calls a column: its name, or its 1-based number."""
        name = self.names[position]
        if not self.has_header or not name.strip():
            return position + 1
        return name if name.isprintable() else quoted(name)  # a message is one line

    def find(self, column: str | int) -> int:
        """Return the position of a column.

        Args:
            column: Its name (exact, else without regard to case and blanks), or its 1-based number.

        Raises:
            DataError: There is no such column, or there are two.
        """
        if isinstance(column, str):
            exact = [i for i, name in enumerate(self.names) if name == column]
            loose = [i for i, name in enumerate(self.names) if simplified(name) == simplified(column)]
            found = exact or loose
            if len(found) == 1:
                return found[0]
            if len(found) > 1:
                raise DataError(self.path, f"one column named {quoted(column)}", f"{len(found)} of them")
        elif 1 <= column <= len(self.names):
            return column - 1
        if isinstance(column, str):
            raise DataError(self.path, f"a column {quoted(column)}", self._columns_shown())
        got = f"{column} ({self._columns_shown()})" if self.has_header else column
        raise DataError(self.path, f"a number of a column, 1 to {len(self.names)}", got)

    def find_first(self, names: Sequence[str]) -> int | None:
        """Return the position of the first column of the header that bears one of these names."""
        if not self.has_header:
            return None
        simple = [simplified(name) for name in self.names]
        return next((simple.index(name) for name in names if name in simple), None)

    def read_as(self, columns: Mapping[str, int], remedy: str) -> str:
        """What was taken for what, in a line for the user.

        Args:
            columns: What for -> position of a column.
            remedy: What to do if the first row has names though none was recognised.
        """
        told = ", ".join(f"{name} = column {self.label(i)}" for name, i in columns.items())
        if self.has_header:
            rest = [quoted(name) for i, name in enumerate(self.names) if i not in columns.values()]
            left = f" and {len(rest) - _REST_SHOWN:,} more" if len(rest) > _REST_SHOWN else ""
            return told + ("; not read: " + ", ".join(rest[:_REST_SHOWN]) + left if rest else "")
        told += f"; no header, row {self.top_row} is data"
        return told if any(_NUMBER.match(cell) for cell in self.top) else f"{told} (if it has names, {remedy})"

    def one_column(self, expected: str) -> DataError:
        """Return the error for a table of a single column where more are needed."""
        cell = self.top[0]
        other = next((mark for mark in "|:/" if mark in cell), None)
        hint = f"if {quoted(other)} separates the columns, say delimiter={other!r}" if other else ""
        if not hint and self.untyped:
            hint = "tab, semicolon, comma and space are known to separate columns"
        return DataError(self.path, expected, f"one: {quoted(cell)}", row=self.top_row, hint=hint)

    def _columns_shown(self) -> str:
        if not self.has_header:
            return f"{counted(len(self.names), 'column')} without a header; give a number from 1 to {len(self.names)}"
        shown = ", ".join(quoted(name) for name in self.names[:20])
        return f"the columns {shown}" + (", ..." if len(self.names) > 20 else "")


def simplified(name: str) -> str:
    """Return a column's name without regard to case, blanks and underscores' kin.

    Example:
        >>> simplified(" Node-ID ")
        'node_id'
    """
    return name.strip().lower().replace("-", "_").replace(" ", "_")


def open_table(
    path: PathLike, *, delimiter: str | None = None, header: bool | None = None, encoding: str | None = None
) -> Table:
    r"""Open a CSV, TSV or Parquet file.

    Args:
        path: The file; its extension tells its format.
        delimiter: What separates the cells of a text file; None to find out.
        header: Whether the first row of a text file names the columns; None to find out.
        encoding: Of a text file without a byte order mark; None for UTF-8.

    Returns:
        The table, with its header read.

    Raises:
        DataError: The file cannot be opened as such a table.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "edges.csv")
        >>> _ = path.write_text("source,target\n0,1\n")
        >>> open_table(path).names
        ('source', 'target')
    """
    kind = file_kind(path, ("text", "parquet"))
    file = check_file(path)
    # The format modules import this one, and neither should cost time where it is not needed.
    if kind == "parquet":
        from sage_attention.recipes.tables_parquet import ParquetTable

        return ParquetTable(file)
    from sage_attention.recipes.tables_text import TextTable

    return TextTable(file, delimiter=delimiter, header=header, encoding=encoding)
