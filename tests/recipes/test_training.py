"""Training: the same result resumed, on other threads, and from any odd but valid data set."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch", reason="training needs torch")
pytest.importorskip("scipy", reason="training reads tables with SciPy")

import scipy.sparse

from sage_attention.errors import DataError, SageAttentionError
from sage_attention.inference import ModelConfig, load_model
from sage_attention.recipes import node
from sage_attention.recipes.checkpoint import CHECKPOINT_FILE, load_checkpoint, save_checkpoint
from sage_attention.recipes.node import train_node_classifier
from sage_attention.recipes.node_dataset import NodeDataset
from sage_attention.recipes.split import stratified_split
from sage_attention.recipes.synthetic import social_network
from sage_attention.recipes.trainer import TrainingOptions, TrainingState

OPTIONS = TrainingOptions(epochs=4, patience=4, batch_size=100, fan_outs=(5, 5), dropout=0.3, attention_dropout=0.2)
CONFIG = ModelConfig(num_features=0, hidden=4, heads=2)
FILES = ("predictions.parquet", "embeddings.npy", "model.safetensors", "config.json")


def make_data(sparse: bool = False, members: int = 300) -> NodeDataset:
    network = social_network(members, num_communities=3, seed=1)
    parts = stratified_split(network.labels, (0.6, 0.2, 0.2), 0)
    features = scipy.sparse.csr_array(network.features) if sparse else network.features
    return NodeDataset(
        np.arange(members), network.edge_index, features, network.labels, list(network.class_names), *parts
    )


def run(folder, data=None, options=OPTIONS, config=CONFIG, **more):
    data = make_data() if data is None else data
    return train_node_classifier(data, folder, config, options, quiet=True, **more)


def contents(folder):
    return {name: (folder / name).read_bytes() for name in FILES}


@pytest.mark.parametrize("sparse", [False, True])
def test_threads_do_not_matter(tmp_path, sparse):
    for threads in (1, 2, 3):
        run(tmp_path / str(threads), make_data(sparse), replace(OPTIONS, num_threads=threads))
    assert contents(tmp_path / "1") == contents(tmp_path / "2") == contents(tmp_path / "3")


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("stop_after", [1, 3])
def test_resumed_equals_unbroken(tmp_path, monkeypatch, sparse, stop_after):
    run(tmp_path / "unbroken", make_data(sparse))
    interrupt_after(monkeypatch, stop_after)
    with pytest.raises(node.Interrupted) as stop:
        run(tmp_path / "broken", make_data(sparse))
    assert stop.value.epoch == stop_after
    assert not (tmp_path / "broken" / "model.safetensors").exists()
    monkeypatch.undo()
    result = run(tmp_path / "broken", make_data(sparse), replace(OPTIONS, num_threads=2), resume=True)
    assert result.metrics["epochs"] == OPTIONS.epochs
    assert contents(tmp_path / "broken") == contents(tmp_path / "unbroken")
    assert not (tmp_path / "broken" / CHECKPOINT_FILE).exists()


def interrupt_after(monkeypatch, epochs):
    """Ctrl-C in the middle of the epoch that follows."""
    from sage_attention.recipes.batches import BatchSource

    real = BatchSource.batch

    def batch(self, order, epoch, number):
        if epoch == epochs + 1 and number == 1:
            raise KeyboardInterrupt
        return real(self, order, epoch, number)

    monkeypatch.setattr(BatchSource, "batch", batch)


def test_interrupted_at_once_writes_nothing(tmp_path, monkeypatch):
    interrupt_after(monkeypatch, 0)
    with pytest.raises(node.Interrupted) as stop:
        run(tmp_path)
    assert stop.value.path is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("data", "options", "says"),
    [
        (make_data(), replace(OPTIONS, seed=5), "seed"),
        (make_data(), replace(OPTIONS, learning_rate=0.5), "learning_rate"),
        (make_data(members=301), OPTIONS, "data"),
    ],
)
def test_resume_refuses_another_run(tmp_path, monkeypatch, data, options, says):
    interrupt_after(monkeypatch, 1)
    with pytest.raises(node.Interrupted):
        run(tmp_path)
    monkeypatch.undo()
    with pytest.raises(DataError, match=says):
        run(tmp_path, data, options, resume=True)


def test_resume_with_nothing_to_resume(tmp_path):
    with pytest.raises(DataError, match="nothing was interrupted"):
        run(tmp_path, resume=True)


ROW = {"epoch": 1, "train_loss": 1.0, "val_accuracy": 0.5, "val_loss": 1.0, "seconds": 0.1}


def test_damaged_checkpoint(tmp_path):
    state = TrainingState(1, [ROW])
    path = save_checkpoint(tmp_path, state, {"seed": 1})
    assert load_checkpoint(tmp_path, {"seed": 1}).epoch == 1
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(DataError, match="whole checkpoint"):
        load_checkpoint(tmp_path, {"seed": 1})


@pytest.mark.parametrize(
    "state",
    [
        "[" * 100_000,
        json.dumps({"epoch": math.inf, "history": [ROW], "run": {}}),
        json.dumps({"epoch": 1.0, "history": [ROW], "run": {}}),
        json.dumps({"epoch": -1, "history": [], "run": {}}),
        json.dumps({"epoch": 1, "history": [{**ROW, "epoch": math.inf}], "run": {}}),
        json.dumps({"epoch": 1, "history": [{**ROW, "epoch": 2}], "run": {}}),
        json.dumps({"epoch": 1, "history": [{**ROW, "seconds": None}], "run": {}}),
        json.dumps({"epoch": 1, "history": [{**ROW, "train_loss": "x"}], "run": {}}),
        json.dumps({"epoch": 1, "history": [{k: v for k, v in ROW.items() if k != "seconds"}], "run": {}}),
        json.dumps({"epoch": 1, "history": {"0": ROW}, "run": {}}),
    ],
    ids=lambda state: state[:70],
)
def test_checkpoint_of_nonsense(tmp_path, state):
    """Whole as a file of tensors; what it says of the run is not."""
    from sage_attention.recipes.output import write_safetensors

    write_safetensors(tmp_path / CHECKPOINT_FILE, {}, {"state": state})
    with pytest.raises(DataError, match="whole checkpoint") as error:
        load_checkpoint(tmp_path, {})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "change",
    [
        lambda tensors: {name: tensor.astype(np.float64) for name, tensor in tensors.items()},
        lambda tensors: {name: tensor.astype(np.int32) for name, tensor in tensors.items()},
        lambda tensors: {**tensors, "model.another": np.zeros(1, np.float32)},
        lambda tensors: {**tensors, "optimizer.another.step": np.zeros((), np.float32)},
        lambda tensors: {name: np.asarray(-t if name.endswith("step") else t) for name, t in tensors.items()},
    ],
)
def test_checkpoint_of_other_tensors(tmp_path, monkeypatch, change):
    from safetensors import safe_open

    from sage_attention.recipes.output import write_safetensors

    interrupt_after(monkeypatch, 1)
    with pytest.raises(node.Interrupted):
        run(tmp_path)
    monkeypatch.undo()
    path = tmp_path / CHECKPOINT_FILE
    with safe_open(path, framework="np") as file:
        tensors, about = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118
    write_safetensors(path, change(tensors), about)
    with pytest.raises(DataError, match="whole checkpoint"):
        run(tmp_path, resume=True)


@pytest.mark.parametrize("lost", ["model.convs.0.bias", "best.convs.1.lin.weight", "optimizer.convs.0.bias.step"])
def test_checkpoint_that_lacks_something(tmp_path, monkeypatch, lost):
    """Whole as a file, but not what this version writes."""
    from safetensors import safe_open

    from sage_attention.recipes.output import write_safetensors

    interrupt_after(monkeypatch, 1)
    with pytest.raises(node.Interrupted):
        run(tmp_path)
    monkeypatch.undo()
    path = tmp_path / CHECKPOINT_FILE
    with safe_open(path, framework="np") as file:
        tensors, about = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118
    write_safetensors(path, {**tensors, lost: np.zeros((3, 1, 2), np.float32)}, about)
    with pytest.raises(DataError, match="whole checkpoint"):
        run(tmp_path, resume=True)
    del tensors[lost]
    write_safetensors(path, tensors, about)
    with pytest.raises(DataError, match="whole checkpoint"):
        run(tmp_path, resume=True)


def test_resumed_on_other_features(tmp_path, monkeypatch):
    interrupt_after(monkeypatch, 1)
    with pytest.raises(node.Interrupted):
        run(tmp_path)
    monkeypatch.undo()
    data = make_data()
    data.features[-1, -1] += 1
    with pytest.raises(DataError, match="other data"):
        run(tmp_path, data, resume=True)


def test_more_epochs_on_resume(tmp_path, monkeypatch):
    """How long to train may change; what is learnt in each epoch may not."""
    run(tmp_path / "long", options=replace(OPTIONS, epochs=6, patience=6))
    interrupt_after(monkeypatch, 2)
    with pytest.raises(node.Interrupted):
        run(tmp_path / "short")
    monkeypatch.undo()
    run(tmp_path / "short", options=replace(OPTIONS, epochs=6, patience=6), resume=True)
    assert contents(tmp_path / "short") == contents(tmp_path / "long")


def test_stops_early(tmp_path, monkeypatch):
    from sage_attention.recipes.trainer import Trainer

    results = iter([(1.0, 0.5), (0.9, 0.6), (1.1, 0.5), (1.1, 0.5), (1.1, 0.5), (0.1, 0.9)])
    monkeypatch.setattr(Trainer, "_validate", lambda _: next(results))
    metrics = run(tmp_path, options=replace(OPTIONS, epochs=100, patience=3)).metrics
    assert (metrics["epochs"], metrics["best_epoch"]) == (5, 2)


def test_unlabelled_nodes_are_predicted_and_never_learnt(tmp_path):
    import pyarrow.parquet as pq

    data = make_data()
    labels = data.labels.copy()
    labels[::2] = -1
    data = replace(data, labels=labels, **{p: getattr(data, p)[getattr(data, p) % 2 == 1] for p in ("train", "val")})
    data = replace(data, test=data.test[data.test % 2 == 1])
    run(tmp_path, data)
    table = pq.read_table(tmp_path / "predictions.parquet")
    assert table.num_rows == 300
    assert set(table["predicted"].to_pylist()) <= set(data.class_names)


def test_learns(tmp_path):
    options = replace(OPTIONS, epochs=15, patience=15, learning_rate=0.02)
    metrics = run(tmp_path, make_data(members=1500), options).metrics
    assert metrics["test_accuracy"] > 0.8
    assert metrics["seconds_per_epoch"] > 0
    assert metrics["peak_rss_mb"] > 10


def test_saved_model_gives_the_written_predictions(tmp_path):
    import pyarrow.parquet

    data = make_data()
    run(tmp_path, data)
    table = pyarrow.parquet.read_table(tmp_path / "predictions.parquet").to_pydict()
    model = load_model(tmp_path)
    graph = node.simple_graph(data)
    probabilities = model.predict_proba(graph, data.features)
    assert table["node"] == data.node_ids.tolist()
    assert table["predicted"] == [data.class_names[k] for k in probabilities.argmax(1)]
    np.testing.assert_array_equal(np.float32(table["probability"]), probabilities.max(1))
    np.testing.assert_array_equal(np.load(tmp_path / "embeddings.npy"), model.embed(graph, data.features))


def nobody(data, **parts):
    return replace(data, **{name: np.empty(0, np.int64) for name in parts})


@pytest.mark.parametrize(
    "change",
    [
        {"options": {"fan_outs": (-1, -1)}},
        {"options": {"batch_size": 10_000}},
        {"options": {"fan_outs": (5,)}, "config": {"layers": 1}},
        {"options": {"fan_outs": (4, 3, 2)}, "config": {"layers": 3, "output_heads": 2}},
        {"config": {"normalize": "row"}},
        {"nobody": ("val",)},
        {"nobody": ("test",)},
        {"features": None},
        {"edges": np.empty((2, 0), np.int64)},
    ],
    ids=str,
)
def test_odd_but_valid(tmp_path, change):
    data = make_data()
    data = nobody(data, **dict.fromkeys(change.get("nobody", ())))
    if "features" in change:
        data = replace(data, features=None)
    if "edges" in change:
        data = replace(data, edge_index=change["edges"])
    options, config = replace(OPTIONS, **change.get("options", {})), replace(CONFIG, **change.get("config", {}))
    metrics = run(tmp_path, data, options, config).metrics
    assert metrics["epochs"] == 4
    assert (metrics["test_accuracy"] is None) == ("test" in change.get("nobody", ()))
    assert "<html" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_nobody_to_learn_from(tmp_path):
    with pytest.raises(DataError, match="train"):
        run(tmp_path / "out", nobody(make_data(), train=None))
    assert not (tmp_path / "out").exists()


def test_early_stopping_keeps_the_last_unbeaten():
    rows = [(0.5, 1.0), (0.6, 0.9), (0.6, 1.1), (0.55, 0.8), (0.4, 2.0)]
    history = [{"epoch": e + 1, "val_accuracy": a, "val_loss": b} for e, (a, b) in enumerate(rows)]
    state = TrainingState(len(rows), history)
    assert state.best_epoch == 2
    assert state.improved_epoch == 4


def test_error_in_the_second_thread_surfaces(tmp_path, monkeypatch):
    from sage_attention.recipes import batches

    def broken(*_arguments, **_options):
        raise MemoryError("no more")

    monkeypatch.setattr(batches, "sample_neighbours", broken)
    with pytest.raises(MemoryError, match="no more"):
        run(tmp_path, options=replace(OPTIONS, num_threads=2))


def test_failure_while_writing_leaves_the_previous_results(tmp_path, monkeypatch):
    run(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(path, _run):
        raise SageAttentionError(f"{path}: cannot be written: no space left")

    monkeypatch.setattr(node, "write_report", full)
    with pytest.raises(SageAttentionError, match=re.escape(str(tmp_path / "report.html")) + ".*--resume"):
        run(tmp_path, options=replace(OPTIONS, seed=3))
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert after.pop(CHECKPOINT_FILE)
    assert after == before
    monkeypatch.undo()
    assert run(tmp_path, options=replace(OPTIONS, seed=3), resume=True).metrics["seed"] == 3
    assert {path.name for path in tmp_path.iterdir()} == set(before)
