"""What shall be inspected: a file, a wheel, an installed package; each becomes a folder and the binaries in it."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from sage_attention.errors import ArgumentError, DataError

from .archive import unpack
from .reading import is_binary
from .tags import WheelTags, module_name, wheel_tags

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["Subject", "find_subject"]

_MOST_FILES = 200_000
_LONGEST_NAME = 200
_LIBRARY = re.compile(r".*(\.(dll|dylib|exe|pyd|so|bundle)|\.so\.[\d.]+)", re.IGNORECASE)


@dataclass(frozen=True)
class Subject:
    """The files to inspect and the folder they are, or will be, installed in.

    Attributes:
        title: What the user asked for.
        root: The folder that takes the place of site-packages.
        files: Binaries under it.
        tags: What the wheel's name promises, if it is a wheel.
        kind: ``file``, ``wheel`` or ``package``.
        requires: Names of the distributions it needs, normalised, as its metadata says.
        wheel_file_tags: The tags that the wheel's own ``WHEEL`` file gives.
    """

    title: str
    root: Path
    files: tuple[Path, ...]
    kind: str
    tags: WheelTags | None = None
    requires: frozenset[str] = frozenset()
    wheel_file_tags: frozenset[str] = frozenset()
    members: tuple[str, ...] = field(default=(), repr=False)

    def name_of(self, path: Path) -> str:
        """A file as the user knows it: relative to the root, with forward slashes."""
        try:
            return path.relative_to(self.root).as_posix()
        except ValueError:
            return str(path)


def find_subject(asked: str, site: Path | None, scratch: Path) -> Subject:
    """Finds what the user named.

    Args:
        asked: A file, a wheel, a folder, or the name of a module or distribution.
        site: The folder in which to look for a module or distribution; this Python's by default.
        scratch: An empty folder for what is unpacked.

    Raises:
        ArgumentError: There is nothing of that name.
        DataError: It is there and cannot be used.
    """
    if not asked:
        raise ArgumentError("FILE", "a file, a wheel, a folder, or the name of an installed package", "an empty word")
    path = Path(asked)
    try:
        is_file, is_folder = path.is_file(), path.is_dir()
    except (OSError, ValueError):  # a name that no file can have
        is_file = is_folder = False
    if is_file and path.suffix.lower() == ".whl":
        return _wheel(asked, path, scratch)
    if is_file:
        path = path.absolute()
        root = site if site is not None and site in path.parents else _package_root(path.parent)
        return Subject(asked, root, (path,), "file")
    if is_folder:
        path = path.absolute()
        files = _binaries(path, _below(path))
        if not files:
            raise DataError(path, "a folder with binaries in it", "none")
        return Subject(asked, _package_root(path), files, "package")
    if "/" in asked or "\\" in asked or path.suffix.lower() in (".whl", ".pyd", ".dll", ".so", ".dylib"):
        raise DataError(path, "a file, a wheel, a folder, or the name of an installed package", "no such file")
    return _installed(asked, site)


def _package_root(folder: Path) -> Path:
    """The first folder upwards that is not itself a package."""
    while (folder / "__init__.py").is_file() and folder.parent != folder:
        folder = folder.parent
    return folder


def _wheel(asked: str, path: Path, scratch: Path) -> Subject:
    tags = wheel_tags(path)
    members = unpack(path, scratch)
    requires: frozenset[str] = frozenset()
    wheel_file_tags: frozenset[str] = frozenset()
    for info in scratch.glob("*.dist-info"):
        requires = _requires(info)
        wheel = info / "WHEEL"
        if wheel.is_file():
            text = wheel.read_text(encoding="utf-8", errors="replace")
            wheel_file_tags = frozenset(re.findall(r"^Tag:\s*(\S+)\s*$", text, re.MULTILINE))
    data_folder = f"{members[0].split('/')[0].partition('-')[0]}-" if members else ""
    for folder in ("platlib", "purelib"):  # what pip lays over site-packages
        for found in scratch.glob(f"{data_folder}*.data/{folder}"):
            _merge(found, scratch)
    files = _binaries(scratch, _below(scratch))
    return Subject(
        asked, scratch, files, "wheel", tags=tags, requires=requires, wheel_file_tags=wheel_file_tags,
        members=tuple(members),
    )  # fmt: skip


def _merge(source: Path, target: Path) -> None:
    for path in sorted(source.rglob("*")):
        place = target / path.relative_to(source)
        if path.is_file() and not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            path.replace(place)


def _requires(info: Path) -> frozenset[str]:
    metadata = info / "METADATA"
    if not metadata.is_file():
        return frozenset()
    text = metadata.read_text(encoding="utf-8", errors="replace")
    # What an extra needs is not there unless somebody asked for it.
    rows = [
        row for row in re.findall(r"^Requires-Dist:\s*(.+)$", text, re.MULTILINE) if not re.search(r"\bextra\s*==", row)
    ]
    names = (re.match(r"[\w.-]+", row) for row in rows)
    return frozenset(re.sub(r"[-_.]+", "-", name[0]).lower() for name in names if name)


def _below(folder: Path) -> Iterator[Path]:
    """Every file below a folder; links to folders are not followed, what cannot be listed is left out."""
    for here, _, names in os.walk(folder):
        yield from (Path(here, name) for name in names)


def _binaries(root: Path, paths: Iterable[Path]) -> tuple[Path, ...]:
    found = []
    for number, path in enumerate(paths):
        if number > _MOST_FILES:
            raise DataError(root, f"at most {_MOST_FILES} files", "more")
        try:
            named = _LIBRARY.fullmatch(path.name) or not path.suffix
            if named and path.is_file() and (is_binary(path) or path.suffix.lower() == ".pyd"):
                found.append(path)
        except OSError:
            continue  # gone, or not ours to read
    return tuple(sorted(found))


def _installed(asked: str, site: Path | None) -> Subject:
    """A module or a distribution in the given folder, else in those of this Python."""
    folders = [site] if site else [Path(entry) for entry in sys.path if entry and Path(entry).is_dir()]
    for folder in folders:
        found = _module_files(folder, asked) or _distribution_files(folder, asked)
        if found is not None:
            files, info = found
            if not files:
                raise DataError(folder / asked, "a package with binaries in it", "none: it is pure Python")
            return Subject(asked, folder, files, "package", requires=_requires(info) if info else frozenset())
    where = str(site) if site else "this Python"
    raise ArgumentError(
        "FILE", "a file, a wheel, or the name of a module or distribution", f"{asked[:100]!r}, which is not in {where}",
        hint="--site FOLDER names another site-packages",
    )  # fmt: skip


def _module_files(folder: Path, dotted: str) -> tuple[tuple[Path, ...], Path | None] | None:
    if not re.fullmatch(r"\w+(\.\w+)*", dotted) or len(dotted) > _LONGEST_NAME:
        return None
    place = folder.joinpath(*dotted.split("."))
    info = _dist_info(folder, dotted.split(".")[0])
    if place.is_dir() and place.name:
        paths = list(_below(place))
        libraries = folder / f"{place.name}.libs"  # where delvewheel and auditwheel put what they copy
        if libraries.is_dir():
            paths += _below(libraries)
        return _binaries(folder, paths), info
    if not place.parent.is_dir():
        return None
    files = tuple(
        path
        for path in sorted(place.parent.glob(f"{place.name}*"))
        if path.is_file() and (name := module_name(path.name)) and name.module == place.name
    )
    return (files, info) if files else None


def _dist_info(folder: Path, name: str) -> Path | None:
    wanted = re.sub(r"[-_.]+", "_", name).lower()
    for info in folder.glob("*.dist-info"):
        if re.sub(r"[-_.]+", "_", info.name.partition("-")[0]).lower() == wanted:
            return info
    return None


def _distribution_files(folder: Path, name: str) -> tuple[tuple[Path, ...], Path | None] | None:
    info = _dist_info(folder, name)
    if info is None:
        return None
    record = info / "RECORD"
    if not record.is_file():
        raise DataError(record, "the list of the distribution's files", "no such file", hint="install it anew with pip")
    lines = record.read_text(encoding="utf-8", errors="replace").splitlines()[:_MOST_FILES]
    rows = (line.rsplit(",", 2)[0].strip('"') for line in lines)
    return _binaries(folder, (folder / row for row in rows if row and ".." not in Path(row).parts)), info
