"""Who used what, from files as people have them, and its division into parts."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow", reason="tables are read with PyArrow")

import pyarrow as pa
from pyarrow.parquet import write_table
from tests.recipes.link_cases import plays, write_csv

from sage_attention.errors import DataError
from sage_attention.recipes.link_dataset import TEST, TRAIN, VAL, load_interactions
from sage_attention.recipes.link_tables import read_interactions

BY_ORDER = "source = column 1, target = column 2"
SPLIT = (0.5, 0.25, 0.25)


def read(tmp_path, text, name="用 户.csv", **options):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_interactions(path, **options)


def rows(table):
    columns = [table.user_ids.values, table.item_ids.values]
    columns += [column for column in (table.weights, table.times) if column is not None]
    return list(zip(*(column.tolist() for column in columns)))


@pytest.mark.parametrize(
    "text",
    [
        "user,item,plays,time\nann,x,3,1\nbob,y,1,2\n",
        "time,plays,item,user\n1,3,x,ann\n2,1,y,bob\n",
        "\ufeffUser ID;artistID;Count;Timestamp\r\nann;x;3;1\r\nbob;y;1;2\r\n",
        "who\twhat\trating\tdate\nann\tx\t3\t1970-01-01 00:00:01\nbob\ty\t1\t1970-01-01 00:00:02\n",
    ],
)
def test_columns_by_their_names(tmp_path, text):
    assert rows(read(tmp_path, text)) == [("ann", "x", 3.0, 1.0), ("bob", "y", 1.0, 2.0)]


def test_columns_by_order_without_a_header(tmp_path):
    table = read(tmp_path, "1 10 993 1300000000\n2 11 7 1200000000\n", "data.txt")
    assert rows(table) == [(1, 10, 993.0, 1.3e9), (2, 11, 7.0, 1.2e9)]
    assert rows(read(tmp_path, "1\t10\n2\t11\n", "data.tsv")) == [(1, 10), (2, 11)]


def test_columns_that_are_named(tmp_path):
    text = "a,b,c,d\n1,x,2,y\n3,z,4,w\n"
    assert rows(read(tmp_path, text, user="d", item=2, weight="c")) == [("y", "x", 2.0), ("w", "z", 4.0)]
    assert rows(read(tmp_path, "user,item,count\n1,2,3\n", weight="none")) == [(1, 2)]


def test_a_header_of_words_that_nobody_knows(tmp_path):
    """It is one where dates stand below it, or where a column of it is named; else what was taken for data is said."""
    dated = "person,song,when\nann,x,2011-05-03\nbob,y,2011-05-04\n"
    table = read(tmp_path, dated)
    assert table.user_ids.values.tolist() == ["ann", "bob"]
    assert "no header" not in table.columns
    words = "person,song\nann,x\nbob,y\n"
    table = read(tmp_path, words)
    assert len(table.user_ids.values) == 3
    assert table.columns.endswith("no header, row 1 is data (if it has names, say --user-column 'person')")
    table = read(tmp_path, words, user="person", item="song")
    assert table.columns == "user = column person, item = column song"
    assert table.user_ids.values.tolist() == ["ann", "bob"]
    table = read(tmp_path, dated, user="person", item="song", time="when")
    assert len(table.times) == 2
    says = "expected a column 'who', got the columns 'person', 'song'; say with --user-column which has users"
    with pytest.raises(DataError, match=says):
        read(tmp_path, words, user="who")
    with pytest.raises(DataError, match="number of a column, 1 to 2, got 3; say with --time-column which has times"):
        read(tmp_path, words, time=3)
    assert len(read(tmp_path, "1,2011-05-03\n2,2011-05-04\n", user=1, item=2).user_ids.values) == 2


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("user,item\n1,2\n", "user = column user, item = column item"),
        ("1,2\n3,4\n", "user = column 1, item = column 2; no header, row 1 is data"),
        ("# by hand\n1,2,1300000000\n", "user = column 1, item = column 2, time = column 3; no header, row 2 is data"),
        ("wer,was\n1,2\n", "user = column wer, item = column was"),
        ("user,item,wann,wo\n1,2,3,4\n", "user = column user, item = column item; not read: 'wann', 'wo'"),
        (
            "wer,was\nann,x\n",
            "user = column 1, item = column 2; no header, row 1 is data (if it has names, say --user-column 'wer')",
        ),
    ],
)
def test_what_was_taken_for_what_is_said(tmp_path, text, told, encoding):
    assert read(tmp_path, text.encode(encoding)).columns == told


@pytest.mark.parametrize(
    ("ties", "told"),
    [
        ("user,friend\nann,bob\n", "source = column user, target = column friend"),
        ("ann,bob\n", f"{BY_ORDER}; no header, row 1 is data (if it has names, put # before it)"),
        ("#wer,wen\nann,bob\n", f"{BY_ORDER}; no header, row 2 is data (if it has names, put # before it)"),
        ("from,to,since\nann,bob,3\n", "source = column from, target = column to; not read: 'since'"),
    ],
)
def test_ties_say_so_too(tmp_path, ties, told):
    (tmp_path / "ties.csv").write_text(ties)
    (tmp_path / "plays.csv").write_text("user,item\nann,x\nbob,y\n")
    data = load_interactions(tmp_path / "plays.csv", social=tmp_path / "ties.csv")
    assert f"Ties read from ties.csv: {told}." in data.notes
    assert data.user_ids.tolist() == ["ann", "bob"]


def test_ties_by_number(tmp_path):
    (tmp_path / "ties.tsv").write_text("1\t2\n")
    (tmp_path / "plays.csv").write_text("user,item\n1,x\n2,y\n")
    data = load_interactions(tmp_path / "plays.csv", social=tmp_path / "ties.tsv")
    assert "Ties read from ties.tsv: source = column 1, target = column 2; no header, row 1 is data." in data.notes


def test_parquet_is_read_as_csv_is(tmp_path):
    path, table = tmp_path / "p.parquet", plays()
    columns = dict(zip(("user", "item", "plays", "timestamp"), map(list, zip(*table))))
    write_table(pa.table(columns), path)
    assert rows(read_interactions(path)) == rows(read_interactions(write_csv(tmp_path / "p.csv", table)))


def test_lists_of_items(tmp_path):
    table = read(tmp_path, "0 5 7 5\n1 6\n# nobody\n2\n", "train.txt")
    assert rows(table) == [(0, 5), (0, 7), (0, 5), (1, 6)]
    assert rows(read(tmp_path, "ann x y\nbob z\n", "train.txt", layout="lists")) == [
        ("ann", "x"), ("ann", "y"), ("bob", "z"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "options", "says"),
    [
        ("", {}, "t.csv: "),
        ("user,item\n", {}, "t.csv: expected"),
        ("user\nann\n", {}, "columns of users and of items"),
        ("user,item,count\nann,x,0\n", {}, "row 2.*weight over 0|weight over 0"),
        ("user,item,count\nann,x,3\nbob,y,lots\n", {}, "a finite number.*lots"),
        ("user,item,count\nann,x,nan\n", {}, "a finite number"),
        ("user,item,time\nann,x,yesterday\n", {}, "a time.*yesterday"),
        ("user,item\nann,x\nbob\n", {}, "3"),
        ("user,item\nann,\n", {}, "item"),
        ("user,item\nann,x\n", {"weight": "plays"}, "plays"),
        ("user,item\nann,x\n", {"item": "user"}, "a column of its own"),
        ("0 1 2\n0 3\n", {"layout": "lists"}, "user .0. again"),
        ("user,item\nann,x\n", {"layout": "lists", "user": "user"}, "lists of items"),
        (b"user,item\nann,\xff\xfe\n", {}, "UTF-8"),
    ],
)
def test_wrong_files_are_one_line(tmp_path, text, options, says):
    name = "t.txt" if "layout" in options else "t.csv"
    with pytest.raises(DataError, match=says) as error:
        read(tmp_path, text, name, **options)
    assert name in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_and_a_cut_file(tmp_path):
    with pytest.raises(DataError, match="nowhere"):
        read_interactions(tmp_path / "nowhere.csv")
    path = tmp_path / "p.parquet"
    write_table(pa.table({"user": [1, 2], "item": [3, 4]}), path)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(DataError, match="parquet"):
        read_interactions(path)


def parts(data):
    ids = data.user_ids[data.users].tolist(), data.item_ids[data.items].tolist()
    return dict(zip(zip(*ids), data.part.tolist()))


def test_by_time_nothing_later_is_known_earlier(tmp_path):
    table = plays()
    data = load_interactions(write_csv(tmp_path / "plays.csv", table), split=SPLIT)
    assert "Divided by time" in " ".join(data.notes)
    first, counted = {}, {}
    for user, item, _, time in table:
        first.setdefault((user, item), time)
    made = parts(data)
    assert set(made) == set(first)  # each pair once
    ends = [max(first[pair] for pair in first if made[pair] == part) for part in (TRAIN, VAL, TEST)]
    starts = [min(first[pair] for pair in first if made[pair] == part) for part in (TRAIN, VAL, TEST)]
    assert ends[0] < starts[1]
    assert ends[1] < starts[2]
    for user, item, count, time in table:  # plays in later parts do not count
        if time <= ends[made[user, item]]:
            counted[user, item] = counted.get((user, item), 0) + count
    found = dict(zip(made, data.weights.tolist()))
    assert found == counted


def test_interactions_of_one_time_stay_together(tmp_path):
    table = [(u, i, 1, 1_300_000_000 + u // 4) for u in range(12) for i in range(3)]
    data = load_interactions(write_csv(tmp_path / "plays.csv", table), split=(0.4, 0.3, 0.3))
    by_time = {}
    for (user, _), part in parts(data).items():
        by_time.setdefault(user // 4, set()).add(part)
    assert by_time == {0: {TRAIN}, 1: {TRAIN}, 2: {VAL}} or by_time == {0: {TRAIN}, 1: {VAL}, 2: {TEST}}
    same = write_csv(tmp_path / "same.csv", [(u, i, 1, 1_300_000_000) for u in range(4) for i in range(3)])
    with pytest.raises(DataError, match=r"earlier from later.*--divide user"):
        load_interactions(same, split=(0.1, 0.45, 0.45))
    none = write_csv(tmp_path / "none.csv", [(1, 2), (3, 4)], "user,item")
    with pytest.raises(DataError, match="--time-column"):
        load_interactions(none, how="time")


def test_by_user_each_keeps_something_to_learn_from(tmp_path):
    file = write_csv(tmp_path / "plays.csv", [*plays(), (99, 1, 1, 1_300_000_000)])
    data = load_interactions(file, how="user", split=(0.2, 0.4, 0.4))
    for user in range(data.num_users):
        assert (data.part[data.users == user] == TRAIN).any()
    again = load_interactions(file, how="user", split=(0.2, 0.4, 0.4))
    other = load_interactions(file, how="user", split=(0.2, 0.4, 0.4), seed=1)
    assert (again.part == data.part).all()
    assert (other.part != data.part).any()


def test_a_file_to_test_by(tmp_path):
    train = write_csv(tmp_path / "train.csv", [(1, 10), (1, 11), (2, 10), (2, 12), (1, 10)], "user,item")
    test = write_csv(tmp_path / "test.csv", [(1, 12), (2, 10), (3, 13)], "user,item")
    data = load_interactions(train, test, split=(1.0, 0.0, 0.0))
    assert parts(data) == {
        (1, 10): TRAIN, (1, 11): TRAIN, (1, 12): TEST, (2, 10): TRAIN, (2, 12): TRAIN, (3, 13): TEST,
    }  # fmt: skip
    assert "1 test pair is a training pair too" in " ".join(data.notes)


def test_ties_are_taken_both_ways_once(tmp_path):
    file = write_csv(tmp_path / "plays.csv", [(1, 10), (2, 10), (3, 11)], "user,item")
    ties = write_csv(tmp_path / "ties.csv", [(1, 2), (2, 1), (3, 3), (1, 7), (1, 2)], "user,user2")
    data = load_interactions(file, social=ties, split=(1.0, 0.0, 0.0))
    pairs = sorted(map(tuple, data.user_ids[data.social].T.tolist()))
    assert pairs == [(1, 2), (1, 7), (2, 1), (7, 1)]  # a user may be known by ties alone
    assert "2 social ties" in data.summary()


def test_ids_written_unalike_are_refused(tmp_path):
    file = write_csv(tmp_path / "plays.csv", [(1, "x"), (2, "y")], "user,item")
    ties = write_csv(tmp_path / "ties.csv", [("安", "乐"), ("乐", "寿")], "user,user2")
    with pytest.raises(DataError, match=r"plays\.csv.*安"):
        load_interactions(file, social=ties)
