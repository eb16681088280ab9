"""What the shell has set up: the developer prompt, and every compiler and linker that PATH offers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sage_attention.toolchain.doctor.model import Environment, Problem

if TYPE_CHECKING:
    from sage_attention.toolchain.system import System

__all__ = ["gather"]

_VARIABLES = (
    "VCINSTALLDIR", "VSINSTALLDIR", "VCToolsVersion", "VCToolsInstallDir", "VSCMD_VER", "VSCMD_ARG_TGT_ARCH",
    "VSCMD_ARG_HOST_ARCH", "WindowsSdkDir", "WindowsSDKVersion", "UCRTVersion", "UniversalCRTSdkDir", "INCLUDE",
    "LIB", "LIBPATH", "Platform", "DISTUTILS_USE_SDK", "MSSdk", "CC", "CXX", "CFLAGS", "CXXFLAGS", "CPPFLAGS",
    "LDFLAGS", "CL", "_CL_", "LINK", "_LINK_", "CUDA_HOME", "CUDA_PATH", "CUDACXX", "CUDAHOSTCXX",
    "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "MAX_JOBS", "CMAKE_BUILD_PARALLEL_LEVEL", "TORCH_CUDA_ARCH_LIST",
    "CMAKE_GENERATOR", "CMAKE_ARGS", "CMAKE_PREFIX_PATH", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "VIRTUAL_ENV",
    "PYTHONPATH", "PYTHONHOME", "PYTHONUTF8", "PYTHONIOENCODING", "MSYSTEM", "LD_LIBRARY_PATH",
    "PIP_NO_BUILD_ISOLATION", "PIP_INDEX_URL", "PSModulePath", "COMSPEC",
)  # fmt: skip


def gather(system: System) -> tuple[Environment, tuple[Problem, ...]]:
    """The environment of the process."""
    environ = system.environ
    variables = {}
    for name in _VARIABLES:
        value = environ.get(name.upper() if system.windows else name)
        if value:
            variables[name] = value
    if not system.windows:
        return Environment(variables, nvcc=system.which("nvcc")), ()
    return Environment(
        variables,
        compilers=system.which("cl"),
        linkers=system.which("link"),
        missing_includes=_missing(system, variables.get("INCLUDE", "")),
        missing_libraries=_missing(system, variables.get("LIB", "")),
        nvcc=system.which("nvcc"),
        lacks=_lacks(system, variables),
    ), ()


# What every build opens: of the compiler, of the C runtime, of the Windows API.
_HEADERS = ("vcruntime.h", "corecrt.h", "Windows.h")
_LIBRARIES = ("vcruntime.lib", "ucrt.lib", "kernel32.Lib")


def _folders(listed: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(folder.strip().strip('"') for folder in listed.split(";") if folder.strip()))


def _missing(system: System, listed: str) -> tuple[str, ...]:
    return tuple(folder for folder in _folders(listed) if not system.is_folder(folder))


def _lacks(system: System, variables: dict[str, str]) -> tuple[str, ...]:
    lacks = []
    for variable, names in (("INCLUDE", _HEADERS), ("LIB", _LIBRARIES)):
        folders = _folders(variables.get(variable, ""))
        lacks += [name for name in names if not any(system.is_file(system.join(f, name)) for f in folders)]
    return tuple(lacks)
