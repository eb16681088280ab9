"""Builds the wheels of every platform on one machine, with zig: cross_wheels.py [--to dist] [PLATFORM...].

Runs in an environment that holds build, cmake, ninja, scikit-build-core, wheel, ziglang and zopfli (``nox -s wheels``
makes one). Built twice, in whatever folder, a wheel is the same to the byte.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path
from unittest import mock

from slim_wheel import slim

ROOT = Path(__file__).parents[1]
SCRATCH = ROOT / "build/cross"
# What zig compiles for each platform: the oldest system that the name of the wheel promises. pip before 20.3, which
# came with Python 3.9, knows the second names only.
TARGETS = {
    "win_amd64": "x86_64-windows-gnu",
    "manylinux_2_17_x86_64.manylinux2014_x86_64": "x86_64-linux-gnu.2.17",
    "manylinux_2_17_aarch64.manylinux2014_aarch64": "aarch64-linux-gnu.2.17",
    "macosx_10_15_x86_64": "x86_64-macos.10.15",
    "macosx_11_0_arm64": "aarch64-macos.11.0",
}
OLDEST_TIME = "315619200"  # archives cannot say earlier than 1980


def zig() -> Path:
    """The program in the package ziglang."""
    import ziglang

    return Path(ziglang.__file__).with_name("zig.exe" if sys.platform == "win32" else "zig")


def source_time() -> str:
    """SOURCE_DATE_EPOCH, or when what is checked out was committed."""
    if named := os.environ.get("SOURCE_DATE_EPOCH"):
        return named
    git = shutil.which("git")
    if git is None:
        return OLDEST_TIME
    said = subprocess.run([git, "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=False)
    return said.stdout.strip() or OLDEST_TIME


def environment(target: str) -> dict[str, str]:
    """What cmake/zig-toolchain.cmake reads, and where zig keeps what it compiles for itself."""
    caches = {"ZIG_GLOBAL_CACHE_DIR": str(ROOT / "build/zig"), "ZIG_LOCAL_CACHE_DIR": str(SCRATCH / target / "zig")}
    return {**os.environ, **caches, "ZIG": str(zig()), "ZIG_TARGET": target, "SOURCE_DATE_EPOCH": source_time()}


def build(platform: str, to: Path) -> Path:
    """Builds one wheel.

    Args:
        platform: A key of TARGETS.
        to: The folder it goes into.

    Returns:
        The wheel.
    """
    target = TARGETS[platform]
    scratch = SCRATCH / target
    shutil.rmtree(scratch, ignore_errors=True)
    toolchain = (ROOT / "cmake/zig-toolchain.cmake").as_posix()
    subprocess.run(
        [
            sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", scratch / "wheel",
            f"-Cbuild-dir={(scratch / 'cmake').as_posix()}",
            f"-Ccmake.args=-DCMAKE_TOOLCHAIN_FILE={toolchain};-GNinja;-DCMAKE_COMPILE_WARNING_AS_ERROR=ON",
            ROOT,
        ],
        env=environment(target), check=True,
    )  # fmt: skip
    (made,) = (scratch / "wheel").glob("*.whl")
    # It carries the name of this machine; only the name and the files WHEEL and RECORD change.
    said = subprocess.run(
        [
            sys.executable, "-m", "wheel", "tags", "--remove",
            "--python-tag=py3", "--abi-tag=none", f"--platform-tag={platform}", made,
        ],
        env=environment(target), capture_output=True, text=True, check=True,
    )  # fmt: skip
    renamed = scratch / "wheel" / said.stdout.split()[-1]
    with mock.patch.dict(os.environ, environment(target)):
        slim(renamed, scratch / "unpacked")
    to.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(renamed, to))


def run_core_tests(platform: str, emulator: Path) -> None:
    """Builds the core's own tests for a platform and runs them by an emulator."""
    folder, target = ROOT / "build/cross-tests" / TARGETS[platform], TARGETS[platform]
    options = {
        "CMAKE_BUILD_TYPE": "Release", "CMAKE_CROSSCOMPILING_EMULATOR": emulator.as_posix(),
        "CMAKE_TOOLCHAIN_FILE": (ROOT / "cmake/zig-toolchain.cmake").as_posix(), "SAGE_ATTENTION_TESTS": "ON",
    }  # fmt: skip
    commands: tuple[list[str | Path], ...] = (
        ["cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", *(f"-D{name}={value}" for name, value in options.items())],
        ["cmake", "--build", folder],
        ["ctest", "--test-dir", folder, "--output-on-failure"],
    )
    for command in commands:
        subprocess.run(command, env=environment(target), check=True)


def main() -> int:
    """Builds what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("platforms", nargs="*", metavar="PLATFORM", help=f"of {', '.join(TARGETS)}; all by default")
    parser.add_argument("--to", type=Path, default=ROOT / "dist", help="the folder they go into")
    parser.add_argument(
        "--core-tests", type=Path, metavar="EMULATOR", help="run the core's tests instead, by a program"
    )
    arguments = parser.parse_args()
    known = {alias: platform for platform in TARGETS for alias in (platform, *platform.split("."))}
    unknown = [name for name in arguments.platforms if name not in known]
    if unknown:
        parser.error(f"PLATFORM: expected any of {', '.join(TARGETS)}, got {unknown[0]}")
    for platform in [known[name] for name in arguments.platforms] or TARGETS:
        if arguments.core_tests:
            run_core_tests(platform, arguments.core_tests)
        else:
            print(build(platform, arguments.to), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
