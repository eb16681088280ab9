"""Small binaries of the three formats and wheels of them, made in memory for the tests."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path

PE_MACHINES = {"x64": 0x8664, "x86": 0x14C, "arm64": 0xAA64}
_CODE = 0x1000  # where the one section begins in memory
_RAW = 0x400  # and in the file


def pe(
    imports=None, exports=(), *, machine="x64", delayed=None, linker=(14, 44), rich=True, version=None, manifest="",
    pdb="", load_flags=0, dll=True,
):  # fmt: skip
    """A Windows DLL: library -> symbols (an int is an ordinal), and the names it exports."""
    body = bytearray(b"\xc3" + bytes(15))  # one function that returns
    wide = machine != "x86"
    pointer, ordinal = ("<Q", 1 << 63) if wide else ("<I", 1 << 31)

    def put(data, align=8):
        body.extend(bytes(-len(body) % align))
        body.extend(data)
        return _CODE + len(body) - len(data)

    def text(name):
        return put(name.encode() + b"\0", 2)

    def table(symbols):
        rows = []
        for symbol in symbols:
            if isinstance(symbol, int):
                rows.append(ordinal | symbol)
            else:
                rows.append(put(b"\0\0" + symbol.encode() + b"\0", 2))
        return put(b"".join(struct.pack(pointer, row) for row in [*rows, 0]))

    directories = [(0, 0)] * 16
    rows = []
    for library, symbols in (imports or {}).items():
        lookup, thunk = table(symbols), table(symbols)
        rows.append(struct.pack("<5I", lookup, 0, 0, text(library), thunk))
    if rows:
        directories[1] = (put(b"".join(rows) + bytes(20)), 20 * len(rows) + 20)
    rows = []
    for library, symbols in (delayed or {}).items():
        lookup, thunk = table(symbols), table(symbols)
        rows.append(struct.pack("<8I", 1, text(library), 0, thunk, lookup, 0, 0, 0))
    if rows:
        directories[13] = (put(b"".join(rows) + bytes(32)), 32 * len(rows) + 32)
    names = sorted(exports)
    if names:
        addresses = [text(name) for name in names]
        name_table = put(b"".join(struct.pack("<I", address) for address in addresses))
        functions = put(struct.pack("<I", _CODE) * len(names))
        ordinals = put(b"".join(struct.pack("<H", number) for number in range(len(names))))
        row = (0, 0, 0, 0, text("it.dll"), 1, len(names), len(names), functions, name_table, ordinals)
        directories[0] = (put(struct.pack("<2I2H7I", *row)), 40)
    resources = b""
    if version:
        high, low = version[0] << 16 | version[1], version[2] << 16 | version[3]
        resources += struct.pack("<4I", 0xFEEF04BD, 0x10000, high, low)
    if manifest:
        resources += f'<dependentAssembly><assemblyIdentity type="win32" name="{manifest}"/>'.encode()
    if resources:
        directories[2] = (put(resources), len(resources))
    if pdb:
        place = put(b"RSDS" + bytes(20) + pdb.encode() + b"\0")
        size = 25 + len(pdb)
        directories[6] = (put(struct.pack("<2I2H4I", 0, 0, 0, 0, 2, size, place, place - _CODE + _RAW)), 28)
    if load_flags:
        field = 78 if wide else 54
        directories[10] = (
            put(struct.pack("<I", 148) + bytes(field - 4) + struct.pack("<H", load_flags) + bytes(68)),
            148,
        )
    body.extend(bytes(-len(body) % 0x200))
    stub = b"MZ" + bytes(58) + struct.pack("<I", 0x80) + (b"Rich" if rich else b"\0\0\0\0") + bytes(60)
    header = b"PE\0\0" + struct.pack(
        "<2H3I2H", PE_MACHINES[machine], 1, 0, 0, 0, 240 if wide else 224, 0x2022 if dll else 0x22
    )
    size = (_CODE + len(body) + 0xFFF) & ~0xFFF
    optional = struct.pack("<H2B5I", 0x20B if wide else 0x10B, *linker, len(body), 0, 0, 0, _CODE)
    optional += struct.pack("<Q", 0x180000000) if wide else struct.pack("<2I", 0, 0x10000000)
    optional += struct.pack("<2I6H4I2H", 0x1000, 0x200, 6, 0, 0, 0, 6, 0, 0, size, _RAW, 0, 2, 0x160)
    optional += struct.pack("<4Q2I" if wide else "<4I2I", 0x100000, 0x1000, 0x100000, 0x1000, 0, 16)
    optional += b"".join(struct.pack("<2I", *directory) for directory in directories)
    section = struct.pack("<8s6I2HI", b".text", len(body), _CODE, len(body), _RAW, 0, 0, 0, 0, 0xE0000060)
    head = stub + header + optional + section
    return head + bytes(_RAW - len(head)) + bytes(body)


def elf(
    needed=(), exports=(), *, undefined=(), versions=None, machine=62, soname="", rpath="", runpath="", stack=6,
    sections=True,
):  # fmt: skip
    """A 64-bit ELF library; ``versions`` is library -> version -> symbols."""
    strings = bytearray(b"\0")

    def text(name):
        strings.extend(name.encode() + b"\0")
        return len(strings) - len(name.encode()) - 1

    rows = [(name, 0, 1) for name in undefined] + [(name, 1, 1) for name in exports]
    indices, needs, number = [1 if section else 0 for _, section, _ in rows], b"", 2
    libraries = list((versions or {}).items())
    for position, (library, by_version) in enumerate(libraries):
        auxiliary = b""
        for place, (version, symbols) in enumerate(by_version.items()):
            last = place == len(by_version) - 1
            auxiliary += struct.pack("<I2H2I", 0, 0, number, text(version), 0 if last else 16)
            rows += [(symbol, 0, 1) for symbol in symbols]
            indices += [number] * len(symbols)
            number += 1
        step = 0 if position == len(libraries) - 1 else 16 + len(auxiliary)
        needs += struct.pack("<2H3I", 1, len(by_version), text(library), 16, step) + auxiliary
    symbols = bytes(24) + b"".join(
        struct.pack("<IBBHQQ", text(name), binding << 4 | 2, 0, section, 0, 0) for name, section, binding in rows
    )
    version_rows = struct.pack(f"<{len(indices) + 1}H", 0, *indices)
    tags = [(1, text(name)) for name in needed]
    tags += [(tag, text(value)) for tag, value in ((14, soname), (15, rpath), (29, runpath)) if value]
    head = 64 + 3 * 56
    place = head
    strings_at, symbols_at = place, place + len(strings)
    versions_at = symbols_at + len(symbols)
    needs_at = versions_at + len(version_rows)
    dynamic_at = needs_at + len(needs)
    dynamic = b"".join(struct.pack("<qQ", *tag) for tag in [*tags, (5, strings_at), (10, len(strings)), (0, 0)])
    names_at = dynamic_at + len(dynamic)
    names = b"\0.dynsym\0"
    sections_at = names_at + len(names)
    table = [
        (0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        (1, 11, 2, symbols_at, symbols_at, len(symbols), 2, 1, 8, 24),
        (1, 3, 2, strings_at, strings_at, len(strings), 0, 0, 1, 0),
        (1, 0x6FFFFFFF, 2, versions_at, versions_at, len(version_rows), 1, 0, 2, 2),
        (1, 0x6FFFFFFE, 2, needs_at, needs_at, len(needs), 2, len(libraries), 4, 0),
        (1, 3, 0, 0, names_at, len(names), 0, 0, 1, 0),
    ]
    if not needs:
        table[4] = table[3] = table[0]
    if not sections:
        table = []
    total = sections_at + 64 * len(table)
    segments = [
        (1, 5, 0, 0, 0, total, total, 0x1000),
        (2, 6, dynamic_at, dynamic_at, dynamic_at, len(dynamic), len(dynamic), 8),
    ]
    segments.append((0x6474E551, stack, 0, 0, 0, 0, 0, 16))
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    header = ident + struct.pack(
        "<2HI3QI6H", 3, machine, 1, 0, 64, sections_at if table else 0, 0, 64, 56, 3, 64, len(table), 5 if table else 0
    )
    out = header + b"".join(struct.pack("<2I6Q", *segment) for segment in segments) + bytes(strings)
    out += symbols + version_rows + needs + dynamic + names
    return out + b"".join(struct.pack("<2I4Q2I2Q", *row) for row in table)


def macho(needed=(), exports=(), *, undefined=(), machine=0x0100000C, rpaths=(), min_os=(11, 0), install_name=""):
    """A thin 64-bit Mach-O library."""

    def named(command, name, extra=b""):
        data = struct.pack("<3I", command, 0, 12 + len(extra)) + extra + name.encode() + b"\0"
        data += bytes(-len(data) % 8)
        return data[:4] + struct.pack("<I", len(data)) + data[8:]

    commands = [named(0xD, install_name, bytes(12))] if install_name else []
    commands += [named(0x80000018 if name.startswith("?") else 0xC, name.lstrip("?"), bytes(12)) for name in needed]
    commands += [named(0x8000001C, name) for name in rpaths]
    commands.append(struct.pack("<6I", 0x32, 24, 1, min_os[0] << 16 | min_os[1] << 8, 0, 0))
    head = 32 + sum(map(len, commands)) + 24
    strings = bytearray(b"\0")
    table = b""
    for name, kind in [(name, 0x0F) for name in exports] + [(name, 0x01) for name in undefined]:
        table += struct.pack("<IBBHQ", len(strings), kind, 0, 0, 0)
        strings.extend(b"_" + name.encode() + b"\0")
    count = len(exports) + len(undefined)
    commands.append(struct.pack("<6I", 0x2, 24, head, count, head + len(table), len(strings)))
    header = struct.pack("<8I", 0xFEEDFACF, machine, 0, 6, len(commands), sum(map(len, commands)), 0, 0)
    return header + b"".join(commands) + table + bytes(strings)


def universal(*slices):
    """A universal file of some thin ones."""
    place = 0x1000
    rows, body = b"", b""
    for data in slices:
        machine = struct.unpack_from("<I", data, 4)[0]
        rows += struct.pack(">5I", machine, 0, place + len(body), len(data), 12)
        body += data + bytes(-len(data) % 0x1000)
    head = struct.pack(">2I", 0xCAFEBABE, len(slices)) + rows
    return head + bytes(place - len(head)) + body


def wheel(folder, name, files, *, requires=(), tags=None):
    """A wheel: member -> bytes or text."""
    path = Path(folder) / name
    distribution, version, *rest = name[:-4].split("-")
    info = f"{distribution}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n"
    metadata += "".join(f"Requires-Dist: {need}\n" for need in requires)
    expanded = tags or [
        f"{p}-{a}-{f}" for p in rest[-3].split(".") for a in rest[-2].split(".") for f in rest[-1].split(".")
    ]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in files.items():
            archive.writestr(member, data)
        archive.writestr(f"{info}/METADATA", metadata)
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\n" + "".join(f"Tag: {tag}\n" for tag in expanded))
    return path
