"""Reads PE libraries: the few tables the gate asks about, of 64-bit images."""

from __future__ import annotations

import struct

from .library import Library, UnreadableError

MACHINES = {0x8664: "x86_64", 0xAA64: "aarch64"}
DLL = 0x2000
PROTECTIONS = {
    0x20: "addresses above 4 GB are not asked for (HIGH_ENTROPY_VA)",
    0x40: "cannot be loaded anywhere (DYNAMIC_BASE, for ASLR)",
    0x100: "data may be executed (NX_COMPAT)",
}
EXPORTS, IMPORTS, DEBUG, DELAYED = 0, 1, 6, 13
REPRODUCIBLE = 16  # in the table of debug information: the time stamp is a hash of the contents
EXECUTABLE = 0x20000000


class Image:
    """The headers of an image, and its bytes by relative address."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        if data[:2] != b"MZ" or data[(pe := self.u32(0x3C)) : pe + 4] != b"PE\0\0":
            raise UnreadableError("expected a PE library, got no PE signature")
        self.machine, sections, self.timestamp, self.symbols, _, size, self.characteristics = struct.unpack_from(
            "<HHIIIHH", data, pe + 4
        )
        optional = pe + 24
        if struct.unpack_from("<H", data, optional)[0] != 0x20B:
            raise UnreadableError("expected a 64-bit PE library, got another kind of image")
        self.dll_characteristics = struct.unpack_from("<H", data, optional + 70)[0]
        count = self.u32(optional + 108)
        self.directories = [struct.unpack_from("<II", data, optional + 112 + 8 * i) for i in range(count)]
        self.sections = [self._section(optional + size + 40 * i) for i in range(sections)]

    def _section(self, at: int) -> tuple[str, int, int, int, int, int]:
        """Name, relative address, size in memory, place and size in the file, characteristics."""
        name = self.data[at : at + 8].rstrip(b"\0").decode("ascii", "replace")
        size, address, raw_size, raw = struct.unpack_from("<IIII", self.data, at + 8)
        return name, address, size, raw, raw_size, self.u32(at + 36)

    def u32(self, at: int) -> int:
        """The number at a place of the file."""
        return int(struct.unpack_from("<I", self.data, at)[0])

    def place(self, address: int) -> int:
        """The place in the file of a relative address."""
        for _, begin, size, raw, raw_size, _ in self.sections:
            if begin <= address < begin + max(size, raw_size):
                return address - begin + raw
        raise UnreadableError(f"expected an address inside a section, got {address:#x}")

    def text(self, address: int) -> str:
        """The string at a relative address."""
        begin = self.place(address)
        return self.data[begin : self.data.index(b"\0", begin)].decode("ascii", "replace")

    def directory(self, index: int) -> int:
        """The relative address of a table, 0 where there is none."""
        return self.directories[index][0] if index < len(self.directories) else 0


def read(data: bytes) -> Library:
    """The library in ``data``.

    Raises:
        UnreadableError: It is no 64-bit PE library.
    """
    try:
        image = Image(data)
        library = Library("windows", MACHINES.get(image.machine, hex(image.machine)))
        library.needs = _imported(image, IMPORTS, 20, 12) | _imported(image, DELAYED, 32, 4)
        library.exports = _exported(image)
        if any(raw + raw_size > len(data) for _, _, _, raw, raw_size, _ in image.sections):
            raise UnreadableError("expected a whole PE library, got one that ends within a section")
        for name, address, size, raw, raw_size, flags in image.sections:
            if flags & EXECUTABLE:
                library.add_code(data, name, address, raw, min(size, raw_size))
        library.weaknesses = [text for flag, text in PROTECTIONS.items() if not image.dll_characteristics & flag]
        if not image.characteristics & DLL:
            library.weaknesses.append("is not marked as a library (DLL)")
        if image.symbols:
            library.weaknesses.append("has a table of symbols")
        debug = _debug_types(image)
        if debug - {REPRODUCIBLE}:
            library.weaknesses.append("has debug information, which names a file of the machine that built it")
        if image.timestamp and REPRODUCIBLE not in debug:
            library.weaknesses.append(f"has a time stamp ({image.timestamp:#x})")
    except (struct.error, ValueError) as error:
        raise UnreadableError(f"expected a PE library, got a damaged one ({error})") from error
    return library


def _imported(image: Image, directory: int, size: int, name_at: int) -> set[str]:
    """The libraries of a table of imports, whose entries have ``size`` bytes."""
    names = set()
    if image.directory(directory):
        at = image.place(image.directory(directory))
        while name := image.u32(at + name_at):
            names.add(image.text(name))
            at += size
    return names


def _debug_types(image: Image) -> set[int]:
    """The kinds of debug information."""
    if not image.directory(DEBUG):
        return set()
    at = image.place(image.directory(DEBUG))
    return {image.u32(at + 12 + 28 * i) for i in range(image.directories[DEBUG][1] // 28)}


def _exported(image: Image) -> set[str]:
    if not image.directory(EXPORTS):
        return set()
    at = image.place(image.directory(EXPORTS))
    functions, count, names = image.u32(at + 20), image.u32(at + 24), image.place(image.u32(at + 32))
    if max(functions, count) > len(image.data) // 4:
        raise ValueError("a table of exports that is larger than the file")
    exported = {image.text(image.u32(names + 4 * i)) for i in range(count)}
    # Functions that have a number only are exported too.
    return exported | {f"#{i}" for i in range(count, functions)}
