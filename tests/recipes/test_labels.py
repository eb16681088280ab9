"""Labels and splits in every format, and what is wrong with some."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sage_attention.errors import DataError
from sage_attention.recipes.labels import read_labels


def write(path, text):
    path.write_bytes(text.encode())
    return path


def refused(path, **options):
    """The error of reading a file, checked for what all errors have in common."""
    with pytest.raises(DataError) as caught:
        read_labels(path, **options)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("text", "ids", "labels", "names"),
    [
        ("id,label\n3,b\n1,a\n2,b\n", [3, 1, 2], [1, 0, 1], ["a", "b"]),
        ("3\tb\r\n1\ta", [3, 1], [1, 0], ["a", "b"]),
        ("0,10\n1,9\n2,10\n", [0, 1, 2], [1, 0, 1], ["9", "10"]),
        ("id,label\n0,10\n1,x\n", [0, 1], [0, 1], ["10", "x"]),
        ("id,label\n0,a\n1,\n2, a \n", [0, 1, 2], [0, -1, 0], ["a"]),
        ("id,label\n0,1\n1,-1\n2,0\n", [0, 1, 2], [1, -1, 0], ["0", "1"]),
        ("id,label\n0,-1\n1,x\n", [0, 1], [0, 1], ["-1", "x"]),
        ("ann,乙\nbob,甲\n", ["ann", "bob"], [0, 1], ["乙", "甲"]),
        ("label,id\n5,0\n6,1\n", [0, 1], [0, 1], ["5", "6"]),
        ("id,page_type\n0,tv\n1,gov\n", [0, 1], [1, 0], ["gov", "tv"]),
        ("id,name,class,more\n0,n,x,1\n1,m,y,1\n", [0, 1], [0, 1], ["x", "y"]),
    ],
)
def test_text(tmp_path, text, ids, labels, names):
    table = read_labels(write(tmp_path / "标 签.csv", text))
    assert table.ids.tolist() == ids
    assert table.labels.tolist() == labels
    assert table.labels.dtype == np.int64
    assert table.class_names == names
    assert table.split is None
    assert len(table) == len(ids)


@pytest.mark.parametrize(
    "text",
    [
        "id,label,split\n0,a,train\n1,b,val\n2,a,test\n3,b,\n4,a,Validation\n5,b, valid \n",
        "0,a,train\n1,b,val\n2,a,test\n3,b,\n4,a,validation\n5,b,valid\n",
        "split,id,label\ntrain,0,a\nval,1,b\nTEST,2,a\n,3,b\nvalid,4,a\nvalid,5,b\n",
    ],
)
def test_split(tmp_path, text):
    table = read_labels(write(tmp_path / "l.csv", text))
    assert table.split.tolist() == [0, 1, 2, -1, 1, 1]
    assert table.ids.tolist() == list(range(6))
    assert table.class_names == ["a", "b"]


def test_columns_asked_for(tmp_path):
    path = write(tmp_path / "l.csv", "a,b,c,d\n1,2,train,4\n5,6,test,8\n")
    table = read_labels(path, id_column="d", label_column=1, split_column="c")
    assert (table.ids.tolist(), table.class_names, table.split.tolist()) == ([4, 8], ["1", "5"], [0, 2])
    assert read_labels(path, label_column="b").ids.tolist() == [1, 5]


def test_third_column_that_is_no_split_when_the_label_is_said(tmp_path):
    path = write(tmp_path / "l.csv", "0,a,x\n1,b,y\n")
    assert read_labels(path, label_column=3).class_names == ["x", "y"]


@pytest.mark.parametrize(
    ("text", "row", "column", "expected", "got"),
    [
        ("id,label\n0,a\n1,b\n0,a\n", 4, "id", "one label per node", "'0' again (first on row 2)"),
        ("id,label\n0,a\n1,b\n0,b\n", 4, "id", "one label per node", "'0' again (first on row 2)"),
        ("x,a\ny,b\ny,b\nx,a\n", 3, 1, "one label per node", "'y' again (first on row 2)"),
        ("id,label\n0,\n1,\n", None, "label", "at least one label", "none"),
        ("id,label\n0,-1\n1,-1\n", None, "label", "at least one label", "none"),
        ("id,label\n1.5,a\n2,b\n", 2, "id", "integer or text ids", "'1.5'"),
        ("id,label\n-1,a\n2,b\n", 2, "id", "0 or more", "-1"),
        ("id,label\n,a\n2,b\n", 2, "id", "a node id", "an empty cell"),
        ("id,label,split\n0,a,train\n1,b,tset\n", 3, "split", "train, val, test or nothing", "'tset'"),
        ("0,a,train\n1,b,hold out\n", 2, 3, "train, val, test or nothing", "'hold out'"),
        ("id,label,split\n0,a,train\n1,,val\n", 3, "label", "a label, as the node is in val", "none"),
        ("id,p,q,r\n0,a,b,c\n", None, None, "one column of labels", "'p', 'q', 'r'"),
        ("id,split\n0,train\n", None, None, "one column of labels", "no other column"),
        ("id\n0\n", 1, None, "columns of ids and of labels", "one: 'id'"),
        ("id,label\n", None, None, "at least one row", "a header only"),
        ("id,label\n0,a\n1\n", 3, None, "2 cells", "1 cell"),
        ('id,label\n0,a\n1,"b\n2,c\n', 3, None, "both their quotes", "not closed"),
    ],
)
def test_wrong_text(tmp_path, text, row, column, expected, got):
    error = refused(write(tmp_path / "l.csv", text))
    assert (error.row, error.column) == (row, column)
    assert expected in error.expected
    assert got in error.got


def test_columns_to_choose_from_are_named(tmp_path):
    assert refused(write(tmp_path / "l.csv", "id,p,q\n0,a,b\n")).got == "'p', 'q'"


@pytest.mark.parametrize("options", [{"label_column": "z"}, {"id_column": 9}, {"split_column": "z"}])
def test_unknown_columns(tmp_path, options):
    error = refused(write(tmp_path / "l.csv", "id,label\n0,a\n1,b\n"), **options)
    assert "the columns 'id', 'label'" in error.got


def test_one_column_for_two_purposes(tmp_path):
    path = write(tmp_path / "l.csv", "id,label\n0,a\n1,b\n")
    assert "different columns" in refused(path, id_column="id", label_column="id").expected


@pytest.mark.parametrize(
    ("column", "labels", "names"),
    [
        (pa.array([10, 9, None]), [1, 0, -1], ["9", "10"]),
        (pa.array([1.0, 0.0, np.nan]), [1, 0, -1], ["0", "1"]),
        (pa.array([1.0, 0.0, None]), [1, 0, -1], ["0", "1"]),
        (pa.array(["b", "a", None]), [1, 0, -1], ["a", "b"]),
        (pa.array(["b", "a", ""]).dictionary_encode(), [1, 0, -1], ["a", "b"]),
        (pa.array([True, False, None]), [1, 0, -1], ["false", "true"]),
        (pa.array([3, 2, -1], pa.int8()), [1, 0, -1], ["2", "3"]),
    ],
)
def test_parquet(tmp_path, column, labels, names):
    pq.write_table(pa.table({"id": ["x", "y", "z"], "label": column}), tmp_path / "l.parquet")
    table = read_labels(tmp_path / "l.parquet")
    assert (table.labels.tolist(), table.class_names) == (labels, names)
    assert table.ids.tolist() == ["x", "y", "z"]


@pytest.mark.parametrize(
    ("column", "row", "got"),
    [
        (pa.array([1.0, 0.5]), 2, "0.5"),
        (pa.array([1.0, np.inf]), 2, "inf"),
        (pa.array([1.0, 1e300]), 2, "1e+300"),
        (pa.array([[1], [2]]), None, "the type list"),
        (pa.nulls(2), None, "none"),
    ],
)
def test_wrong_parquet(tmp_path, column, row, got):
    pq.write_table(pa.table({"id": [0, 1], "label": column}), tmp_path / "l.parquet")
    error = refused(tmp_path / "l.parquet")
    assert (error.row, error.column) == (row, "label")
    assert got in error.got


@pytest.mark.parametrize("dtype", ["int8", "int64", ">i2"])
def test_npy(tmp_path, dtype):
    np.save(tmp_path / "l.npy", np.array([10, -1, 3, 10], dtype))
    table = read_labels(tmp_path / "l.npy")
    assert table.ids is None
    assert (table.labels.tolist(), table.class_names) == ([1, -1, 0, 1], ["3", "10"])


def test_npy_of_unsigned(tmp_path):
    np.save(tmp_path / "l.npy", np.array([1, 0], np.uint8))
    assert read_labels(tmp_path / "l.npy").labels.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array([0, -2]), "row 2: expected a label of 0 or more, or -1 for none, got -2"),
        (np.array([-1, -1]), "at least one label, got none"),
        (np.zeros(0, int), "at least one label, got none"),
        (np.array([0.0, 1.0]), "expected integers, got an array of float64"),
        (np.array([[0, 1]]), "expected an array of 1 dimension, got shape (1, 2)"),
        (np.array([2**63], np.uint64), "64 signed bits"),
    ],
)
def test_wrong_npy(tmp_path, array, message):
    np.save(tmp_path / "l.npy", array)
    assert message in str(refused(tmp_path / "l.npy"))


def test_columns_of_an_array(tmp_path):
    np.save(tmp_path / "l.npy", np.array([0, 1]))
    assert "a table when columns are asked for" in str(refused(tmp_path / "l.npy", label_column="y"))
