"""Published wheels: smaller, and with the same tables as the source."""

from __future__ import annotations

import shutil
import stat
import zipfile
from pathlib import Path

import pytest

import slim_wheel
from sage_attention.toolchain import data_files
from slim_wheel import join_tables, slim

DATA = Path(__file__).parents[1] / "src/sage_attention/toolchain/data"
TEXT = "sage_attention/toolchain/data/explain/causes/cuda.json"


@pytest.fixture
def joined(tmp_path, monkeypatch):
    """The tables as wheels have them, which are read in place of the source's."""
    data = tmp_path / "data"
    shutil.copytree(DATA, data)
    join_tables(data)
    monkeypatch.setattr(data_files, "_DATA", data)
    yield data
    for function in (data_files.table, data_files._packed):
        function.cache_clear()


def read_from(folder, monkeypatch):
    monkeypatch.setattr(data_files, "_DATA", folder)
    for function in (data_files.table, data_files._packed):
        function.cache_clear()


def test_joined_tables_are_the_same(joined, monkeypatch):
    names = [path.relative_to(DATA).with_suffix("").as_posix() for path in DATA.rglob("*.json")]
    assert len(names) > 25
    assert all(path.is_file() for path in joined.iterdir())
    read_from(DATA, monkeypatch)
    in_source = {name: data_files.table(name) for name in names}
    causes = data_files.tables("explain/causes")
    read_from(joined, monkeypatch)
    assert {name: data_files.table(name) for name in names} == in_source
    assert data_files.tables("explain/causes") == causes
    assert list(data_files.tables("explain/causes")) == list(causes)
    assert sorted(data_files.tables("doctor")) == sorted(path.stem for path in (DATA / "doctor").glob("*.json"))


@pytest.fixture
def wheel(tmp_path):
    """A wheel with a library, code and a table."""
    pytest.importorskip("wheel", reason="is there where wheels are built")
    pytest.importorskip("zopfli", reason="is there where wheels are built")
    from wheel.wheelfile import WheelFile

    path = tmp_path / "made-1.0-py3-none-win_amd64.whl"
    with WheelFile(str(path), "w") as made:
        made.writestr(TEXT, (DATA / "explain/causes/cuda.json").read_bytes())
        made.writestr("sage_attention/code.py", Path(slim_wheel.__file__).read_bytes())
        made.writestr("sage_attention/sage_attention.dll", bytes(range(256)) * 100)
        made.writestr("sage_attention/empty.py", b"")
        made.writestr("made-1.0.dist-info/METADATA", b"Metadata-Version: 2.1\nName: made\nVersion: 1.0\n")
    return path


def test_wheels_stay_wheels(wheel, tmp_path, monkeypatch):
    from wheel.wheelfile import WheelFile

    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1000000000")
    before = wheel.stat().st_size
    slim(wheel, tmp_path / "scratch")
    assert wheel.stat().st_size < before
    once = wheel.read_bytes()
    with WheelFile(str(wheel)) as made:  # compares each file with the sum in RECORD
        assert made.testzip() is None
        names = set(made.namelist())
        assert TEXT not in names
        assert b'"causes/cuda":{' in made.read("sage_attention/toolchain/data/explain.json")
        assert made.read("sage_attention/code.py") == Path(slim_wheel.__file__).read_bytes()
        assert made.read("sage_attention/empty.py") == b""
        assert made.read("sage_attention/sage_attention.dll") == bytes(range(256)) * 100
        assert stat.S_IMODE(made.getinfo("sage_attention/sage_attention.dll").external_attr >> 16) == 0o755
        assert stat.S_IMODE(made.getinfo("sage_attention/code.py").external_attr >> 16) == 0o644
    slim(wheel, tmp_path / "elsewhere")
    assert wheel.read_bytes() == once


def test_zipfile_is_as_it_was(wheel, tmp_path):
    slim(wheel, tmp_path / "scratch")
    with zipfile.ZipFile(tmp_path / "plain.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", b"a" * 1000)
    assert zipfile.ZipFile(tmp_path / "plain.zip").read("a") == b"a" * 1000
    assert not isinstance(zipfile._get_compressor(zipfile.ZIP_DEFLATED), slim_wheel._Compressor)
