"""The archive around a library: its files, and what it says about itself."""

from __future__ import annotations

import base64
import csv
import email.parser
import hashlib
import io
import lzma
import struct
import zipfile
import zlib
from itertools import product
from pathlib import Path

from slim_wheel import DATA, joined_tables

ROOT = Path(__file__).parents[2]
# What reading a damaged archive, or text in it that is none, may end with.
DAMAGED = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, csv.Error,
    OSError, EOFError, ValueError, RuntimeError, NotImplementedError, IndexError,
)  # fmt: skip
MOST_UNPACKED = 20_000_000
METADATA = ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")


def library_name(system: str) -> str:
    """Where in a wheel its library is: beside ``_native.py``, which looks for it there."""
    return f"sage_attention/sage_attention{'.dll' if system == 'windows' else '.so'}"


def source_files() -> set[str]:
    """What of the source tree belongs into a wheel."""
    package = ROOT / "src/sage_attention"
    files = [path.relative_to(package.parent) for path in package.rglob("*") if path.is_file()]
    return {
        file.as_posix()
        for file in files
        if file.suffix not in (".pyc", ".so", ".dll", ".dylib") and not any(part[0] == "." for part in file.parts)
    }


def file_faults(archive: zipfile.ZipFile, version: str, system: str) -> list[str]:
    """Files too few, too many, twice, or with times of their own; tables that are not the source's."""
    entries = [entry for entry in archive.infolist() if not entry.is_dir()]
    names = [entry.filename for entry in entries]
    about = f"sage_graph_attention-{version}.dist-info"
    expected = {*(f"{about}/{file}" for file in METADATA), library_name(system), *source_files()}
    joined = {}
    if not any(name.startswith(f"{DATA}/explain/") for name in names):  # as in published wheels
        joined = {f"{DATA}/{name}": text for name, text in joined_tables(ROOT / "src" / DATA).items()}
        expected = {name for name in expected if not name.startswith(f"{DATA}/")} | set(joined)
    times = sorted({entry.date_time for entry in entries})
    return [
        *(f"missing: {file}" for file in sorted(expected - set(names))),
        *(f"should not be there: {file}" for file in sorted(set(names) - expected)),
        *(f"is there twice: {name}" for name in sorted({name for name in names if names.count(name) > 1})),
        *(
            f"holds other tables than the source: {name}"
            for name in sorted(set(joined) & set(names))
            if archive.read(name) != joined[name]
        ),
        *([f"its files have different times: {times[0]} to {times[-1]}"] if len(times) > 1 else []),
    ]


def record_faults(archive: zipfile.ZipFile, version: str) -> list[str]:
    """What RECORD says of the files, against the files."""
    record = f"sage_graph_attention-{version}.dist-info/RECORD"
    files = {entry.filename for entry in archive.infolist() if not entry.is_dir()}
    if record not in files:
        return []
    rows = [row for row in csv.reader(io.StringIO(archive.read(record).decode("utf-8"))) if row]
    if any(len(row) != 3 for row in rows):
        return ["RECORD has lines of other than three fields"]
    recorded = {name: (digest, size) for name, digest, size in rows}
    faults = [f"RECORD lacks {name}" for name in sorted(files - set(recorded))]
    faults += [f"RECORD lists {name}, which is not there" for name in sorted(set(recorded) - files)]
    if len(recorded) != len(rows):
        faults.append("RECORD lists a file twice")
    for name in sorted(files & set(recorded) - {record}):
        data = archive.read(name)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        if recorded[name] != (f"sha256={digest}", str(len(data))):
            faults.append(f"RECORD says something else of {name}: {' '.join(recorded[name])}")
    if recorded.get(record, ("", "")) != ("", ""):
        faults.append("RECORD says something of itself")
    return faults


def metadata_faults(archive: zipfile.ZipFile, version: str, tags: tuple[str, str, str]) -> list[str]:
    """WHEEL and METADATA against the name of the wheel."""
    about = f"sage_graph_attention-{version}.dist-info"
    parser = email.parser.Parser()
    names = archive.namelist()
    faults = []
    if f"{about}/WHEEL" in names:
        wheel = parser.parsestr(archive.read(f"{about}/WHEEL").decode("utf-8"))
        expected = {"-".join(tag) for tag in product(*(part.split(".") for part in tags))}
        said = wheel.get_all("Tag", [])
        if sorted(said) != sorted(expected):
            faults.append(f"WHEEL says {' '.join(said) or 'no tag'}, its name {' '.join(sorted(expected))}")
        if wheel.get("Root-Is-Purelib", "").lower() != "false":
            faults.append(f"WHEEL: expected Root-Is-Purelib false, got {wheel.get('Root-Is-Purelib')}")
    if f"{about}/METADATA" in names:
        metadata = parser.parsestr(archive.read(f"{about}/METADATA").decode("utf-8"))
        said_name, said_version = metadata.get("Name"), metadata.get("Version")
        if (said_name, said_version) != ("sage-graph-attention", version):
            faults.append(f"METADATA says {said_name} {said_version}, its name sage-graph-attention {version}")
    return faults
