"""Mach-O files: the load commands and the symbol table, nothing more."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from .model import Binary, MachOFacts, Needed
from .reading import Buffer, Bytes

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["read_macho"]

_MACHINES = {0x01000007: "x64", 0x00000007: "x86", 0x0100000C: "arm64", 0x0000000C: "arm", 0x01000012: "ppc64"}
_PLATFORMS = {1: "macOS", 2: "iOS", 3: "tvOS", 4: "watchOS", 6: "Mac Catalyst", 7: "iOS simulator"}
_SYMTAB, _LOAD, _ID, _LOAD_WEAK, _RPATH, _REEXPORT, _LAZY, _UPWARD = (
    0x2, 0xC, 0xD, 0x80000018, 0x8000001C, 0x8000001F, 0x20, 0x80000023,
)  # fmt: skip
_MIN_MACOS, _BUILD = 0x24, 0x32
_MOST_SLICES = 30
_MOST_COMMANDS = 1 << 14
_MOST_SYMBOLS = 1 << 22
_STAB, _TYPE, _EXTERNAL = 0xE0, 0x0E, 0x01


def read_macho(data: Buffer, path: Path) -> tuple[Binary, ...]:
    """Reads each architecture of a macOS library, extension module or program."""
    file = Bytes(data, path)
    magic = file.take(0, 4, "header")
    if magic[:3] != b"\xca\xfe\xba":
        return (_read_slice(file, 0, len(data)),)
    wide = magic == b"\xca\xfe\xba\xbf"
    layout = ">2I2Q2I" if wide else ">5I"
    count = file.unpack(">I", 4, "number of architectures")[0]
    if not 0 < count <= _MOST_SLICES:
        raise file.damaged(f"1 to {_MOST_SLICES} architectures", count)
    slices = []
    for index in range(count):
        row = file.unpack(layout, 8 + index * struct.calcsize(layout), "list of architectures")
        start, size = row[2], row[3]
        file.take(start, 28, "architecture")
        if start + size > len(data):
            raise file.damaged(f"an architecture that ends at {start + size}", f"a file of {len(data)} bytes")
        slices.append(_read_slice(file, start, size))
    return tuple(slices)


def _read_slice(file: Bytes, start: int, size: int) -> Binary:
    magic = file.take(start, 4, "header")
    order = "<" if magic[0] in b"\xce\xcf" else ">"
    if magic not in (b"\xce\xfa\xed\xfe", b"\xcf\xfa\xed\xfe", b"\xfe\xed\xfa\xce", b"\xfe\xed\xfa\xcf"):
        raise file.damaged("a Mach-O header", repr(magic))
    wide = magic in (b"\xcf\xfa\xed\xfe", b"\xfe\xed\xfa\xcf")
    machine, _, _, count, length = file.unpack(order + "5I", start + 4, "header")
    if count > _MOST_COMMANDS or length > size:
        raise file.damaged("load commands within the file", f"{count} commands of {length} bytes")
    place = start + (32 if wide else 28)
    last = place + length
    needed: list[Needed] = []
    rpaths: list[str] = []
    install_name, platform = "", "macOS"
    min_os: tuple[int, ...] = ()
    exports: frozenset[str] = frozenset()
    undefined: frozenset[str] = frozenset()
    for _ in range(count):
        command, step = file.unpack(order + "2I", place, "load command")
        if step < 8 or place + step > last:
            raise file.damaged("load commands one after the other", f"one of {step} bytes at {place}")
        if command in (_LOAD, _LOAD_WEAK, _REEXPORT, _LAZY, _UPWARD, _ID, _RPATH):
            name = file.string(place + file.unpack(order + "I", place + 8, "load command")[0], place + step)
            if command == _ID:
                install_name = name
            elif command == _RPATH:
                rpaths.append(name)
            elif name:
                needed.append(Needed(name, weak=command == _LOAD_WEAK, delayed=command == _LAZY))
        elif command == _MIN_MACOS:
            min_os = _version(file.unpack(order + "I", place + 8, "minimum system")[0])
        elif command == _BUILD:
            number, version = file.unpack(order + "2I", place + 8, "build version")
            min_os, platform = _version(version), _PLATFORMS.get(number, f"platform {number}")
        elif command == _SYMTAB:
            exports, undefined = _symbols(file, order, wide, start, file.unpack(order + "4I", place + 8, "symbols"))
        place += step
    return Binary(
        path=file.path,
        machine=_MACHINES.get(machine, f"machine 0x{machine:x}"),
        needed=tuple(needed),
        exports=exports,
        undefined=undefined,
        macho=MachOFacts(install_name=install_name, rpaths=tuple(rpaths), min_os=min_os, platform=platform),
    )


def _version(number: int) -> tuple[int, ...]:
    return (number >> 16, number >> 8 & 0xFF)


def _symbols(
    file: Bytes, order: str, wide: bool, start: int, row: tuple[int, ...]
) -> tuple[frozenset[str], frozenset[str]]:
    """Symbols offered and taken, without the underscore that C names carry there."""
    table, count, strings, strings_size = row
    if count > _MOST_SYMBOLS:
        raise file.damaged(f"at most {_MOST_SYMBOLS} symbols", count)
    layout = order + ("IBBHQ" if wide else "IBBHI")
    raw = file.table(start + table, count * struct.calcsize(layout), "symbol table")
    first, end = start + strings, start + strings + strings_size
    exports: set[str] = set()
    undefined: set[str] = set()
    for name_at, kind, *_ in struct.iter_unpack(layout, raw):
        if kind & _STAB or not kind & _EXTERNAL:
            continue
        name = file.string(first + name_at, end)
        (exports if kind & _TYPE else undefined).add(name.removeprefix("_"))
    return frozenset(exports), frozenset(undefined)
