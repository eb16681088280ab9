"""Reads Parquet files; PyArrow does the work, the errors are ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sage_attention.errors import DataError
from sage_attention.recipes.tables import Table, import_pyarrow

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["ParquetTable"]


class ParquetTable(Table):
    """A Parquet file. Its columns have types, so text stays text even where it looks like a number.

    Args:
        path: A file that exists.

    Raises:
        DataError: The file is not Parquet, is cut short or damaged, or has no columns.
    """

    untyped = False
    has_header = True
    top_row = 1

    def __init__(self, path: Path) -> None:
        self.path = path
        self._pa = import_pyarrow("reading Parquet files")
        import pyarrow.parquet as pq

        try:
            # PyArrow is given the open file and not its name, in which some names on Windows would not survive.
            with path.open("rb") as opened, pq.ParquetFile(opened) as file:
                self.names = tuple(str(name) for name in file.schema_arrow.names)
        except (self._pa.ArrowException, OSError, ValueError) as error:
            raise self._damaged(error) from None
        self.top = self.names
        if not self.names:
            raise DataError(path, "at least one column", "none")

    def columns(self, text: Sequence[int], numbers: Sequence[int] = ()) -> dict[int, Any]:
        """Read some columns, each with the type the file gives it; see `Table.columns`."""
        import pyarrow.parquet as pq

        wanted = (*text, *numbers)
        names = [self.names[i] for i in wanted]
        # PyArrow takes "a.b" for a field of a struct and cannot tell two equal names apart.
        plain = len(set(self.names)) == len(self.names) and not any("." in name for name in names)
        try:
            with self.path.open("rb") as opened, pq.ParquetFile(opened) as file:
                table = file.read(columns=names) if plain else file.read()
            table.validate(full=True)
        except (self._pa.ArrowException, OSError, ValueError) as error:
            raise self._damaged(error) from None
        if table.num_rows == 0:
            raise DataError(self.path, "at least one row", "none")
        return {i: table.column(self.names[i] if plain else i) for i in wanted}

    def row(self, index: int) -> int | None:
        """Return the 1-based row; Parquet has no header row to count."""
        return index + 1

    def cell(self, index: int, position: int) -> str | None:
        """Return one cell; see `Table.cell`."""
        return str(self.columns([position])[position][index].as_py())

    def _damaged(self, error: Exception) -> DataError:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        hint = "the file may be cut short or still being written"
        return DataError(self.path, "a Parquet file", f"one that cannot be read ({reason})", hint=hint)
