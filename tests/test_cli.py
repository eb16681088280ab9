"""The command line, end to end: what people type, what they get, and what a wrong file says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="training needs torch")
pytest.importorskip("pyarrow", reason="tables are read with PyArrow")

import pyarrow as pa
from pyarrow.parquet import read_table, write_table

from sage_attention.cli import main
from sage_attention.recipes.synthetic import social_network, write_social_network

RESULTS = {
    "model.safetensors", "config.json", "predictions.parquet", "embeddings.npy", "metrics.json", "report.html",
}  # fmt: skip
QUICK = ["--epochs", "2", "--batch-size", "100", "--fan-outs", "3,3"]


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """A small network as files, in a folder whose name people have."""
    folder = tmp_path_factory.mktemp("社交 network")
    return write_social_network(folder, social_network(300, num_communities=3, seed=1))


def data_of(folder, **instead):
    files = {"edges": "edges.csv", "features": "features.npy", "labels": "labels.csv", **instead}
    return [word for name, file in files.items() for word in (f"--{name}", str(folder / file))]


def run(*words, **environment):
    """The command in its own process."""
    return subprocess.run(
        [sys.executable, "-m", "sage_attention", *map(str, words)], capture_output=True, text=True, check=False,
        encoding="utf-8", env={**os.environ, "PYTHONIOENCODING": "utf-8", **environment},
    )  # fmt: skip


def test_train_predict_embed(network, tmp_path, capsys):
    out = tmp_path / "结果 folder"
    assert main(["train", *data_of(network), "--out", str(out), *QUICK]) == 0
    assert {path.name for path in out.iterdir()} == RESULTS
    metrics = json.loads((out / "metrics.json").read_text(encoding="utf-8"))
    wanted = {"test_accuracy", "val_accuracy", "epochs", "seconds_per_epoch", "peak_rss_mb", "seed", "versions"}
    assert wanted <= set(metrics)
    shown = capsys.readouterr().out
    assert "epoch 2/2" in shown
    assert "test accuracy" in shown
    predictions = tmp_path / "again.parquet"
    apply = ["--model", str(out), "--edges", str(network / "edges.csv"), "--features", str(network / "features.npy")]
    assert main(["predict", *apply, "--out", str(predictions), "--threads", "1"]) == 0
    assert predictions.read_bytes() == (out / "predictions.parquet").read_bytes()
    embeddings = tmp_path / "again.npy"
    assert main(["embed", *apply, "--out", str(embeddings)]) == 0
    np.testing.assert_array_equal(np.load(embeddings), np.load(out / "embeddings.npy"))
    assert np.load(tmp_path / "again.ids.npy").tolist() == list(range(300))


def test_same_results_on_one_and_two_threads(tmp_path):
    """Ours, and those of the libraries beneath, whose sums may depend on them."""
    folder = write_social_network(tmp_path / "in", social_network(3000, num_communities=3, seed=1))
    for threads in ("1", "2"):
        others = {"OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
        words = ["train", *data_of(folder), "--out", tmp_path / threads, "--epochs", "2", "--threads", threads]
        done = run(*words, "--quiet", **others)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    for name in RESULTS - {"metrics.json", "report.html"}:  # they tell how long it took
        first, second = (tmp_path / threads / name for threads in ("1", "2"))
        assert first.read_bytes() == second.read_bytes()


def test_second_run_into_the_same_folder(network, tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("keep")
    words = ["train", *data_of(network), "--out", str(tmp_path), *QUICK, "--quiet"]
    assert main([*words, "--seed", "1"]) == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert main([*words, "--seed", "2"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "choose another --out, or replace them with --overwrite" in error
    assert all(name in error for name in RESULTS)
    assert main([*words, "--resume"]) == 2  # nothing was interrupted
    assert main([*words, "--resume", "--overwrite"]) == 2
    assert "no --resume beside it" in capsys.readouterr().err
    assert before == {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert main([*words, "--seed", "2", "--overwrite"]) == 0
    assert json.loads((tmp_path / "metrics.json").read_text())["seed"] == 2
    assert {path.name for path in tmp_path.iterdir()} == {*RESULTS, "mine.txt"}


def test_without_features(network, tmp_path, capsys):
    edges, labels = str(network / "edges.csv"), str(network / "labels.csv")
    assert main(["train", "--edges", edges, "--labels", labels, "--out", str(tmp_path / "o"), *QUICK, "--quiet"]) == 0
    file, written = tmp_path / "p.parquet", tmp_path / "o" / "predictions.parquet"
    words = ["predict", "--model", str(tmp_path / "o"), "--edges", edges, "--out", str(file)]
    assert main(words) == 0
    assert " nodes: " in capsys.readouterr().out
    again, first = ({tuple(row.values()) for row in read_table(f).to_pylist()} for f in (file, written))
    assert again < first  # members without a single tie are known from the labels alone
    assert len(again) > 200
    assert main([*words, "--features", str(network / "features.npy")]) == 2
    assert "trained without" in capsys.readouterr().err


def test_a_log_says_what_its_figures_are(tmp_path, capsys):
    """Of which nodes, and in which unit; one of a thing is not several."""
    (tmp_path / "edges.csv").write_text("source,target\na,b\n", encoding="utf-8")
    (tmp_path / "features.csv").write_text("id,x\na,0\nb,1\n", encoding="utf-8")
    (tmp_path / "labels.csv").write_text("id,label,split\na,0,train\nb,1,train\n", encoding="utf-8")
    words = ["train", *data_of(tmp_path, features="features.csv"), *QUICK, "--out", str(tmp_path / "out")]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert "2 nodes, 1 edge, 1 feature, 2 classes; labelled nodes: 2 to train" in shown
    assert re.search(
        r"^epoch 1/2  train loss \d\.\d{4}  train accuracy [\d.]+  .*epoch.*, .*s left$", shown, re.MULTILINE
    )
    (tmp_path / "labels.csv").write_text("id,label,split\na,0,train\nb,1,val\n", encoding="utf-8")
    assert main([*words, "--overwrite"]) == 0
    assert re.search(r"  train loss [\d.]+  val loss [\d.]+  val accuracy ", capsys.readouterr().out)


def test_hints_before_training(tmp_path, capsys):
    """Ages beside shares, and ties written once: nothing wrong, and seldom what was meant."""
    nodes = [f"会员{i}" for i in range(40)]
    (tmp_path / "edges.csv").write_text(
        "source,target\n" + "".join(f"{n},{nodes[0]}\n" for n in nodes[1:]), encoding="utf-8"
    )
    rows = "".join(f"{n},{i % 2},{20 + i}\n" for i, n in enumerate(nodes))
    (tmp_path / "features.csv").write_text("id,share,age\n" + rows, encoding="utf-8")
    labels = "".join(f"{n},{'ab'[i % 2]}\n" for i, n in enumerate(nodes))
    (tmp_path / "labels.csv").write_text("id,label\n" + labels, encoding="utf-8")
    words = ["train", *data_of(tmp_path, features="features.csv"), *QUICK, "--out", str(tmp_path / "out")]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert "40 nodes, 39 edges, 2 features, 2 classes; labelled nodes: 24 to train, 8 to validate, 8 to test" in shown
    assert "hint: 39 nodes (98%) have no incoming edge" in shown
    assert "hint: features are large (number 2 of 2 is 41 in root mean square)" in shown
    report = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "add --undirected" in report
    assert main([*words, "--undirected", "--normalize", "row", "--overwrite"]) == 0
    assert "hint:" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "name", "suffix"), [("predict", "p.json", ".parquet or .csv"), ("embed", "e.CSV", ".npy")]
)
def test_results_are_not_named_as_what_they_are_not(network, tmp_path, capsys, command, name, suffix):
    words = ["--model", str(tmp_path), "--edges", str(network / "edges.csv"), "--out", str(tmp_path / name)]
    assert main([command, *words]) == 2
    assert f"ends in {suffix}" in capsys.readouterr().err
    assert not (tmp_path / name).exists()


def test_a_folder_is_not_taken_for_a_file(network, tmp_path, capsys):
    words = ["--model", str(tmp_path), "--edges", str(network / "edges.csv"), "--out", str(tmp_path / "new") + "/"]
    assert main(["predict", *words]) == 2
    assert "name a file in it" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_all_neighbours(network, tmp_path):
    """The documented -1, as people type it."""
    words = ["train", *data_of(network), "--epochs", "1", "--quiet"]
    assert main([*words, "--fan-outs", "-1,-1", "--out", str(tmp_path / "a")]) == 0
    assert main([*words, "--fan-outs=-1,-1", "--out", str(tmp_path / "b")]) == 0
    both = [(tmp_path / name / "model.safetensors").read_bytes() for name in "ab"]
    assert both[0] == both[1]


def test_results_beyond_float32(network, tmp_path, capsys):
    assert main(["train", *data_of(network), "--out", str(tmp_path / "o"), *QUICK, "--quiet"]) == 0
    np.save(tmp_path / "huge.npy", np.full_like(np.load(network / "features.npy"), 3e38))
    words = ["--model", str(tmp_path / "o"), "--edges", str(network / "edges.csv")]
    words += ["--features", str(tmp_path / "huge.npy")]
    for command, name in (("predict", "p.parquet"), ("embed", "e.npy")):
        assert main([command, *words, "--out", str(tmp_path / name)]) == 2
        shown = capsys.readouterr().err.strip()
        assert "huge.npy: expected finite results" in shown
        assert "\n" not in shown
        assert not (tmp_path / name).exists()


def test_what_is_missing_is_said_before_anything_is_read(network, capsys):
    assert main(["train", "--edges", str(network / "edges.csv"), "--out", "unused"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "--labels: expected a file" in shown.err


def test_relative_paths(network, tmp_path, monkeypatch):
    monkeypatch.chdir(network)
    out = os.path.relpath(tmp_path / "o", network)
    assert main(["train", *data_of(Path()), "--out", out, *QUICK, "--quiet"]) == 0
    report = re.sub("<[^>]*>", "", (tmp_path / "o" / "report.html").read_text(encoding="utf-8"))
    assert f"sage-attention train --edges edges.csv --features features.npy --labels labels.csv --out {out}" in report


def test_demo(tmp_path):
    assert main(["demo", "--members", "400", "--out", str(tmp_path / "demo"), "--quiet"]) == 0
    assert {path.name for path in (tmp_path / "demo").iterdir()} == RESULTS


# What is wrong -> how the files are spoilt, and what the one line must say.
def _write(name, text):
    return lambda folder: (folder / name).write_text(text, encoding="utf-8")


def _append(name, text):
    return lambda folder: (folder / name).open("a", encoding="utf-8").write(text)


def _cut(name):
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-100])


def _not_a_number(folder):
    features = np.load(folder / "features.npy")
    features[7, 3] = np.nan
    np.save(folder / "features.npy", features)


def _directory(folder):
    (folder / "edges.csv").unlink()
    (folder / "edges.csv").mkdir()


def _single_member(folder):
    lines = (folder / "labels.csv").read_text(encoding="utf-8").splitlines()
    lines[1] = lines[1].split(",")[0] + ",a class of its own"
    (folder / "labels.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _word_among_numbers(folder):
    lines = ["node,age,height", *(f"{node},{node % 7},1.5" for node in range(60))]
    lines[5] = "4,old,1.5"
    (folder / "features.csv").write_text("\n".join(lines), encoding="utf-8")


def _truncated_parquet(folder):
    write_table(pa.table({"source": range(50), "target": range(1, 51)}), folder / "edges.parquet")
    _cut("edges.parquet")(folder)


def _truncated_npz(folder):
    np.savez(folder / "edges.npz", edge_index=np.arange(60).reshape(2, 30))
    _cut("edges.npz")(folder)


SPOILT = {
    "word among numbers": (_word_among_numbers, "features.csv, row 6, column age"),
    "truncated Parquet": (_truncated_parquet, "edges.parquet"),
    "truncated NPZ": (_truncated_npz, "edges.npz"),
    "model for data": (_write("labels.csv", "PK\x03\x04"), "labels.csv"),
    "class with one member": (_single_member, "a class of its own"),
    "missing file": (lambda folder: (folder / "edges.csv").unlink(), "edges.csv"),
    "empty file": (_write("edges.csv", ""), "edges.csv"),
    "header only": (_write("edges.csv", "source,target\n"), "edges.csv"),
    "wrong delimiter": (_write("edges.csv", "source|target\n1|2\n"), "edges.csv"),
    "ragged row": (_append("edges.csv", "5\n"), "edges.csv, row"),
    "unknown node": (_append("edges.csv", "5,9999\n"), "9999"),
    "negative id": (_append("edges.csv", "5,-3\n"), "-3"),
    "fractional id": (_append("edges.csv", "5,1.5\n"), "1.5"),
    "duplicate label": (_append("labels.csv", "5,climbers\n"), "labels.csv, row"),
    "label of an unknown node": (_append("labels.csv", "9999,climbers\n"), "9999"),
    "truncated features": (_cut("features.npy"), "features.npy"),
    "not-a-number": (_not_a_number, "features.npy, row"),
    "directory": (_directory, "edges.csv: expected a file, got a directory"),
    "empty": (_write("edges.csv", ""), "edges.csv: expected a table, got an empty file"),
    "labels of fractions": (
        lambda folder: np.save(folder / "labels.npy", np.ones(60)),
        "labels.npy: expected integers",
    ),
    "no array": (lambda folder: (folder / "features.npy").write_bytes(b"no array"), "features.npy"),
}


@pytest.mark.parametrize("wrong", list(SPOILT))
def test_bad_input_is_one_line(tmp_path, capsys, wrong):
    spoil, says = SPOILT[wrong]
    folder = write_social_network(tmp_path / "in", social_network(60, num_communities=2, seed=1))
    spoil(folder)
    out = tmp_path / "out"
    file = re.split("[,:]", says)[0]
    instead = {file.partition(".")[0]: file} if (folder / file).is_file() else {}
    assert main(["train", *data_of(folder, **instead), "--out", str(out), *QUICK]) == 2
    shown = capsys.readouterr()
    lines = shown.err.strip().splitlines()
    assert len(lines) == 1, shown.err
    assert says in lines[0]
    assert lines[0].startswith("sage-attention: ")
    assert not out.exists() or not list(out.iterdir())


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["train"],
        ["train", "--out", "o", "--epochs", "0"],
        ["train", "--out", "o", "--fan-outs", "0,1"],
        ["train", "--out", "o", "--dropout", "1"],
        ["train", "--out", "o", "--seed", "-1"],
        ["train", "--out", "o", "--threads", "x"],
        ["train", "--out", "o", "--seed", "9223372036854775808"],
        ["train", "--out", "o", "--learning-rate", "nan"],
        ["train", "--out", "o", "--split", "a,b,c"],
        ["train", "--out", "o", "--fan-outs", "-2,1"],
        ["train", "--out", "o", "--layers", "1001"],
        ["train", "--out", "o", "--hidden", "9223372036854775808"],
        ["train", "--out", "o", "--threads", "2147483648"],
        ["demo", "--members", "15"],
        ["train", "--out", ""],
        ["predict", "--out", "o"],
        ["no such command"],
    ],
    ids=" ".join,
)
def test_bad_usage(words, capsys):
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2
    assert "usage:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (["--fan-outs", "3"], "--fan-outs"),
        (["--heads", "1048576", "--hidden", "2"], "--heads, --hidden"),
        (["--split", "0.5,0.1,0.1"], "1"),
        (["--split", "0.5,0.5"], "three"),
        (["--split", "-1,1,1"], "three"),
        (["--out", "~nobody-of-this-name/o"], "home folder"),
        (["--resume"], "resume"),
        (["--data", "x.npz"], "--data"),
    ],
)
def test_contradicting_options(network, tmp_path, capsys, change, says):
    assert main(["train", *data_of(network), "--out", str(tmp_path / "o"), *change]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


def test_file_in_place_of_the_folder(network, tmp_path, capsys):
    (tmp_path / "o").write_text("mine")
    assert main(["train", *data_of(network), "--out", str(tmp_path / "o"), *QUICK]) == 2
    assert (tmp_path / "o").read_text() == "mine"
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.skipif(sys.platform == "win32", reason="limits of POSIX")
def test_no_space_left(network, tmp_path):
    """A limit on the size of files stands for a full disk: the same errors come from the same calls."""
    words = [sys.executable, "-m", "sage_attention", "train", *data_of(network), "--out", str(tmp_path / "o"), *QUICK]
    done = subprocess.run(
        ["bash", "-c", 'ulimit -f 16; exec "$@"', "-", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "no space left" in done.stderr
    assert list((tmp_path / "o").iterdir()) == []


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a folder that not even root may write to")
@pytest.mark.parametrize("command", ["train", "predict"])
def test_unwritable_folder(network, tmp_path, capsys, command):
    words = data_of(network)
    if command == "predict":
        assert main(["train", *words, "--out", str(tmp_path), *QUICK, "--quiet"]) == 0
        words = [*words[:4], "--model", str(tmp_path)]
    assert main([command, *words, "--out", "/proc/1/no/such"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "/proc/1/no" in error


def test_not_enough_memory(network, tmp_path, capsys):
    wide = ["--hidden", str(2**20), "--heads", "1", "--layers", "3", "--fan-outs", "3,3,3"]  # 4 TB between two layers
    assert main(["train", *data_of(network), "--out", str(tmp_path), *QUICK, *wide]) == 1
    error = capsys.readouterr().err
    assert error.startswith("sage-attention: not enough memory (")
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_torch_that_does_not_load(network, tmp_path):
    (tmp_path / "torch").mkdir()
    for error, says in (("ImportError('DLL load failed')", "cannot be loaded"), ("OSError('126')", "cannot be loaded")):
        (tmp_path / "torch" / "__init__.py").write_text(f"raise {error}")
        path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
        done = run("train", *data_of(network), "--out", tmp_path / "o", PYTHONPATH=path)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert says in done.stderr


def test_model_of_another_width(network, tmp_path, capsys):
    assert main(["train", *data_of(network), "--out", str(tmp_path / "o"), *QUICK, "--quiet"]) == 0
    np.save(tmp_path / "narrow.npy", np.zeros((300, 3), np.float32))
    words = ["--model", str(tmp_path / "o"), "--edges", str(network / "edges.csv")]
    assert main(["predict", *words, "--features", str(tmp_path / "narrow.npy"), "--out", str(tmp_path / "p")]) == 2
    assert main(["predict", *words, "--out", str(tmp_path / "p")]) == 2
    assert not (tmp_path / "p").exists()
    assert "features" in capsys.readouterr().err


def test_folder_in_place_of_the_file(network, tmp_path, capsys):
    assert main(["train", *data_of(network), "--out", str(tmp_path), *QUICK, "--quiet"]) == 0
    words = ["--model", str(tmp_path), "--edges", str(network / "edges.csv")]
    for command in ("predict", "embed"):
        assert main([command, *words, "--features", str(network / "features.npy"), "--out", str(network)]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_help_and_version():
    assert "train" in run("--help").stdout
    assert run("--version").stdout.startswith("sage-attention ")
    for command in ("train", "predict", "embed", "demo"):
        assert "default" in run(command, "--help").stdout


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGPIPE")
def test_closed_pipe(network, tmp_path):
    words = " ".join(f"'{w}'" for w in ("train", *data_of(network), "--out", str(tmp_path / "o"), *QUICK))
    shell = f"set -o pipefail; '{sys.executable}' -u -m sage_attention {words} | head -n 1"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert (tmp_path / "o" / "metrics.json").exists()
