"""Text as Windows programs write it: marks, UTF-16, code pages, line ends, and what a wrong encoding says."""

from __future__ import annotations

import codecs
import json

import pytest

pytest.importorskip("pyarrow", reason="tables are read with PyArrow")

from sage_attention.errors import ArgumentError, DataError
from sage_attention.recipes import encodings
from sage_attention.recipes.dataset import load_dataset
from sage_attention.recipes.edges import read_edges
from sage_attention.recipes.encodings import check_encoding, decoded
from sage_attention.recipes.features import read_features
from sage_attention.recipes.labels import read_labels

EDGES = "source,target\r\n甲,乙\r\n乙,丙\r\n"
LABELS = "node\tlabel\r\n甲\t猫\r\n乙\t犬\r\n丙\t猫\r\n"
MARKED = {
    "PowerShell's >": ("utf-16-le", codecs.BOM_UTF16_LE),
    "big-endian": ("utf-16-be", codecs.BOM_UTF16_BE),
    "Excel's CSV UTF-8": ("utf-8", codecs.BOM_UTF8),
    "UTF-32": ("utf-32-le", codecs.BOM_UTF32_LE),
    "no mark": ("utf-8", b""),
}


def write(path, text, encoding, mark=b""):
    path.write_bytes(mark + text.encode(encoding))
    return path


@pytest.mark.parametrize("how", MARKED)
@pytest.mark.parametrize("encoding", [None, "gbk", "cp1252"])
def test_a_mark_tells_the_encoding_whatever_is_said(tmp_path, how, encoding):
    if how == "no mark" and encoding is not None:
        pytest.skip("without a mark it has to be said")
    edges = read_edges(write(tmp_path / "e.csv", EDGES, *MARKED[how]), encoding=encoding)
    assert edges.source.tolist() == ["甲", "乙"]
    labels = read_labels(write(tmp_path / "l.tsv", LABELS, *MARKED[how]), encoding=encoding)
    assert labels.class_names == ["犬", "猫"]
    table = write(tmp_path / "f.csv", "node,一\r\n甲,0.5\r\n乙,1\r\n", *MARKED[how])
    assert read_features(table, encoding=encoding).names == ("一",)
    path = write(tmp_path / "f.json", '{"甲": [0],\r\n "乙": [1]}', *MARKED[how])
    assert read_features(path, encoding=encoding).ids.tolist() == ["甲", "乙"]


@pytest.mark.parametrize("encoding", ["gbk", "GB18030", "cp936", "big5", "utf-16-le", "shift_jis"])
def test_a_code_page_that_is_said(tmp_path, encoding):
    edges = read_edges(write(tmp_path / "e.csv", EDGES, encoding), encoding=encoding)
    assert edges.source.tolist() == ["甲", "乙"]
    features = write(tmp_path / "f.json", '{"甲": [0], "乙": [1], "丙": []}', encoding)
    data = load_dataset(tmp_path / "e.csv", features, encoding=encoding)
    assert sorted(data.node_ids.tolist()) == sorted("甲乙丙")


def test_western_code_page(tmp_path):
    path = write(tmp_path / "e.csv", "src;dst\nMüller;René\n", "cp1252")
    assert read_edges(path, encoding="cp1252").target.tolist() == ["René"]


@pytest.mark.parametrize("name", ["e.csv", "e.tsv", "f.json"])
def test_an_encoding_that_is_not_said_is_one_line(tmp_path, name):
    text = '{"0": [0],\n"甲": [1]}' if name.endswith("json") else "src\tdst\n甲\t乙\n"
    path = write(tmp_path / name, text, "gbk")
    read = read_features if name.endswith("json") else read_edges
    with pytest.raises(DataError) as caught:
        read(path)
    error = caught.value
    assert (error.expected, error.row) == ("text in UTF-8", 2)
    for words in ("save it as UTF-8", "--encoding gbk" if encodings.os.name != "nt" else "--encoding cp"):
        assert words in str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize(("page", "hint"), [("cp936", "--encoding cp936"), ("cp1252", "--encoding cp1252")])
def test_the_code_page_of_this_windows_is_suggested(tmp_path, monkeypatch, page, hint):
    monkeypatch.setattr(encodings.locale, "getpreferredencoding", lambda *_: page)
    path = write(tmp_path / "e.csv", "src,dst\n甲,乙\n", "gbk")
    monkeypatch.setattr(encodings.os, "name", "nt")
    with pytest.raises(DataError) as caught:
        encodings.check_utf8(path, path.read_bytes())
    monkeypatch.undo()
    assert caught.value.hint.endswith(hint)


def test_utf8_mode_suggests_what_people_have(monkeypatch):
    monkeypatch.setattr(encodings.locale, "getpreferredencoding", lambda *_: "utf-8")
    assert encodings._suggestion(b"\xff").endswith("cp1252 (Western)")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16_without_its_mark_is_recognised(tmp_path, encoding):
    path = write(tmp_path / "e.csv", "source,target\r\n0,1\r\n", encoding)
    with pytest.raises(DataError, match=f"--encoding {encoding}"):
        read_edges(path)
    assert read_edges(path, encoding=encoding).target.tolist() == [1]


def test_the_wrong_encoding_names_the_row(tmp_path):
    path = write(tmp_path / "e.csv", "src,dst\na,b\nc,é\n", "latin-1")
    with pytest.raises(DataError, match="text in gbk, got byte 0xe9") as caught:
        read_edges(path, encoding="gbk")
    assert caught.value.row == 3
    with pytest.raises(DataError, match="text in ascii") as caught:
        read_edges(write(tmp_path / "e.csv", EDGES, "utf-8"), encoding="ascii")
    assert caught.value.row == 2


@pytest.mark.parametrize("name", ["martian", "", "base64", "rot13", "x\0y", "zlib"])
def test_names_that_are_no_encodings(tmp_path, name):
    path = write(tmp_path / "e.csv", "a,b\n", "utf-8")
    with pytest.raises(ArgumentError, match="encoding: expected the name of an encoding of text"):
        read_edges(path, encoding=name)


def test_files_joined_at_a_prompt(tmp_path):
    """``copy /b a.csv + b.csv`` keeps the second mark, ``copy a.csv + b.csv`` writes the end of file of DOS."""
    mark = codecs.BOM_UTF8
    (tmp_path / "e.csv").write_bytes(mark + b"source,target\r\n0,1\r\n" + mark + b"2,3\r\n\x1a")
    edges = read_edges(tmp_path / "e.csv")
    assert edges.source.tolist() == [0, 2]


def test_powershell_export_csv(tmp_path):
    """Windows PowerShell writes the type on top, and quotes around all cells."""
    text = '#TYPE System.Management.Automation.PSCustomObject\r\n"source","target"\r\n"0","1"\r\n'
    edges = read_edges(write(tmp_path / "e.csv", text, "utf-16-le", codecs.BOM_UTF16_LE))
    assert (edges.source.tolist(), edges.target.tolist()) == ([0], [1])


def test_rows_are_counted_as_the_editor_shows_them(tmp_path):
    text = "source,target\r\n0,1\r\n2,x,3\r\n"
    for encoding, mark in MARKED.values():
        with pytest.raises(DataError) as caught:
            read_edges(write(tmp_path / "e.csv", text, encoding, mark))
        assert caught.value.row == 3


def test_nothing_is_copied_without_need(tmp_path):
    data = json.dumps({"a": [1]}).encode()
    assert decoded(tmp_path, data) is data
    assert decoded(tmp_path, data, check_encoding("UTF8")) is data
