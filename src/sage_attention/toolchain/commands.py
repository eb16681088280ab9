"""The arguments of ``explain``, ``doctor`` and ``inspect``; each command's module is imported when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .wording import LANGUAGES

if TYPE_CHECKING:
    import argparse

__all__ = ["add_commands"]


def add_commands(commands: Any) -> None:
    """Adds the toolchain commands to the command line.

    Args:
        commands: What ``ArgumentParser.add_subparsers`` gave.
    """


def _add_output_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")
    parser.add_argument(
        "--lang", choices=LANGUAGES, default=None, help="language of the findings (default: that of the system)"
    )
