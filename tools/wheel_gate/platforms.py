"""What the name of a wheel promises."""

from __future__ import annotations

import re
from dataclasses import dataclass

NAME = re.compile(
    r"sage_graph_attention-(?P<version>\d[\w.]*)-(?P<python>[\w.]+)-(?P<abi>\w+)-(?P<platforms>[\w.]+)\.whl"
)
MACHINES = {"amd64": "x86_64", "x86_64": "x86_64", "arm64": "aarch64", "aarch64": "aarch64"}
LEGACY = {"manylinux1": (2, 5), "manylinux2010": (2, 12), "manylinux2014": (2, 17)}


@dataclass(frozen=True)
class Platform:
    """A system, a processor, and how old either may be.

    Attributes:
        system: ``"linux"``, ``"windows"`` or ``"macos"``.
        machine: ``"x86_64"`` or ``"aarch64"``.
        oldest: The oldest C library (Linux) or system (macOS) that the wheel is for; None where the name says none.
        public: Is it for others than who built it? A plain ``linux_x86_64`` is not.
    """

    system: str
    machine: str
    oldest: tuple[int, int] | None = None
    public: bool = True


def parse(tag: str) -> Platform | None:
    """The platform of one tag, None if it is none we build for."""
    if found := re.fullmatch(r"win_(amd64|arm64)", tag):
        return Platform("windows", MACHINES[found[1]])
    if found := re.fullmatch(r"macosx_(\d+)_(\d+)_(x86_64|arm64)", tag):
        return Platform("macos", MACHINES[found[3]], (int(found[1]), int(found[2])))
    if found := re.fullmatch(r"manylinux_(\d+)_(\d+)_(x86_64|aarch64)", tag):
        return Platform("linux", MACHINES[found[3]], (int(found[1]), int(found[2])))
    if (found := re.fullmatch(r"(manylinux\d+)_(x86_64|aarch64)", tag)) and found[1] in LEGACY:
        return Platform("linux", MACHINES[found[2]], LEGACY[found[1]])
    if found := re.fullmatch(r"linux_(x86_64|aarch64)", tag):
        return Platform("linux", MACHINES[found[1]], public=False)
    return None
