"""The library and the C program as Microsoft's compiler builds them, where that is at hand."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

from suite import Build
from wine import BenchError, windows_path

INSTALLER = r"Microsoft Visual Studio\Installer\vswhere.exe"
TOOLS = "Microsoft.VisualStudio.Component.VC.Tools.x86.x64"


@dataclass(frozen=True)
class Compiler:
    """An MSVC.

    Args:
        python: The command of a Windows Python whose pip finds it.
        cl: The command of ``cl`` in a developer's environment.
        options: pip's that it needs.
        variables: Of the environment, that CMake needs.
    """

    python: tuple[str, ...]
    cl: tuple[str, ...]
    options: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)

    def build(self, root: Path, folder: Path) -> Build:
        """Builds the library as ``pip wheel .`` does, and the program as its page says.

        Args:
            root: The repository.
            folder: For what is built; emptied first.

        Raises:
            BenchError: Something does not build.
        """
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        options = ["--no-deps", "-Ccmake.define.CMAKE_COMPILE_WARNING_AS_ERROR=ON", "--wheel-dir", windows_path(folder)]
        command = [*self.python, "-m", "pip", "wheel", *self.options, *options, windows_path(root)]
        _run(command, folder, folder / "library.log", self.variables)
        (wheel,) = folder.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            library = Path(archive.extract("sage_attention/sage_attention.dll", folder))
        switches = (
            "/nologo",
            "/std:c11",
            "/W4",
            "/WX",
            "/utf-8",
            "/O2",
            "/MT",
            "/I",
            windows_path(root / "core/include"),
        )
        sources = map(windows_path, sorted((root / "deploy/c").glob("*.c")))
        program = folder / "apply_model.exe"
        _run([*self.cl, *switches, *sources, f"/Fe:{program.name}", "shell32.lib"], folder, folder / "program.log", {})
        return Build(library, program)


def find() -> Compiler | None:
    """An MSVC, None if there is none.

    On Windows a Visual Studio of 2017 or newer. On Linux what the folder that ``WINDOWS_LAB`` names has in ``bin``, on
    Wine: ``cl`` and ``wpy``, a Python with pip, scikit-build-core, CMake and Ninja.
    """
    lab = os.environ.get("WINDOWS_LAB")
    if lab:
        python, cl = (Path(lab, "bin", name) for name in ("wpy", "cl"))
        if not (python.exists() and cl.exists()):
            raise BenchError(f"WINDOWS_LAB: expected a folder with bin/wpy and bin/cl, got {lab}")
        # On Wine pip is slow, there is no Visual Studio to generate for, and Microsoft's make and PDB server fail.
        ninja = {"CMAKE_GENERATOR": "Ninja", "_CL_": "/Z7"}
        return Compiler((str(python),), (str(cl),), ("--no-build-isolation",), ninja)
    if sys.platform != "win32":
        return None
    finder = Path(os.environ.get("PROGRAMFILES(X86)", r"C:\Program Files (x86)"), INSTALLER)
    if not finder.exists():
        return None
    ask = [str(finder), "-products", "*", "-latest", "-requires", TOOLS, "-property", "installationPath"]
    place = subprocess.run(ask, check=True, capture_output=True, text=True).stdout.strip()
    if not place:
        return None
    # A developer's environment lasts as long as the cmd that made it.
    activate = str(Path(place, r"VC\Auxiliary\Build\vcvars64.bat"))
    return Compiler((sys.executable,), ("cmd", "/d", "/s", "/c", "call", activate, "&&", "cl"))


def _run(command: list[str], folder: Path, log: Path, variables: dict[str, str]) -> None:
    environment = os.environ | variables
    with log.open("wb") as output:
        status = subprocess.run(
            command, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT
        ).returncode
    if status:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-30:]
        raise BenchError("\n".join([f"{' '.join(command)}: exit status {status}", *lines]))
