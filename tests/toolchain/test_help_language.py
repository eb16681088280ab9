"""Help in Chinese: whole, for the commands that speak it, and only where it is asked for."""

from __future__ import annotations

import argparse

import pytest

from sage_attention import cli
from sage_attention.toolchain.data_files import table
from sage_attention.toolchain.help_language import _ChineseFormatter, _columns

TEXTS = table("help_zh")["texts"]
OURS = ("bench", "explain", "doctor", "inspect")


def commands_of(parser):
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for choice in action._choices_actions:
                yield choice.dest, choice.help, action.choices[choice.dest]


def texts_of(parser):
    """All that a parser says, with its commands' lines."""
    yield from (parser.description, parser.epilog)
    for group in parser._action_groups:
        if group._group_actions:
            yield from ("options" if group.title == "optional arguments" else group.title, group.description)
    for action in parser._actions:
        if action.help != argparse.SUPPRESS:
            yield action.help


def said():
    root = cli._parser()
    parsers = [root]
    found = []
    for name, text, command in commands_of(root):
        found.append(text)
        if name in OURS:
            parsers.append(command)
            for _, words, below in commands_of(command):
                found.append(words)
                parsers.append(below)
    return {text for text in [*found, *(text for parser in parsers for text in texts_of(parser))] if text}


def test_every_text_has_a_translation_and_every_translation_a_text():
    assert said() == set(TEXTS)


def help_of(capsys, *words):
    with pytest.raises(SystemExit) as stop:
        cli.main([*words, "--help"])
    assert stop.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    "command", [("bench",), ("explain",), ("doctor",), ("doctor", "env"), ("inspect",)], ids=" ".join
)
def test_chinese_when_asked_for(capsys, command):
    shown = help_of(capsys, *command, "--lang", "zh")
    assert shown.startswith("用法：sage-attention " + " ".join(command))
    assert "显示此帮助并退出" in shown
    assert not {"usage:", "options:", "default:", "show this help", "exit code"} & set(shown.split("  "))
    english = help_of(capsys, *command, "--lang=en")
    assert english.startswith("usage: ")
    assert "默认" not in english


def test_chinese_on_a_chinese_system(capsys, monkeypatch):
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    monkeypatch.setattr("sage_attention.toolchain.wording.can_show", lambda _: True)
    assert "从编译或导入失败的日志中找出根本原因" in help_of(capsys)
    assert help_of(capsys, "train").startswith("usage: "), "a command is in one language"


@pytest.mark.parametrize("text", [*sorted(TEXTS.values()), "x" * 50, "", "，" * 40])
def test_lines_fit_and_lose_nothing(text):
    lines = _ChineseFormatter("prog")._split_lines(text.replace("\n", " "), 40)
    assert "".join(lines).replace(" ", "") == text.replace("\n", "").replace(" ", "")
    for line in lines:
        longest = max((sum(map(_columns, word)) for word in line.split()), default=0)
        assert sum(map(_columns, line)) <= max(40, longest) + 2 * (len(line) - len(line.rstrip("，。；：、）”")))
