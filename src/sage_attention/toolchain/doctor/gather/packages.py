"""The packages of the Python asked about, read from the names in its folders; torch and conda among them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sage_attention.toolchain.doctor.model import Conda, Problem, PythonInstall, Torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sage_attention.toolchain.system import System

__all__ = ["gather", "parse_conda_names", "parse_distributions", "parse_torch_version"]

# conda packages that decide over a build.
_CONDA = (
    "python", "libstdcxx-ng", "libstdcxx", "libgcc-ng", "libgcc", "gcc_linux-64", "gxx_linux-64", "sysroot_linux-64",
    "cuda-nvcc", "cuda-toolkit", "cudatoolkit", "pytorch", "numpy", "vs2019_win-64", "vs2022_win-64", "vs2017_win-64",
    "vc14_runtime", "m2w64-toolchain", "cxx-compiler", "c-compiler", "libcxx", "ninja", "cmake",
)  # fmt: skip


def gather(
    system: System, found: tuple[tuple[PythonInstall, ...], dict[str, Any], tuple[Problem, ...]]
) -> tuple[tuple[tuple[PythonInstall, ...], Torch | None, Conda | None], tuple[Problem, ...]]:
    """The Pythons again, with the packages of the one asked about, its torch, and conda's environment."""
    pythons, about, problems = found
    folders = list(dict.fromkeys(str(about[name]) for name in ("platlib", "purelib") if about.get(name)))
    packages: dict[str, str] = {}
    for folder in folders:
        for name, version in parse_distributions(system.names(folder)).items():
            packages.setdefault(name, version)
    torch = None
    for folder in folders:
        text = system.text(system.join(folder, "torch", "version.py"), 1 << 16)
        if text:
            torch = parse_torch_version(text, system.join(folder, "torch"))
            break
    pythons = tuple(replace(python, packages=packages) if python.running else python for python in pythons)
    return (pythons, torch, _conda(system, about)), problems


def parse_distributions(names: Sequence[str]) -> dict[str, str]:
    """Names and versions of distributions, from the names in ``site-packages``.

    Example:
        >>> parse_distributions(["numpy-2.1.0.dist-info", "PyYAML-6.0-py3.8.egg-info", "torch"])
        {'numpy': '2.1.0', 'pyyaml': '6.0'}
    """
    found = {}
    for name in names:
        match = re.match(r"([A-Za-z0-9._]+)-([^-]+)(?:-[^-]+)*\.(?:dist-info|egg-info)$", name[:300])
        if match:
            found[re.sub(r"[-_.]+", "-", match[1]).lower()] = match[2]
    return found


def parse_torch_version(text: str, path: str) -> Torch | None:
    r"""``torch/version.py``, read and not run.

    Example:
        >>> parse_torch_version("__version__ = '2.6.0+cu124'\ncuda: Optional[str] = '12.4'\n", "t").cuda
        '12.4'
    """
    said: dict[str, str | None] = {}
    for name, value in re.findall(r"^(\w+)\s*(?::[^=\n]+)?=\s*(None|'[^'\n]*'|\"[^\"\n]*\")", text, re.MULTILINE):
        said.setdefault(name, None if value == "None" else value[1:-1])
        if value != "None":
            said[name] = value[1:-1]
    version = said.get("__version__")
    return Torch(version, said.get("cuda"), said.get("hip"), path) if version else None


def _conda(system: System, about: dict[str, Any]) -> Conda | None:
    for prefix in (system.environ.get("CONDA_PREFIX", ""), str(about.get("base_prefix", ""))):
        if prefix and system.is_folder(system.join(prefix, "conda-meta")):
            names = parse_conda_names(system.names(system.join(prefix, "conda-meta")))
            return Conda(prefix, system.base(prefix), {name: names[name] for name in _CONDA if name in names})
    return None


def parse_conda_names(names: Sequence[str]) -> dict[str, str]:
    """Names and versions of conda packages, from the names in ``conda-meta``.

    Example:
        >>> parse_conda_names(["libstdcxx-ng-13.2.0-h7e041cc_5.json", "history"])
        {'libstdcxx-ng': '13.2.0'}
    """
    found = {}
    for name in names:
        parts = name.removesuffix(".json").rsplit("-", 2)
        if name.endswith(".json") and len(parts) == 3:
            found[parts[0]] = parts[1]
    return found
