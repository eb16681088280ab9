"""A result and its tables for a console."""

from __future__ import annotations

import sys
from typing import IO, TYPE_CHECKING

from sage_attention._console import SafeStream
from sage_attention.bench.tables import tables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sage_attention.bench.result import Result

__all__ = ["print_table", "show"]


def print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], stream: IO[str] | None = None, left: int = 1
) -> None:
    """Prints a table on any console.

    Args:
        title: What stands above it.
        columns: Names of the columns.
        rows: A cell for each column.
        stream: Where; standard output by default.
        left: How many columns, the first ones, are words and aligned to the left; the others are numbers.

    Example:
        >>> print_table("A table", ["a", "b"], [["one", "1"], ["two", "22"]])
        <BLANKLINE>
        A table
        a     b
        one   1
        two  22
    """
    if not rows:
        return
    out = SafeStream(sys.stdout if stream is None else stream)
    widths = [max(len(row[number]) for row in [columns, *rows]) for number in range(len(columns))]
    out.write(f"\n{title}\n")
    for row in [columns, *rows]:
        cells = [
            cell.ljust(width) if number < left else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths))
        ]
        out.write("  ".join(cells).rstrip() + "\n")
    out.flush()


def show(result: Result, stream: IO[str] | None = None) -> None:
    """Prints what was measured: the machine, a table for each part, what was left out, what to know of it.

    Args:
        result: What was measured.
        stream: Where; standard output by default.
    """
    target = sys.stdout if stream is None else stream
    out = SafeStream(target)
    problem = result.problem
    graph = problem.graph
    out.write("\n".join(result.machine.lines()) + "\n")
    size = f"{problem.heads} heads x {problem.channels} channels, float32; rows of all nodes: "
    size += f"{problem.table_bytes / 2**20:,.1f} MiB"
    out.write(f"{problem.name}: {graph.num_nodes:,} nodes, {graph.num_edges:,} edges; {size}\n")
    out.flush()
    for table in tables(result):
        print_table(table.title, table.columns, table.rows, target, table.left)
    out.write("\n")
    for why, what in result.why_left_out():
        out.write(f"left out, as {why}: {'; '.join(what)}\n")
    for note in result.notes():
        out.write(f"note: {note}\n")
    out.flush()
