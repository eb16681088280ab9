"""Sampling over types, by time, by weight and in trees, against its naive twin, bit for bit; distributions; errors."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from reference import hetero as reference
from sage_attention import ArgumentError, Graph, sample_neighbours
from sage_attention.hetero import HeteroSampler, Relation

LOOP = ("node", "to", "node")
TYPES = {"user": 30, "item": 50, "tag": 3}
EDGE_TYPES = [("user", "buys", "item"), ("item", "bought_by", "user"), ("user", "knows", "user"), ("tag", "on", "item")]


def one_type(edge_index, num_nodes, **columns):
    return HeteroSampler({LOOP: Relation(Graph.from_edge_index(edge_index, num_nodes), **columns)}, {"node": num_nodes})


def make(rng, num_nodes, edge_types, *, times=False, weights=False, most=6):
    """Relations with ragged, empty and repeated rows; also what they were made from, by edge."""
    relations, columns = {}, {}
    for edge_type in edge_types:
        size = num_nodes[edge_type[0]], num_nodes[edge_type[-1]]
        count = int(rng.integers(0, most * max(1, min(size))))
        edges = np.stack([rng.integers(0, max(1, end), count if min(size) else 0) for end in size])
        found = {"edges": edges}
        if times:
            found["times"] = rng.integers(0, 20, edges.shape[1])
        if weights:
            found["weights"] = rng.integers(0, 4, edges.shape[1]) * rng.choice([1.0, 0.3, 1e-9], edges.shape[1])
        columns[edge_type] = found
        graph = Graph.from_edge_index(edges, size)
        relations[edge_type] = Relation(graph, found.get("times"), found.get("weights"))
    return HeteroSampler(relations, num_nodes), columns


def twin(sampler, columns, seeds, fan_outs, **options):
    """The reference on lists that are sorted here, not by the sampler."""
    relations, orders = [], []
    for edge_type in sampler.relations:
        found = columns[edge_type]
        keys = [found["edges"][1]] if "times" not in found else [found["times"], found["edges"][1]]
        order = np.lexsort(keys)
        if "weights" in found:
            order = order[found["weights"][order] > 0]
        targets = found["edges"][1][order]
        indptr = np.searchsorted(targets, np.arange(sampler.num_nodes[edge_type[-1]] + 1))
        relations.append(
            reference.ReferenceRelation(
                edge_type[0], edge_type[-1], indptr.tolist(), found["edges"][0][order].tolist(),
                list(fan_outs[edge_type]) if isinstance(fan_outs, dict) else list(fan_outs),
                found["times"][order].tolist() if "times" in found else None,
                found["weights"][order].tolist() if "weights" in found else None,
            )
        )  # fmt: skip
        orders.append(order)
    strategy = options.pop("strategy", "uniform")
    options.pop("num_threads", None)
    seeds = {name: [int(node) for node in nodes] for name, nodes in seeds.items()}
    labor = strategy if strategy.startswith("labor") else None
    options = {**options, "last_only": strategy == "last", "labor": labor}
    sample = reference.sample_hetero(relations, sampler.num_nodes, seeds, **options)
    return sample, orders


def assert_twin(sampler, columns, seeds, fan_outs, **options):
    found = sampler.sample(seeds, fan_outs, **options)
    expected, orders = twin(sampler, columns, seeds, fan_outs, **options)
    for name in sampler.num_nodes:
        assert found.nodes[name].tolist() == expected.nodes[name]
        assert found.num_sampled_nodes[name] == tuple(expected.num_sampled_nodes[name])
        if options.get("disjoint"):
            assert found.trees[name].tolist() == expected.trees[name]
    for number, edge_type in enumerate(sampler.relations):
        assert found.sources[edge_type].tolist() == expected.sources[number]
        assert found.targets[edge_type].tolist() == expected.targets[number]
        assert found.edge_ids[edge_type].tolist() == orders[number][expected.positions[number]].tolist()
        assert found.num_sampled_edges[edge_type] == tuple(expected.num_sampled_edges[number])
    assert (found.trees is not None) == bool(options.get("disjoint"))
    return found


@given(st.data())
@settings(deadline=None, max_examples=150)
def test_against_the_twin(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    several = data.draw(st.booleans())
    num_nodes = {name: int(rng.integers(0, count + 1)) for name, count in TYPES.items()} if several else {"node": 40}
    edge_types = EDGE_TYPES if several else [LOOP]
    times, weights = data.draw(st.booleans()), data.draw(st.booleans())
    strategies = ["uniform", "last", "recency", *([] if weights else ["labor", "labor_sequential"])]
    sampler, columns = make(rng, num_nodes, edge_types, times=times, weights=weights)
    seeds = {
        name: rng.integers(0, count, int(rng.integers(0, 7)))
        for name, count in num_nodes.items()
        if count and data.draw(st.booleans())
    }
    hops = data.draw(st.integers(1, 3))
    fan_outs = {edge_type: rng.choice([-1, 0, 1, 2, 3, 40], hops).tolist() for edge_type in edge_types}
    options = {
        "seed": data.draw(st.integers(0, 2**64 - 1)),
        "replace": data.draw(st.booleans()),
        "disjoint": times or data.draw(st.booleans()),
        "strategy": data.draw(st.sampled_from(strategies)),
        "strict": data.draw(st.booleans()),
        "window": data.draw(st.sampled_from([None, 0, 5])),
        "num_threads": data.draw(st.sampled_from([1, 2])),
    }
    if options["strategy"] == "recency":
        options["decay"] = data.draw(st.sampled_from([0.0, 0.1, 3.0, 1e100]))
    if options["strategy"].startswith("labor"):
        options["replace"] = False
    if times:
        options["seed_times"] = {
            name: rng.integers(0, 20, len(nodes)) for name, nodes in seeds.items() if data.draw(st.booleans())
        }
    assert_twin(sampler, columns, seeds, fan_outs, **options)


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("index_dtype", [np.int32, np.int64])
def test_one_type_gives_the_ids_of_sample_neighbours(replace, index_dtype):
    rng = np.random.default_rng(1)
    graph = Graph.from_edge_index(rng.integers(0, 2000, (2, 30_000)), 2000)
    graph = Graph.from_trusted(graph.indptr, graph.indices.astype(index_dtype), graph.num_sources, graph.edge_ids)
    seeds = rng.integers(0, 2000, 300)  # some twice
    plain = sample_neighbours(graph, seeds, [7, 5, -1], seed=11, replace=replace)
    found = HeteroSampler({LOOP: Relation(graph)}, {"node": 2000}).sample(
        {"node": seeds}, [7, 5, -1], seed=11, replace=replace
    )
    np.testing.assert_array_equal(found.nodes["node"], plain.nodes)
    np.testing.assert_array_equal(found.sources[LOOP], plain.sources)
    np.testing.assert_array_equal(found.targets[LOOP], plain.targets)
    np.testing.assert_array_equal(found.edge_ids[LOOP], plain.edge_ids)
    assert found.num_sampled_nodes["node"] == plain.num_sampled_nodes
    assert found.num_sampled_edges[LOOP] == plain.num_sampled_edges


@pytest.mark.parametrize("disjoint", [False, True])
def test_many_rows_on_two_threads(disjoint):
    """Enough for several chunks, tables that grow, and both kinds of them."""
    rng = np.random.default_rng(2)
    num_nodes = {"user": 60_000, "item": 200_000}
    buys, by = ("user", "buys", "item"), ("item", "by", "user")
    edges = np.stack([rng.integers(0, 60_000, 600_000), rng.integers(0, 200_000, 600_000)])
    relations = {
        buys: Relation(Graph.from_edge_index(edges, (60_000, 200_000))),
        by: Relation(Graph.from_edge_index(edges[::-1], (200_000, 60_000))),
    }
    sampler = HeteroSampler(relations, num_nodes)
    seeds = {"item": rng.integers(0, 200_000, 2000)}
    one, two = (sampler.sample(seeds, [5, 5, 5], disjoint=disjoint, num_threads=n) for n in (1, 2))
    assert one.num_sampled_edges == two.num_sampled_edges
    for field in ("nodes", "sources", "targets", "edge_ids"):
        for key, values in getattr(one, field).items():
            np.testing.assert_array_equal(values, getattr(two, field)[key])
    for edge_type, ends in ((buys, edges), (by, edges[::-1])):
        picked = ends[:, one.edge_ids[edge_type]]
        np.testing.assert_array_equal(one.nodes[edge_type[0]][one.sources[edge_type]], picked[0])
        np.testing.assert_array_equal(one.nodes[edge_type[-1]][one.targets[edge_type]], picked[1])
        if disjoint:
            np.testing.assert_array_equal(
                one.trees[edge_type[0]][one.sources[edge_type]], one.trees[edge_type[-1]][one.targets[edge_type]]
            )
    for name in num_nodes:
        known = one.nodes[name] + (one.trees[name] * num_nodes[name] if disjoint else 0)
        new = known[one.num_sampled_nodes[name][0] :]
        assert len(np.unique(new)) == len(new)


@pytest.mark.parametrize("replace", [False, True])
def test_picks_follow_the_weights(replace):
    """Of a hub's in-edges one is drawn, or the first of several, in proportion to its weight."""
    degree, draws = 20_000, 40_000
    rng = np.random.default_rng(3)
    classes = rng.integers(0, 10, degree)  # weights 0 to 9
    edges = np.stack([np.arange(1, degree + 1), np.zeros(degree, np.int64)])
    sampler = one_type(edges, degree + 1, weights=classes)
    counts = np.zeros(10)
    for seed in range(draws // 400):
        # many trees at once: their draws differ by the seed node, so each target is a hub of its own seed
        for fan_out in (3,) if not replace else (4,):
            found = sampler.sample({"node": [0]}, [fan_out], seed=seed, replace=replace)
            picked = classes[found.edge_ids[LOOP]]
            counts += np.bincount(picked if replace else picked[:1], minlength=10)
    assert counts[0] == 0
    expected = np.bincount(classes, minlength=10) * np.arange(10)
    expected = expected[1:] / expected[1:].sum() * counts.sum()
    assert chisquare(counts[1:], expected).pvalue > 1e-4


def test_without_replacement_by_weight_is_successive_sampling():
    """All ordered pairs of four in-edges, one of them nearly all the weight: also the walk through the rest."""
    weights = np.array([1.0, 2.0, 3.0, 5000.0])
    edges = np.stack([np.arange(1, 5), np.zeros(4, np.int64)])
    sampler = one_type(edges, 5, weights=weights)
    counts = {}
    draws = 20_000
    for seed in range(draws):
        pair = tuple(sampler.sample({"node": [0]}, [2], seed=seed).edge_ids[LOOP].tolist())
        counts[pair] = counts.get(pair, 0) + 1
    share = weights / weights.sum()
    pairs = [(a, b) for a in range(4) for b in range(4) if a != b]
    expected = np.array([share[a] * share[b] / (1 - share[a]) for a, b in pairs])
    seen = np.array([counts.get(pair, 0) for pair in pairs])
    common = expected * draws >= 5
    assert set(counts) <= set(pairs)
    both_seen = np.append(seen[common], seen[~common].sum())
    both_expected = np.append(expected[common], expected[~common].sum()) * draws
    assert chisquare(both_seen, both_expected).pvalue > 1e-4


@pytest.mark.parametrize("degree", [20_000, 40_000])
def test_time_limited_picks_are_uniform(degree):
    """Fault 1 of the incumbent: ranges below 2^16 from 16 bits by remainder favour low positions up to twice."""
    edges = np.stack([np.arange(1, degree + 3001), np.zeros(degree + 3000, np.int64)])
    times = np.arange(degree + 3000)
    sampler = one_type(edges, degree + 3001, times=times)
    counts = np.zeros(20)
    for seed in range(400):
        found = sampler.sample({"node": [0]}, [100], disjoint=True, seed_times={"node": [degree - 1]}, seed=seed)
        counts += np.bincount(found.edge_ids[LOOP] * 20 // degree, minlength=20)
    assert counts.sum() == 40_000
    assert chisquare(counts).pvalue > 1e-4


def test_seeds_that_repeat_keep_their_own_rows():
    """Fault 3 of the incumbent: repeated seeds shift every later local id."""
    sampler = one_type([[9, 8], [5, 7]], 10)
    found = sampler.sample({"node": [5, 5, 7]}, [-1])
    assert found.nodes["node"].tolist() == [5, 5, 7, 9, 8]
    assert found.nodes["node"][found.sources[LOOP]].tolist() == [9, 9, 8]
    assert found.targets[LOOP].tolist() == [0, 1, 2]


def test_times_of_64_bits_on_a_graph_of_32():
    """Fault 4 of the incumbent: times cut to the width of the ids."""
    late = 2**40
    sampler = one_type([[1, 2], [0, 0]], 3, times=[late, late + 2**33])
    found = sampler.sample({"node": [0]}, [-1], disjoint=True, seed_times={"node": [late + 1]})
    assert found.edge_ids[LOOP].tolist() == [0]


@pytest.mark.parametrize("fan_out", [-1, 2, 9])
@pytest.mark.parametrize("replace", [False, True])
def test_weight_zero_is_never_picked(fan_out, replace):
    """Fault 5 of the incumbent."""
    edges = [[1, 2, 3, 4, 1, 2], [0, 0, 0, 0, 5, 5]]
    sampler = one_type(edges, 6, weights=[1, 0, 0, 0, 0, 0])
    found = sampler.sample({"node": [0, 5]}, [fan_out], replace=replace)
    assert set(found.edge_ids[LOOP].tolist()) == {0}
    assert found.num_sampled_edges[LOOP] == (fan_out if replace and fan_out > 0 else 1,)


def test_extreme_times_and_windows():
    low, high = -(2**63), 2**63 - 1
    sampler = one_type([[1, 2, 3], [0, 0, 0]], 4, times=[low, 0, high])

    def picked(time, **options):
        found = sampler.sample({"node": [0]}, [-1], disjoint=True, seed_times={"node": [time]}, **options)
        return found.edge_ids[LOOP].tolist()

    assert picked(high) == [0, 1, 2]
    assert picked(high, strict=True) == [0, 1]
    assert picked(low) == [0]
    assert picked(low, strict=True) == []
    assert picked(low, window=high) == [0]
    assert picked(0, window=0) == [1]
    assert picked(5, window=high) == [1]


def test_trees_do_not_depend_on_their_neighbours_in_the_batch():
    rng = np.random.default_rng(4)
    sampler = one_type(rng.integers(0, 200, (2, 5000)), 200)
    whole = sampler.sample({"node": [3, 8, 120]}, [4, 4], seed=9, disjoint=True)
    alone = sampler.sample({"node": [120]}, [4, 4], seed=9, disjoint=True)
    third = whole.trees["node"] == 2
    np.testing.assert_array_equal(whole.nodes["node"][third], alone.nodes["node"])
    edges = whole.trees["node"][whole.targets[LOOP]] == 2
    np.testing.assert_array_equal(whole.edge_ids[LOOP][edges], alone.edge_ids[LOOP])


@pytest.mark.parametrize("columns", [{}, {"weights": [1.0] * 5}])
def test_a_seed_that_comes_again_draws_anew_in_its_tree(columns):
    sampler = one_type([[0, 1, 2, 3, 4], [5] * 5], 6, **columns)
    found = sampler.sample({"node": [5] * 8000}, [1], seed=3, disjoint=True)
    np.testing.assert_array_equal(found.targets[LOOP], np.arange(8000))
    picks = found.edge_ids[LOOP]
    for lag in (1, 2, 7):  # each pair of picks is as likely as another
        pairs = np.bincount(5 * picks[:-lag:8] + picks[lag::8][: len(picks[:-lag:8])], minlength=25)
        assert chisquare(pairs).pvalue > 1e-4
    first = sampler.sample({"node": [5]}, [1], seed=3, disjoint=True)
    assert first.edge_ids[LOOP][0] == picks[0]
    same = sampler.sample({"node": [5] * 100}, [1], seed=3)
    assert len(set(same.edge_ids[LOOP].tolist())) == 1


def test_trees_of_one_seed_are_told_apart_by_labor_too_and_by_type():
    edges = np.stack([np.arange(40), np.full(40, 0)])
    to_item, to_user = ("user", "to", "item"), ("item", "to", "user")
    sampler = HeteroSampler(
        {to_item: Relation(Graph.from_edge_index(edges, 40)), to_user: Relation(Graph.from_edge_index(edges, 40))},
        {"user": 40, "item": 40},
    )
    for strategy in ("uniform", "labor_sequential"):
        found = sampler.sample({"user": [0] * 30, "item": [0] * 30}, [5], disjoint=True, strategy=strategy)
        rows = np.concatenate([found.edge_ids[edge_type].reshape(30, 5) for edge_type in (to_item, to_user)])
        assert len({tuple(row) for row in rows.tolist()}) == 60


def test_arrays_outlive_the_sampler_and_travel():
    sampler = one_type([[0, 1], [1, 2]], 3)
    found = sampler.sample({"node": [2]}, [1, 1])
    nodes = found.nodes["node"]
    copy = pickle.loads(pickle.dumps(found))
    del found, sampler
    assert nodes.tolist() == copy.nodes["node"].tolist() == [2, 1, 0]


def test_nothing_to_sample():
    found = one_type([[0], [1]], 2).sample({"node": [1]}, [])
    assert (found.nodes["node"].tolist(), found.num_sampled_nodes["node"], found.num_sampled_edges[LOOP]) == (
        [1],
        (1,),
        (),
    )
    sampler = HeteroSampler({}, {"a": 3})
    found = sampler.sample({"a": [1]}, [2, 2])
    assert found.nodes["a"].tolist() == [1]
    assert found.num_sampled_nodes["a"] == (1, 0, 0)
    sampler = one_type(np.empty((2, 0), np.int64), 0)
    assert sampler.sample({}, [3]).nodes["node"].tolist() == []


GOOD = {"seeds": {"node": [0]}, "fan_outs": [2]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": {"node": [3]}}, r"seeds of node type 0: expected values in \[0, 3\), got 3 at position 0"),
        ({"seeds": {"node": [-1]}}, "got -1"),
        ({"seeds": {"nodes": [0]}}, "seeds: expected node types among 'node', got 'nodes'"),
        ({"seeds": {"node": [0.5]}}, r"seeds\['node'\]: expected an array of integers"),
        ({"fan_outs": [0.5]}, "fan_outs: expected"),
        ({"fan_outs": [-2]}, "fan_outs: expected"),
        ({"fan_outs": {LOOP: [1], ("a", "b", "c"): [1]}}, "fan_outs: expected edge types among"),
        ({"seed_times": {"node": [1]}}, "disjoint: expected 1 where seeds have times"),
        ({"seed_times": {"node": [1, 2]}, "disjoint": True}, r"seed_times\['node'\]: expected 1 of them"),
        (
            {"strategy": "first"},
            "strategy: expected one of 'uniform', 'last', .*, got 'first'",
        ),
        ({"window": -1}, "window: expected an integer"),
        ({"seed": -1}, "seed: expected"),
        ({"num_threads": -1}, "num_threads: expected"),
    ],
)
def test_errors_of_a_call(change, message):
    sampler = one_type([[0, 1], [1, 2]], 3, times=[1, 2])
    arguments = {**GOOD, **change}
    with pytest.raises(ArgumentError, match=message):
        sampler.sample(arguments.pop("seeds"), arguments.pop("fan_outs"), **arguments)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"weights": [1.0]}, r"weights: expected numbers of shape \[2\]"),
        ({"weights": [1.0, -1.0]}, "weights: expected finite numbers of at least 0, got -1.0 at position 1"),
        ({"weights": [np.nan, 1.0]}, "weights: expected finite"),
        ({"weights": [np.inf, 1.0]}, "weights: expected finite"),
        ({"weights": ["a", "b"]}, "weights: expected numbers"),
        ({"times": [1.5, 2.0]}, "times: expected an array of integers"),
        ({"times": [1]}, "times: expected"),
    ],
)
def test_errors_of_a_relation(columns, message):
    with pytest.raises(ArgumentError, match=message):
        Relation(Graph.from_edge_index([[0, 1], [1, 2]], 3), **columns)


def test_weights_whose_sum_overflows():
    with pytest.raises(ArgumentError, match="finite sums"):
        Relation(Graph.from_edge_index([[0, 1], [2, 2]], 3), weights=[1e308, 1.7e308])


def test_relations_must_fit_the_node_types():
    relation = Relation(Graph.from_edge_index([[0], [1]], (2, 3)))
    with pytest.raises(ArgumentError, match="expected node types among 'b', got 'a'"):
        HeteroSampler({("a", "to", "b"): relation}, {"b": 3})
    with pytest.raises(ArgumentError, match="expected a graph of 4 'b' nodes, got 3"):
        HeteroSampler({("a", "to", "b"): relation}, {"a": 2, "b": 4})
    with pytest.raises(ArgumentError, match="a Relation, got Graph"):
        HeteroSampler({("a", "to", "b"): relation.graph}, {"a": 2, "b": 3})
