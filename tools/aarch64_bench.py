"""Sets up a Python for 64-bit ARM on Linux with another processor: aarch64_bench.py FOLDER [REQUIREMENT...].

FOLDER/bin/run then starts a program for ARM and FOLDER/bin/python its Python, both by qemu's user mode emulation. The
packages come from the Debian archive that apt is set up for, by a state of apt's own in FOLDER: nothing is
installed, and no right of an administrator is needed. Requirements come as wheels, by this interpreter's pip.
(Ubuntu keeps its packages for ARM on a server of their own, which apt must be told of first.)
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

PYTHON = ("python3", "libgcc-s1", "libstdc++6")  # NumPy's wheels need the last two
PLATFORMS = ("manylinux2014_aarch64", "manylinux_2_17_aarch64", "manylinux_2_27_aarch64", "manylinux_2_28_aarch64")
# A program started by its path has no emulator in front of it, so Python must start itself by its wrapper.
SITE = """import os, sys
sys.executable = sys._base_executable = os.environ["AARCH64_PYTHON"]
"""


def unpack(packages: tuple[str, ...], architecture: str, folder: Path, root: Path) -> None:
    """Downloads Debian packages with all that they depend on, and unpacks them.

    Args:
        packages: Their names.
        architecture: Debian's name of the processor.
        folder: Where apt keeps its state for this.
        root: Where the files go.
    """
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "status").touch()  # nothing is installed, so everything is downloaded
    settings = f"""APT::Architecture "{architecture}";
APT::Architectures {{ "{architecture}"; }};
APT::Install-Recommends "false";
APT::Sandbox::User "";
Dir::State "{folder}";
Dir::State::Lists "{folder}/lists";
Dir::State::status "{folder}/status";
Dir::Cache "{folder}/cache";
"""
    (folder / "apt.conf").write_text(settings, encoding="utf-8")
    apt = {**os.environ, "APT_CONFIG": str(folder / "apt.conf"), "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-qq"], env=apt, check=True)
    subprocess.run(["apt-get", "install", "-qq", "-y", "--download-only", *packages], env=apt, check=True)
    for package in sorted((folder / "cache/archives").glob("*.deb")):
        subprocess.run(["dpkg-deb", "-x", package, root], check=True)


def emulator(folder: Path) -> str:
    """qemu: the one there is, or one from a package."""
    for name in ("qemu-aarch64-static", "qemu-aarch64"):
        if found := shutil.which(name):
            return found
    program = folder / "qemu/usr/bin/qemu-aarch64-static"
    if not program.exists():
        host = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True)
        # A static program, alone: without what it recommends or depends on.
        state, root = folder / "apt-host", folder / "qemu"
        unpack(("qemu-user-static",), host.stdout.strip(), state, root)
    return str(program)


def script(path: Path, *lines: str) -> None:
    """Writes a shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(("#!/bin/sh", *lines, "")), encoding="utf-8")
    path.chmod(0o755)


def main() -> int:
    """Sets up what is not there yet."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("requirements", nargs="*")
    arguments = parser.parse_args()
    folder = arguments.folder.absolute()
    root, site, ready = folder / "root", folder / "site", folder / "ready"
    if not shutil.which("apt-get"):
        parser.error("expected a system with apt-get (Debian, Ubuntu), got none; there are no other packages of Python")
    if ready.exists() and ready.read_text(encoding="utf-8") == "\n".join(arguments.requirements):
        return 0
    shutil.rmtree(folder, ignore_errors=True)
    root.mkdir(parents=True)
    unpack(PYTHON, "arm64", folder / "apt", root)
    if not (root / "lib").exists():
        (root / "lib").symlink_to("usr/lib")  # where packages no longer say so themselves
    script(folder / "bin/run", f'exec "{emulator(folder)}" -L "{root}" "$@"')
    python = (root / "usr/bin/python3").resolve()
    script(
        folder / "bin/python",
        f'export AARCH64_PYTHON="{folder}/bin/python" PYTHONPATH="{site}${{PYTHONPATH:+:$PYTHONPATH}}"',
        f'exec "{folder}/bin/run" "{python}" "$@"',
    )
    site.mkdir()
    if arguments.requirements:
        subprocess.run(
            [
                sys.executable, "-m", "pip", "install", "--quiet", "--target", site, "--only-binary=:all:",
                "--python-version", python.name[len("python") :],
                *(f"--platform={platform}" for platform in PLATFORMS), *arguments.requirements,
            ],
            check=True,
        )  # fmt: skip
    (site / "sitecustomize.py").write_text(SITE, encoding="utf-8")
    ready.write_text("\n".join(arguments.requirements), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
