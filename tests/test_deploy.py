"""What stands under deploy/: a service and a C program that apply a saved model."""

from __future__ import annotations

import csv
import json
import os
import re
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


def apply(program, model, edges, features, out, *more, **how):
    command = [program, _native._path(), model, edges, features, out, *more]
    return subprocess.run([str(word) for word in command], capture_output=True, check=False, timeout=60, **how)


def apply_in(folder, program, out="out.csv", *more, **how):
    files = [folder / name for name in ("model", "edges.csv", "features.json", out)]
    return apply(program, *files, *more, **how)


def refusal(done):
    """The one line of a program that has refused."""
    assert done.returncode == 2, done.stderr
    text = done.stderr.decode(errors="replace")  # it may quote what is no UTF-8
    assert text.startswith("apply_model: ")
    assert text.splitlines() == [text.rstrip("\r\n")]
    return text


def with_header(change):
    """Changes the header of a safetensors file."""

    def changed(data):
        size = int.from_bytes(data[:8], "little")
        header = change(data[8 : 8 + size])
        return len(header).to_bytes(8, "little") + header + data[8 + size :]

    return changed


def without(name):
    """Leaves a member out of config.json."""
    return lambda data: json.dumps({k: v for k, v in json.loads(data).items() if k != name}).encode()


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
        ("model/model.safetensors", lambda b: b[:-4] + b"\0\0\xc0\x7f", "NaN"),
        (
            "model/model.safetensors",
            with_header(lambda h: h.replace(b'"shape":[', b'"shape":[' + b"16777216," * 2)),
            "fits",
        ),
        (
            "model/model.safetensors",
            with_header(lambda h: h.replace(b"[0,", b"[-9007199254740992,")),
            "within the file",
        ),
        ("model/model.safetensors", with_header(lambda h: h.replace(b"[0,", b"[1e300,")), "an integer"),
        ("model/model.safetensors", with_header(lambda h: h.replace(b"[0,", b"[-inf,")), "a finite number"),
        ("model/model.safetensors", with_header(lambda h: h.replace(b"att_dst", b"att_src")), "twice"),
        ("model/model.safetensors", with_header(lambda h: re.sub(rb"\[1,(\d),", rb"[\1,1,", h)), "expected shape"),
        ("model/model.safetensors", with_header(lambda h: h + b"{"), "the end of the file"),
        ("model/config.json", lambda b: b[:-9], "config.json"),
        ("model/config.json", lambda b: b.decode().encode("utf-16"), "UTF-8"),
        ("model/config.json", lambda b: b.replace(b"{", b'{"layers": 1,', 1), "twice"),
        ("model/config.json", lambda b: b.replace(b"company", b"\xff"), "UTF-8"),
        ("model/config.json", lambda b: b.replace(b"company", rb"\ud800"), "a whole character"),
        ("model/config.json", lambda b: b.replace(b"company", rb"a\u0000"), "a whole character"),
        *(
            ("model/config.json", without(name), name)
            for name in ("negative_slope", "undirected", "normalize", "model")
        ),
        ("model/config.json", lambda b: b.replace(b'"format": 1', b'"format": 2'), "format 1"),
        ("edges.csv", lambda b: b + b"\r\n1;x", "line 202"),
        ("edges.csv", lambda b: b + b"\r\n999999,1", "line 202"),
        ("edges.csv", lambda _: b"source,target\n", "expected edges"),
        ("edges.csv", lambda b: b.decode("utf-8-sig").encode("utf-16"), "zero bytes"),
        ("edges.csv", lambda b: b + b"\r\n" + b"\0" * 99, "zero bytes"),
        ("features.json", lambda _: b"{}", "nodes"),
        ("features.json", lambda _: b'{"1": [1[2]}', "a comma or ]"),
        ("features.json", lambda _: b'{"1": [1,]}', "a number"),
        ("features.json", lambda _: b'{"1": ,2]}', "an array"),
        ("features.json", lambda _: b'{"1": [0x1]}', "a finite number"),
        ("features.json", lambda _: b'{"1": [-nan]}', "a finite number"),
        ("features.json", lambda _: b'{"9223372036854775808": []}', "integers of 0 or more"),
        ("features.json", lambda _: b'{"1\n2": []}', "control characters"),
        ("features.json", lambda _: rb'{"1\n2": []}', '"1?2"'),
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
    assert words in refusal(apply_in(folder, program))
    assert not list(folder.glob("out.csv*"))


def test_c_program_takes_a_byte_order_mark(case, program, tmp_path):
    shutil.copytree(case, tmp_path / "x")
    for name in ("model/config.json", "features.json"):
        path = tmp_path / "x" / name
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    done = apply_in(tmp_path / "x", program)
    assert done.returncode == 0, done.stderr


def test_c_program_replaces_whole_files_only(case, program, tmp_path):
    """What was there stays until the new file is complete; what is read is never replaced."""
    folder = tmp_path / "x"
    shutil.copytree(case, folder)
    (folder / "out.csv").write_text("earlier")
    (folder / "model/config.json").write_bytes(b"{}")
    refusal(apply_in(folder, program))
    assert (folder / "out.csv").read_text() == "earlier"
    shutil.copytree(case, folder, dirs_exist_ok=True)
    assert "another file" in refusal(apply_in(folder, program, "model/../edges.csv"))
    assert (folder / "edges.csv").read_bytes() == (case / "edges.csv").read_bytes()
    assert "a folder" in refusal(apply_in(folder, program, "model"))
    assert "cannot be written" in refusal(apply_in(folder, program, "none/out.csv"))
    assert "THREADS" in refusal(apply_in(folder, program, "out.csv", "two"))
    assert apply_in(folder, program, "out.csv", "2").returncode == 0
    assert (folder / "out.csv").read_text(encoding="utf-8").startswith("node,")
    assert sorted(path.name for path in folder.glob("out*")) == ["out.csv", "out.parquet"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit for the size of files")
def test_c_program_on_a_full_disk(case, program, tmp_path):
    import resource
    import signal

    def no_room():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))

    shutil.copytree(case, tmp_path / "x")
    (tmp_path / "x/out.csv").write_text("earlier")
    assert "written whole" in refusal(apply_in(tmp_path / "x", program, preexec_fn=no_room))
    assert [path.read_text() for path in (tmp_path / "x").glob("out.csv*")] == ["earlier"]


@pytest.mark.skipif(sys.platform != "win32", reason="only Windows limits paths to 260 characters")
def test_c_program_on_long_paths(case, program, tmp_path):
    from sage_attention._paths import extended

    deep = Path(extended(str(tmp_path.joinpath(*["图 神经 network " + "x" * 80] * 4))))
    shutil.copytree(case, deep)
    library = deep / "sage_attention.dll"
    shutil.copy(_native._path(), library)
    files = [str(deep / name).replace("\\\\?\\", "") for name in ("model", "edges.csv", "features.json", "out.csv")]
    command = [str(program), str(library).replace("\\\\?\\", ""), *files]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert (deep / "out.csv").exists()


def test_c_program_and_files_that_are_no_library(case, program, tmp_path):
    wrong = tmp_path / "library"
    files = [case / "model", case / "edges.csv", case / "features.json", tmp_path / "out.csv"]
    for content in (None, b"", b"a text\n", b"MZ" + b"\0" * 99):
        if content is not None:
            wrong.write_bytes(content)
        done = subprocess.run(
            [str(program), str(wrong), *map(str, files)], capture_output=True, check=False, timeout=60
        )
        assert "library" in refusal(done)


def test_c_program_on_mutations(case, program, tmp_path):
    """Whatever the files hold, the program ends with results or with one line; it is also run under sanitizers so."""
    names = ("model/config.json", "model/model.safetensors", "features.json", "edges.csv")
    folder = tmp_path / "x"
    shutil.copytree(case, folder)
    pieces = [b"-", b"1e999", b"[", b"]", b"{", b"}", b",", b'"', b"\\", b"\0", b"\xff", b"16777216", b"9" * 30, b"\n"]
    rng = np.random.default_rng(5)
    for _ in range(int(os.environ.get("SAGE_ATTENTION_FUZZ", 400)) // 4):
        name = names[rng.integers(4)]
        whole = (case / name).read_bytes()
        most = 8 + int.from_bytes(whole[:8], "little") if name.endswith("safetensors") else len(whole)
        place, length = rng.integers(most), rng.integers(5)
        (folder / name).write_bytes(whole[:place] + pieces[rng.integers(len(pieces))] + whole[place + length :])
        done = apply_in(folder, program)
        if done.returncode:
            refusal(done)
        (folder / name).write_bytes(whole)


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
