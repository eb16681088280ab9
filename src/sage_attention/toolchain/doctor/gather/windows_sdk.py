"""Every version of the Windows 10/11 SDK, each with its two halves: the universal C runtime and the Windows API."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sage_attention.toolchain.doctor.model import Problem, WindowsSdk
from sage_attention.toolchain.doctor.versions import numbers

if TYPE_CHECKING:
    from sage_attention.toolchain.system import System

__all__ = ["gather"]

_TARGETS = ("x64", "x86", "arm64")
_VERSION = re.compile(r"10\.0\.\d+\.\d+")
# Who knows where the kit is: the registry in either view, then the folder everybody has.
_KEYS = (
    (r"HKLM\SOFTWARE\Microsoft\Windows Kits\Installed Roots", "KitsRoot10"),
    (r"HKLM\SOFTWARE\Microsoft\Microsoft SDKs\Windows\v10.0", "InstallationFolder"),
)


def gather(system: System) -> tuple[tuple[WindowsSdk, ...], tuple[Problem, ...]]:
    """The installed SDKs, newest first."""
    found: dict[str, WindowsSdk] = {}
    for root in _roots(system):
        names = {*system.names(system.join(root, "Include")), *system.names(system.join(root, "Lib"))}
        for version in names:
            if _VERSION.fullmatch(version) and version not in found:
                found[version] = _sdk(system, root, version)
    return tuple(sorted(found.values(), key=lambda sdk: numbers(sdk.version), reverse=True)), ()


def _roots(system: System) -> list[str]:
    roots: list[str] = []
    for key, name in _KEYS:
        for bits in (64, 32):
            opened = system.registry(key, bits)
            value = opened.values.get(name) if opened else None
            if isinstance(value, str) and value:
                roots.append(value)
    programs = system.environ.get("PROGRAMFILES(X86)") or system.environ.get("PROGRAMFILES")
    if programs:
        roots.append(system.join(programs, "Windows Kits", "10"))
    distinct: list[str] = []
    for root in roots:
        if not any(system.same(root, other) for other in distinct):
            distinct.append(root)
    return distinct


def _sdk(system: System, root: str, version: str) -> WindowsSdk:
    def there(*parts: str) -> bool:
        return system.is_file(system.join(root, *parts))

    return WindowsSdk(
        version=version,
        root=root,
        ucrt_headers=there("Include", version, "ucrt", "corecrt.h"),
        um_headers=there("Include", version, "um", "Windows.h"),
        ucrt_libraries=tuple(t for t in _TARGETS if there("Lib", version, "ucrt", t, "ucrt.lib")),
        um_libraries=tuple(t for t in _TARGETS if there("Lib", version, "um", t, "kernel32.Lib")),
        resource_compiler=any(there("bin", version, t, "rc.exe") for t in _TARGETS),
    )
