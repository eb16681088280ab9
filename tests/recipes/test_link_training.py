"""``train --task link`` and ``recommend`` end to end: what people type, what they get, interruptions, wrong input."""

from __future__ import annotations

import csv
import json
import re
import signal
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("torch", reason="training needs torch")
pytest.importorskip("pyarrow", reason="tables are read with PyArrow")
pytest.importorskip("safetensors", reason="models are written with safetensors")

import pyarrow as pa
from pyarrow.parquet import read_table, write_table
from tests.recipes.link_cases import RESULTS, contents, names, plays, write_csv, write_friends

from sage_attention.cli import main
from sage_attention.errors import DataError
from sage_attention.recipes import link, link_dataset
from sage_attention.recipes.link_batches import LinkBatchSource
from sage_attention.recipes.link_files import load_recommender
from sage_attention.recipes.output import write_safetensors

QUICK = ["--channels", "8", "--batch-size", "100", "--fan-outs", "4,4", "--patience", "1000", "--top", "5"]
CHECKPOINT = {"checkpoint.safetensors"}
posix = pytest.mark.skipif(sys.platform == "win32", reason="signals as on POSIX")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Interactions and friends, in a folder whose name people have."""
    made = tmp_path_factory.mktemp("音乐 plays")
    write_csv(made / "plays.csv", plays())
    write_friends(made / "friends.csv")
    return made


@pytest.fixture(scope="module")
def words(folder):
    data = ["--interactions", str(folder / "plays.csv"), "--social", str(folder / "friends.csv")]
    return ["train", "--task", "link", *data, *QUICK, "--threads", "2"]


@pytest.fixture(scope="module")
def whole(words, tmp_path_factory):
    """The folder of an unbroken run."""
    out = tmp_path_factory.mktemp("whole")
    assert main([*words, "--epochs", "4", "--out", str(out), "--quiet"]) == 0
    return out


def run(words, out, *more):
    """The command in this process. Whoever lets an interrupt escape fails the test, not the whole session."""
    try:
        return main([*words, "--epochs", "4", "--out", str(out), *more])
    except KeyboardInterrupt:
        pytest.fail("the interrupt escaped")


def interrupt_in(monkeypatch, owner, function, at=1):
    """Ctrl-C when a function is called for the n-th time."""
    real, calls = getattr(owner, function), []

    def interrupted(*arguments, **options):
        calls.append(1)
        if len(calls) == at:
            signal.raise_signal(signal.SIGINT)
        return real(*arguments, **options)

    monkeypatch.setattr(owner, function, interrupted)


def rows_of(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_what_a_run_gives(words, whole, tmp_path, capsys):
    out = tmp_path / "结果 folder"
    assert run(words, out) == 0
    assert names(out) == RESULTS
    shown = capsys.readouterr().out
    assert "60 users, 40 items" in shown
    assert "epoch 4/4" in shown
    assert "test recall@5" in shown
    metrics = json.loads((out / "metrics.json").read_text(encoding="utf-8"))
    wanted = {"test_recall@5", "test_ndcg@5", "test_mrr", "val_recall@5", "popularity_test_recall@5", "epochs", "seed"}
    assert wanted <= set(metrics)
    report = (out / "report.html").read_text(encoding="utf-8")
    assert "Test recall@5" in report
    assert re.search(r"--task\b.*\blink\b", report)
    assert "Divided by time" in report
    assert contents(out) == contents(whole)


def test_it_learns_the_tastes(folder, tmp_path):
    """Two tastes: of what a user has not yet used, all of the top is of its own taste."""
    words = ["train", "--task", "link", "--interactions", str(folder / "plays.csv"), *QUICK, "--divide", "user"]
    assert main([*words, "--epochs", "20", "--learning-rate", "0.02", "--out", str(tmp_path / "run"), "--quiet"]) == 0
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text(encoding="utf-8"))
    assert metrics["test_recall@5"] > 1.5 * metrics["popularity_test_recall@5"]
    assert main(["recommend", "--model", str(tmp_path / "run"), "--out", str(tmp_path / "r.csv"), "--top", "3"]) == 0
    right = [int(row["user"]) % 2 == int(row["item"]) % 2 for row in rows_of(tmp_path / "r.csv")]
    assert np.mean(right) > 0.95


@pytest.mark.parametrize("loss", ["softmax", "bpr"])
def test_same_bytes_on_any_number_of_threads(folder, tmp_path, loss):
    words = ["train", "--task", "link", "--interactions", str(folder / "plays.csv"), *QUICK, "--loss", loss]
    for threads in ("1", "2", "3"):
        more = ["--attention-dropout", "0.2", "--heads", "2", "--quiet", "--threads", threads]
        assert run(words, tmp_path / threads, *more) == 0
    assert contents(tmp_path / "1") == contents(tmp_path / "2") == contents(tmp_path / "3")


@pytest.mark.parametrize(
    ("owner", "function", "at"),
    [
        (LinkBatchSource, "batch", 13),  # in the midst of the third epoch
        (link, "write_link_report", 1),
    ],
)
def test_resumed_equals_unbroken(words, whole, tmp_path, monkeypatch, capsys, owner, function, at):
    interrupt_in(monkeypatch, owner, function, at)
    assert run([*words[:-1], "1"], tmp_path) == 130
    assert "go on with the same command and --resume" in capsys.readouterr().err
    assert names(tmp_path) == CHECKPOINT
    monkeypatch.undo()
    assert run(words, tmp_path, "--resume", "--quiet") == 0
    assert contents(tmp_path) == contents(whole)
    assert names(tmp_path) == RESULTS


def test_interrupted_at_once_writes_nothing(words, tmp_path, monkeypatch, capsys):
    interrupt_in(monkeypatch, link_dataset, "read_edges")
    assert run(words, tmp_path / "out") == 130
    assert capsys.readouterr().err == "interrupted\n"
    assert not (tmp_path / "out").exists()


@posix
def test_interrupted_from_outside(words, tmp_path):
    command = [sys.executable, "-u", "-m", "sage_attention", *words, "--epochs", "200", "--out", str(tmp_path / "o")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8")
    for line in process.stdout:
        if line.startswith("epoch 3/"):
            break
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130, error
    assert error.count("\n") == 1
    assert names(tmp_path / "o") == CHECKPOINT
    assert main([*words, "--epochs", "4", "--seed", "9", "--out", str(tmp_path / "o"), "--resume", "--quiet"]) == 2


@pytest.mark.parametrize(
    "change", [["--seed", "5"], ["--temperature", "0.3"], ["--heads", "2"], ["--weight-column", "none"]]
)
def test_resume_refuses_another_run(words, tmp_path, monkeypatch, capsys, change):
    interrupt_in(monkeypatch, LinkBatchSource, "batch", 13)
    assert run([*words[:-1], "1"], tmp_path, "--quiet") == 130
    monkeypatch.undo()
    capsys.readouterr()
    assert run(words, tmp_path, *change, "--resume", "--quiet") == 2
    assert "interrupted run" in capsys.readouterr().err


def test_parquet_gives_what_csv_gives(whole, words, tmp_path):
    table = dict(zip(("user", "item", "plays", "timestamp"), map(list, zip(*plays()))))
    write_table(pa.table(table), tmp_path / "p.parquet")
    again = [str(tmp_path / "p.parquet") if word.endswith("plays.csv") else word for word in words]
    assert run(again, tmp_path / "out", "--quiet") == 0
    assert contents(tmp_path / "out") == contents(whole)


def test_recommendations(whole, folder, tmp_path):
    """Nothing a user has; best first; who is named has the item or is a friend; CSV and Parquet alike."""
    out = tmp_path / "推荐 r.csv"
    assert main(["recommend", "--model", str(whole), "--out", str(out), "--top", "7", "--because", "2"]) == 0
    assert main(["recommend", "--model", str(whole), "--out", str(tmp_path / "r.parquet"), "--top", "7", "--because",
                 "2", "--threads", "1", "--quiet"]) == 0  # fmt: skip
    rows = rows_of(out)
    typed = read_table(tmp_path / "r.parquet").to_pylist()
    assert len(rows) == len(typed) == 60 * 7
    has = {(user, item) for user, item, _, _ in plays()}
    friends = {(int(r["user"]), int(r["friend"])) for r in rows_of(folder / "friends.csv")}
    named = 0
    for row, same in zip(rows, typed):
        assert {k: str(v) for k, v in same.items() if k in ("user", "rank", "item")} == {
            k: row[k] for k in ("user", "rank", "item")
        }
        assert (same["user"], same["item"]) not in has
        assert same["basis"] == "model"
        shares = [same[f"because_{k}_adds"] for k in (1, 2) if same[f"because_{k}"] is not None]
        assert shares == sorted(shares, reverse=True)
        for k in (1, 2):
            who = same[f"because_{k}"]
            if who is None:
                continue
            named += 1
            if same[f"because_{k}_is"] == "item":
                assert (same["user"], who) in has
            else:
                assert {(same["user"], who), (who, same["user"])} & friends
    assert named > 600
    for user in range(60):
        own = [row for row in typed if row["user"] == user]
        assert [row["rank"] for row in own] == list(range(1, 8))
        assert [row["score"] for row in own] == sorted((row["score"] for row in own), reverse=True)


def test_recommendations_for_some_users(whole, tmp_path, capsys):
    users = write_csv(tmp_path / "users.csv", [(7,), (3,)], "user")
    words = ["recommend", "--model", str(whole), "--top", "2", "--because", "0"]
    assert main([*words, "--users", str(users), "--out", str(tmp_path / "r.csv")]) == 0
    assert "4 rows for 2 users" in capsys.readouterr().out
    rows = rows_of(tmp_path / "r.csv")
    assert [row["user"] for row in rows] == ["7", "7", "3", "3"]
    assert list(rows[0]) == ["user", "rank", "item", "score", "basis"]
    for text, says in (
        ([(400,), (401,)], "some user that the model was trained with, got none: '400' and 1 other"),
        ([(7,), (7,)], "once"),
        ([("ann",)], "some user that the model was trained with, got none: 'ann'; are these ids of users"),
    ):
        write_csv(users, text, "user")
        (tmp_path / "r.csv").write_text("mine")
        assert main([*words, "--users", str(users), "--out", str(tmp_path / "r.csv")]) == 2
        error = capsys.readouterr().err
        assert re.search(says, error), error
        assert (tmp_path / "r.csv").read_text() == "mine"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([7, 400, 3], "1 of 3 users left out, unknown to the model: '400' (row 3); train again"),
        ([7, "ann", 3, "07"], "2 of 4 users left out, unknown to the model: 'ann' (row 3), '07' (row 5);"),
        (
            [400, 7, 3, 401, 402, 403],
            "4 of 6 users left out, unknown to the model: '400' (row 2), '401' (row 5), '402'",
        ),
        ([400, 7, 3, 401, 402, 403], "'402' (row 6) and 1 more; train again with their interactions"),
    ],
)
def test_users_whom_the_model_does_not_know_are_left_out(whole, tmp_path, capsys, given, says):
    users = write_csv(tmp_path / "users.csv", [(user,) for user in given], "user")
    words = ["recommend", "--model", str(whole), "--top", "1", "--users", str(users), "--out", str(tmp_path / "r.csv")]
    assert main(words) == 0
    shown = capsys.readouterr()
    assert f"sage-attention: warning: {users}: " in shown.err
    assert says in shown.err
    assert shown.err.count("\n") == 1
    assert "2 rows for 2 users" in shown.out
    assert [row["user"] for row in rows_of(tmp_path / "r.csv")] == ["7", "3"]
    assert main([*words, "--quiet"]) == 0
    assert "left out" in capsys.readouterr().err


def test_one_of_each_in_words(whole, tmp_path, capsys):
    users = write_csv(tmp_path / "users.csv", [(7,)], "user")
    words = ["recommend", "--model", str(whole), "--top", "1", "--users", str(users), "--out", str(tmp_path / "r.csv")]
    assert main(words) == 0
    assert capsys.readouterr().out == f"1 row for 1 user: {tmp_path / 'r.csv'}\n"


def test_results_are_not_replaced_unasked(words, whole, tmp_path, monkeypatch, capsys):
    assert run(words, whole, "--quiet") == 2
    error = capsys.readouterr().err
    assert "one with metrics.json, model.safetensors, config.json, report.html; choose another --out" in error
    interrupt_in(monkeypatch, LinkBatchSource, "batch", at=13)
    assert run(words, tmp_path, "--quiet") == 130
    monkeypatch.undo()
    assert run(words, tmp_path, "--quiet") == 2
    assert "go on with that by --resume, replace it with --overwrite" in capsys.readouterr().err
    assert names(tmp_path) == CHECKPOINT
    assert run(words, tmp_path, "--overwrite", "--quiet") == 0
    assert contents(tmp_path) == contents(whole)


def test_users_whom_nothing_is_known_of_get_what_is_popular(tmp_path):
    """Known from the ties' file alone, but loose: a tie to oneself is none. Words as ids."""
    rows = [(f"用户{u}", f"item {i}", n, t) for u, i, n, t in plays(20, 12, 4)]
    write_csv(tmp_path / "p.csv", rows)
    write_csv(tmp_path / "f.csv", [("用户1", "用户2"), ("新人", "新人")], "user,friend")
    words = ["train", "--task", "link", "--interactions", str(tmp_path / "p.csv"), "--social", str(tmp_path / "f.csv")]
    assert run([*words, *QUICK], tmp_path / "run", "--quiet") == 0
    assert (
        main(["recommend", "--model", str(tmp_path / "run"), "--top", "3", "--out", str(tmp_path / "r.parquet")]) == 0
    )
    new = [row for row in read_table(tmp_path / "r.parquet").to_pylist() if row["user"] == "新人"]
    counts = {}
    for item in {(user, item) for user, item, _, _ in rows}:
        counts[item[1]] = counts.get(item[1], 0) + 1
    assert [row["basis"] for row in new] == ["popularity"] * 3
    assert [counts[row["item"]] for row in new] == sorted(counts.values(), reverse=True)[:3]
    assert all(row["because_1"] is None for row in new)


@pytest.mark.parametrize(
    "more",
    [
        ["--layers", "1", "--fan-outs", "3"],
        ["--layers", "3", "--fan-outs", "2,2,2", "--heads", "2"],
        ["--loss", "bpr", "--negatives", "3", "--penalty", "0.01"],
        ["--split", "1,0,0"],
        ["--split", "0.8,0,0.2", "--divide", "user"],
        ["--split", "0.7,0.3,0", "--time-column", "none"],
        ["--weight-column", "none", "--fan-outs=-1,-1"],
        ["--negatives", "5"],
        ["--top", "1000"],
    ],
    ids=" ".join,
)
def test_odd_but_valid(words, tmp_path, more):
    assert run(words, tmp_path, "--quiet", *more) == 0
    assert names(tmp_path) == RESULTS
    assert main(["recommend", "--model", str(tmp_path), "--out", str(tmp_path / "r.csv"), "--quiet"]) == 0
    assert len(rows_of(tmp_path / "r.csv")) > 500


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--fan-outs", "3"], "--fan-outs: expected one number per layer (2)"),
        (["--heads", "3"], "--heads: expected a divisor of --channels (8)"),
        (["--hidden", "8"], "belongs to --task node"),
        (["--undirected"], "belongs to --task node"),
        (["--split", "0.5,0.1,0.1"], "1"),
        (["--user-column", "listener"], "listener"),
        (["--social", "nowhere.csv"], "nowhere.csv"),
        (["--time-column", "none", "--divide", "time"], "--time-column"),
        (["--test", "nowhere.parquet"], "nowhere.parquet"),
    ],
)
def test_wrong_arguments_are_one_line(words, tmp_path, capsys, more, says):
    assert run(words, tmp_path / "out", "--quiet", *more) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_predict_knows_such_a_model(whole, folder, tmp_path, capsys):
    out = tmp_path / "predictions.csv"
    given = ["--edges", str(folder / "friends.csv"), "--out", str(out)]
    assert main(["predict", "--model", str(whole), *given]) == 2
    error = capsys.readouterr().err
    assert (
        "expected a model that classifies nodes, got 'one of --task link'" in error or "got one of --task link" in error
    )
    assert "recommend" in error
    assert not out.exists()


@pytest.mark.parametrize("more", [["--loss", "hinge"], ["--temperature", "0"], ["--negatives", "0"], ["--top", "0"]])
def test_values_that_cannot_be(words, tmp_path, capsys, more):
    with pytest.raises(SystemExit):
        run(words, tmp_path / "out", *more)
    assert more[0] in capsys.readouterr().err


def test_options_of_links_are_refused_for_nodes(tmp_path, capsys):
    assert main(["train", "--loss", "bpr", "--edges", "e.csv", "--out", str(tmp_path / "o")]) == 2
    error = capsys.readouterr().err
    assert "--loss: expected nothing, for it belongs to --task link" in error
    assert "say --task link" in error
    assert main(["train", "--task", "link", "--out", str(tmp_path / "o")]) == 2
    assert "--interactions: expected a file" in capsys.readouterr().err


def test_too_little_to_rank(tmp_path, capsys):
    file = write_csv(tmp_path / "p.csv", [(1, 5), (2, 5), (3, 5)], "user,item")
    assert main(["train", "--task", "link", "--interactions", str(file), "--out", str(tmp_path / "o")]) == 2
    assert "at least two items" in capsys.readouterr().err
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
def test_damaged_models_are_one_line(whole, tmp_path, capsys, file):
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("config.json", "model.safetensors"):
        (copy / name).write_bytes((whole / name).read_bytes())
    words = ["recommend", "--model", str(copy), "--out", str(tmp_path / "r.csv")]
    for damaged in ((copy / file).read_bytes()[:-30], b"{}", b"[" * 100_000, b""):
        (copy / file).write_bytes(damaged)
        assert main(words) == 2
        error = capsys.readouterr().err
        assert file in error
        assert error.count("\n") == 1
    (copy / file).unlink()
    assert main(words) == 2
    assert not (tmp_path / "r.csv").exists()


@pytest.mark.parametrize(
    "change",
    [
        lambda a: {**a, "users": a["users"] + 1000},
        lambda a: {**a, "items": -a["items"] - 1},
        lambda a: {**a, "part": a["part"][1:]},
        lambda a: {**a, "part": a["part"].astype(np.int64)},
        lambda a: {**a, "social": a["social"].T},
        lambda a: {**a, "weights": -a["weights"]},
        lambda a: {**a, "user_ids.integers": a["user_ids.integers"][1:]},
        lambda a: {k: v for k, v in a.items() if k != "items"},
        lambda a: {**a, "model.embedding": a["model.embedding"].astype(np.float64)},
    ],
)
def test_models_of_other_arrays(whole, tmp_path, change):
    from safetensors import safe_open

    with safe_open(whole / "model.safetensors", framework="np") as file:
        arrays, about = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118
    (tmp_path / "config.json").write_bytes((whole / "config.json").read_bytes())
    write_safetensors(tmp_path / "model.safetensors", {k: np.ascontiguousarray(v) for k, v in arrays.items()}, about)
    load_recommender(tmp_path)
    changed = {name: np.ascontiguousarray(array) for name, array in change(arrays).items()}
    write_safetensors(tmp_path / "model.safetensors", changed, about)
    with pytest.raises(DataError, match="whole recommender") as error:
        load_recommender(tmp_path)
    assert "\n" not in str(error.value)


def test_the_other_kind_of_model_is_refused(whole, tmp_path, folder, capsys):
    words = ["--model", str(whole), "--edges", str(folder / "friends.csv"), "--out", str(tmp_path / "p.csv")]
    assert main(["predict", *words]) == 2
    assert "config.json" in capsys.readouterr().err


def test_recommend_needs_no_torch(whole, tmp_path):
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from sage_attention.cli import main\n"
        f"sys.exit(main(['recommend', '--model', {str(whole)!r}, '--out', {str(tmp_path / 'r.csv')!r}]))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert (tmp_path / "r.csv").is_file()
