"""Which Python a binary was built for: by the names it takes, by its own name, by its wheel's."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .lists import stable_abi
from .windows_loader import python_dll

if TYPE_CHECKING:
    from .model import Binary

__all__ = ["PythonUse", "init_names", "initialised_modules", "outside_stable_abi", "python_use"]

_API = re.compile(r"_?Py[A-Z_]\w*")


@dataclass(frozen=True)
class PythonUse:
    """What a binary takes from CPython.

    Attributes:
        symbols: Functions and data of the C API that it uses.
        dlls: Names of Python DLLs that it imports (Windows).
        version: The version its imports name, (3, 11).
        stable: It imports ``python3.dll``.
        free_threaded: Its imports name the build without the global lock.
        debug: Its imports name the debug build.
    """

    symbols: frozenset[str]
    dlls: tuple[str, ...] = ()
    version: tuple[int, int] | None = None
    stable: bool = False
    free_threaded: bool = False
    debug: bool = False


def python_use(binary: Binary) -> PythonUse:
    """What a binary takes from CPython."""
    dlls, stable, free_threaded, debug = [], False, False, False
    version = None
    symbols: set[str] = set()
    for needed in binary.needed:
        named = python_dll(needed.library)
        if named is None:
            continue
        dlls.append(needed.library)
        symbols.update(needed.symbols)
        version = named[0] or version
        stable = stable or named[0] is None
        free_threaded, debug = free_threaded or named[1], debug or named[2]
    if binary.pe is None:
        symbols.update(symbol for symbol in binary.undefined if _API.fullmatch(symbol))
    return PythonUse(frozenset(symbols), tuple(dlls), version, stable, free_threaded, debug)


def initialised_modules(binary: Binary) -> frozenset[str]:
    """The modules whose initialisation a binary exports.

    Example:
        >>> from pathlib import Path
        >>> from sage_attention.toolchain.inspect.model import Binary
        >>> initialised_modules(Binary(Path("x.pyd"), "x64", exports=frozenset({"PyInit_x", "f"})))
        frozenset({'x'})
    """
    found = (re.fullmatch(r"(?:PyInit|PyModExport|PyInitU|PyModExportU)_(.+)", name) for name in binary.exports)
    return frozenset(match[1] for match in found if match)


def init_names(module: str) -> tuple[str, ...]:
    """The exports that Python looks for in a module, the usual one first."""
    try:
        module.encode("ascii")
        return (f"PyInit_{module}", f"PyModExport_{module}")
    except UnicodeEncodeError:
        coded = module.encode("punycode").decode("ascii").replace("-", "_")
        return (f"PyInitU_{coded}", f"PyModExportU_{coded}")


def outside_stable_abi(symbols: frozenset[str], since: tuple[int, int]) -> dict[str, tuple[int, int] | None]:
    """What does not belong to the stable ABI of a version: symbol -> the version that added it, None if none did.

    Example:
        >>> outside_stable_abi(frozenset({"PyList_New", "PyList_GetItemRef", "_PyList_Extend"}), (3, 8))
        {'PyList_GetItemRef': (3, 13), '_PyList_Extend': None}
    """
    known = stable_abi()
    found: dict[str, tuple[int, int] | None] = {}
    for symbol in sorted(symbols):
        added = known.get(symbol)
        if added is None or added > since:
            found[symbol] = added
    return found
