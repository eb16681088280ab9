"""The made-up network is the same everywhere and poses the task it promises."""

from __future__ import annotations

import csv
import hashlib
import time

import numpy as np
import pytest

from sage_attention.errors import ArgumentError
from sage_attention.recipes.synthetic import SyntheticNetwork, social_network, write_social_network


@pytest.fixture(scope="module")
def network() -> SyntheticNetwork:
    return social_network(num_members=8_000, seed=3)


def digest(network: SyntheticNetwork) -> str:
    total = hashlib.sha256()
    for array in (network.edge_index, network.features, network.labels):
        total.update(np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes())
    return total.hexdigest()[:16]


def degrees(network: SyntheticNetwork) -> np.ndarray:
    return np.bincount(network.edge_index[1], minlength=len(network.labels))


def neighbour_mean(network: SyntheticNetwork) -> np.ndarray:
    total = np.zeros(network.features.shape)
    np.add.at(total, network.edge_index[1], network.features[network.edge_index[0]])
    return total / np.maximum(degrees(network), 1)[:, None]


def least_squares_accuracy(inputs: np.ndarray, labels: np.ndarray) -> float:
    """Accuracy on held-out members of a linear classifier in closed form."""
    train = np.random.default_rng(0).random(len(labels)) < 0.5
    inputs = np.hstack([inputs, np.ones((len(labels), 1))])
    weights = np.linalg.lstsq(inputs[train], np.eye(labels.max() + 1)[labels[train]], rcond=None)[0]
    return float(((inputs @ weights).argmax(axis=1) == labels)[~train].mean())


@pytest.mark.parametrize(
    ("seed", "members", "communities", "expected"),
    [(0, 500, 8, "5515b4b5f9575cc6"), (2**64 - 1, 500, 3, "99f68b7c29a824fc")],
)
def test_the_same_network_on_every_platform(seed, members, communities, expected):
    assert digest(social_network(members, communities, seed)) == expected


def test_seeds_differ():
    assert digest(social_network(300, seed=1)) != digest(social_network(300, seed=2))


def test_shapes_and_types(network):
    edges = network.edge_index.shape[1]
    assert network.edge_index.shape == (2, edges)
    assert network.edge_index.dtype == network.labels.dtype == np.int64
    assert network.features.shape == (8_000, 32)
    assert network.features.dtype == np.float32
    assert np.isfinite(network.features).all()
    assert set(network.labels.tolist()) == set(range(8))
    assert network.class_names[:2] == ("climbers", "photographers")


def test_ties_are_mutual_single_and_sorted(network):
    sources, targets = network.edge_index
    keys = targets * len(network.labels) + sources
    assert (np.diff(keys) > 0).all(), "sorted by target, then source, none twice"
    assert (sources != targets).all()
    np.testing.assert_array_equal(np.sort(sources * len(network.labels) + targets), keys)


def test_degrees_have_a_heavy_tail(network):
    degree = degrees(network)
    assert 10.0 < degree.mean() < 12.5
    assert 5 <= np.median(degree) <= 9
    assert degree.max() > 25 * degree.mean(), "hubs"
    assert (degree == 0).mean() < 0.02
    # A power law: over a decade the tail falls by about 10^1.6; an exponential one would by e^10 or more.
    tail = [(degree >= bound).mean() for bound in (15, 150)]
    assert 15 < tail[0] / tail[1] < 400


def test_communities_differ_in_size_and_none_dominates(network):
    sizes = np.bincount(network.labels) / len(network.labels)
    assert sizes.max() < 0.2
    assert 1.5 < sizes.max() / sizes.min() < 2.5


def test_most_ties_stay_within_the_community_but_some_members_are_misled(network):
    sources, targets = network.edge_index
    same = network.labels[sources] == network.labels[targets]
    assert 0.65 < same.mean() < 0.78
    degree = degrees(network)
    own = np.bincount(targets, weights=same, minlength=len(degree))[degree >= 5] / degree[degree >= 5]
    assert 0.03 < (own < 0.25).mean() < 0.09, "members whose neighbours mislead"


def test_some_members_have_no_features(network):
    assert 0.10 < (network.features == 0).all(axis=1).mean() < 0.14


def test_features_alone_are_not_enough_and_neighbours_help(network):
    alone = least_squares_accuracy(network.features, network.labels)
    with_neighbours = least_squares_accuracy(np.hstack([network.features, neighbour_mean(network)]), network.labels)
    assert 0.60 < alone < 0.75
    assert 0.88 < with_neighbours < 0.97


def test_attention_has_something_to_decide(network):
    """An oracle that ignores misleading neighbours beats the plain mean, so weights matter."""
    sources, targets = network.edge_index
    keep = network.labels[sources] == network.labels[targets]
    chosen = SyntheticNetwork(network.edge_index[:, keep], network.features, network.labels, network.class_names)
    plain = least_squares_accuracy(neighbour_mean(network), network.labels)
    oracle = least_squares_accuracy(neighbour_mean(chosen), network.labels)
    assert oracle > plain + 0.03


def test_many_communities_have_distinct_names():
    names = social_network(200, num_communities=40, seed=1).class_names
    assert len(set(names)) == 40
    assert names[16] == "climbers 2"


@pytest.mark.parametrize("members", [2, 3, 17])
def test_tiny_networks(members):
    network = social_network(members, num_communities=2, mean_degree=1.0)
    assert len(network.labels) == members
    assert network.edge_index.min(initial=0) >= 0
    assert network.edge_index.max(initial=0) < members


def test_full_size_is_quick():
    start = time.perf_counter()
    network = social_network()
    assert time.perf_counter() - start < 10.0  # about half a second; a busy machine gets time to spare
    assert len(network.labels) == 50_000


@pytest.mark.parametrize(
    ("name", "value"),
    [("num_members", 3), ("num_communities", 1), ("seed", -1), ("seed", 2**64), ("mean_degree", 0.5),
     ("mean_degree", float("nan")), ("num_features", 1), ("share_empty", 1.5)],
)  # fmt: skip
def test_arguments_are_checked(name, value):
    with pytest.raises(ArgumentError, match=name):
        social_network(**{"num_members": 100, name: value})


def test_the_files_hold_the_network(tmp_path):
    network = social_network(400, num_communities=5, seed=9)
    folder = write_social_network(tmp_path / "网络 files", network)
    assert sorted(path.name for path in folder.iterdir()) == ["edges.csv", "features.npy", "labels.csv"]
    with (folder / "edges.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["source", "target"]
    np.testing.assert_array_equal(np.array(rows[1:], dtype=np.int64).T, network.edge_index)
    with (folder / "labels.csv").open(encoding="utf-8", newline="") as file:
        labels = list(csv.DictReader(file))
    assert [int(row["node"]) for row in labels] == list(range(400))
    assert [row["label"] for row in labels] == [network.class_names[label] for label in network.labels]
    np.testing.assert_array_equal(np.load(folder / "features.npy", allow_pickle=False), network.features)
    assert b"\r" not in (folder / "edges.csv").read_bytes()
