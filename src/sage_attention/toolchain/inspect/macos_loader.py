"""How the dynamic linker of macOS finds libraries: install names, ``@rpath`` and ``@loader_path``."""

from __future__ import annotations

import os
import re
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .tree import Node, read_for

if TYPE_CHECKING:
    from .model import Binary
    from .target import Target

__all__ = ["MacProcess"]

_MOST_NODES = 20_000
_SYSTEM = ("/usr/lib/", "/System/Library/")
_TORCH = re.compile(r"lib(c10|torch|torch_cpu|torch_python|torch_global_deps|shm)\.dylib")
_PYTHON = re.compile(r"(libpython3[.\d]*t?\.dylib|Python|PythonT)")


@dataclass
class MacProcess:
    """A Python process on macOS in which nothing of ours was imported yet."""

    target: Target
    machine: str
    root: Path
    sealed: bool = False  # nothing outside the root may be looked at: it is an unpacked wheel

    def place(self, path: Path) -> str:
        """A file as the user knows it."""
        for base in (self.root, self.target.site):
            if base is not None and base in path.parents:
                return path.relative_to(base).as_posix()
        return str(path)

    def _may_see(self, path: Path) -> bool:
        return not self.sealed or self.root.resolve() in path.resolve().parents

    def load(self, binary: Binary) -> list[Node]:
        """Loads a file by its path, as an import or ``ctypes`` does."""
        top: list[Node] = []
        rpaths = _expanded(binary)
        waiting: deque[tuple[Binary, list[Node], tuple[str, ...]]] = deque([(binary, top, rpaths)])
        shown: dict[str, Node] = {}
        count = 0
        while waiting:
            asking, children, rpaths = waiting.popleft()
            for needed in asking.needed:
                count += 1
                if count > _MOST_NODES:
                    return top
                known = shown.get(needed.library)
                if known is not None:
                    children.append(
                        Node(needed.library, known.state, known.place, known.file, known.binary, repeated=True)
                    )
                    continue
                node = self._find(needed.library, asking, rpaths)
                node.delayed, node.weak = needed.delayed, needed.weak
                shown[needed.library] = node
                children.append(node)
                if node.binary is not None and node.state == "bundled":
                    waiting.append((node.binary, node.children, (*_expanded(node.binary), *rpaths)))
        return top

    def _find(self, library: str, asking: Binary, rpaths: tuple[str, ...]) -> Node:
        node = Node(library)
        if library.startswith(_SYSTEM):
            node.state = "macos"
            return node
        base = Path(library).name
        here = str(asking.path.resolve().parent)
        if library.startswith("@rpath/"):
            tried = [f"{rpath}/{library[7:]}" for rpath in rpaths]
        elif library.startswith("@loader_path/"):
            tried = [f"{here}/{library[13:]}"]
        else:
            tried = [library]
        for name in tried:
            path = Path(os.path.normpath(name))
            if path.is_absolute() and path.is_file() and self._may_see(path):
                problem, node.binary = read_for(self.machine, path)
                node.state, node.file, node.place = problem or "bundled", path, self.place(path)
                return node
        if _TORCH.fullmatch(base):
            node.state = "after_torch"
        elif _PYTHON.fullmatch(base):
            node.state = "libpython"
        elif library.startswith("@"):
            node.state, node.place = "missing", ", ".join(name for name in tried if not name.startswith(here))
        else:
            node.state = "no_such_place"
        return node


def _expanded(binary: Binary) -> tuple[str, ...]:
    here = str(binary.path.resolve().parent)
    rpaths = binary.macho.rpaths if binary.macho else ()
    return tuple(rpath.replace("@loader_path", here) for rpath in rpaths)
