"""``sage-attention inspect``, end to end, on small wheels and files."""

from __future__ import annotations

import json
import sys

import pytest

pytest.importorskip("pefile", reason="Windows files are read with pefile")
pytest.importorskip("elftools", reason="Linux files are read with pyelftools")
pytest.importorskip("packaging", reason="wheels' names are read with packaging")

from tests.toolchain.inspect import binaries

from sage_attention.cli import main

CRT = {"VCRUNTIME140.dll": ["memcpy"], "api-ms-win-crt-heap-l1-1-0.dll": ["malloc"], "KERNEL32.dll": ["Sleep"]}


@pytest.fixture
def inspect(capsys):
    """Runs the command with JSON output; returns the exit code and the document."""

    def run(*words):
        code = main(["inspect", *map(str, words), "--format", "json", "--lang", "en"])
        out, err = capsys.readouterr()
        return code, json.loads(out) if out.strip() else err

    return run


def codes(report, severity=None):
    return {item["code"] for item in report["findings"] if severity in (None, item["severity"])}


def states(row):
    return {node["library"]: node["state"] for node in row["libraries"]}


def test_plain_dll_with_nothing_to_complain_of(tmp_path, inspect):
    path = binaries.wheel(tmp_path, "a-1.0-py3-none-win_amd64.whl", {"a/a.dll": binaries.pe(CRT, ["f"])})
    code, report = inspect(path, "--strict")
    assert code == 0
    assert report["findings"] == []
    assert report["files"][0]["outcome"]["kind"] == "ok"
    assert states(report["files"][0]) == {
        "VCRUNTIME140.dll": "assumed_python", "api-ms-win-crt-heap-l1-1-0.dll": "api_set", "KERNEL32.dll": "known",
    }  # fmt: skip


def test_run_time_libraries_from_nowhere(tmp_path, inspect):
    dll = binaries.pe(
        {**CRT, "MSVCP140.dll": ["_Mtx_lock", "_Mtx_unlock"], "VCOMP140.DLL": ["omp_get_num_threads"]}, ["f"]
    )
    path = binaries.wheel(tmp_path, "a-1.0-py3-none-win_amd64.whl", {"a/a.dll": dll})
    code, report = inspect(path, "--strict")
    assert code == 1
    missing = {item["title"].split()[2].strip(":") for item in report["findings"] if item["code"] == "missing_library"}
    assert missing == {"MSVCP140.dll", "VCOMP140.DLL"}
    (demand,) = [item for item in report["findings"] if item["code"] == "runtime_demand"]
    assert "14.40 or later" in demand["title"]
    assert report["files"][0]["outcome"]["winerror"] == 126
    assert inspect(path)[0] == 0


@pytest.mark.parametrize(("version", "code"), [((14, 38, 33130, 0), "runtime_too_old"), ((14, 44, 35211, 0), None)])
def test_age_of_the_run_time_library(tmp_path, inspect, version, code):
    dll = binaries.pe({**CRT, "MSVCP140.dll": ["_Mtx_lock"]}, ["f"])
    files = {"a/a.dll": dll, "a/msvcp140.dll": binaries.pe(CRT, ["_Mtx_lock"], version=version)}
    _, report = inspect(binaries.wheel(tmp_path, "a-1.0-py3-none-win_amd64.whl", files))
    assert codes(report) == ({code} if code else set())


def test_both_languages_and_the_tree(tmp_path, capsys):
    path = binaries.wheel(tmp_path, "a-1.0-py3-none-win_amd64.whl", {"a/a.dll": binaries.pe({"no.dll": ["f"]}, ["f"])})
    assert main(["inspect", str(path), "--lang", "en"]) == 0
    out = capsys.readouterr().out
    assert "✗ no.dll  not found anywhere" in out
    assert "errors: 1, warnings: 0, notes: 0" in out
    assert main(["inspect", str(path), "--lang", "zh"]) == 0
    assert "任何地方都找不到" in capsys.readouterr().out


def test_several_and_a_pattern(tmp_path, inspect):
    for name in ("a", "b"):
        binaries.wheel(tmp_path, f"{name}-1.0-py3-none-win_amd64.whl", {"a/a.dll": binaries.pe(CRT, ["f"])})
    _, reports = inspect(tmp_path / "*.whl")
    assert [report["tag"] for report in reports] == ["py3-none-win_amd64"] * 2
    assert "a pattern that some file matches" in inspect(tmp_path / "*.zip")[1]


def test_without_the_readers(tmp_path, monkeypatch, capsys):
    path = tmp_path / "a.dll"
    path.write_bytes(binaries.pe(CRT, ["f"]))
    monkeypatch.setitem(sys.modules, "pefile", None)
    assert main(["inspect", str(path)]) == 2
    assert 'pip install "sage-graph-attention[tool]"' in capsys.readouterr().err


@pytest.mark.parametrize("words", [["no such file.whl"], ["no_such_module_at_all"], ["x.pyd"], []])
def test_nothing_there(words, capsys):
    assert main(["inspect", *words]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "expected" in err


def test_one_that_cannot_be_read_costs_no_other(tmp_path, capsys):
    good = binaries.wheel(tmp_path, "a-1.0-py3-none-win_amd64.whl", {"a/a.dll": binaries.pe(CRT, ["f"])})
    bad = tmp_path / "b-1.0-py3-none-win_amd64.whl"
    bad.write_bytes(b"no zip")
    words = ["inspect", str(bad), str(tmp_path / "none.dll"), str(good), "--lang", "en"]
    assert main([*words, "--format", "json"]) == 2
    out, err = capsys.readouterr()
    rows = json.loads(out)
    assert ["error" in row for row in rows] == [True, True, False]
    assert err.count("sage-attention: ") == len(err.splitlines()) == 2
    assert main(words) == 2
    assert "a/a.dll" in capsys.readouterr().out
    assert main(["inspect", str(bad), "--format", "json"]) == 2
    assert json.loads(capsys.readouterr().out)["subject"] == str(bad)


@pytest.mark.parametrize("name", ["", "x" * 5000, "a." * 3000 + "a"])
def test_names_of_nothing(name, capsys):
    assert main(["inspect", name]) == 2
    assert len(capsys.readouterr().err) < 500


def test_links_that_lead_round(tmp_path, inspect):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "a.dll").write_bytes(binaries.pe(CRT, ["f"]))
    try:
        (tmp_path / "a" / "up").symlink_to(tmp_path, target_is_directory=True)
        (tmp_path / "a" / "self.dll").symlink_to("self.dll")
    except OSError:
        pytest.skip("this system does not let us make links")
    code, report = inspect(tmp_path)
    assert code == 0
    assert [row["file"] for row in report["files"]] == ["a/a.dll"]
