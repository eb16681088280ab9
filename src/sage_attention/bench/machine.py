"""The machine that figures were taken on: what they depend on, as far as anything tells."""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from sage_attention import __version__, _native

__all__ = ["Machine", "free_memory", "machine"]

_CPUINFO = Path("/proc/cpuinfo")
_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_MEMINFO = Path("/proc/meminfo")


@dataclass(frozen=True)
class Machine:
    """What figures depend on.

    Attributes:
        cpu: The processor's name for itself.
        cores: Logical ones of the machine.
        usable_cores: Those this process may use.
        memory_gib: None where nothing tells.
        system: Operating system and its release.
        page_size: Bytes.
        transparent_huge_pages: Linux: ``always``, ``madvise`` or ``never``; elsewhere ``none``.
        cpu_level: Which kernels of ours run.
        cpu_levels: Which could.
        torch_cpu_level: What torch uses, None if it was not loaded.
        torch_huge_pages: Whether torch asks for huge pages, None if it was not loaded.
        versions: Of Python and of what matters.
    """

    cpu: str
    cores: int
    usable_cores: int
    memory_gib: float | None
    system: str
    page_size: int
    transparent_huge_pages: str
    cpu_level: str
    cpu_levels: list[str]
    torch_cpu_level: str | None
    torch_huge_pages: bool | None
    versions: dict[str, str]

    def lines(self) -> list[str]:
        """For people."""
        usable = "" if self.usable_cores == self.cores else f" ({self.usable_cores} of them for this process)"
        memory = "memory unknown" if self.memory_gib is None else f"{self.memory_gib:.0f} GiB"
        pages = f"pages of {self.page_size} bytes"
        if self.transparent_huge_pages != "none":
            pages += f", transparent huge pages: {self.transparent_huge_pages}"
        levels = f"kernels: {self.cpu_level}"
        if self.torch_cpu_level is not None:
            asks = "asks" if self.torch_huge_pages else "does not ask"
            levels += f"; PyTorch's: {self.torch_cpu_level}"
            pages += f"; PyTorch {asks} for huge ones"
        return [
            f"{self.cores} cores{usable} {self.cpu}, {memory}, {self.system}",
            f"{levels}; {pages}",
            ", ".join(f"{name} {number}" for name, number in self.versions.items()),
        ]


def machine() -> Machine:
    """The machine this runs on. Loads nothing but the native library.

    Example:
        >>> machine().cores >= 1
        True
    """
    torch = sys.modules.get("torch")
    return Machine(
        cpu=_cpu_name(),
        cores=os.cpu_count() or 1,
        usable_cores=_usable_cores(),
        memory_gib=_memory_gib(),
        system=f"{platform.system()} {platform.release()}".strip(),
        page_size=_page_size(),
        transparent_huge_pages=_transparent_huge_pages(),
        cpu_level=_native.cpu_level(),
        cpu_levels=_native.available_cpu_levels(),
        torch_cpu_level=None if torch is None else str(torch.backends.cpu.get_cpu_capability()),
        torch_huge_pages=None if torch is None else os.environ.get("THP_MEM_ALLOC_ENABLE") == "1",
        versions=_versions(),
    )


def free_memory() -> int | None:
    """Bytes that could be had now without swapping; None where nothing tells."""
    try:
        import psutil
    except ImportError:
        return _meminfo("MemAvailable")
    return int(psutil.virtual_memory().available)


def _versions() -> dict[str, str]:
    found = {"Python": platform.python_version(), "sage_attention": __version__}
    for name in ("numpy", "torch", "torch_geometric"):
        with contextlib.suppress(PackageNotFoundError):
            found["NumPy" if name == "numpy" else name] = version(name)
    return found


def _cpu_name() -> str:
    """As the processor calls itself; on ARM Linux often nobody tells more than the architecture."""
    if sys.platform == "win32":
        import winreg

        try:
            with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, r"HARDWARE\DESCRIPTION\System\CentralProcessor\0") as key:
                return str(winreg.QueryValueEx(key, "ProcessorNameString")[0]).strip()
        except OSError:
            return platform.processor() or platform.machine()
    if sys.platform == "darwin":
        command = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
        try:
            told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)  # noqa: S603
        except (OSError, subprocess.SubprocessError):
            return platform.processor() or platform.machine()
        return told.stdout.strip()
    try:
        lines = _CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model") and value.strip():
            return value.strip()
    return platform.processor() or platform.machine() or "unknown processor"


def _usable_cores() -> int:
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory_gib() -> float | None:
    try:
        import psutil
    except ImportError:
        total = _meminfo("MemTotal")
    else:
        total = int(psutil.virtual_memory().total)
    return None if total is None else total / 2**30


def _meminfo(key: str) -> int | None:
    """Bytes that Linux tells under a name."""
    try:
        lines = _MEMINFO.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith(key + ":")), None)


def _page_size() -> int:
    if sys.platform == "win32":
        return 4096  # of every Windows that CPython runs on
    return int(os.sysconf("SC_PAGESIZE"))


def _transparent_huge_pages() -> str:
    try:
        return _HUGE_PAGES.read_text(encoding="ascii").split("[")[-1].split("]")[0]
    except OSError:
        return "none"
