"""``doctor --for``: what pip says becomes an answer, and what a build needs is held against what is there."""

from __future__ import annotations

import argparse
import json
import os
import sys

import pytest
from tests.toolchain.doctor.machine_folders import ids, load

from sage_attention.errors import ArgumentError
from sage_attention.toolchain.doctor import command
from sage_attention.toolchain.doctor.facts import gather
from sage_attention.toolchain.doctor.gather import index
from sage_attention.toolchain.doctor.judge import judge
from sage_attention.toolchain.doctor.package import judge_package, known
from sage_attention.toolchain.system import RealSystem

NO_MATCH = "ERROR: No matching distribution found for {}\n"


def report(name, version):
    url = f"https://files.example/{name}-{version}-cp311-cp311-win_amd64.whl#sha256=0"
    return json.dumps({"version": "1", "install": [{"download_info": {"url": url}, "metadata": {"version": version}}]})


def look(name, requirement, *, wheel=None, versions="", errors="", code=1, problem=""):
    """What the doctor says of a package on a machine whose pip answers so."""
    machine = load(name)
    python = "python" if machine.platform == "linux" else "python.exe"
    pip = {"program": machine.python["executable"].replace("\\", "/").rpartition("/")[2] or python}
    answer = {"text": wheel, "code": 0} if wheel else {"errors": errors, "code": code, "problem": problem}
    machine.spec.setdefault("commands", [])[:0] = [
        {**pip, "with": ["install", "--dry-run"], **answer},
        {**pip, "with": ["index", "versions"], "text": versions, "code": 0 if versions else 1, "errors": errors},
    ]
    facts = gather(machine)
    return judge_package(machine, facts, requirement, judge(facts)), machine


def test_a_wheel_ends_it():
    found, machine = look("vs2022_17_9", "numpy", wheel=report("numpy", "2.1.0"), versions="numpy (2.1.0)\n")
    assert ids(found) == ["package.wheel"]
    assert found[0].values["wheel"] == "numpy-2.1.0-cp311-cp311-win_amd64.whl"
    assert any("--only-binary" in command and "--dry-run" in command for command in machine.asked)


def test_an_older_version_has_the_wheel():
    found, _ = look("vs2022_17_9", "lxml", wheel=report("lxml", "5.2.0"), versions="lxml (6.0.0)\n")
    assert ids(found)[0] == "package.wheel_older"
    assert found[0].status == "warn"


def test_wheels_on_a_page_for_this_torch():
    found, machine = look("vs2022_17_9", "torch_scatter", wheel=report("torch_scatter", "2.1.2+pt24cu121"))
    assert "package.wheel_links" in ids(found)
    (command,) = [command for command in machine.asked if "--find-links" in command]
    assert "https://data.pyg.org/whl/torch-2.4.0+cu121.html" in command


def test_no_wheel_and_a_machine_that_can_build():
    found, _ = look("vs2022_17_9", "torch-scatter", versions="torch-scatter (2.1.2)\n", errors=NO_MATCH)
    assert ids(found)[0] == "package.no_wheel"
    assert {"package.need.cxx", "package.need.cuda", "package.need.torch"} <= set(ids(found))
    assert ids(found)[-1] == "package.build_no_isolation"


def test_no_wheel_and_a_machine_that_cannot():
    found, _ = look("nothing", "flash-attn", versions="flash-attn (2.8.0)\n", errors=NO_MATCH)
    failed = [finding.id for finding in found if finding.status == "fail"]
    assert failed == [
        "package.need.cxx_missing",
        "package.need.cuda_missing",
        "package.need.torch_missing",
        "package.need.ninja_missing",
    ]
    assert "package.note.flash_attn_windows" in ids(found)
    assert "package.memory_short" in ids(found)


def test_cuda_is_no_need_where_torch_has_none():
    found, _ = look("vs2019", "torch-scatter", versions="torch-scatter (2.1.2)\n", errors=NO_MATCH)
    assert not any("cuda" in i for i in ids(found))


@pytest.mark.parametrize(
    ("errors", "problem", "expected"),
    [
        ("WARNING: ... NewConnectionError('... Failed to establish a new connection')\n" + NO_MATCH, "", "offline"),
        ("WARNING: SSLError(SSLCertVerificationError(1, 'certificate verify failed'))\n" + NO_MATCH, "", "offline"),
        ("/usr/bin/python3: No module named pip\n", "", "no_pip"),
        ("Usage: ...\n\nno such option: --dry-run\n", "", "old_pip"),
        (NO_MATCH, "", "unknown"),
        ("", "timeout", "timeout"),
        ("Traceback (most recent call last):\n  boom\n", "", "failed"),
    ],
)
def test_no_answer_is_no_wheel_and_no_lie(errors, problem, expected):
    found, _ = look("vs2022_17_9", "some-package", errors=errors, problem=problem)
    assert ids(found)[0] == f"package.{expected}"
    assert "package.no_wheel" not in ids(found)


def test_pip_itself_without_a_network(monkeypatch):
    """No mirror listens there: pip must be asked so that it says so, and not that there is no such package."""
    pytest.importorskip("pip", reason="this Python has no pip to ask")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    answer = index.ask(RealSystem(), sys.executable, "torch-scatter")
    assert (answer.wheel, answer.problem) == (None, "offline")
    assert "Failed to establish" in answer.detail or "refused" in answer.detail


def test_a_misspelt_name_needs_nothing():
    found, _ = look("vs2022_17_9", "torch-scater", errors=NO_MATCH)
    assert ids(found) == ["package.unknown"]


@pytest.mark.parametrize("name", ["x;y", "--index-url=http://e", "a b", "", "../x", "-e ."])
def test_not_a_name(name):
    with pytest.raises(ArgumentError, match="--for"):
        look("ubuntu", name)


def test_names_are_spelled_in_many_ways():
    assert known("Torch_Scatter")["name"] == known("torch.scatter")["name"] == "torch-scatter"
    assert known("nobody-knows")["needs"] == ["cxx"]


def test_a_wheel_spares_the_rest(monkeypatch, capsys):
    """Nothing is in the way of a package that need not be built, on a machine that can build nothing."""
    monkeypatch.setattr(index, "ask", lambda *_: index.IndexAnswer("a-1-py3-none-any.whl", "1", "1"))
    arguments = argparse.Namespace(action="look", package="a", python=None, verbose=False, format="text", lang="en")
    assert command.run(arguments, load("nothing")) == 0
    assert "Visual Studio" not in capsys.readouterr().out


def test_what_a_build_trips_over_is_shown(monkeypatch, capsys):
    monkeypatch.setattr(index, "ask", lambda *_: index.IndexAnswer(None, newest="1"))
    arguments = argparse.Namespace(action="look", package="dlib", python=None, verbose=False, format="text", lang="en")
    assert command.run(arguments, load("no_sdk")) == 1
    printed = capsys.readouterr().out
    assert "dlib 1: no wheel" in printed
    assert "no Windows SDK" in printed
