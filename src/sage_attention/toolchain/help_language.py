"""The help of the command line in Chinese: the parser is made in English, and its texts are exchanged when asked for.

Contract: a command is shown in Chinese wholly or not at all; nothing is loaded unless help in Chinese is asked for.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from .wording import choose_language

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["translate_help"]


def translate_help(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Exchanges a parser's texts, and those of its commands, if help is asked for and the language is Chinese.

    Args:
        parser: The parser; it is changed.
        words: What was typed; ``--lang`` in it decides, else the system.
    """
    if not {"-h", "--help"} & set(words) or choose_language(_asked(words)) != "zh":
        return
    from .data_files import table

    _translate(parser, table("help_zh")["texts"])


def _asked(words: Sequence[str]) -> str | None:
    for word, after in zip(words, [*words[1:], ""]):
        if word == "--lang":
            return after
        if word.startswith("--lang="):
            return word.partition("=")[2]
    return None


def _translate(parser: argparse.ArgumentParser, texts: Mapping[str, str]) -> None:
    def said(text: str | None) -> str | None:
        return texts.get(text, text) if text else text

    parser.description, parser.epilog = said(parser.description), said(parser.epilog)
    parser.formatter_class = _ChineseFormatter
    # argparse has no other way to its parts than these, the same since Python 3.2.
    for group in parser._action_groups:  # noqa: SLF001
        # "options" was "optional arguments" before Python 3.10.
        title = "options" if group.title == "optional arguments" else group.title
        group.title, group.description = said(title), said(group.description)
    for action in parser._actions:  # noqa: SLF001
        if action.help != argparse.SUPPRESS:
            action.help = said(action.help)
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for choice in action._choices_actions:  # noqa: SLF001
                choice.help = said(choice.help)
            for command in action.choices.values():
                if command.description in texts:
                    _translate(command, texts)


class _ChineseFormatter(argparse.RawDescriptionHelpFormatter):
    """Breaks lines where they are full, for Chinese has no spaces; a Chinese character is two columns wide."""

    def add_usage(self, usage: Any, actions: Any, groups: Any, prefix: str | None = None) -> None:
        super().add_usage(usage, actions, groups, "用法：" if prefix is None else prefix)

    def _split_lines(self, text: str, width: int) -> list[str]:
        lines, used = [""], 0
        for piece in _pieces(text):
            size = sum(_columns(character) for character in piece)
            if used and used + size > width and piece not in _NEVER_FIRST:
                lines.append("")
                used = 0
            lines[-1] += piece if used else piece.lstrip()
            used += size
        return [line.rstrip() for line in lines]


_NEVER_FIRST = frozenset("，。；：、）”")


def _columns(character: str) -> int:
    return 2 if character >= "\u1100" else 1


def _pieces(text: str) -> list[str]:
    """Words and spaces whole, every Chinese character by itself."""
    pieces: list[str] = []
    for character in text:
        wide, space = character >= "\u1100", character == " "
        if pieces and not wide and not space and pieces[-1][-1] < "\u1100" and pieces[-1][-1] != " ":
            pieces[-1] += character
        else:
            pieces.append(character)
    return pieces
