"""A saved model applied with NumPy: equal to the layers it was trained with, and never from damaged files."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("safetensors", reason="models are saved as safetensors")

from sage_attention import Graph, load_model
from sage_attention.errors import ArgumentError, DataError
from sage_attention.inference import (
    ModelConfig,
    NodeClassifier,
    degree_features,
    normalized,
    project,
    with_self_loops,
)

CONFIG = ModelConfig(num_features=6, class_names=["a", "b", "c"], hidden=4, heads=2, layers=2)


def make_tensors(config: ModelConfig) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    tensors = {}
    for layer, (columns, heads, channels) in enumerate(config.layer_sizes()):
        width = channels if layer == config.layers - 1 else heads * channels
        shapes = {
            "lin.weight": (heads * channels, columns),
            "att_src": (1, heads, channels),
            "att_dst": (1, heads, channels),
            "bias": (width,),
        }
        for name, shape in shapes.items():
            tensors[f"convs.{layer}.{name}"] = generator.standard_normal(shape, dtype=np.float32)
    return tensors


def make_graph(num_nodes: int = 30) -> Graph:
    generator = np.random.default_rng(1)
    return Graph.from_edge_index(generator.integers(0, num_nodes, (2, 120), dtype=np.int64), num_nodes)


def make_features(graph: Graph) -> np.ndarray:
    return np.random.default_rng(2).standard_normal((graph.num_nodes, 6), dtype=np.float32)


def save(folder, config=CONFIG, tensors=None):
    from safetensors.numpy import save_file

    save_file(make_tensors(config) if tensors is None else tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config.to_json()), encoding="utf-8")
    return folder


def change(folder, **values):
    (folder / "config.json").write_text(json.dumps({**CONFIG.to_json(), **values}))


def of_type(dtype):
    """A file of one tensor without elements, of a type that NumPy may not know."""
    header = json.dumps({"convs.0.bias": {"dtype": dtype, "shape": [0, 3], "data_offsets": [0, 0]}}).encode()
    return len(header).to_bytes(8, "little") + header


def cut(path):
    path.write_bytes(path.read_bytes()[:-7])


@pytest.mark.parametrize("output_heads", [1, 3])
def test_equals_pyg(output_heads):
    torch = pytest.importorskip("torch", reason="the peer needs torch")
    pyg = pytest.importorskip("torch_geometric.nn", reason="PyTorch Geometric is the peer")
    config = ModelConfig(6, ["a", "b", "c"], hidden=4, heads=2, output_heads=output_heads)
    tensors = make_tensors(config)
    graph = make_graph()
    x, edge_index = make_features(graph), torch.from_numpy(graph.to_edge_index())
    first, second = pyg.GATConv(6, 4, heads=2), pyg.GATConv(8, 3, heads=output_heads, concat=False)
    for layer, conv in enumerate((first, second)):
        start = f"convs.{layer}."
        conv.load_state_dict(
            {n[len(start) :]: torch.from_numpy(t) for n, t in tensors.items() if n.startswith(start)}, strict=True
        )
    with torch.no_grad():
        hidden = torch.nn.functional.elu(first(torch.from_numpy(x), edge_index))
        expected = second(hidden, edge_index).numpy()
    logits, embeddings = NodeClassifier(config, tensors).forward(graph, x)
    np.testing.assert_allclose(embeddings, hidden.numpy(), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=2e-5)


def test_sparse_equals_dense():
    scipy_sparse = pytest.importorskip("scipy.sparse", reason="sparse features come from SciPy")
    graph, model = make_graph(), NodeClassifier(CONFIG, make_tensors(CONFIG))
    x = make_features(graph) * (np.random.default_rng(3).random((graph.num_nodes, 6)) < 0.3)
    dense = model.predict_proba(graph, x)
    np.testing.assert_allclose(model.predict_proba(graph, scipy_sparse.csr_array(x)), dense, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(dense.sum(1), 1, rtol=1e-5)


def test_round_trip(tmp_path):
    graph = make_graph()
    model = load_model(save(tmp_path))
    assert model.config == CONFIG
    expected = NodeClassifier(CONFIG, make_tensors(CONFIG)).predict_proba(graph, make_features(graph))
    np.testing.assert_array_equal(model.predict_proba(graph, make_features(graph)), expected)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_do_not_matter(threads):
    generator = np.random.default_rng(0)
    x = generator.standard_normal((10_000, 33), dtype=np.float32)
    weight = generator.standard_normal((7, 33), dtype=np.float32)
    out = project(x, weight, threads)
    np.testing.assert_array_equal(out, project(x, weight, 1))
    np.testing.assert_allclose(out, x @ weight.T, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("layout", ["csr", "csc", "coo", "lil"])
def test_sparse_layouts(layout):
    """All that have rows, columns and values give the same; a CSC matrix looks like a CSR one, but is not."""
    scipy_sparse = pytest.importorskip("scipy.sparse", reason="sparse features come from SciPy")
    graph, model = make_graph(6), NodeClassifier(CONFIG, make_tensors(CONFIG))
    x = scipy_sparse.csr_array(make_features(graph) * (np.arange(6) % 2))
    expected = model.forward(graph, x)[0]
    np.testing.assert_array_equal(model.forward(graph, x.asformat(layout))[0], expected)


def test_degrees_do_not_count_self_loops():
    config = ModelConfig(4, ["a", "b"], hidden=2, heads=1, features="degree")
    model = NodeClassifier(config, make_tensors(config))
    edges = [[0, 1, 2, 2], [1, 2, 1, 0]]
    loops = [[*edges[0], 0, 1, 1], [*edges[1], 0, 1, 1]]
    plain, looped = (Graph.from_edge_index(e, 3) for e in (edges, loops))
    np.testing.assert_array_equal(model.forward(plain)[0], model.forward(looped)[0])
    assert degree_features(np.array([0, 1, 2, 3, 4, 999]), 4).argmax(1).tolist() == [0, 1, 2, 2, 3, 3]


def test_self_loops_replace_those_that_are_there():
    looped = with_self_loops(Graph.from_edge_index([[0, 1, 1, 2], [0, 0, 1, 1]], 3))
    assert looped.to_edge_index().tolist() == [[1, 0, 2, 1, 2], [0, 0, 1, 1, 2]]


def test_rows_without_sum_stay():
    np.testing.assert_array_equal(normalized(np.array([[1, 3], [0, 0]], np.float32), "row"), [[0.25, 0.75], [0, 0]])


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "model.safetensors").unlink(),
        lambda folder: (folder / "config.json").unlink(),
        lambda folder: (folder / "config.json").write_text("{"),
        lambda folder: (folder / "config.json").write_text("[]"),
        lambda folder: (folder / "config.json").write_text("{}"),
        lambda folder: (folder / "config.json").write_bytes(b"\xff\xfe\xfd"),
        lambda folder: (folder / "config.json").write_text(json.dumps({**CONFIG.to_json(), "format": 99})),
        lambda folder: (folder / "config.json").write_text(json.dumps({**CONFIG.to_json(), "hidden": "x"})),
        lambda folder: (folder / "config.json").write_text(json.dumps({**CONFIG.to_json(), "hidden": 5})),
        lambda folder: (folder / "model.safetensors").write_bytes(b""),
        lambda folder: (folder / "model.safetensors").write_bytes(b"x" * 100),
        lambda folder: save(folder, tensors={"convs.0.bias": np.zeros(3, np.float32)}),
        lambda folder: (folder / "config.json").write_text("[" * 100_000),
        lambda folder: change(folder, layers=0),
        lambda folder: change(folder, layers=10**12),
        lambda folder: change(folder, normalize="rows"),
        lambda folder: change(folder, features="none"),
        lambda folder: change(folder, undirected="no"),
        lambda folder: change(folder, class_names=[1, 2, 3]),
        lambda folder: change(folder, negative_slope=float("nan")),
        lambda folder: change(folder, negative_slope=10**400),
        lambda folder: change(folder, num_features=0, features="degree"),
        lambda folder: change(folder, model="another"),
        lambda folder: change(folder, format=True),
        lambda folder: save(folder, tensors={k: v.astype(np.complex64) for k, v in make_tensors(CONFIG).items()}),
        lambda folder: save(folder, tensors={k: v.astype(float) + 1e300 for k, v in make_tensors(CONFIG).items()}),
        lambda folder: save(folder, tensors={k: v * np.float32(np.nan) for k, v in make_tensors(CONFIG).items()}),
        lambda folder: (folder / "model.safetensors").write_bytes(of_type("F8_E4M3")),
        lambda folder: cut(folder / "model.safetensors"),
    ],
)
def test_damaged_files(tmp_path, damage):
    damage(save(tmp_path))
    with pytest.raises(DataError) as error:
        load_model(tmp_path)
    assert "\n" not in str(error.value)


def test_files_of_two_models(tmp_path):
    """Of the same sizes, so that nothing else would tell."""
    from sage_attention.recipes.output import write_safetensors

    write_safetensors(
        tmp_path / "model.safetensors", make_tensors(CONFIG), {"config.json": json.dumps(CONFIG.to_json())}
    )
    change(tmp_path)
    assert load_model(tmp_path).config == CONFIG
    change(tmp_path, class_names=["x", "y", "z"])
    with pytest.raises(DataError, match="another one"):
        load_model(tmp_path)


@pytest.mark.parametrize("features", [None, np.zeros((30, 5), np.float32), np.zeros((29, 6), np.float32)])
def test_features_that_do_not_fit(features):
    with pytest.raises(ArgumentError, match="30 rows and 6 columns"):
        NodeClassifier(CONFIG, make_tensors(CONFIG)).forward(make_graph(), features)


@pytest.mark.parametrize("part", ["indices", "indptr"])
def test_sparse_features_that_lead_nowhere(part):
    """SciPy does not look; the kernels would follow."""
    sparse = pytest.importorskip("scipy.sparse")
    features = sparse.csr_array(make_features(make_graph()))
    getattr(features, part)[1] = 10**6
    with pytest.raises(ArgumentError, match="valid sparse matrix"):
        NodeClassifier(CONFIG, make_tensors(CONFIG)).forward(make_graph(), features)


def test_without_torch(tmp_path):
    """In a process where torch cannot be imported."""
    save(tmp_path)
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "import numpy as np, sage_attention\n"
        "graph = sage_attention.Graph.from_edge_index([[0, 1], [1, 0]])\n"
        f"model = sage_attention.load_model({str(tmp_path)!r})\n"
        "print(model.predict_proba(graph, np.ones((2, 6), np.float32)).shape)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "(2, 3)", done.stderr
