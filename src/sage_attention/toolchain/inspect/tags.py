"""What names say: those of extension modules and those of wheels."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sage_attention.errors import DataError, MissingDependencyError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["ModuleName", "WheelTags", "module_name", "platform_machine", "wheel_tags"]

_MODULE = re.compile(
    r"""(?P<module>[^.]+?)(?P<debug_name>_d(?=[.\w-]*\.pyd$))?
    (?:\.(?:
        cp(?P<windows>\d{2,3})(?P<windows_t>t?)-(?P<windows_platform>\w+)
        | cpython-(?P<posix>\d{2,3})(?P<posix_flags>[tdm]*)(?:-(?P<posix_platform>[\w-]+))?
        | (?P<abi3>abi3|abi3t)(?:-(?P<abi3_platform>[\w-]+))?
        | pypy(?P<pypy>\d+)-[\w-]+
        | graalpy(?P<graalpy>[\w-]+)
    ))?\.(?P<suffix>pyd|so)""",
    re.VERBOSE,
)
_MACHINES = {
    "amd64": "x64", "x86_64": "x64", "x64": "x64", "win32": "x86", "i686": "x86", "i386": "x86", "arm64": "arm64",
    "aarch64": "arm64", "armv7l": "arm", "arm32": "arm", "ppc64le": "ppc64le", "s390x": "s390x", "riscv64": "riscv64",
}  # fmt: skip


@dataclass(frozen=True)
class ModuleName:
    """What the file name of an extension module promises.

    Attributes:
        module: The last part of the module's dotted name.
        python: The one version it is for, (3, 11); None if the name does not say.
        abi3: Whether the name says that it keeps to the stable ABI.
        free_threaded: Whether it is for the build without the global lock.
        debug: Whether it is for a debug build of Python.
        platform: As in the name, ``win_amd64``; empty if it does not say.
        suffix: ``pyd`` or ``so``.
        other: ``pypy`` or ``graalpy``, if it is for one of these.
    """

    module: str
    python: tuple[int, int] | None = None
    abi3: bool = False
    free_threaded: bool = False
    debug: bool = False
    platform: str = ""
    suffix: str = "so"
    other: str = ""


def module_name(file_name: str) -> ModuleName | None:
    """Reads the file name of an extension module; None if it is not one.

    Example:
        >>> module_name("_ext.cp311-win_amd64.pyd").python
        (3, 11)
        >>> module_name("libfoo.so.1") is None
        True
    """
    found = _MODULE.fullmatch(file_name)
    if not found:
        return None
    digits = found["windows"] or found["posix"]
    flags = (found["windows_t"] or "") + (found["posix_flags"] or "")
    return ModuleName(
        module=found["module"],
        python=(int(digits[0]), int(digits[1:])) if digits else None,
        abi3=bool(found["abi3"]),
        free_threaded="t" in flags,
        debug=bool(found["debug_name"]) or "d" in flags,
        platform=found["windows_platform"] or found["posix_platform"] or found["abi3_platform"] or "",
        suffix=found["suffix"],
        other="pypy" if found["pypy"] else "graalpy" if found["graalpy"] else "",
    )


@dataclass(frozen=True)
class WheelTags:
    """What the file name of a wheel promises: ``cp311-cp311-win_amd64`` and the like."""

    distribution: str
    version: str
    pythons: tuple[str, ...]
    abis: tuple[str, ...]
    platforms: tuple[str, ...]

    @property
    def text(self) -> str:
        """As in the file name."""
        return "-".join(".".join(part) for part in (self.pythons, self.abis, self.platforms))

    @property
    def python(self) -> tuple[int, int] | None:
        """The CPython it is for, or the first one if it keeps to the stable ABI; None if any will do."""
        found = [re.fullmatch(r"cp(\d)(\d+)", tag) for tag in self.pythons]
        versions = [(int(match[1]), int(match[2])) for match in found if match]
        return min(versions) if versions else None

    @property
    def abi3(self) -> bool:
        """Whether it promises the stable ABI."""
        return any(abi.startswith("abi3") for abi in self.abis)

    @property
    def free_threaded(self) -> bool:
        """Whether it is for a build without the global lock."""
        return any(re.fullmatch(r"cp\d+t", abi) for abi in self.abis)

    @property
    def no_abi(self) -> bool:
        """Whether it promises to work whatever the Python: nothing of CPython is used."""
        return "none" in self.abis

    @property
    def machines(self) -> frozenset[str]:
        """What its platforms run on; empty for ``any``."""
        return frozenset(machine for tag in self.platforms for machine in platform_machine(tag))

    @property
    def system(self) -> str:
        """``PE``, ``ELF`` or ``Mach-O``: the format its platforms use; empty for ``any``."""
        first = self.platforms[0]
        if first.startswith("win"):
            return "PE"
        if first.startswith(("macosx", "ios")):
            return "Mach-O"
        return "ELF" if "linux" in first or first.startswith("android") else ""


def platform_machine(tag: str) -> tuple[str, ...]:
    """The machines that a platform's tag stands for.

    Example:
        >>> platform_machine("macosx_11_0_universal2"), platform_machine("win_amd64"), platform_machine("any")
        (('arm64', 'x64'), ('x64',), ())
    """
    if tag.endswith("universal2"):
        return ("arm64", "x64")
    return next(
        ((machine,) for name, machine in _MACHINES.items() if tag.endswith(name) or tag.startswith(name + "-")), ()
    )


def wheel_tags(path: Path) -> WheelTags:
    """Reads the file name of a wheel.

    Raises:
        DataError: It is not the name of a wheel.
    """
    try:
        from packaging.utils import InvalidWheelFilename, parse_wheel_filename
    except ImportError as error:
        raise MissingDependencyError("packaging", "reading a wheel's name", "tool") from error
    try:
        name, version, _, tags = parse_wheel_filename(path.name)
    except (InvalidWheelFilename, ValueError) as error:
        raise DataError(
            path, "a name like package-1.0-cp311-cp311-win_amd64.whl", error, hint="pip refuses a renamed wheel too"
        ) from error

    def part(attribute: str) -> tuple[str, ...]:
        return tuple(sorted({str(getattr(tag, attribute)) for tag in tags}))

    return WheelTags(str(name), str(version), part("interpreter"), part("abi"), part("platform"))
