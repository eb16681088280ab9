"""The library as Microsoft's compiler builds it, where that is at hand."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from wine import BenchError

INSTALLER = r"Microsoft Visual Studio\Installer\vswhere.exe"
TOOLS = "Microsoft.VisualStudio.Component.VC.Tools.x86.x64"


def python_beside_msvc() -> list[str] | None:
    """The command of a Windows Python that can build with MSVC, None if there is none.

    On Windows this Python, if a Visual Studio is installed. On Linux ``bin/wpy`` of the folder that ``WINDOWS_LAB``
    names: Wine, the compiler, and a Python with pip, scikit-build-core, CMake and Ninja.
    """
    lab = os.environ.get("WINDOWS_LAB")
    if lab:
        program = Path(lab, "bin/wpy")
        if not program.exists():
            raise BenchError(f"WINDOWS_LAB: expected a folder with bin/wpy, got {lab}")
        return [str(program)]
    if sys.platform != "win32":
        return None
    finder = Path(os.environ.get("PROGRAMFILES(X86)", r"C:\Program Files (x86)"), INSTALLER)
    if not finder.exists():
        return None
    ask = [str(finder), "-products", "*", "-latest", "-requires", TOOLS, "-property", "installationPath"]
    return [sys.executable] if subprocess.run(ask, check=True, capture_output=True).stdout.strip() else None


def build(python: list[str], root: Path, folder: Path) -> Path:
    """Builds the library as ``pip wheel .`` does.

    Args:
        python: A Windows Python's command.
        root: The repository.
        folder: For the wheel and the library; emptied first.

    Returns:
        The library's path.

    Raises:
        BenchError: It does not build.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = [*python, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", str(folder), str(root)]
    if sys.platform != "win32":
        command.insert(-1, "--no-build-isolation")  # pip itself is slow on Wine
    log = folder / "build.log"
    with log.open("wb") as output:
        done = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-30:]
        raise BenchError("\n".join([f"{' '.join(command)}: exit status {done.returncode}", *lines]))
    with zipfile.ZipFile(wheels[0]) as archive:
        return Path(archive.extract("sage_attention/sage_attention.dll", folder))
