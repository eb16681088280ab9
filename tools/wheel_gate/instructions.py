"""Searches code for instructions that not every processor of its kind has."""

from __future__ import annotations

from collections.abc import Iterator

import capstone
from capstone import arm64_const, x86_const

from .library import Code, Library

# Code in this section runs only where the processor was found to have AVX2 and FMA (core/src/dispatch.cpp).
WIDE_SECTIONS = (".avx2", "__avx2")
WIDE = {x86_const.X86_GRP_AVX, x86_const.X86_GRP_AVX2, x86_const.X86_GRP_FMA}

# What x86-64 and ARMv8.0 begin with. Every other group that Capstone knows was added later.
X86_BASELINE = {
    "CMOV", "FPU", "FSGSBASE", "INT", "IRET", "JUMP", "CALL", "RET", "BRANCH_RELATIVE", "MMX", "MODE32", "MODE64",
    "16BITMODE", "NOT64BITMODE", "NOVLX", "SSE1", "SSE2", "PRIVILEGE", "INVALID", "ENDING",
}  # fmt: skip
ARM64_BASELINE = {
    "CALL", "INT", "JUMP", "RET", "BRANCH_RELATIVE", "NEON", "FPARMV8", "PRIVILEGE", "INVALID", "ENDING",
}  # fmt: skip
# Later ones that Capstone gives no group.
X86_LATER = {"popcnt", "lzcnt", "movbe", "cmpxchg16b", "rdrand", "rdseed"}
# xgetbv is asked only of a processor that says it has it (core/src/cpu.cpp); tzcnt is encoded as a bsf with a prefix that
# older processors ignore, and compilers use it where both give the same.
X86_HARMLESS = {"tzcnt", "xgetbv"}
MOST_FAULTS = 5


def later_groups(module: object, prefix: str, baseline: set[str]) -> dict[int, str]:
    """Number and name of the groups of instructions beyond a baseline."""
    groups = {name[len(prefix) :]: value for name, value in vars(module).items() if name.startswith(prefix)}
    return {value: name for name, value in groups.items() if name not in baseline}


X86_GROUPS = later_groups(x86_const, "X86_GRP_", X86_BASELINE)
ARM64_GROUPS = later_groups(arm64_const, "ARM64_GRP_", ARM64_BASELINE)


def beyond(machine: str, code: Code) -> Iterator[tuple[int, str, set[str]]]:
    """Address, text and groups of each instruction of ``code`` beyond the baseline; groups are empty where unknown."""
    if machine == "x86_64":
        engine, later, names = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64), X86_GROUPS, X86_LATER
    else:
        engine, later, names = capstone.Cs(capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM), ARM64_GROUPS, set()
    engine.detail = True
    engine.skipdata = True  # what it cannot read it calls .byte
    for instruction in engine.disasm(code.data, code.address):
        if instruction.id == 0:
            yield instruction.address, "an unknown instruction", set()
            continue
        if instruction.mnemonic in X86_HARMLESS:
            continue
        groups = {later[group] for group in instruction.groups if group in later}
        if groups or instruction.mnemonic.split()[-1] in names:
            yield instruction.address, f"{instruction.mnemonic} {instruction.op_str}".strip(), groups


def wide_instructions(library: Library) -> tuple[int, list[str]]:
    """How many instructions beyond the baseline lie where they may, and what is wrong with the others."""
    allowed = {X86_GROUPS[group] for group in WIDE}
    count, faults = 0, []
    for code in library.code:
        wide = code.name in WIDE_SECTIONS and library.machine == "x86_64"
        for address, text, groups in beyond(library.machine, code):
            if wide and groups and groups <= allowed:
                count += 1
                continue
            limit = "AVX2 and FMA" if wide else "the baseline"
            what = f" ({', '.join(sorted(groups))})" if groups else ""
            faults.append(f"beyond {limit}: {text}{what} at {code.name} {address:#x}")
    if len(faults) > MOST_FAULTS:
        faults[MOST_FAULTS:] = [f"beyond the baseline: {len(faults) - MOST_FAULTS} instructions more"]
    return count, faults
