"""Reads Mach-O libraries: the few load commands the gate asks about, of 64-bit files for one processor."""

from __future__ import annotations

import struct

from .library import Code, Library, UnreadableError

MACHINES = {0x01000007: "x86_64", 0x0100000C: "aarch64"}
MAGIC = 0xFEEDFACF
LIBRARIES = (6, 8)  # MH_DYLIB, MH_BUNDLE: ctypes loads both
SEGMENT, CODE_SIGNATURE, EXPORTS_TRIE, BUILD_VERSION, MINIMUM_MACOS, RPATH = 0x19, 0x1D, 0x33, 0x32, 0x24, 0x1C
LOADED = (0xC, 0x18, 0x1F, 0x20, 0x23)  # a library: plain, weak, re-exported, lazily, upward
DYLD_INFO, DATA_IN_CODE = 0x22, 0x29
REQUIRED = 0x80000000
INSTRUCTIONS = 0x80000400
MACOS = 1
MOST_LETTERS = 10_000  # of a name
LINKER_MADE = {"_mh_dylib_header", "_mh_bundle_header", "__dso_handle"}  # some linkers offer these of themselves


def read(data: bytes) -> Library:
    """The library in ``data``.

    Raises:
        UnreadableError: It is no 64-bit Mach-O library.
    """
    try:
        magic, machine, _, kind, count, _, flags, _ = struct.unpack_from("<8I", data)
        if magic != MAGIC or kind not in LIBRARIES:
            raise UnreadableError(f"expected a 64-bit Mach-O library, got magic {magic:#x} and type {kind}")
        library = Library("macos", MACHINES.get(machine, hex(machine)))
        signed = False
        data_in_code: list[tuple[int, int]] = []
        at = 32
        for _ in range(count):
            command, size = struct.unpack_from("<II", data, at)
            if size < 8:
                raise ValueError("a load command is smaller than its own heading")
            command &= ~REQUIRED
            if command in LOADED:
                library.needs.add(_text(data, at + struct.unpack_from("<I", data, at + 8)[0]))
            elif command == SEGMENT:
                _read_segment(data, at, library)
            elif command == EXPORTS_TRIE:
                library.exports |= _trie(data, *struct.unpack_from("<II", data, at + 8))
            elif command == DYLD_INFO:
                library.exports |= _trie(data, *struct.unpack_from("<II", data, at + 40))
            elif command == DATA_IN_CODE:
                begin, length = struct.unpack_from("<II", data, at + 8)
                entries = (struct.unpack_from("<IHH", data, begin + i) for i in range(0, length, 8))
                data_in_code += [(offset, offset + count) for offset, count, _ in entries]
            elif command == BUILD_VERSION:
                platform, version = struct.unpack_from("<II", data, at + 8)
                library.minimum_os = _version(version)
                if platform != MACOS:
                    library.weaknesses.append(f"is for platform {platform}, which is not macOS")
            elif command == MINIMUM_MACOS:
                library.minimum_os = _version(struct.unpack_from("<I", data, at + 8)[0])
            elif command == RPATH:
                library.weaknesses.append("has a search path of its own (LC_RPATH)")
            elif command == CODE_SIGNATURE:
                signed = _is_signature(data, struct.unpack_from("<I", data, at + 8)[0])
            at += size
        library.exports -= LINKER_MADE
        library.code = [piece for code in library.code for piece in _without(code, sorted(data_in_code))]
        if library.machine == "aarch64" and not signed:
            library.weaknesses.append("has no code signature, without which Apple's processors refuse to run it")
        if not flags & 0x80:
            library.weaknesses.append("names of other libraries may stand in for its imports (no MH_TWOLEVEL)")
    except (struct.error, ValueError, IndexError) as error:
        raise UnreadableError(f"expected a Mach-O library, got a damaged one ({error})") from error
    return library


def _text(data: bytes, begin: int) -> str:
    return data[begin : data.index(b"\0", begin)].decode("utf-8", "replace")


def _version(packed: int) -> tuple[int, int]:
    return packed >> 16, packed >> 8 & 0xFF


def _is_signature(data: bytes, begin: int) -> bool:
    """Is there a table of signatures with a code directory in it?"""
    magic, _, count = struct.unpack_from(">III", data, begin)
    slots = [struct.unpack_from(">II", data, begin + 12 + 8 * i) for i in range(count)]
    directories = [offset for slot, offset in slots if slot == 0]
    return magic == 0xFADE0CC0 and any(
        struct.unpack_from(">I", data, begin + offset)[0] == 0xFADE0C02 for offset in directories
    )


def _read_segment(data: bytes, at: int, library: Library) -> None:
    segment = data[at + 8 : at + 24].rstrip(b"\0").decode("ascii", "replace")
    for i in range(struct.unpack_from("<I", data, at + 64)[0]):
        section = at + 72 + 80 * i
        name = data[section : section + 16].rstrip(b"\0").decode("ascii", "replace")
        address, size, offset = struct.unpack_from("<QQI", data, section + 32)
        if struct.unpack_from("<I", data, section + 64)[0] & INSTRUCTIONS:
            library.add_code(data, name, address, offset, size)
    if segment == "__DWARF":
        library.weaknesses.append("has debug information")


def _without(code: Code, data_in_code: list[tuple[int, int]]) -> list[Code]:
    """The pieces of a section between tables for jumps, which are no instructions. A library begins at address 0."""
    pieces, at, end = [], code.address, code.address + len(code.data)
    for first, last in [*data_in_code, (end, end)]:
        if at < first <= end:
            pieces.append(Code(code.name, at, code.data[at - code.address : first - code.address]))
        at = max(at, min(last, end))
    return pieces


def _number(data: bytes, at: int) -> tuple[int, int]:
    """An LEB128 number and the place behind it."""
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if byte < 0x80:
            return number, at


def _trie(data: bytes, begin: int, size: int) -> set[str]:
    """The names in a tree of exports; C names, that is without their underscore."""
    tree = data[begin : begin + size]
    names: set[str] = set()
    seen: set[int] = set()
    waiting = [(0, "")] if tree else []
    while waiting:
        node, prefix = waiting.pop()
        if node in seen:
            raise ValueError("a node of its tree of exports has two parents")
        seen.add(node)
        here, at = _number(tree, node)
        if here:
            names.add(prefix.removeprefix("_"))
        at += here
        children, at = tree[at], at + 1
        for _ in range(children):
            end = tree.index(b"\0", at)
            edge = tree[at:end].decode("utf-8", "replace")
            child, at = _number(tree, end + 1)
            if len(prefix) + len(edge) > MOST_LETTERS:
                raise ValueError("a name in its tree of exports has no end")
            waiting.append((child, prefix + edge))
    return names
