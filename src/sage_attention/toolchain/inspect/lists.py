"""The lists that age, from ``toolchain/data``."""

from __future__ import annotations

import re
from functools import cache

from sage_attention.toolchain.data_files import table

__all__ = ["api_set", "dll_kind", "stable_abi", "windows_names"]


@cache
def windows_names(kind: str) -> frozenset[str]:
    """The DLLs of one list of ``windows_dlls.json``, in lower case."""
    return frozenset(table("windows_dlls")[kind]["names"])


def api_set(library: str) -> bool:
    """Whether a name is a contract of Windows (an API set) and not a file.

    Example:
        >>> api_set("api-ms-win-crt-heap-l1-1-0.dll"), api_set("kernel32.dll")
        (True, False)
    """
    return library.lower().startswith(tuple(table("windows_dlls")["api_set_prefixes"]["names"]))


def dll_kind(library: str) -> str:
    """What kind of DLL that is not part of Windows a name stands for; empty if it is none of the known ones.

    Example:
        >>> dll_kind("MSVCP140D.dll"), dll_kind("vcomp140.dll"), dll_kind("mine.dll")
        ('debug_crt', 'openmp_msvc', '')
    """
    name = library.lower()
    return next((str(kind) for pattern, kind in _patterns() if pattern.match(name)), "")


@cache
def _patterns() -> tuple[tuple[re.Pattern[str], str], ...]:
    rows = table("windows_dlls")["not_in_windows"]["patterns"]
    return tuple((re.compile(row["pattern"]), row["kind"]) for row in rows)


@cache
def stable_abi() -> dict[str, tuple[int, int]]:
    """Symbol of CPython's stable ABI -> the version that added it."""
    rows = table("python_stable_abi")["added"]
    return {
        name: (int(version.partition(".")[0]), int(version.partition(".")[2]))
        for version, names in rows.items()
        for name in names
    }
