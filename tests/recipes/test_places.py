"""Where results are written: other drives, drive-relative paths, names that differ in case, files that are read."""

from __future__ import annotations

import errno
import os
import string
import sys
from pathlib import Path

import numpy as np
import pytest

from sage_attention.errors import DataError
from sage_attention.recipes import output
from sage_attention.recipes.apply import output_file

windows = pytest.mark.skipif(sys.platform != "win32", reason="only Windows has drives")


def write_results(folder):
    with output.all_or_nothing(folder, mark="b.json") as beside:
        for name in ("a.json", "b.json"):
            output.write_json(beside / name, str(folder))


def other_drive():
    """A folder on another drive than the current one, or None."""
    here = Path.cwd().drive.upper()
    for letter in string.ascii_uppercase:
        for place in ("tmp", "temp", ""):
            folder = Path(f"{letter}:\\", place, f"sage-test-{os.getpid()}")
            if f"{letter}:" != here:
                try:
                    folder.mkdir()
                except OSError:
                    continue
                return folder
    return None


def test_nothing_is_ever_renamed_from_one_disk_to_another(tmp_path, monkeypatch):
    """All but the folder asked for is another disk, also the current folder and the one for temporary files."""
    elsewhere, home = tmp_path / "C", tmp_path / "D"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    moves = []
    for name in ("replace", "rename", "link"):
        real = getattr(os, name)

        def move(source, target, real=real):
            moves.append(target)
            if not all(Path(path).is_relative_to(home) for path in (source, target)):
                raise OSError(errno.EXDEV, "another disk")
            real(source, target)

        monkeypatch.setattr(output.os, name, move)
    for _ in range(2):
        write_results(output.prepare_output_folder(Path("..", "D")).resolve())
        output.write_npy(home / "single.npy", np.zeros(2))
    assert sorted(path.name for path in home.iterdir()) == ["a.json", "b.json", "single.npy"]
    assert list(elsewhere.iterdir()) == []
    assert moves


@windows
def test_another_drive(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = other_drive()
    if folder is None:
        pytest.skip("no other drive that can be written")
    try:
        for _ in range(2):
            write_results(output.prepare_output_folder(folder / "图 runs"))
        assert sorted(path.name for path in (folder / "图 runs").iterdir()) == ["a.json", "b.json"]
        monkeypatch.chdir(folder)
        write_results(output.prepare_output_folder(tmp_path / "back"))
        assert len(list((tmp_path / "back").iterdir())) == 2
    finally:
        os.chdir(tmp_path)
        output.shutil.rmtree(folder)


@windows
def test_drive_relative_paths(tmp_path, monkeypatch):
    """``C:run`` is the folder run in the current folder of that drive."""
    monkeypatch.chdir(tmp_path)
    drive = tmp_path.drive
    write_results(output.prepare_output_folder(f"{drive}run"))
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["a.json", "b.json"]
    output.write_json(f"{drive}one.json", 1)
    assert (tmp_path / "one.json").is_file()
    assert output_file(f"{drive}p.parquet", (".parquet",), ()) == Path(f"{drive}p.parquet")


def test_what_is_read_is_not_written_over(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("edges.parquet").write_bytes(b"x")
    names = ["edges.parquet", str(tmp_path / "edges.parquet"), "../" + tmp_path.name + "/edges.parquet"]
    if Path("EDGES.PARQUET").exists():  # Windows, and macOS as it comes
        names.append("Edges.Parquet")
    for name in names:
        with pytest.raises(DataError, match="another file than those that are read"):
            output_file(name, (".parquet",), (None, "edges.parquet"))
    assert Path("edges.parquet").read_bytes() == b"x"
    assert output_file("other.parquet", (".parquet",), ("edges.parquet", "no such file", "\0")).name == "other.parquet"
