from __future__ import annotations

import csv

import numpy as np
import pytest

from sage_attention.errors import ArgumentError
from sage_attention.recipes import predictions
from sage_attention.recipes.predictions import write_predictions


@pytest.mark.parametrize("ids", [[7, 9, 2**40], ["a", "图", ""], np.array([1, 2, 3], dtype=np.int32)])
def test_predictions_round_trip(tmp_path, ids):
    pq = pytest.importorskip("pyarrow.parquet")
    pa = pytest.importorskip("pyarrow")
    table = np.array([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]], dtype=np.float32)
    write_predictions(tmp_path / "p.parquet", ids, ["猫", "dog"], table)
    read = pq.read_table(tmp_path / "p.parquet")
    assert read.column_names == ["node", "predicted", "probability"]
    assert read.schema.field("node").type == (pa.string() if isinstance(ids[0], str) else pa.int64())
    assert read.schema.field("predicted").type == pa.string()
    assert read.schema.field("probability").type == pa.float32()
    assert read["node"].to_pylist() == list(ids)
    assert read["predicted"].to_pylist() == ["猫", "dog", "猫"]
    np.testing.assert_array_equal(read["probability"].to_numpy(), np.float32([0.9, 0.8, 0.5]))


def test_predictions_over_several_row_groups(tmp_path, monkeypatch):
    pq = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(predictions, "_ROWS_PER_GROUP", 4)
    table = np.random.default_rng(0).random((11, 3)).astype(np.float32)
    write_predictions(tmp_path / "p.parquet", np.arange(11), list("abc"), table)
    read = pq.read_table(tmp_path / "p.parquet")
    assert pq.ParquetFile(tmp_path / "p.parquet").num_row_groups == 3
    assert read["node"].to_pylist() == list(range(11))
    assert read["predicted"].to_pylist() == ["abc"[one] for one in table.argmax(axis=1)]


def test_predictions_of_no_nodes(tmp_path):
    pq = pytest.importorskip("pyarrow.parquet")
    write_predictions(tmp_path / "p.parquet", [], ["a"], np.zeros((0, 1), dtype=np.float32))
    assert pq.read_table(tmp_path / "p.parquet").num_rows == 0


def test_predictions_refuse_nonsense(tmp_path):
    pytest.importorskip("pyarrow")
    good = np.full((2, 2), 0.5, dtype=np.float32)
    path = tmp_path / "p.parquet"
    with pytest.raises(ArgumentError, match=r"shape \[3, 2\]"):
        write_predictions(path, [1, 2, 3], ["a", "b"], good)
    with pytest.raises(ArgumentError, match="integers or strings"):
        write_predictions(path, [1.5, 2.0], ["a", "b"], good)
    with pytest.raises(ArgumentError, match="int64"):
        write_predictions(path, np.array([1, 2**63], dtype=np.uint64), ["a", "b"], good)
    bad = good.copy()
    bad[1, 1] = np.nan
    with pytest.raises(ArgumentError, match="nan in row 1"):
        write_predictions(path, [1, 2], ["a", "b"], bad)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ids", [[7, 9, 2**40], ["a", '图 "x", y', ""]])
def test_predictions_as_csv(tmp_path, monkeypatch, ids):
    pytest.importorskip("pyarrow")
    monkeypatch.setattr(predictions, "_ROWS_PER_GROUP", 2)  # one header all the same
    table = np.array([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]], dtype=np.float32)
    write_predictions(tmp_path / "p.CSV", ids, ["猫", "dog"], table)
    with (tmp_path / "p.CSV").open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["node", "predicted", "probability"]
    assert [row[0] for row in rows] == [str(one) for one in ids]
    assert [row[1] for row in rows] == ["猫", "dog", "猫"]
    np.testing.assert_array_equal(np.float32([row[2] for row in rows]), np.float32([0.9, 0.8, 0.5]))
