"""Ids: what is an integer, what is text, what is neither; numbering."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sage_attention.errors import DataError
from sage_attention.recipes.ids import (
    IdColumn,
    common_type,
    ids_from_arrow,
    ids_from_column,
    ids_from_numbers,
    positions,
    sorted_unique,
    universe,
)
from sage_attention.recipes.tables import open_table

LARGEST = 2**63 - 1


def place(untyped=True):
    return IdColumn(np.empty(0, np.int64), Path("t.csv"), "id", lambda k: k + 2, untyped)


def from_text(*cells, untyped=True):
    return ids_from_arrow(place(untyped), pa.chunked_array([list(cells)], pa.string()))


def made(values, path="t.csv", untyped=True):
    return IdColumn(np.array(values), Path(path), "id", lambda k: k + 2, untyped)


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["7", "0", str(LARGEST)], [7, 0, LARGEST]),
        ([" 7", "8 "], [7, 8]),
        (["007", "8"], ["007", "8"]),
        (["7", "x7"], ["7", "x7"]),
        (["+7", "8"], ["+7", "8"]),
        (["0x1F", "2"], ["0x1F", "2"]),
        (["-0", "2"], ["-0", "2"]),
        (["1.5", "abc"], ["1.5", "abc"]),
        (["1e5", "7"], ["1e5", "7"]),
        (["0" * 30 + "1", "2"], ["0" * 30 + "1", "2"]),
        (["9" * 30, "x"], ["9" * 30, "x"]),
        ([" 甲 ", "b c"], ["甲", "b c"]),
    ],
)
def test_text_is_integers_only_if_all_of_it_is(cells, values):
    ids = from_text(*cells).values
    assert ids.tolist() == values
    assert ids.dtype.kind == ("i" if isinstance(values[0], int) else "U")


def test_typed_text_stays_text():
    assert from_text("7", "8", untyped=False).values.tolist() == ["7", "8"]


@pytest.mark.parametrize(
    ("cells", "row", "expected", "got"),
    [
        (["1", "1.5"], 3, "integer or text ids", "'1.5'"),
        (["1.0", "2.0"], 2, "integer or text ids", "'1.0'"),
        (["1", str(LARGEST + 1)], 3, "64 signed bits", str(LARGEST + 1)),
        (["1", "2", "-3"], 4, "0 or more", "-3"),
        (["1", ""], 3, "a node id", "an empty cell"),
        (["a", "  "], 3, "a node id", "an empty cell"),
        (["a", "b" * 300], 3, "at most 256 characters", "300 characters"),
    ],
)
def test_text_that_is_no_id(cells, row, expected, got):
    with pytest.raises(DataError) as caught:
        from_text(*cells)
    assert (caught.value.row, caught.value.column) == (row, "id")
    assert expected in caught.value.expected
    assert got in caught.value.got


@pytest.mark.parametrize(
    ("array", "values"),
    [
        (pa.array([1, 2], pa.int8()), [1, 2]),
        (pa.array([1, 2], pa.uint64()), [1, 2]),
        (pa.array(["b", "a", "b"]).dictionary_encode(), ["b", "a", "b"]),
        (pa.array(["b"], pa.large_string()), ["b"]),
    ],
)
def test_arrow_types(array, values):
    assert ids_from_arrow(place(untyped=False), pa.chunked_array([array])).values.tolist() == values


@pytest.mark.parametrize(
    ("array", "row", "message"),
    [
        (pa.array([1, None]), 3, "got an empty cell"),
        (pa.array(["a", None]), 3, "got an empty cell"),
        (pa.array([1.0, 1.5]), 3, r"got 1\.5; store the column as integers"),
        (pa.array([1.0, 2.0]), 2, r"got 1\.0; store the column as integers"),
        (pa.array([1.0, float("nan")]), 3, "got nan"),
        (pa.array([5, LARGEST + 1], pa.uint64()), 3, f"64 signed bits, got {LARGEST + 1}"),
        (pa.array([True]), None, "the type bool"),
        (pa.array([[1]]), None, "the type list"),
    ],
)
def test_arrow_values_that_are_no_ids(array, row, message):
    with pytest.raises(DataError, match=message) as caught:
        ids_from_arrow(place(untyped=False), pa.chunked_array([array]))
    assert caught.value.row == row


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array([0.5]), "got 0.5 in an array of float64"),
        (np.array([1.0, np.nan]), "got nan in an array"),
        (np.array([True]), "array of bool"),
        (np.array(["a"]), "array of <U1"),
        (np.array([0, -1]), "0 or more, got -1"),
        (np.array([2**63], np.uint64), "64 signed bits"),
    ],
)
def test_arrays_that_are_no_ids(array, message):
    with pytest.raises(DataError, match=message):
        ids_from_numbers(place(), array)


def test_repeated_id_points_at_its_second_row():
    with pytest.raises(DataError, match=r"row 5, column id: expected once, got 'b' again \(first on row 3\)"):
        made(["a", "b", "c", "b", "a"]).check_unique("once")
    made([3, 1, 2]).check_unique("once")
    made([1, 2, 3]).check_unique("once")


def test_text_and_integers_do_not_mix():
    with pytest.raises(
        DataError, match=r"labels\.csv, row 3, column id: expected integer node ids, as in column id of"
    ):
        common_type([made([1, 2]), made(["7", "x"], "labels.csv")])


def test_digits_that_a_typed_file_calls_text_do_not_mix():
    with pytest.raises(DataError, match="got the text '7'"):
        common_type([made([1, 2], untyped=False), made(["7", "8"], "labels.parquet", untyped=False)])


def test_zero_padded_ids_meet_their_own_kind():
    made_text = common_type([made([123, 7]), made(["007", "123"])])
    assert [c.values.tolist() for c in made_text] == [["123", "7"], ["007", "123"]]


def test_one_type_is_left_alone():
    columns = [made([1]), made([2])]
    assert common_type(columns) == columns


@given(st.lists(st.integers(0, 50) | st.integers(0, LARGEST), max_size=30))
def test_sorted_unique_is_numpy_unique(values):
    array = np.array(values, np.int64)
    np.testing.assert_array_equal(sorted_unique(array), np.unique(array))


@given(
    st.lists(
        st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=5),
        min_size=1,
        max_size=30,
    )
)
def test_sorted_unique_of_text_is_in_code_point_order(values):
    assert sorted_unique(np.array(values)).tolist() == sorted(set(values))


@given(
    st.sets(st.integers(0, 40) | st.integers(0, LARGEST), max_size=30),
    st.lists(st.integers(0, 45) | st.integers(0, LARGEST), max_size=30),
)
def test_positions_of_integers(nodes, ids):
    ordered = sorted(nodes)
    wanted = [ordered.index(i) if i in nodes else -1 for i in ids]
    assert positions(np.array(ordered, np.int64), np.array(ids, np.int64)).tolist() == wanted


@given(st.sets(st.text("ab甲", min_size=1), min_size=1), st.lists(st.text("ab甲", min_size=1), min_size=1))
def test_positions_of_text(nodes, ids):
    ordered = sorted(nodes)
    wanted = [ordered.index(i) if i in nodes else -1 for i in ids]
    assert positions(np.array(ordered), np.array(ids)).tolist() == wanted


@pytest.mark.parametrize("nodes", [[0, 1, 2], [5, 9, 12], [0, LARGEST], [7, LARGEST - 1, LARGEST]])
def test_positions_at_the_edges(nodes):
    ids = [0, 1, 3, 4, 5, 12, 13, LARGEST - 1, LARGEST]
    wanted = [nodes.index(i) if i in nodes else -1 for i in ids]
    assert positions(np.array(nodes), np.array(ids)).tolist() == wanted


def test_universe_is_sorted_by_value_or_code_point():
    assert universe([made([10, 9]), made([100, 9])]).tolist() == [9, 10, 100]
    assert universe([made(["10", "9"]), made(["é", "Z"])]).tolist() == ["10", "9", "Z", "é"]


def test_ids_of_others_than_nodes_are_not_called_nodes(tmp_path):
    """Users and items, too, are read by these."""
    for text, message in [("user\n4\n4\n", "got '4' again"), ("user\n-1\n", "an id of 0 or more")]:
        path = tmp_path / "users.csv"
        path.write_text(text)
        table = open_table(path)
        with pytest.raises(DataError, match=message) as raised:
            ids_from_column(table, 0, table.columns([0])[0]).check_unique("each user once")
        assert "node" not in str(raised.value).partition("expected")[2]
