"""Opening files: what is there, which format, encoding, delimiter, header, comments."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sage_attention.errors import ArgumentError, DataError
from sage_attention.recipes.tables import check_file, file_kind, open_table, quoted


def cells(table, positions=(0, 1)):
    """The columns of a table as lists of text."""
    read = table.columns(list(positions))
    return [read[i].to_pylist() for i in positions]


def test_missing_file_says_so(tmp_path):
    with pytest.raises(DataError, match="an existing file, got nothing at this path") as caught:
        check_file(tmp_path / "none.csv")
    assert caught.value.hint == ""


def test_missing_folder_is_named(tmp_path):
    with pytest.raises(DataError, match="there is no folder"):
        check_file(tmp_path / "no" / "none.csv")


def test_directory_for_a_file(tmp_path):
    folder = tmp_path / "folder.csv"
    folder.mkdir()
    with pytest.raises(DataError, match="expected a file, got a directory"):
        open_table(folder)


def test_empty_file(tmp_path):
    path = tmp_path / "empty.csv"
    path.touch()
    with pytest.raises(DataError, match="empty file"):
        open_table(path)


def test_nul_in_a_path():
    with pytest.raises(DataError):
        check_file("a\0b.csv")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_unreadable_file(tmp_path):
    path = tmp_path / "closed.csv"
    path.write_text("a,b\n")
    path.chmod(0)
    with pytest.raises(DataError, match="permission denied"):
        open_table(path)


def test_permission_error_is_ours(tmp_path, monkeypatch):
    path = tmp_path / "closed.csv"
    path.write_text("a,b\n")

    def refuse(*_args, **_kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(DataError, match="a readable file, got permission denied; check its permissions"):
        open_table(path)


def test_read_error_is_ours(tmp_path, monkeypatch):
    path = tmp_path / "bad.csv"
    path.write_text("a,b\n")

    def refuse(*_args, **_kwargs):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(DataError, match="Input/output error"):
        open_table(path)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("a.csv.gz", "decompress"),
        ("a.xlsx", "CSV UTF-8"),
        ("a.pkl", "never loaded"),
        ("a.docx", ""),
        ("a", "no extension"),
        ("a.npy", ""),
    ],
)
def test_unknown_extension(name, hint):
    with pytest.raises(DataError, match=r"ending in one of \.csv, \.tsv") as caught:
        file_kind(name, ("text", "parquet"))
    assert hint in str(caught.value)


@pytest.mark.parametrize("name", ["a.csv", "A.CSV", "a.b.Tsv", "a.txt", "a.edgelist"])
def test_text_extensions(name):
    assert file_kind(name, ("text",)) == "text"


def test_path_that_is_none():
    with pytest.raises(ArgumentError, match="path: expected a path, got list"):
        file_kind(["a.csv"], ("text",))


def test_long_cells_are_cut():
    assert len(quoted("x" * 1000)) < 80
    assert quoted("a'b") == '"a\'b"'


@pytest.mark.parametrize("delimiter", [",", "\t", ";", " "])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("header", [True, False])
def test_every_delimiter_and_line_end(tmp_path, delimiter, end, last, header):
    rows = (["source", "target"],) * header + (["a", "b"], ["c", "d"], ["e", "f"])
    path = tmp_path / "t.csv"
    path.write_bytes((end.join(delimiter.join(row) for row in rows) + end * last).encode())
    table = open_table(path)
    assert table.has_header is header
    assert cells(table) == [["a", "c", "e"], ["b", "d", "f"]]
    assert table.row(1) == 2 + header


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_encodings(tmp_path, encoding, end):
    path = tmp_path / "表 格.csv"
    path.write_bytes(end.join(["id,标签", "甲,é", "乙,😀", ""]).encode(encoding))
    table = open_table(path)
    assert table.names == ("id", "标签")
    assert cells(table) == [["甲", "乙"], ["é", "😀"]]


@pytest.mark.parametrize("order", ["le", "be"])
def test_utf16_of_either_byte_order(tmp_path, order):
    mark = b"\xff\xfe" if order == "le" else b"\xfe\xff"
    path = tmp_path / "t.csv"
    path.write_bytes(mark + "id,label\n1,x\n".encode(f"utf-16-{order}"))
    assert cells(open_table(path)) == [["1"], ["x"]]


def test_utf16_cut_short(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes("id,label\n1,x\n".encode("utf-16")[:-1])
    with pytest.raises(DataError, match="broken UTF-16"):
        open_table(path)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"PK\x03\x04rest", "zip archive or an Excel file"),
        (b"\x1f\x8brest", "gzip"),
        (b"PAR1rest", "Parquet"),
        (b"\x93NUMPYrest", "NumPy"),
        (b"a\0,b\0\n", "binary data"),
    ],
)
def test_not_text(tmp_path, data, what):
    path = tmp_path / "t.csv"
    path.write_bytes(data)
    with pytest.raises(DataError, match=what):
        open_table(path)


@pytest.mark.parametrize(
    ("text", "row"),
    [("id,caf\xe9\n1,x\n", 1), ("id,label\n1,x\n2,caf\xe9\n", 3), ("# \xe9\nid,label\n1,x\n", 1)],
)
def test_other_encodings_are_named_with_their_row(tmp_path, text, row):
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError, match="expected text in UTF-8, got byte 0xe9") as caught:
        cells(open_table(path))
    assert caught.value.row == row


def test_comments_and_blank_lines_on_top(tmp_path):
    path = tmp_path / "snap.txt"
    path.write_text("# Directed graph\n# FromNodeId\tToNodeId\n\n%% more\n0\t1\n0\t2\n")
    table = open_table(path)
    assert not table.has_header
    assert cells(table) == [["0", "0"], ["1", "2"]]
    assert (table.top_row, table.row(0), table.row(1)) == (5, 5, 6)


@pytest.mark.parametrize("text", ["# only\n# comments\n", "\n\n\n", "# no line end"])
def test_nothing_but_comments(tmp_path, text):
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(DataError, match="no rows but comments or blank lines"):
        open_table(path)


@pytest.mark.parametrize("text", ["id,label", "id,label\n", "id,label\r\n\r\n\n", "\ufeffid;label\n"])
def test_header_only(tmp_path, text):
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode())
    with pytest.raises(DataError, match="at least one row under the header, got a header only"):
        cells(open_table(path))


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("source,target\nann,bob\n", True),
        ("id_1,id_2\n0,1\n", True),
        ("foo,bar\n0,1\n", True),
        ("id,0,1,2\nann,0.1,0.2,0.3\n", True),
        (",0,1\n0,0.1,0.2\n", True),
        ("Node ID,Label\nann,x\n", True),
        ("ann,bob\nbob,eve\n", False),
        ("u,v\nv,y\n", False),
        ("0,1\n1,2\n", False),
        ("7,cat\n8,dog\n", False),
        ("ann,0.5\nbob,nan\n", False),
        ("ann,nan\nbob,1\n", False),
    ],
)
def test_header_is_found_out(tmp_path, text, header):
    path = tmp_path / "t.csv"
    path.write_text(text)
    assert open_table(path).has_header is header


@pytest.mark.parametrize("header", [True, False])
def test_header_can_be_said(tmp_path, header):
    path = tmp_path / "t.csv"
    path.write_text("ann,bob\nbob,eve\n")
    table = open_table(path, header=header)
    assert table.names == (("ann", "bob") if header else ("1", "2"))
    assert cells(table)[0] == ["ann", "bob"][header:]


def test_delimiter_can_be_said(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a|b\nc|d\n")
    assert cells(open_table(path, delimiter="|")) == [["a", "c"], ["b", "d"]]


@pytest.mark.parametrize("delimiter", ["", "ab", '"', "\n", "é"])
def test_delimiter_that_is_none(tmp_path, delimiter):
    path = tmp_path / "t.csv"
    path.write_text("a|b\n")
    with pytest.raises(ArgumentError, match="delimiter: expected one ASCII character"):
        open_table(path, delimiter=delimiter)


def test_commas_inside_quotes_and_spaces_inside_cells(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('id,label\n1,"New York, NY"\n2,"say ""hi"""\n3,San José\n', encoding="utf-8")
    assert cells(open_table(path))[1] == ["New York, NY", 'say "hi"', "San José"]


def test_line_breaks_inside_quotes_count_in_rows(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b'id,label\n1,"two\nlines"\n2,x\n')
    table = open_table(path)
    assert cells(table) == [["1", "2"], ["two\nlines", "x"]]
    assert (table.row(0), table.row(1)) == (2, 4)


def test_runs_of_spaces(tmp_path):
    path = tmp_path / "t.txt"
    path.write_bytes(b"  0   1 \r\n 10 2\r\n3 4  ")
    assert cells(open_table(path)) == [["0", "10", "3"], ["1", "2", "4"]]


def test_decimal_commas_do_not_split(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("1;0,5\n2;0,7\n")
    assert cells(open_table(path)) == [["1", "2"], ["0,5", "0,7"]]


def test_blank_lines_between_rows_are_not_rows(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("id,label\n1,a\n\n\n2,b\n")
    table = open_table(path)
    assert cells(table) == [["1", "2"], ["a", "b"]]
    assert table.row(1) == 5


@pytest.mark.parametrize(
    ("text", "row", "got"),
    [
        ("a,b\nc\nd,e\nf,g\n", 2, "1 cell: 'c'"),
        ("id,label\n1,a\n\n2,b,c\n", 4, "3 cells"),
        ("# top\nid,label\r\n1,a\r\n2,b,c\r\n", 4, "3 cells"),
        ('id,label\n1,"a\nb"\n2,b,c\n', 4, "3 cells"),
        ("0 1\n0 2\n0 3 4\n", 3, "3 cells"),
        ("id,label\n1,a\n  \n2,b\n", 3, "1 cell: '  '"),
        ("id,label,more\n1,a\n2,b\n", 2, "2 cells"),
    ],
)
def test_ragged_row(tmp_path, text, row, got):
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode())
    with pytest.raises(DataError, match="cells, as in row") as caught:
        cells(open_table(path))
    assert (caught.value.row, caught.value.got) == (row, got)


def test_ragged_row_far_down(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("id,label\n" + "1,a\n" * 200_000 + "2\n" + "1,a\n" * 10)
    with pytest.raises(DataError, match="row 200002: expected 2 cells, as in row 1, got 1 cell: '2'"):
        cells(open_table(path))


def test_quote_left_open(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('id,label\n1,a\n2,"b\n' + "3,c\n" * 100_000)
    with pytest.raises(DataError) as caught:
        cells(open_table(path))
    assert "\n" not in str(caught.value)
    assert caught.value.row == 3


def test_find_columns(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("ID,Page Type,x,x\n1,a,2,3\n")
    table = open_table(path)
    assert table.find("ID") == table.find("id") == table.find(1) == 0
    assert table.find("page_type") == table.find("Page Type") == 1
    for column in ("y", 0, 5, -1):
        says = f"a number of a column, 1 to 4, got {column}" if column != "y" else "the columns 'ID', 'Page Type'"
        with pytest.raises(DataError, match=says):
            table.find(column)
    with pytest.raises(DataError, match="one column named 'x', got 2 of them"):
        table.find("x")


def test_find_columns_without_a_header(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("1,2\n3,4\n")
    table = open_table(path)
    assert table.find(2) == table.find("2") == 1
    with pytest.raises(DataError, match="2 columns without a header; give a number from 1 to 2"):
        table.find("source")


def test_rows_can_be_named_after_the_file_is_gone(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b\nc,d\n")
    table = open_table(path)
    cells(table)
    path.unlink()
    assert table.row(1) is None
    assert table.cell(1, 0) is None


def test_parquet_names_types_and_rows(tmp_path):
    path = tmp_path / "a b 表.parquet"
    pq.write_table(pa.table({"a.b": [1, 2], "c": ["x", "y"]}), path)
    table = open_table(path)
    assert table.names == ("a.b", "c")
    assert cells(table) == [[1, 2], ["x", "y"]]
    assert table.row(1) == 2
    assert table.cell(1, 1) == "y"


def test_parquet_with_one_name_twice(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]), path)
    table = open_table(path)
    assert cells(table) == [[1], [2]]
    with pytest.raises(DataError, match="2 of them"):
        table.find("a")


def test_parquet_without_rows_or_columns(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"a": pa.array([], pa.int64())}), path)
    with pytest.raises(DataError, match="at least one row"):
        open_table(path).columns([0])
    pq.write_table(pa.table({}), path)
    with pytest.raises(DataError, match="at least one column"):
        open_table(path)


def test_column_name_with_a_line_break_stays_on_one_line(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"a\nb": [1]}), path)
    assert open_table(path).label(0) == "'a\\nb'"


def test_short_quote_left_open(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('id,label\n1,a\n2,"b\n3,c\n4,d\n')
    with pytest.raises(DataError, match="row 3: expected cells with both their quotes, got a quote that is not"):
        cells(open_table(path))


def test_quotes_inside_bare_cells_are_text(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('id,label\n1,17" wide\n2,b\n')
    assert cells(open_table(path)) == [["1", "2"], ['17" wide', "b"]]
    path.write_text('id,label\n1,b\n2,17" wide')
    assert cells(open_table(path)) == [["1", "2"], ["b", '17" wide']]
