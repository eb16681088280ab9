"""The command itself, on the machine at hand and on recorded ones; programs that hang, consoles that cannot show."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading

import pytest
from tests.toolchain.doctor.machine_folders import load

from sage_attention.errors import ArgumentError
from sage_attention.toolchain.doctor import command, facts
from sage_attention.toolchain.doctor.gather import machine as machine_probe
from sage_attention.toolchain.system import RealSystem


def arguments(**changed):
    values = {
        "action": "look", "package": None, "python": None, "verbose": False, "format": "text", "lang": "en",
        "toolset": None, "target": None, "shell": None, **changed,
    }  # fmt: skip
    return argparse.Namespace(**values)


def run(*words):
    return subprocess.run(
        [sys.executable, "-m", "sage_attention", "doctor", *words], capture_output=True, text=True, encoding="utf-8",
        env={**os.environ, "PYTHONIOENCODING": "utf-8"}, check=False,
    )  # fmt: skip


def test_this_machine():
    done = run("--format", "json", "--lang", "en")
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert done.returncode == (1 if found["status"] == "fail" else 0)
    assert any(f["id"] == "python.running" for f in found["findings"])
    assert not any(f["id"] == "probe.crashed" for f in found["findings"])


def test_it_needs_nothing_but_the_standard_library():
    program = (
        "import sys; from sage_attention.cli import main; main(['doctor'])\n"
        "print(*sorted({n.partition('.')[0] for n in sys.modules} & {'numpy', 'torch', 'rich', 'packaging', 'psutil'}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == ""


@pytest.mark.parametrize(("name", "code"), [("vs2019", 0), ("no_cpp", 1), ("two_toolsets", 0), ("vs2026", 1)])
def test_exit_code(name, code, capsys):
    assert command.run(arguments(), load(name)) == code
    assert "Traceback" not in capsys.readouterr().out


def test_wrong_usage():
    done = run("env", "--target", "mips")
    assert done.returncode == 2
    assert "usage:" in done.stderr


def test_a_shell_of_the_other_system():
    with pytest.raises(ArgumentError, match="--shell"):
        command.run(arguments(action="env", shell="cmd"), load("ubuntu"))
    with pytest.raises(ArgumentError, match="Git Bash"):
        command.run(arguments(action="env", shell="bash"), load("vs2019"))


def test_env_prints_a_script(capsys):
    assert command.run(arguments(action="env", shell="powershell", toolset="14.38"), load("two_toolsets")) == 0
    assert "-vcvars_ver=14.38" in capsys.readouterr().out


def test_another_python_by_its_version(capsys):
    machine = load("vs2026")
    other = machine.python["executable"].replace("3.13", "3.14")
    said = json.dumps({**machine.python, "version": "3.14.0", "executable": other})
    machine.spec["commands"].insert(0, {"program": other, "with": ["-c"], "text": said})
    command.run(arguments(python="3.14"), machine)
    assert "Python 3.14.0" in capsys.readouterr().out


def test_a_python_that_is_not_there(capsys):
    assert command.run(arguments(python="2.7"), load("vs2026")) == 1
    assert "python was not found: 2.7" in capsys.readouterr().out


def test_a_hanging_probe_costs_only_itself(monkeypatch):
    release = threading.Event()
    monkeypatch.setattr(machine_probe, "gather", lambda _: release.wait(60))
    try:
        found = facts.gather(load("vs2019"), patience=0.5)
    finally:
        release.set()
    assert [(p.probe, p.reason) for p in found.problems] == [("machine", "timeout")]
    assert found.visual_studios


def test_a_crashing_probe_costs_only_itself(monkeypatch):
    monkeypatch.setattr(machine_probe, "gather", lambda _: 1 // 0)
    found = facts.gather(load("vs2019"))
    assert [(p.probe, p.reason) for p in found.problems] == [("machine", "crashed")]
    assert found.visual_studios


class TestRealSystem:
    def test_a_program_that_hangs(self):
        answer = RealSystem().run([sys.executable, "-c", "import time; time.sleep(60)"], timeout=0.5)
        assert (answer.code, answer.problem) == (None, "timeout")

    def test_a_program_whose_child_keeps_the_pipe(self):
        child = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])"
        answer = RealSystem().run([sys.executable, "-c", child + "; print('4.2')"])
        assert (answer.code, answer.text.strip()) == (0, "4.2")

    def test_a_program_that_prints_without_end(self):
        endless = "import sys\nwhile True: sys.stdout.write('x' * 65536)"
        answer = RealSystem().run([sys.executable, "-c", endless], timeout=60)
        assert (answer.code, answer.text, answer.problem) == (None, "", "unreadable")

    def test_a_program_that_is_missing(self):
        assert RealSystem().run(["/no/such/program"]).problem == "missing"

    def test_a_program_that_waits_for_input(self):
        assert RealSystem().run([sys.executable, "-c", "print(len(input()))"]).code == 1

    def test_files(self, tmp_path):
        system = RealSystem()
        (tmp_path / "a").write_bytes(b"abc")
        assert system.read(str(tmp_path / "a"), 2) == b"ab"
        assert system.read(str(tmp_path)) is None
        assert system.size(str(tmp_path)) is None
        assert system.names(str(tmp_path)) == ("a",)
        assert system.names(str(tmp_path / "a")) == ()
        assert system.size("\0") is None
        assert not system.is_folder("\0")

    def test_memory(self):
        total, free = RealSystem().memory()
        assert total >= free >= 0
