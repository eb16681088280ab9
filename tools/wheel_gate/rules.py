"""The rules: a wheel in, what is wrong with it out."""

from __future__ import annotations

import hashlib
import io
import re
import zipfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from . import archive, elf, instructions, macho, pe, platforms
from .library import Library, UnreadableError

if TYPE_CHECKING:
    from pathlib import Path

MOST_BYTES = 1_000_000
READERS = {"linux": elf.read, "windows": pe.read, "macos": macho.read}
# The C library, its loader and its threads; whatever else a system has or lacks does not matter.
MAY_NEED = {
    "linux": re.compile(r"(libc|libm|libpthread|ld-linux-[\w-]+)\.so\.\d+"),
    "windows": re.compile(r"KERNEL32\.dll|api-ms-win-crt-[\w-]+\.dll", re.IGNORECASE),
    "macos": re.compile(r"/usr/lib/libSystem\.B\.dylib"),
}


@dataclass
class Verdict:
    """What was seen of a wheel, for a table, and what is wrong with it."""

    name: str
    size: int = 0
    sha256: str = ""
    library: Library | None = None
    wide: int = 0
    faults: list[str] = field(default_factory=list)


def declared_functions() -> set[str]:
    """The functions of the header."""
    header = (archive.ROOT / "core/include/sage_attention.h").read_text(encoding="utf-8")
    header = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
    return set(re.findall(r"SAGE_ATTENTION_API\s+[\w\s*]+?\b(sage_attention_\w+)\s*\(", header))


def glibc_version(name: str) -> tuple[int, ...] | None:
    """(2, 17) of ``"GLIBC_2.17"``; None where it is no version of that C library."""
    found = re.fullmatch(r"GLIBC_(\d+(?:\.\d+)+)", name)
    return tuple(map(int, found[1].split("."))) if found else None


def library_faults(library: Library, platform: platforms.Platform) -> list[str]:
    """What is wrong with a library for a platform, its instructions apart."""
    declared = declared_functions()
    faults = list(library.weaknesses)
    if library.machine != platform.machine:
        faults.append(f"its library is for {library.machine}, its name says {platform.machine}")
    faults += [f"needs {name}" for name in sorted(library.needs) if not MAY_NEED[platform.system].fullmatch(name)]
    faults += [f"not exported: {name}" for name in sorted(declared - library.exports)]
    faults += [f"exported, but not in the header: {name}" for name in sorted(library.exports - declared)]
    if platform.system == "linux" and platform.oldest:
        for name in sorted(library.versions):
            version = glibc_version(name)
            if version is None or version > platform.oldest:
                faults.append(f"needs {name}, its name allows GLIBC_{'.'.join(map(str, platform.oldest))}")
    if platform.system == "macos" and library.minimum_os != platform.oldest:
        faults.append(
            f"its library is for macOS {_dotted(library.minimum_os)}, its name says {_dotted(platform.oldest)}"
        )
    return faults


def _dotted(version: tuple[int, int] | None) -> str:
    return ".".join(map(str, version)) if version else "of no version"


def instruction_faults(library: Library, platform: platforms.Platform) -> tuple[int, list[str]]:
    """How many wide instructions there are where they may be, and what is wrong elsewhere."""
    sections = {code.name for code in library.code}
    if library.machine == "x86_64" and not sections & set(instructions.WIDE_SECTIONS):
        if platform.system == "macos":
            return instructions.wide_stretch(library)
        if not platform.public:
            return 0, []  # not every compiler keeps them apart, and this wheel is for the machine that built it
        return 0, ["has no section .avx2, so that kernels for AVX2 cannot be told from the rest"]
    return instructions.wide_instructions(library)


def judge(wheel: Path) -> Verdict:
    """All that is wrong with a wheel."""
    verdict = Verdict(wheel.name)
    try:
        data = wheel.read_bytes()
    except OSError as error:
        verdict.faults.append(f"cannot be read: {error.strerror}")
        return verdict
    verdict.size, verdict.sha256 = len(data), hashlib.sha256(data).hexdigest()
    name = platforms.NAME.fullmatch(wheel.name)
    if name is None:
        verdict.faults.append("its name is not sage_graph_attention-VERSION-py3-none-PLATFORM.whl")
        return verdict
    if (name["python"], name["abi"]) != ("py3", "none"):
        verdict.faults.append(f"is for {name['python']}-{name['abi']}, not for every Python (py3-none)")
    known = [platforms.parse(tag) for tag in name["platforms"].split(".")]
    platform = known[0]
    if platform is None or any(other != platform for other in known):
        verdict.faults.append(f"its name says {name['platforms']}, which is not one platform that we build for")
        return verdict
    if verdict.size > MOST_BYTES:
        verdict.faults.append(f"has {verdict.size:,} bytes, more than {MOST_BYTES:,}")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as opened:
            unpacked = sum(entry.file_size for entry in opened.infolist())
            if unpacked > archive.MOST_UNPACKED:
                verdict.faults.append(f"unpacks to {unpacked:,} bytes, more than {archive.MOST_UNPACKED:,}")
                return verdict
            version = name["version"]
            verdict.faults += archive.file_faults(opened, version, platform.system)
            verdict.faults += archive.record_faults(opened, version)
            verdict.faults += archive.metadata_faults(opened, version, (name["python"], name["abi"], name["platforms"]))
            if archive.library_name(platform.system) in opened.namelist():
                _judge_library(opened.read(archive.library_name(platform.system)), platform, verdict)
    except archive.DAMAGED as error:
        verdict.faults.append(f"is no archive, or a damaged one ({error})")
    return verdict


def _judge_library(data: bytes, platform: platforms.Platform, verdict: Verdict) -> None:
    try:
        verdict.library = READERS[platform.system](data)
    except UnreadableError as error:
        verdict.faults.append(str(error))
        return
    verdict.faults += library_faults(verdict.library, platform)
    if str(archive.ROOT).encode() in data:
        verdict.faults.append(f"its library names a folder of the machine that built it: {archive.ROOT}")
    verdict.wide, faults = instruction_faults(verdict.library, platform)
    verdict.faults += faults
