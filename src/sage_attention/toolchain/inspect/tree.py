"""Libraries, each with where it was found or why not, and what an import would end in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sage_attention.errors import DataError

from .reading import read_binaries

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .model import Binary

__all__ = ["DEEPEST", "FAILING", "Node", "Outcome", "read_for", "walk"]

# State of a node -> what Windows answers; elsewhere the loader fails as well, without a number.
FAILING = {
    "after_torch": 126,  # there once torch was imported
    "elsewhere": 126,  # in a folder that is not searched
    "missing": 126,
    "no_such_place": 126,  # an absolute path of the machine it was built on
    "redistributable": 126,  # there once somebody installed the Visual C++ Redistributable
    "unreadable": 193,
    "wrong_machine": 193,
}


DEEPEST = 50  # levels of a tree that are shown


@dataclass
class Node:
    """A library in the tree of what a binary needs.

    Attributes:
        name: As the binary asks for it.
        state: A key of ``FAILING``, or how it was found.
        place: Where, in the user's terms.
        file: The file, if it is a real one.
        missing_symbols: What is taken from it and is not there.
        delayed: Loaded at the first call only.
        repeated: Already shown above.
    """

    name: str
    state: str = ""
    place: str = ""
    file: Path | None = None
    binary: Binary | None = None
    missing_symbols: tuple[str, ...] = ()
    delayed: bool = False
    weak: bool = False
    repeated: bool = False
    children: list[Node] = field(default_factory=list)

    @property
    def error(self) -> int:
        """The Windows error this alone would cause, 0 if none."""
        if self.delayed or self.weak:
            return 0
        return FAILING.get(self.state, 127 if self.missing_symbols else 0)


@dataclass(frozen=True)
class Outcome:
    """What an import, or loading a library, would end in.

    Attributes:
        kind: ``ok``, ``load_failed``, ``python_conflict``, ``no_init`` or ``not_considered``.
        winerror: 126, 127 or 193 if loading fails on Windows.
        culprit: The library that is to blame.
        via: What asks for it, from the module downwards.
        detail: Symbols or a name, where they say more.
    """

    kind: str
    winerror: int = 0
    culprit: str = ""
    via: tuple[str, ...] = ()
    detail: tuple[str, ...] = ()


def walk(nodes: list[Node], via: tuple[str, ...] = ()) -> Iterator[tuple[Node, tuple[str, ...]]]:
    """Every node, nearest first, with the names of what asks for it."""
    level = [(node, via) for node in nodes]
    while level:
        yield from level
        level = [(child, (*above, node.name)) for node, above in level for child in node.children]


def read_for(machine: str, path: Path) -> tuple[str, Binary | None]:
    """Reads a library that was found: ("", what it is), or why the loader refuses it."""
    try:
        binaries = read_binaries(path)
    except DataError:
        return "unreadable", None
    for binary in binaries:
        if binary.machine == machine or {binary.machine, machine} == {"x64", "arm64ec"}:
            return "", binary
    return "wrong_machine", binaries[0]
