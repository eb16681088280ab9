"""The examples in the docstrings, in the README and in the pages of the documentation run and print what they say."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import pytest

import sage_attention
from sage_attention import MissingDependencyError

ROOT = Path(__file__).parents[1]
OPTIONAL = {"networkx", "psutil", "pyarrow", "rich", "safetensors", "scipy", "torch", "torch_geometric"}
# By file: the library beside the modules is named like an extension module, and is none.
PACKAGE = Path(sage_attention.__file__).parent
MODULES = sorted(
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
    for path in PACKAGE.rglob("*.py")
    if path.stem != "__main__"
)
MODULES += sorted(f"reference.{path.stem}" for path in (ROOT / "tests" / "reference").glob("[!_]*.py"))


def load(name):
    """A module; the test is skipped where one of the optional packages it needs is missing."""
    try:
        return importlib.import_module(name)
    except MissingDependencyError as error:
        pytest.skip(str(error))
    except ModuleNotFoundError as error:
        if error.name.partition(".")[0] not in OPTIONAL:
            raise
        pytest.skip(str(error))


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name, tmp_path, monkeypatch):
    module = load(name)
    monkeypatch.chdir(tmp_path)  # examples may write files
    report = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    for test in doctest.DocTestFinder().find(module):
        runner.run(test, out=report.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(report)


@pytest.mark.parametrize("page", ["README.md", "docs/pyg.md", "docs/guided.md", "docs/quantized.md"])
def test_examples_of_pages(page):
    load("torch_geometric")
    names = {}
    for block in re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL):
        exec(compile(block, page, "exec"), names)
    if page == "README.md":
        assert names["out"].shape == (4, 2, 8)
