"""The examples in the docstrings of the readers run as they stand."""

from __future__ import annotations

import doctest
import importlib

import pytest

MODULES = [
    "tables",
    "tables_text",
    "tables_parquet",
    "tables_numpy",
    "ids",
    "edges",
    "features",
    "features_json",
    "labels",
    "split",
    "node_dataset",
    "dataset",
    "dataset_npz",
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    module = importlib.import_module(f"sage_attention.recipes.{name}")
    failed, _ = doctest.testmod(module)
    assert failed == 0


def test_there_are_examples():
    modules = [importlib.import_module(f"sage_attention.recipes.{name}") for name in MODULES]
    finder = doctest.DocTestFinder()
    assert sum(bool(test.examples) for module in modules for test in finder.find(module)) >= 12
