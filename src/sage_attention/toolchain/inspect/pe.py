"""Windows files: pefile finds headers and sections, the tables of names are read here.

pefile stops at 8,192 symbols and cuts names at 512 characters; C++ libraries have more and longer ones.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from typing import TYPE_CHECKING, Any

from sage_attention.errors import MissingDependencyError

from .model import Binary, Needed, PEFacts
from .reading import Buffer, Bytes

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["read_pe"]

_MACHINES = {0x14C: "x86", 0x8664: "x64", 0xAA64: "arm64", 0x1C4: "arm", 0xA641: "arm64ec", 0x5064: "riscv64"}
_EXPORT, _IMPORT, _RESOURCE, _DEBUG, _LOAD_CONFIG, _DELAY = 0, 1, 2, 6, 10, 13
_MOST_LIBRARIES = 4096
_MOST_SYMBOLS = 1 << 20  # of one file, all libraries together
_MOST_ORDINALS = 1 << 16
_IS_DLL = 0x2000


class _Image:
    """Where the things of one file lie."""

    def __init__(self, data: Buffer, path: Path) -> None:
        try:
            import pefile
        except ImportError as error:
            raise MissingDependencyError("pefile", "reading a Windows file", "tool") from error
        self.bytes = Bytes(data, path)
        try:
            self.pe: Any = pefile.PE(data=data, fast_load=True)
        except pefile.PEFormatError as error:
            raise self.bytes.damaged("a Windows DLL or program", str(error).strip("'\"")) from error
        optional = self.pe.OPTIONAL_HEADER
        self.wide = optional.Magic == 0x20B
        self.headers = int(optional.SizeOfHeaders)
        sections = []
        for section in self.pe.sections:
            start, raw, size = section.VirtualAddress, section.PointerToRawData, section.SizeOfRawData
            if raw + size > len(data):
                name = section.Name.rstrip(b"\0").decode("latin-1")
                raise self.bytes.damaged(
                    f"section {name} to end at byte {raw + size}", f"a file of {len(data)} bytes: it is truncated"
                )
            # The loader rounds the place down to a sector, as does it the length in memory up to a page.
            sections.append((start, size, raw & ~0x1FF))
        sections.sort()
        self.sections = sections
        self.starts = [start for start, _, _ in sections]
        self.symbols_left = _MOST_SYMBOLS

    def directory(self, index: int) -> tuple[int, int]:
        """Address and size of a data directory; (0, 0) where there is none."""
        directories = self.pe.OPTIONAL_HEADER.DATA_DIRECTORY
        if index >= len(directories):
            return 0, 0
        return int(directories[index].VirtualAddress), int(directories[index].Size)

    def offset(self, address: int) -> int:
        """Where an address lies in the file; beyond its end where it lies nowhere."""
        found = bisect_right(self.starts, address) - 1
        if found >= 0:
            start, size, raw = self.sections[found]
            if address < start + size:
                return int(raw + address - start)
        return address if 0 <= address < self.headers else len(self.bytes)

    def string(self, address: int) -> str:
        return self.bytes.string(self.offset(address))


def read_pe(data: Buffer, path: Path) -> Binary:
    """Reads a Windows DLL, extension module or program."""
    image = _Image(data, path)
    header = image.pe.FILE_HEADER
    optional = image.pe.OPTIONAL_HEADER
    linker = (int(optional.MajorLinkerVersion), int(optional.MinorLinkerVersion))
    version, assemblies = _resources(image)
    return Binary(
        path=path,
        machine=_MACHINES.get(header.Machine, f"machine 0x{header.Machine:x}"),
        needed=(*_imports(image), *_delayed_imports(image)),
        exports=_exports(image),
        pe=PEFacts(
            is_dll=bool(header.Characteristics & _IS_DLL),
            linker=linker,
            made_by=_made_by(image, linker),
            file_version=version,
            pdb=_pdb(image),
            load_flags=_load_flags(image),
            assemblies=assemblies,
        ),
    )


def _imports(image: _Image) -> list[Needed]:
    address, _ = image.directory(_IMPORT)
    found: list[Needed] = []
    if not address:
        return found
    place = image.offset(address)
    for index in range(_MOST_LIBRARIES + 1):
        lookup, _, _, name, thunk = image.bytes.unpack("<5I", place + 20 * index, "import table")
        if not (name and thunk):
            return found
        found.append(Needed(_library(image, name), tuple(_symbols(image, lookup or thunk))))
    raise image.bytes.damaged(f"at most {_MOST_LIBRARIES} imported libraries", "more: the import table has no end")


def _delayed_imports(image: _Image) -> list[Needed]:
    address, _ = image.directory(_DELAY)
    found: list[Needed] = []
    if not address:
        return found
    place = image.offset(address)
    for index in range(_MOST_LIBRARIES + 1):
        row = image.bytes.unpack("<8I", place + 32 * index, "delay import table")
        attributes, name, lookup = row[0], row[1], row[4]
        if not name:
            return found
        if not attributes & 1:  # addresses in memory, as VC++ 6 wrote them
            base = int(image.pe.OPTIONAL_HEADER.ImageBase)
            name, lookup = name - base, lookup - base
        found.append(Needed(_library(image, name), tuple(_symbols(image, lookup)), delayed=True))
    raise image.bytes.damaged(f"at most {_MOST_LIBRARIES} delayed libraries", "more: the table has no end")


def _library(image: _Image, address: int) -> str:
    name = image.string(address)
    if not name or len(name) > 260 or not name.isprintable():
        raise image.bytes.damaged("the name of a library in the import table", repr(name[:40]))
    return name


def _symbols(image: _Image, address: int) -> list[str]:
    """The names that a lookup table holds; ``#12`` for ordinal 12."""
    found: list[str] = []
    size = 8 if image.wide else 4
    layout, by_ordinal = ("<Q", 1 << 63) if image.wide else ("<I", 1 << 31)
    place = image.offset(address)
    while True:
        entry = image.bytes.unpack(layout, place, "import lookup table")[0]
        if not entry:
            return found
        image.symbols_left -= 1
        if image.symbols_left < 0:
            raise image.bytes.damaged(f"at most {_MOST_SYMBOLS} imported symbols", "more: a table has no end")
        found.append(f"#{entry & 0xFFFF}" if entry & by_ordinal else image.string((entry & 0x7FFFFFFF) + 2))
        place += size


def _exports(image: _Image) -> frozenset[str]:
    address, _ = image.directory(_EXPORT)
    if not address:
        return frozenset()
    row = image.bytes.unpack("<2I2H7I", image.offset(address), "export table")
    base, functions, names, function_table, name_table = row[5:10]
    if max(functions, names) > len(image.bytes) // 4:
        raise image.bytes.damaged("an export table that fits into the file", f"{max(functions, names)} exports")
    addresses = _table(image, name_table, names, "export names")
    found = {image.string(name) for name in addresses}
    rows = _table(image, function_table, functions, "export addresses")[:_MOST_ORDINALS]
    found.update(f"#{base + index}" for index, function in enumerate(rows) if function)
    found.discard("")
    return frozenset(found)


def _table(image: _Image, address: int, count: int, what: str) -> tuple[int, ...]:
    return struct.unpack(f"<{count}I", image.bytes.table(image.offset(address), 4 * count, what)) if count else ()


def _resources(image: _Image) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """File version and the side-by-side assemblies of the manifest, both found by their marks."""
    address, size = image.directory(_RESOURCE)
    if not (address and size):
        return (), ()
    start = image.offset(address)
    stop = min(start + size, len(image.bytes))
    data = image.bytes.data
    version: tuple[int, ...] = ()
    fixed = data.find(b"\xbd\x04\xef\xfe", start, stop)  # the signature of VS_FIXEDFILEINFO
    if fixed >= 0 and fixed + 16 <= len(data):
        high, low = struct.unpack_from("<2I", data, fixed + 8)
        version = (high >> 16, high & 0xFFFF, low >> 16, low & 0xFFFF)
    manifest = data.find(b"<dependentAssembly", start, stop)
    if manifest < 0:
        return version, ()
    text = data[manifest : min(stop, manifest + 0x10000)]
    names = re.findall(rb"<assemblyIdentity\b[^>]{0,2000}?\bname\s*=\s*[\"']([^\"']{1,200})[\"']", text)
    return version, tuple(sorted({name.decode("utf-8", "replace") for name in names}))


def _pdb(image: _Image) -> str:
    address, size = image.directory(_DEBUG)
    place = image.offset(address)
    for entry in range(min(size // 28, 64) if address else 0):
        row = image.bytes.unpack("<2I2H4I", place + 28 * entry, "debug directory")
        kind, raw = row[4], row[7]
        if kind == 2 and image.bytes.data[raw : raw + 4] == b"RSDS":
            return image.bytes.string(raw + 24)
    return ""


def _load_flags(image: _Image) -> int:
    address, _ = image.directory(_LOAD_CONFIG)
    if not address:
        return 0
    place = image.offset(address)
    field = 78 if image.wide else 54
    size = image.bytes.unpack("<I", place, "load configuration")[0]
    return image.bytes.unpack("<H", place + field, "load configuration")[0] if size >= field + 2 else 0


def _made_by(image: _Image, linker: tuple[int, int]) -> str:
    stub = image.bytes.data[0x40 : max(0x40, min(int(image.pe.DOS_HEADER.e_lfanew), 0x1000))]
    if b"Rich" in stub:  # Microsoft's link lists there which compilers made the objects
        return "MSVC"
    if linker == (14, 0):
        return "LLVM"
    return "GNU" if linker[0] == 2 else ""
