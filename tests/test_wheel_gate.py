"""tools/wheel_gate: a good wheel passes, and every planted fault is found."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import random
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import made_libraries as made
from sage_attention import _native

pytest.importorskip("capstone", reason="the gate reads instructions by Capstone")
pytest.importorskip("elftools", reason="the gate reads ELF by pyelftools")

from slim_wheel import DATA, joined_tables
from wheel_gate import archive, elf, pe, platforms, rules
from wheel_gate.library import Library, UnreadableError

ROOT = Path(__file__).parents[1]
VERSION = "1.2.3"
ABOUT = f"sage_graph_attention-{VERSION}.dist-info"
EXPORTS = sorted(rules.declared_functions())
LINUX, LINUX_ARM = "manylinux_2_17_x86_64.manylinux2014_x86_64", "manylinux_2_17_aarch64.manylinux2014_aarch64"
MAC, MAC_ARM, WINDOWS, LOCAL = "macosx_10_15_x86_64", "macosx_11_0_arm64", "win_amd64", "linux_x86_64"
# What a good library for each platform is made with.
GOOD = {
    LINUX: (made.elf, {}),
    LINUX_ARM: (made.elf, {"machine": "aarch64"}),
    LOCAL: (made.elf, {"wide": None, "versions": ("GLIBC_2.34",), "code": made.ADD_AVX}),
    MAC: (made.macho, {"machine": "x86_64", "minimum": (10, 15), "signed": False}),
    MAC_ARM: (made.macho, {}),
    WINDOWS: (made.pe, {}),
}


def library(platform, exports=EXPORTS, **knobs):
    """A library for a platform, good but for the knobs."""
    make, settings = GOOD[platform]
    return make(exports, **{**settings, **knobs})


def write_wheel(
    folder, platform, data=None, *, tags="py3-none", files=None, without=(), twice=(), times=None, record=None,
    said=None, purelib="false", version=VERSION,
):  # fmt: skip
    """A wheel, good but for what the arguments say."""
    data = library(platform) if data is None else data
    suffix = ".dll" if platform.startswith("win") else ".so"
    said = said or [f"{tags}-{part}" for part in platform.split(".")]
    contents = {name: (ROOT / "src" / name).read_bytes() for name in sorted(archive.source_files())}
    contents[f"sage_attention/sage_attention{suffix}"] = data
    contents[f"{ABOUT}/METADATA"] = f"Metadata-Version: 2.4\nName: sage-graph-attention\nVersion: {version}\n".encode()
    lines = ["Wheel-Version: 1.0", f"Root-Is-Purelib: {purelib}", *(f"Tag: {tag}" for tag in said)]
    contents[f"{ABOUT}/WHEEL"] = "\n".join(lines).encode()
    contents[f"{ABOUT}/entry_points.txt"] = contents[f"{ABOUT}/licenses/LICENSE"] = b"text\n"
    contents |= files or {}
    contents = {name: content for name, content in contents.items() if name not in without}
    rows = {}
    for name, content in contents.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        rows[name] = f"{name},sha256={digest},{len(content)}"
    rows[f"{ABOUT}/RECORD"] = f"{ABOUT}/RECORD,,"
    rows |= record or {}
    contents[f"{ABOUT}/RECORD"] = "".join(f"{row}\n" for row in rows.values() if row).encode()
    path = folder / f"sage_graph_attention-{VERSION}-{tags}-{platform}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as opened:
        for name, content in contents.items():
            entry = zipfile.ZipInfo(name, (times or {}).get(name, (2026, 1, 2, 3, 4, 6)))
            entry.compress_type = zipfile.ZIP_DEFLATED
            for _ in range(2 if name in twice else 1):
                opened.writestr(entry, content)
    return path


@pytest.mark.parametrize("platform", GOOD)
def test_good_wheels_pass(tmp_path, platform):
    verdict = rules.judge(write_wheel(tmp_path, platform))
    assert verdict.faults == []
    assert verdict.library.exports == set(EXPORTS)
    assert verdict.wide == (2 if platform in (LINUX, MAC, WINDOWS) else 0)


FAULTS = {
    # the processor, the system, and how old they may be
    "machine of ELF": (LINUX, {"machine": "aarch64"}, "its library is for aarch64, its name says x86_64"),
    "machine of PE": (WINDOWS, {"machine": "aarch64"}, "its library is for aarch64, its name says x86_64"),
    "machine of Mach-O": (MAC_ARM, {"machine": "x86_64"}, "its library is for x86_64, its name says aarch64"),
    "newer C library": (
        LINUX,
        {"versions": ("GLIBC_2.17", "GLIBC_2.29")},
        "needs GLIBC_2.29, its name allows GLIBC_2.17",
    ),
    "newer C library, ARM": (LINUX_ARM, {"versions": ("GLIBC_2.18",)}, "needs GLIBC_2.18, its name allows GLIBC_2.17"),
    "C++ library's version": (LINUX, {"versions": ("CXXABI_1.3",)}, "needs CXXABI_1.3, its name allows"),
    "newer macOS": (MAC_ARM, {"minimum": (13, 0)}, "its library is for macOS 13.0, its name says 11.0"),
    "older macOS": (MAC, {"minimum": (10, 9)}, "its library is for macOS 10.9, its name says 10.15"),
    "telephone": (MAC_ARM, {"system": 2}, "is for platform 2, which is not macOS"),
    # imports and exports
    "import of ELF": (LINUX, {"needs": ("libc.so.6", "libstdc++.so.6")}, "needs libstdc++.so.6"),
    "import of PE": (WINDOWS, {"needs": ("KERNEL32.dll", "VCRUNTIME140.dll")}, "needs VCRUNTIME140.dll"),
    "old C library of PE": (WINDOWS, {"needs": ("msvcrt.dll",)}, "needs msvcrt.dll"),
    "late import of PE": (WINDOWS, {"delayed": ("python311.dll",)}, "needs python311.dll"),
    "import of Mach-O": (MAC, {"needs": ("/usr/lib/libc++.1.dylib",)}, "needs /usr/lib/libc++.1.dylib"),
    "missing export of ELF": (LINUX, {"exports": EXPORTS[1:]}, f"not exported: {EXPORTS[0]}"),
    "missing export of PE": (WINDOWS, {"exports": EXPORTS[1:]}, f"not exported: {EXPORTS[0]}"),
    "missing export of Mach-O": (MAC_ARM, {"exports": EXPORTS[1:]}, f"not exported: {EXPORTS[0]}"),
    "more exports of ELF": (LINUX, {"exports": [*EXPORTS, "helper"]}, "exported, but not in the header: helper"),
    "more exports of PE": (WINDOWS, {"exports": [*EXPORTS, "DllMain"]}, "exported, but not in the header: DllMain"),
    "more exports of Mach-O": (MAC, {"exports": [*EXPORTS, "helper"]}, "exported, but not in the header: helper"),
    "exports without a name": (WINDOWS, {"numbers": 1}, "exported, but not in the header: #"),
    # instructions
    "AVX outside": (LINUX, {"code": made.ADD_AVX}, "beyond the baseline: vaddps ymm0, ymm0, ymm1 (AVX) at .text"),
    "FMA outside": (WINDOWS, {"code": made.RETURN["x86_64"] + made.FMA}, "beyond the baseline: vfmadd231ps"),
    "F16C outside": (LINUX, {"code": made.FROM_HALVES}, "beyond the baseline: vcvtph2ps ymm0, xmm1 (AVX) at .text"),
    "SSSE3 outside": (MAC, {"code": made.SHUFFLE_SSSE3}, "beyond the baseline: pshufb"),
    "POPCNT outside": (LINUX, {"code": made.POPCNT}, "beyond the baseline: popcnt eax, ecx (later)"),
    "AVX-512 inside": (LINUX, {"wide": made.ADD_AVX512}, "beyond AVX2, FMA and F16C: vaddps zmm0"),
    "many": (LINUX, {"code": made.ADD_AVX * 9}, "beyond the baseline: 4 instructions more"),
    "kernels not kept apart": (WINDOWS, {"wide": None}, "has no section .avx2"),
    "kernels called, Mach-O of one section": (
        MAC,
        {"wide": None, "code": made.CALL_NEXT + made.FMA + b"\xc3"},
        "reached from code for any processor",
    ),
    "address of kernels, Mach-O of one section": (
        MAC,
        {"wide": None, "code": made.ADDRESS_OF_NEXT + made.FMA + b"\xc3"},
        "reached from code for any processor",
    ),
    "AVX-512, Mach-O of one section": (
        MAC,
        {"wide": None, "code": made.ADD_AVX512},
        "beyond AVX2, FMA and F16C: vaddps zmm0",
    ),
    "atomics of ARMv8.1": (
        LINUX_ARM,
        {"code": made.LDADD},
        "beyond the baseline: ldadd w0, w1, [x2]",
    ),
    "BMI inside": (WINDOWS, {"wide": made.FMA + made.ANDN}, "beyond AVX2, FMA and F16C: andn rax, rcx, rdx (not AVX2)"),
    "half precision": (LINUX_ARM, {"code": made.ADD_HALVES}, "beyond the baseline: fadd v0.8h, v1.8h, v2.8h"),
    "scalable vectors": (LINUX_ARM, {"code": made.ADD_SCALABLE}, "beyond the baseline: add z0.s"),
    "dot products of ARMv8.2": (MAC_ARM, {"code": made.DOT}, "beyond the baseline: udot"),
    "not an instruction": (LINUX, {"code": b"\x06\x06\x06"}, "beyond the baseline: 06 (unknown) at .text"),
    # protections
    "ASLR": (WINDOWS, {"protections": 0x120}, "cannot be loaded anywhere (DYNAMIC_BASE, for ASLR)"),
    "high entropy": (WINDOWS, {"protections": 0x140}, "addresses above 4 GB are not asked for (HIGH_ENTROPY_VA)"),
    "NX": (WINDOWS, {"protections": 0x60}, "data may be executed (NX_COMPAT)"),
    "executable stack": (LINUX, {"stack": 7}, "its stack is executable"),
    "RELRO": (LINUX, {"relro": False}, "addresses of imports stay writable (no RELRO)"),
    "lazy binding": (LINUX, {"now": False}, "addresses of imports stay writable (no RELRO)"),
    "text relocations": (LINUX, {"text_relocations": True}, "code is relocated at load time"),
    "search path of ELF": (LINUX, {"run_path": True}, "has a search path of its own (RPATH)"),
    "search path of Mach-O": (MAC_ARM, {"run_path": True}, "has a search path of its own (LC_RPATH)"),
    "one name space": (MAC_ARM, {"two_level": False}, "names of other libraries may stand in for its imports"),
    "signature": (MAC_ARM, {"signed": False}, "has no code signature"),
    # what belongs to who built it
    "symbols of ELF": (LINUX, {"symbols": True}, "has a table of local symbols"),
    "symbols of PE": (WINDOWS, {"symbols": 0x300}, "has a table of symbols"),
    "debug information of ELF": (LINUX, {"debug": True}, "has debug information"),
    "debug information of PE": (WINDOWS, {"debug": True}, "has debug information, which names a file"),
    "debug information of Mach-O": (MAC_ARM, {"debug": True}, "has debug information"),
    "time stamp": (WINDOWS, {"timestamp": 0x66000000}, "has a time stamp (0x66000000)"),
    "program of Windows": (WINDOWS, {"characteristics": 0x22}, "is not marked as a library (DLL)"),
    "program of Linux": (LINUX, {"kind": 2}, "expected an ELF shared library, got ET_EXEC"),
    "program of macOS": (MAC_ARM, {"kind": 2}, "expected a 64-bit Mach-O library, got magic 0xfeedfacf and type 2"),
}


def test_kernels_of_mach_o_in_one_section(tmp_path):
    """Wide code that only a table of pointers leads to; what is before it may call it if nothing leads there."""
    code = b"\x90" * 4200 + b"\xc3" + made.CALL_OVER_RETURN + b"\xc3" + made.FMA + b"\xc3"
    verdict = rules.judge(write_wheel(tmp_path, MAC, library(MAC, wide=None, code=code)))
    assert (verdict.faults, verdict.wide) == ([], 1)


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_libraries_are_found(tmp_path, fault):
    platform, knobs, expected = FAULTS[fault]
    verdict = rules.judge(write_wheel(tmp_path, platform, library(platform, **knobs)))
    assert any(found.startswith(expected) for found in verdict.faults), verdict.faults


ENTRY = "sage_attention/errors.py"
ARCHIVES = {
    "interpreter": ({"tags": "cp311-cp311"}, "is for cp311-cp311, not for every Python (py3-none)"),
    "file too few": ({"without": [ENTRY]}, f"missing: {ENTRY}"),
    "library missing": ({"without": ["sage_attention/sage_attention.so"]}, "missing: sage_attention/sage_attention.so"),
    "licence missing": ({"without": [f"{ABOUT}/licenses/LICENSE"]}, f"missing: {ABOUT}/licenses/LICENSE"),
    "record missing": ({"without": [f"{ABOUT}/WHEEL"]}, f"missing: {ABOUT}/WHEEL"),
    "file too many": ({"files": {"tests/test_it.py": b""}}, "should not be there: tests/test_it.py"),
    "compiled file": ({"files": {"sage_attention/errors.pyc": b""}}, "should not be there: sage_attention/errors.pyc"),
    "file twice": ({"twice": [ENTRY]}, f"is there twice: {ENTRY}"),
    "time of building": ({"times": {ENTRY: (2026, 5, 5, 5, 5, 6)}}, "its files have different times: (2026, 1, 2"),
    "changed file": ({"record": {ENTRY: f"{ENTRY},sha256=AAAA,7"}}, f"RECORD says something else of {ENTRY}"),
    "size of a file": ({"record": {ENTRY: f"{ENTRY},sha256=AAAA,7"}}, f"RECORD says something else of {ENTRY}"),
    "file not recorded": ({"record": {ENTRY: ""}}, f"RECORD lacks {ENTRY}"),
    "no such file": ({"record": {"x": "x.py,sha256=AAAA,7"}}, "RECORD lists x.py, which is not there"),
    "recorded twice": ({"record": {"x": f"{ABOUT}/RECORD,,"}}, "RECORD lists a file twice"),
    "record of itself": (
        {"record": {f"{ABOUT}/RECORD": f"{ABOUT}/RECORD,sha256=A,1"}},
        "RECORD says something of itself",
    ),
    "damaged record": ({"record": {"x": "x.py,7"}}, "RECORD has lines of other than three fields"),
    "tag": ({"said": ["py3-none-linux_x86_64"]}, "WHEEL says py3-none-linux_x86_64, its name py3-none-manylinux"),
    "pure": ({"purelib": "true"}, "WHEEL: expected Root-Is-Purelib false, got true"),
    "version": ({"version": "1.2.4"}, "METADATA says sage-graph-attention 1.2.4"),
    "damaged library": ({"data": b"\x7fELF" + bytes(99)}, "expected an ELF shared library, got"),
    "other format": ({"data": made.pe(EXPORTS)}, "expected an ELF shared library, got"),
    "folder of the builder": (
        {"data": made.elf(EXPORTS) + str(ROOT / "core/src/cpu.cpp").encode()},
        "its library names a folder of the machine that built it",
    ),
}


@pytest.mark.parametrize("fault", ARCHIVES)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_faults_of_archives_are_found(tmp_path, fault):
    settings, expected = ARCHIVES[fault]
    verdict = rules.judge(write_wheel(tmp_path, LINUX, **settings))
    assert any(found.startswith(expected) for found in verdict.faults), verdict.faults


@pytest.mark.parametrize(
    "platform",
    ["any", "manylinux_2_17_x86_64.manylinux2010_x86_64", "win_amd64.win_arm64", "musllinux_1_2_x86_64", "win32"],
)
def test_other_platforms_are_refused(tmp_path, platform):
    path = write_wheel(tmp_path, LINUX).rename(tmp_path / f"sage_graph_attention-{VERSION}-py3-none-{platform}.whl")
    assert rules.judge(path).faults == [f"its name says {platform}, which is not one platform that we build for"]


def test_other_names_are_refused(tmp_path):
    path = write_wheel(tmp_path, LINUX).rename(tmp_path / "sage-graph-attention.whl")
    assert rules.judge(path).faults == ["its name is not sage_graph_attention-VERSION-py3-none-PLATFORM.whl"]


TABLES = [name for name in archive.source_files() if name.startswith(f"{DATA}/")]
JOINED = {f"{DATA}/{name}": text for name, text in joined_tables(ROOT / "src" / DATA).items()}


def test_joined_tables_are_the_source_s(tmp_path):
    assert rules.judge(write_wheel(tmp_path, LINUX, without=set(TABLES) - set(JOINED), files=JOINED)).faults == []
    other = {**JOINED, f"{DATA}/explain.json": JOINED[f"{DATA}/explain.json"].replace(b"MSVC", b"msvc", 1)}
    (fault,) = rules.judge(write_wheel(tmp_path, WINDOWS, without=set(TABLES) - set(JOINED), files=other)).faults
    assert fault == f"holds other tables than the source: {DATA}/explain.json"
    lacking = {name: text for name, text in JOINED.items() if not name.endswith("doctor.json")}
    (fault,) = rules.judge(write_wheel(tmp_path, MAC, without=set(TABLES) - set(lacking), files=lacking)).faults
    assert fault == f"missing: {DATA}/doctor.json"


def test_large_wheels_are_refused(tmp_path):
    noise = random.Random(3).randbytes(rules.MOST_BYTES)
    (fault,) = rules.judge(write_wheel(tmp_path, WINDOWS, library(WINDOWS) + noise)).faults
    assert fault.endswith("more than 1,000,000")


@pytest.mark.parametrize("platform", [LINUX, MAC_ARM, WINDOWS])
def test_damaged_libraries_are_faults_not_crashes(platform):
    """Cut short anywhere: refused. With any of its bytes changed: refused, or read as something else."""
    read = rules.READERS[platforms.parse(platform.split(".")[0]).system]
    data = library(platform)
    for end in (*range(0, 400, 7), *range(400, len(data), 97)):
        with pytest.raises(UnreadableError, match="expected a"):
            read(data[:end])
    dice = random.Random(5)
    for _ in range(300):
        changed = bytearray(data)
        changed[dice.randrange(min(len(data), 1500))] = dice.randrange(256)
        with contextlib.suppress(UnreadableError):
            read(bytes(changed))


@pytest.mark.parametrize("content", [b"\xff", b"\xff\xfea\0", b"\0", b'"' + b"x" * 200_000, b""])
@pytest.mark.parametrize("name", ["RECORD", "WHEEL", "METADATA"])
def test_text_that_is_none_is_a_fault(tmp_path, name, content):
    wheel = write_wheel(tmp_path, LINUX)
    changed = tmp_path / "changed" / wheel.name
    changed.parent.mkdir()
    with zipfile.ZipFile(wheel) as good, zipfile.ZipFile(changed, "w") as bad:
        for entry in good.infolist():
            bad.writestr(entry, content if entry.filename == f"{ABOUT}/{name}" else good.read(entry))
    assert rules.judge(changed).faults


def test_what_is_no_wheel_is_a_fault(tmp_path):
    path = tmp_path / write_wheel(tmp_path, LINUX).name
    whole = path.read_bytes()
    for content in (b"", b"PK", b"a text", whole.replace(b"sage_attention/", b"sage\0ttention/")):
        path.write_bytes(content)
        assert rules.judge(path).faults
    path.unlink()
    assert rules.judge(path).faults[0].startswith("cannot be read: ")
    path.mkdir()
    assert rules.judge(path).faults[0].startswith("cannot be read: ")


def test_mutated_archives_are_faults_not_crashes(tmp_path):
    path = write_wheel(tmp_path, LINUX)
    whole, dice = path.read_bytes(), random.Random(5)
    for _ in range(60):
        changed = bytearray(whole)
        place = dice.choice([dice.randrange(len(whole)), len(whole) - 1 - dice.randrange(6000)])
        changed[place : place + dice.choice([1, 2, 8])] = dice.randbytes(dice.randrange(9))
        path.write_bytes(changed)
        rules.judge(path)


def test_archives_that_unpack_to_more_than_memory_are_refused(tmp_path):
    bomb = {"sage_attention/zeros": bytes(archive.MOST_UNPACKED)}
    (fault,) = rules.judge(write_wheel(tmp_path, LINUX, files=bomb)).faults
    assert fault.startswith("unpacks to 2")


def test_tables_larger_than_the_file_are_refused():
    """Each would take gigabytes, or hours: exports by number, sections that share their bytes."""
    data = bytearray(library(WINDOWS))
    header = struct.unpack_from("<I", data, 0x3C)[0] + 24
    address = struct.unpack_from("<I", data, header + 112)[0]
    exports = pe.Image(bytes(data)).place(address)
    many = bytearray(data)
    struct.pack_into("<I", many, exports + 20, 0xFFFFFFFF)
    with pytest.raises(UnreadableError, match="a table of exports"):
        pe.read(bytes(many))
    shared = Library("windows", "x86_64")
    shared.add_code(bytes(100), ".text", 0, 0, 60)
    with pytest.raises(UnreadableError, match="overlap"):
        shared.add_code(bytes(100), ".other", 0, 20, 60)
    with pytest.raises(UnreadableError, match="ends within"):
        shared.add_code(bytes(100), ".other", 0, 90, 11)


def test_cut_archives_are_faults(tmp_path):
    path = write_wheel(tmp_path, LINUX)
    path.write_bytes(path.read_bytes()[:-100])
    assert rules.judge(path).faults[0].startswith("is no archive, or a damaged one")


def test_what_only_looks_like_a_fault(tmp_path):
    """tzcnt runs everywhere; a time stamp may be a hash; a signature is needed on ARM alone; older commands."""
    good = [
        (LINUX, {"code": made.TZCNT, "wide": made.TZCNT + made.FMA}),
        (LINUX, {"wide": made.FROM_HALVES + made.FMA}),
        (WINDOWS, {"timestamp": 0x12345678, "reproducible": True}),
        (MAC, {"signed": False, "old_commands": True}),
        (MAC_ARM, {"exports": [*EXPORTS, "_mh_dylib_header"]}),
    ]
    for platform, knobs in good:
        assert rules.judge(write_wheel(tmp_path, platform, library(platform, **knobs))).faults == []


def test_the_library_in_use_is_read_rightly():
    if not sys.platform.startswith("linux"):
        pytest.skip("the library in use is no ELF")
    read = elf.read(_native._path().read_bytes())
    assert read.exports == set(EXPORTS)
    assert read.machine == os.uname().machine
    assert "libc.so.6" in read.needs
    assert sum(len(code.data) for code in read.code) > 50_000


def test_table_and_exit_status(tmp_path):
    good, bad = write_wheel(tmp_path, LINUX), write_wheel(tmp_path, WINDOWS, library(WINDOWS, protections=0x60))
    gate = [sys.executable, ROOT / "tools/wheel_gate"]
    done = subprocess.run([*gate, good], capture_output=True, text=True, check=True)
    heading, row = done.stdout.splitlines()[:2]
    assert heading.split()[:4] == ["wheel", "bytes", "sha256", "machine"]
    digest = hashlib.sha256(good.read_bytes()).hexdigest()[:12]
    assert row.split() == [
        good.name,
        f"{good.stat().st_size:,}",
        digest,
        "x86_64",
        "1",
        str(len(EXPORTS)),
        "glibc",
        "2.17",
        "2",
        "good",
    ]
    done = subprocess.run([*gate, good, bad], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"{bad.name}: data may be executed (NX_COMPAT)" in done.stdout.splitlines()
    assert subprocess.run(gate, capture_output=True, check=False).returncode == 2
