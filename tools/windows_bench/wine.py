"""Wine: where it is, the prefix of a bench, and Windows programs run in it."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

PLACES = ("/usr/lib/wine", "/opt/wine-stable/bin", "/opt/wine-devel/bin", "/opt/wine-staging/bin")


class BenchError(Exception):
    """The bench cannot be set up or used; the message says what to do."""


class NoWineError(BenchError):
    """There is no Wine on this machine and none can be installed."""


def windows_path(path: Path) -> str:
    """A path as Windows programs take it, in whatever folder and on whatever drive they run.

    To ``cl`` a slash starts an option, and to a program at work on C: it would start a path on C:.
    """
    return str(path) if sys.platform == "win32" else f"Z:{path}"


def find() -> tuple[str, str] | None:
    """The paths of Wine's 64-bit loader and of its server."""
    folders = [*PLACES, *os.environ.get("PATH", "").split(os.pathsep)]
    for loader, server in (("wine64", "wineserver64"), ("wine64", "wineserver"), ("wine", "wineserver")):
        for folder in map(Path, folders):
            # Debian's scripts of these names choose a loader by themselves: the loaders proper come first.
            if os.access(folder / loader, os.X_OK) and os.access(folder / server, os.X_OK):
                return str(folder / loader), str(folder / server)
    return None


def install() -> None:
    """Installs Debian's or Ubuntu's Wine if there is none.

    Raises:
        NoWineError: It cannot be installed here.
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise NoWineError(f"Wine: expected Linux on x86_64, got {sys.platform} on {platform.machine()}")
    if find():
        return
    if not shutil.which("apt-get"):
        raise NoWineError("Wine: not found, and no apt-get to install it; install Wine 8 or newer by other means")
    packages = ["apt-get", "install", "--yes", "--no-install-recommends", "wine64"]
    if os.geteuid() != 0:
        raise NoWineError(f"Wine: not found; as root: {' '.join(packages)}")
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update"], packages):
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            raise NoWineError(f"Wine: {' '.join(command)} failed:\n{done.stdout[-2000:]}")
    if not find():
        raise NoWineError(f"Wine: installed, but neither {PLACES[0]}/wine64 nor a wine on PATH is there")


class Wine:
    """A Wine prefix with its server, which lives as long as the ``with`` block; whatever runs then is ended with it.

    Args:
        prefix: The prefix's folder.
    """

    def __init__(self, prefix: Path) -> None:
        found = find()
        if not found:
            raise NoWineError("Wine: not found; run the setup first")
        self.loader, self.server = found
        self.prefix = prefix
        own = ("DISPLAY", "WAYLAND_DISPLAY", "VIRTUAL_ENV", "LC_ALL", "LANG", "LANGUAGE")
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if name not in own and not name.startswith(("PYTHON", "WINE", "COV_", "PYTEST_"))
        }
        self.environment |= {
            "WINEPREFIX": str(prefix),
            "WINEARCH": "win64",
            "WINEDEBUG": os.environ.get("WINEDEBUG", "-all"),
            # No .NET, no browser, no crash dialogue; Microsoft's C runtime, beside python.exe, before Wine's.
            "WINEDLLOVERRIDES": "mscoree=;mshtml=;winedbg.exe=;ucrtbase=n,b",
            # Wine takes the encoding of Linux's file names from here; Windows' ANSI code page is 1252 then.
            "LC_ALL": "C.UTF-8",
            # Intel's OpenMP asks the kernel for the cores in a way that Wine does not know.
            "KMP_AFFINITY": "disabled",
        }

    def __enter__(self) -> Wine:  # noqa: PYI034 - Self is younger than Python 3.9
        self.prefix.mkdir(parents=True, exist_ok=True)
        # Without a server that stays, every first program waits for Windows' services to start: three seconds.
        self._quietly([self.server, "-p"])
        ready = self.prefix / "ready"
        if not ready.exists():
            self._quietly([self.loader, "wineboot", "-u"])
            self._quietly([self.loader, "winecfg", "-v", "win10"])
            ready.touch()
        # What a server's first program finds missing it starts: Windows' services, which then hold its pipes.
        self._quietly([self.loader, "cmd", "/c", "exit"])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for option in ("-k", "-w"):
            subprocess.run([self.server, option], env=self.environment, stderr=subprocess.DEVNULL)

    def run(self, command: Sequence[str | Path], folder: Path, environment: dict[str, str] | None = None) -> int:
        """Runs a Windows program and copies what it prints, with Linux's line ends.

        Args:
            command: The program and its arguments.
            folder: Where it starts.
            environment: More variables.

        Returns:
            Its exit status, of which Linux keeps eight bits.
        """
        # Pipes: CPython under Wine takes neither a file nor /dev/null as a standard stream (WinError 6).
        with subprocess.Popen(
            [self.loader, *command],
            cwd=folder,
            env=self.environment | (environment or {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
        ) as process:
            if process.stdin and process.stdout:  # always: they are pipes
                process.stdin.close()
                copying = threading.Thread(target=_copy, args=(process.stdout,), daemon=True)
                copying.start()
                process.wait()
                # Whatever it left running may hold the pipe; all that the program itself wrote is in it already.
                copying.join(5)
        return process.returncode

    def _quietly(self, command: list[str]) -> None:
        # No pipes: the services that this starts would hold them open.
        nothing = subprocess.DEVNULL
        status = subprocess.run(command, env=self.environment, stdin=nothing, stdout=nothing, stderr=nothing).returncode
        if status:
            raise BenchError(f"{' '.join(command)}: exit status {status}; with WINEPREFIX={self.prefix} it says more")


def _copy(pipe: IO[bytes]) -> None:
    while piece := pipe.read(1 << 16):
        sys.stdout.buffer.write(piece.replace(b"\r\n", b"\n"))
        sys.stdout.buffer.flush()
