"""CUDA toolkits, and the host compilers that each ``nvcc`` accepts: from its own ``host_config.h``, else a table."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from sage_attention.toolchain.data_files import table
from sage_attention.toolchain.doctor.model import CudaToolkit, HostBounds, Problem
from sage_attention.toolchain.doctor.versions import numbers

if TYPE_CHECKING:
    from sage_attention.toolchain.system import System

__all__ = ["bounds_from_table", "gather", "parse_host_config", "parse_nvcc_version"]

_MSVC = re.compile(r"#\s*(?:if|elif)\s+_MSC_VER\s*<\s*(\d{4})\s*\|\|\s*_MSC_VER\s*>=\s*(\d{4})")
_GCC = re.compile(r"#\s*(?:if|elif)\s+__GNUC__\s*>\s*(\d{1,3})\b")
_CLANG = re.compile(r"#\s*(?:if|elif)\s+\(\s*__clang_major__\s*>=\s*(\d{1,3})\s*\)")
_RELEASE = re.compile(r"release\s+(\d+\.\d+)(?:,\s*V(\d+(?:\.\d+)+))?")


def gather(system: System) -> tuple[tuple[CudaToolkit, ...], tuple[Problem, ...]]:
    """The toolkits, in the order in which builds would find them."""
    named = [(system.environ.get(name, "").strip().strip('"'), name) for name in ("CUDA_HOME", "CUDA_PATH")]
    roots = [(root, name) for root, name in named if root]
    # Looked at where PATH says and where the program really lies: distributions link it into /usr/bin.
    for found in system.which("nvcc"):
        nvcc = _behind(system, found)
        folder = system.parent(nvcc)
        real = system.parent(system.resolve(nvcc))
        best = folder if system.base(folder).lower() == "bin" and _toolkit_like(system, system.parent(folder)) else real
        roots.append((system.parent(best), "path"))
    roots += [(root, "folder") for root in _usual(system)]
    conda = system.environ.get("CONDA_PREFIX")
    if conda:
        root = system.join(conda, "Library") if system.windows else conda
        if system.is_file(_nvcc(system, root)):
            roots.append((root, "conda"))
    order: list[str] = []
    sources: dict[str, list[str]] = {}
    for root, source in roots:
        root = root.rstrip("\\/") or root
        real = system.resolve(root)
        known = next((other for other in order if system.same(system.resolve(other), real)), None)
        if known is None:
            order.append(root)
        namers = sources.setdefault(known or root, [])
        namers += [source] * (source not in namers)
    problems: list[Problem] = []
    return tuple(_toolkit(system, root, tuple(sources[root]), problems) for root in order), tuple(problems)


def _nvcc(system: System, root: str) -> str:
    return system.join(root, "bin", "nvcc.exe" if system.windows else "nvcc")


def _behind(system: System, nvcc: str) -> str:
    """What a shell script that is called ``nvcc`` runs, as in Debian's ``/usr/bin``."""
    if system.windows or not (system.read(nvcc, 2) or b"").startswith(b"#!"):
        return nvcc
    match = re.search(r"exec\s+[\"']?(/[^\s\"']+/nvcc)\b", system.text(nvcc, 1 << 12) or "")
    return match[1] if match else nvcc


def _toolkit_like(system: System, root: str) -> bool:
    return any(system.is_file(system.join(root, *parts)) for parts in (("include", "cuda.h"), ("version.json",)))


def _usual(system: System) -> list[str]:
    if system.windows:
        base = system.join(
            system.environ.get("PROGRAMW6432") or system.environ.get("PROGRAMFILES", "C:\\Program Files"),
            "NVIDIA GPU Computing Toolkit",
            "CUDA",
        )
        names = sorted((name for name in system.names(base) if re.fullmatch(r"v\d+\.\d+", name)), key=numbers)
        return [system.join(base, name) for name in reversed(names)]
    names = sorted((name for name in system.names("/usr/local") if re.fullmatch(r"cuda-\d+(\.\d+)?", name)), key=_tail)
    found = ["/usr/local/cuda"] if system.is_folder("/usr/local/cuda") else []
    return found + ["/usr/local/" + name for name in reversed(names)]


def _tail(name: str) -> tuple[int, ...]:
    return numbers(name.partition("-")[2])


def _toolkit(system: System, root: str, sources: tuple[str, ...], problems: list[Problem]) -> CudaToolkit:
    nvcc: str | None = _nvcc(system, root)
    if nvcc is not None and not system.is_file(nvcc):
        nvcc = None
    version = _version(system, root)
    if not version and nvcc:
        answer = system.run([nvcc, "--version"])
        if answer.problem:
            problems.append(Problem("nvcc", answer.problem, nvcc))
        version = parse_nvcc_version(answer.text)
        if not version and not answer.problem:
            problems.append(Problem("nvcc", "unreadable", f"{nvcc}: {answer.said}"))
    headers = any(system.is_file(system.join(root, *parts, "cuda_runtime.h")) for parts in _INCLUDES)
    libraries = (("lib", "x64"), ("lib", "arm64"), ("lib",))  # the last is conda's
    runtime = headers and (
        not system.windows or any(system.is_file(system.join(root, *parts, "cudart.lib")) for parts in libraries)
    )
    text = next(
        filter(None, (system.text(system.join(root, *parts), 1 << 20) for parts in _HOST_CONFIGS)), ""
    )  # fmt: skip
    bounds = parse_host_config(text) or bounds_from_table(version)
    lacks = tuple(
        name for name in _OF_TORCH if not any(system.is_file(system.join(root, *parts, name)) for parts in _INCLUDES)
    )
    return CudaToolkit(root, version, sources, nvcc, runtime, bounds, lacks)


_INCLUDES = (("include",), ("targets", "x86_64-linux", "include"), ("targets", "sbsa-linux", "include"))
# What ATen/cuda/CUDAContext.h includes.
_OF_TORCH = ("cublas_v2.h", "cusparse.h", "cusolverDn.h")
_HOST_CONFIGS = tuple((*parts, "crt", "host_config.h") for parts in _INCLUDES)


def _version(system: System, root: str) -> str:
    """Without starting ``nvcc``: from ``version.json``, ``version.txt``, ``cuda.h`` or the folder's name."""
    text = system.text(system.join(root, "version.json"), 1 << 20)
    if text:
        try:
            found = json.loads(text)
            for name in ("cuda_nvcc", "cuda"):
                entry = found.get(name) if isinstance(found, dict) else None
                version = entry.get("version") if isinstance(entry, dict) else None
                if isinstance(version, str) and numbers(version):
                    return version
        except (ValueError, RecursionError):
            pass
    match = re.search(
        r"CUDA Version (\d+\.\d+(?:\.\d+)*)", system.text(system.join(root, "version.txt"), 1 << 12) or ""
    )
    if match:
        return match[1]
    match = re.search(
        r"#define\s+CUDA_VERSION\s+(\d{4,6})\b", system.text(system.join(root, "include", "cuda.h"), 1 << 20) or ""
    )
    if match:
        return f"{int(match[1]) // 1000}.{int(match[1]) % 1000 // 10}"
    match = re.fullmatch(r"(?:v|cuda-)(\d+\.\d+)", system.base(root), re.IGNORECASE)
    return match[1] if match else ""


def parse_nvcc_version(text: str) -> str:
    """The version in the output of ``nvcc --version``; empty if it is none.

    Example:
        >>> parse_nvcc_version("Cuda compilation tools, release 12.4, V12.4.131")
        '12.4.131'
    """
    match = _RELEASE.search(text)
    return (match[2] or match[1]) if match else ""


def parse_host_config(text: str) -> HostBounds | None:
    """The guards in an ``nvcc``'s ``host_config.h``.

    Args:
        text: The header.

    Returns:
        The bounds; None if the text holds no such guard.

    Example:
        >>> parse_host_config("#if _MSC_VER < 1910 || _MSC_VER >= 1940").msvc
        (1910, 1940)
    """
    msvc, gcc, clang = _MSVC.search(text), _GCC.search(text), _CLANG.search(text)
    if not (msvc or gcc or clang):
        return None
    return HostBounds(
        (int(msvc[1]), int(msvc[2])) if msvc else None,
        int(gcc[1]) if gcc else None,
        int(clang[1]) if clang else None,
        "host_config.h",
    )


def bounds_from_table(version: str) -> HostBounds | None:
    """What is known of a release of CUDA.

    Example:
        >>> bounds_from_table("12.3.107").msvc
        (1910, 1940)
    """
    release = numbers(version)[:2]
    for row in table("doctor/cuda_host_compilers")["rows"]:
        if numbers(row["cuda"]) == release:
            return HostBounds((row["msvc"][0], row["msvc"][1]), row["gcc"], row["clang"], "table")
    return None
