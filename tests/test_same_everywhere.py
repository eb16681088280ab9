"""Samples are the same on every system, by every compiler, for every number of threads: their digests are written here.

Another digest means other samples for all who gave a seed: a change for CHANGELOG.md, never an accident.
"""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from sage_attention import GatScores, Graph, RandomWalker, sample_neighbours, sample_one_hop
from sage_attention.hetero import HeteroSampler, Relation

NUM_NODES = 3000
SEEDS = np.arange(7, NUM_NODES, 23)
USES, USED_BY, KNOWS = ("user", "uses", "item"), ("item", "used_by", "user"), ("user", "knows", "user")


def drawn(number, high, count):
    """int64 [count] below `high`, by integer arithmetic alone."""
    state = np.uint64(number * 2 + 1)
    steps = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) * state
    steps = (steps ^ (steps >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    steps = (steps ^ (steps >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((steps ^ (steps >> np.uint64(31))) % np.uint64(high)).astype(np.int64)


def edges(number, num_sources, num_targets, num_edges=60_000):
    """Edges of which every fourth leads to one of three hubs."""
    targets = drawn(number, num_targets, num_edges)
    targets[::4] %= 3
    return np.stack([drawn(number + 1, num_sources, num_edges), targets])


def digest(*arrays):
    """The first digits of SHA-256 over int64 arrays and their lengths."""
    found = hashlib.sha256()
    for array in arrays:
        array = np.ascontiguousarray(array, dtype="<i8")
        found.update(len(array).to_bytes(8, "little") + array.tobytes())
    return found.hexdigest()[:16]


GRAPH = Graph.from_edge_index(edges(1, NUM_NODES, NUM_NODES), NUM_NODES)


def scores(heads):
    """Scores that are fractions of 2^10: the same numbers everywhere."""
    sources = (drawn(5, 8192, NUM_NODES * heads) / 1024 - 4).reshape(NUM_NODES, heads).astype(np.float32)
    targets = (drawn(6, 8192, NUM_NODES * heads) / 1024 - 4).reshape(NUM_NODES, heads).astype(np.float32)
    return GatScores(sources, targets)


def relations():
    """Three edge types: with times and weights, with times, with neither."""
    weights = drawn(30, 64, 60_000) / 16
    return {
        USES: Relation(
            Graph.from_edge_index(edges(10, 2000, 1000), (2000, 1000)), drawn(31, 500, 60_000), weights=weights
        ),
        USED_BY: Relation(Graph.from_edge_index(edges(12, 1000, 2000), (1000, 2000)), drawn(32, 500, 60_000)),
        KNOWS: Relation(Graph.from_edge_index(edges(14, 2000, 2000), (2000, 2000))),
    }


def of_types(num_threads, weighted=True, **options):
    by_type = relations() if weighted else {key: value for key, value in relations().items() if key != USES}
    sampler = HeteroSampler(by_type, {"user": 2000, "item": 1000})
    seeds = {"user": np.arange(0, 2000, 31), "item": np.arange(3, 1000, 29)}
    times = {name: drawn(40, 500, len(ids)) for name, ids in seeds.items()} if options.get("disjoint") else None
    sample = sampler.sample(seeds, [6, 4], seed_times=times, seed=11, num_threads=num_threads, **options)
    trees = list(sample.trees.values()) if sample.trees else []
    return [
        *sample.nodes.values(), *trees, *sample.sources.values(), *sample.targets.values(), *sample.edge_ids.values(),
    ]  # fmt: skip


def one_hop(num_threads, **options):
    hop = sample_one_hop(GRAPH, SEEDS, 9, seed=3, num_threads=num_threads, **options)
    return [hop.indptr, hop.sources, hop.edge_ids]


def neighbours(num_threads, **options):
    found = sample_neighbours(GRAPH, SEEDS, [9, 5], seed=3, num_threads=num_threads, **options)
    return [found.nodes, found.indptr, found.sources, found.edge_ids]


def walks(num_threads, weights=None, **options):
    found = RandomWalker(GRAPH, weights).walk(SEEDS, 8, seed=5, num_threads=num_threads, **options)
    return [found.nodes.ravel(), found.edge_ids.ravel()]


CASES = {
    "one_hop": lambda n: one_hop(n),
    "one_hop_replace": lambda n: one_hop(n, replace=True),
    "one_hop_importance": lambda n: one_hop(n, strategy="importance", scores=scores(1)),
    "one_hop_importance_heads": lambda n: one_hop(n, strategy="importance", scores=scores(4)),
    "one_hop_top_attention": lambda n: one_hop(n, strategy="top_attention", scores=scores(4)),
    "neighbours": lambda n: neighbours(n),
    "neighbours_replace": lambda n: neighbours(n, replace=True),
    "neighbours_labor": lambda n: neighbours(n, strategy="labor"),
    "neighbours_labor_sequential": lambda n: neighbours(n, strategy="labor_sequential"),
    "types": lambda n: of_types(n),
    "types_replace": lambda n: of_types(n, replace=True),
    "types_disjoint_times": lambda n: of_types(n, disjoint=True),
    "types_strict_window": lambda n: of_types(n, disjoint=True, strict=True, window=100),
    "types_last": lambda n: of_types(n, disjoint=True, strategy="last"),
    "types_recency": lambda n: of_types(n, disjoint=True, strategy="recency", decay=0.01),
    "types_recency_replace": lambda n: of_types(n, disjoint=True, strategy="recency", decay=0.01, replace=True),
    "types_labor": lambda n: of_types(n, weighted=False, strategy="labor"),
    "walks": lambda n: walks(n),
    "walks_weights_restart": lambda n: walks(n, drawn(50, 32, 60_000) / 8, restart=0.25),
    "walks_node2vec": lambda n: walks(n, p=0.5, q=2.0),
}
DIGESTS = {
    "one_hop": "eda3fbad26098156",
    "one_hop_replace": "5ad13a188d673e55",
    "one_hop_importance": "dbd3629d0b2ba83c",
    "one_hop_importance_heads": "5116d3b400238980",
    "one_hop_top_attention": "ceae57843b3962c8",
    "neighbours": "175f2480fe12bb4d",
    "neighbours_replace": "28c11960f6715c2e",
    "neighbours_labor": "446183cd50fb5708",
    "neighbours_labor_sequential": "49cc789e174dfe2b",
    "types": "8f507b79f152e77f",
    "types_replace": "fec6274b58d29bab",
    "types_disjoint_times": "8dc4dbe411601ec3",
    "types_strict_window": "3b10ea3f2d57c7c9",
    "types_last": "0a8e72b39d4057d5",
    "types_recency": "d586655f25cb32b9",
    "types_recency_replace": "f5c577a2ea290330",
    "types_labor": "cab079859f8ebe01",
    "walks": "9c3185cc53cc8db2",
    "walks_weights_restart": "a4b9ddaf21c13570",
    "walks_node2vec": "ce87cd4ad91a65c8",
}


@pytest.mark.parametrize("name", CASES)
def test_digests(name, num_threads):
    """What is drawn does not depend on where it is."""
    assert digest(*CASES[name](num_threads)) == DIGESTS[name]
