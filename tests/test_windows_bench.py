"""The Windows on Linux that the suite is run on: what it reads, what it skips, what it says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sage_attention import _native

ROOT = Path(__file__).parents[1]
posix = pytest.mark.skipif(sys.platform == "win32", reason="the bench is for Linux; Windows needs none")


@pytest.fixture(autouse=True)
def _tool(monkeypatch):
    folder = ROOT / "tools/windows_bench"
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    yield
    for name in (set(sys.modules) - before) & {path.stem for path in folder.glob("*.py")}:
        del sys.modules[name]


def test_requirements_of_the_tests(tmp_path):
    import packages

    pyproject = tmp_path / "pyproject.toml"
    pyproject.write_text("""
[project]
name = "some-thing"
dependencies = ["numpy>=1"]

[project.optional-dependencies]
tables = [
  "pyarrow>=14",
  "scipy",  # matrices
]
train = ["some-thing[tables]", "torch>=2.4"]
test = ["some-thing[train,more]", "torch-geometric", "pytest>=8"]
more = ["psutil"]
other = ["nox"]
""")
    needed = packages.test_requirements(pyproject)
    assert sorted(needed) == ["numpy>=1", "psutil", "pyarrow>=14", "pytest>=8", "scipy", "torch-geometric"]
    assert {"hypothesis>=6.100", "rich>=13"} <= set(packages.test_requirements(ROOT / "pyproject.toml"))


@pytest.mark.skipif(sys.platform != "win32", reason="needs a Windows DLL")
def test_exported_names():
    import cpython

    assert cpython.exported_names(_native._path().read_bytes()) == sorted(_native._SIGNATURES)


def test_steps_are_done_once(tmp_path):
    import bench

    one = bench.Bench(tmp_path / "a bench", "3.11", "torch")
    done = []
    one._step("python", ["3.11"], lambda: done.append(1))
    one._step("python", ["3.11"], lambda: done.append(2))
    one._step("python", ["3.12"], lambda: done.append(3))
    assert done == [1, 3]
    with pytest.raises(ZeroDivisionError):
        one._step("python", ["3.13"], lambda: 1 / 0)
    one._step("python", ["3.12"], lambda: done.append(4))  # what failed left nothing that could be trusted
    assert done == [1, 3, 4]


@posix
def test_no_wine(monkeypatch, tmp_path):
    import wine

    monkeypatch.setattr(wine, "PLACES", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(wine.platform, "machine", lambda: "x86_64")
    assert wine.find() is None
    if sys.platform == "linux":
        with pytest.raises(wine.NoWineError, match="no apt-get"):
            wine.install()
    monkeypatch.setattr(wine.platform, "machine", lambda: "riscv64")
    with pytest.raises(wine.NoWineError, match="riscv64"):
        wine.install()


@posix
def test_wine_runs_programs(monkeypatch, tmp_path, capfdbinary):
    import wine

    for name, program in {
        "wine64": 'test "$1" = cmd && exit; printf "%s\\r\\n" "$WINEPREFIX" "$@"; exit 7',
        "wineserver64": 'echo "$@" >> "$WINEPREFIX/said"',
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{program}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(wine, "PLACES", (str(tmp_path),))
    prefix = tmp_path / "the prefix"
    prefix.mkdir()
    (prefix / "ready").touch()
    with wine.Wine(prefix) as windows:
        assert windows.run(["a program", "x y"], tmp_path) == 7
    assert capfdbinary.readouterr().out == f"{prefix}\na program\nx y\n".encode()
    assert (prefix / "said").read_text().split() == ["-p", "-k", "-w"]


REPORT = '<testsuites><testsuite tests="10" failures="1" errors="2" skipped="3" time="60"/></testsuites>'


def test_table_of_both_libraries(tmp_path, capsys):
    import suite

    said = []

    def run(command, environment):
        said.append([environment.get(f"SAGE_ATTENTION_{what}") for what in ("LIBRARY", "APPLY_MODEL")])
        report = next(word.partition("=")[2] for word in command if word.startswith("--junitxml="))
        if said[1:]:
            Path(report).write_text(REPORT)
        return len(said)

    builds = {"in the wheel": suite.Build(), "other": suite.Build(tmp_path / "other.dll", tmp_path / "a.exe")}
    assert suite.run_suite(run, builds, ["-q"]) == 1
    # With the drive: programs at work on C: would look there.
    drive = "" if sys.platform == "win32" else "Z:"
    assert said == [[None, None], [f"{drive}{tmp_path / 'other.dll'}", f"{drive}{tmp_path / 'a.exe'}"]]
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["in", "the", "wheel", "0", "0", "0", "0.0", "exit", "status", "1"] in lines
    assert ["other", "4", "3", "3", "1.0", "exit", "status", "2"] in lines
