"""A bench: a folder with a Wine prefix, a Windows Python and its packages. Each step that is done is not done again."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import cpython
import packages
import wine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

if sys.platform != "win32":
    import fcntl

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent


class Bench:
    """A bench.

    Args:
        folder: Where it lies; it is made if it is not there.
        version: Python's, such as ``"3.11"``.
        torch: Name and version of torch.

    Attributes:
        program: Windows' ``python.exe``.
    """

    def __init__(self, folder: Path, version: str, torch: str) -> None:
        self.folder = folder.absolute()
        self.version = version
        self.torch = torch
        self.python = self.folder / "python"
        self.program = self.python / "python.exe"
        self.downloads = self.folder / "downloads"

    def setup(self) -> None:
        """Does what is not done yet.

        Raises:
            wine.NoWineError: Wine cannot be installed.
            wine.BenchError: Anything else is in the way.
        """
        wine.install()
        requirements = packages.test_requirements(ROOT / "pyproject.toml")
        parts = ["cpython.py", "launcher.c"]
        python = self._step("python", [self.version, *((HERE / part).read_text() for part in parts)], self._make_python)
        self._step(
            "packages",
            [python, self.torch, *requirements, *packages.WINDOWS_ONLY],
            lambda: self._install_packages(requirements),
        )
        with self.running() as windows:
            check = "import numpy, sys; print('Python', sys.version, 'NumPy', numpy.__version__, sys.platform)"
            if windows.run([self.program, "-c", check], self.folder):
                raise wine.BenchError(f"{self.program} does not run; remove {self.folder} and try again")

    def install(self, wheel: Path) -> None:
        """Installs the product's wheel in place of an earlier one."""
        product = self.folder / "product"
        shutil.rmtree(product, ignore_errors=True)
        packages.pip("install", "--quiet", f"--target={product}", "--no-deps", "--no-compile",
                     *packages.platform(self.version), wheel)  # fmt: skip
        (self.python / "Lib/site-packages/product.pth").write_text("..\\..\\..\\product\n")

    @contextlib.contextmanager
    def running(self) -> Iterator[wine.Wine]:
        """Wine, for as long as the block lasts; another process that wants it waits."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print(f"waiting for another process that uses {self.folder}", flush=True)
                fcntl.flock(lock, fcntl.LOCK_EX)
            with wine.Wine(self.folder / "prefix") as windows:
                yield windows

    def _step(self, name: str, needs: list[str], action: Callable[[], None]) -> str:
        """Does a step unless it was done with the same needs; returns their digest."""
        digest = hashlib.sha256(json.dumps(needs).encode()).hexdigest()
        stamp = self.folder / "steps" / name
        if not stamp.exists() or stamp.read_text() != digest:
            print(f"{name}…", end=" ", flush=True)
            start = time.monotonic()
            stamp.unlink(missing_ok=True)
            action()
            stamp.parent.mkdir(parents=True, exist_ok=True)
            stamp.write_text(digest)
            print(f"{time.monotonic() - start:.0f} s", flush=True)
        return digest

    def _make_python(self) -> None:
        shutil.rmtree(self.python, ignore_errors=True)
        cpython.build(self.python, self.version, self.downloads)

    def _install_packages(self, requirements: list[str]) -> None:
        site = self.python / "Lib/site-packages"
        shutil.rmtree(site, ignore_errors=True)
        packages.install(site, self.version, self.torch, requirements, self.downloads)
