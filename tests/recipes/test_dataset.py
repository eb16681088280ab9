"""Edges, features and labels together."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from sage_attention.errors import ArgumentError, DataError
from sage_attention.recipes.dataset import NodeDataset, load_dataset
from sage_attention.recipes.edges import read_edges
from sage_attention.recipes.features import read_features
from sage_attention.recipes.labels import read_labels
from sage_attention.recipes.node_dataset import both_ways


@pytest.fixture
def write(tmp_path):
    def to(name, text):
        path = tmp_path / name
        path.write_bytes(text.encode())
        return path

    return to


def refused(*files, **options):
    with pytest.raises(DataError) as caught:
        load_dataset(*files, **options)
    assert "\n" not in str(caught.value)
    return caught.value


FEATURES = "id,a,b\n30,3,0.3\n10,1,0.1\n20,2,0.2\n40,4,0.4\n"
LABELS = "id,label\n40,x\n10,y\n30,x\n20,y\n"
EDGES = "source,target\n10,20\n30,10\n10,20\n20,20\n40,30\n"


def test_all_three(write):
    data = load_dataset(write("e.csv", EDGES), write("f.csv", FEATURES), write("l.csv", LABELS))
    assert data.node_ids.tolist() == [10, 20, 30, 40]
    assert data.edge_index.tolist() == [[0, 2, 0, 1, 3], [1, 0, 1, 1, 2]]
    np.testing.assert_array_equal(data.features, np.array([[1, 0.1], [2, 0.2], [3, 0.3], [4, 0.4]], np.float32))
    assert data.labels.tolist() == [1, 1, 0, 0]
    assert data.class_names == ["x", "y"]
    assert (data.num_nodes, data.num_edges, data.num_classes) == (4, 5, 2)
    assert sorted([*data.train, *data.val, *data.test]) == [0, 1, 2, 3]
    for name in ("node_ids", "edge_index", "labels", "train", "val", "test"):
        assert getattr(data, name).dtype == np.int64, name


def test_it_is_frozen(write):
    data = load_dataset(write("e.csv", EDGES))
    with pytest.raises(dataclasses.FrozenInstanceError):
        data.labels = None


def test_tables_read_before_give_the_same(write):
    edges, features, labels = write("e.csv", EDGES), write("f.csv", FEATURES), write("l.csv", LABELS)
    a = load_dataset(edges, features, labels, seed=3)
    b = load_dataset(read_edges(edges), read_features(str(features)), read_labels(labels), seed=3)
    for field in dataclasses.fields(NodeDataset):
        np.testing.assert_array_equal(getattr(a, field.name), getattr(b, field.name))


def test_without_labels(write):
    data = load_dataset(write("e.csv", EDGES), write("f.csv", FEATURES))
    assert data.labels.tolist() == [-1] * 4
    assert data.class_names == []
    assert data.train.size == data.val.size == data.test.size == 0


def test_without_features_nodes_are_those_of_labels_and_edges(write):
    data = load_dataset(write("e.csv", "9,5\n5,7\n"), labels=write("l.csv", "7,a\n3,b\n5,a\n11,b\n"))
    assert data.node_ids.tolist() == [3, 5, 7, 9, 11]
    assert data.features is None
    assert data.labels.tolist() == [1, 0, 0, -1, 1]
    assert data.edge_index.tolist() == [[3, 1], [1, 2]]


def test_nodes_without_edges_or_labels_stay(write):
    data = load_dataset(write("e.csv", "10,20\n"), write("f.csv", FEATURES), write("l.csv", "10,x\n20,y\n40,x\n30,y\n"))
    assert data.num_nodes == 4


def test_integers_are_ordered_by_value_and_text_by_code_point(write):
    assert load_dataset(write("e.csv", "10,9\n9,100\n")).node_ids.tolist() == [9, 10, 100]
    assert load_dataset(write("e.csv", "010,9\n9,100\n")).node_ids.tolist() == ["010", "100", "9"]


def test_text_ids(write):
    data = load_dataset(
        write("e.csv", "甲,bob\nbob,ann\n"),
        write("f.json", json.dumps({"bob": [1], "甲": [0, 2], "ann": []})),
        write("l.csv", "id,label,split\n甲,p,train\nbob,q,train\nann,p,\n"),
    )
    assert data.node_ids.tolist() == ["ann", "bob", "甲"]
    assert data.edge_index.tolist() == [[2, 1], [1, 0]]
    assert data.labels.tolist() == [0, 1, 0]
    assert data.train.tolist() == [1, 2]
    assert data.features.toarray().tolist() == [[0, 0, 0], [0, 1, 0], [1, 0, 1]]


def test_sparse_features_stay_sparse_and_follow_their_nodes(write):
    data = load_dataset(write("e.csv", "5,3\n"), write("f.json", '{"5": [2], "3": [0], "4": [1]}'))
    assert sp.issparse(data.features)
    assert (data.features.format, data.features.dtype, data.features.indices.dtype) == (
        "csr",
        np.float32,
        np.int32,
    )
    assert data.features.toarray().tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]


def test_arrays_by_row_number(tmp_path):
    np.save(tmp_path / "e.npy", np.array([[0, 1, 4], [1, 2, 0]]))
    np.save(tmp_path / "f.npy", np.eye(5))
    np.save(tmp_path / "l.npy", np.array([1, 0, -1, 0, 1]))
    data = load_dataset(tmp_path / "e.npy", tmp_path / "f.npy", tmp_path / "l.npy")
    assert data.node_ids.tolist() == [0, 1, 2, 3, 4]
    assert data.labels.tolist() == [1, 0, -1, 0, 1]
    np.testing.assert_array_equal(data.features, np.eye(5))


def test_given_split(write):
    text = "id,label,split\n40,x,train\n10,y,val\n30,x,test\n20,y,train\n"
    data = load_dataset(write("e.csv", EDGES), write("f.csv", FEATURES), write("l.csv", text))
    assert (data.train.tolist(), data.val.tolist(), data.test.tolist()) == ([1, 3], [0], [2])


def test_given_split_may_have_a_class_of_one(write):
    text = "id,label,split\n40,x,train\n10,y,train\n30,z,test\n"
    data = load_dataset(write("e.csv", EDGES), write("f.csv", FEATURES), write("l.csv", text))
    assert data.test.tolist() == [2]


def test_undirected(write):
    data = load_dataset(write("e.csv", EDGES), undirected=True)
    pairs = [tuple(pair) for pair in data.edge_index.T.tolist()]
    assert pairs == [(0, 1), (0, 2), (1, 0), (1, 1), (2, 0), (2, 3), (3, 2)]


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=30))
def test_both_ways_is_the_symmetric_closure(pairs):
    both = both_ways(np.array(pairs, np.int64).T, 7)
    assert [tuple(p) for p in both.T.tolist()] == sorted({*pairs, *((b, a) for a, b in pairs)})


def test_both_ways_of_too_many_nodes():
    with pytest.raises(DataError, match="at most 3037000499 nodes"):
        both_ways(np.zeros((2, 1), np.int64), 2**32)


def test_split_depends_on_the_order_of_nodes_not_of_rows(write):
    rows = [f"{i},{'ab'[i % 2]}" for i in range(40)]
    edges = write("e.csv", "0,1\n")
    a = load_dataset(edges, labels=write("l.csv", "\n".join(rows)), seed=5)
    b = load_dataset(edges, labels=write("m.csv", "\n".join(reversed(rows))), seed=5)
    assert a.train.tolist() == b.train.tolist()
    assert a.test.tolist() == b.test.tolist()


@pytest.mark.parametrize(
    ("edges", "features", "labels", "message"),
    [
        (
            "10,20\n10,99\n20,98\n",
            FEATURES,
            None,
            "e.csv, row 2, column 2: expected a node of f.csv, got '99'",
        ),
        ("s,t\n99,20\n", FEATURES, None, "e.csv, row 2, column s: expected a node of f.csv, got '99'"),
        (
            "10,20\n",
            FEATURES,
            "10,a\n20,b\n5,a\n",
            "l.csv, row 3, column 1: expected a node of f.csv, got '5'",
        ),
        (
            "10,20\n",
            FEATURES,
            "10,a\n20,b\n30,a\n",
            "l.csv, row 2, column 2: expected at least two nodes of the class 'b'",
        ),
        (
            "10,20\n",
            FEATURES,
            "id,label\n10,a\n20,a\n",
            "column label: expected at least two classes, got only 'a'",
        ),
        ("10,20\n", FEATURES, "ann,a\nbob,b\n", "l.csv, row 1, column 1: expected integer node ids"),
        (
            "ann,bob\n",
            FEATURES,
            None,
            "e.csv, row 1, column 1: expected integer node ids, as in column id of f.csv",
        ),
        (
            "10,20\n",
            None,
            "ann,a\nbob,b\n",
            "l.csv, row 1, column 1: expected integer node ids, as in column 1 of e.csv",
        ),
        ("10,20\n20,12x\n", FEATURES, None, "e.csv, row 2, column 2: expected integer node ids"),
        (
            "10,12x\n",
            FEATURES,
            None,
            "e.csv, row 1, column 2: expected integer node ids, as in column id of f.csv",
        ),
        (
            "10,20\n",
            FEATURES,
            "id,label,split\n10,a,val\n20,b,test\n",
            "column split: expected at least one labelled node in train",
        ),
    ],
)
def test_files_that_do_not_fit(write, edges, features, labels, message):
    files = [write("e.csv", edges), features and write("f.csv", features), labels and write("l.csv", labels)]
    assert message in str(refused(*files))


def test_unknown_nodes_are_counted(write):
    assert "3 edges name nodes without features" in str(
        refused(write("e.csv", "10,99\n10,98\n20,97\n"), write("f.csv", FEATURES))
    )


def test_edge_beyond_the_rows_of_an_array(write, tmp_path):
    np.save(tmp_path / "f.npy", np.eye(3))
    error = refused(write("e.csv", "0,1\n2,3\n"), tmp_path / "f.npy")
    assert (error.row, error.column, error.expected) == (2, 2, "a node of f.npy")


def test_text_edges_with_features_by_row_number(write, tmp_path):
    np.save(tmp_path / "f.npy", np.eye(3))
    assert "integer node ids, as in f.npy" in str(refused(write("e.csv", "ann,bob\n"), tmp_path / "f.npy"))


def test_row_of_a_json_key(write):
    features = write("f.json", '{"10": [0],\n"20": [1],\n"x": [1]}')
    error = refused(write("e.csv", "10,20\n"), features)
    assert (error.path, error.row) == (str(features), 3)


def test_more_labels_than_rows_of_features(tmp_path):
    np.save(tmp_path / "e.npy", np.array([[0, 1, 2], [1, 2, 0]]))
    np.save(tmp_path / "f.npy", np.eye(3))
    np.save(tmp_path / "l.npy", np.array([1, 0, 1, 0]))
    error = refused(tmp_path / "e.npy", tmp_path / "f.npy", tmp_path / "l.npy")
    assert (error.row, error.expected) == (4, "a node of f.npy")


@pytest.mark.parametrize("split", [(0.6, 0.2), (0.6, 0.2, 0.1), (0.5, 0.3, 0.1, 0.1)])
def test_wrong_fractions_before_anything_is_read(split):
    assert "a split of three fractions" in str(refused("none.csv", split=split))


def test_wrong_seed_before_anything_is_read():
    with pytest.raises(ArgumentError, match="seed"):
        load_dataset("none.csv", seed=-1)


@pytest.mark.parametrize("at", [0, 1, 2])
def test_missing_files(write, tmp_path, at):
    files = [write("e.csv", EDGES), write("f.csv", FEATURES), write("l.csv", LABELS)]
    files[at] = tmp_path / "none.csv"
    error = refused(*files)
    assert (error.path, error.got) == (str(tmp_path / "none.csv"), "nothing at this path")


def test_zero_padded_ids_in_some_files_only(write):
    edges, labels = write("e.csv", "123,456\n456,7890\n"), write("l.csv", "123,a\n456,b\n7890,a\n007,b\n")
    data = load_dataset(edges, write("f.csv", "123,1\n007,2\n456,3\n7890,4\n"), labels)
    assert data.node_ids.tolist() == ["007", "123", "456", "7890"]
    assert data.edge_index.tolist() == [[1, 2], [2, 3]]
