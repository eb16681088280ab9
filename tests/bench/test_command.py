"""``sage-attention bench``, end to end: what people type, what programs get, and what is left after Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from xml.dom import minidom

import numpy as np
import pytest

from sage_attention.bench import checks, command, machine, measure, peers, problem
from sage_attention.cli import main
from sage_attention.errors import SageAttentionError

posix = pytest.mark.skipif(sys.platform == "win32", reason="signals as on POSIX")
HEAVY = ("torch", "torch_geometric", "psutil", "pyarrow", "rich", "scipy", "safetensors")

FIGURE = {
    "part": str, "score": str, "step": str, "threads": int, "contender": str, "ns_per_edge": float,
    "gb_per_s": (float, type(None)), "share": (float, type(None)), "times_ours": (float, type(None)),
    "compile_s": (float, type(None)), "median_s": float, "least_s": float, "median_cpu_s": float,
    "spread": (float, type(None)), "rounds": int, "others_share": (float, type(None)),
}  # fmt: skip
DOCUMENT = {
    "format": int, "interrupted": bool, "seconds": float, "machine": dict, "graph": dict, "settings": dict,
    "figures": list, "left_out": list, "notes": list,
}  # fmt: skip


@pytest.fixture(scope="module")
def edges(tmp_path_factory):
    """A small graph as a file that needs NumPy alone, in a folder whose name people have."""
    file = tmp_path_factory.mktemp("社交 network") / "我的 edges.npy"
    np.save(file, np.random.default_rng(0).integers(0, 60, (2, 400)))
    return file


def quick(edges, *more):
    return ["bench", "--edges", str(edges), "--heads", "2", "--channels", "4", "--quick", "--no-pyg", *more]


def checked(document):
    """The document, held against what docs/bench.md says of it."""
    assert {name: type(value) for name, value in document.items()} == DOCUMENT
    assert document["format"] == 1
    for figure in document["figures"]:
        assert set(figure) == set(FIGURE)
        for name, kind in FIGURE.items():
            assert isinstance(figure[name], kind), (name, figure[name])
        assert 0 < figure["least_s"] <= figure["median_s"]
        assert figure["rounds"] >= 1
        if figure["others_share"] is not None:
            assert 0 <= figure["others_share"] <= 1
    assert all(set(one) == {"what", "why"} for one in document["left_out"])
    assert {"cpu", "cores", "memory_gib", "cpu_level", "page_size", "versions"} <= set(document["machine"])
    assert set(document["graph"]) == {"name", "nodes", "edges", "largest_in_degree", "row_bytes"}
    return document


def keys(document, part):
    return {(one["score"], one["step"], one["threads"]) for one in document["figures"] if one["part"] == part}


def test_everything_that_needs_numpy_alone(edges, tmp_path, capsys):
    out, plot = tmp_path / "结果 folder" / "all figures.json", tmp_path / "结果 folder" / "page.html"
    assert main(quick(edges, "--threads", "1,2", "--json", str(out), "--plot", str(plot))) == 0
    shown = capsys.readouterr()
    document = checked(json.loads(out.read_text(encoding="utf-8")))
    passes = {
        (score, step, n) for score in problem.SCORES for step in ("gather", "forward", "backward") for n in (1, 2)
    }
    assert keys(document, "attention") == passes
    assert keys(document, "sampling") == {("", fan_outs, n) for fan_outs in ("15,10", "15,10,5") for n in (1, 2)}
    assert keys(document, "peers") == set()
    assert document["graph"] == {
        "name": "我的 edges.npy", "nodes": 60, "edges": 400, "row_bytes": 32,
        "largest_in_degree": int(np.bincount(np.load(edges)[1]).max()),
    }  # fmt: skip
    assert document["settings"]["threads"] == [1, 2]
    assert not document["interrupted"]
    for figure in document["figures"]:
        assert (figure["share"] is None) == (figure["step"] not in ("forward", "backward"))
        assert (figure["gb_per_s"] is None) == (figure["step"] != "gather")
    assert "我的 edges.npy: 60 nodes, 400 edges" in shown.out
    assert "Attention beside the gather limit" in shown.out
    assert "group 7/7" in shown.err
    page = plot.read_text(encoding="utf-8")
    assert "我的 edges.npy" in page
    assert page.count("<svg") == 2


def test_json_alone_on_standard_output(edges, capsys):
    assert main(quick(edges, "--threads", "1", "--json", "-", "--quiet")) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert checked(json.loads(shown.out))["settings"]["peers"] == []


def test_a_drawing(edges, tmp_path):
    plot = tmp_path / "a.SVG"
    assert main(quick(edges, "--threads", "1", "--plot", str(plot), "--quiet")) == 0
    assert minidom.parse(str(plot)).documentElement.tagName == "svg"


def test_a_generated_graph_and_all_cores(capsys):
    assert main(["bench", "--quick", "--no-pyg", "--heads", "1", "--channels", "3", "--json", "-"]) == 0
    document = checked(json.loads(capsys.readouterr().out))
    assert (document["graph"]["nodes"], document["graph"]["edges"]) == (2000, 20_000)
    from sage_attention._native import default_num_threads

    assert document["settings"]["threads"] == sorted({1, default_num_threads()})


def test_text_files_and_both_directions(tmp_path, capsys):
    pytest.importorskip("pyarrow", reason="tables are read with PyArrow")
    file = tmp_path / "边.csv"
    file.write_bytes("source,target\n安,博\n博,伊\n".encode("gbk"))
    words = quick(file, "--threads", "1", "--json", "-", "--undirected", "--encoding", "gbk")
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["graph"]["edges"] == 4


def test_without_optional_packages(edges, tmp_path):
    """NumPy is enough: for the core, for JSON and for the page. What else there would be is said."""
    program = f"""
import sys
sys.modules.update(dict.fromkeys({HEAVY!r}))  # None: importing it fails
from sage_attention.cli import main
words = {[word for word in quick(edges) if word != "--no-pyg"]!r}
files = ["--json", {str(tmp_path / "o.json")!r}, "--plot", {str(tmp_path / "o.html")!r}]
sys.exit(main([*words, "--threads", "1", *files]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, encoding="utf-8", check=False,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = checked(json.loads((tmp_path / "o.json").read_text(encoding="utf-8")))
    assert document["left_out"][0]["what"] == "PyTorch Geometric"
    assert 'torch is not installed; pip install "sage-graph-attention[train]"' in document["left_out"][0]["why"]
    assert keys(document, "attention")
    assert "torch is not installed" in done.stdout
    assert "gather" in done.stdout
    assert (tmp_path / "o.html").exists()


def interrupt_in(monkeypatch, module, function, call):
    """Ctrl-C when a function is called for the n-th time."""
    real, calls = getattr(module, function), []

    def interrupted(*arguments, **options):
        calls.append(1)
        if len(calls) == call:
            signal.raise_signal(signal.SIGINT)
        return real(*arguments, **options)

    monkeypatch.setattr(module, function, interrupted)


@posix
def test_ctrl_c_shows_and_writes_what_there_is(edges, tmp_path, monkeypatch, capsys):
    out, plot = tmp_path / "o.json", tmp_path / "o.html"
    interrupt_in(monkeypatch, measure, "check_scored", 3)
    assert main(quick(edges, "--threads", "1,2", "--json", str(out), "--plot", str(plot))) == 130
    shown = capsys.readouterr()
    document = checked(json.loads(out.read_text(encoding="utf-8")))
    assert document["interrupted"]
    assert keys(document, "attention") == {
        (score, step, 2) for score in ("gat", "gatv2") for step in ("gather", "forward", "backward")
    }
    assert keys(document, "sampling") == set()
    assert any("interrupted" in note for note in document["notes"])
    assert "gat" in shown.out
    assert shown.err.endswith("interrupted\n")
    assert plot.exists()


@posix
def test_ctrl_c_in_the_middle_of_a_round(edges, monkeypatch, capsys):
    """Gather and forward of the third round were timed; backward stands on two."""
    interrupt_in(monkeypatch, problem, "attention_backward", 1 + 3)  # one check before
    assert main(quick(edges, "--threads", "1", "--json", "-")) == 130
    document = checked(json.loads(capsys.readouterr().out))
    assert keys(document, "attention") == {("gat", step, 1) for step in ("gather", "forward", "backward")}
    assert {one["step"]: one["rounds"] for one in document["figures"]}["backward"] == 2


@posix
def test_ctrl_c_before_there_is_anything(edges, monkeypatch, capsys):
    interrupt_in(monkeypatch, measure, "check_scored", 1)
    assert main(quick(edges, "--threads", "1", "--json", "-")) == 130
    assert checked(json.loads(capsys.readouterr().out))["figures"] == []


@posix
def test_ctrl_c_twice_leaves_whole_files(edges, tmp_path, monkeypatch):
    out = tmp_path / "o.json"
    interrupt_in(monkeypatch, measure, "check_scored", 2)
    interrupt_in(monkeypatch, command, "_write", 1)
    assert main(quick(edges, "--threads", "1", "--json", str(out), "--quiet")) == 130
    assert checked(json.loads(out.read_text(encoding="utf-8")))["interrupted"]
    assert [path.name for path in tmp_path.iterdir()] == ["o.json"]


def test_no_time_at_all_gives_the_first_group_and_says_what_is_missing(edges, capsys):
    assert main(quick(edges, "--threads", "1,2", "--time-limit", "1e-9", "--json", "-")) == 0
    document = checked(json.loads(capsys.readouterr().out))
    assert keys(document, "attention") == {("gat", step, 2) for step in ("gather", "forward", "backward")}
    left = {one["what"]: one["why"] for one in document["left_out"]}
    assert set(left.values()) == {"the time limit (--time-limit) came first"}
    assert set(left) == {
        "gatv2, 2 threads", "dot, 2 threads", "sampling", "gat, 1 thread", "gatv2, 1 thread", "dot, 1 thread"
    }  # fmt: skip


def test_results_that_depend_on_threads_are_not_timed(edges, monkeypatch, capsys):
    numbers = iter(range(1000))
    monkeypatch.setattr(checks, "digest", lambda _: next(numbers))
    assert main(quick(edges, "--threads", "1,2", "--quiet")) == 2
    shown = capsys.readouterr()
    assert "expected the same result on 1 thread as before" in shown.err
    assert shown.out == ""


def test_wrong_results_are_not_timed(edges, monkeypatch, capsys):
    real = problem.attention_forward

    def wrong(*arguments, **options):
        outputs = real(*arguments, **options)
        outputs.out[...] *= 1.01
        return outputs

    monkeypatch.setattr(problem, "attention_forward", wrong)
    assert main(quick(edges, "--threads", "1", "--quiet")) == 2
    assert "gat, forward: expected NumPy's results" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--edges", "{there}", "--graph", "G1"], "--edges: expected no --graph"),
        (["--undirected"], "--undirected: expected --edges"),
        (["--encoding", "gbk"], "--encoding: expected --edges"),
        (["--compile", "--no-pyg"], "--compile: expected no --no-pyg"),
        (["--heads", "1048576", "--channels", "2"], "--heads, --channels: expected at most 1048576"),
        (["--plot", "bench.png"], "--plot: expected a file name that ends in .html or .svg"),
        (["--json", "{folder}"], "expected a file to write, got a folder"),
        (["--json", "bench.csv"], "ends in .json"),
        (["--edges", "{there}", "--json", "{there}"], "ends in .json"),
        (["--edges", "{folder}/none.npy"], "none.npy"),
        (["--edges", "{folder}/folder.npy"], "got a directory"),
        (["--edges", "{folder}/ragged.npy"], "ragged.npy"),
        (["--edges", "{folder}/negative.npy"], "-3"),
        (["--edges", "{folder}/empty.npy"], "empty.npy"),
        (["--edges", "{folder}/words.txt.xyz"], "words.txt.xyz"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_one_line(edges, tmp_path, monkeypatch, capsys, words, says):
    monkeypatch.chdir(tmp_path)
    np.save(tmp_path / "ragged.npy", np.zeros((3, 3), np.int64))
    np.save(tmp_path / "negative.npy", np.array([[0, -3], [1, 1]]))
    np.save(tmp_path / "empty.npy", np.zeros((2, 0), np.int64))
    (tmp_path / "words.txt.xyz").write_text("a")
    (tmp_path / "folder.npy").mkdir()
    before = {path.name for path in tmp_path.iterdir()}
    filled = [word.format(there=edges, folder=tmp_path) for word in words]
    assert main(["bench", "--quick", "--quiet", *filled]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert says in shown.err
    assert shown.err.count("\n") == 1
    assert {path.name for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    "words",
    [
        ["--threads", "0"], ["--threads", "1,1"], ["--threads", ""], ["--time-limit", "0"], ["--time-limit", "nan"],
        ["--heads", "0"], ["--channels", "x"], ["--graph", "G9"], ["--seed", "-1"], ["--json", ""], ["--plot", ""],
        ["--threads", "1025"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_bad_usage(words, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["bench", *words])
    assert stop.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_too_little_memory_is_said_before_anything_is_made(edges, monkeypatch, capsys):
    monkeypatch.setattr(machine, "free_memory", lambda: 1000)
    assert main(quick(edges, "--quiet")) == 2
    assert "--heads, --channels: expected arrays of 60 nodes that fit" in capsys.readouterr().err


@pytest.mark.parametrize(("cores", "used"), [(1, [1]), (3, [1, 3])])
def test_threads_are_as_many_as_cores_may_be_used(edges, monkeypatch, capsys, cores, used):
    monkeypatch.setattr("sage_attention._native.default_num_threads", lambda: 4)
    monkeypatch.setattr(machine, "_usable_cores", lambda: cores)
    assert main(quick(edges, "--json", "-", "--quiet")) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["settings"]["threads"] == used
    assert {figure["threads"] for figure in document["figures"]} == set(used)


def test_a_torch_that_cannot_be_loaded_costs_no_figures(edges, monkeypatch, capsys):
    monkeypatch.setattr(peers, "missing", lambda: "")
    monkeypatch.setitem(sys.modules, "sage_attention.bench.contenders", None)
    words = [word for word in quick(edges, "--threads", "1", "--json", "-") if word != "--no-pyg"]
    assert main(words) == 0
    shown = capsys.readouterr()
    document = checked(json.loads(shown.out))
    assert len(keys(document, "attention")) == 9
    assert len(keys(document, "sampling")) == 2
    assert [one["what"] for one in document["left_out"]] == ["PyTorch Geometric"]
    assert document["left_out"][0]["why"].startswith("it fails here: ModuleNotFoundError")
    assert "group 10/10" in shown.err


@posix
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_to_is_said_before(edges, tmp_path, capsys):
    folder = tmp_path / "只读 folder"
    folder.mkdir(mode=0o555)
    assert main(quick(edges, "--json", str(folder / "a.json"), "--quiet")) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "expected a folder that can be written" in shown.err
    assert shown.err.count("\n") == 1


def test_a_second_run_replaces_the_files_of_the_first(edges, tmp_path):
    out = tmp_path / "o.json"
    for threads in ("1", "2"):
        assert main(quick(edges, "--threads", threads, "--json", str(out), "--quiet")) == 0
        assert json.loads(out.read_text(encoding="utf-8"))["settings"]["threads"] == [int(threads)]
    assert [path.name for path in tmp_path.iterdir()] == ["o.json"]


def test_a_generated_graph_that_will_not_fit_is_not_made(monkeypatch, capsys):
    monkeypatch.setattr(machine, "free_memory", lambda: 2**30)
    monkeypatch.setattr("sage_attention.bench.graphs.named", lambda _: pytest.fail("it was made"))
    assert main(["bench", "--graph", "G3", "--quiet"]) == 2
    assert "expected arrays of 2,450,000 nodes that fit into the 1.0 GiB" in capsys.readouterr().err


def test_compile_without_a_peer(edges, monkeypatch, capsys):
    monkeypatch.setattr(peers, "missing", lambda: "it is not there")
    words = [word for word in quick(edges, "--compile", "--quiet") if word != "--no-pyg"]
    assert main(words) == 2
    assert "it is not there" in capsys.readouterr().err


def test_passive_waiting_only_on_a_busy_machine(monkeypatch):
    class Busy:
        def __init__(self, busy):
            self.busy, self.settings = busy, {}

    monkeypatch.delitem(sys.modules, "torch", raising=False)
    for busy, before, after in ((0.5, None, "PASSIVE"), (0.01, None, None), (float("nan"), None, None),
                                (0.5, "ACTIVE", "ACTIVE")):  # fmt: skip
        monkeypatch.setenv("OMP_WAIT_POLICY", "x")  # so that it is put back
        os.environ.pop("OMP_WAIT_POLICY")
        if before:
            os.environ["OMP_WAIT_POLICY"] = before
        one = Busy(busy)
        measure._wait_passively(one)
        assert one.settings["omp_wait_policy"] == os.environ.get("OMP_WAIT_POLICY") == after


def test_a_plan_has_as_many_groups_as_it_takes_steps():
    plan = measure.Plan((1, 2), ends=time.monotonic(), peers=("PyG eager",))
    assert measure.groups(plan) == 2 * 3 + 1 + 2 * 3 * 2
    assert plan.left() <= 0


def test_backward_before_prepare():
    from sage_attention.bench.graphs import chung_lu

    with pytest.raises(SageAttentionError, match="prepare"):
        problem.Problem("g", chung_lu(9, 20, seed=0), 1, 2).scored("gat").backward(1)
