"""Libraries of three formats, byte by byte: no more in them than what tools/wheel_gate reads, each knob a fault."""

from __future__ import annotations

import struct

# One function each; of the wide ones some processors have none.
RETURN = {"x86_64": b"\xc3", "aarch64": b"\xc0\x03\x5f\xd6"}
ADD_AVX, FMA, ADD_AVX512 = b"\xc5\xfc\x58\xc1", b"\xc4\xe2\x7d\xb8\xc1", b"\x62\xf1\x7c\x48\x58\xc1"
POPCNT, SHUFFLE_SSSE3, TZCNT = b"\xf3\x0f\xb8\xc1", b"\x66\x0f\x38\x00\xc1", b"\xf3\x0f\xbc\xc1"
ANDN = b"\xc4\xe2\xf0\xf2\xc2"
FROM_HALVES = b"\xc4\xe2\x7d\x13\xc1"  # vcvtph2ps ymm0, xmm1
ADD_HALVES, ADD_SCALABLE = b"\x20\x14\x42\x4e", b"\x20\x00\xa2\x04"
LDADD, DOT = b"\x41\x00\x20\xb8", b"\x20\x94\x82\x6e"
# call of what comes 4200 bytes and a return later; lea rax, of the same; call of what comes after one return
FAR = b"\x90" * 4200 + b"\xc3"
CALL_NEXT, ADDRESS_OF_NEXT = (code + struct.pack("<i", len(FAR)) + FAR for code in (b"\xe8", b"\x48\x8d\x05"))
CALL_OVER_RETURN = b"\xe8" + struct.pack("<i", 1)
WIDE = {"x86_64": ADD_AVX + FMA + b"\xc3", "aarch64": None}


def strings(names):
    """A table of strings and the place of each in it."""
    table, places = b"\0", {}
    for name in names:
        places[name] = len(table)
        table += name.encode() + b"\0"
    return table, places


def elf(
    exports, *, machine="x86_64", code=None, wide=(), needs=("libc.so.6",), versions=("GLIBC_2.17",), stack=6,
    relro=True, now=True, text_relocations=False, run_path=False, symbols=False, debug=False, kind=3,
):  # fmt: skip
    """An ELF library."""
    code = RETURN[machine] if code is None else code
    wide = WIDE[machine] if wide == () else wide
    text, at = strings([*exports, *needs, *versions, "/opt/lib"])
    symbol_table = bytes(24) + b"".join(struct.pack("<IBBHQQ", at[name], 0x12, 0, 1, 0x1000, 1) for name in exports)
    needed_versions = struct.pack("<HHIII", 1, len(versions), at[needs[0]] if needs else 0, 16, 0)
    for i, name in enumerate(versions):
        needed_versions += struct.pack("<IHHII", 0, 0, i + 2, at[name], 16 if i + 1 < len(versions) else 0)
    tags = [(1, at[name]) for name in needs]
    tags += [(30, 8)] if now else []
    tags += [(22, 0)] if text_relocations else []
    tags += [(29, at["/opt/lib"])] if run_path else []
    dynamic = b"".join(struct.pack("<QQ", *tag) for tag in [*tags, (0, 0)])
    # name, type, flags, contents, linked section, size of an entry, information
    sections = [
        (".dynstr", 3, 2, text, 0, 0, 0),
        (".dynsym", 11, 2, symbol_table, 1, 24, 1),
        (".gnu.version_r", 0x6FFFFFFE, 2, needed_versions if versions else b"", 1, 0, 1 if versions else 0),
        (".dynamic", 6, 3, dynamic, 1, 16, 0),
        (".text", 1, 6, code, 0, 0, 0),
    ]
    sections += [(".avx2", 1, 6, wide, 0, 0, 0)] if wide else []
    sections += [(".symtab", 2, 0, symbol_table, 1, 24, 1)] if symbols else []
    sections += [(".debug_info", 1, 0, b"\1", 0, 0, 0)] if debug else []
    names, named = strings([*(section[0] for section in sections), ".shstrtab"])
    sections.append((".shstrtab", 3, 0, names, 0, 0, 0))
    segments = [(0x6474E551, stack), *([(0x6474E552, 4)] if relro else [])]
    offset = 64 + 56 * len(segments)
    headers, contents = [bytes(64)], b""
    for name, section_type, flags, data, link, entry, information in sections:
        place = offset + len(contents)
        headers.append(
            struct.pack(
                "<IIQQQQIIQQ", named[name], section_type, flags, place, place, len(data), link, information, 1, entry
            )
        )
        contents += data
    number = {"x86_64": 62, "aarch64": 183}[machine]
    header = b"\x7fELF\2\1\1" + bytes(9) + struct.pack(
        "<HHIQQQIHHHHHH", kind, number, 1, 0, 64, offset + len(contents), 0, 64, 56, len(segments), 64, len(headers),
        len(headers) - 1,
    )  # fmt: skip
    programs = b"".join(struct.pack("<IIQQQQQQ", kind, flags, 0, 0, 0, 0, 0, 1) for kind, flags in segments)
    return header + programs + contents + b"".join(headers)


def pe(
    exports, *, machine="x86_64", code=None, wide=(), needs=("KERNEL32.dll", "api-ms-win-crt-heap-l1-1-0.dll"),
    delayed=(), protections=0x160, timestamp=0, reproducible=False, debug=False, symbols=0, numbers=0,
    characteristics=0x2022,
):  # fmt: skip
    """A PE library."""
    code = RETURN[machine] if code is None else code
    wide = WIDE[machine] if wide == () else wide
    base, raw = 0x3000, 0x1000  # of the section of tables: address, place
    tables = bytearray(4096)
    end = 0

    def put(data):
        nonlocal end
        address = base + end
        tables[end : end + len(data)] = data
        end += len(data)
        return address

    names = [put(name.encode() + b"\0") for name in sorted(exports)]
    name_table = put(struct.pack(f"<{len(names)}I", *names))
    export_table = put(
        struct.pack("<IIHHIIIIIII", 0, 0, 0, 0, 0, 1, len(names) + numbers, len(names), 0, name_table, 0)
    )
    directories = {0: (export_table, 40)}
    for index, libraries, size, name_at in ((1, needs, 20, 12), (13, delayed, 32, 4)):
        if not libraries:
            continue
        at = [put(name.encode() + b"\0") for name in libraries]
        rows = b"".join(bytes(name_at) + struct.pack("<I", a) + bytes(size - name_at - 4) for a in at)
        directories[index] = (put(rows + bytes(size)), len(rows) + size)
    kinds = [16] * reproducible + [2] * debug
    if kinds:
        entries = b"".join(struct.pack("<IIHHIIII", 0, timestamp, 0, 0, kind, 0, 0, 0) for kind in kinds)
        directories[6] = (put(entries), len(entries))
    sections = [
        (b".text", 0x1000, code, 0x200, 0x60000020),
        (b".rdata", base, bytes(tables), raw, 0x40000040),
    ]
    if wide:
        sections.insert(1, (b".avx2", 0x2000, wide, 0x400, 0x60000020))
    number = {"x86_64": 0x8664, "aarch64": 0xAA64}[machine]
    image = bytearray(raw + len(tables))
    image[:2] = b"MZ"
    struct.pack_into("<I", image, 0x3C, 0x40)
    image[0x40:0x44] = b"PE\0\0"
    struct.pack_into("<HHIIIHH", image, 0x44, number, len(sections), timestamp, symbols, 0, 240, characteristics)
    struct.pack_into("<H", image, 0x58, 0x20B)
    struct.pack_into("<H", image, 0x58 + 70, protections)
    struct.pack_into("<I", image, 0x58 + 108, 16)
    for index, pair in directories.items():
        struct.pack_into("<II", image, 0x58 + 112 + 8 * index, *pair)
    for i, (name, address, data, place, flags) in enumerate(sections):
        header = 0x58 + 240 + 40 * i
        image[header : header + len(name)] = name
        struct.pack_into("<IIII", image, header + 8, len(data), address, len(data), place)
        struct.pack_into("<I", image, header + 36, flags)
        image[place : place + len(data)] = data
    return bytes(image)


def leb128(number):
    """A number of any length, seven bits a byte."""
    data = b""
    while number > 0x7F:
        data += bytes([number & 0x7F | 0x80])
        number >>= 7
    return data + bytes([number])


def trie(names):
    """A tree of exports with one edge to each name, and the shared start of all names before them."""
    leaf = b"\2\0\x10\0"  # two bytes of information, no children
    shared = len(b"\0\1_\0") + 1
    children = [name.encode() + b"\0" for name in names]
    first = shared + 2 + sum(len(child) + 2 for child in children)
    edges = b"".join(
        child + struct.pack("BB", (first + 4 * i) & 0x7F | 0x80, (first + 4 * i) >> 7)
        for i, child in enumerate(children)
    )
    return b"\0\1_\0" + bytes([shared]) + b"\0" + bytes([len(names)]) + edges + leaf * len(names)


def macho(
    exports, *, machine="aarch64", code=None, wide=(), needs=("/usr/lib/libSystem.B.dylib",), minimum=(11, 0),
    system=1, signed=True, run_path=False, two_level=True, debug=False, kind=6, old_commands=False,
):  # fmt: skip
    """A Mach-O library; old_commands: as they were before macOS 10.14 and 12."""
    code = RETURN[machine] if code is None else code
    wide = WIDE[machine] if wide == () else wide
    pieces, places = b"", []
    for piece in (
        code,
        wide or b"",
        trie(list(exports)),
        struct.pack(">IIIIIII", 0xFADE0CC0, 28, 1, 0, 20, 0xFADE0C02, 8),
    ):
        places.append((0x4000 + len(pieces), len(piece)))
        pieces += piece
    sections = [("__text", places[0]), *([("__avx2", places[1])] if wide else [])]
    segment = struct.pack("<16sQQQQIIII", b"__TEXT", 0, 0x8000, 0, 0x8000, 5, 5, len(sections), 0)
    for name, (place, size) in sections:
        segment += struct.pack(
            "<16s16sQQIIIIIIII", name.encode(), b"__TEXT", place, size, place, 0, 0, 0, 0x80000400, 0, 0, 0
        )
    version = minimum[0] << 16 | minimum[1] << 8
    commands = [(0x19, segment)]
    commands += [(0xC, struct.pack("<IIII", 24, 0, 0, 0) + name.encode() + b"\0") for name in needs]
    if old_commands:
        commands += [(0x24, struct.pack("<II", version, 0)), (0x80000022, bytes(32) + struct.pack("<II", *places[2]))]
    else:
        commands += [
            (0x32, struct.pack("<IIII", system, version, 0, 0)),
            (0x80000033, struct.pack("<II", *places[2])),
        ]
    commands += [(0x8000001C, struct.pack("<I", 12) + b"/opt/lib\0")] if run_path else []
    commands += [(0x1D, struct.pack("<II", *places[3]))] if signed else []
    commands += [(0x19, struct.pack("<16sQQQQIIII", b"__DWARF", 0, 0, 0, 0, 0, 0, 0, 0))] if debug else []
    packed = b""
    for command, data in commands:
        data += bytes(-len(data) % 8)
        packed += struct.pack("<II", command, len(data) + 8) + data
    number = {"x86_64": 0x01000007, "aarch64": 0x0100000C}[machine]
    header = struct.pack("<8I", 0xFEEDFACF, number, 0, kind, len(commands), len(packed), 0x85 if two_level else 5, 0)
    return (header + packed).ljust(0x4000, b"\0") + pieces
