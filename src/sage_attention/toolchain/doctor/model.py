"""What the doctor knows of a machine, as frozen dataclasses."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .versions import numbers

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "Conda", "CudaToolkit", "Environment", "Facts", "HostBounds", "LinuxCompilers", "Machine", "Problem", "Program",
    "PythonInstall", "Toolset", "Torch", "VisualStudio", "WindowsSdk",
]  # fmt: skip


@dataclass(frozen=True)
class Problem:
    """A probe that found nothing out.

    Attributes:
        probe: Its name.
        reason: ``"timeout"``, ``"failed"``, ``"unreadable"`` or ``"crashed"``.
        detail: What is known of it.
    """

    probe: str
    reason: str
    detail: str = ""


@dataclass(frozen=True)
class PythonInstall:
    """A Python on this machine.

    Attributes:
        executable: Path of the interpreter.
        version: As ``"3.11.9"``; ``"3.11"`` or ``""`` where no more is known.
        architecture: ``"x64"``, ``"x86"``, ``"arm64"`` or ``""``.
        sources: Who knows of it: ``"running"``, ``"py"``, ``"registry"``, ``"path"``, ``"conda"``, ``"alias"``.
        kind: ``"python.org"``, ``"manager"``, ``"store"``, ``"store alias"``, ``"embedded"``, ``"conda"``, ``"venv"``,
            ``"uv"``, ``"msys2"``, ``"system"`` or ``"other"``.
        home: The base installation, where headers and libraries are.
        exists: Whether the interpreter is where it is said to be.
        header: Path of ``Python.h``, or None.
        import_library: Path of ``python3XX.lib``, or None; None elsewhere than on Windows.
        debug_library: Path of ``python3XX_d.lib``, or None.
        free_threaded: Whether it is a build without the global lock.
        debug: Whether it is a debug build.
        running: Whether it is the one asked about.
        packages: Installed distributions, lower-case name → version; only of the one asked about.
    """

    executable: str
    version: str
    architecture: str
    sources: tuple[str, ...]
    kind: str
    home: str
    exists: bool = True
    header: str | None = None
    import_library: str | None = None
    debug_library: str | None = None
    free_threaded: bool = False
    debug: bool = False
    running: bool = False
    packages: Mapping[str, str] = field(default_factory=dict)

    @property
    def minor(self) -> tuple[int, int]:
        """(3, 11) of 3.11.9; (0, 0) where unknown."""
        found = numbers(self.version)
        return (found[0], found[1]) if len(found) > 1 else (0, 0)


@dataclass(frozen=True)
class Toolset:
    r"""A version of the MSVC tools in an installation of Visual Studio.

    Attributes:
        version: As its folder is named, e.g. ``"14.44.35207"``.
        path: ``VC\Tools\MSVC\<version>``.
        compilers: The (host, target) pairs that have a ``cl.exe``.
        libraries: The targets that have ``vcruntime.lib`` or ``msvcrt.lib``.
        headers: Whether ``vcruntime.h`` is there.
        default: Whether it is what ``vcvarsall`` takes unless told otherwise.
    """

    version: str
    path: str
    compilers: tuple[tuple[str, str], ...]
    libraries: tuple[str, ...]
    headers: bool
    default: bool = False

    @property
    def msc_ver(self) -> int:
        """The ``_MSC_VER`` of its compiler: 1944 for 14.44."""
        found = numbers(self.version)
        return 1900 + found[1] if len(found) > 1 and found[0] == 14 and found[1] < 100 else 0

    @property
    def short(self) -> str:
        """As ``-vcvars_ver`` takes it: ``"14.44"``."""
        return ".".join(self.version.split(".")[:2])

    def builds(self, target: str) -> bool:
        """Whether all is there to compile and link for a target."""
        return self.headers and target in self.libraries and any(pair[1] == target for pair in self.compilers)


@dataclass(frozen=True)
class VisualStudio:
    """An installation of Visual Studio or its Build Tools.

    Attributes:
        name: As ``"Visual Studio Build Tools 2022"``.
        version: As ``"17.14.36109.1"``.
        path: Its folder.
        product: Id of the product, e.g. ``"Microsoft.VisualStudio.Product.BuildTools"``.
        sources: ``"vswhere"``, ``"state.json"``, ``"registry"`` or ``"folder"``.
        has_cpp: Whether the installer says that the C++ tools are in; None if it was not asked.
        complete: Whether the installer finished its work.
        reboot: Whether Windows must be restarted first.
        prerelease: Whether it is a preview.
        toolsets: The MSVC tools in it, newest first.
        vcvarsall: Path of ``vcvarsall.bat``, or None.
        cuda: The releases of CUDA that its MSBuild knows, e.g. ``"12.4"``.
    """

    name: str
    version: str
    path: str
    product: str
    sources: tuple[str, ...]
    has_cpp: bool | None
    complete: bool
    reboot: bool
    prerelease: bool
    toolsets: tuple[Toolset, ...]
    vcvarsall: str | None
    cuda: tuple[str, ...] = ()

    @property
    def major(self) -> int:
        """17 for Visual Studio 2022."""
        return (numbers(self.version) or (0,))[0]


@dataclass(frozen=True)
class WindowsSdk:
    r"""A version of the Windows SDK, with its halves: the universal C runtime and the Windows API.

    Attributes:
        version: As ``"10.0.22621.0"``.
        root: ``Windows Kits\10``.
        ucrt_headers: Whether ``corecrt.h`` is there.
        um_headers: Whether ``Windows.h`` is there.
        ucrt_libraries: The targets that have ``ucrt.lib``.
        um_libraries: The targets that have ``kernel32.lib``.
        resource_compiler: Whether ``rc.exe`` is there.
    """

    version: str
    root: str
    ucrt_headers: bool
    um_headers: bool
    ucrt_libraries: tuple[str, ...]
    um_libraries: tuple[str, ...]
    resource_compiler: bool

    def builds(self, target: str) -> bool:
        """Whether all is there to compile and link for a target."""
        return self.ucrt_headers and self.um_headers and target in self.ucrt_libraries and target in self.um_libraries


@dataclass(frozen=True)
class Environment:
    """What the shell has set up.

    Attributes:
        variables: Those that compilers and build tools read, name → value.
        compilers: Every ``cl.exe`` of PATH, first first.
        linkers: Every ``link.exe`` of PATH.
        missing_includes: Folders of INCLUDE that are not there.
        missing_libraries: Folders of LIB that are not there.
        nvcc: Every ``nvcc`` of PATH.
        lacks: What no folder of INCLUDE and LIB has of the files that every build opens, e.g. ``"kernel32.lib"``.
    """

    variables: Mapping[str, str]
    compilers: tuple[str, ...] = ()
    linkers: tuple[str, ...] = ()
    missing_includes: tuple[str, ...] = ()
    missing_libraries: tuple[str, ...] = ()
    nvcc: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()

    def get(self, name: str) -> str:
        """A variable, or nothing."""
        return self.variables.get(name, "")

    @property
    def developer_prompt(self) -> bool:
        """Whether ``vcvarsall`` or ``VsDevCmd`` ran in this shell."""
        return bool(self.get("VCINSTALLDIR") or self.get("VSCMD_ARG_TGT_ARCH") or self.get("VSCMD_VER"))

    @property
    def whole(self) -> bool:
        """Whether cl.exe is on PATH and finds the headers and libraries that every build needs."""
        return bool(self.compilers and self.get("INCLUDE") and self.get("LIB")) and not self.lacks

    @property
    def toolset(self) -> str:
        """Version of the MSVC tools that are active, as far as it is known."""
        if self.get("VCToolsVersion"):
            return self.get("VCToolsVersion").rstrip("\\")
        match = (
            re.search(r"[\\/]MSVC[\\/](14\.\d\d\.\d+)[\\/]", self.compilers[0], re.IGNORECASE)
            if self.compilers
            else None
        )
        return match[1] if match else ""


@dataclass(frozen=True)
class HostBounds:
    """Which host compilers an ``nvcc`` accepts.

    Attributes:
        msvc: Half-open interval of ``_MSC_VER``, or None.
        gcc: Newest major version, or None.
        clang: First major version that is refused, or None.
        source: ``"host_config.h"`` or ``"table"``.
    """

    msvc: tuple[int, int] | None
    gcc: int | None
    clang: int | None
    source: str


@dataclass(frozen=True)
class CudaToolkit:
    """A CUDA toolkit.

    Attributes:
        root: Its folder.
        version: As ``"12.4"`` or ``"12.4.131"``; ``""`` if unknown.
        sources: Who named it: ``"CUDA_HOME"``, ``"CUDA_PATH"``, ``"path"``, ``"folder"``, ``"conda"``.
        nvcc: Path of ``nvcc``, or None.
        runtime: Whether the headers and the library of the runtime are there.
        bounds: The host compilers it accepts, or None if unknown.
        lacks: Headers that those of torch include and that are not there.
    """

    root: str
    version: str
    sources: tuple[str, ...]
    nvcc: str | None
    runtime: bool
    bounds: HostBounds | None
    lacks: tuple[str, ...] = ()

    @property
    def release(self) -> tuple[int, int]:
        """(12, 4); (0, 0) if unknown."""
        found = numbers(self.version)
        return (found[0], found[1]) if len(found) > 1 else (0, 0)


@dataclass(frozen=True)
class Torch:
    """The PyTorch of the Python asked about.

    Attributes:
        version: As ``"2.6.0+cu124"``.
        cuda: The CUDA it was built with, ``"12.4"``; None for a build without.
        hip: The ROCm it was built with, or None.
        path: Its folder.
    """

    version: str
    cuda: str | None
    hip: str | None
    path: str


@dataclass(frozen=True)
class Program:
    """A build program.

    Attributes:
        name: ``"ninja"``, ``"cmake"``, ``"git"`` ...
        path: Where it is, or None.
        version: What it says, ``""`` if it did not.
        problem: ``""``, ``"missing"``, ``"timeout"`` or ``"failed"``.
    """

    name: str
    path: str | None
    version: str = ""
    problem: str = ""


@dataclass(frozen=True)
class LinuxCompilers:
    """Compilers and C libraries elsewhere than on Windows.

    Attributes:
        compilers: ``gcc``, ``g++``, ``clang`` ... → version.
        paths: The same names → path.
        glibc: Version of the C library; ``""`` if it is another.
        libstdcxx: Path of a ``libstdc++.so.6`` → newest ``GLIBCXX`` version in it, the system's first.
    """

    compilers: Mapping[str, str] = field(default_factory=dict)
    paths: Mapping[str, str] = field(default_factory=dict)
    glibc: str = ""
    libstdcxx: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Conda:
    """An active conda environment.

    Attributes:
        prefix: Its folder.
        name: Its name.
        packages: Those that matter to a build, name → version.
    """

    prefix: str
    name: str
    packages: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Machine:
    """The machine and how it is set up.

    Attributes:
        platform: As ``sys.platform``.
        architecture: ``"x64"``, ``"arm64"``, ``"x86"`` or what the machine calls itself.
        windows: Major, minor, build, or None.
        long_paths: Whether Windows allows paths beyond 260 characters; None elsewhere or if unknown.
        code_page: The ANSI code page, or None.
        memory: Bytes in all and free, or None.
        processors: Logical ones.
        temporary: The folder for temporary files.
        locale: What LC_ALL or LANG say, ``""`` if nothing.
        distribution: As ``"Ubuntu 24.04"``; ``""`` elsewhere than on Linux.
    """

    platform: str
    architecture: str
    windows: tuple[int, int, int] | None = None
    long_paths: bool | None = None
    code_page: int | None = None
    memory: tuple[int, int] | None = None
    processors: int = 1
    temporary: str = ""
    locale: str = ""
    distribution: str = ""


@dataclass(frozen=True)
class Facts:
    """All that was found out of a machine."""

    machine: Machine
    pythons: tuple[PythonInstall, ...] = ()
    visual_studios: tuple[VisualStudio, ...] = ()
    sdks: tuple[WindowsSdk, ...] = ()
    environment: Environment = field(default_factory=lambda: Environment({}))
    cudas: tuple[CudaToolkit, ...] = ()
    torch: Torch | None = None
    programs: Mapping[str, Program] = field(default_factory=dict)
    linux: LinuxCompilers | None = None
    conda: Conda | None = None
    problems: tuple[Problem, ...] = ()

    @property
    def python(self) -> PythonInstall | None:
        """The Python that was asked about."""
        return next((python for python in self.pythons if python.running), None)

    @property
    def toolsets(self) -> tuple[tuple[VisualStudio, Toolset], ...]:
        """Every toolset with its installation, newest first."""
        pairs = [(studio, toolset) for studio in self.visual_studios for toolset in studio.toolsets]
        return tuple(sorted(pairs, key=lambda pair: (numbers(pair[1].version), pair[0].major), reverse=True))

    @property
    def windows(self) -> bool:
        """Whether this is Windows."""
        return self.machine.platform == "win32"

    @property
    def target(self) -> str:
        """What extensions are built for: the architecture of the Python asked about."""
        python = self.python
        return (python.architecture if python else "") or self.machine.architecture
