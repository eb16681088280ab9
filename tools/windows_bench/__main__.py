"""Windows on Linux to test on: CPython, NumPy and torch for Windows on Wine, from Debian's and PyPI's packages.

    python tools/windows_bench setup
    python tools/windows_bench test dist/….whl -- tests/test_graph.py
    python tools/windows_bench python -- -c "import torch"

It needs pip and ziglang, and a CPython of the version it makes (for the standard library's Python files). Nothing of
Microsoft's compiler is used. The kernel, the loader and the memory manager are Wine's, all else is the real thing.
On Windows itself "test" tests what is installed, without Wine.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msvc
import wine
from bench import ROOT, Bench
from suite import Build, run_suite
from wine import BenchError
from zig import compile_c

if TYPE_CHECKING:
    from collections.abc import Sequence


def main() -> int:
    """Runs a command."""
    parser = argparse.ArgumentParser(
        prog="windows_bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    folder = Path(os.environ.get("WINDOWS_BENCH", ROOT / "build/windows"))
    parser.add_argument("--folder", type=Path, default=folder, help="the bench: $WINDOWS_BENCH, build/windows")
    parser.add_argument("--python", default="3.11", metavar="3.X", help="the version of Python (default: %(default)s)")
    parser.add_argument("--torch", default="torch==2.13.0", help="the version of torch (default: %(default)s)")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("wine", help="install Wine where that can be done; say on standard output why it cannot")
    commands.add_parser("setup", help="make the bench, or what is missing of it")
    test = commands.add_parser("test", help="run the test suite, also with a library built by MSVC if one can be")
    test.add_argument("wheel", type=Path, help="is installed first")
    test.add_argument("arguments", nargs="*", help="pytest's")
    python = commands.add_parser("python", help="run Windows' Python in the current folder")
    python.add_argument("arguments", nargs="*")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that Wine is ended
    bench = Bench(options.folder, options.python, options.torch)
    try:
        if options.command == "wine":
            return _wine()
        if sys.platform == "win32":
            return _on_windows(bench.folder, options.arguments)
        with bench.locked():
            return _on_linux(bench, options)
    except BenchError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _wine() -> int:
    try:
        wine.install()
    except wine.NoWineError as error:
        print(error)
    return 0


def _builds(folder: Path) -> dict[str, Build]:
    sources = sorted((ROOT / "deploy/c").glob("*.c"))
    program = folder / "zig" / "apply_model.exe"
    program.parent.mkdir(parents=True, exist_ok=True)
    compile_c(sources, program, f"-I{ROOT / 'core/include'}", "-std=c11")
    builds = {"as in the wheel (zig)": Build(program=program)}
    compiler = msvc.find()
    if compiler:
        builds["built by MSVC"] = compiler.build(ROOT, folder / "msvc")
    else:
        print("no MSVC here: what zig builds is tested alone", flush=True)
    return builds


def _on_windows(folder: Path, arguments: list[str]) -> int:
    def run(command: Sequence[str], environment: dict[str, str]) -> int:
        return subprocess.call([sys.executable, *command], cwd=ROOT, env=os.environ | environment)

    return run_suite(run, _builds(folder), arguments)


def _on_linux(bench: Bench, options: argparse.Namespace) -> int:
    builds = _builds(bench.folder) if options.command == "test" else {}
    bench.setup()
    if options.command == "setup":
        return 0
    if options.command == "test":
        bench.install(options.wheel)
    with bench.running() as windows:

        def run(command: Sequence[str], environment: dict[str, str] | None = None) -> int:
            folder = ROOT if options.command == "test" else Path.cwd()
            return windows.run([bench.program, *command], folder, environment)

        return run_suite(run, builds, options.arguments) if options.command == "test" else run(options.arguments)


if __name__ == "__main__":
    sys.exit(main())
