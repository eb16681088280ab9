"""Reads delimited text: CSV, TSV, SNAP edge lists.

PyArrow parses; this file finds out the encoding, the comments on top, the delimiter and the header, and,
once PyArrow has refused a file, walks it row by row to name the row and the cell that are wrong.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Any

from sage_attention.errors import ArgumentError, DataError, counted
from sage_attention.recipes.encodings import check_encoding, check_utf8, decoded
from sage_attention.recipes.tables import Table, import_pyarrow, quoted, read_bytes, simplified

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

__all__ = ["TextTable"]

# A semicolon before a comma: "1;0,5" is a number with a decimal comma, not two cells.
_DELIMITERS = ("\t", ";", ",", " ")
_NAMES = {"\t": "tabs", ";": "semicolons", ",": "commas", " ": "spaces"}
_SAMPLE_BYTES = 1 << 20
_SAMPLE_LINES = 50
_TOP = re.compile(rb"(?:[ \t\r]*[#%][^\n]*(?:\n|\Z)|[ \t\r]*\n)*")
_NUMBER = re.compile(r"\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\s*\Z", re.ASCII)
_NOT_FINITE = re.compile(r"\s*[+-]?(?:nan|inf|infinity)\s*\Z", re.IGNORECASE)
# No single letters: those are what people call the nodes of a small example.
# fmt: off
_HEADER_WORDS = frozenset((
    "id", "ids", "node", "nodes", "node_id", "nodeid", "name", "index", "user", "user_id", "item",
    "item_id", "source", "target", "src", "dst", "from", "to", "id_1", "id_2", "id1", "id2",
    "node_1", "node_2", "node1", "node2", "source_id", "target_id", "from_id", "to_id",
    "fromnodeid", "tonodeid", "head", "tail", "label", "labels", "class", "split", "weight",
))
# fmt: on


def is_number(cell: str) -> bool:
    """Tell whether a cell is written as a number, finite or not.

    Example:
        >>> is_number("1e-3"), is_number("nan"), is_number("x1")
        (True, True, False)
    """
    return bool(_NUMBER.match(cell) or _NOT_FINITE.match(cell))


class TextTable(Table):
    """A delimited text file.

    The first row is taken for a header when none of its cells is a number or a date while some cell of the row below
    is one, or when one of its cells is a usual name (id, source, target, label, ...), or its first cell
    is empty (as pandas writes an index). Rows on top that begin with ``#`` or ``%`` are comments.

    Args:
        path: A file that exists.
        delimiter: One character; None to choose among tab, semicolon, comma and space.
        header: Whether the first row is a header; None to find out.
        encoding: Of a file without a byte order mark; None for UTF-8.

    Raises:
        ArgumentError: The delimiter is not one character, or no encoding has that name.
        DataError: The file is not text, or holds no row.
    """

    untyped = True

    def __init__(
        self,
        path: Path,
        *,
        delimiter: str | None = None,
        header: bool | None = None,
        encoding: str | None = None,
    ) -> None:
        if delimiter is not None and (len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n'):
            raise ArgumentError("delimiter", "one ASCII character other than a quote", repr(delimiter))
        self.path = path
        self._delimiter = delimiter
        self._encoding = check_encoding(encoding)
        body = self._load()
        start = self._top(body)
        self.top_row = body.count(b"\n", 0, start) + 1
        lines = self._sample(body, start)
        if not lines:
            raise DataError(path, "a table", "no rows but comments or blank lines")
        check_utf8(path, body[:start] + lines[0].encode(errors="surrogateescape"))
        if delimiter is None:
            self._delimiter = _sniff(lines)
            if self._delimiter == " ":
                body = self._spaces_single(body)
                lines = self._sample(body, self._top(body))
        rows = [self._cells(line) for line in lines]
        self.has_header = _has_header(rows) if header is None else header
        self.names = tuple(cell if self.has_header else str(i + 1) for i, cell in enumerate(rows[0]))
        self.top = tuple(rows[0])
        # Kept only until the columns are read, so that a table held for its row numbers holds no file.
        self._body: bytes | None = body

    @property
    def separated_by(self) -> str:
        """What separates the cells, in words."""
        return "nothing" if self._delimiter is None else _NAMES.get(self._delimiter, repr(self._delimiter))

    def columns(self, text: Sequence[int], numbers: Sequence[int] = ()) -> dict[int, Any]:
        """Read some columns; see `Table.columns`."""
        pa = import_pyarrow("reading CSV files")
        from pyarrow import csv as pyarrow_csv

        body = self._content()
        self._body = None
        start = self._data_start(body)
        if not body[start : start + _SAMPLE_BYTES].strip() and not body[start:].strip():
            raise DataError(self.path, "at least one row under the header", "a header only")
        types = {str(i): pa.string() for i in text}
        types.update({str(i): pa.float32() for i in numbers})
        longest = max(map(len, self._sample(body, start)), default=0)
        quotes = b'"' in body
        try:
            table = pyarrow_csv.read_csv(
                pa.BufferReader(pa.py_buffer(memoryview(body)[start:])),
                read_options=pyarrow_csv.ReadOptions(
                    column_names=[str(i) for i in range(len(self.names))],
                    # A row must fit into a block; wide feature rows do not fit into PyArrow's own megabyte.
                    block_size=min(max(4 << 20, 64 * longest), 1 << 30),
                ),
                parse_options=pyarrow_csv.ParseOptions(delimiter=self._delimiter or ",", newlines_in_values=quotes),
                convert_options=pyarrow_csv.ConvertOptions(
                    column_types=types, include_columns=list(types), null_values=[], strings_can_be_null=False
                ),
            )
        except (pa.ArrowException, ValueError) as error:
            raise self._explained(body, numbers, error) from None
        if body.count(b'"') % 2:
            self._check_last_quote(body)
        if table.num_rows == 0:
            raise DataError(self.path, "at least one row under the header", "a header only")
        return {i: table.column(str(i)) for i in (*text, *numbers)}

    def row(self, index: int) -> int | None:
        """Return the editor's row of a data row; see `Table.row`."""
        found = self._row_at(index)
        return None if found is None else found[0]

    def cell(self, index: int, position: int) -> str | None:
        """Return one cell as the file has it; see `Table.cell`."""
        found = self._row_at(index)
        return None if found is None or position >= len(found[1]) else found[1][position]

    def _load(self) -> bytes:
        body = decoded(self.path, read_bytes(self.path), self._encoding)
        if b"\r" in body and b"\n" not in body:  # the line ends of old Macs
            body = body.replace(b"\r", b"\n")
        return body

    def _content(self) -> bytes:
        if self._body is not None:
            return self._body
        body = self._load()
        return self._spaces_single(body) if self._delimiter == " " else body

    @staticmethod
    def _spaces_single(body: bytes) -> bytes:
        """Make runs of spaces one, and drop them at the ends of rows: PyArrow takes each for a delimiter."""
        if b"  " in body:
            body = re.sub(rb" +", b" ", body)
        if body.startswith(b" ") or any(edge in body for edge in (b"\n ", b" \n", b" \r")):
            body = re.sub(rb" ?(\r?\n) ?", rb"\1", body)
        return body.strip(b" ")

    @staticmethod
    def _top(body: bytes) -> int:
        match = _TOP.match(body)
        return 0 if match is None else match.end()

    @staticmethod
    def _sample(body: bytes, start: int) -> list[str]:
        lines: list[str] = []
        end = start
        # Two rows at least, whole, however long: they tell the columns and the header.
        while end < len(body) and len(lines) < _SAMPLE_LINES and (end - start < _SAMPLE_BYTES or len(lines) < 2):
            found = body.find(b"\n", end)
            stop = len(body) if found < 0 else found
            line = body[end:stop].decode(errors="surrogateescape").rstrip("\r")
            if line.strip():
                lines.append(line)
            end = stop + 1
        return lines

    def _cells(self, line: str) -> list[str]:
        if self._delimiter is None:
            return [line.strip().strip('"')]
        try:
            return next(csv.reader([line], delimiter=self._delimiter), [""])
        except csv.Error:
            return line.split(self._delimiter)

    def _data_start(self, body: bytes) -> int:
        start = self._top(body)
        if self.has_header:
            end = body.find(b"\n", start)
            start = len(body) if end < 0 else end + 1
        return start

    def _rows(self, body: bytes) -> Iterator[tuple[int, list[str]]]:
        """Yield (editor's row, cells) of each data row. Slow: only for what is known to be wrong."""
        start = self._data_start(body)
        above = body.count(b"\n", 0, start)
        text = body[start:].decode(errors="replace")
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=self._delimiter or ",")
        read = 0
        try:
            for cells in reader:
                if cells:
                    yield above + read + 1, cells
                read = reader.line_num
        except csv.Error as error:
            raise DataError(
                self.path,
                "cells of sane length",
                str(error),
                row=above + read + 1,
                hint="is a quote left open?",
            ) from None

    def _check_last_quote(self, body: bytes) -> None:
        """Refuse a quote that is never closed: PyArrow takes all the rows below it for one cell."""
        row = None
        for row, _ in self._rows(body):  # noqa: B007 -- the last one is wanted
            pass
        if row is None:
            return
        start = 0
        for _ in range(row - 1):
            start = body.find(b"\n", start) + 1
        try:
            # A quote within a bare cell, as in 17" wide, is no opening one; the strict reader knows.
            list(csv.reader([body[start:].decode()], delimiter=self._delimiter or ",", strict=True))
        except csv.Error as error:
            if "unexpected end" in str(error):
                got = "a quote that is not closed"
                raise DataError(self.path, "cells with both their quotes", got, row=row) from None

    def _row_at(self, index: int) -> tuple[int, list[str]] | None:
        try:
            return next(islice(self._rows(self._content()), index, None), None)
        except DataError:  # the file has gone or changed since; the message does without the row
            return None

    def _explained(self, body: bytes, numbers: Sequence[int], error: Exception) -> DataError:
        """Find what PyArrow stumbled over."""
        check_utf8(self.path, body)
        width = len(self.names)
        for row, cells in self._rows(body):
            if len(cells) != width:
                got = counted(len(cells), "cell") if len(cells) != 1 else f"1 cell: {quoted(cells[0])}"
                hint = f"cells are taken to be separated by {self.separated_by}"
                return DataError(
                    self.path, f"{counted(width, 'cell')}, as in row {self.top_row}", got, row=row, hint=hint
                )
            for i in numbers:
                if not is_number(cells[i]):
                    return self.not_a_number(cells[i], row, i)
        return DataError(self.path, "delimited text", str(error).splitlines()[0])

    def not_a_number(self, cell: str, row: int | None, position: int) -> DataError:
        """Return the error for a cell that should be a number."""
        hint = ""
        if re.fullmatch(r"\s*-?\d+,\d+\s*", cell):
            hint = "write the decimal sign as a point"
        elif simplified(cell) in ("true", "false"):
            hint = "write 1 and 0"
        got = quoted(cell) if cell.strip() else "an empty cell"
        return DataError(self.path, "a number", got, row=row, column=self.label(position), hint=hint)


def _sniff(lines: list[str]) -> str | None:
    """Choose the delimiter that splits every sampled row alike, else most of them; None for one column."""
    bare = [re.sub(r'"[^"]*"', "", line) for line in lines]
    best, best_share = None, 0.5
    for delimiter in _DELIMITERS:
        counts = [len(line.split()) - 1 if delimiter == " " else line.count(delimiter) for line in bare]
        if counts[0] > 0 and len(set(counts)) == 1:
            return delimiter
        usual, times = Counter(counts).most_common(1)[0]
        if usual > 0 and times / len(counts) > best_share:
            best, best_share = delimiter, times / len(counts)
    if best is None and len(lines) > 1:
        # Too few rows for a majority: what the first row holds at all.
        best = next((d for d in _DELIMITERS if d in bare[0].strip()), None)
    return best


_DATE = re.compile(r"\s*\d{4}[-/]\d{1,2}[-/]\d{1,2}")


def _has_header(rows: list[list[str]]) -> bool:
    first, below = rows[0], rows[1:]
    if any(simplified(cell) in _HEADER_WORDS for cell in first) or (len(first) > 1 and not first[0].strip()):
        return True
    if any(is_number(cell) or _DATE.match(cell) for cell in first):
        return False
    return any(is_number(cell) or _DATE.match(cell) for row in below[:1] for cell in row)
