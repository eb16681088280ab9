"""The machine itself: processor, Windows, long paths, code page, memory."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sage_attention.toolchain.doctor.model import Machine, Problem

if TYPE_CHECKING:
    from sage_attention.toolchain.system import System

__all__ = ["architecture", "gather"]

_ARCHITECTURES = {
    "amd64": "x64", "x86_64": "x64", "x64": "x64", "64bit": "x64", "win-amd64": "x64",
    "arm64": "arm64", "aarch64": "arm64", "win-arm64": "arm64", "arm": "arm",
    "x86": "x86", "i386": "x86", "i686": "x86", "32bit": "x86", "win32": "x86",
}  # fmt: skip


def architecture(name: str) -> str:
    """One word per architecture, whoever names it.

    Example:
        >>> architecture("AMD64"), architecture("aarch64"), architecture("riscv64")
        ('x64', 'arm64', 'riscv64')
    """
    return _ARCHITECTURES.get(name.lower(), name)


def gather(system: System) -> tuple[Machine, tuple[Problem, ...]]:
    """What the machine is."""
    environ = system.environ
    long_paths: bool | None = None
    if system.windows:
        key = system.registry(r"HKLM\SYSTEM\CurrentControlSet\Control\FileSystem")
        if key is not None:
            long_paths = key.values.get("LongPathsEnabled", 0) == 1
    return Machine(
        platform=system.platform,
        architecture=architecture(system.machine),
        windows=system.windows_version(),
        long_paths=long_paths,
        code_page=system.code_page(),
        memory=system.memory(),
        processors=max(1, system.processors),
        temporary=environ.get("TEMP" if system.windows else "TMPDIR", ""),
        locale=next((environ[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if environ.get(name)), ""),
        distribution=_distribution(system),
    ), ()


def _distribution(system: System) -> str:
    if not system.platform.startswith("linux"):
        return ""
    text = system.text("/etc/os-release", 1 << 16) or ""
    match = re.search(r'^PRETTY_NAME="?([^"\n]*)', text, re.MULTILINE)
    return match[1].strip() if match else ""
