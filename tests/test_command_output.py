"""What the command prints reaches any console: code pages that lack characters, pipes, Python's own settings."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="tables are read with PyArrow")

from sage_attention import cli
from sage_attention._console import SafeStream

SOURCE = Path(cli.__file__).parents[1]
SETTINGS = {
    "cp936": {"PYTHONIOENCODING": "cp936"},
    "cp1252": {"PYTHONIOENCODING": "cp1252"},
    "cp437": {"PYTHONIOENCODING": "cp437"},
    "strict ascii": {"PYTHONIOENCODING": "ascii:strict"},
    "utf-8": {"PYTHONIOENCODING": "utf-8"},
    "UTF-8 mode": {"PYTHONUTF8": "1"},
    "no UTF-8 mode, C locale": {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"},
    "as it is": {},
    "the old console of Windows": {"PYTHONLEGACYWINDOWSSTDIO": "1"},
}
DECODED_AS = {"cp936": "cp936", "cp1252": "cp1252", "cp437": "cp437", "strict ascii": "ascii"}
CHANGED = ("PYTHONIOENCODING", "PYTHONUTF8", "PYTHONCOERCECLOCALE", "LC_ALL", "PYTHONLEGACYWINDOWSSTDIO")


def run(words, setting, folder):
    """The command in its own process, both streams piped; what it wrote, decoded as its console would."""
    environment = {name: value for name, value in os.environ.items() if name not in CHANGED}
    paths = os.pathsep.join(path for path in (str(SOURCE), environment.get("PYTHONPATH", "")) if path)
    done = subprocess.run(
        [sys.executable, "-m", "sage_attention", *words], capture_output=True, check=False, cwd=folder,
        env={**environment, "PYTHONPATH": paths, **SETTINGS[setting]},
    )  # fmt: skip
    encoding = DECODED_AS.get(setting, "utf-8")
    errors = "strict" if setting in DECODED_AS else "replace"  # what it is elsewhere, the system decides
    out, err = done.stdout.decode(encoding, errors), done.stderr.decode(encoding, errors)
    assert "Traceback" not in err, err
    assert "UnicodeEncodeError" not in err, err
    return done.returncode, out, err


@pytest.mark.parametrize("setting", SETTINGS)
def test_errors_are_one_line_on_any_console(tmp_path, setting):
    """The name of the file and the cell stand in it, whatever characters they hold."""
    folder = tmp_path / "社交 network"
    folder.mkdir()
    (folder / "边é✓.csv").write_text("source,target\n甲,乙\n丙\n", encoding="utf-8")
    words = ["predict", "--model", "模型", "--edges", "边é✓.csv", "--out", "p.parquet"]
    code, out, err = run(words, setting, folder)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "expected the output folder of a training run" in err
    if setting in ("cp936", "utf-8", "UTF-8 mode"):
        assert "模型" in err
    if setting in ("cp1252", "strict ascii"):
        assert "??" in err


@pytest.mark.parametrize("setting", SETTINGS)
def test_usage_and_help(tmp_path, setting):
    code, out, err = run(["predict", "--undirected", "--edges", "边é✓", "--模型"], setting, tmp_path)
    assert (code, out) == (2, "")
    assert "usage: sage-attention predict" in err.replace("\r\n", "\n")
    for words in (["--help"], ["train", "--help"], ["predict", "--help"]):
        code, out, err = run(words, setting, tmp_path)
        assert (code, err) == (0, "")
        assert "usage: " in out


@pytest.mark.parametrize("setting", ["cp936", "strict ascii", "no UTF-8 mode, C locale"])
def test_a_whole_run(tmp_path, setting):
    pytest.importorskip("torch", reason="training needs torch")
    pytest.importorskip("safetensors", reason="models are written by safetensors")
    folder = tmp_path / "用户 Zoë ✓"
    folder.mkdir()
    pairs = [(i, (i + step) % 12) for i in range(12) for step in (1, 2, 5)]
    names = "甲乙丙丁戊己庚辛壬癸子丑"
    edges = "".join(f"{names[a]},{names[b]}\n" for a, b in pairs)
    (folder / "边.csv").write_bytes(b"\xff\xfe" + ("source,target\n" + edges).encode("utf-16-le"))
    labels = "".join(f"{name},{'猫é' if i % 2 else '犬✓'}\n" for i, name in enumerate(names))
    (folder / "标签.csv").write_text("node,label\n" + labels, encoding="utf-8-sig")
    words = ["train", "--edges", "边.csv", "--labels", "标签.csv", "--out", "结果 ✓", "--epochs", "2"]
    code, out, err = run(words, setting, folder)
    assert (code, err) == (0, "")
    assert "epoch 2/2" in out
    assert "report.html" in out
    report = (folder / "结果 ✓" / "report.html").read_text(encoding="utf-8")
    for text in ("猫é", "犬✓", '<meta charset="utf-8">'):
        assert text in report


def test_help_on_a_console_that_lacks_a_character(monkeypatch, capsys):
    """The help is written through the same stream as all else."""
    shown = []
    monkeypatch.setattr(SafeStream, "write", lambda _, text: shown.append(text) or len(text))
    with pytest.raises(SystemExit):
        cli._parser().parse_args(["train", "--help"])
    assert "--encoding" in "".join(shown)
    assert capsys.readouterr().out == ""
