"""What stands under deploy/: a service and a C program that apply a saved model."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from tests.windows import ON_WINE, send_break

from sage_attention import _native
from sage_attention.inference import ModelConfig

ROOT = Path(__file__).parents[1]
NODES, FEATURES, CLASSES = 60, 17, ["company", 'tv "show"', "政府"]
pytest.importorskip("pyarrow", reason="tables are read and written by PyArrow")
save_file = pytest.importorskip("safetensors.numpy", reason="models are safetensors files").save_file


@pytest.fixture(scope="module", params=[(2, True, "none"), (1, False, "row"), (3, True, "row")])
def case(request, tmp_path_factory):
    """A folder, with a space and Chinese characters in its name, of a model and the files it is applied to."""
    layers, undirected, normalize = request.param
    folder = tmp_path_factory.mktemp("会员 x")
    config = ModelConfig(
        FEATURES, CLASSES, hidden=3, heads=4, output_heads=2, layers=layers, undirected=undirected, normalize=normalize
    )
    rng = np.random.default_rng(layers)
    tensors = {}
    for layer, (columns, heads, channels) in enumerate(config.layer_sizes()):
        last = layer == layers - 1
        shapes = {
            "lin.weight": (heads * channels, columns),
            "att_src": (1, heads, channels),
            "att_dst": (1, heads, channels),
            "bias": (channels if last else heads * channels,),
        }
        for name, shape in shapes.items():
            tensors[f"convs.{layer}.{name}"] = rng.standard_normal(shape).astype(np.float32)
    (folder / "model").mkdir()
    save_file(tensors, folder / "model/model.safetensors")
    (folder / "model/config.json").write_text(json.dumps(config.to_json()), encoding="utf-8")
    ids = rng.permutation(NODES) * 7 + 5
    features = {str(node): rng.integers(0, FEATURES, rng.integers(0, 6)).tolist() for node in ids}
    features = {node: sorted(set(indices)) for node, indices in features.items()}
    (folder / "features.json").write_text(json.dumps(features))
    edges = ids[rng.integers(0, NODES, (200, 2))]
    lines = ["source,target", *(f"{a},{b}" for a, b in edges)]
    (folder / "edges.csv").write_bytes("\r\n".join(lines).encode("utf-8-sig"))
    return folder


@pytest.fixture(scope="module")
def expected(case):
    """(node, predicted, probability) of every node, as ``sage-attention predict`` writes them."""
    import pyarrow.parquet

    from sage_attention.recipes.apply import predict

    predict(str(case / "model"), str(case / "edges.csv"), str(case / "features.json"), str(case / "out.parquet"))
    table = pyarrow.parquet.read_table(case / "out.parquet")
    return list(zip(*(table[name].to_pylist() for name in ("node", "predicted", "probability"))))


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    if built := os.environ.get("SAGE_ATTENTION_APPLY_MODEL"):
        return Path(built)
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None or os.name == "nt":
        pytest.skip("no C compiler called cc, gcc or clang, and no SAGE_ATTENTION_APPLY_MODEL, which names the program")
    path = tmp_path_factory.mktemp("c") / "apply_model"
    sources = sorted(map(str, (ROOT / "deploy/c").glob("*.c")))
    warnings = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    command = [compiler, *warnings, "-O1", "-I", str(ROOT / "core/include"), *sources, "-o", str(path)]
    subprocess.run([*command, "-lm", *(["-ldl"] if sys.platform == "linux" else [])], check=True)
    return path


def apply(program, model, edges, features, out):
    command = [program, _native._path(), model, edges, features, out]
    return subprocess.run([str(word) for word in command], capture_output=True, check=False, timeout=60)


def test_c_program(case, expected, program):
    done = apply(program, case / "model", case / "edges.csv", case / "features.json", case / "出.csv")
    assert done.returncode == 0, done.stderr
    with (case / "出.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(int(row["node"]), row["predicted"]) for row in rows] == [(node, kind) for node, kind, _ in expected]
    np.testing.assert_allclose([float(r["probability"]) for r in rows], [p for *_, p in expected], rtol=2e-5)


@pytest.mark.parametrize(
    ("file", "change", "words"),
    [
        ("model/model.safetensors", lambda b: b[:-3], "safetensors"),
        ("model/model.safetensors", lambda b: b"\xff" * 8 + b[8:], "cut short"),
        ("model/model.safetensors", lambda b: b[:5], "5 bytes"),
        ("model/config.json", lambda b: b[:-9], "config.json"),
        ("model/config.json", lambda b: b.replace(b'"format": 1', b'"format": 2'), "format 1"),
        ("edges.csv", lambda b: b + b"\r\n1;x", "line 202"),
        ("edges.csv", lambda b: b + b"\r\n999999,1", "line 202"),
        ("edges.csv", lambda _: b"source,target\n", "expected edges"),
        ("features.json", lambda _: b"{}", "nodes"),
        ("features.json", lambda _: b'{"1": [17]}', "below 17"),
        ("features.json", lambda _: b'{"1": [1.5]}', "an integer"),
        ("features.json", lambda _: b'{"1": [1], "1": []}', "twice"),
        ("features.json", lambda _: b"[" * 100_000, "an object"),
    ],
)
def test_c_program_refuses(case, program, tmp_path, file, change, words):
    shutil.copytree(case, tmp_path / "x")
    path = tmp_path / "x" / file
    path.write_bytes(change(path.read_bytes()))
    folder = tmp_path / "x"
    done = apply(program, folder / "model", folder / "edges.csv", folder / "features.json", folder / "out.csv")
    assert done.returncode == 2
    text = done.stderr.decode()
    assert text.startswith("apply_model: ")
    assert text.count("\n") == 1
    assert words in text
    assert not (folder / "out.csv").exists()


def ask(url, content=None):
    data = None if content is None else json.dumps(content).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data), timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_service(case, expected):
    script = ROOT / "deploy/windows-server-2019/serve.py"
    files = ["--model", case / "model", "--edges", case / "edges.csv", "--features", case / "features.json"]
    command = [sys.executable, script, *files, "--port", "0"]
    flags = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP} if os.name == "nt" else {}
    environment = {**os.environ, "PYTHONUTF8": "1"}
    with subprocess.Popen(
        [str(word) for word in command], stdout=subprocess.PIPE, text=True, encoding="utf-8", env=environment, **flags
    ) as service:
        told = False
        try:
            url = service.stdout.readline().rpartition(" ")[2].strip()
            status, health = ask(url + "/health")
            assert (status, health["nodes"], health["classes"]) == (200, NODES, CLASSES)
            nodes = [node for node, *_ in expected]
            status, answer = ask(url + "/predict", {"nodes": nodes})
            assert status == 200
            assert [(p["node"], p["predicted"]) for p in answer["predictions"]] == [row[:2] for row in expected]
            got = [p["probability"] for p in answer["predictions"]]
            np.testing.assert_allclose(got, [row[2] for row in expected], rtol=1e-6)
            assert ask(url + "/predict", {"nodes": [10**6]}) == (404, {"error": "no node 1000000 in the graph"})
            for wrong in ({"nodes": 3}, [1], {"nodes": [[1]]}, {"nodes": [True]}):
                assert ask(url + "/predict", wrong)[0] == 400
            assert ask(url + "/nothing", {})[0] == 404
            assert ask(url + "/reload", {}) == (200, {"nodes": NODES})
            if os.name == "nt":
                told = send_break(service)
            else:
                service.terminate()
                told = True
        finally:
            if not told:
                service.kill()
        if told:
            assert service.wait(60) == 0
        else:
            assert ON_WINE


def test_service_says_what_is_wrong(case):
    script = ROOT / "deploy/windows-server-2019/serve.py"
    command = [sys.executable, script, "--model", case, "--edges", case / "no.csv", "--features", case / "no.json"]
    done = subprocess.run([str(w) for w in command], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 2
    assert done.stderr.startswith("serve: ")
    assert done.stderr.count("\n") == 1
