"""A whole data set in one NPZ file."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from sage_attention.errors import DataError
from sage_attention.recipes.dataset import load_npz_dataset

GOOD = {
    "edge_index": np.array([[0, 1, 4], [1, 2, 0]], np.int32),
    "x_indptr": [0, 1, 2, 2, 3, 3],
    "x_indices": np.array([2, 0, 1], np.int32),
    "x_data": np.array([1, 0.5, 2], np.float64),
    "x_shape": [5, 3],
    "y": np.array([3, 1, -1, 3, 1], np.int16),
    "train_idx": [3, 0],
    "val_idx": [1],
    "test_idx": [4],
}
X = np.array([[0, 0, 1], [0.5, 0, 0], [0, 0, 0], [0, 2, 0], [0, 0, 0]], np.float32)


def save(tmp_path, without=(), **change):
    path = tmp_path / "all in 一.npz"
    np.savez(path, **{k: v for k, v in {**GOOD, **change}.items() if k not in without})
    return path


def test_everything(tmp_path):
    data = load_npz_dataset(save(tmp_path))
    assert data.node_ids.tolist() == [0, 1, 2, 3, 4]
    assert data.edge_index.tolist() == GOOD["edge_index"].tolist()
    assert (data.features.format, data.features.dtype, data.features.indices.dtype) == (
        "csr",
        np.float32,
        np.int32,
    )
    np.testing.assert_array_equal(data.features.toarray(), X)
    assert data.labels.tolist() == [1, 0, -1, 1, 0]
    assert data.class_names == ["1", "3"]
    assert (data.train.tolist(), data.val.tolist(), data.test.tolist()) == ([0, 3], [1], [4])
    for name in ("node_ids", "edge_index", "labels", "train", "val", "test"):
        assert getattr(data, name).dtype == np.int64, name


def test_data_of_a_sparse_matrix_may_be_missing(tmp_path):
    data = load_npz_dataset(save(tmp_path, without=["x_data"]))
    np.testing.assert_array_equal(data.features.toarray(), X != 0)


def test_dense_features(tmp_path):
    data = load_npz_dataset(
        save(tmp_path, without=["x_indptr", "x_indices", "x_data", "x_shape"], x=X.astype(np.float64))
    )
    assert data.features.dtype == np.float32
    assert not sp.issparse(data.features)
    np.testing.assert_array_equal(data.features, X)


def test_masks(tmp_path):
    masks = {f"{k}_mask": np.isin(np.arange(5), GOOD[f"{k}_idx"]) for k in ("train", "val", "test")}
    data = load_npz_dataset(save(tmp_path, without=["train_idx", "val_idx", "test_idx"], **masks))
    assert (data.train.tolist(), data.val.tolist(), data.test.tolist()) == ([0, 3], [1], [4])


def test_only_edges(tmp_path):
    data = load_npz_dataset(save(tmp_path, without=GOOD.keys() - {"edge_index"}), undirected=True)
    assert data.features is None
    assert data.num_nodes == 5
    assert data.edge_index.tolist() == [[0, 0, 1, 1, 2, 4], [1, 4, 0, 2, 1, 0]]
    assert data.labels.tolist() == [-1] * 5


@pytest.mark.parametrize("node", [2**32, 2**62, 2**63 - 1])
def test_only_edges_with_ids_beyond_reason(tmp_path, node):
    path = save(tmp_path, without=GOOD.keys() - {"edge_index"}, edge_index=[[0, node], [1, 2]])
    with pytest.raises(DataError, match=f"from 0 to 4294967295, got {node} at position 1"):
        load_npz_dataset(path)


def test_split_by_chance(tmp_path):
    path = save(tmp_path, without=["train_idx", "val_idx", "test_idx"])
    data = load_npz_dataset(path, seed=1)
    assert sorted([*data.train, *data.val, *data.test]) == [0, 1, 3, 4]
    assert load_npz_dataset(path, seed=1).train.tolist() == data.train.tolist()


@pytest.mark.parametrize(
    ("without", "change", "message"),
    [
        (["edge_index"], {}, "an array named edge_index, got test_idx"),
        (
            [],
            {"edge_index": [[0, 5], [1, 2]]},
            "column edge_index: expected a node from 0 to 4, got 5 at position 1",
        ),
        ([], {"edge_index": [[0, -1], [1, 2]]}, "column edge_index: expected an id of 0 or more, got -1"),
        ([], {"edge_index": np.zeros((2, 0), int)}, "at least one edge"),
        ([], {"x_indices": [2, 0, 3]}, "column x_indices: expected an index from 0 to 2, got 3"),
        ([], {"x_indptr": [0, 1, 2, 3]}, "column x_indptr: expected 6 offsets for 5 rows, got 4"),
        ([], {"x_data": [1.0]}, "column x_data: expected 3 values"),
        ([], {"x_data": [1.0, np.nan, 1.0]}, "a finite float32 number, got nan"),
        (["x_shape"], {}, "all of x_indices, x_indptr, x_shape, got no x_shape"),
        ([], {"y": [0, 1]}, "column y: expected 5 labels, one per row of the features, got 2"),
        ([], {"y": [0, 1, -2, 1, 0]}, "column y: expected a label of 0 or more, or -1 for none, got -2"),
        ([], {"y": [1.0, 0, 0, 1, 1]}, "column y: expected integers"),
        ([], {"y": [1, 1, -1, 1, 1]}, "column y: expected at least two classes, got only '1'"),
        (["y"], {}, "labels named y for the split, got none"),
        ([], {"train_idx": [5]}, "column train_idx: expected a node from 0 to 4, got 5"),
        ([], {"train_idx": [0, 0]}, "each node of train once, got node 0 again"),
        ([], {"train_idx": [0, 4]}, "train and test without common nodes, got node 4 in both"),
        ([], {"train_idx": [0, 2]}, "a label for each node of train, got none for node 2"),
        ([], {"train_idx": np.zeros(0, int)}, "at least one labelled node in train"),
        (
            ["train_idx"],
            {"train_mask": [True]},
            "column train_mask: expected booleans of shape [5], got bool [1]",
        ),
        (["train_idx"], {"train_mask": [1, 0, 0, 0, 0]}, "expected booleans"),
        (
            ["train_idx", "val_idx", "test_idx"],
            {"y": [0, 1, -1, 0, 0]},
            "row 2, column y: expected at least two nodes of the class '1', got one",
        ),
    ],
)
def test_wrong(tmp_path, without, change, message):
    path = save(tmp_path, without, **change)
    with pytest.raises(DataError) as caught:
        load_npz_dataset(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_other_extension():
    with pytest.raises(DataError, match=r"ending in one of \.npz"):
        load_npz_dataset("a.npy")
