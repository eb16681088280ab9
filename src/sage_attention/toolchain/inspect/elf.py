"""ELF files: pyelftools finds headers, sections and the dynamic table, the symbol tables are read here, in bulk."""

from __future__ import annotations

import io
import struct
from typing import TYPE_CHECKING, Any

from sage_attention.errors import MissingDependencyError

from .model import Binary, ELFFacts, Needed
from .reading import Buffer, Bytes

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["read_elf"]

_MACHINES = {
    "EM_X86_64": "x64", "EM_386": "x86", "EM_AARCH64": "arm64", "EM_ARM": "arm", "EM_PPC64": "ppc64le",
    "EM_S390": "s390x", "EM_RISCV": "riscv64",
}  # fmt: skip
_MOST_TAGS = 1 << 16
_MOST_SYMBOLS = 1 << 22
_MOST_VERSIONS = 1 << 14
_TAGS = {1: "needed", 14: "soname", 15: "rpath", 29: "runpath"}
_STRTAB, _STRSZ = 5, 10


class _Object:
    """Where the things of one file lie."""

    def __init__(self, data: Buffer, path: Path) -> None:
        try:
            from elftools.common.exceptions import ELFError
            from elftools.elf.elffile import ELFFile
        except ImportError as error:
            raise MissingDependencyError("pyelftools", "reading a Linux file", "tool") from error
        self.bytes = Bytes(data, path)
        try:
            # An mmap is a file of its own; bytes need one around them.
            stream: Any = io.BytesIO(data) if isinstance(data, bytes) else data
            self.elf: Any = ELFFile(stream)
        except ELFError as error:
            raise self.bytes.damaged("an ELF file", error) from error
        self.wide = self.elf.elfclass == 64
        self.order = "<" if self.elf.little_endian else ">"
        count = self.elf.num_segments()
        if count * (56 if self.wide else 32) > len(data):
            raise self.bytes.damaged("program headers within the file", f"{count} of them")
        self.segments = [segment.header for segment in self.elf.iter_segments()]

    def offset(self, address: int) -> int:
        """Where an address lies in the file; beyond its end where it lies nowhere."""
        for segment in self.segments:
            if segment.p_type == "PT_LOAD" and segment.p_vaddr <= address < segment.p_vaddr + segment.p_filesz:
                return int(segment.p_offset + address - segment.p_vaddr)
        return len(self.bytes)

    def segment(self, kind: str) -> Any:
        return next((segment for segment in self.segments if segment.p_type == kind), None)

    def section(self, kind: str) -> Any:
        """The first section of a type; None where section headers were stripped."""
        for index in range(min(self.elf.num_sections(), 1 << 16)):
            header = self.elf._get_section_header(index)  # noqa: SLF001  # get_section reads far more
            if header.sh_type == kind:
                return header
        return None


def read_elf(data: Buffer, path: Path) -> Binary:
    """Reads an ELF shared library, extension module or program."""
    elf = _Object(data, path)
    tags = _dynamic(elf)
    strings = elf.offset(tags.get(_STRTAB, [0])[0])
    end = strings + tags.get(_STRSZ, [0])[0]
    words: dict[str, list[str]] = {
        name: [elf.bytes.string(strings + value, end) for value in tags.get(tag, [])] for tag, name in _TAGS.items()
    }
    names = _version_names(elf)
    exports, undefined, versions = _symbols(elf, names)
    for library, version in names.values():
        versions.setdefault(library, {}).setdefault(version, [])
    stack = elf.segment("PT_GNU_STACK")
    interpreter = elf.segment("PT_INTERP")
    machine = str(elf.elf.header.e_machine)
    return Binary(
        path=path,
        machine=_MACHINES.get(machine, machine),
        needed=tuple(Needed(name) for name in words["needed"] if name),
        exports=frozenset(exports),
        undefined=frozenset(undefined),
        elf=ELFFacts(
            soname="".join(words["soname"][:1]),
            rpath=_folders(words["rpath"]),
            runpath=_folders(words["runpath"]),
            interpreter=elf.bytes.string(int(interpreter.p_offset)) if interpreter else "",
            versions={
                library: {version: tuple(sorted(symbols)) for version, symbols in sorted(rows.items())}
                for library, rows in sorted(versions.items())
            },
            executable_stack=bool(stack and stack.p_flags & 1),
        ),
    )


def _folders(words: list[str]) -> tuple[str, ...]:
    return tuple(folder for word in words for folder in word.split(":") if folder)


def _dynamic(elf: _Object) -> dict[int, list[int]]:
    """Tag -> values."""
    segment = elf.segment("PT_DYNAMIC")
    tags: dict[int, list[int]] = {}
    if segment is None:
        return tags
    layout = elf.order + ("qQ" if elf.wide else "iI")
    size = struct.calcsize(layout)
    raw = elf.bytes.take(int(segment.p_offset), int(segment.p_filesz), "dynamic table")
    raw = raw[: min(len(raw), _MOST_TAGS * size) // size * size]
    for tag, value in struct.iter_unpack(layout, raw):
        if tag == 0:
            break
        tags.setdefault(tag, []).append(value)
    return tags


def _version_names(elf: _Object) -> dict[int, tuple[str, str]]:
    """Index of a version -> (library, version), from .gnu.version_r."""
    header = elf.section("SHT_GNU_verneed")
    found: dict[int, tuple[str, str]] = {}
    if header is None:
        return found
    strings, end = _string_table(elf, header)
    place = int(header.sh_offset)
    for _ in range(_MOST_VERSIONS):
        _, count, file, auxiliary, step = elf.bytes.unpack(elf.order + "2H3I", place, "versions needed")
        library = elf.bytes.string(strings + file, end)
        row = place + auxiliary
        for _ in range(count):
            _, _, index, name, next_row = elf.bytes.unpack(elf.order + "I2H2I", row, "versions needed")
            found[index & 0x7FFF] = (library, elf.bytes.string(strings + name, end))
            if not next_row or len(found) > _MOST_VERSIONS:
                break
            row += next_row
        if not step:
            return found
        place += step
    raise elf.bytes.damaged(f"at most {_MOST_VERSIONS} versions", "more: the table has no end")


def _string_table(elf: _Object, header: Any) -> tuple[int, int]:
    strings = elf.elf._get_section_header(int(header.sh_link))  # noqa: SLF001
    return int(strings.sh_offset), int(strings.sh_offset + strings.sh_size)


def _symbols(
    elf: _Object, names: dict[int, tuple[str, str]]
) -> tuple[set[str], set[str], dict[str, dict[str, list[str]]]]:
    """Symbols offered, symbols taken, and library -> version -> symbols."""
    exports: set[str] = set()
    undefined: set[str] = set()
    versions: dict[str, dict[str, list[str]]] = {}
    header = elf.section("SHT_DYNSYM")
    if header is None:
        return exports, undefined, versions
    strings, end = _string_table(elf, header)
    layout = elf.order + ("IBBHQQ" if elf.wide else "IIIBBH")
    size = struct.calcsize(layout)
    count = int(header.sh_size) // size
    if count > _MOST_SYMBOLS:
        raise elf.bytes.damaged(f"at most {_MOST_SYMBOLS} symbols", count)
    table = elf.bytes.take(int(header.sh_offset), count * size, "symbol table")
    indices: tuple[int, ...] = ()
    versions_header = elf.section("SHT_GNU_versym")
    if versions_header is not None:
        raw = elf.bytes.take(int(versions_header.sh_offset), 2 * count, "symbol versions")
        indices = struct.unpack(f"{elf.order}{count}H", raw)
    for number, row in enumerate(struct.iter_unpack(layout, table)):
        name_at, info, section = (row[0], row[1], row[3]) if elf.wide else (row[0], row[3], row[5])
        name = elf.bytes.string(strings + name_at, end)
        if not name:
            continue
        if section:
            if info >> 4:  # not local
                exports.add(name)
            continue
        undefined.add(name)
        wanted = names.get(indices[number] & 0x7FFF) if indices else None
        if wanted:
            versions.setdefault(wanted[0], {}).setdefault(wanted[1], []).append(name)
    return exports, undefined, versions
