"""A Windows on Linux to test on: CPython, NumPy and torch for Windows on Wine, from Debian's and PyPI's packages.

    python tools/windows_bench setup
    python tools/windows_bench install dist/….whl
    python tools/windows_bench python -- -m pytest tests/test_graph.py

It needs pip and ziglang, and a CPython of the version it makes (for the standard library's Python files). Nothing of
Microsoft's compiler is used. The kernel, the loader and the memory manager are Wine's, all else is the real thing.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

from bench import ROOT, Bench
from wine import BenchError, NoWineError

NO_WINE = 3


def main() -> int:
    """Runs a command; 3 if there is no Wine and none can be installed."""
    parser = argparse.ArgumentParser(
        prog="windows_bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = os.environ.get("WINDOWS_BENCH", ROOT / "build/windows")
    parser.add_argument("--folder", type=Path, default=Path(default), help="the bench; else $WINDOWS_BENCH, build/windows")
    parser.add_argument("--python", default="3.11", metavar="3.X", help="the version of Python (default: %(default)s)")
    parser.add_argument("--torch", default="torch==2.13.0", help="the version of torch (default: %(default)s)")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("setup", help="make the bench, or what is missing of it")
    commands.add_parser("install", help="install the product").add_argument("wheel", type=Path)
    commands.add_parser("python", help="run Windows' Python").add_argument("arguments", nargs="*")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that Wine is ended
    bench = Bench(options.folder, options.python, options.torch)
    try:
        if options.command == "setup":
            bench.setup()
        elif options.command == "install":
            bench.install(options.wheel)
        else:
            with bench.running() as windows:
                return windows.run([bench.program, *options.arguments], Path.cwd())
    except BenchError as error:
        print(error, file=sys.stderr)
        return NO_WINE if isinstance(error, NoWineError) else 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
