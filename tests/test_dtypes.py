"""Integers have a width wherever one is made: before NumPy 2 the default on Windows is 32 bits, elsewhere 64."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

from sage_attention import Graph, sample_neighbours

PACKAGE = Path(__import__("sage_attention").__file__).parent
SOURCES = sorted(path for path in PACKAGE.rglob("*.py"))
# What makes integers of NumPy's own choice where no dtype is given: function -> position of its dtype.
MAKERS = {"arange": 3, "identity": 1, "indices": 1, "tri": 3}
# These make floats by default, but are asked for integers now and then.
ASKED = {"zeros": 1, "ones": 1, "empty": 1, "full": 2, "array": 1, "asarray": 1, "fromiter": 1, "astype": 0}
PLATFORM_TYPES = {"int_", "uint", "intc", "long", "ulong", "longlong", "uintc"}


def is_int(node):
    if isinstance(node, ast.Name):
        return node.id == "int"
    if isinstance(node, ast.Constant):
        return node.value in ("int", "i", "l", "L", "p")
    return isinstance(node, ast.Attribute) and node.attr in PLATFORM_TYPES and getattr(node.value, "id", "") == "np"


def findings(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in PLATFORM_TYPES and getattr(node.value, "id", "") == "np":
            yield node.lineno, f"np.{node.attr} has another width on Windows"
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        name = node.func.attr
        of_numpy = getattr(node.func.value, "id", "") == "np"
        given = [keyword.value for keyword in node.keywords if keyword.arg == "dtype"]
        place = {**MAKERS, **ASKED}.get(name)
        if place is not None and len(node.args) > place:
            given.append(node.args[place])
        if of_numpy and name in MAKERS and not given:
            yield node.lineno, f"np.{name} without dtype"
        if (of_numpy or name == "astype") and any(map(is_int, given)):
            yield node.lineno, f"{name} to int"
        if name in ("randint", "random_integers") and "random" in ast.dump(node.func):
            yield node.lineno, f"{name} gives int32 on Windows"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_every_integer_array_says_its_width(path):
    found = list(findings(ast.parse(path.read_text(encoding="utf-8"))))
    assert not found, "\n".join(f"{path}:{line}: {what}" for line, what in found)


@pytest.mark.parametrize(
    "line",
    [
        "np.arange(3)",
        "np.arange(0, 3)",
        "x.astype(int)",
        "np.zeros(3, int)",
        "np.array([1], dtype='int')",
        "np.random.randint(3)",
        "np.int_(3)",
        "np.full(3, 1, np.int_)",
    ],
)
def test_the_audit_sees(line):
    assert list(findings(ast.parse(line)))


@pytest.mark.parametrize(
    "line", ["np.arange(3, dtype=np.int64)", "np.zeros(3)", "x.astype(np.int32)", "np.full(3, -1, np.int64)"]
)
def test_the_audit_spares(line):
    assert not list(findings(ast.parse(line)))


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.intc, np.int_, np.intp, np.uint32, np.int16])
def test_integers_of_any_width_give_the_same(dtype):
    """What people pass on Windows with an older NumPy is int32, under one of its two names."""
    rng = np.random.default_rng(0)
    edges = rng.integers(0, 50, (2, 400))
    expected = sample_neighbours(Graph.from_edge_index(edges), np.array([3, 4], np.int64), [5, 5], seed=1)
    graph = Graph.from_edge_index(edges.astype(dtype))
    assert graph.indptr.dtype == np.int64
    assert graph.indices.dtype == np.int32
    sample = sample_neighbours(graph, np.array([3, 4], dtype), np.array([5, 5], dtype), seed=1)
    for name in ("nodes", "indptr", "sources", "edge_ids"):
        mine, theirs = getattr(sample, name), getattr(expected, name)
        assert mine.dtype == theirs.dtype == np.int64
        np.testing.assert_array_equal(mine, theirs)
    rebuilt = Graph(graph.indptr.astype(dtype), graph.indices.astype(dtype), edge_ids=np.arange(400).astype(dtype))
    np.testing.assert_array_equal(rebuilt.indices, graph.indices)
