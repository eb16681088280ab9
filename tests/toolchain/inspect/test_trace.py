"""``--trace``: imports in a process of its own, whatever happens there."""

from __future__ import annotations

import json
import os
import sys

import pytest

from sage_attention.cli import main
from sage_attention.toolchain.inspect.trace import exit_code_text


@pytest.fixture
def trace(tmp_path, capsys):
    """Writes a module and traces its import; returns the exit code and the document."""

    def run(text, *words, module="broken"):
        (tmp_path / "broken.py").write_text(text, encoding="utf-8")
        code = main(["inspect", "--trace", module, "--site", str(tmp_path), "--format", "json", "--lang", "en", *words])
        out, err = capsys.readouterr()
        return code, json.loads(out) if out.strip() else err

    return run


def test_works(trace):
    code, row = trace("print('noise on standard output')")
    assert (code, row["error"], row["exit_code"]) == (0, None, None)
    assert row["file"].endswith("broken.py")


def test_exception(trace):
    code, row = trace("import not_there_at_all")
    assert code == 1
    assert row["error"] == "ModuleNotFoundError: No module named 'not_there_at_all'"


def test_first_cause_counts(trace):
    _, row = trace("try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise ImportError('later') from e")
    assert row["error"] == "ZeroDivisionError: division by zero"


def test_a_crash(trace):
    code, row = trace("import os; os._exit(7)")
    assert (code, row["exit_code"], row["error"]) == (1, 7, None)


@pytest.mark.skipif(os.name == "nt", reason="signals are POSIX's")
def test_a_signal(trace):
    _, row = trace("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    assert row["exit_code"] == -11
    assert exit_code_text(-11, "en") == "SIGSEGV"


@pytest.mark.skipif(sys.platform != "linux", reason="a file that Linux's loader refuses")
def test_a_module_that_is_no_library(trace, tmp_path):
    pytest.importorskip("elftools", reason="Linux files are read with pyelftools")
    from tests.toolchain.inspect import binaries

    (tmp_path / "ext.abi3.so").write_bytes(binaries.elf(["libnot_there.so.1"], ["PyInit_ext"]))
    code, row = trace("", module="ext")
    assert code == 1
    assert row["file"].endswith("ext.abi3.so")
    assert "missing_so" in {item["code"] for item in row["report"]["findings"]}


def test_text(tmp_path, capsys):
    (tmp_path / "fine.py").write_text("", encoding="utf-8")
    assert main(["inspect", "--trace", "fine", "--site", str(tmp_path), "--lang", "zh"]) == 0
    assert "成功" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words", [["--trace", "a b"], ["--trace", "a", "file.pyd"], ["--trace", "a", "--python", "no such"]]
)
def test_wrong_usage(words, capsys):
    assert main(["inspect", *words]) == 2
    assert "expected" in capsys.readouterr().err


def test_codes():
    assert exit_code_text(-1073741819, "en").startswith("0xC0000005, access violation") or os.name != "nt"
    assert exit_code_text(0xC0000135, "zh") == "0xC0000135, 找不到 DLL"
    assert exit_code_text(3, "en") == "3"
