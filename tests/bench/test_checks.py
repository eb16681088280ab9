"""What is compared before anything is timed: right results pass, and wrong ones of every kind do not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from reference import attention as reference
from sage_attention import Graph, SageAttentionError
from sage_attention.bench import checks
from sage_attention.bench.graphs import chung_lu
from sage_attention.bench.problem import SCORES, Problem, check_memory
from sage_attention.errors import ArgumentError


def scored(score, graph=None, **sizes):
    chosen = {"heads": 2, "channels": 5, **sizes}
    return Problem("a graph", chung_lu(200, 1500, seed=3) if graph is None else graph, **chosen).scored(score)


@pytest.mark.parametrize("score", SCORES)
def test_right_results_pass_on_any_number_of_threads(score):
    assert checks.check_scored(scored(score), 1) == checks.check_scored(scored(score), 2)


@pytest.mark.parametrize("score", SCORES)
def test_rows_are_those_of_the_reference(score):
    one = scored(score)
    targets = np.flatnonzero(one.problem.graph.in_degrees)
    wanted = reference.attention_forward(one.inputs)["out"][targets]
    np.testing.assert_allclose(checks.expected_rows(one.inputs, targets), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("graph", [Graph([0], []), Graph([0, 0, 0], []), Graph([0, 1], [0])], ids=str)
@pytest.mark.parametrize("score", SCORES)
def test_graphs_of_next_to_nothing(graph, score):
    checks.check_scored(scored(score, graph), 1)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("what", ["forward", "gather"])
def test_wrong_results_are_found(monkeypatch, score, what):
    one = scored(score)
    real = getattr(one, what)
    monkeypatch.setattr(one, what, lambda threads: real(threads) * np.float32(1.001))
    with pytest.raises(SageAttentionError, match=f"{score}, {what}: expected NumPy's results"):
        checks.check_scored(one, 1)


# Gradients that an equation must tell from right ones; those of GATv2 are tied together by a single one.
WRONG = [
    ("gat", "values"),
    ("gatv2", "values"), ("gatv2", "queries"), ("gatv2", "attention"),
    ("dot", "values"), ("dot", "keys"), ("dot", "queries"),
]  # fmt: skip


@pytest.mark.parametrize(("score", "name"), WRONG)
def test_wrong_gradients_are_found(monkeypatch, score, name):
    one = scored(score)
    real = one.backward

    def wrong(threads):
        found = real(threads)
        return replace(found, **{name: getattr(found, name) * np.float32(1.5)})

    monkeypatch.setattr(one, "backward", wrong)
    with pytest.raises(SageAttentionError, match=f"{score}, backward: expected gradients that agree"):
        checks.check_scored(one, 1)


def test_nan_is_wrong(monkeypatch):
    one = scored("gat")
    real = one.forward
    monkeypatch.setattr(one, "forward", lambda threads: real(threads) * np.float32("nan"))
    with pytest.raises(SageAttentionError, match="forward"):
        checks.check_scored(one, 1)


def test_digests_tell_a_last_bit_apart():
    one = np.ones((3, 4), np.float32)
    other = one.copy()
    other[2, 3] = np.nextafter(np.float32(1), np.float32(2))
    assert checks.digest(one) == checks.digest(one.copy()) != checks.digest(other)


def test_the_gather_adds_up_rows():
    one = scored("dot")
    dense = np.zeros((one.problem.graph.num_targets, one.problem.graph.num_sources))
    targets = np.repeat(np.arange(len(dense)), one.problem.graph.in_degrees)
    np.add.at(dense, (targets, one.problem.graph.indices), 1)
    np.testing.assert_allclose(one.gather(2), dense @ one.rows, rtol=1e-4, atol=1e-4)


def test_memory_is_looked_at_before():
    check_memory(10**9, 8, 16, free=None)
    with pytest.raises(ArgumentError, match=r"--heads, --channels: expected arrays of 1,000,000,000 nodes"):
        check_memory(10**9, 8, 16, free=2**34)
