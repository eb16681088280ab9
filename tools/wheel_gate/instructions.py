"""Searches code for instructions that not every processor of its kind has.

Capstone reads the instructions; what came after the first processors is told from encodings and names, since its own
groups of instructions have gaps (fused multiply-add is in none, nor is anything of ARMv8.1 and later).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import capstone

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .library import Code, Library

# Code in this section runs only where the processor was found to have AVX2, FMA and F16C (core/src/cpu.cpp).
WIDE_SECTIONS = (".avx2", "__avx2")
MOST_FAULTS = 5
MOST_BEFORE = 4096  # bytes of a file of kernels before its first wide instruction
RELATIVE = re.compile(r"rip ([+-]) 0x([0-9a-f]+)")

# x86-64 began with SSE2. All of SSSE3, SSE4 and later is in two maps of opcodes or behind prefixes of its own, but for
# these. xgetbv is asked only of a processor that says it has it (core/src/cpu.cpp), and tzcnt is encoded as a bsf with
# a prefix that older processors ignore; compilers use it where both give the same.
LATER_X86 = re.compile(
    r"(add|h)subp[sd]|haddp[sd]|lddqu|mov(d|sh|sl)dup|fisttp|monitorx?|mwaitx?|extrq|insertq|movnts[sd]|popcnt|lzcnt"
    r"|cmpxchg16b|rd(rand|seed|pid|tscp)|(rd|wr)[fg]sbase|xsave\w*|xrstor\w*|clwb|clflushopt|x(begin|end|abort|test)"
)
# Encoded like AVX2, FMA and F16C, but none of the three: BMI, FMA4, VNNI, IFMA, vector AES.
NOT_AVX2 = re.compile(
    r"andn|bextr|bls(i|r|msk)|bzhi|mulx|pdep|pext|rorx|s(ar|hl|hr)x|vfn?m(add|sub|addsub|subadd)[ps][sd]"
    r"|vpdp\w+|vpmadd52\w+|vaes\w+|vpclmul\w+|vgf2p8\w+"
)
LEGACY_PREFIXES = frozenset(b"\x26\x2e\x36\x3e\x64\x65\x66\x67\xf0\xf2\xf3")

# ARMv8.0 with NEON is the baseline of 64-bit ARM. paciasp and its like are among the hints that do nothing there.
LATER_ARM = re.compile(
    r"(cas|swp|(ld|st)(add|clr|eor|set|[su]max|[su]min))p?a?l?[bh]?"  # atomics of 8.1
    r"|sqrdml[as]h|ldapu?r\w*|stlur\w*|us?dot|su?dot|[su]s?mmla|bf\w*dot|bfmmla|bfmlal\w*|bfcvt\w*|fml[as]l2?"
    r"|fcmla|fcadd|fjcvtzs|frint(32|64)[xz]|crc32\w*|aes\w+|sha(1|256|512)\w+|sm[34]\w+|eor3|bcax|rax1|xar|pmull2?"
    r"|(pac|aut)(i|d)z?[ab]|pacga|xpac[id]|b(lr|r)a[ab]z?|e?reta[ab]|ldra[ab]|cfinv|rmif|setf(8|16)|[ax]{2}flag|sb"
    r"|(ld|st)64b\w*|(cpy|set)[fg]?[pme]\w*|wf[ei]t"
)
SCALABLE = re.compile(r"\b[zp]\d+\b")  # registers of SVE
HALVES = re.compile(r"\b(h\d+|v\d+\.[48]h)\b")  # in floating point: 8.2, but for conversions
HALF_ARITHMETIC = re.compile(r"(?!fcvt(n2?|l2?)?$)(f|[su]cvtf)\w*")
# pmull of bytes is of 8.0, of doublewords an extension.
BYTE_PRODUCT = re.compile(r"v\d+\.8h")


def _x86_family(data: bytes, mnemonic: str) -> str:
    """What an instruction of x86-64 belongs to; "" for the baseline."""
    at = 0
    while data[at] in LEGACY_PREFIXES:
        at += 1
    if data[at] == 0x62:
        return "AVX-512"
    if data[at] in (0xC4, 0xC5):
        return "not AVX2" if NOT_AVX2.fullmatch(mnemonic) else "AVX"
    if data[at] == 0x8F and data[at + 1] & 0x1F >= 8:
        return "XOP"
    if 0x40 <= data[at] < 0x50:
        at += 1
    if data[at] == 0x0F and data[at + 1] in (0x38, 0x3A):
        return "SSSE3 or later"
    return "later" if LATER_X86.fullmatch(mnemonic.split()[-1]) else ""


def _arm_family(mnemonic: str, operands: str) -> str:
    """What an instruction of 64-bit ARM belongs to; "" for the baseline."""
    if SCALABLE.search(operands):
        return "SVE"
    if HALVES.search(operands) and HALF_ARITHMETIC.fullmatch(mnemonic):
        return "half precision"
    if LATER_ARM.fullmatch(mnemonic) and not (mnemonic.startswith("pmull") and BYTE_PRODUCT.match(operands)):
        return "ARMv8.1 or later"
    return "ARMv8.2" if mnemonic == "dc" and operands.startswith(("cvap", "cvadp")) else ""


def beyond(machine: str, code: Code) -> Iterator[tuple[int, str, str]]:
    """Address, text and family of each instruction of ``code`` that is not of the baseline."""
    if machine == "x86_64":
        engine = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    else:
        engine = capstone.Cs(capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM)
    engine.skipdata = True  # what it cannot read it calls .byte
    for address, size, mnemonic, operands in engine.disasm_lite(code.data, code.address):
        begin = address - code.address
        if mnemonic == ".byte":
            yield address, f"{code.data[begin : begin + size].hex(' ')}", "unknown"
            continue
        if machine == "x86_64":
            family = _x86_family(code.data[begin : begin + size], mnemonic)
        else:
            family = _arm_family(mnemonic, operands)
        if family:
            yield address, f"{mnemonic} {operands}".strip(), family


def _may_be_wide(text: str, family: str) -> bool:
    return family in ("AVX", "SSSE3 or later") or text.startswith("popcnt")


def wide_instructions(library: Library) -> tuple[int, list[str]]:
    """How many instructions beyond the baseline lie where they may, and what is wrong with the others."""
    count, faults = 0, []
    for code in library.code:
        wide = code.name in WIDE_SECTIONS and library.machine == "x86_64"
        for address, text, family in beyond(library.machine, code):
            if wide and _may_be_wide(text, family):
                count += 1
                continue
            limit = "AVX2, FMA and F16C" if wide else "the baseline"
            faults.append(f"beyond {limit}: {text} ({family}) at {code.name} {address:#x}")
    return count, _some(faults)


def wide_stretch(library: Library) -> tuple[int, list[str]]:
    """As `wide_instructions`, for linkers that put all code into one section, one file's after the other's.

    The kernels for AVX2 are reached over a table of pointers alone. So the stretch that holds all wide instructions,
    with what little of the same file comes before the first, must be one that no code outside of it calls, jumps into,
    or takes the address of.
    """
    wide, faults = [], []
    for code in library.code:
        for address, text, family in beyond(library.machine, code):
            if _may_be_wide(text, family):
                wide.append(address)
            else:
                faults.append(f"beyond AVX2, FMA and F16C: {text} ({family}) at {code.name} {address:#x}")
    if wide:
        begin, end = wide[0], wide[-1]
        starts, references = _flow(library.code)
        while True:
            inward = [found for found in references if begin <= found[1] <= end and not begin <= found[0] <= end]
            # from the function that holds the first, or one before it
            before = [address for address, _, _ in inward if wide[0] - MOST_BEFORE <= address < begin]
            if not before:
                break
            begin = max((start for start in starts if start <= min(before)), default=min(before))
        faults += [
            f"reached from code for any processor: {target:#x} ({mnemonic} at {address:#x})"
            for address, target, mnemonic in inward
        ]
    return len(wide), _some(faults)


def _flow(sections: Sequence[Code]) -> tuple[list[int], list[tuple[int, int, str]]]:
    """Where functions may begin, and what refers to code: its address, the target's, and how."""
    engine = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    engine.skipdata = True
    starts, references = [], []
    for code in sections:
        for address, size, mnemonic, operands in engine.disasm_lite(code.data, code.address):
            relative = RELATIVE.search(operands)
            if relative:
                references.append((address, address + size + int(relative[1] + relative[2], 16), mnemonic))
            elif mnemonic[0] in "jc" and operands.startswith("0x"):
                references.append((address, int(operands, 16), mnemonic))
            if mnemonic in ("ret", "jmp", "ud2"):
                starts.append(address + size)
    return starts, references


def _some(faults: list[str]) -> list[str]:
    if len(faults) > MOST_FAULTS:
        faults[MOST_FAULTS:] = [f"beyond the baseline: {len(faults) - MOST_FAULTS} instructions more"]
    return faults
