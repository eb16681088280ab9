"""Reads ELF libraries, by pyelftools."""

from __future__ import annotations

import io

from elftools.elf.elffile import ELFFile

from .library import Library, UnreadableError

EXECUTABLE = 4  # SHF_EXECINSTR
MACHINES = {"EM_X86_64": "x86_64", "EM_AARCH64": "aarch64"}


def read(data: bytes) -> Library:
    """The library in ``data``.

    Raises:
        UnreadableError: It is no ELF library.
    """
    try:
        file = ELFFile(io.BytesIO(data))
        dynamic = file.get_section_by_name(".dynamic")
        symbols = file.get_section_by_name(".dynsym")
        if file.header["e_type"] != "ET_DYN" or dynamic is None or symbols is None:
            raise UnreadableError(f"expected an ELF shared library, got {file.header['e_type']}")
        library = Library("linux", MACHINES.get(file.header["e_machine"], str(file.header["e_machine"])))
        tags = list(dynamic.iter_tags())
        library.needs = {tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED"}
        library.exports = {
            symbol.name
            for symbol in symbols.iter_symbols()
            if symbol["st_shndx"] != "SHN_UNDEF" and symbol["st_info"]["bind"] != "STB_LOCAL"
        }
        for section in file.iter_sections():
            if section["sh_flags"] & EXECUTABLE and section["sh_type"] != "SHT_NOBITS":
                library.add_code(data, section.name, section["sh_addr"], section["sh_offset"], section["sh_size"])
        versions = file.get_section_by_name(".gnu.version_r")
        if versions is not None:
            if versions.num_versions() > len(data) // 16:
                raise ValueError("a table of versions that is larger than the file")
            library.versions = {entry.name for _, entries in versions.iter_versions() for entry in entries}
        library.weaknesses = _weaknesses(file, {tag.entry.d_tag: tag for tag in tags})
    except UnreadableError:
        raise
    except Exception as error:  # pyelftools fails in as many ways as a file can be damaged
        raise UnreadableError(f"expected an ELF shared library, got a damaged one ({error})") from error
    return library


def _weaknesses(file: ELFFile, tags: dict[str, object]) -> list[str]:
    segments = {segment["p_type"]: segment for segment in file.iter_segments()}
    stack = segments.get("PT_GNU_STACK")
    now = "DT_BIND_NOW" in tags or bool(_value(tags, "DT_FLAGS") & 8) or bool(_value(tags, "DT_FLAGS_1") & 1)
    found = {
        "its stack is executable": stack is None or bool(stack["p_flags"] & 1),
        "addresses of imports stay writable (no RELRO)": "PT_GNU_RELRO" not in segments or not now,
        "code is relocated at load time (text relocations)": "DT_TEXTREL" in tags or bool(_value(tags, "DT_FLAGS") & 4),
        "has a search path of its own (RPATH)": "DT_RPATH" in tags or "DT_RUNPATH" in tags,
        "has a table of local symbols": file.get_section_by_name(".symtab") is not None,
        "has debug information": any(section.name.startswith(".debug") for section in file.iter_sections()),
    }
    return [weakness for weakness, holds in found.items() if holds]


def _value(tags: dict[str, object], name: str) -> int:
    return int(tags[name].entry.d_val) if name in tags else 0  # type: ignore[attr-defined]
