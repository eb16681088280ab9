"""``sage-attention explain`` as it is typed."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import pytest

from sage_attention.cli import main
from sage_attention.toolchain.explain import explain
from sage_attention.toolchain.explain.machine import gather, named, weigh

LOG = "building\nLINK : fatal error LNK1104: cannot open file 'python39_d.lib'\n"


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "build.log"
    path.write_text(LOG, encoding="utf-8")
    return str(path)


def test_text(log, capsys):
    assert main(["explain", log, "--lang", "en"]) == 0
    shown = capsys.readouterr().out
    assert "python_debug_lib_autolink" in shown
    assert "line 2: LINK : fatal error LNK1104" in shown
    assert "cmake --build build --config Release" in shown


def test_chinese(log, capsys):
    assert main(["explain", log, "--lang", "zh"]) == 0
    shown = capsys.readouterr().out
    assert "第 2 行" in shown
    assert "怎么办" in shown


def test_json(log, capsys):
    assert main(["explain", log, "--format", "json", "--lang", "en"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["verdict"] == "explained"
    (finding,) = answer["findings"]
    assert finding["cause"] == "python_debug_lib_autolink"
    assert finding["evidence"] == [{"line": 2, "text": "LINK : fatal error LNK1104: cannot open file 'python39_d.lib'"}]
    assert {"title", "confidence", "fix", "facts_needed"} <= set(finding)
    assert 0 < finding["confidence"] <= 1


@pytest.mark.parametrize(
    ("text", "code"), [(LOG, 0), ("all went well\n", 0), ("ninja: build stopped\n", 1), ("FrobError: x\n", 1)]
)
def test_exit_codes(tmp_path, capsys, text, code):
    path = tmp_path / "a.log"
    path.write_text(text, encoding="utf-8")
    assert main(["explain", str(path)]) == code
    assert capsys.readouterr().err == ""


def test_missing_file_is_wrong_usage(tmp_path, capsys):
    assert main(["explain", str(tmp_path / "none.log")]) == 2
    error = capsys.readouterr().err
    assert "none.log" in error
    assert "Traceback" not in error


def test_folder_is_wrong_usage(tmp_path, capsys):
    assert main(["explain", str(tmp_path)]) == 2
    assert "readable log file" in capsys.readouterr().err


def test_standard_input(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(LOG.encode("utf-16"))))
    assert main(["explain", "--lang", "en"]) == 0
    assert "python_debug_lib_autolink" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("lines", "said"),
    [(3, "line 4: LINK"), (12, "line 13: LINK"), (40, "last 0 MiB, line ")],
    ids=["short", "two", "long"],
)
def test_of_a_very_long_log_both_ends_are_read(tmp_path, monkeypatch, capsys, lines, said):
    monkeypatch.setattr("sage_attention.toolchain.explain.command._HALF", 200)
    path = tmp_path / "build.log"
    path.write_text("0123456789abcdefghi\n" * lines + LOG.partition("\n")[2], encoding="utf-8")
    assert main(["explain", str(path), "--lang", "en"]) == 0
    assert said in capsys.readouterr().out


def test_several_files_say_which(tmp_path, capsys):
    for name, text in (("one.log", "fine\n"), ("two.log", LOG)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert main(["explain", str(tmp_path / "one.log"), str(tmp_path / "two.log"), "--format", "json"]) == 0
    evidence = json.loads(capsys.readouterr().out)["findings"][0]["evidence"][0]
    assert evidence["file"].endswith("two.log")
    assert evidence["line"] == 2


@pytest.mark.parametrize("encoding", ["ascii", "cp936", "cp1252"])
def test_consoles_that_lack_characters(log, monkeypatch, encoding):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
    assert main(["explain", log, "--lang", "zh"]) == 0
    assert b"python_debug_lib_autolink" in raw.getvalue()


def test_english_where_the_console_has_no_chinese(log, monkeypatch):
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="cp1252"))
    assert main(["explain", log]) == 0
    assert b"What to do" in raw.getvalue()


def test_help_teaches(capsys):
    with pytest.raises(SystemExit) as end:
        main(["explain", "--help"])
    assert end.value.code == 0
    shown = capsys.readouterr().out
    for word in ("examples:", "insufficient", "exit code", "build.log"):
        assert word in shown


def test_neither_torch_nor_numpy_is_loaded(log):
    program = (
        "import sys\nfrom sage_attention.cli import main\n"
        f"main(['explain', {log!r}])\nprint('numpy' in sys.modules, 'torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.split()[-2:] == [b"False", b"False"]


class TestMachine:
    BARE = "ImportError: DLL load failed: The specified module could not be found."

    def test_facts_that_speak_for_a_cause(self):
        before = explain(LOG)
        after = weigh(before, "en", {"python_debug_lib": False})
        assert after.findings[0].confidence >= before.findings[0].confidence
        assert "speaks for it" in after.notes[0]

    def test_facts_that_speak_against_a_cause(self):
        before = explain(LOG)
        after = weigh(before, "en", {"python_debug_lib": True})
        assert after.findings[0].confidence < before.findings[0].confidence
        assert "speaks against it" in after.notes[0]

    def test_unknown_facts_change_nothing(self):
        before = explain(self.BARE)
        after = weigh(before, "en", {"vc_runtime": None, "moon_phase": 3})
        assert after.findings == before.findings

    def test_facts_of_the_doctor_by_name(self):
        from sage_attention.toolchain.doctor.facts import Facts, Machine, PythonInstall

        python = PythonInstall("C:/p/python.exe", "3.11.9", "x86", ("running",), "embedded", "C:/p", running=True)
        known = named(Facts(Machine("win32", "x64", long_paths=False, memory=(8 << 30, 1 << 30)), (python,)))
        assert known["compiler"] is False
        assert known["python_bits"] == 32
        assert known["python_headers"] is False
        assert known["long_paths"] is False
        assert known["low_memory"] is True
        linux = named(Facts(Machine("linux", "x64")))
        assert "cl_on_path" not in linux
        assert "python_headers" not in linux

    def test_this_machine(self):
        assert isinstance(gather(), dict)

    def test_no_doctor(self, monkeypatch):
        monkeypatch.setattr("sage_attention.toolchain.explain.machine.gather", lambda: None)
        after = weigh(explain(LOG), "en")
        assert after.findings == explain(LOG).findings
        assert "could not be gathered" in after.notes[0]

    def test_option(self, log, capsys):
        assert main(["explain", log, "--doctor", "--lang", "en"]) == 0
        assert "python_debug_lib_autolink" in capsys.readouterr().out
