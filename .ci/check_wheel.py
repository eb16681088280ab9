"""Looks into a wheel: tag, size, files, and what its library exports and needs: check_wheel.py WHEEL."""

from __future__ import annotations

import io
import re
import sys
import zipfile
from pathlib import Path

from elftools.elf.elffile import ELFFile

ROOT = Path(__file__).parents[1]
MOST_BYTES = 1_500_000
NAME = re.compile(r"sage_graph_attention-(?P<version>[\d.]+)-py3-none-(?P<platform>\w+)\.whl")
# The C library and its loader; whatever else a system has or lacks does not matter.
MAY_NEED = re.compile(r"(libc|libm|libpthread|ld-linux-[\w-]+)\.so\.\d+")


def source_files() -> set[str]:
    """What of the source tree belongs into a wheel."""
    package = ROOT / "src/sage_attention"
    files = [path.relative_to(package.parent) for path in package.rglob("*") if path.is_file()]
    return {
        file.as_posix()
        for file in files
        if file.suffix not in (".pyc", ".so", ".dll", ".dylib") and not any(part[0] == "." for part in file.parts)
    }


def declared_functions() -> set[str]:
    """The functions of the header."""
    header = (ROOT / "core/include/sage_attention.h").read_text(encoding="utf-8")
    header = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
    return set(re.findall(r"SAGE_ATTENTION_API\s+[\w\s*]+?\b(sage_attention_\w+)\s*\(", header))


def library_faults(data: bytes) -> list[str]:
    """What is wrong with an ELF library."""
    library = ELFFile(io.BytesIO(data))
    symbols = library.get_section_by_name(".dynsym").iter_symbols()
    exported = {
        symbol.name
        for symbol in symbols
        if symbol["st_shndx"] != "SHN_UNDEF" and symbol["st_info"]["bind"] != "STB_LOCAL"
    }
    needed = [tag.needed for tag in library.get_section_by_name(".dynamic").iter_tags("DT_NEEDED")]
    declared = declared_functions()
    return [
        *(f"not exported: {name}" for name in sorted(declared - exported)),
        *(f"exported, but not in the header: {name}" for name in sorted(exported - declared)),
        *(f"needs {name}" for name in needed if not MAY_NEED.fullmatch(name)),
        *(["has debug information"] if library.get_section_by_name(".debug_info") else []),
    ]


def faults(wheel: Path) -> list[str]:
    """All that is wrong with a wheel."""
    name = NAME.fullmatch(wheel.name)
    if name is None:
        return [f"name {wheel.name}"]
    found = []
    if wheel.stat().st_size > MOST_BYTES:
        found.append(f"{wheel.stat().st_size} bytes")
    with zipfile.ZipFile(wheel) as archive:
        files = {file for file in archive.namelist() if not file.endswith("/")}
        about = f"sage_graph_attention-{name['version']}.dist-info"
        metadata = ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")
        expected = {f"{about}/{file}" for file in metadata}
        suffix = ".dll" if name["platform"].startswith("win") else ".so"
        library = f"sage_attention/sage_attention{suffix}"
        expected |= {library, *source_files()}
        found += [f"missing: {file}" for file in sorted(expected - files)]
        found += [f"should not be there: {file}" for file in sorted(files - expected)]
        if library in files and name["platform"].startswith(("linux", "manylinux", "musllinux")):
            found += library_faults(archive.read(library))
    return found


def main() -> int:
    """Prints what is wrong with each wheel."""
    wheels = [Path(name) for name in sys.argv[1:]]
    bad = 0
    for wheel in wheels:
        wrong = faults(wheel)
        bad += bool(wrong)
        print(f"{wheel.name}: {wheel.stat().st_size:,} bytes, {'; '.join(wrong) or 'as it should be'}")
    return 1 if bad or not wheels else 0


if __name__ == "__main__":
    sys.exit(main())
