"""What was read from a binary, whatever its format."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["Binary", "ELFFacts", "MachOFacts", "Needed", "PEFacts", "version_text"]


@dataclass(frozen=True)
class Needed:
    """A library that a binary asks for.

    Attributes:
        library: Its name, as written in the file.
        symbols: What is taken from it; ``"#12"`` is ordinal 12. Empty where the format does not tell.
        delayed: Loaded at the first call only, not when the binary is loaded.
        weak: May be absent.
    """

    library: str
    symbols: tuple[str, ...] = ()
    delayed: bool = False
    weak: bool = False


@dataclass(frozen=True)
class PEFacts:
    """What only Windows files have."""

    is_dll: bool
    linker: tuple[int, int]
    made_by: str  # "MSVC", "LLVM", "GNU" or ""
    file_version: tuple[int, ...] = ()
    pdb: str = ""
    load_flags: int = 0  # /DEPENDENTLOADFLAG
    assemblies: tuple[str, ...] = ()  # side-by-side assemblies that its manifest asks for


@dataclass(frozen=True)
class ELFFacts:
    """What only ELF files have."""

    soname: str = ""
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()
    interpreter: str = ""
    versions: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)  # library -> version -> symbols
    executable_stack: bool = False


@dataclass(frozen=True)
class MachOFacts:
    """What only Mach-O files have."""

    install_name: str = ""
    rpaths: tuple[str, ...] = ()
    min_os: tuple[int, ...] = ()
    platform: str = "macOS"


@dataclass(frozen=True)
class Binary:
    """One binary, or one architecture of a universal one.

    Attributes:
        path: The file.
        machine: ``x64``, ``x86``, ``arm64``, ``arm``, or what the format calls it.
        needed: The libraries it asks for, in order.
        exports: The symbols it offers; in a Windows file ``"#12"`` for ordinal 12 as well.
        undefined: Symbols it takes from no library in particular (ELF, Mach-O).
    """

    path: Path
    machine: str
    needed: tuple[Needed, ...] = ()
    exports: frozenset[str] = frozenset()
    undefined: frozenset[str] = frozenset()
    pe: PEFacts | None = None
    elf: ELFFacts | None = None
    macho: MachOFacts | None = None

    @property
    def format(self) -> str:
        """``PE``, ``ELF`` or ``Mach-O``."""
        return "PE" if self.pe else "ELF" if self.elf else "Mach-O"

    @property
    def taken(self) -> frozenset[str]:
        """All symbols that it takes from others, by name."""
        named = (symbol for needed in self.needed for symbol in needed.symbols if not symbol.startswith("#"))
        return self.undefined.union(named)


def version_text(version: tuple[int, ...]) -> str:
    """``(14, 40)`` as ``"14.40"``."""
    return ".".join(map(str, version))
