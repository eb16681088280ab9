"""Reports of the toolchain commands on consoles that lack characters, are closed, or are not there."""

from __future__ import annotations

import io
import sys

import pytest

from sage_attention import _console, cli
from sage_attention._console import write, write_script


@pytest.mark.parametrize(
    ("encoding", "text", "printed"),
    [
        ("ascii", "✓ fine ✗", b"ok fine x"),
        ("gbk", "✓ 完整", "ok 完整".encode("gbk")),
        ("cp1252", "✗ " + "path " * 20 + "完", b"x " + b"path " * 20 + b"?"),
        ("cp1252", "✓ 完整的", "✓ 完整的".encode()),  # question marks would say nothing
    ],
)
def test_a_report_on_a_console_that_lacks_characters(encoding, text, printed):
    raw = io.BytesIO()
    console = io.TextIOWrapper(raw, encoding=encoding, write_through=True)
    write(text, console)
    assert raw.getvalue() == printed


def test_a_report_on_a_console_that_is_gone():
    stream = io.StringIO()
    stream.close()
    write("x", stream)


def test_a_report_into_a_closed_pipe(monkeypatch):
    class Closed(io.StringIO):
        def write(self, text):
            raise BrokenPipeError(text)

    monkeypatch.setattr(sys, "stdout", Closed())
    write("text")


def test_a_report_without_a_console(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    write("text")


@pytest.mark.parametrize("command", [["explain"], ["doctor"], ["inspect", sys.executable]], ids=lambda words: words[0])
@pytest.mark.parametrize(("encoding", "chinese"), [("cp936", True), ("cp1252", False), ("ascii", False)])
def test_chinese_only_where_it_can_be_shown(monkeypatch, command, encoding, chinese):
    if command[0] == "inspect":
        pytest.importorskip("elftools", reason="Linux files are read with pyelftools")
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"ninja: build stopped: subcommand failed.")))
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
    assert cli.main(command) in (0, 1)
    shown = raw.getvalue().decode(encoding)
    assert any("\u4e00" <= character <= "\u9fff" for character in shown) == chinese


@pytest.mark.parametrize(
    ("page", "printed"),
    [
        ("cp850", "set A=José\r\n".encode("cp850")),
        ("utf-8", "set A=José\r\n".encode()),
        ("cp936x", "set A=José\n".encode("cp1252")),  # a page that Python does not know
        (None, "set A=José\n".encode("cp1252")),
    ],
)
def test_a_script_is_in_the_code_page_of_the_shell_that_reads_it(monkeypatch, page, printed):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="cp1252", newline="\n"))
    monkeypatch.setattr(_console, "_console_code_page", lambda: page)
    write_script("set A=José\n")
    assert raw.getvalue() == printed


def test_a_script_into_a_closed_pipe(monkeypatch):
    class Closed(io.BytesIO):
        def write(self, data):
            raise BrokenPipeError(data)

    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(Closed(), encoding="cp1252"))
    monkeypatch.setattr(_console, "_console_code_page", lambda: "cp850")
    write_script("set A=José\n")
    monkeypatch.undo()
