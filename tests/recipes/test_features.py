"""Features in every format, and what is wrong with some."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from sage_attention.errors import DataError
from sage_attention.recipes.features import read_features

VALUES = np.array([[0.5, 1.0, -2.0], [0.1, 1e-3, 3e7]], np.float32)


def write(path, text):
    path.write_bytes(text.encode())
    return path


def refused(path, **options):
    """The error of reading a file, checked for what all errors have in common."""
    with pytest.raises(DataError) as caught:
        read_features(path, **options)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("text", "ids", "names"),
    [
        ("id,a,b,c\n7,0.5,1,-2\n5,0.1,1e-3,3e7\n", [7, 5], ("a", "b", "c")),
        ("7;0.5;1;-2\r\n5;0.1;1e-3;3e7", [7, 5], None),
        ("ann\t0.5\t1\t-2\nbob\t0.1\t1e-3\t3e7\n", ["ann", "bob"], None),
        (",0,1,2\n007,0.5, 1 ,-2\n5,0.1,1e-3,3e7\n", ["007", "5"], ("0", "1", "2")),
    ],
)
def test_text(tmp_path, text, ids, names):
    table = read_features(write(tmp_path / "特 征.csv", text))
    assert table.ids.tolist() == ids
    assert table.names == names
    assert table.values.dtype == np.float32
    np.testing.assert_array_equal(table.values, VALUES)


def test_text_without_ids(tmp_path):
    table = read_features(write(tmp_path / "f.csv", "0.5,1,-2\n0.1,1e-3,3e7\n"), id_column=False)
    assert table.ids is None
    np.testing.assert_array_equal(table.values, VALUES)


@pytest.mark.parametrize("column", ["key", 3])
def test_ids_in_another_column(tmp_path, column):
    table = read_features(write(tmp_path / "f.csv", "a,b,key\n1,2,x\n3,4,y\n"), id_column=column)
    assert table.ids.tolist() == ["x", "y"]
    assert table.names == ("a", "b")
    assert table.values.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("name", ["id", "__index_level_0__", "Node_ID"])
def test_an_index_of_pandas_comes_last(tmp_path, name):
    pq.write_table(pa.table({"a": [0.5, 1.5], name: ["x", "y"]}), tmp_path / "f.parquet")
    table = read_features(tmp_path / "f.parquet")
    assert (table.ids.tolist(), table.names) == (["x", "y"], ("a",))


def test_wide_rows(tmp_path):
    # A row of several megabytes does not fit into PyArrow's usual block.
    width = 20_000
    row = ",".join(["0.123456" + "0" * 200] * width)
    table = read_features(write(tmp_path / "f.csv", f"1,{row}\n2,{row}\n3,{row}\n"))
    assert table.values.shape == (3, width)


@pytest.mark.parametrize(
    ("text", "row", "column", "expected", "got"),
    [
        ("id,a,b\n1,2,3\n2,x,3\n", 3, "a", "a number", "'x'"),
        ("id,a,b\n1,2,\n", 2, "b", "a number", "an empty cell"),
        ("id,a,b\n1,2,0x1\n", 2, "b", "a number", "'0x1'"),
        ("1;0,5;1\n2;0.5;1\n", 1, 2, "a number", "'0,5'"),
        ("id,a\n1,True\n", 2, "a", "a number", "'True'"),
        ("id,a\n1,2\n2,nan\n", 3, "a", "a finite float32 number", "'nan'"),
        ("id,a\n1,2\n\n2,-inf\n", 4, "a", "a finite float32 number", "'-inf'"),
        ("id,a\n1,2\n2,1e39\n", 3, "a", "a finite float32 number", "'1e39'"),
        ("id,a\n1,2\n2,3\n1,2\n", 4, "id", "each node once", "node '1' again (first on row 2)"),
        ("id,a\n1,2\n2,3,4\n", 3, None, "2 cells", "3 cells"),
        ("0.5,1.5\n0.7,2\n", 1, 1, "integer or text ids", "'0.5'"),
        ("id,a\n-1,2\n", 2, "id", "0 or more", "-1"),
        ("id,a\n", None, None, "at least one row", "a header only"),
        ("id\n1\n", 1, None, "columns of ids and of features", "one: 'id'"),
        ("id|a\n1|2\n", 1, None, "columns of ids and of features", "one: 'id|a'"),
    ],
)
def test_wrong_text(tmp_path, text, row, column, expected, got):
    error = refused(write(tmp_path / "f.csv", text))
    assert (error.row, error.column) == (row, column)
    assert expected in error.expected
    assert got in error.got


@pytest.mark.parametrize("text", ["0.5,1.5\n0.7,2\n", "1,0\n1,1\n0,1\n"])
def test_no_id_column_is_hinted_at(tmp_path, text):
    assert "id_column=False" in refused(write(tmp_path / "f.csv", text)).hint


def test_unknown_id_column(tmp_path):
    assert "'id', 'a'" in refused(write(tmp_path / "f.csv", "id,a\n1,2\n"), id_column="key").got


def test_parquet(tmp_path):
    columns = {"id": ["x", "y"], "a": pa.array(VALUES[:, 0]), "b": [1, 0], "c": [True, False]}
    pq.write_table(pa.table(columns), tmp_path / "f.parquet")
    table = read_features(tmp_path / "f.parquet")
    assert table.ids.tolist() == ["x", "y"]
    np.testing.assert_array_equal(table.values, np.array([[0.5, 1, 1], [0.1, 0, 0]], np.float32))
    assert table.names == ("a", "b", "c")


@pytest.mark.parametrize("kind", [pa.list_(pa.float64()), pa.list_(pa.float32(), 3), pa.large_list(pa.float32())])
def test_parquet_of_lists(tmp_path, kind):
    pq.write_table(pa.table({"id": [4, 2], "x": pa.array(VALUES.tolist(), kind)}), tmp_path / "f.parquet")
    table = read_features(tmp_path / "f.parquet")
    np.testing.assert_array_equal(table.values, VALUES)
    assert table.values.dtype == np.float32


@pytest.mark.parametrize(
    ("column", "row", "message"),
    [
        (pa.array([1.0, None]), 2, "a number, got an empty cell"),
        (pa.array([1.0, np.inf]), 2, "a finite float32 number"),
        (pa.array([1.0, 1e300]), 2, "a finite float32 number"),
        (pa.array(["1", "2"]), None, "a column of numbers, got the type string"),
        (pa.array([[1.0], [1.0, 2.0]]), 2, "1 number, as in row 1, got 2"),
        (pa.array([[1.0], None]), 2, "a list of numbers, got an empty cell"),
        (pa.array([[1.0], [None]]), 2, "a finite float32 number"),
        (pa.array([["a"], ["b"]]), None, "lists of numbers, got lists of string"),
        (pa.array([[], []], pa.list_(pa.float32())), None, "at least one feature"),
    ],
)
def test_wrong_parquet(tmp_path, column, row, message):
    pq.write_table(pa.table({"id": [1, 2], "x": column}), tmp_path / "f.parquet")
    error = refused(tmp_path / "f.parquet")
    assert message in str(error)
    assert (error.row, error.column) == (row, "x")


@pytest.mark.parametrize("dtype", ["float16", "float64", "int8", "bool", ">f4"])
def test_npy(tmp_path, dtype):
    array = np.array([[0, 1], [1, 0], [1, 1]]).astype(dtype)
    np.save(tmp_path / "f.npy", np.asfortranarray(array))
    table = read_features(tmp_path / "f.npy")
    assert table.ids is None
    assert len(table) == 3
    assert table.values.dtype == np.float32
    assert table.values.flags.c_contiguous
    np.testing.assert_array_equal(table.values, array.astype(np.float32))


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(3), "shape [nodes, features], got shape [3]"),
        (np.zeros((0, 3)), "got shape [0, 3]"),
        (np.zeros((3, 0)), "got shape [3, 0]"),
        (np.array([["a"]]), "an array of numbers, got an array of <U1"),
        (np.array([[1j]]), "an array of numbers"),
        (np.array([[1, 2], [3, np.nan]]), "row 2, column 2: expected a finite float32 number, got nan"),
        (np.array([[1, 2], [1e39, 1]]), "row 2, column 1: expected a finite float32 number, got inf"),
    ],
)
def test_wrong_npy(tmp_path, array, message):
    np.save(tmp_path / "f.npy", array)
    assert message in str(refused(tmp_path / "f.npy"))


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "bool"])
def test_sparse(tmp_path, form, dtype):
    dense = np.array([[0, 1, 0], [1, 0, 1], [0, 0, 0], [0, 0, 1]]).astype(dtype)
    sp.save_npz(tmp_path / "f.npz", sp.coo_array(dense).asformat(form))
    table = read_features(tmp_path / "f.npz")
    matrix = table.values
    assert sp.issparse(matrix)
    assert (matrix.format, matrix.dtype, matrix.indices.dtype) == ("csr", np.float32, np.int32)
    assert matrix.has_sorted_indices
    assert table.ids is None
    np.testing.assert_array_equal(matrix.toarray(), dense.astype(np.float32))


def test_sparse_duplicates_are_added_up(tmp_path):
    sp.save_npz(tmp_path / "f.npz", sp.coo_array(([1.0, 2.0], ([0, 0], [1, 1])), shape=(2, 2)))
    assert read_features(tmp_path / "f.npz").values.toarray().tolist() == [[0, 3], [0, 0]]


GOOD = {"format": b"csr", "shape": [2, 3], "data": [1.0, 2.0], "indices": [0, 2], "indptr": [0, 1, 2]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"indices": [0, 3]}, "column indices: expected an index from 0 to 2, got 3 at position 1"),
        ({"indices": [-1, 2]}, "got -1 at position 0"),
        ({"indices": [0.0, 2.0]}, "column indices: expected integers"),
        ({"indptr": [0, 1]}, "3 offsets for 2 rows, got 2"),
        ({"indptr": [0, 2, 1]}, "offsets that rise"),
        ({"indptr": [0, 1, 99]}, "offsets that rise"),
        ({"indptr": [-5, 1, 2]}, "offsets that rise"),
        ({"data": [1.0]}, "2 values, one per index"),
        ({"data": ["a", "b"]}, "column data: expected numbers"),
        ({"data": [1.0, np.nan]}, "row 2, column 3: expected a finite float32 number, got nan"),
        ({"shape": [2]}, "a shape of two sizes"),
        ({"shape": [-2, 3]}, "a shape of two sizes"),
        ({"shape": [2, 2**40]}, "at most 2147483647 features"),
        ({"format": b"dia"}, "csr, csc or coo format"),
        ({"format": b"\xff"}, "csr, csc or coo format"),
        ({"format": b"coo"}, "none named 'row'"),
    ],
)
def test_wrong_sparse(tmp_path, change, message):
    np.savez(tmp_path / "f.npz", **{**GOOD, **change})
    assert message in str(refused(tmp_path / "f.npz"))


def test_wrong_coo(tmp_path):
    parts = {"format": b"coo", "shape": [2, 2], "data": [1.0], "row": [0], "col": [5]}
    np.savez(tmp_path / "f.npz", **parts)
    assert "column col: expected an index from 0 to 1, got 5" in str(refused(tmp_path / "f.npz"))
    np.savez(tmp_path / "f.npz", **{**parts, "col": [0, 1]})
    assert "of one length, got 1, 2 and 1" in str(refused(tmp_path / "f.npz"))


def test_npz_that_is_no_matrix(tmp_path):
    np.savez(tmp_path / "f.npz", x=VALUES)
    assert "scipy.sparse.save_npz, got arrays named x" in str(refused(tmp_path / "f.npz"))


def test_json(tmp_path):
    path = write(tmp_path / "f.json", '{"7": [3, 0, 3],\n "5": [], "6": [1]}')
    table = read_features(path)
    matrix = table.values
    assert table.ids.tolist() == [7, 5, 6]
    assert (matrix.dtype, matrix.indices.dtype, matrix.shape) == (np.float32, np.int32, (3, 4))
    assert matrix.toarray().tolist() == [[1, 0, 0, 1], [0, 0, 0, 0], [0, 1, 0, 0]]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_json_ids_of_text(tmp_path, encoding):
    path = tmp_path / "f.json"
    path.write_text('{"甲": [0], "007": [1]}', encoding=encoding)
    assert read_features(path).ids.tolist() == ["甲", "007"]


def test_json_width_can_be_given(tmp_path):
    path = write(tmp_path / "f.json", '{"1": [0], "2": [2]}')
    assert read_features(path, num_features=10).values.shape == (2, 10)
    error = refused(path, num_features=2)
    assert (error.expected, error.got) == ("feature indices below 2", "2 for node '2'")


def test_width_of_other_formats_is_checked(tmp_path):
    np.save(tmp_path / "f.npy", VALUES)
    assert read_features(tmp_path / "f.npy", num_features=3).values.shape == (2, 3)
    assert "expected 4 features, got 3" in str(refused(tmp_path / "f.npy", num_features=4))


@pytest.mark.parametrize(
    ("text", "row", "message"),
    [
        ('{"1": [0],\n"2": [1,}', 2, "got broken JSON"),
        ('{"1": [0],\n"2": [1', 2, "cut short"),
        ("[[0, 1], [2]]", None, "got a JSON list"),
        ('"text"', None, "got a JSON string"),
        ("7", None, "got a JSON number"),
        ("null", None, "got a JSON null"),
        ("{}", None, "an empty JSON object"),
        ('{"1": [0],\n"2": {"a": 1}}', 2, "a list of feature indices, got object for node '2'"),
        ('{"1": [0],\n"2": 5}', 2, "got number for node '2'"),
        ('{"1": [0],\n"2": [-1]}', 2, "got -1 for node '2'"),
        ('{"1": [0],\n"2": [1.0]}', 2, "got 1.0 for node '2'"),
        ('{"1": [0],\n"2": [true]}', 2, "got true for node '2'"),
        ('{"1": [0],\n"2": ["a"]}', 2, "got \"a\" for node '2'"),
        ('{"1": [0],\n"2": [[1]]}', 2, "got [1] for node '2'"),
        ('{"1": [0],\n"2": [NaN]}', 2, "got NaN for node '2'"),
        ('{"1": [0],\n"2": [2147483647]}', 2, "got 2147483647 for node '2'"),
        ('{"1": [0],\n"2": [99999999999999999999]}', 2, "got 99999999999999999999 for node '2'"),
        ('{"1": [0],\n"2": [1],\n\n"1": [0]}', 4, "got the key '1' again"),
        ('{"1": [0],\n"-2": [1]}', 2, "0 or more, got -2"),
        ('{"1": [0],\n"2.5": [1]}', 2, "got '2.5'"),
        ('{"1": [0],\n"": [1]}', 2, "got an empty cell"),
        ('{"1": [0], "\\ud800": [1]}', None, "surrogate"),
        ('{"1": [], "2": []}', None, "at least one feature"),
        ('{"1": ' + "[" * 100_000, None, "JSON"),
        ('{"1": [' + "9" * 10_000 + "]}", None, "expected"),
    ],
)
def test_wrong_json(tmp_path, text, row, message):
    error = refused(write(tmp_path / "f.json", text))
    assert message in str(error)
    if row is not None:
        assert error.row == row
    assert len(str(error)) < 400 + len(str(tmp_path))


def test_broken_json_has_a_column(tmp_path):
    error = refused(write(tmp_path / "f.json", '{"1": [0],\n"2": oops}'))
    assert (error.row, error.column) == (2, 6)


def test_json_that_is_not_utf8(tmp_path):
    (tmp_path / "f.json").write_bytes('{"1": [0],\n"é": [1]}'.encode("latin-1"))
    error = refused(tmp_path / "f.json")
    assert (error.row, error.expected) == (2, "text in UTF-8")


def test_duplicate_ids_that_differ_as_text_only(tmp_path):
    path = tmp_path / "f.json"
    path.write_text(json.dumps({"a": [0], " a": [1]}))
    assert "each node once" in str(refused(path))


def test_id_column_of_an_array(tmp_path):
    np.save(tmp_path / "f.npy", VALUES)
    assert "a table when an id column is asked for" in str(refused(tmp_path / "f.npy", id_column="id"))
