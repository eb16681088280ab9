"""What is read from each format, and that damage ends in one clear error."""

from __future__ import annotations

import pytest

pytest.importorskip("pefile", reason="Windows files are read with pefile")
pytest.importorskip("elftools", reason="Linux files are read with pyelftools")

from tests.toolchain.inspect import binaries

from sage_attention import DataError
from sage_attention.toolchain.inspect.reading import read_binaries


def read(tmp_path, data):
    path = tmp_path / "file"
    path.write_bytes(data)
    read_binaries.cache_clear()
    return read_binaries(path)


@pytest.mark.parametrize("machine", ["x64", "x86", "arm64"])
def test_pe(tmp_path, machine):
    data = binaries.pe(
        {"KERNEL32.dll": ["Sleep", "GetLastError"], "by_number.dll": [12]}, ["PyInit_a", "?f@@YAXXZ"], machine=machine,
        delayed={"later.dll": ["g"]}, version=(14, 38, 33130, 1), manifest="Microsoft.VC90.CRT", pdb="D:\\a\\it.pdb",
        load_flags=0x800,
    )  # fmt: skip
    (binary,) = read(tmp_path, data)
    assert (binary.format, binary.machine) == ("PE", machine)
    assert [(n.library, n.symbols, n.delayed) for n in binary.needed] == [
        ("KERNEL32.dll", ("Sleep", "GetLastError"), False),
        ("by_number.dll", ("#12",), False),
        ("later.dll", ("g",), True),
    ]
    assert binary.exports == {"PyInit_a", "?f@@YAXXZ", "#1", "#2"}
    assert binary.pe.linker == (14, 44)
    assert binary.pe.made_by == "MSVC"
    assert binary.pe.file_version == (14, 38, 33130, 1)
    assert binary.pe.assemblies == ("Microsoft.VC90.CRT",)
    assert binary.pe.pdb == "D:\\a\\it.pdb"
    assert binary.pe.load_flags == 0x800
    assert binary.pe.is_dll


@pytest.mark.parametrize(
    ("linker", "rich", "name"),
    [((14, 0), False, "LLVM"), ((2, 43), False, "GNU"), ((14, 0), True, "MSVC"), ((3, 1), False, "")],
)
def test_pe_maker(tmp_path, linker, rich, name):
    (binary,) = read(tmp_path, binaries.pe(linker=linker, rich=rich))
    assert binary.pe.made_by == name


def test_pe_with_more_symbols_and_longer_names_than_pefile_reads(tmp_path):
    symbols = [f"?{'x' * 600}{number}@@YAXXZ" for number in range(9000)]
    (binary,) = read(tmp_path, binaries.pe({"big.dll": symbols}, symbols))
    assert binary.needed[0].symbols == tuple(symbols)
    assert set(symbols) < binary.exports


def test_elf(tmp_path):
    data = binaries.elf(
        ["libc.so.6", "libfoo.so.1"], ["PyInit_a"], undefined=["PyList_New"], soname="liba.so", rpath="/opt/lib",
        runpath="$ORIGIN/../libs:/usr/local/lib", stack=7,
        versions={"libc.so.6": {"GLIBC_2.2.5": ["memcpy"], "GLIBC_2.34": ["pthread_create", "dlopen"]}},
    )  # fmt: skip
    (binary,) = read(tmp_path, data)
    assert (binary.format, binary.machine) == ("ELF", "x64")
    assert [needed.library for needed in binary.needed] == ["libc.so.6", "libfoo.so.1"]
    assert binary.exports == {"PyInit_a"}
    assert binary.undefined == {"PyList_New", "memcpy", "pthread_create", "dlopen"}
    assert binary.elf.versions == {
        "libc.so.6": {"GLIBC_2.2.5": ("memcpy",), "GLIBC_2.34": ("dlopen", "pthread_create")}
    }
    assert binary.elf.soname == "liba.so"
    assert binary.elf.rpath == ("/opt/lib",)
    assert binary.elf.runpath == ("$ORIGIN/../libs", "/usr/local/lib")
    assert binary.elf.executable_stack


def test_elf_without_sections(tmp_path):
    (binary,) = read(tmp_path, binaries.elf(["libc.so.6"], sections=False))
    assert [needed.library for needed in binary.needed] == ["libc.so.6"]
    assert not binary.elf.executable_stack


def test_macho(tmp_path):
    thin = binaries.macho(
        ["@rpath/libomp.dylib", "?/usr/lib/libweak.dylib"], ["PyInit_a"], undefined=["PyList_New"],
        rpaths=["@loader_path/../lib"], min_os=(12, 3), install_name="@rpath/liba.dylib",
    )  # fmt: skip
    (binary,) = read(tmp_path, thin)
    assert (binary.format, binary.machine) == ("Mach-O", "arm64")
    assert [(n.library, n.weak) for n in binary.needed] == [
        ("@rpath/libomp.dylib", False), ("/usr/lib/libweak.dylib", True),
    ]  # fmt: skip
    assert (binary.exports, binary.undefined) == ({"PyInit_a"}, {"PyList_New"})
    assert binary.macho.rpaths == ("@loader_path/../lib",)
    assert (binary.macho.min_os, binary.macho.platform) == ((12, 3), "macOS")
    assert binary.macho.install_name == "@rpath/liba.dylib"
    both = binaries.universal(binaries.macho(machine=0x01000007), thin)
    assert [binary.machine for binary in read(tmp_path, both)] == ["x64", "arm64"]


WHOLE = {
    "pe": binaries.pe({"KERNEL32.dll": ["Sleep"]}, ["PyInit_a"]),
    "elf": binaries.elf(["libc.so.6"], ["f"], versions={"libc.so.6": {"GLIBC_2.2.5": ["memcpy"]}}),
    "macho": binaries.macho(["/usr/lib/libSystem.B.dylib"], ["f"]),
    "universal": binaries.universal(binaries.macho(), binaries.macho(machine=0x01000007)),
}


@pytest.mark.parametrize("name", WHOLE)
def test_every_cut(tmp_path, name):
    """Cut anywhere, a file is refused or read, and never anything else."""
    data = WHOLE[name]

    def outcome(length):
        try:
            return [binary.format for binary in read(tmp_path, data[:length])]
        except DataError:
            return None

    assert outcome(len(data))
    assert None in [outcome(length) for length in range(0, len(data), max(1, len(data) // 150))]


@pytest.mark.parametrize("name", WHOLE)
def test_cut_in_half_is_told(tmp_path, name):
    with pytest.raises(DataError, match=r"truncated|damaged"):
        read(tmp_path, WHOLE[name][: len(WHOLE[name]) // 2])


@pytest.mark.parametrize(
    "data", [b"", b"MZ", b"PK\3\4" + bytes(100), b"#!/bin/sh\n" + bytes(50), b"\xca\xfe\xba\xbe\0\0\0\x34"]
)
def test_no_binary(tmp_path, data):
    with pytest.raises(DataError, match="file: expected"):
        read(tmp_path, data)


def test_import_table_without_end(tmp_path):
    data = bytearray(binaries.pe({f"library{number}.dll": ["f"] for number in range(5000)}))
    with pytest.raises(DataError, match="at most 4096 imported libraries"):
        read(tmp_path, bytes(data))
