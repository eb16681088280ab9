"""Locks as virus scanners, Excel and OneDrive put them on files: waited for, then one clear line, nothing half done."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

from sage_attention.errors import DataError, SageAttentionError
from sage_attention.recipes import output, system_errors
from sage_attention.recipes.system_errors import is_held, patiently
from sage_attention.recipes.tables import check_file, read_bytes


class WindowsRefusalError(PermissionError):
    """An error with the number that Windows gives, on any system."""

    winerror = 0

    def __init__(self, number: int) -> None:
        super().__init__(errno.EACCES, "refused")
        self.winerror = number


@pytest.fixture
def waits(monkeypatch):
    """The seconds waited, without waiting."""
    seconds: list[float] = []
    monkeypatch.setattr(system_errors.time, "sleep", seconds.append)
    return seconds


def refuse_replacing(monkeypatch, number, times=10**9, held=None):
    """Windows refuses so many renames onto a file, or onto any."""
    real, left = os.replace, [times]

    def replace(source, target):
        if left[0] > 0 and held in (None, Path(target)):
            left[0] -= 1
            raise WindowsRefusalError(number)
        real(source, target)

    monkeypatch.setattr(output.os, "replace", replace)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("number", [5, 32, 33, 1224])
def test_a_rename_refused_for_a_moment_is_tried_again(tmp_path, monkeypatch, waits, number):
    refuse_replacing(monkeypatch, number, times=4)
    output.write_json(tmp_path / "a.json", [1])
    assert len(waits) == 4
    assert waits == sorted(waits)
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8")) == [1]
    assert names(tmp_path) == ["a.json"]


@pytest.mark.parametrize("number", [5, 32])
def test_a_rename_refused_for_good_ends(tmp_path, monkeypatch, waits, number):
    (tmp_path / "a.json").write_text("old", encoding="utf-8")
    refuse_replacing(monkeypatch, number)
    with pytest.raises(SageAttentionError) as caught:
        output.write_json(tmp_path / "a.json", [1])
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'a.json'}: cannot be written: ")
    if number == 32 or os.name == "nt":
        assert "open in another program" in message
        assert "close it there" in message
    assert "\n" not in message
    assert 5 < sum(waits) < 15, "bounded"
    assert (tmp_path / "a.json").read_text(encoding="utf-8") == "old"
    assert names(tmp_path) == ["a.json"]


def test_other_refusals_are_final_at_once(tmp_path, monkeypatch, waits):
    refuse_replacing(monkeypatch, 19)  # the medium is write-protected
    with pytest.raises(SageAttentionError):
        output.write_json(tmp_path / "a.json", [1])
    assert waits == []
    assert not is_held(IsADirectoryError(errno.EISDIR, "x"))
    assert is_held(PermissionError(errno.EACCES, "x")) == (os.name == "nt")


def write_together(folder, what):
    with output.all_or_nothing(folder, mark="z.json") as beside:
        for name in ("a.json", "b.json", "new.json", "z.json"):
            output.write_json(beside / name, what)


@pytest.mark.parametrize("held", ["a.json", "b.json", "new.json", "z.json"])
@pytest.mark.parametrize("links", [True, False])
def test_one_file_held_keeps_all_as_they_were(tmp_path, monkeypatch, waits, held, links):
    """The results belong together: with one of them open in Excel no other is replaced either."""
    for name in ("a.json", "b.json", "z.json", "other.txt"):
        output.write_json(tmp_path / name, "old")
    if not links:  # as on FAT and on some shares

        def no_links(*_):
            raise OSError(errno.EPERM, "no hard links here")

        monkeypatch.setattr(output.os, "link", no_links)
    with monkeypatch.context() as patch:
        refuse_replacing(patch, 32, len(system_errors.LONG) + 1, tmp_path / held)
        with pytest.raises(SageAttentionError, match="open in another program") as caught:
            write_together(tmp_path, "new")
    assert str(caught.value).startswith(str(tmp_path / held))
    texts = {name: json.loads((tmp_path / name).read_text(encoding="utf-8")) for name in names(tmp_path)}
    if links:
        assert texts == dict.fromkeys(("a.json", "b.json", "z.json", "other.txt"), "old")
    else:
        assert "z.json" not in texts, "what says that all are there must not"
    write_together(tmp_path, "new")
    assert names(tmp_path) == ["a.json", "b.json", "new.json", "other.txt", "z.json"]
    assert json.loads((tmp_path / "z.json").read_text(encoding="utf-8")) == "new"
    assert waits


def test_a_file_that_is_held_is_found_before_anything_is_changed(tmp_path, monkeypatch, waits):
    """No second name is made of it, which could not be removed either while it is held."""
    for name in ("a.json", "b.json", "z.json"):
        output.write_json(tmp_path / name, "old")
    real, left = os.rename, [3]

    def rename(source, target):
        assert source == target
        if source.name == "b.json" and left[0] > 0:
            left[0] -= 1
            raise WindowsRefusalError(32)
        real(source, target)

    monkeypatch.setattr(output.os, "rename", rename)
    monkeypatch.setattr(output.os, "link", lambda *_: pytest.fail("too early") if left[0] else None)
    write_together(tmp_path, "new")
    assert len(waits) == 3
    left[0] = 99
    with pytest.raises(SageAttentionError, match=r"b\.json: .*open in another program"):
        write_together(tmp_path, "newer")
    assert names(tmp_path) == ["a.json", "b.json", "new.json", "z.json"]
    assert (tmp_path / "z.json").read_text(encoding="utf-8") == '"new"\n'


def test_ctrl_c_ends_the_waiting(tmp_path, monkeypatch):
    for name in ("a.json", "z.json"):
        output.write_json(tmp_path / name, "old")
    waited = []

    def sleep(seconds):
        waited.append(seconds)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(system_errors.time, "sleep", sleep)
    refuse_replacing(monkeypatch, 5, held=tmp_path / "b.json")
    with pytest.raises(KeyboardInterrupt):
        write_together(tmp_path, "new")
    assert len(waited) == 1
    monkeypatch.undo()
    assert names(tmp_path) == ["a.json", "z.json"]
    assert (tmp_path / "z.json").read_text(encoding="utf-8") == '"old"\n'


def test_the_mark_of_earlier_results_held(tmp_path, monkeypatch, waits):
    for name in ("a.json", "z.json"):
        output.write_json(tmp_path / name, "old")
    real = Path.unlink

    def unlink(path, *more):
        if path.name == "z.json" and len(waits) < 3:
            raise WindowsRefusalError(32)
        real(path, *more)

    monkeypatch.setattr(Path, "unlink", unlink)
    write_together(tmp_path, "new")
    assert len(waits) == 3
    assert (tmp_path / "z.json").read_text(encoding="utf-8") == '"new"\n'


def test_read_only_files_stay(tmp_path, monkeypatch, waits):
    target = tmp_path / "a.json"
    target.write_text("old", encoding="utf-8")
    target.chmod(0o444)
    if os.name != "nt":  # where it is the folder that counts
        monkeypatch.setattr(output, "is_read_only", lambda path: path == target)
    for write in (lambda: output.write_json(target, 1), lambda: write_together(tmp_path, 1)):
        with pytest.raises(SageAttentionError, match="read-only mark"):
            write()
        assert names(tmp_path) == ["a.json"]
        assert target.read_text(encoding="utf-8") == "old"
    assert waits == []
    target.chmod(0o644)


def test_inputs_held_for_a_moment_are_read(tmp_path, monkeypatch, waits):
    table = tmp_path / "edges.csv"
    table.write_bytes(b"0,1\n")
    real, left = Path.open, [2]

    def opened(path, *arguments, **options):
        if path.name == table.name and left[0] > 0:
            left[0] -= 1
            raise WindowsRefusalError(32)
        return real(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", opened)
    assert check_file(table) == table
    assert len(waits) == 2
    left[0] = 99
    with pytest.raises(DataError, match="close what holds it open"):
        check_file(table)
    left[0] = 0
    assert read_bytes(table) == b"0,1\n"


@pytest.mark.usefixtures("waits")
def test_patience_returns_and_raises():
    tries = []

    def action(number):
        tries.append(number)
        if len(tries) < 3:
            raise WindowsRefusalError(33)
        return "done"

    assert patiently(action, 7) == "done"
    assert tries == [7] * 3
    with pytest.raises(ZeroDivisionError):
        patiently(lambda: 1 // 0)


@pytest.mark.skipif(sys.platform != "win32", reason="elsewhere open files are replaced like others")
def test_a_file_that_is_really_open(tmp_path, monkeypatch):
    """Windows itself refuses to replace a file that Python, which does not share it, has open."""
    monkeypatch.setattr(output, "patiently", lambda *a, **o: patiently(*a, **{**o, "delays": (0.01, 0.01)}))
    for name in ("a.json", "z.json"):
        output.write_json(tmp_path / name, "old")
    with (tmp_path / "b.json").open("wb"):
        with pytest.raises(SageAttentionError, match="open in another program"):
            write_together(tmp_path, "new")
        assert names(tmp_path) == ["a.json", "b.json", "z.json"]
        assert (tmp_path / "a.json").read_text(encoding="utf-8") == '"old"\n'
        with pytest.raises(SageAttentionError, match=r"b\.json: cannot be written: .*open in another program"):
            output.write_npy(tmp_path / "b.json", np.zeros(3))
    write_together(tmp_path, "new")
    assert names(tmp_path) == ["a.json", "b.json", "new.json", "z.json"]
