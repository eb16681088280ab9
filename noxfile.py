"""Everything that checks, builds and measures: ``nox`` for the usual, ``nox -l`` for the list.

Environments are kept and reused. ``nox --no-venv`` runs a session in the environment nox was started from,
which must then hold what ``pip install ".[dev]"`` brings.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import nox
from nox.virtualenv import PassthroughEnv

nox.needs_version = ">=2024.4.15"
nox.options.sessions = ["lint", "core", "tests"]
nox.options.reuse_venv = "yes"
nox.options.error_on_external_run = True

TORCH = "torch==2.13.0"
# What goes into wheels that are published: pinned, so that anybody can build the same bytes.
CROSS = ("build", "cmake", "ninja", "scikit-build-core==1.1.2", "wheel", "ziglang==0.17.1", "zopfli==0.4.3")
GATE = ("capstone>=5", "packaging>=21.3", "pefile>=2023.2.7", "pyelftools>=0.30")
AARCH64 = "manylinux_2_17_aarch64"
# What NumPy is enough for.
AARCH64_TESTS = (
    *(f"tests/test_{name}.py" for name in ("aggregate", "graph", "inference", "same_everywhere", "sampling")),
    *(f"tests/test_attention{name}.py" for name in ("", "_errors", "_gradients", "_properties")),
)
CODE = ("src", "tests", "benchmarks", "deploy", "noxfile.py", "tools")

# Without torch, PyTorch Geometric and all else: only NumPy is there.
MINIMAL = """
import sys
import sage_attention
assert "numpy" not in sys.modules
import numpy as np
from sage_attention import Graph, sample_neighbours
from sage_attention.attention import dot_attention, gat_attention, gatv2_attention
graph = Graph.from_edge_index([[0, 1, 2], [2, 2, 0]])
assert sample_neighbours(graph, [2], [-1]).nodes.tolist() == [2, 0, 1]
values = np.arange(3, dtype=np.float32).reshape(3, 1, 1)
zeros = np.zeros((3, 1), np.float32)
assert gat_attention(graph, values, zeros, zeros).ravel().tolist() == [2, 0, 0.5]
assert dot_attention(graph, values, values * 0, values).ravel().tolist() == [2, 0, 0.5]
assert gatv2_attention(graph, values, values, zeros[:1]).ravel().tolist() == [2, 0, 0.5]
print("works with NumPy alone")
"""


def install(session: nox.Session, *packages: str) -> None:
    """Installs into the session's environment, unless the session has none of its own."""
    if not isinstance(session.virtualenv, PassthroughEnv):
        session.install(*packages)


def judge_wheels(session: nox.Session) -> None:
    """A look inside each wheel in dist/: by the gate's own rules, and by what users inspect theirs with."""
    built = sorted(map(str, Path("dist").glob("*.whl")))
    session.run("python", "tools/wheel_gate", *built)
    exports = ("--expect-exports", "core/include/sage_attention.h")
    session.run("python", "-m", "sage_attention", "inspect", "--strict", *exports, *built, env={"PYTHONPATH": "src"})


@nox.session
def tests(session: nox.Session) -> None:
    """The test suite against the installed package: nox -s tests -- tests/test_graph.py."""
    install(session, TORCH, ".[test]")
    session.run("pytest", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Style, format, types."""
    install(session, TORCH, ".[dev]")
    session.run("ruff", "check", *CODE)
    session.run("ruff", "format", "--check", *CODE)
    session.run("mypy")


@nox.session
@nox.parametrize("sanitizers", ["", "address,undefined", "thread"], ids=["plain", "address,undefined", "thread"])
def core(session: nox.Session, sanitizers: str) -> None:
    """The core's own tests (CTest), plain and under sanitizers."""
    install(session, "cmake>=3.20", "ninja")
    folder = f"build/core-{sanitizers.replace(',', '-') or 'plain'}"
    session.run(
        "cmake", "-S", ".", "-B", folder, "-G", "Ninja",
        "-DSAGE_ATTENTION_TESTS=ON",
        "-DCMAKE_COMPILE_WARNING_AS_ERROR=ON",
        f"-DSAGE_ATTENTION_SANITIZE={sanitizers}",
        # Sanitizers slow the compiler down most where it optimises most; that for threads is slow without.
        f"-DCMAKE_BUILD_TYPE={'RelWithDebInfo' if sanitizers else 'Release'}",
        f"-DCMAKE_CXX_FLAGS_RELWITHDEBINFO={'-O1' if sanitizers == 'thread' else '-O0'}",
    )  # fmt: skip
    session.run("cmake", "--build", folder)
    test = ["ctest", "--test-dir", folder, "--output-on-failure"]
    setarch = shutil.which("setarch")
    if sanitizers == "thread" and setarch:
        # Older thread sanitizers know fewer memory layouts than newer kernels use.
        test = [setarch, "--addr-no-randomize", *test]
    session.run(*test, env={"UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1"}, external=True)


@nox.session
def wheel(session: nox.Session) -> None:
    """Source distribution, the wheel made from it, and a look inside: dist/."""
    session.install("build", *GATE)
    shutil.rmtree("dist", ignore_errors=True)
    session.run("python", "-m", "build")
    judge_wheels(session)


@nox.session
def wheels(session: nox.Session) -> None:
    """The wheels of every platform, cross-built, and a look inside each: nox -s wheels -- win_amd64."""
    session.install(*CROSS, *GATE)
    shutil.rmtree("dist", ignore_errors=True)
    session.run("python", "tools/cross_wheels.py", *session.posargs)
    judge_wheels(session)


@nox.session
def aarch64(session: nox.Session) -> None:
    """The core's tests and the NumPy level's, on the wheel for 64-bit ARM, under qemu. On Debian."""
    session.install(*CROSS)
    bench = Path("build/aarch64").absolute()
    session.run(
        "python",
        "tools/aarch64_bench.py",
        str(bench),
        "numpy",
        "scipy",
        "networkx",
        "safetensors",
        "pytest>=8",
        "hypothesis",
    )
    session.run("python", "tools/cross_wheels.py", "--to", str(bench / "wheel"), AARCH64)
    (built,) = (bench / "wheel").glob("*.whl")
    session.run(
        "python", "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade", "--target", str(bench / "site"),
        "--platform", AARCH64, "--only-binary=:all:", str(built),
    )  # fmt: skip
    session.run("python", "tools/cross_wheels.py", "--core-tests", str(bench / "bin/run"), AARCH64)
    session.run(
        str(bench / "bin/python"), "-m", "pytest", "-p", "no:cacheprovider", "-o", "faulthandler_timeout=1200",
        *(session.posargs or AARCH64_TESTS), external=True,
    )  # fmt: skip


@nox.session
def windows(session: nox.Session) -> None:
    """The test suite on Windows Python, on Linux with Wine: nox -s windows -- tests/test_graph.py."""
    session.install(*CROSS)
    bench = ("python", "tools/windows_bench")
    if sys.platform != "win32":
        missing = session.run(*bench, "wine", silent=True)
        if missing:
            session.skip(missing.strip())
    folder = Path("build/windows-wheel")
    shutil.rmtree(folder, ignore_errors=True)
    session.run("python", "tools/cross_wheels.py", "--to", str(folder), "win_amd64")
    (built,) = map(str, folder.glob("*.whl"))
    if sys.platform == "win32":
        session.install(TORCH, f"{built}[test]")
    session.run(*bench, "--torch", TORCH, "test", built, "--", *session.posargs)


@nox.session
def minimal(session: nox.Session) -> None:
    """The package with NumPy and nothing else."""
    session.install("numpy")
    session.install("--no-deps", ".")
    session.cd(session.create_tmp())  # away from the source tree
    session.run("python", "-c", MINIMAL)
    session.run("python", "-X", "importtime", "-c", "import sage_attention")


@nox.session
def doctest(session: nox.Session) -> None:
    """The examples in docstrings and README alone."""
    install(session, TORCH, ".[test]")
    session.run("pytest", "tests/test_docstrings.py", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Do the benchmarks still run? Small graphs, no figures worth keeping."""
    install(session, TORCH, ".[test]")
    for name in session.posargs or ("attention", "minibatch"):
        session.run("python", f"benchmarks/{name}.py", "--quick", "--rounds", "1", "--no-compile")
