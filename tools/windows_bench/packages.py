"""Windows packages, fetched on Linux with pip."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

from wine import BenchError

if TYPE_CHECKING:
    from pathlib import Path

# pip judges "sys_platform == 'win32'" by the machine it runs on: what only Windows needs stands here.
WINDOWS_ONLY = ("colorama", "tzdata")


def pip(*arguments: str | Path) -> None:
    """Runs pip.

    Raises:
        BenchError: It failed.
    """
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise BenchError(f"{' '.join(command)}: exit status {done.returncode}\n{(done.stdout + done.stderr)[-2000:]}")


def platform(version: str) -> list[str]:
    """The options of pip for Windows."""
    return ["--platform=win_amd64", f"--python-version={version}", "--implementation=cp", "--only-binary=:all:"]


def download(requirement: str, version: str, folder: Path) -> Path:
    """A Windows wheel, from the folder if it is there already.

    Args:
        requirement: Name and version, ``"name==1.2"``.
        version: Python's.
        folder: Where wheels are kept.
    """
    name, _, release = requirement.partition("==")

    def found() -> list[Path]:
        digits = version.replace(".", "")
        wheels = folder.glob(f"{name.replace('-', '_')}-{release}-*.whl")
        return [wheel for wheel in wheels if f"-cp{digits}-" in wheel.name or "-py3-" in wheel.name]

    if not found():
        folder.mkdir(parents=True, exist_ok=True)
        pip("download", "--quiet", "--no-deps", f"--dest={folder}", *platform(version), requirement)
    return found()[0]


def test_requirements(pyproject: Path) -> list[str]:
    """What the test suite needs beside torch: the dependencies and the ``test`` extra, with the extras it names.

    Read with expressions, since Python 3.9 and 3.10 have no TOML.
    """
    text = re.sub(r"(?m)^#.*\n", "", pyproject.read_text(encoding="utf-8"))
    lists = {name: re.findall(r'"([^"]+)"', body) for name, body in re.findall(r"(?ms)^(\w+) = \[(.*?)\]$", text)}
    project = re.search(r'(?m)^name = "(.+)"$', text)
    if not project or "test" not in lists:
        raise BenchError(f"{pyproject}: expected the project's name and an extra called test")
    wanted = [*lists["dependencies"], *lists["test"]]
    needed: dict[str, None] = {}
    while wanted:
        requirement = wanted.pop(0)
        extras = re.fullmatch(rf"{re.escape(project[1])}\[([\w,]+)\]", requirement)
        if extras:
            wanted += [each for extra in extras[1].split(",") for each in lists[extra]]
        elif not re.match(r"torch\b(?!-)", requirement):
            needed[requirement] = None
    return list(needed)


def install(folder: Path, version: str, *arguments: str | Path) -> None:
    """Installs into a folder, which is emptied first.

    Args:
        folder: Will be on Python's path.
        version: Python's.
        *arguments: Requirements, wheels, options of pip.
    """
    shutil.rmtree(folder, ignore_errors=True)
    # Compiled files are good for the same version alone; else Windows Python writes its own when it first imports.
    compiled = sys.version_info[:2] == tuple(map(int, version.split(".")))
    options = ["--quiet", f"--target={folder}", *platform(version), *([] if compiled else ["--no-compile"])]
    pip("install", *options, *arguments)


def needs_anywhere(wheel: Path) -> list[str]:
    """What a wheel needs on any system; off Windows torch names libraries for NVIDIA's cards as well."""
    with zipfile.ZipFile(wheel) as archive:
        metadata = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return re.findall(r"(?m)^Requires-Dist: ([^;\n]+)$", archive.read(metadata).decode())
