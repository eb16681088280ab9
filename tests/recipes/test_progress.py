"""Progress is a bar on a terminal, lines in a log, and never a reason to stop."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sage_attention import _console as console
from sage_attention._console import SafeStream
from sage_attention.errors import ArgumentError
from sage_attention.recipes import progress
from sage_attention.recipes.progress import Progress, format_duration

SOURCE = Path(progress.__file__).parents[2]
MESSAGE = "loss 0.31 → [bold]accuracy[/] 准确率"


@pytest.fixture
def clock(monkeypatch):
    """A clock that a test moves itself."""

    class Clock:
        now = 100.0

        def monotonic(self):
            return self.now

    one = Clock()
    monkeypatch.setattr(progress, "time", one)
    return one


def test_a_log_gets_one_line_per_step_with_rate_and_remaining_time(clock):
    log = io.StringIO()
    with Progress(total=3, unit="epoch", stream=log) as p:
        for _ in range(3):
            clock.now += 90
            p.step(message="loss 0.31")
    assert log.getvalue() == (
        "epoch 1/3  loss 0.31  1 min 30 s/epoch, 3 min 00 s left\n"
        "epoch 2/3  loss 0.31  1 min 30 s/epoch, 1 min 30 s left\n"
        "epoch 3/3  loss 0.31  1 min 30 s/epoch\n"
    )


def test_fast_steps_are_counted_per_second(clock):
    log = io.StringIO()
    with Progress(total=4000, unit="batch", stream=log) as p:
        clock.now += 1
        p.step(advance=2000)
    assert log.getvalue() == "batch 2000/4000  2,000 batch/s, 1.0 s left\n"


def test_the_rate_follows_the_latest_steps(clock):
    with Progress(total=100, quiet=True) as p:
        assert p.seconds_per_step is None
        clock.now += 1000
        p.step()
        for _ in range(30):
            clock.now += 2
            p.step()
        assert p.seconds_per_step == pytest.approx(2.0)


def test_unknown_total_and_no_message(clock):
    log = io.StringIO()
    with Progress(total=None, unit="file", stream=log) as p:
        clock.now += 2
        p.step()
    assert log.getvalue() == "file 1  2.0 s/file\n"


@pytest.mark.usefixtures("clock")
def test_steps_without_any_time_between_them():
    log = io.StringIO()
    with Progress(total=2, stream=log) as p:
        p.step()
        p.step()
    assert log.getvalue().count("\n") == 2


def test_lines_can_be_spaced_out_but_the_last_is_shown(clock):
    log = io.StringIO()
    with Progress(total=100, unit="batch", stream=log, seconds_between_lines=10) as p:
        for _ in range(100):
            clock.now += 1
            p.step()
    counts = re.findall(r"batch (\d+)/", log.getvalue())
    assert counts == ["1", "11", "21", "31", "41", "51", "61", "71", "81", "91", "100"]


def test_quiet_says_nothing_but_counts():
    log = io.StringIO()
    with Progress(total=2, quiet=True, stream=log) as p:
        p.note("hello")
        p.step("x")
        p.tick(0.5)
    assert log.getvalue() == ""
    assert p.done == 1


def test_ticks_print_nothing_in_a_log():
    log = io.StringIO()
    with Progress(total=2, stream=log) as p:
        for one in range(50):
            p.tick(one / 50)
    assert log.getvalue() == ""


def test_no_thread_is_started():
    before = threading.active_count()
    with Progress(total=2, stream=io.StringIO()) as p:
        p.step()
        assert threading.active_count() == before


def test_errors_pass_through():
    with pytest.raises(RuntimeError, match="boom"), Progress(total=2, stream=io.StringIO()):
        raise RuntimeError("boom")


def test_a_resumed_run_counts_on_and_rates_only_its_own_steps(clock):
    log = io.StringIO()
    with Progress(total=40, unit="epoch", stream=log, start=30) as p:
        clock.now += 2
        p.step()
    assert log.getvalue() == "epoch 31/40  2.0 s/epoch, 18 s left\n"


def test_a_negative_total_is_refused():
    with pytest.raises(ArgumentError, match="total"):
        Progress(total=-1)


@pytest.mark.parametrize("encoding", ["ascii", "cp936", "cp1252", "cp437", "utf-8"])
def test_no_encoding_can_stop_a_log(encoding):
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, errors="strict", newline="\n", write_through=True)
    with Progress(total=1, unit="epoch", stream=stream) as p:
        p.note("…✓ µ 图 \U0001f600")
        p.step(message=MESSAGE)
    text = raw.getvalue().decode(encoding)
    assert "epoch 1/1" in text
    assert ("准确率" in text) == (encoding in ("cp936", "utf-8"))
    if encoding == "ascii":
        assert text.startswith("...ok u ? ?\n")
        assert "->" in text


def test_a_stream_that_is_gone_is_forgotten():
    class Gone(io.StringIO):
        def write(self, _):
            raise BrokenPipeError(32, "gone")

    with Progress(total=2, stream=Gone()) as p:
        p.step("x")
        p.step("x")
    closed = io.StringIO()
    closed.close()
    with Progress(total=1, stream=closed) as p:
        p.step("x")


def test_no_standard_output_at_all(monkeypatch):
    monkeypatch.setattr(console.sys, "stdout", None)
    with Progress(total=1) as p:
        p.note("x")
        p.step("x")
    with pytest.raises(OSError, match="gone"):
        SafeStream().fileno()


def test_an_encoding_this_python_does_not_know():
    class Odd(io.StringIO):
        encoding = "martian"

    odd = Odd()
    with Progress(total=1, stream=odd) as p:
        p.note("图 ok")
    assert odd.getvalue() == "? ok\n"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (-1, "0 s"), (0.0004, "< 1 ms"), (0.05, "50 ms"), (0.4217, "0.42 s"),
     (0.996, "1.0 s"), (9.98, "10.0 s"),
     (42.3, "42 s"), (59.7, "1 min 00 s"), (185, "3 min 05 s"), (7620, "2 h 07 min"),
     (3 * 86400 + 3600, "3 d 01 h")],
)  # fmt: skip
def test_durations(seconds, text):
    assert format_duration(seconds) == text


SCRIPT = f"""
import sys, time
from sage_attention.recipes.progress import Progress
with Progress(total=3, unit="epoch") as p:
    for step in range(3):
        for part in range(4):
            p.tick(part / 4); time.sleep(0.03)
        if step == 1:
            p.note({MESSAGE!r})
        p.step(message={MESSAGE!r})
print("after")
"""


def on_a_terminal(**environment: str) -> str:
    """What a terminal receives from the script."""
    pty = pytest.importorskip("pty")
    pytest.importorskip("rich")
    ours, theirs = pty.openpty()
    cleaned = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TERM")}
    env = {**cleaned, "PYTHONPATH": str(SOURCE), "TERM": "xterm-256color", "COLUMNS": "120",
           "PYTHONIOENCODING": "utf-8", **environment}  # fmt: skip
    process = subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=theirs, stderr=subprocess.PIPE, env=env)
    os.close(theirs)
    received = b""
    while True:
        try:
            block = os.read(ours, 65536)
        except OSError:  # Linux reports the end of a terminal this way
            break
        if not block:
            break
        received += block
    os.close(ours)
    errors = process.stderr.read().decode() if process.stderr else ""
    if process.stderr:
        process.stderr.close()
    assert process.wait() == 0, errors
    assert errors == ""
    return received.decode(env["PYTHONIOENCODING"].split(":")[0])


def test_a_terminal_gets_a_bar():
    text = on_a_terminal()
    assert "━" in text
    assert "\x1b[2K" in text, "the bar is redrawn in place"
    assert "epoch 3/3" in text
    assert "left" in text
    assert MESSAGE in text, "square brackets are text, not markup"
    assert text.rstrip().endswith("after")
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") >= 1, "the cursor must come back"


def test_no_color_is_honoured():
    coloured = re.compile(r"\x1b\[[0-9;]*(3[0-7]|9[0-7]|38;)[0-9;]*m")
    assert coloured.search(on_a_terminal())
    assert not coloured.search(on_a_terminal(NO_COLOR="1"))


@pytest.mark.parametrize("encoding", ["ascii", "cp936", "cp1252"])
def test_a_terminal_that_cannot_show_the_bar(encoding):
    text = on_a_terminal(PYTHONIOENCODING=encoding)
    assert "epoch 3/3" in text
    assert "--------" in text
    assert "━" not in text
    assert ("准确率" in text) == (encoding == "cp936")


def test_a_dumb_terminal_gets_lines():
    text = on_a_terminal(TERM="dumb")
    assert "\x1b[" not in text
    assert text.count("epoch") >= 3


def test_without_rich_a_terminal_gets_lines(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setitem(sys.modules, "rich.console", None)
    terminal = Terminal()
    with Progress(total=1, unit="epoch", stream=terminal) as p:
        p.tick(0.5)
        p.step("x")
    assert terminal.getvalue().startswith("epoch 1/1  x")
