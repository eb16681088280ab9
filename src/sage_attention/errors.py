"""The exceptions of the package: one root, one class per kind of failure.

Every message names the argument or the file, what was expected, what came, and what to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "ArgumentError", "DataError", "MissingDependencyError", "NativeError", "SageAttentionError", "counted",
    "shown_path",
]  # fmt: skip


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number of things, as people write it.

    Args:
        number: How many.
        noun: What, singular.
        plural: Its plural, if that is not with an s.

    Example:
        >>> counted(1, "user"), counted(2000, "user"), counted(0, "class", "classes")
        ('1 user', '2,000 users', '0 classes')
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def shown_path(path: str | Path) -> str:
    r"""A path as its user would write it: without the ``\\?\`` that long ones on Windows are opened with.

    Example:
        >>> print(shown_path(r"\\?\C:\runs"), shown_path(r"\\?\UNC\server\share"))
        C:\runs \\server\share
    """
    text = str(path)
    if text.startswith("\\\\?\\UNC\\"):
        return "\\\\" + text[8:]
    return text.removeprefix("\\\\?\\")


def _made_again(kind: type[SageAttentionError], arguments: tuple[Any, ...], state: dict[str, Any]) -> Exception:
    """An error that was pickled, in a worker process of a data loader for instance."""
    error = kind.__new__(kind, *arguments)
    error.args = arguments
    error.__dict__.update(state)
    return error


class SageAttentionError(Exception):
    """Root of all errors this package raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        # By default the message would be passed for the first argument, and a process pool would break over it.
        return _made_again, (type(self), self.args, self.__dict__)


class ArgumentError(SageAttentionError, ValueError):
    """A function was called with an argument it cannot take.

    Args:
        argument: Name of the argument as the caller wrote it; alone it is the whole message, for torch makes errors
            of its worker processes anew from that.
        expected: What would have been right.
        got: What came instead.
        hint: What to do about it, if that is not obvious.

    Example:
        >>> raise ArgumentError("fan_outs", "a non-empty list of integers", "[]")
        Traceback (most recent call last):
        sage_attention.errors.ArgumentError: fan_outs: expected a non-empty list of integers, got []
    """

    def __init__(self, argument: str, expected: str = "", got: object = "", hint: str = "") -> None:
        self.argument = argument
        self.expected = expected
        self.got = str(got)
        self.hint = hint
        text = f"{argument}: expected {expected}, got {self.got}" if expected else argument
        super().__init__(text + (f"; {hint}" if hint else ""))


class DataError(SageAttentionError, ValueError):
    """A user's file or table holds something that cannot be used.

    The message is one line: ``file, row R, column C: expected ..., got ...; hint``. Rows count from 1
    as an editor shows them, the header included.

    Args:
        path: The file, or None where the data did not come from one.
        expected: What would have been right.
        got: What came instead.
        row: 1-based row (line) in the file, if known.
        column: Name or 1-based number of the column, if known.
        hint: What to do about it.

    Example:
        >>> str(DataError("edges.csv", "an integer node id", "'x'", row=3, column="target"))
        "edges.csv, row 3, column target: expected an integer node id, got 'x'"
    """

    def __init__(
        self,
        path: str | Path | None,
        expected: str,
        got: object,
        *,
        row: int | None = None,
        column: str | int | None = None,
        hint: str = "",
    ) -> None:
        self.path = None if path is None else shown_path(path)
        self.expected = expected
        self.got = str(got)
        self.row = row
        self.column = column
        self.hint = hint
        where = [] if self.path is None else [self.path]
        if row is not None:
            where.append(f"row {row}")
        if column is not None:
            where.append(f"column {column}")
        text = f"expected {expected}, got {self.got}" + (f"; {hint}" if hint else "")
        super().__init__(f"{', '.join(where)}: {text}" if where else text)


class MissingDependencyError(SageAttentionError, ImportError):
    """An optional package is needed for this and is not installed.

    Args:
        package: What is missing.
        needed_for: What it is needed for.
        extra: The extra of this distribution that brings it.
    """

    def __init__(self, package: str, needed_for: str, extra: str) -> None:
        self.package = package
        super().__init__(
            f'{needed_for} needs {package}, which is not installed; run: pip install "sage-graph-attention[{extra}]"'
        )


class NativeError(SageAttentionError, RuntimeError):
    """The native library is missing, does not fit this package, or reported a failure."""
