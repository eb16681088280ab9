"""Edge lists in every format, and what is wrong with some."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from sage_attention.errors import DataError
from sage_attention.recipes.edges import read_edges

EDGES = np.array([[0, 3, 3, 1], [1, 2, 2, 1]])


def write(path, text):
    path.write_bytes(text.encode())
    return path


def pair(path, **options):
    table = read_edges(path, **options)
    assert len(table) == table.source.size == table.target.size
    assert table.source.dtype == table.target.dtype or table.source.dtype.kind == "U"
    return [table.source.tolist(), table.target.tolist()]


@pytest.mark.parametrize("name", ["e.csv", "e.tsv", "e.txt", "e.edgelist", "边 表.csv"])
@pytest.mark.parametrize("header", ["", "source{0}target\n", "# FromNodeId{0}ToNodeId\n"])
@pytest.mark.parametrize("delimiter", [",", "\t", " ", ";"])
def test_text(tmp_path, name, header, delimiter):
    rows = "".join(f"{a}{delimiter}{b}\n" for a, b in EDGES.T)
    path = write(tmp_path / name, header.format(delimiter) + rows)
    assert pair(path) == EDGES.tolist()
    assert read_edges(path).source.dtype == np.int64


def test_text_ids(tmp_path):
    assert pair(write(tmp_path / "e.csv", "ann,bob\n甲, eve \n")) == [["ann", "甲"], ["bob", "eve"]]


def test_leading_zeros_make_both_columns_text(tmp_path):
    assert pair(write(tmp_path / "e.csv", "source,target\n007,12\n12,100\n")) == [
        ["007", "12"],
        ["12", "100"],
    ]


def test_numbers_on_one_side_and_words_on_the_other(tmp_path):
    path = write(tmp_path / "e.csv", "user,item\n7,book\n12,pen\n")
    assert pair(path) == [["7", "12"], ["book", "pen"]]


@pytest.mark.parametrize(
    ("header", "source", "target"),
    [
        ("weight,src,dst", "b", "c"),
        ("target,source,weight", "b", "a"),
        ("x,y,z", "a", "b"),
        ("from,to,source", "a", "b"),
    ],
)
def test_columns_by_their_usual_names(tmp_path, header, source, target):
    path = write(tmp_path / "e.csv", f"{header}\na,b,c\n")
    wanted = [[source], [target]]
    if header == "from,to,source":
        wanted = [["c"], ["b"]]  # "source" is the more usual name
    assert pair(path, header=True) == wanted


@pytest.mark.parametrize(
    ("options", "source", "target"),
    [
        ({"source": "q", "target": "p"}, 2, 1),
        ({"source": 3, "target": 1}, 3, 1),
        ({"source": "q"}, 2, 1),
        ({"target": "p"}, 2, 1),
        ({"target": "r"}, 1, 3),
        ({"source": "r"}, 3, 2),
    ],
)
def test_columns_asked_for(tmp_path, options, source, target):
    path = write(tmp_path / "e.csv", "p,q,r\n1,2,3\n")
    assert pair(path, **options) == [[source], [target]]


def test_further_columns(tmp_path):
    path = write(tmp_path / "e.csv", "source,target,weight,year,kind\n0,1,0.5,1999,a\n1,2,2,2001,bc\n")
    columns = read_edges(path, columns=["weight", 4, "kind"]).columns
    assert {k: v.tolist() for k, v in columns.items()} == {
        "weight": [0.5, 2.0],
        4: [1999, 2001],
        "kind": ["a", "bc"],
    }
    assert (columns["weight"].dtype, columns[4].dtype, columns["kind"].dtype.kind) == (
        np.float64,
        np.int64,
        "U",
    )
    assert read_edges(path).columns == {}


def test_same_column_as_end_and_further(tmp_path):
    path = write(tmp_path / "e.csv", "0,1\n1,2\n")
    assert read_edges(path, columns=[1]).columns[1].tolist() == [0, 1]


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64(), pa.uint16(), pa.string(), pa.large_string()])
def test_parquet(tmp_path, kind):
    columns = [pa.array(row).cast(kind) for row in EDGES]
    pq.write_table(pa.Table.from_arrays([pa.array([1.0] * 4), *columns], ["w", "src", "dst"]), tmp_path / "e.parquet")
    wanted = EDGES.tolist() if pa.types.is_integer(kind) else EDGES.astype("U").tolist()
    assert pair(tmp_path / "e.parquet") == wanted
    assert read_edges(tmp_path / "e.parquet", columns=["w"]).columns["w"].tolist() == [1.0] * 4


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint64", ">i4"])
@pytest.mark.parametrize("transposed", [False, True])
def test_npy(tmp_path, dtype, transposed):
    array = EDGES.astype(dtype)
    np.save(tmp_path / "e.npy", array.T if transposed else array)
    assert pair(tmp_path / "e.npy") == EDGES.tolist()
    assert read_edges(tmp_path / "e.npy").source.dtype == np.dtype("int64").newbyteorder("=")


def test_npy_of_two_edges_is_read_by_rows(tmp_path):
    np.save(tmp_path / "e.npy", np.array([[1, 2], [3, 4]]))
    assert pair(tmp_path / "e.npy") == [[1, 2], [3, 4]]


@pytest.mark.parametrize("transposed", [False, True])
def test_npz_edge_index(tmp_path, transposed):
    np.savez_compressed(tmp_path / "e.npz", edge_index=EDGES.T if transposed else EDGES, y=[1])
    assert pair(tmp_path / "e.npz") == EDGES.tolist()


def test_npz_row_and_col(tmp_path):
    np.savez(tmp_path / "e.npz", row=EDGES[0], col=EDGES[1])
    assert pair(tmp_path / "e.npz") == EDGES.tolist()


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_npz_scipy(tmp_path, form):
    matrix = sp.coo_array((np.array([1.0, 0.0, 2.0]), ([0, 3, 1], [1, 2, 1])), shape=(4, 4))
    sp.save_npz(tmp_path / "e.npz", matrix.asformat(form))
    assert pair(tmp_path / "e.npz") == [[0, 1, 3], [1, 1, 2]]


@pytest.mark.parametrize(
    ("text", "row", "column", "expected", "got"),
    [
        ("0,1\n1,2.5\n", 2, 2, "integer or text ids", "'2.5'"),
        ("source,target\n0,1\n-1,2\n", 3, "source", "0 or more", "-1"),
        ("0,1\n1,9223372036854775808\n", 2, 2, "64 signed bits", "'9223372036854775808'"),
        ("source,target\n0,1\n,2\n", 3, "source", "a node id", "an empty cell"),
        ("source,target\n0,1\n1,\n", 3, "target", "a node id", "an empty cell"),
        ("source,target\n0,1\n12x,2\n", 3, "source", "integer node ids", "the text '12x'"),
        ("0,1\n7,x\n8,9\n", 2, 2, "integer node ids", "the text 'x'"),
        ("0,1\n1\n", 2, None, "2 cells, as in row 1", "1 cell: '1'"),
        ("0|1\n1|2\n", 1, None, "two columns", "one: '0|1'"),
        ("source\n0\n", 1, None, "two columns", "one: 'source'"),
        ("# c\n5\n6\n", 2, None, "two columns", "one: '5'"),
        ("source,target\n", None, None, "at least one row under the header", "a header only"),
    ],
)
def test_wrong_text(tmp_path, text, row, column, expected, got):
    with pytest.raises(DataError) as caught:
        read_edges(write(tmp_path / "e.csv", text))
    error = caught.value
    assert (error.row, error.column) == (row, column)
    assert expected in error.expected
    assert got in error.got
    assert str(error).startswith(str(tmp_path / "e.csv"))
    assert "\n" not in str(error)


def test_other_delimiter_is_named(tmp_path):
    with pytest.raises(DataError, match=r"say delimiter='\|'"):
        read_edges(write(tmp_path / "e.csv", "0|1\n1|2\n"))


@pytest.mark.parametrize(
    "options", [{"source": "none"}, {"target": 4}, {"columns": ["none"]}, {"source": 1, "target": 1}]
)
def test_wrong_columns(tmp_path, options):
    with pytest.raises(DataError, match="column"):
        read_edges(write(tmp_path / "e.csv", "p,q,r\n1,2,3\n"), **options)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((3, 4), int), r"shape \[2, E\] or \[E, 2\], got shape \[3, 4\]"),
        (np.zeros(4, int), r"got shape \[4\]"),
        (np.zeros((2, 0), int), "at least one edge, got none"),
        (np.zeros((0, 2), int), "at least one edge, got none"),
        (np.array([[0, 1.5, 2], [1, 2, 3]]), "row 1: expected integer node ids, got 1.5"),
        (np.array([[0, 1, 2], [1, -2, 3]]), "row 2: expected an id of 0 or more, got -2"),
        (np.array([[0, 1], [1, -2], [4, 5]]), "row 2: expected an id of 0 or more, got -2"),
        (np.array([[0, 2**63, 1], [1, 2, 3]], np.uint64), "64 signed bits, got 9223372036854775808"),
        (np.array([["a", "b", "c"]] * 2), "integer node ids, got an array of <U1"),
    ],
)
@pytest.mark.parametrize("name", ["e.npy", "e.npz"])
def test_wrong_arrays(tmp_path, array, message, name):
    if name == "e.npy":
        np.save(tmp_path / name, array)
    else:
        np.savez(tmp_path / name, edge_index=array)
        message = message.replace(": expected", ", column edge_index: expected")
    with pytest.raises(DataError, match=message):
        read_edges(tmp_path / name)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"a": [1]}, "arrays named edge_index, or row and col, or a SciPy sparse matrix, got a"),
        ({"row": [0, 1], "col": [0]}, "row and col of one length, got 2 and 1"),
        ({"row": [[0]], "col": [[0]]}, "column row: expected an array of 1 dimension"),
        ({"row": [0.5], "col": [0.5]}, "column row: expected integers"),
        ({"row": [0], "col": [-1]}, "row 1, column col: expected an id of 0 or more"),
        ({"row": np.zeros(0, int), "col": np.zeros(0, int)}, "at least one edge"),
    ],
)
def test_wrong_npz(tmp_path, arrays, message):
    np.savez(tmp_path / "e.npz", **arrays)
    with pytest.raises(DataError, match=message):
        read_edges(tmp_path / "e.npz")


def test_matrix_that_is_not_square_or_empty(tmp_path):
    sp.save_npz(tmp_path / "e.npz", sp.csr_array(np.ones((2, 3))))
    with pytest.raises(DataError, match="square"):
        read_edges(tmp_path / "e.npz")
    sp.save_npz(tmp_path / "e.npz", sp.csr_array((3, 3)))
    with pytest.raises(DataError, match="at least one edge"):
        read_edges(tmp_path / "e.npz")


def test_columns_of_an_array(tmp_path):
    np.save(tmp_path / "e.npy", EDGES)
    with pytest.raises(DataError, match="a table when columns are asked for"):
        read_edges(tmp_path / "e.npy", source="a")


@pytest.mark.parametrize("array", [pa.array([0, None]), pa.array(["a", None])])
def test_parquet_with_gaps(tmp_path, array):
    pq.write_table(pa.Table.from_arrays([array, array], ["source", "target"]), tmp_path / "e.parquet")
    with pytest.raises(DataError, match="row 2, column source: expected a node id, got an empty cell"):
        read_edges(tmp_path / "e.parquet")


def test_parquet_of_mixed_types(tmp_path):
    pq.write_table(pa.table({"source": [0, 1], "target": ["1", "2"]}), tmp_path / "e.parquet")
    with pytest.raises(DataError, match="column target: expected integer node ids, as in column source"):
        read_edges(tmp_path / "e.parquet")


@pytest.mark.parametrize("rows", [300_000])
def test_many_rows_keep_their_order(tmp_path, rows):
    # More than one block of PyArrow's reader.
    source = np.arange(rows) * 7 % 1_000_003
    path = write(tmp_path / "e.csv", "".join(f"{a},{a + 1}\n" for a in source.tolist()))
    table = read_edges(path)
    np.testing.assert_array_equal(table.source, source)
    np.testing.assert_array_equal(table.target, source + 1)
