"""What an import loads, and who imports whom."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__import__("sage_attention").__file__).parent
HEAVY = ("_ctypes", "ctypes", "numpy", "psutil", "pyarrow", "rich", "scipy", "torch", "torch_geometric")

# Package -> the parts of sage_attention that may import it; for all others it does not exist.
MAY_BE_IMPORTED_BY = {
    "bench": {"bench", "cli"},
    "pyg": {"pyg", "recipes"},
    "recipes": {"bench", "cli", "recipes"},
    "toolchain": {"cli", "toolchain"},
    "torch": {"bench", "pyg", "recipes", "torch"},
}


def loaded_by(statement):
    """How many threads run after a statement in a fresh interpreter, and which top-level modules are new."""
    program = f"""
import sys, threading
before = set(sys.modules)
{statement}
print(threading.active_count(), *sorted({{name.partition(".")[0] for name in set(sys.modules) - before}}))
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    threads, *modules = done.stdout.splitlines()[-1].split()
    return int(threads), set(modules)


@pytest.mark.parametrize(
    "statement",
    [
        "import sage_attention",
        "import sage_attention as s; s.__version__, s.ArgumentError, dir(s)",
        "import sage_attention.cli",
    ],
)
def test_import_loads_nothing_heavy(statement):
    threads, modules = loaded_by(statement)
    assert "sage_attention" in modules
    assert modules.isdisjoint(HEAVY)
    assert threads == 1


def test_import_does_not_load_the_library():
    _, modules = loaded_by("import sage_attention._native as n; assert n._library is None")
    assert "torch" not in modules
    assert "numpy" not in modules


USES = {
    "Graph": "from sage_attention import Graph; Graph.from_edge_index([[0, 1], [1, 2]])",
    "sampling": """
from sage_attention import Graph, sample_neighbours
sample_neighbours(Graph.from_edge_index([[0, 1], [1, 2]]), [2], [5, 5]).edge_index
""",
    "attention": """
import numpy as np
from sage_attention import Graph
from sage_attention.attention import gat_attention
gat_attention(Graph.from_edge_index([[0], [1]]), np.ones((2, 1, 3)), np.zeros((2, 1)))
""",
}


@pytest.mark.parametrize("use", USES)
def test_numpy_is_enough(use):
    absent = sorted(set(HEAVY) - {"_ctypes", "ctypes", "numpy"})
    block = f"sys.modules.update(dict.fromkeys({absent}))\n"  # None: importing it fails
    _, modules = loaded_by(block + USES[use])
    assert "numpy" in modules


@pytest.mark.parametrize(
    ("missing", "layer", "extra"),
    [("torch", "torch", "train"), ("torch", "pyg", "pyg"), ("torch_geometric", "pyg", "pyg")],
)
def test_what_is_missing_is_named_with_the_command_that_brings_it(missing, layer, extra):
    pytest.importorskip("torch", minversion="2")
    program = f"import sys; sys.modules[{missing!r}] = None; import sage_attention.{layer}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    says = done.stderr.splitlines()[-1]
    assert f"sage_attention.{layer} needs {missing}, which is not installed" in says
    assert says.endswith(f'run: pip install "sage-graph-attention[{extra}]"')


def test_unknown_name():
    import sage_attention

    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        sage_attention.nothing  # noqa: B018


def test_all_names_are_there():
    import sage_attention

    for name in sage_attention.__all__:
        assert getattr(sage_attention, name) is not None
        assert name in dir(sage_attention)


def imported_parts(path):
    """The parts of sage_attention that a file imports at run time, e.g. {"graph", "torch"}."""
    package = ("sage_attention", *path.relative_to(PACKAGE).parts[:-1])
    parts = set()
    hidden = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            hidden.update(id(child) for child in ast.walk(node))
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) + 1 - node.level] if node.level else ()
            module = ".".join((*start, node.module) if node.module else start)
            names = [f"{module}.{alias.name}" for alias in node.names]
        if id(node) not in hidden:
            parts.update(name.split(".")[1] for name in names if name.startswith("sage_attention."))
    return parts


@pytest.mark.parametrize("imported", MAY_BE_IMPORTED_BY)
def test_who_imports_whom(imported):
    importers = {
        path.relative_to(PACKAGE).with_suffix("").parts[0]
        for path in PACKAGE.rglob("*.py")
        if imported in imported_parts(path)
    }
    assert importers <= MAY_BE_IMPORTED_BY[imported]


def test_toolchain_stands_alone():
    for path in (PACKAGE / "toolchain").rglob("*.py"):
        assert imported_parts(path) <= {"__version__", "_console", "errors", "toolchain"}, path
