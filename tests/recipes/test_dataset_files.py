"""Real data: Facebook pages, Cora, Last.fm. Found in ../shared/data or $SAGE_ATTENTION_DATA."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest

from sage_attention.recipes.dataset import load_dataset, load_npz_dataset
from sage_attention.recipes.edges import read_edges

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("SAGE_ATTENTION_DATA", ROOT.parent / "shared" / "data"))


def data_file(name):
    path = DATA / name
    if not path.exists():
        pytest.skip(f"no {name} in {DATA}; set SAGE_ATTENTION_DATA to the folder that holds it")
    return path


@pytest.fixture(scope="module")
def pages():
    folder = data_file("facebook_pages")
    start = time.perf_counter()
    data = load_dataset(folder / "edges.csv", folder / "features.json", folder / "target.csv", undirected=True)
    return data, time.perf_counter() - start


def test_facebook_pages(pages):
    data, _ = pages
    assert (data.num_nodes, data.num_classes) == (22_470, 4)
    np.testing.assert_array_equal(data.node_ids, np.arange(22_470))
    assert data.features.shape == (22_470, 4_714)
    assert set(np.unique(data.features.data)) == {1.0}
    assert data.class_names == ["company", "government", "politician", "tvshow"]
    assert data.labels[:3].tolist() == [3, 1, 0]
    assert (data.labels >= 0).all()


def test_facebook_pages_edges(pages):
    data, _ = pages
    # 171,002 undirected edges, 179 of them self loops.
    loops = int((data.edge_index[0] == data.edge_index[1]).sum())
    assert (data.num_edges, loops) == (2 * (171_002 - 179) + 179, 179)


def test_facebook_pages_split(pages):
    data, _ = pages
    sizes = np.array([data.train.size, data.val.size, data.test.size])
    np.testing.assert_allclose(sizes / data.num_nodes, [0.6, 0.2, 0.2], atol=0.001)


def test_facebook_pages_load_fast(pages):
    _, seconds = pages
    assert seconds < 1.5


def test_first_node_has_the_features_of_the_file(pages):
    data, _ = pages
    row = data.features[[554]]
    assert {2835, 4518, 2198, 4708} <= set(row.indices.tolist())
    assert row.nnz == 22


def test_cora():
    data = load_npz_dataset(data_file("cora.npz"))
    assert (data.num_nodes, data.num_edges, data.num_classes) == (2_708, 10_556, 7)
    assert data.features.shape == (2_708, 1_433)
    assert (data.train.size, data.val.size, data.test.size) == (140, 500, 1_000)


def test_lastfm_without_a_header():
    edges = read_edges(data_file("lastfm/trustnetwork.txt"))
    assert (edges.source[0], edges.target[0]) == (1, 258)
    text = data_file("lastfm/trustnetwork.txt").read_bytes()
    assert len(edges) == len(text.split(b"\n")) - text.endswith(b"\n")
