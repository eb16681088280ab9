"""PyTorch Geometric beside ours: the same results, wrong ones found, and a contender that fails left out."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

pytest.importorskip("torch", reason="its layers are torch's")
pytest.importorskip("torch_geometric", reason="the peer")

import torch

from sage_attention import SageAttentionError
from sage_attention.bench import peers
from sage_attention.bench.graphs import chung_lu
from sage_attention.bench.problem import SCORES, Problem
from sage_attention.cli import main

PROBLEM = Problem("a graph", chung_lu(150, 900, seed=2), heads=3, channels=4)
NAMES = [peers.OURS, peers.EAGER]


@pytest.fixture(autouse=True)
def _threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("score", SCORES)
def test_both_sides_agree_with_the_numpy_level(score, training):
    scored = PROBLEM.scored(score)
    made = peers.Contenders.make(scored, NAMES, 1, training=training)
    assert made.check() > 0
    wanted = scored.forward(1)
    for name in NAMES:
        got = made.steps[name]().detach().numpy().reshape(wanted.shape)
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("score", SCORES)
def test_wrong_outputs_are_found(score):
    made = peers.Contenders.make(PROBLEM.scored(score), NAMES, 1, training=False)
    real = made.steps[peers.EAGER]
    made.steps[peers.EAGER] = lambda: real() * 1.01
    with pytest.raises(SageAttentionError, match=f"bench: {score}: outputs: expected PyG eager and ours to agree"):
        made.check()


@pytest.mark.parametrize("score", SCORES)
def test_wrong_gradients_are_found(score):
    made = peers.Contenders.make(PROBLEM.scored(score), NAMES, 1, training=True)
    real = made.steps[peers.EAGER]

    def wrong():
        out = real()
        made._leaves[peers.EAGER]["input 1"].grad *= 1.1
        return out

    made.steps[peers.EAGER] = wrong
    with pytest.raises(SageAttentionError, match=f"bench: {score}: gradients of input 1"):
        made.check()


def test_a_peer_that_fails_is_left_out_and_ours_is_not():
    made = peers.Contenders.make(PROBLEM.scored("gat"), NAMES, 1, training=False)

    def fails():
        raise RuntimeError("\nno compiler\nand more")

    made.steps[peers.COMPILED] = fails
    made.check()
    assert made.dropped == {peers.COMPILED: "it fails here: RuntimeError: no compiler"}
    assert list(made.steps) == NAMES
    made.steps[peers.EAGER] = fails
    made.check()
    assert list(made.steps) == [peers.OURS]
    made.steps[peers.OURS] = fails
    with pytest.raises(RuntimeError, match="no compiler"):
        made.check()


def test_memory_is_judged_before():
    assert peers.why_not(peers.EAGER, "gatv2", 1000, 512, 1000, None) == ""
    assert peers.why_not(peers.EAGER, "gat", 10**7, 4, 1000, 2**28), "ids alone are too much"
    assert "needs about" in peers.why_not(peers.EAGER, "gatv2", 10**9, 512, 1000, 2**30)
    less = peers.why_not(peers.COMPILED, "gat", 10**7, 512, 0, 8 * 2**30)
    assert less == ""
    assert peers.why_not(peers.EAGER, "gat", 10**7, 512, 0, 8 * 2**30)


@pytest.mark.parametrize("absent", ["torch", "torch_geometric"])
def test_what_is_missing_is_named(monkeypatch, absent):
    assert peers.missing() == ""
    monkeypatch.setitem(sys.modules, absent, None)
    assert peers.missing().startswith(f"{absent} is not installed; pip install")


def test_the_command(capsys, monkeypatch):
    monkeypatch.setattr(peers, "why_not", lambda *a: "too large" if a[1] == "dot" else "")
    words = ["bench", "--quick", "--heads", "1", "--channels", "4", "--threads", "1", "--time-limit", "600"]
    assert main([*words, "--json", "-", "--quiet"]) == 0
    document = json.loads(capsys.readouterr().out)
    beside = [one for one in document["figures"] if one["part"] == "peers"]
    assert {(one["score"], one["step"], one["contender"]) for one in beside} == {
        (score, name, contender) for score in ("gat", "gatv2") for name in peers.PASSES for contender in NAMES
    }
    assert {one["times_ours"] for one in beside if one["contender"] == peers.OURS} == {1.0}
    left = {one["what"]: one["why"] for one in document["left_out"]}
    assert left["PyG eager, dot, forward, 1 thread"] == "too large"
    assert left["PyTorch Geometric, dot, training, 1 thread"] == "no peer is left"
    assert document["machine"]["torch_cpu_level"]
