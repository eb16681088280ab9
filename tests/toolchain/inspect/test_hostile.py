"""Files made to keep a reader busy: tables and names that share their bytes, so that a small file is endless work."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

pytest.importorskip("pefile", reason="Windows files are read with pefile")
pytest.importorskip("elftools", reason="Linux files are read with pyelftools")

from tests.toolchain.inspect import binaries

from sage_attention import DataError
from sage_attention.cli import main
from sage_attention.toolchain.inspect import reading
from sage_attention.toolchain.inspect.expected import declared

NAMES = 20_000
TEXT = b"\0" + b"".join(b"%07d" % number for number in range(60_000))  # one name of 420,000 characters
STRINGS, DYNAMIC_SYMBOLS, VERSIONS_NEEDED = 3, 11, 0x6FFFFFFE


def read(data):
    return reading._read(reading._format_of(data[:8]), data, Path("file"))


def elf(*sections):
    """An ELF file of sections alone: (type, bytes, link)."""
    place, body, rows = 64, b"", b""
    for kind, data, link in ((0, b"", 0), *sections):
        rows += struct.pack("<2I4Q2I2Q", 0, kind, 0, 0, place, len(data), link, 0, 1, 0)
        body, place = body + data, place + len(data)
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    head = struct.pack("<2HI3QI6H", 3, 62, 1, 0, 0, place, 0, 64, 56, 0, 64, len(sections) + 1, 0)
    return ident + head + body + rows


def elf_names():
    symbols = b"".join(struct.pack("<IBBHQQ", 1 + number, 0x12, 0, 1, 0, 0) for number in range(NAMES))
    return elf((DYNAMIC_SYMBOLS, symbols, 2), (STRINGS, TEXT, 0))


def elf_versions():
    """Each row of one table begins the whole other table."""
    outer, inner = 4000, 60_000
    rows = (
        struct.pack("<2H3I", 1, inner, 1, 16 * (outer - number), 16 * (number < outer - 1)) for number in range(outer)
    )
    table = b"".join(rows) + struct.pack("<I2H2I", 0, 0, 2, 1, 16) * inner
    return elf((VERSIONS_NEEDED, table, 2), (STRINGS, b"\0libc.so.6\0", 0))


def macho(*symbol_tables, body=b""):
    size = 24 * len(symbol_tables)
    head = struct.pack("<8I", 0xFEEDFACF, 0x01000007, 0, 6, len(symbol_tables), size, 0, 0)
    return head + b"".join(struct.pack("<6I", 2, 24, *table) for table in symbol_tables) + body


def macho_names():
    symbols = b"".join(struct.pack("<IBBHQ", 1 + number, 0x0F, 1, 0, 0) for number in range(NAMES))
    return macho((56, NAMES, 56 + len(symbols), len(TEXT)), body=symbols + TEXT)


def macho_tables():
    symbols = struct.pack("<IBBHQ", 1, 0x0F, 1, 0, 0) * NAMES
    at = 32 + 24 * 10_000
    return macho(*[(at, NAMES, at + len(symbols), 6)] * 10_000, body=symbols + b"\0_abc\0")


def pe_names():
    """An export table put behind a whole file, in its last section."""
    import pefile

    data = bytearray(binaries.pe({}, ["PyInit_a"]))
    headers = pefile.PE(data=bytes(data))
    last = headers.sections[-1]
    address = last.VirtualAddress + len(data) - last.PointerToRawData
    text = address + 40 + 4 * NAMES
    table = struct.pack("<2I2H7I", 0, 0, 0, 0, text, 1, 0, NAMES, 0, address + 40, 0)
    data += table + b"".join(struct.pack("<I", text + 1 + number) for number in range(NAMES)) + TEXT
    size = len(data) - last.PointerToRawData
    struct.pack_into("<I", data, last.get_file_offset() + 8, size)
    struct.pack_into("<I", data, last.get_file_offset() + 16, size)
    struct.pack_into("<2I", data, headers.OPTIONAL_HEADER.DATA_DIRECTORY[0].get_file_offset(), address, 40)
    return bytes(data)


@pytest.mark.parametrize("made", [elf_names, macho_names, pe_names])
def test_names_that_share_their_bytes(made):
    with pytest.raises(DataError, match="names that lie side by side"):
        read(made())


def test_tables_that_share_their_bytes():
    with pytest.raises(DataError, match="tables that lie side by side"):
        read(macho_tables())


def test_versions_without_end():
    with pytest.raises(DataError, match="a table has no end"):
        read(elf_versions())


def test_as_many_sections_as_there_can_be():
    assert read(elf(*[(1, b"", 0)] * 60_000))[0].exports == frozenset()


@pytest.mark.parametrize("text", ["/* " * 200_000, " " * 60_000 + "@", "int f(x)" + " " * 60_000 + "@", "a " * 60_000])
def test_headers_without_end(text):
    assert declared(text) == []


def test_a_chain_of_libraries(tmp_path, capsys):
    """Longer than Python's stack is deep; each is read once, not once for each that asks for it."""
    last = 1200
    files = {
        f"a/b{n}.dll": binaries.pe({f"b{n + 1}.dll": ["f"]} if n < last else {"gone.dll": ["f"]}, ["f"])
        for n in range(last + 1)
    }
    files["a/a.pyd"] = binaries.pe({"b0.dll": ["f"], "python311.dll": ["PyModule_Create2"]}, ["PyInit_a"])
    path = binaries.wheel(tmp_path, "a-1.0-cp311-cp311-win_amd64.whl", files)
    for words in (["--lang", "en"], ["--format", "json"]):
        assert main(["inspect", str(path), *words]) == 0
        assert "gone.dll" in capsys.readouterr().out
