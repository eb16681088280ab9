"""Sampling beside pyg-lib's: its place is taken by a package that gives what its documentation says, right or wrong."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from sage_attention import SageAttentionError
from sage_attention.bench import samplers
from sage_attention.bench.graphs import chung_lu
from sage_attention.bench.problem import Problem
from sage_attention.bench.samplers import Sampler, pyg_lib_missing, pyg_lib_samplers
from sage_attention.cli import main

PROBLEM = Problem("a graph", chung_lu(5000, 40_000, seed=1), 2, 4)

# Picks by our sampler, and gives what pyg-lib does. {wrong} is where a test spoils it.
STAND_IN = """
import torch
from sage_attention import Graph, sample_neighbours

def neighbor_sample(rowptr, col, seed, num_neighbors, csc=False):
    assert csc and rowptr.dtype == col.dtype == seed.dtype == torch.int64
    graph = Graph(rowptr.numpy(), col.numpy())
    sample = sample_neighbours(graph, seed.numpy(), num_neighbors, seed=1)
    sources, targets = torch.tensor(sample.edge_index)
    found = sources, targets, torch.tensor(sample.nodes), torch.tensor(sample.positions)
    counts = list(sample.num_sampled_edges)
    {wrong}
    return (*found, list(sample.num_sampled_nodes), counts)
"""


@pytest.fixture
def pyg_lib(tmp_path, monkeypatch):
    """Installs a pyg_lib whose sampler is the given text."""

    def install(text=STAND_IN, wrong="pass"):
        folder = tmp_path / "pyg_lib"
        folder.mkdir()
        (folder / "__init__.py").write_text("")
        (folder / "sampler.py").write_text(text.replace("{wrong}", wrong))
        monkeypatch.syspath_prepend(str(tmp_path))

    for name in ("pyg_lib", "pyg_lib.sampler"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield install
    for name in ("pyg_lib", "pyg_lib.sampler"):
        sys.modules.pop(name, None)


def bench(capsys, *more):
    words = ["bench", "--quick", "--heads", "1", "--channels", "4", "--threads", "1,2", "--json", "-", "--quiet"]
    assert main([*words, *more]) == 0
    document = json.loads(capsys.readouterr().out)
    return [one for one in document["figures"] if one["part"] == "sampling"], document["left_out"]


def test_every_batch_has_seeds_of_its_own():
    one = Sampler(PROBLEM, [4, 3], 2)
    first = one.sample()
    assert [first.num_edges] == one.edges
    assert first.num_edges > 0
    one.renew()
    assert not np.array_equal(first.nodes, one.sample().nodes)
    assert not np.array_equal(Sampler(PROBLEM, [4, 3], 1).seeds, Sampler(PROBLEM, [4, 3], 2).seeds)


def test_where_it_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyg_lib", None)
    assert pyg_lib_missing(PROBLEM, None) == "pyg_lib is not installed"


def test_where_memory_is_short(pyg_lib):
    pyg_lib()
    assert pyg_lib_missing(PROBLEM, 2**30) == ""
    assert pyg_lib_missing(PROBLEM, 1000).startswith("needs about 0.0 GiB")


def test_right_samples_pass(pyg_lib):
    pytest.importorskip("torch", reason="pyg-lib's are torch's operators")
    pyg_lib()
    for one in pyg_lib_samplers(PROBLEM, [[15, 10], [3]]):
        assert one.edges == []
        one.sample()
        assert len(one.edges) == 1


@pytest.mark.parametrize(
    ("wrong", "says"),
    [("counts[0] += 1", "in-edges of the seeds"), ("found[0].zero_()", "the graph does not have")],
)
def test_wrong_samples_are_found(pyg_lib, wrong, says):
    pytest.importorskip("torch", reason="pyg-lib's are torch's operators")
    pyg_lib(wrong=wrong)
    with pytest.raises(SageAttentionError, match=says):
        pyg_lib_samplers(PROBLEM, [[15, 10]])


@pytest.mark.parametrize("installed", [True, False])
def test_the_command(pyg_lib, capsys, monkeypatch, installed):
    pytest.importorskip("torch_geometric", reason="pyg-lib is its library")
    monkeypatch.setattr("sage_attention.bench.peers.why_not", lambda *_: "left out here")
    if installed:
        pyg_lib()
    else:
        monkeypatch.setitem(sys.modules, "pyg_lib", None)
    figures, left_out = bench(capsys)
    found = {(one["contender"], one["step"], one["threads"]) for one in figures}
    wanted = {("ours", step, threads) for step in ("15,10", "15,10,5") for threads in (1, 2)}
    if installed:
        wanted |= {(samplers.PYG_LIB, step, 1) for step in ("15,10", "15,10,5")}
    assert found == wanted
    assert all((one["times_ours"] == 1.0) == (one["contender"] == "ours") for one in figures)
    assert ({"what": "pyg-lib's sampler", "why": "pyg_lib is not installed"} in left_out) == (not installed)


def test_one_that_cannot_be_loaded_is_left_out(pyg_lib, capsys, monkeypatch):
    pytest.importorskip("torch_geometric", reason="pyg-lib is its library")
    monkeypatch.setattr("sage_attention.bench.peers.why_not", lambda *_: "left out here")
    pyg_lib("raise OSError('undefined symbol: of another torch')")
    figures, left_out = bench(capsys)
    assert {one["contender"] for one in figures} == {"ours"}
    why = "it fails here: OSError: undefined symbol: of another torch"
    assert {"what": "pyg-lib's sampler", "why": why} in left_out
