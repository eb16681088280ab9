"""A random table, written in any format, reads back the same."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sage_attention.recipes.dataset import load_dataset
from sage_attention.recipes.edges import read_edges
from sage_attention.recipes.features import read_features
from sage_attention.recipes.labels import read_labels

ANY = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
INTEGERS = st.integers(0, 30) | st.integers(0, 2**63 - 1)
# What a spreadsheet can hold: no control characters, and no spaces around, which reading takes off.
WORDS = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zs", "Zl", "Zp"]), min_size=1, max_size=8)
# A letter in front keeps it from being a number, a comment, or a usual name of a header.
TEXTS = st.builds(lambda word: "n_" + word, WORDS)
IDS = st.sampled_from([INTEGERS, TEXTS, INTEGERS.map(lambda i: f"0{i}")])
DELIMITERS = st.sampled_from([",", "\t", ";", " "])
ENDS = st.sampled_from(["\n", "\r\n"])
ENCODINGS = st.sampled_from(["utf-8", "utf-8-sig", "utf-16"])
FLOATS = hnp.from_dtype(np.dtype(np.float32), allow_nan=False, allow_infinity=False)


@st.composite
def text_forms(draw):
    """How to write a text file: what separates, what ends, what encodes."""
    return draw(DELIMITERS), draw(ENDS), draw(ENCODINGS), draw(st.booleans())


def write_text(path, rows, form):
    delimiter, end, encoding, last = form
    buffer = io.StringIO()
    csv.writer(buffer, delimiter=delimiter, lineterminator=end).writerows(rows)
    text = buffer.getvalue()
    path.write_bytes((text if last else text[: -len(end)]).encode(encoding))
    return path


@st.composite
def edge_lists(draw):
    ids = draw(IDS)
    return draw(st.lists(st.tuples(ids, ids), min_size=1, max_size=20))


@st.composite
def unique_ids(draw, min_size=1):
    return draw(st.lists(draw(IDS), min_size=min_size, max_size=12, unique=True))


@ANY
@given(edges=edge_lists(), form=text_forms(), header=st.booleans())
def test_edges_as_text(tmp_path, edges, form, header):
    path = write_text(tmp_path / "e.csv", [("source", "target")] * header + edges, form)
    table = read_edges(path)
    assert list(zip(table.source.tolist(), table.target.tolist())) == edges


@ANY
@given(edges=edge_lists())
def test_edges_as_parquet(tmp_path, edges):
    source, target = zip(*edges)
    pq.write_table(pa.table({"a": source, "b": target}), tmp_path / "e.parquet")
    table = read_edges(tmp_path / "e.parquet")
    assert list(zip(table.source.tolist(), table.target.tolist())) == edges


@ANY
@given(edges=st.lists(st.tuples(INTEGERS, INTEGERS), min_size=3, max_size=20), kind=st.integers(0, 4))
def test_edges_as_arrays(tmp_path, edges, kind):
    array = np.array(edges, np.int64)
    path = tmp_path / ("e.npy" if kind < 2 else "e.npz")
    if kind < 2:
        np.save(path, array if kind else array.T)
    elif kind < 4:
        np.savez(path, edge_index=array if kind == 2 else array.T)
    else:
        np.savez(path, row=array[:, 0], col=array[:, 1])
    table = read_edges(path)
    np.testing.assert_array_equal(np.stack([table.source, table.target]), array.T)


@ANY
@given(ids=unique_ids(min_size=2), form=text_forms(), header=st.booleans(), data=st.data())
def test_features_as_text(tmp_path, ids, form, header, data):
    width = data.draw(st.integers(1, 4))
    values = data.draw(hnp.arrays(np.float32, (len(ids), width), elements=FLOATS))
    rows = [[i, *map(str, row)] for i, row in zip(ids, values)]
    top = [["id", *(f"f{i}" for i in range(width))]] * header
    table = read_features(write_text(tmp_path / "f.csv", top + rows, form))
    assert table.ids.tolist() == ids
    np.testing.assert_array_equal(table.values, values)


@ANY
@given(ids=unique_ids(), data=st.data(), lists=st.booleans())
def test_features_as_parquet(tmp_path, ids, data, lists):
    values = data.draw(hnp.arrays(np.float32, (len(ids), 3), elements=FLOATS))
    columns = {"x": list(values)} if lists else {f"f{i}": values[:, i] for i in range(3)}
    pq.write_table(pa.table({"id": ids, **columns}), tmp_path / "f.parquet")
    table = read_features(tmp_path / "f.parquet")
    assert table.ids.tolist() == ids
    np.testing.assert_array_equal(table.values, values)


@ANY
@given(values=hnp.arrays(np.float32, st.tuples(st.integers(1, 6), st.integers(1, 6)), elements=FLOATS))
def test_features_as_arrays(tmp_path, values):
    np.save(tmp_path / "f.npy", values)
    np.testing.assert_array_equal(read_features(tmp_path / "f.npy").values, values)
    sp.save_npz(tmp_path / "f.npz", sp.csr_array(values))
    np.testing.assert_array_equal(read_features(tmp_path / "f.npz").values.toarray(), values)


@ANY
@given(ids=unique_ids(), data=st.data(), indent=st.sampled_from([None, 1]), plain=st.booleans())
def test_features_as_json(tmp_path, ids, data, indent, plain):
    active = data.draw(st.lists(st.sets(st.integers(0, 9)), min_size=len(ids), max_size=len(ids)))
    written = {str(i): sorted(a, reverse=True) for i, a in zip(ids, active)}
    (tmp_path / "f.json").write_text(json.dumps(written, indent=indent, ensure_ascii=plain), encoding="utf-8")
    table = read_features(tmp_path / "f.json", num_features=10)
    assert table.ids.tolist() == ids
    assert [set(np.flatnonzero(row).tolist()) for row in table.values.toarray()] == active


@ANY
@given(
    ids=unique_ids(min_size=2),
    form=text_forms(),
    header=st.booleans(),
    split=st.booleans(),
    data=st.data(),
    kind=st.sampled_from([st.integers(0, 12), TEXTS]),
)
def test_labels(tmp_path, ids, form, header, split, data, kind):
    count = len(ids)
    labels = data.draw(st.lists(kind, min_size=count, max_size=count))
    words = data.draw(st.lists(st.sampled_from(["train", "val", "test", ""]), min_size=count, max_size=count))
    columns = [ids, labels, words] if split else [ids, labels]
    names = ["id", "label", "split"][: len(columns)]
    if form[0] == " ":
        form = (",", *form[1:])  # an empty cell at the end cannot be told from a space at the end
    write_text(tmp_path / "l.csv", [names] * header + list(zip(*columns)), form)
    pq.write_table(pa.table(dict(zip(names, columns))), tmp_path / "l.parquet")
    for name in ("l.csv", "l.parquet"):
        table = read_labels(tmp_path / name)
        assert table.ids.tolist() == ids
        assert [table.class_names[i] for i in table.labels] == [str(label) for label in labels]
        assert table.class_names == [str(name) for name in sorted(set(labels))]
        if split:
            assert [["train", "val", "test", ""][i] for i in table.split] == words


@ANY
@given(ids=unique_ids(min_size=6), data=st.data())
def test_data_set_keeps_what_belongs_to_an_id(tmp_path, ids, data):
    """Whatever the order of the rows in each file, an id keeps its features, label and neighbours."""
    ids = [str(i) for i in ids]
    picks = st.sampled_from(ids)
    edges = data.draw(st.lists(st.tuples(picks, picks), min_size=1, max_size=15))
    shuffled = data.draw(st.permutations(ids))
    # All ids in each file, so that all files agree on what is text.
    edges += [(i, i) for i in ids]
    form = (",", "\n", "utf-8", True)
    loaded = load_dataset(
        write_text(tmp_path / "e.csv", [("source", "target"), *edges], form),
        write_text(tmp_path / "f.csv", [("id", "x"), *((i, ids.index(i)) for i in shuffled)], form),
        write_text(tmp_path / "l.csv", [("id", "label"), *((i, ids.index(i) % 2) for i in reversed(shuffled))], form),
    )
    names = [str(i) for i in loaded.node_ids.tolist()]
    assert sorted(names) == sorted(ids)
    assert [(names[a], names[b]) for a, b in loaded.edge_index.T] == edges
    assert [ids[int(x)] for x in loaded.features[:, 0]] == names
    assert [ids.index(n) % 2 for n in names] == loaded.labels.tolist()
    assert sorted([*loaded.train, *loaded.val, *loaded.test]) == list(range(len(ids)))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_short_files(tmp_path, count):
    path = write_text(tmp_path / "e.csv", [(i, i + 1) for i in range(count)], (",", "\n", "utf-8", False))
    assert read_edges(path).source.tolist() == list(range(count))
