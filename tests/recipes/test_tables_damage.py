"""Damaged files: cut short anywhere, a byte changed anywhere, pickles. Only our errors may come out."""

from __future__ import annotations

import io
import json
import pickle
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sage_attention.errors import DataError
from sage_attention.recipes.dataset import load_npz_dataset
from sage_attention.recipes.edges import read_edges
from sage_attention.recipes.features import read_features
from sage_attention.recipes.labels import read_labels

RANDOM = np.random.default_rng(0)
EDGES = RANDOM.integers(0, 50, (2, 40))


def made(writer):
    buffer = io.BytesIO()
    writer(buffer)
    return buffer.getvalue()


def parquet(columns):
    return made(lambda b: pq.write_table(pa.table(columns), b))


FILES = {
    "edges.npy": (read_edges, made(lambda b: np.save(b, EDGES))),
    "edges.npz": (read_edges, made(lambda b: np.savez_compressed(b, edge_index=EDGES))),
    "edges.parquet": (read_edges, parquet({"source": EDGES[0], "target": EDGES[1]})),
    "edges.csv": (read_edges, "\n".join(f"{a},{b}" for a, b in EDGES.T).encode()),
    "text.csv": (read_edges, "\r\n".join(f'"n{a}","m,{b}"' for a, b in EDGES.T).encode("utf-16")),
    "features.npy": (read_features, made(lambda b: np.save(b, RANDOM.random((5, 4))))),
    "features.npz": (
        read_features,
        made(lambda b: sp.save_npz(b, sp.csr_matrix(np.eye(9, 7)))),
    ),
    "features.parquet": (read_features, parquet({"id": ["a", "b"], "x": [0.5, 1.5]})),
    "features.csv": (read_features, b"id,a,b\n1,0.5,2\n2,1.5,3\n"),
    "features.json": (read_features, json.dumps({str(i): [i, 2 * i] for i in range(9)}, indent=1).encode()),
    "labels.npy": (read_labels, made(lambda b: np.save(b, EDGES[0]))),
    "labels.csv": (read_labels, b"id,label,split\n1,a,train\n2,b,val\n3,a,\n"),
    "labels.parquet": (read_labels, parquet({"id": [1, 2], "label": ["a", "b"], "split": ["train", None]})),
    "all.npz": (
        load_npz_dataset,
        made(lambda b: np.savez(b, edge_index=EDGES, y=np.arange(50) % 3, x=np.eye(50))),
    ),
}
ANY = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def attempt(reader, path):
    """Read, and let nothing but our error pass."""
    try:
        reader(path)
        return True
    except DataError as error:
        message = str(error)
    assert "\n" not in message
    assert str(path) in message
    return False


@pytest.mark.parametrize("name", FILES)
def test_whole_files_are_read(tmp_path, name):
    reader, data = FILES[name]
    (tmp_path / name).write_bytes(data)
    assert attempt(reader, tmp_path / name)


@pytest.mark.parametrize("name", [n for n in FILES if n.endswith((".npy", ".npz", ".parquet", ".json"))])
def test_cut_short_anywhere_is_refused(tmp_path, name):
    reader, data = FILES[name]
    for size in {*range(12), len(data) // 3, len(data) // 2, len(data) - 9, len(data) - 2, len(data) - 1}:
        (tmp_path / name).write_bytes(data[:size])
        assert not attempt(reader, tmp_path / name), size


@pytest.mark.parametrize("name", FILES)
@ANY
@given(choice=st.data())
def test_changed_bytes_never_raise_anything_else(tmp_path, name, choice):
    reader, data = FILES[name]
    changed = bytearray(data)
    for _ in range(choice.draw(st.integers(1, 3))):
        changed[choice.draw(st.integers(0, len(data) - 1))] = choice.draw(st.integers(0, 255))
    (tmp_path / name).write_bytes(bytes(changed))
    attempt(reader, tmp_path / name)


@pytest.mark.parametrize("name", FILES)
@ANY
@given(data=st.binary(max_size=200))
def test_random_bytes_never_raise_anything_else(tmp_path, name, data):
    (tmp_path / name).write_bytes(data)
    attempt(FILES[name][0], tmp_path / name)


@ANY
@given(text=st.text('0123456789,;\t \n\r"#%.-abx\ufeff', max_size=60))
@pytest.mark.parametrize("reader", [read_edges, read_features, read_labels])
def test_random_text_never_raises_anything_else(tmp_path, reader, text):
    (tmp_path / "t.csv").write_bytes(text.encode())
    attempt(reader, tmp_path / "t.csv")


class Bomb:
    """Runs code when it is unpickled."""

    def __reduce__(self):
        return (pytest.fail, ("a pickle was loaded",))


@pytest.mark.parametrize("reader", [read_edges, read_features, read_labels])
def test_object_arrays_are_refused(tmp_path, reader):
    np.save(tmp_path / "o.npy", np.array([[Bomb()], [Bomb()]], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match="got pickled Python objects; pickles are never loaded"):
        reader(tmp_path / "o.npy")


@pytest.mark.parametrize("reader", [read_edges, read_features, load_npz_dataset])
def test_object_arrays_in_archives_are_refused(tmp_path, reader):
    np.savez(tmp_path / "o.npz", edge_index=np.array([[Bomb()]], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match="got pickled Python objects"):
        reader(tmp_path / "o.npz")


@pytest.mark.parametrize("name", ["p.npy", "p.npz"])
def test_bare_pickles_are_refused(tmp_path, name):
    (tmp_path / name).write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(DataError, match=r"expected a NumPy \.np[yz] file, got a file that begins with"):
        read_edges(tmp_path / name)


def test_archive_of_other_files(tmp_path):
    with zipfile.ZipFile(tmp_path / "z.npz", "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(DataError, match="NumPy arrays only"):
        read_edges(tmp_path / "z.npz")


def test_empty_archive(tmp_path):
    with zipfile.ZipFile(tmp_path / "z.npz", "w"):
        pass
    with pytest.raises(DataError, match="without arrays"):
        read_edges(tmp_path / "z.npz")


def test_header_that_promises_too_much(tmp_path):
    header = made(
        lambda b: np.lib.format.write_array_header_1_0(b, {"descr": "<i8", "fortran_order": False, "shape": (2, 2**50)})
    )
    (tmp_path / "h.npy").write_bytes(header + b"\0" * 64)
    with pytest.raises(DataError, match=r"a NumPy \.npy file, got one that cannot be read"):
        read_edges(tmp_path / "h.npy")


def test_parquet_that_is_text(tmp_path):
    (tmp_path / "t.parquet").write_text("source,target\n0,1\n")
    with pytest.raises(DataError, match=r"a Parquet file, got one that cannot be read \(.*\); the file may be cut"):
        read_edges(tmp_path / "t.parquet")
