"""Ctrl-C at any moment: an exit code, a message, nothing half written, and the unbroken run's result after --resume."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time

import pytest

pytest.importorskip("torch", reason="training needs torch")
pytest.importorskip("pyarrow", reason="tables are read with PyArrow")

from tests.windows import send_break

from sage_attention.cli import main
from sage_attention.recipes import dataset, interrupts, node, output, runs
from sage_attention.recipes.interrupts import as_interrupts, undisturbed
from sage_attention.recipes.synthetic import social_network, write_social_network

RESULTS = {
    "model.safetensors", "config.json", "predictions.parquet", "embeddings.npy", "metrics.json", "report.html",
}  # fmt: skip
CHECKPOINT = {"checkpoint.safetensors"}
TIMED = {"metrics.json", "report.html"}  # they tell how long it took

posix = pytest.mark.skipif(sys.platform == "win32", reason="signals as on POSIX")


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """A training of a few tenths of a second."""
    folder = write_social_network(tmp_path_factory.mktemp("in"), social_network(300, num_communities=3, seed=1))
    files = {"edges": "edges.csv", "features": "features.npy", "labels": "labels.csv"}
    data = [word for name, file in files.items() for word in (f"--{name}", str(folder / file))]
    return ["train", *data, "--batch-size", "60", "--fan-outs", "3,3", "--patience", "1000", "--threads", "2"]


@pytest.fixture(scope="module")
def whole(words, tmp_path_factory):
    """What the unbroken run gives, in this process."""
    out = tmp_path_factory.mktemp("whole")
    assert main([*words, "--epochs", "4", "--out", str(out), "--quiet"]) == 0
    return contents(out)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name not in TIMED}


def names(folder):
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


def run(words, out, *more):
    """The command in this process. Whoever lets an interrupt escape fails the test, not the whole session."""
    try:
        return main([*words, "--epochs", "4", "--out", str(out), *more])
    except KeyboardInterrupt:
        pytest.fail("the interrupt escaped")


def interrupt_in(monkeypatch, module, function):
    """Ctrl-C when a function is called."""
    real = getattr(module, function)

    def interrupted(*arguments, **options):
        signal.raise_signal(signal.SIGINT)
        return real(*arguments, **options)

    monkeypatch.setattr(module, function, interrupted)


def test_while_reading(words, tmp_path, monkeypatch, capsys):
    interrupt_in(monkeypatch, dataset, "read_edges")
    assert run(words, tmp_path / "out") == 130
    assert capsys.readouterr().err == "interrupted\n"
    assert not (tmp_path / "out").exists()


def test_while_writing(words, whole, tmp_path, monkeypatch, capsys):
    interrupt_in(monkeypatch, node, "write_report")
    assert run(words, tmp_path) == 130
    assert "after epoch 4" in capsys.readouterr().err
    assert names(tmp_path) == CHECKPOINT
    monkeypatch.undo()
    assert run(words, tmp_path, "--resume", "--quiet") == 0
    assert contents(tmp_path) == whole


def test_while_writing_over_earlier_results(words, tmp_path, monkeypatch, capsys):
    assert run(words, tmp_path, "--seed", "1", "--quiet") == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    interrupt_in(monkeypatch, node, "write_report")
    assert run(words, tmp_path, "--seed", "2", "--overwrite", "--quiet") == 130
    assert names(tmp_path) == RESULTS | CHECKPOINT
    assert before == {name: (tmp_path / name).read_bytes() for name in RESULTS}
    capsys.readouterr()
    assert run(words, tmp_path, "--seed", "3", "--quiet") == 2
    assert "checkpoint.safetensors of an interrupted run; go on with that by --resume" in capsys.readouterr().err
    monkeypatch.undo()
    assert run(words, tmp_path, "--seed", "2", "--resume", "--quiet") == 0
    assert names(tmp_path) == RESULTS
    assert before["model.safetensors"] != (tmp_path / "model.safetensors").read_bytes()


def test_between_two_renames(words, whole, tmp_path, monkeypatch):
    interrupt_in(monkeypatch, output, "_put_in_place")
    assert run(words, tmp_path, "--quiet") == 130
    monkeypatch.undo()
    # The renames were done all the same, and the run may go on from its end.
    assert names(tmp_path) == RESULTS | CHECKPOINT
    assert run(words, tmp_path, "--resume", "--quiet") == 0
    assert contents(tmp_path) == whole


def test_twice(words, whole, tmp_path, monkeypatch, capsys):
    interrupt_in(monkeypatch, node, "write_report")
    interrupt_in(monkeypatch, runs, "save_checkpoint")
    assert run(words, tmp_path, "--quiet") == 130
    assert "--resume" in capsys.readouterr().err
    assert names(tmp_path) == CHECKPOINT
    monkeypatch.undo()
    assert run(words, tmp_path, "--resume", "--quiet") == 0
    assert contents(tmp_path) == whole


@posix
@pytest.mark.parametrize("moment", range(8))
def test_at_any_moment(words, whole, tmp_path, moment):
    """Wherever the program is by then, with a second Ctrl-C soon after."""
    chance = random.Random(moment)
    threads = threading.active_count()
    left = 2

    def fire(*_):
        nonlocal left
        if (
            signal.getsignal(signal.SIGINT) is not signal.default_int_handler
        ):  # else the command has not begun, or is over
            left -= 1
            if left >= 0:
                signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGALRM, fire)
    start = time.perf_counter()
    delay = (moment + chance.random()) * 0.04
    try:
        signal.setitimer(signal.ITIMER_REAL, delay, chance.choice([0, 0.001, 0.02]))
        code = run(words, tmp_path, "--quiet")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    if code == 130:
        assert time.perf_counter() - start - delay < 1
        assert names(tmp_path) in (set(), CHECKPOINT, RESULTS, RESULTS | CHECKPOINT)
        assert run(words, tmp_path, *(["--resume"] if names(tmp_path) >= CHECKPOINT else []), "--quiet") == 0
    assert code in (0, 130)
    assert names(tmp_path) == RESULTS
    assert contents(tmp_path) == whole
    assert threading.active_count() == threads


@posix
def test_from_outside(words, tmp_path):
    """Ctrl-C, then the end a service manager sends, each to a process in mid-training; then the rest."""
    words = [sys.executable, "-u", "-m", "sage_attention", *words, "--epochs", "30"]
    broken, whole = tmp_path / "broken 中断", tmp_path / "whole"
    unbroken = subprocess.Popen([*words, "--out", str(whole), "--quiet"])
    for number, resume in ((signal.SIGINT, []), (signal.SIGTERM, ["--resume"])):
        process = subprocess.Popen(
            [*words, "--out", str(broken), *resume], stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8"
        )
        epochs = (line for line in process.stdout if line.startswith("epoch "))
        for _ in range(3):
            next(epochs)
        process.send_signal(number)
        _, error = process.communicate(timeout=60)
        assert process.returncode == 128 + number, error
        assert "go on with the same command and --resume" in error
        assert error.count("\n") == 1
        assert names(broken) == CHECKPOINT
    assert subprocess.run([*words, "--out", str(broken), "--resume", "--quiet"], check=False).returncode == 0
    assert unbroken.wait(60) == 0
    assert contents(broken) == contents(whole)
    assert names(broken) == RESULTS


def test_undisturbed_delivers_later():
    done = []
    with pytest.raises(KeyboardInterrupt), undisturbed():  # noqa: PT012 - what comes after the signal is the point
        signal.raise_signal(signal.SIGINT)
        done.append("work")
    assert done == ["work"]
    with undisturbed(forget=True):
        signal.raise_signal(signal.SIGINT)


def test_tidying_up_is_not_interrupted_by_impatience():
    tidied = []
    with pytest.raises(KeyboardInterrupt), as_interrupts() as came:  # noqa: PT012 - so is what comes after it
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            signal.raise_signal(signal.SIGINT)
            tidied.append("all")
    assert (came, tidied) == ([signal.SIGINT], ["all"])


def test_undisturbed_in_another_thread():
    """Only the main thread may set handlers; others have nothing to hold back."""
    done = []

    def work():
        with undisturbed(), as_interrupts():
            done.append("work")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == ["work"]


@posix
def test_handlers_are_put_back():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    with pytest.raises(KeyboardInterrupt), as_interrupts() as came:
        signal.raise_signal(signal.SIGTERM)
    assert came == [signal.SIGTERM]
    assert before == [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]


@posix
def test_ignored_signals_stay_ignored():
    """As nohup wants it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with as_interrupts():
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.skipif(sys.platform != "win32", reason="Ctrl-Break is a signal of Windows")
def test_ctrl_break_from_outside(words, tmp_path):
    """A training in a process group of its own, as terminals and service managers on Windows stop one."""
    command = [sys.executable, "-u", "-m", "sage_attention", *words, "--epochs", "30", "--out", str(tmp_path / "中断")]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
        creationflags=subprocess.CREATE_NEW_PROCESS_GROUP,
    )  # fmt: skip
    for line in process.stdout:
        if line.startswith("epoch 4"):
            break
    if not send_break(process):
        process.kill()
        process.communicate()
        pytest.skip("no console here passes Ctrl-Break on")
    _, error = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGBREAK, error
    assert "go on with the same command and --resume" in error
    assert names(tmp_path / "中断") == CHECKPOINT


@pytest.mark.skipif(sys.platform != "win32", reason="Ctrl-Break is a signal of Windows")
def test_ctrl_break_keeps_what_was_learnt(words, whole, tmp_path, monkeypatch, capsys):
    real = node.write_report

    def interrupted(*arguments):
        signal.raise_signal(signal.SIGBREAK)
        return real(*arguments)

    monkeypatch.setattr(node, "write_report", interrupted)
    assert run(words, tmp_path) == 128 + signal.SIGBREAK
    assert "after epoch 4" in capsys.readouterr().err
    assert names(tmp_path) == CHECKPOINT
    monkeypatch.undo()
    assert run(words, tmp_path, "--resume", "--quiet") == 0
    assert contents(tmp_path) == whole


@pytest.mark.parametrize("event", [2, 5, 6])
def test_the_end_of_a_console_waits_for_the_unwinding(event):
    """Windows calls in a thread of its own and ends the process when the call returns."""
    unwound, answers, seen = threading.Event(), [], []
    windows = threading.Thread(target=lambda: answers.append(interrupts._on_console_event(event, unwound)))
    with as_interrupts() as came:
        try:
            windows.start()
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                time.sleep(0.01)
        except KeyboardInterrupt:
            seen.append(list(answers))
            unwound.set()
    windows.join(60)
    assert came == [signal.SIGINT]
    assert seen == [[]], "Windows is answered only when all is tidied up"
    assert answers == [True]


@pytest.mark.parametrize("event", [0, 1])
def test_ctrl_c_and_ctrl_break_are_left_to_python(event):
    assert interrupts._on_console_event(event, threading.Event()) is False
