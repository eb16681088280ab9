"""Versions as tuples of numbers, for comparing."""

from __future__ import annotations

import re

__all__ = ["accepts", "numbers", "short"]

_MOST_DIGITS = 9


def numbers(version: str) -> tuple[int, ...]:
    """The numbers a version starts with.

    Example:
        >>> numbers("17.14.36109.1"), numbers("2.6.0+cu124"), numbers("v12.4"), numbers("none")
        ((17, 14, 36109, 1), (2, 6, 0), (12, 4), ())
    """
    match = re.match(r"\s*v?([0-9]+(?:\.[0-9]+)*)", version)
    return tuple(int(part[:_MOST_DIGITS]) for part in match[1].split(".")[:6]) if match else ()


def short(version: str, parts: int = 2) -> str:
    """The first numbers of a version, joined again.

    Example:
        >>> short("12.4.131"), short("3.11.9", 3)
        ('12.4', '3.11.9')
    """
    return ".".join(str(number) for number in numbers(version)[:parts])


_OPERATORS = {
    ">=": lambda a, b: a >= b,
    "<=": lambda a, b: a <= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    ">": lambda a, b: a > b,
    "<": lambda a, b: a < b,
}


def accepts(condition: str, version: str) -> bool:
    """Whether a version fits a condition, parts that one of the two lacks counting as zero.

    Args:
        condition: Comparisons separated by commas, e.g. ``">=2,<2.4"``; empty: all.
        version: The version; one without numbers fits nothing but the empty condition.

    Example:
        >>> accepts(">=2,<2.4", "2.3.1+cu121"), accepts("<2", "2.0"), accepts("", "x")
        (True, False, True)
    """
    have = numbers(version)
    for part in filter(None, condition.replace(" ", "").split(",")):
        match = re.fullmatch(r"(>=|<=|==|!=|>|<)(.+)", part)
        if match is None or not have:
            return False
        want = numbers(match[2])
        length = max(len(have), len(want))
        if not _OPERATORS[match[1]](have + (0,) * (length - len(have)), want + (0,) * (length - len(want))):
            return False
    return True
