r"""Paths as Windows has them: long ones, other drives, shares, and names that are none there."""

from __future__ import annotations

import ntpath
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from sage_attention import _paths
from sage_attention._paths import check_name, extended, refused_part, shown_path, system_path
from sage_attention.errors import DataError

windows = pytest.mark.skipif(sys.platform != "win32", reason="only Windows limits paths to 260 characters")


@pytest.mark.parametrize(
    ("path", "long"),
    [
        ("C:\\runs\\a", "\\\\?\\C:\\runs\\a"),
        ("D:\\", "\\\\?\\D:\\"),
        ("\\\\server\\share\\文件\\a", "\\\\?\\UNC\\server\\share\\文件\\a"),
        ("\\\\?\\C:\\a", "\\\\?\\C:\\a"),
        ("\\\\.\\PhysicalDrive0", "\\\\.\\PhysicalDrive0"),
    ],
)
def test_extended_paths_and_back(path, long):
    assert extended(path) == long
    if not path.startswith(("\\\\?\\", "\\\\.\\")):
        assert shown_path(long) == path


def test_messages_name_files_as_people_do():
    error = DataError("\\\\?\\UNC\\server\\share\\e.csv", "a", "b")
    assert str(error).startswith("\\\\server\\share\\e.csv: ")
    assert error.path == "\\\\server\\share\\e.csv"


def test_only_long_windows_paths_change(monkeypatch):
    long = "C:\\" + "\\".join(["图 神经"] * 60)
    assert system_path("a/b") == Path("a/b")
    monkeypatch.setattr(_paths, "_on_windows", lambda: True)
    monkeypatch.setattr(_paths, "Path", str)
    assert system_path("C:\\short\\a") == "C:\\short\\a"
    assert system_path(long) == "\\\\?\\" + long
    assert system_path("\\\\server\\share\\" + long[3:]) == "\\\\?\\UNC\\server\\share\\" + long[3:]
    assert system_path(long + "\\..\\x/y") == "\\\\?\\" + ntpath.dirname(long) + "\\x\\y", "the prefix takes no dots"


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("CON", "CON"),
        ("nul.csv", "nul.csv"),
        ("runs/Aux.tar.gz/a", "Aux.tar.gz"),
        ("C:\\runs\\com1", "com1"),
        ("lpt² .txt", "lpt² .txt"),
        ("conin$", "conin$"),
        ("run.", "run."),
        ("a\\trailing \\b", "trailing "),
        ("what?.npy", "what?.npy"),
        ("out.npy:stream", "out.npy:stream"),
        ("a\tb", "a\tb"),
        ("\\\\server\\share\\prn.x", "prn.x"),
    ],
)
def test_names_that_are_none_on_windows(path, part, monkeypatch):
    assert refused_part(path)[0] == part
    if os.name != "nt":
        check_name(path)  # names like others here
    monkeypatch.setattr(_paths, "_on_windows", lambda: True)
    with pytest.raises(DataError, match="a name that Windows allows") as caught:
        check_name(path)
    assert repr(part) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "path",
    ["", ".", "..\\a", "C:", "C:run", "C:\\", "D:\\con-fusion\\auxiliary.csv", ".hidden", "社交 network\\é.npy",
     "\\\\?\\C:\\aux", "\\\\server\\share\\a", "com10", "nulls.csv", "console"],
)  # fmt: skip
def test_names_like_others(path, monkeypatch):
    assert refused_part(path) is None
    monkeypatch.setattr(_paths, "_on_windows", lambda: True)
    check_name(path)


@windows
def test_really_long_paths(tmp_path):
    """Folders, files, models and tables at 600 characters and more, through every library that opens files."""
    pytest.importorskip("pyarrow")
    pytest.importorskip("safetensors")
    from safetensors import safe_open

    from sage_attention.recipes import output
    from sage_attention.recipes.predictions import write_predictions
    from sage_attention.recipes.tables import open_table
    from sage_attention.recipes.tables_numpy import read_npy

    deep = tmp_path.joinpath(*["图 神经 network " + "x" * 80] * 5)
    folder = output.prepare_output_folder(deep)
    assert len(str(folder)) > 500
    with output.all_or_nothing(deep, mark="p.parquet") as beside:
        output.write_npy(beside / "a.npy", np.arange(3, dtype=np.int64))
        output.write_safetensors(beside / "m.safetensors", {"w": np.eye(2, dtype=np.float32)})
        write_predictions(beside / "p.parquet", [1, 2], ["x"], np.ones((2, 1), np.float32))
        output.write_text(beside / ("long name " + "y" * 150 + ".csv"), "source,target\n0,1\n")
    assert read_npy(folder / "a.npy").tolist() == [0, 1, 2]
    with safe_open(str(folder / "m.safetensors"), framework="np") as file:
        assert file.get_tensor("w").tolist() == [[1, 0], [0, 1]]
    assert open_table(deep / "p.parquet").names == ("node", "predicted", "probability")
    table = next(path for path in folder.iterdir() if path.suffix == ".csv")
    assert open_table(shown_path(table)).names == ("source", "target")
    with pytest.raises(DataError) as caught:
        open_table(deep / "none.csv")
    assert "\\\\?\\" not in str(caught.value)
