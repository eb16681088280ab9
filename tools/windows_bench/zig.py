"""Small Windows programs, compiled from C by the zig on PyPI."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from wine import BenchError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def compile_c(sources: Sequence[Path], program: Path, *options: str) -> None:
    """Compiles a program or a DLL.

    Args:
        sources: C files.
        program: What is made of them.
        *options: clang's.

    Raises:
        BenchError: They do not compile, or there is no zig.
    """
    command = [sys.executable, "-m", "ziglang", "cc", "-target", "x86_64-windows-gnu", "-Os", "-s", *options]
    done = subprocess.run([*command, "-o", program, *sources], capture_output=True, text=True)
    if done.returncode:
        hint = "; pip install ziglang" if "No module named ziglang" in done.stderr else ""
        raise BenchError(f"{program.name}: zig cannot compile {sources[0].name}{hint}\n{done.stderr}")
