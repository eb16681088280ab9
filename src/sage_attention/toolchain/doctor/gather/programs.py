"""Build programs: ninja, CMake, git, and the GPU driver's own."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING

from sage_attention.toolchain.doctor.model import Problem, Program

if TYPE_CHECKING:
    from sage_attention.toolchain.system import System

__all__ = ["gather", "parse_gpus", "parse_version"]

# name -> how to ask for the version
_PROGRAMS = {
    "ninja": ["--version"],
    "cmake": ["--version"],
    "git": ["--version"],
    "rustc": ["--version"],
    "nvidia-smi": ["--query-gpu=driver_version,name,compute_cap", "--format=csv,noheader"],
}


def gather(system: System) -> tuple[dict[str, Program], tuple[Problem, ...]]:
    """The programs by name, asked side by side."""
    found: dict[str, Program] = {}
    problems: list[Problem] = []

    def ask(name: str, arguments: list[str]) -> None:
        path = next(iter(system.which(name)), None) or _beside_python(system, name)
        if path is None:
            found[name] = Program(name, None, problem="missing")
            return
        answer = system.run([path, *arguments])
        text = answer.text.strip() if answer.ok else ""
        version = parse_gpus(text) if name == "nvidia-smi" else parse_version(text)
        problem = answer.problem or ("" if answer.ok else "failed")
        if answer.problem:
            problems.append(Problem(name, problem, path))
        # Without a GPU nvidia-smi fails by saying so; a launcher without its program fails as well.
        elif not version and (name in ("ninja", "cmake") or (name == "nvidia-smi" and text)):
            problem = problem or "unreadable"
            problems.append(Problem(name, "unreadable", f"{path}: {answer.said}"))
        found[name] = Program(name, path, version, problem)

    threads = [threading.Thread(target=ask, args=item, daemon=True) for item in _PROGRAMS.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found, tuple(problems)


def _beside_python(system: System, name: str) -> str | None:
    """As pip installs it: in the scripts of a Python whose environment is not active."""
    prefix = system.python.get("prefix", "")
    file = f"{name}.exe" if system.windows else name
    path = system.join(prefix, "Scripts" if system.windows else "bin", file)
    return path if prefix and system.is_file(path) else None


def parse_gpus(text: str) -> str:
    r"""The driver and the GPUs in what ``nvidia-smi`` prints; empty if it is something else.

    Example:
        >>> parse_gpus("535.54.03, NVIDIA A100, 8.0\n535.54.03, NVIDIA A100, 8.0")
        '535.54.03, NVIDIA A100, 8.0; 535.54.03, NVIDIA A100, 8.0'
    """
    rows = (line.strip() for line in text.splitlines()[:8])
    return "; ".join(row for row in rows if row.isprintable() and re.fullmatch(r"\d[\d.]*,[^,]{1,200},[^,]{1,20}", row))


def parse_version(text: str) -> str:
    """The version in what a program prints when asked for it.

    Example:
        >>> parse_version("cmake version 3.29.3"), parse_version("1.11.1.git.kitware.jobserver-1")
        ('3.29.3', '1.11.1')
    """
    match = re.search(r"(?<!\d)\d{1,9}(?:\.\d{1,9}){1,5}", text[:4000])
    return match[0] if match else ""
