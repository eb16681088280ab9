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
        recipe = ((HERE / part).read_text() for part in ("cpython.py", "launcher.c", "bcryptprimitives.c"))
        self._step("python", [self.version, *recipe], self._make_python)
        # Apart from each other, so that another version of one leaves the others as they are.
        self._step("torch", [self.version, self.torch], self._install_torch)
        requirements = [*packages.test_requirements(ROOT / "pyproject.toml"), *packages.WINDOWS_ONLY]
        self._step(
            "packages",
            [self.version, self.torch, *requirements],
            lambda: self._install_packages(requirements),
        )
        with self.running() as windows:
            check = "import numpy, safetensors, sys; print(sys.version, sys.platform, 'NumPy', numpy.__version__)"
            if windows.run([self.program, "-c", check], self.folder):
                raise wine.BenchError(f"{self.program} does not run; remove {self.folder} and try again")

    def install(self, wheel: Path) -> None:
        """Installs the product's wheel in place of an earlier one."""
        packages.install(self.folder / "product", self.version, "--no-deps", wheel)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps the bench for this process; another that wants it waits."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print(f"waiting for another process that uses {self.folder}", flush=True)
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def running(self) -> wine.Wine:
        """Wine, for as long as a ``with`` block lasts."""
        return wine.Wine(self.folder / "prefix")

    def _step(self, name: str, needs: list[str], action: Callable[[], None]) -> None:
        """Does a step unless it was done with the same needs."""
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

    def _make_python(self) -> None:
        shutil.rmtree(self.python, ignore_errors=True)
        cpython.build(self.python, self.version, self.downloads)
        folders = "".join(f"..\\..\\..\\{name}\n" for name in ("product", "packages", "torch"))
        (self.python / "Lib/site-packages/bench.pth").write_text(folders)

    def _install_torch(self) -> None:
        wheel = packages.download(self.torch, self.version, self.downloads)
        packages.install(self.folder / "torch", self.version, "--no-deps", wheel)

    def _install_packages(self, requirements: list[str]) -> None:
        needs = packages.needs_anywhere(packages.download(self.torch, self.version, self.downloads))
        packages.install(self.folder / "packages", self.version, *requirements, *needs)
