"""ELF files: pyelftools reads the header; segments, sections and tables of symbols are read here, in bulk."""

from __future__ import annotations

import io
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

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
_LOAD, _DYNAMIC, _INTERPRETER, _STACK = 1, 2, 3, 0x6474E551  # types of segments
_DYNAMIC_SYMBOLS, _VERSIONS_NEEDED, _VERSIONS = 11, 0x6FFFFFFE, 0x6FFFFFFF  # types of sections


class _Segment(NamedTuple):
    kind: int
    flags: int
    offset: int
    address: int
    size: int  # in the file


class _Section(NamedTuple):
    kind: int
    offset: int
    size: int
    link: int


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
        header = self.elf.header
        # In 32-bit files the flags come later.
        layout, at = ("2I6Q", (0, 1, 2, 3, 5)) if self.wide else ("8I", (0, 6, 1, 2, 4))
        rows = self._rows(layout, header.e_phoff, self.elf.num_segments(), header.e_phentsize, "program headers")
        self.segments = [_Segment(*(row[index] for index in at)) for row in rows]
        rows = self._rows(
            "2I4Q2I2Q" if self.wide else "10I",
            header.e_shoff, self.elf.num_sections(), header.e_shentsize, "section headers",
        )  # fmt: skip
        self.sections = [_Section(row[1], row[4], row[5], row[6]) for row in rows]

    def _rows(self, layout: str, start: int, count: int, step: int, what: str) -> list[tuple[int, ...]]:
        """The rows of a table of headers."""
        row = struct.Struct(self.order + layout)
        if count and step < row.size:
            raise self.bytes.damaged(f"{what} of {row.size} bytes each", step)
        table = self.bytes.table(int(start), count * step, what)
        return [row.unpack_from(table, index * step) for index in range(count)]

    def offset(self, address: int) -> int:
        """Where an address lies in the file; beyond its end where it lies nowhere."""
        for segment in self.segments:
            if segment.kind == _LOAD and segment.address <= address < segment.address + segment.size:
                return segment.offset + address - segment.address
        return len(self.bytes)

    def segment(self, kind: int) -> _Segment | None:
        return next((segment for segment in self.segments if segment.kind == kind), None)

    def section(self, kind: int) -> _Section | None:
        """The first section of a type; None where section headers were stripped."""
        return next((section for section in self.sections if section.kind == kind), None)

    def strings_of(self, section: _Section) -> tuple[int, int]:
        """Where the names lie that a section speaks of: first byte and end."""
        if section.link >= len(self.sections):
            raise self.bytes.damaged("a section of names", f"section {section.link} of {len(self.sections)}")
        strings = self.sections[section.link]
        return strings.offset, strings.offset + strings.size


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
    stack = elf.segment(_STACK)
    interpreter = elf.segment(_INTERPRETER)
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
            interpreter=elf.bytes.string(interpreter.offset) if interpreter else "",
            versions={
                library: {version: tuple(sorted(symbols)) for version, symbols in sorted(rows.items())}
                for library, rows in sorted(versions.items())
            },
            executable_stack=bool(stack and stack.flags & 1),
        ),
    )


def _folders(words: list[str]) -> tuple[str, ...]:
    return tuple(folder for word in words for folder in word.split(":") if folder)


def _dynamic(elf: _Object) -> dict[int, list[int]]:
    """Tag -> values."""
    segment = elf.segment(_DYNAMIC)
    tags: dict[int, list[int]] = {}
    if segment is None:
        return tags
    layout = elf.order + ("qQ" if elf.wide else "iI")
    size = struct.calcsize(layout)
    raw = elf.bytes.take(segment.offset, segment.size, "dynamic table")
    raw = raw[: min(len(raw), _MOST_TAGS * size) // size * size]
    for tag, value in struct.iter_unpack(layout, raw):
        if tag == 0:
            break
        tags.setdefault(tag, []).append(value)
    return tags


def _version_names(elf: _Object) -> dict[int, tuple[str, str]]:
    """Index of a version -> (library, version), from .gnu.version_r."""
    header = elf.section(_VERSIONS_NEEDED)
    found: dict[int, tuple[str, str]] = {}
    if header is None:
        return found
    strings, end = elf.strings_of(header)
    place = header.offset
    rows = 0
    for _ in range(_MOST_VERSIONS):
        _, count, file, auxiliary, step = elf.bytes.unpack(elf.order + "2H3I", place, "versions needed")
        library = elf.bytes.string(strings + file, end)
        row = place + auxiliary
        for _ in range(count):
            _, _, index, name, next_row = elf.bytes.unpack(elf.order + "I2H2I", row, "versions needed")
            found[index & 0x7FFF] = (library, elf.bytes.string(strings + name, end))
            rows += 1
            if rows > _MOST_VERSIONS:
                raise elf.bytes.damaged(f"at most {_MOST_VERSIONS} versions", "more: a table has no end")
            if not next_row:
                break
            row += next_row
        if not step:
            return found
        place += step
    raise elf.bytes.damaged(f"at most {_MOST_VERSIONS} versions", "more: the table has no end")


def _symbols(
    elf: _Object, names: dict[int, tuple[str, str]]
) -> tuple[set[str], set[str], dict[str, dict[str, list[str]]]]:
    """Symbols offered, symbols taken, and library -> version -> symbols."""
    exports: set[str] = set()
    undefined: set[str] = set()
    versions: dict[str, dict[str, list[str]]] = {}
    header = elf.section(_DYNAMIC_SYMBOLS)
    if header is None:
        return exports, undefined, versions
    strings, end = elf.strings_of(header)
    layout = elf.order + ("IBBHQQ" if elf.wide else "IIIBBH")
    size = struct.calcsize(layout)
    count = header.size // size
    if count > _MOST_SYMBOLS:
        raise elf.bytes.damaged(f"at most {_MOST_SYMBOLS} symbols", count)
    table = elf.bytes.table(header.offset, count * size, "symbol table")
    indices: tuple[int, ...] = ()
    versions_header = elf.section(_VERSIONS)
    if versions_header is not None:
        raw = elf.bytes.table(versions_header.offset, 2 * count, "symbol versions")
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
