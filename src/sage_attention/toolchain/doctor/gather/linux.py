"""Compilers and C libraries where there is no Visual Studio: gcc, clang, glibc, libstdc++."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING

from sage_attention.toolchain.doctor.model import LinuxCompilers, Problem
from sage_attention.toolchain.doctor.versions import numbers

if TYPE_CHECKING:
    from sage_attention.toolchain.system import System

__all__ = ["gather", "newest_glibcxx", "parse_compiler_version"]

_NAMES = re.compile(r"(?:gcc|g\+\+|clang|clang\+\+|cc|c\+\+)(?:-\d{1,2})?")
_LIBRARY_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu",
    "/usr/lib64", "/lib64", "/usr/lib",
)  # fmt: skip
_MOST_COMPILERS = 24


def gather(system: System) -> tuple[LinuxCompilers, tuple[Problem, ...]]:
    """The compilers of PATH with their versions, and the C and C++ libraries."""
    paths: dict[str, str] = {}
    for folder in dict.fromkeys(system.path_folders()):
        for name in system.names(folder):
            if _NAMES.fullmatch(name) and name not in paths and len(paths) < _MOST_COMPILERS:
                paths[name] = system.join(folder, name)
    # conda's own are called after what they build for, and set as CC and CXX.
    for variable, name in (("CC", "$CC"), ("CXX", "$CXX")):
        program = system.environ.get(variable, "").split(" ")[0]
        if program:
            path = program if "/" in program else next(iter(system.which(program)), "")
            if path:
                paths[name] = path
    library: list[tuple[str, list[Problem]]] = []
    beside = threading.Thread(target=lambda: library.append(_glibc(system)), daemon=True)
    beside.start()
    versions, problems = _ask(system, paths)
    beside.join()
    glibc, more = library[0]
    return LinuxCompilers(versions, paths, glibc, _libstdcxx(system)), (*problems, *more)


def _ask(system: System, paths: dict[str, str]) -> tuple[dict[str, str], list[Problem]]:
    real = {name: system.resolve(path) for name, path in paths.items()}
    answers: dict[str, str] = {}
    problems: list[Problem] = []

    def ask(path: str) -> None:
        answer = system.run([path, "--version"])
        answers[path] = parse_compiler_version(answer.text)
        if answer.problem:
            problems.append(Problem("compiler", answer.problem, path))
        elif not answers[path]:
            problems.append(Problem("compiler", "unreadable", f"{path}: {answer.said}"))

    threads = [threading.Thread(target=ask, args=(path,), daemon=True) for path in dict.fromkeys(real.values())]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {name: answers[path] for name, path in real.items() if answers.get(path)}, problems


def parse_compiler_version(text: str) -> str:
    """``"gcc 13.2.0"`` or ``"clang 18.1.3"`` from the output of ``--version``; empty if it is neither.

    Example:
        >>> parse_compiler_version("gcc (Ubuntu 13.2.0-23ubuntu4) 13.2.0")
        'gcc 13.2.0'
    """
    line = text.strip().splitlines()[0][:500] if text.strip() else ""
    clang = re.search(r"clang version (\d+\.\d+\.\d+)", line)
    if clang:
        return f"clang {clang[1]}"
    found = re.findall(r"(?<![\w.])\d+\.\d+\.\d+(?![\w.])", re.sub(r"\([^)]*\)", "", line)) or re.findall(
        r"(?<![\w.])\d+\.\d+\.\d+", line
    )
    known = re.search(r"g?cc|g\+\+|Free Software|GCC|c\+\+", text[:2000])
    return f"gcc {found[0]}" if found and known else ""


def _glibc(system: System) -> tuple[str, list[Problem]]:
    program = next(iter(system.which("ldd")), None)
    if program is None or not system.platform.startswith("linux"):
        return "", []
    answer = system.run([program, "--version"])
    if answer.problem:
        return "", [Problem("ldd", answer.problem, program)]
    match = re.search(
        r"(?:GLIBC|GNU libc|glibc)[^\n]*?(\d+\.\d+)\s*$", answer.text[:4000], re.MULTILINE | re.IGNORECASE
    )
    if match is None and "musl" not in answer.errors + answer.text:
        return "", [Problem("ldd", "unreadable", f"{program}: {answer.said}")]
    return (match[1] if match else ""), []


def _libstdcxx(system: System) -> dict[str, str]:
    found: dict[str, str] = {}
    folders = list(_LIBRARY_FOLDERS)
    prefixes = [system.environ.get("CONDA_PREFIX", ""), str(system.python.get("base_prefix", ""))]
    folders += [system.join(prefix, "lib") for prefix in prefixes if prefix not in ("", "/usr")]
    seen: set[str] = set()
    for folder in folders:
        path = system.join(folder, "libstdc++.so.6")
        real = system.resolve(path)
        if real not in seen and system.is_file(path):
            seen.add(real)
            newest = newest_glibcxx(system.read(real, 8 << 20) or b"")
            if newest:
                found[path] = newest
    return found


def newest_glibcxx(library: bytes) -> str:
    r"""The newest ``GLIBCXX_`` version that a ``libstdc++.so.6`` names.

    Example:
        >>> newest_glibcxx(b"GLIBCXX_3.4.9\0GLIBCXX_3.4.30\0GLIBCXX_DEBUG\0")
        '3.4.30'
    """
    found = {match.decode() for match in re.findall(rb"GLIBCXX_(3\.4(?:\.\d{1,3})?)(?![\d.])", library)}
    return max(found, key=numbers) if found else ""
