"""Which manylinux policy a Linux binary fits, and what keeps it from an older one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sage_attention.toolchain.data_files import table

if TYPE_CHECKING:
    from .model import Binary

__all__ = ["Demand", "demands", "fitting_policy", "policies", "policy_of_tag", "refused_by"]

_FAMILIES = ("GLIBC", "GLIBCXX", "CXXABI", "GCC")
_MACHINES = {"x64": "x86_64", "x86": "i686", "arm64": "aarch64", "arm": "armv7l"}


@dataclass(frozen=True)
class Demand:
    """A version of a system library, and the symbols that need it."""

    family: str
    version: tuple[int, ...]
    library: str
    symbols: tuple[str, ...]

    @property
    def text(self) -> str:
        """``GLIBC_2.34``."""
        return f"{self.family}_{'.'.join(map(str, self.version))}"


def demands(binary: Binary) -> list[Demand]:
    """The versions of system libraries that a binary needs, the newest of each family first."""
    found = []
    for library, rows in (binary.elf.versions if binary.elf else {}).items():
        for name, symbols in rows.items():
            match = re.fullmatch(r"(GLIBC|GLIBCXX|CXXABI|GCC)_(\d+(?:\.\d+)*)", name)
            if match:
                found.append(Demand(match[1], _numbers(match[2]), library, symbols))
    found.sort(key=lambda demand: demand.version, reverse=True)
    return sorted(found, key=lambda demand: _FAMILIES.index(demand.family))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def policies() -> list[tuple[str, tuple[str, ...]]]:
    """Every policy with its other names, the oldest first."""
    return [(row["name"], tuple(row["aliases"])) for row in table("manylinux")["policies"]]


def _limits(policy: str, machine: str) -> dict[str, tuple[int, ...]] | None:
    """Family -> the newest version that a policy allows; None where the policy does not exist for a machine."""
    for row in table("manylinux")["policies"]:
        if policy in (row["name"], *row["aliases"]):
            limits = row["versions"].get(_MACHINES.get(machine, machine))
            return {family: _numbers(version) for family, version in limits.items()} if limits else None
    found = re.fullmatch(r"manylinux_(\d+)_(\d+)", policy)
    return {"GLIBC": (int(found[1]), int(found[2]))} if found else None


def refused_by(policy: str, binary: Binary) -> list[Demand]:
    """What a policy does not allow in a binary; an empty list if it fits."""
    limits = _limits(policy, binary.machine)
    if limits is None:
        return demands(binary)
    return [d for d in demands(binary) if d.family in limits and d.version > limits[d.family]]


def fitting_policy(binaries: list[Binary]) -> str:
    """The oldest policy that some binaries fit together; empty if none does."""
    for name, _ in policies():
        if all(_limits(name, binary.machine) is not None and not refused_by(name, binary) for binary in binaries):
            return name
    return ""


def policy_of_tag(platform: str) -> str:
    """The policy that a platform's tag names, ``manylinux_2_17`` for ``manylinux2014_x86_64``; empty if none.

    Example:
        >>> policy_of_tag("manylinux2014_x86_64"), policy_of_tag("linux_x86_64")
        ('manylinux_2_17', '')
    """
    bare = re.match(r"manylinux(?:_\d+_\d+|\d+)", platform)
    if not bare:
        return ""
    return next((name for name, aliases in policies() if bare[0] in (name, *aliases)), bare[0])
