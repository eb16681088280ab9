"""Small Windows programs, compiled from C by the zig on PyPI."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from wine import BenchError

if TYPE_CHECKING:
    from collections.abc import Sequence

CACHE = Path(__file__).absolute().parents[2] / "build/zig"  # as in cross_wheels.py


def compile_c(sources: Sequence[Path], program: Path, *options: str) -> None:
    """Compiles a program or a DLL.

    Args:
        sources: C files.
        program: What is made of them.
        *options: clang's.

    Raises:
        BenchError: They do not compile, or there is no zig.
    """
    # Processor, optimisation and cache are the wheel's: zig compiles Windows' C library once for both. It takes its own
    # files for others where they lie in the folder it works in, and so must not work in the repository's.
    target = ("-target", "x86_64-windows-gnu", "-mcpu=x86_64", "-O3", "-s")
    command = [sys.executable, "-m", "ziglang", "cc", *target, *options, "-o", program.absolute()]
    done = subprocess.run(
        [*command, *(source.absolute() for source in sources)], cwd=program.parent,
        env={**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(CACHE)}, capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        hint = "; pip install ziglang" if "No module named ziglang" in done.stderr else ""
        raise BenchError(f"{program.name}: zig cannot compile {sources[0].name}{hint}\n{done.stderr}")
