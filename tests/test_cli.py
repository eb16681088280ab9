"""The command line, end to end: what people type, what they get, and what a wrong file says."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("torch", reason="training needs torch")
pytest.importorskip("pyarrow", reason="tables are read with PyArrow")

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


def run(*words):
    """The command in its own process."""
    return subprocess.run(
        [sys.executable, "-m", "sage_attention", *map(str, words)], capture_output=True, text=True, check=False,
        encoding="utf-8", env={**os.environ, "PYTHONIOENCODING": "utf-8"},
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


def test_same_predictions_on_one_and_two_threads(network, tmp_path):
    for threads in ("1", "2"):
        done = run("train", *data_of(network), "--out", tmp_path / threads, *QUICK, "--threads", threads, "--quiet")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    first, second = (tmp_path / threads / "predictions.parquet" for threads in ("1", "2"))
    assert first.read_bytes() == second.read_bytes()


def test_second_run_into_the_same_folder(network, tmp_path):
    (tmp_path / "mine.txt").write_text("keep")
    for seed in ("1", "2"):
        assert main(["train", *data_of(network), "--out", str(tmp_path), *QUICK, "--seed", seed, "--quiet"]) == 0
    assert json.loads((tmp_path / "metrics.json").read_text())["seed"] == 2
    assert {path.name for path in tmp_path.iterdir()} == {*RESULTS, "mine.txt"}


def test_without_features(network, tmp_path, capsys):
    edges, labels = str(network / "edges.csv"), str(network / "labels.csv")
    assert main(["train", "--edges", edges, "--labels", labels, "--out", str(tmp_path / "o"), *QUICK, "--quiet"]) == 0
    file = str(tmp_path / "p.parquet")
    assert main(["predict", "--model", str(tmp_path / "o"), "--edges", edges, "--out", file]) == 0
    assert " nodes: " in capsys.readouterr().out


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


SPOILT = {
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
    "directory": (_directory, "edges.csv"),
    "no array": (lambda folder: (folder / "features.npy").write_bytes(b"no array"), "features.npy"),
}


@pytest.mark.parametrize("wrong", list(SPOILT))
def test_bad_input_is_one_line(tmp_path, capsys, wrong):
    spoil, says = SPOILT[wrong]
    folder = write_social_network(tmp_path / "in", social_network(60, num_communities=2, seed=1))
    spoil(folder)
    out = tmp_path / "out"
    assert main(["train", *data_of(folder), "--out", str(out), *QUICK]) == 2
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
        (["--split", "0.5,0.1,0.1"], "1"),
        (["--split", "0.5,0.5"], "three"),
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


def test_model_of_another_width(network, tmp_path, capsys):
    assert main(["train", *data_of(network), "--out", str(tmp_path / "o"), *QUICK, "--quiet"]) == 0
    np.save(tmp_path / "narrow.npy", np.zeros((300, 3), np.float32))
    words = ["--model", str(tmp_path / "o"), "--edges", str(network / "edges.csv")]
    assert main(["predict", *words, "--features", str(tmp_path / "narrow.npy"), "--out", str(tmp_path / "p")]) == 2
    assert main(["predict", *words, "--out", str(tmp_path / "p")]) == 2
    assert not (tmp_path / "p").exists()
    assert "features" in capsys.readouterr().err


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
