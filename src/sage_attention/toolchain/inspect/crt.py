"""Which C and C++ run-time library a Windows file was built for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sage_attention.toolchain.data_files import table

from .lists import dll_kind
from .model import Binary, version_text

if TYPE_CHECKING:
    from .tree import Node

__all__ = ["flavours", "newest_toolset", "runtime_demands", "toolset"]


def flavours(binary: Binary) -> tuple[str, ...]:
    """The C run-time libraries that a file uses; more than one is a mix.

    ``/MD`` and ``/MDd`` (the DLLs, release and debug), ``hybrid`` (static vcruntime, the system's UCRT: MSVC linked so,
    or zig and llvm-mingw), ``msvcrt`` (older MinGW), ``msvcr120`` and the like, ``/MT`` (nothing but Windows itself).
    """
    names = [needed.library.lower() for needed in binary.needed]
    found = []
    if any(dll_kind(name) == "debug_crt" for name in names):
        found.append("/MDd")
    runtime = any(name.startswith(("vcruntime140", "msvcp140")) and dll_kind(name) == "vc_runtime" for name in names)
    if runtime:
        found.append("/MD")
    elif any(name.startswith("api-ms-win-crt-") or name == "ucrtbase.dll" for name in names) and not found:
        found.append("hybrid")
    if "msvcrt.dll" in names:
        found.append("msvcrt")
    found += sorted({name[:-4] for name in names if dll_kind(name) == "old_vc_runtime" and name.startswith("msvcr")})
    return tuple(found) or ("/MT",)


def toolset(binary: Binary) -> str:
    """What linked a Windows file, as people call it."""
    facts = binary.pe
    if facts is None:
        return ""
    if facts.made_by == "MSVC":
        return f"MSVC {facts.linker[0]}.{facts.linker[1]:02d}"
    if facts.made_by == "LLVM":
        return "LLVM (lld)"
    return f"GNU ld {version_text(facts.linker)}" if facts.made_by == "GNU" else f"linker {version_text(facts.linker)}"


def runtime_demands(binary: Binary) -> tuple[str, ...]:
    """The symbols through which a file crashes with an msvcp140.dll older than 14.40; empty if it does not.

    Since that toolset the constructor of std::mutex leaves to the first lock what older libraries expect it to have
    done (``_Mtx_init_in_situ``). So a file that locks and never initialises was built that way, whoever linked it.
    """
    rule = table("windows_dlls")["runtime_break"]
    taken = {s for needed in binary.needed if needed.library.lower() == rule["library"] for s in needed.symbols}
    if any(symbol.startswith(rule["not_with"]) for symbol in taken):
        return ()
    return tuple(sorted(symbol for symbol in taken if symbol in rule["symbols"]))


def newest_toolset(binaries: list[Binary]) -> tuple[int, int]:
    """The newest MSVC toolset among some files, (0, 0) if none."""
    return max((b.pe.linker for b in binaries if b.pe and b.pe.made_by == "MSVC"), default=(0, 0))


def file_version(node: Node) -> tuple[int, ...]:
    """The version in the resources of a DLL that was found; empty if it is not known."""
    return node.binary.pe.file_version if node.binary is not None and node.binary.pe is not None else ()
