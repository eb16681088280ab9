"""The output folder holds whole files only, whatever goes wrong."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from sage_attention.errors import ArgumentError, DataError, SageAttentionError
from sage_attention.recipes import output, system_errors

FOLDERS = ["plain", "with space", "图 神经网络", "ünïcode"]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("name", FOLDERS)
def test_a_file_appears_only_when_complete(tmp_path, name):
    folder = output.prepare_output_folder(tmp_path / name)
    target = folder / "数据 file.bin"
    with output.atomic_write(target) as file:
        file.write(b"one")
        assert not target.exists()
        assert len(names(folder)) == 1, "the temporary file must lie in the same folder"
    assert target.read_bytes() == b"one"
    assert names(folder) == [target.name]


def write_half(target: Path, error: BaseException) -> None:
    with output.atomic_write(target) as file:
        file.write(b"half of the n")
        raise error


def test_a_failure_midway_keeps_the_old_file_and_leaves_nothing_behind(tmp_path):
    target = tmp_path / "a.bin"
    target.write_bytes(b"old")
    for error in (RuntimeError("boom"), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            write_half(target, error)
        assert target.read_bytes() == b"old"
        assert names(tmp_path) == ["a.bin"]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.ENOSPC, ["no space left", "free some space"]),
        (errno.EDQUOT, ["no space left", "quota"]),
        (errno.EROFS, ["read-only"]),
        (errno.EIO, [os.strerror(errno.EIO)]),
    ],
)
@pytest.mark.parametrize("where", ["fsync", "replace"])
def test_system_errors_become_one_line_with_file_and_remedy(tmp_path, monkeypatch, code, words, where):
    def fail(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(output.os, where, fail)
    target = tmp_path / "model.safetensors"
    target.write_bytes(b"old")
    with pytest.raises(SageAttentionError) as caught:
        output.write_json(target, {"a": 1})
    message = str(caught.value)
    assert str(target) in message
    assert "\n" not in message
    for word in words:
        assert word in message
    assert target.read_bytes() == b"old"
    assert names(tmp_path) == [target.name]


def test_windows_error_numbers_are_understood(tmp_path):
    class WindowsError(OSError):
        winerror = 0

    cases = {112: "no space left", 39: "no space left", 32: "open in another program", 206: "too long", 395: "OneDrive"}
    for number, word in cases.items():
        error = WindowsError(errno.EINVAL, "whatever")
        error.winerror = number
        assert word in str(system_errors.write_error(tmp_path, error))


@pytest.mark.parametrize("writer", ["npy", "parquet", "safetensors", "json"])
def test_a_really_full_disk(tmp_path, writer):
    """The operating system itself refuses after 64 KB: a limit on file sizes stands for the full disk."""
    pytest.importorskip("resource")
    code = f"""
import resource, sys
import numpy as np
from sage_attention.recipes import output, predictions
from sage_attention.errors import SageAttentionError
import pyarrow.parquet, safetensors.numpy
resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
a = np.random.default_rng(0).random((100_000, 2)).astype(np.float32)
path = {str(tmp_path / "out.bin")!r}
try:
    {{"npy": lambda: output.write_npy(path, a),
     "parquet": lambda: predictions.write_predictions(path, np.arange(len(a)), ["a", "b"], a),
     "safetensors": lambda: output.write_safetensors(path, {{"a": a}}),
     "json": lambda: output.write_json(path, a)}}[{writer!r}]()
except SageAttentionError as error:
    assert "no space left" in str(error) and path in str(error), error
    sys.exit(7)
"""
    source = Path(output.__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(source)},
        check=False,
    )
    assert done.returncode == 7, done.stderr
    assert done.stderr == ""
    assert names(tmp_path) == []


def test_devices_and_folders_are_never_replaced(tmp_path):
    if Path(os.devnull).exists():
        with pytest.raises(SageAttentionError, match=r"not a file|names a device"):
            output.write_json(os.devnull, 1)
    (tmp_path / "folder").mkdir()
    with pytest.raises(SageAttentionError, match="not a file"):
        output.write_json(tmp_path / "folder", 1)


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(SageAttentionError, match="folder does not exist"):
        output.write_json(tmp_path / "gone" / "a.json", 1)


def test_links_are_followed(tmp_path):
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    real.write_text("old")
    try:
        link.symlink_to(real)
    except OSError:
        pytest.skip("no links here")
    if not link.is_symlink():
        pytest.skip("links are made here, but they are none")
    output.write_json(link, 5)
    assert link.is_symlink()
    assert json.loads(real.read_text()) == 5


@pytest.mark.skipif(os.name == "nt", reason="POSIX permissions")
def test_files_get_ordinary_permissions(tmp_path):
    old = os.umask(0o022)
    try:
        output.write_json(tmp_path / "a.json", 1)
    finally:
        os.umask(old)
    assert (tmp_path / "a.json").stat().st_mode & 0o777 == 0o644


def test_prepare_creates_parents_and_expands_home(tmp_path, monkeypatch):
    assert output.prepare_output_folder(tmp_path / "a" / "b").is_dir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert output.prepare_output_folder("~/runs") == tmp_path / "runs"
    assert names(tmp_path / "runs") == [], "the probe must be removed"


def test_a_second_run_touches_only_its_own_files(tmp_path):
    folder = output.prepare_output_folder(tmp_path)
    (folder / "thesis.docx").write_bytes(b"mine")
    output.write_json(folder / "metrics.json", {"run": 1})
    assert output.prepare_output_folder(tmp_path, resume=True) == folder
    output.write_json(folder / "metrics.json", {"run": 2})
    assert (folder / "thesis.docx").read_bytes() == b"mine"
    assert json.loads((folder / "metrics.json").read_text(encoding="utf-8")) == {"run": 2}
    assert names(folder) == ["metrics.json", "thesis.docx"]


def test_leftovers_of_a_killed_run_are_cleared_once_old(tmp_path):
    old, young, foreign = tmp_path / ".sage-0123.tmp", tmp_path / ".sage-4567.tmp", tmp_path / "other.tmp"
    for path in (old, young, foreign):
        path.write_bytes(b"x")
    for path in (old, foreign):
        os.utime(path, (time.time() - 3 * 86400,) * 2)
    output.prepare_output_folder(tmp_path)
    assert names(tmp_path) == [young.name, foreign.name]


def test_resume_needs_a_folder(tmp_path):
    with pytest.raises(DataError, match="no such folder"):
        output.prepare_output_folder(tmp_path / "none", resume=True)
    assert names(tmp_path) == []


@pytest.mark.parametrize("below", ["", "deeper", "deeper/still"])
def test_a_file_in_the_place_of_the_folder(tmp_path, below):
    (tmp_path / "out").write_bytes(b"x")
    with pytest.raises(DataError) as caught:
        output.prepare_output_folder(tmp_path / "out" / below)
    assert "\n" not in str(caught.value)
    assert "choose another folder" in str(caught.value)
    assert (tmp_path / "out").read_bytes() == b"x"


@pytest.mark.parametrize(
    ("code", "word"),
    [(errno.EACCES, "permission denied"), (errno.ENOSPC, "no space left"), (errno.EROFS, "read-only")],
)
def test_an_unwritable_folder(tmp_path, monkeypatch, code, word):
    def refuse(self, *_, **__):
        raise OSError(code, os.strerror(code), str(self))

    monkeypatch.setattr(output.Path, "open", refuse)
    with pytest.raises(DataError, match=word) as caught:
        output.prepare_output_folder(tmp_path / "out")
    assert str(tmp_path / "out") in str(caught.value)


def test_a_path_that_is_too_long(tmp_path):
    long = tmp_path / ("x" * 5_000)
    for resume in (False, True):
        with pytest.raises(DataError, match=r"too long|folder"):
            output.prepare_output_folder(long, resume=resume)
    with pytest.raises(SageAttentionError, match=r"too long|folder"):
        output.write_json(long, 1)


def test_no_space_for_the_probe_is_found_at_once(tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(output.os, "fsync", full)
    with pytest.raises(DataError, match="no space left"):
        output.prepare_output_folder(tmp_path)
    assert names(tmp_path) == []


def test_a_file_system_without_fsync_is_fine(tmp_path, monkeypatch):
    monkeypatch.setattr(output.os, "fsync", lambda _: (_ for _ in ()).throw(OSError(errno.EINVAL, "not here")))
    output.write_json(output.prepare_output_folder(tmp_path) / "a.json", 1)
    assert names(tmp_path) == ["a.json"]


def test_json_takes_what_training_produces(tmp_path):
    value = {
        "accuracy": np.float32(0.5), "loss": float("nan"), "worst": np.float64("inf"),
        "epochs": np.int64(3), "done": np.bool_(True), "sizes": (1, 2), "scores": np.array([[1.0, np.nan]]),
        "file": tmp_path, "类": "图", 3: None,
    }  # fmt: skip
    output.write_json(tmp_path / "m.json", value)
    text = (tmp_path / "m.json").read_text(encoding="utf-8")

    def refuse(constant):
        raise AssertionError(constant)

    assert json.loads(text, parse_constant=refuse) == {
        "accuracy": 0.5, "loss": None, "worst": None, "epochs": 3, "done": True, "sizes": [1, 2],
        "scores": [[1.0, None]], "file": str(tmp_path), "类": "图", "3": None,
    }  # fmt: skip
    assert "图" in text
    assert b"\r" not in (tmp_path / "m.json").read_bytes()


def test_json_names_what_it_cannot_hold(tmp_path):
    with pytest.raises(ArgumentError, match=r"value\['a'\]\[1\].*object"):
        output.write_json(tmp_path / "m.json", {"a": [1, object()]})
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    "array",
    [np.arange(6, dtype=np.float32).reshape(2, 3), np.asfortranarray(np.arange(6).reshape(2, 3)),
     np.zeros((0, 4)), np.float64(3.0), np.array(["a", "图"])],
)  # fmt: skip
def test_npy_round_trip(tmp_path, array):
    output.write_npy(tmp_path / "a.npy", array)
    read = np.load(tmp_path / "a.npy", allow_pickle=False)
    assert read.dtype == np.asarray(array).dtype
    np.testing.assert_array_equal(read, array)


def test_npy_never_pickles(tmp_path):
    with pytest.raises(ArgumentError, match="object"):
        output.write_npy(tmp_path / "a.npy", np.array([{}, None], dtype=object))
    assert names(tmp_path) == []


def test_safetensors_round_trip(tmp_path):
    safetensors = pytest.importorskip("safetensors")
    tensors = {
        "weight": np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)), "scalar": np.float32(2.5),
        "half": np.arange(3, dtype=np.float16), "slice": np.arange(8)[::2], "mask": np.array([True, False]),
    }  # fmt: skip
    output.write_safetensors(tmp_path / "m.safetensors", tensors, {"类": "图"})
    with safetensors.safe_open(str(tmp_path / "m.safetensors"), framework="np") as file:
        assert file.metadata() == {"类": "图"}
        assert set(file.keys()) == set(tensors)
        for name, tensor in tensors.items():
            np.testing.assert_array_equal(file.get_tensor(name), tensor)
            assert file.get_tensor(name).shape == np.shape(tensor)
    output.write_safetensors(tmp_path / "empty.safetensors", {})


def test_safetensors_refuses_nonsense(tmp_path):
    pytest.importorskip("safetensors")
    with pytest.raises(ArgumentError, match="epochs"):
        output.write_safetensors(tmp_path / "m", {}, {"epochs": 3})
    with pytest.raises(ArgumentError, match="names"):
        output.write_safetensors(tmp_path / "m", {"names": np.array(["a"])})
    assert names(tmp_path) == []


def test_half_surrogates_do_not_stop_a_text(tmp_path):
    output.write_text(tmp_path / "t.txt", "bad \udcff name\n")
    assert (tmp_path / "t.txt").read_bytes() == b"bad ? name\n"
