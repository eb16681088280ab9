"""The only door of the toolchain commands to the machine: files, environment, programs, registry.

Probes ask a ``System`` and nothing else, so that each runs anywhere against ``RecordedSystem``, a machine that was
written down. Nothing here raises for what a machine lacks: a file that is not there is None, a program that hangs is
an answer that says so.
"""

from __future__ import annotations

import abc
import ntpath
import os
import posixpath
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Answer", "RealSystem", "RegistryKey", "System", "decode"]

# A cold `py` or vswhere behind a virus scanner takes seconds; programs are asked side by side.
TIMEOUT = 6.0
_MOST_OUTPUT = 4 << 20


@dataclass(frozen=True)
class Answer:
    """What a program printed.

    Attributes:
        code: Its exit code; None if it gave no answer.
        text: Its standard output.
        errors: Its standard error.
        problem: ``""``, or why there is no answer: ``"missing"``, ``"timeout"``, ``"failed"``, or ``"unreadable"`` if
            it never stopped printing.
    """

    code: int | None
    text: str = ""
    errors: str = ""
    problem: str = ""

    @property
    def ok(self) -> bool:
        """Whether the program ran and said that it succeeded."""
        return self.code == 0

    @property
    def said(self) -> str:
        """The beginning of what it printed, for a message."""
        return (self.errors or self.text).strip()[:300] or f"exit code {self.code}"


@dataclass(frozen=True)
class RegistryKey:
    """A key of the Windows registry; the default value has the name ``""``."""

    values: Mapping[str, str | int] = field(default_factory=dict)
    subkeys: tuple[str, ...] = ()


class System(abc.ABC):
    """A machine as the probes see it.

    Attributes:
        platform: As ``sys.platform``.
        machine: As ``platform.machine()``, e.g. ``"AMD64"``, ``"ARM64"`` or ``"x86_64"``.
        environ: The environment; on Windows the names are upper case.
        processors: Number of logical processors.
        python: What the interpreter that runs this says of itself, see ``identity.PROGRAM``.
    """

    platform: str
    machine: str
    environ: Mapping[str, str]
    processors: int
    python: Mapping[str, Any]

    @abc.abstractmethod
    def read(self, path: str, limit: int = 1 << 22) -> bytes | None:
        """The first ``limit`` bytes of a file; None if it cannot be read."""

    @abc.abstractmethod
    def names(self, folder: str) -> tuple[str, ...]:
        """The names in a folder, sorted; empty if there is none."""

    @abc.abstractmethod
    def size(self, path: str) -> int | None:
        """The size of a file in bytes, without opening it; None if there is no such file."""

    @abc.abstractmethod
    def is_folder(self, path: str) -> bool:
        """Whether there is such a folder."""

    @abc.abstractmethod
    def run(self, command: Sequence[str], timeout: float = TIMEOUT) -> Answer:
        """Runs a program without a shell and with nothing on its standard input."""

    @abc.abstractmethod
    def registry(self, key: str, bits: int = 64) -> RegistryKey | None:
        r"""A key such as ``HKLM\SOFTWARE\Python`` in the 64- or the 32-bit view; None if there is none."""

    @abc.abstractmethod
    def memory(self) -> tuple[int, int] | None:
        """Bytes of memory in all and free for use; None if unknown."""

    @abc.abstractmethod
    def code_page(self) -> int | None:
        """The ANSI code page of Windows, e.g. 936; None elsewhere."""

    @abc.abstractmethod
    def windows_version(self) -> tuple[int, int, int] | None:
        """Major, minor, build; None elsewhere."""

    @abc.abstractmethod
    def resolve(self, path: str) -> str:
        """The file that a symbolic link leads to; the path itself where there is none."""

    @property
    def windows(self) -> bool:
        """Whether this is Windows."""
        return self.platform == "win32"

    def join(self, *parts: str) -> str:
        """A path in the style of that machine."""
        return ntpath.join(*parts) if self.windows else posixpath.join(*parts)

    def parent(self, path: str) -> str:
        """The folder a path lies in."""
        return ntpath.dirname(path) if self.windows else posixpath.dirname(path)

    def base(self, path: str) -> str:
        """The last part of a path."""
        return ntpath.basename(path) if self.windows else posixpath.basename(path)

    def same(self, one: str, other: str) -> bool:
        """Whether two paths are spelled for the same place."""
        if self.windows:
            return ntpath.normcase(ntpath.normpath(one)) == ntpath.normcase(ntpath.normpath(other))
        return posixpath.normpath(one) == posixpath.normpath(other)

    def text(self, path: str, limit: int = 1 << 22) -> str | None:
        """A file as text; None if it cannot be read."""
        data = self.read(path, limit)
        return None if data is None else decode(data, self.code_page())

    def is_file(self, path: str) -> bool:
        """Whether there is such a file."""
        return self.size(path) is not None

    def path_folders(self) -> tuple[str, ...]:
        """The folders of PATH, in order."""
        parts = self.environ.get("PATH", "").split(";" if self.windows else ":")
        return tuple(part.strip().strip('"') for part in parts if part.strip())

    def which(self, name: str) -> tuple[str, ...]:
        """Every file that PATH offers for a program, the one that would run first."""
        file = name + ".exe" if self.windows and not name.lower().endswith((".exe", ".bat", ".cmd")) else name
        found: list[str] = []
        for folder in self.path_folders():
            path = self.join(folder, file)
            if self.is_file(path) and not any(self.same(path, other) for other in found):
                found.append(path)
        return tuple(found)


class RealSystem(System):
    """The machine this runs on."""

    def __init__(self) -> None:
        import platform

        self.platform = sys.platform
        self.machine = _native_machine(platform.machine())
        self.environ = {(k.upper() if os.name == "nt" else k): v for k, v in os.environ.items()}
        self.processors = os.cpu_count() or 1
        from . import identity

        self.python = identity.of_this_interpreter()

    def read(self, path: str, limit: int = 1 << 22) -> bytes | None:  # noqa: D102
        try:
            if not os.path.isfile(path):  # noqa: PTH113  a pipe or a device would not end
                return None
            with open(path, "rb") as file:  # noqa: PTH123
                return file.read(limit)
        except (OSError, ValueError):
            return None

    def names(self, folder: str) -> tuple[str, ...]:  # noqa: D102
        try:
            return tuple(sorted(os.listdir(folder)))  # noqa: PTH208
        except (OSError, ValueError):
            return ()

    def size(self, path: str) -> int | None:  # noqa: D102
        import stat

        try:
            # Store aliases cannot be followed, only looked at.
            status = os.lstat(path) if self.windows else os.stat(path)  # noqa: PTH116
        except (OSError, ValueError):
            return None
        return None if stat.S_ISDIR(status.st_mode) else status.st_size

    def is_folder(self, path: str) -> bool:  # noqa: D102
        try:
            return os.path.isdir(path)  # noqa: PTH112
        except (OSError, ValueError):
            return False

    def resolve(self, path: str) -> str:  # noqa: D102
        try:
            return os.path.realpath(path)
        except (OSError, ValueError):
            return path

    def run(self, command: Sequence[str], timeout: float = TIMEOUT) -> Answer:  # noqa: D102
        import subprocess

        options: dict[str, Any] = {"creationflags": 0x08000000} if os.name == "nt" else {"start_new_session": True}
        try:
            process = subprocess.Popen(  # noqa: S603
                list(command),
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0, **options,
            )  # fmt: skip
        except FileNotFoundError:
            return Answer(None, problem="missing")
        except (OSError, ValueError) as error:
            return Answer(None, errors=str(error), problem="failed")
        pipes = _Pipe(process, process.stdout), _Pipe(process, process.stderr)
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            _end(process)
            return Answer(None, problem="timeout")
        out, errors = (pipe.rest() for pipe in pipes)
        if any(pipe.full for pipe in pipes):
            return Answer(None, problem="unreadable")
        page = self.code_page()
        return Answer(process.returncode, decode(out, page), decode(errors, page))

    def registry(self, key: str, bits: int = 64) -> RegistryKey | None:  # noqa: D102
        if sys.platform != "win32":
            return None
        import winreg

        hive, _, path = key.partition("\\")
        root = {"HKLM": winreg.HKEY_LOCAL_MACHINE, "HKCU": winreg.HKEY_CURRENT_USER}[hive]
        view = winreg.KEY_WOW64_64KEY if bits == 64 else winreg.KEY_WOW64_32KEY
        values: dict[str, str | int] = {}
        try:
            with winreg.OpenKey(root, path, 0, winreg.KEY_READ | view) as opened:
                subkeys, count, _ = winreg.QueryInfoKey(opened)
                for index in range(count):
                    name, value, _ = winreg.EnumValue(opened, index)
                    if isinstance(value, (str, int)):
                        values[name] = value
                return RegistryKey(values, tuple(winreg.EnumKey(opened, index) for index in range(subkeys)))
        except OSError:
            return None

    def memory(self) -> tuple[int, int] | None:  # noqa: D102
        return _windows_memory() if self.windows else self._linux_memory()

    def _linux_memory(self) -> tuple[int, int] | None:
        found: dict[str, int] = {}
        for line in (self.text("/proc/meminfo") or "").splitlines():
            name, _, rest = line.partition(":")
            number = rest.split()[:1]
            if number and number[0].isdigit():
                found[name] = int(number[0]) * 1024
        if "MemTotal" not in found:
            return None
        total, free = found["MemTotal"], found.get("MemAvailable", found.get("MemFree", found["MemTotal"]))
        # A container may have less than its machine.
        limit = (self.text("/sys/fs/cgroup/memory.max") or "").strip()
        used = (self.text("/sys/fs/cgroup/memory.current") or "").strip()
        if limit.isdigit() and int(limit) < total:
            total = int(limit)
            free = min(free, total - (int(used) if used.isdigit() else 0))
        return total, max(0, free)

    def code_page(self) -> int | None:  # noqa: D102
        if sys.platform != "win32":
            return None
        import ctypes

        return int(ctypes.windll.kernel32.GetACP())

    def windows_version(self) -> tuple[int, int, int] | None:  # noqa: D102
        if sys.platform != "win32":
            return None
        # What the kernel says, not what it says to programs that are older than it.
        major, minor, build = sys.getwindowsversion().platform_version[:3]
        return major, minor, build


def _native_machine(machine: str) -> str:
    """The processor, also where this interpreter is emulated on it."""
    for name in ("PROCESSOR_ARCHITEW6432", "PROCESSOR_ARCHITECTURE"):
        if os.name == "nt" and os.environ.get(name):
            return os.environ[name]
    return machine


class _Pipe:
    """Takes what a program prints, and ends a program that does not stop."""

    def __init__(self, process: Any, stream: Any) -> None:
        import threading

        self.full = False
        self._data = bytearray()
        self._thread = threading.Thread(target=self._read, args=(process, stream), daemon=True)
        self._thread.start()

    def _read(self, process: Any, stream: Any) -> None:
        import contextlib

        with contextlib.suppress(OSError, ValueError), stream:
            while data := stream.read(1 << 16):
                self._data += data
                if len(self._data) > _MOST_OUTPUT:
                    self.full = True
                    _end(process)
                    return

    def rest(self) -> bytes:
        """All of it, once the program has ended; what it started may hold the pipe open, and is not waited for."""
        self._thread.join(1)
        return bytes(self._data)


def _end(process: Any) -> None:
    """Ends a program and what it started, and does not wait long."""
    import contextlib
    import signal

    with contextlib.suppress(OSError):
        if os.name == "nt":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(Exception):
        process.wait(1)


def _windows_memory() -> tuple[int, int] | None:
    import ctypes

    class Status(ctypes.Structure):
        _fields_ = (
            ("length", ctypes.c_uint32),
            ("load", ctypes.c_uint32),
            ("total", ctypes.c_uint64),
            ("free", ctypes.c_uint64),
            ("rest", ctypes.c_uint64 * 5),
        )

    status = Status(length=ctypes.sizeof(Status))
    library: Any = ctypes
    if not library.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status)):
        return None
    return int(status.total), int(status.free)


def decode(data: bytes, code_page: int | None = None) -> str:
    r"""Text of a program or a file in whatever encoding it came: UTF-16 and UTF-8 as they show, else the code page.

    Args:
        data: The bytes.
        code_page: The ANSI or OEM code page of the machine.

    Returns:
        The text; what fits no encoding is replaced, nothing raises.

    Example:
        >>> decode("版本".encode("gbk"), 936), decode(b"\xff\xfeo\x00k\x00"), decode(b"3.11\xff")
        ('版本', 'ok', '3.11�')
    """
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", "replace")
    if len(data) > 3 and data[1::2].count(0) * 4 > len(data):
        return data.decode("utf-16-le", "replace")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        pass
    if code_page:
        try:
            return data.decode(f"cp{code_page}")
        except (LookupError, UnicodeDecodeError):
            pass
    return data.decode("utf-8", "replace")
