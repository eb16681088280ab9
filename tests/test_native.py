"""The native library that is missing, damaged, another one, or named in any of the ways that paths are written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sage_attention import _native
from sage_attention.errors import NativeError

REAL = _native._path()


@pytest.fixture
def load(monkeypatch):
    """Loads the library that the variable names."""

    def loaded(named):
        monkeypatch.setenv("SAGE_ATTENTION_LIBRARY", str(named))
        return _native._load()

    return loaded


def refused(load, named):
    with pytest.raises(NativeError) as caught:
        load(named)
    message = str(caught.value)
    assert message.startswith("native library: ")
    assert "unset SAGE_ATTENTION_LIBRARY" in message
    assert "\n" not in message
    return message


def test_files_that_are_no_library(load, tmp_path):
    assert "got no such file" in refused(load, tmp_path / "none.dll")
    assert "got a folder" in refused(load, tmp_path)
    whole = REAL.read_bytes()  # cut within its headers: glibc's loader maps what is cut later on, and dies of it
    for content in (b"", b"a text\n", whole[:50], b"MZ" + bytes(200)):
        (tmp_path / "other.dll").write_bytes(content)
        assert "cannot be loaded" in refused(load, tmp_path / "other.dll")
    refused(load, "x" * 5000)


def test_another_library(load):
    import _ctypes

    other = r"C:\Windows\System32\kernel32.dll" if sys.platform == "win32" else getattr(_ctypes, "__file__", None)
    if other is None:
        pytest.skip("this Python has no extension modules in files of their own")
    assert "has no sage_attention_abi_version: it is another library" in refused(load, other)


def test_another_version(load, monkeypatch):
    """It is told by its number even where functions are missing from it."""
    monkeypatch.setattr(_native, "ABI_VERSION", _native.ABI_VERSION + 1)
    monkeypatch.setitem(_native._SIGNATURES, "sage_attention_of_the_future", (None, []))
    assert f"expected ABI {_native.ABI_VERSION}, got {_native.ABI_VERSION - 1}" in refused(load, REAL)


def test_without_the_variable_the_remedy_is_another(monkeypatch, tmp_path):
    monkeypatch.delenv("SAGE_ATTENTION_LIBRARY", raising=False)
    monkeypatch.setattr(_native, "_path", lambda: tmp_path / "none")
    with pytest.raises(NativeError, match="reinstall sage-graph-attention"):
        _native._load()


def test_names_as_they_are_written(tmp_path, monkeypatch):
    folder = tmp_path / "会员 x"
    folder.mkdir()
    copy = Path(shutil.copy(REAL, folder / ("library" + REAL.suffix)))  # a name that Python would not import
    monkeypatch.chdir(folder)
    names = [copy, copy.name, f".{os.sep}{copy.name}"]
    if sys.platform == "win32":
        drive, rest = os.path.splitdrive(copy)
        names += [
            copy.as_posix(),
            rest,
            drive.lower() + rest,
            drive.upper() + rest,
            drive + copy.name,
            f"\\\\?\\{copy}",
        ]
    # In processes of their own: a library that is loaded cannot be removed on Windows.
    program = "from sage_attention import _native; _native.library(); assert _native._path().is_absolute()"
    for name in names:
        environment = {**os.environ, "SAGE_ATTENTION_LIBRARY": str(name)}
        done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=False)
        assert done.returncode == 0, (name, done.stderr)
