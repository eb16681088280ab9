"""How Windows finds DLLs when Python 3.8 or later loads a module, step by step, without Windows.

Python passes ``LOAD_LIBRARY_SEARCH_DEFAULT_DIRS | LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR`` and an absolute path. For each
name in an import table, and in those of the DLLs that are found: API sets are no files; a DLL of that name that is
loaded already wins; then KnownDLLs; then the folder of the file that was asked for (not that of the DLL that asks),
that of python.exe, those added by ``os.add_dll_directory`` in no certain order, and System32. PATH and the current
folder are not searched. The first file of that name counts: if it is of another machine the load fails.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections import deque
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from .lists import api_set, dll_kind, windows_names
from .tree import Node, Outcome, read_for, walk

if TYPE_CHECKING:
    from .dll_directories import AddedFolder
    from .model import Binary, Needed
    from .target import Target

__all__ = ["WindowsProcess", "load_outcome", "python_dll"]

_MOST_NODES = 20_000
_MOST_INDEXED = 100_000
_PYTHON_DLL = re.compile(r"python(3)(\d*)(t?)(_d)?\.dll", re.IGNORECASE)


def python_dll(library: str) -> tuple[tuple[int, int] | None, bool, bool] | None:
    """(version, free-threaded, debug) of a Python DLL's name; version None for ``python3.dll``; None for any other.

    Example:
        >>> python_dll("python311.dll"), python_dll("python3.dll"), python_dll("kernel32.dll")
        (((3, 11), False, False), (None, False, False), None)
    """
    found = _PYTHON_DLL.fullmatch(library)
    if not found:
        return None
    return (int(found[1]), int(found[2])) if found[2] else None, bool(found[3]), bool(found[4])


@lru_cache(maxsize=1024)
def _listing(folder: Path) -> dict[str, Path]:
    """Lower-case name -> file; empty for a folder that cannot be read."""
    found: dict[str, Path] = {}
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):  # a link that leads round is no file
                    if entry.is_file():
                        found[entry.name.lower()] = Path(entry.path)
    except OSError:
        pass
    return found


@lru_cache(maxsize=16)
def _index(folder: Path) -> dict[str, list[Path]]:
    """Lower-case name of each DLL and module anywhere below a folder -> where it lies."""
    found: dict[str, list[Path]] = {}
    count = 0
    for here, _, names in os.walk(folder):
        for name in names:
            count += 1
            if name.lower().endswith((".dll", ".pyd")):
                found.setdefault(name.lower(), []).append(Path(here, name))
        if count > _MOST_INDEXED:
            break
    return found


@dataclass
class WindowsProcess:
    """A Python process on Windows in which nothing of ours was imported yet.

    Args:
        target: The installation.
        version: The Python that runs, if known.
        free_threaded: Whether it is the build without the global lock.
        machine: What it runs on, ``x64``.
        root: The folder that stands for site-packages.
        added: Folders that the package itself adds.
        with_torch: Whether what runs there uses torch, whose builds for CUDA bring CUDA's libraries.
    """

    target: Target
    version: tuple[int, int] | None
    free_threaded: bool
    machine: str
    root: Path
    added: list[AddedFolder] = field(default_factory=list)
    with_torch: bool = False
    loaded: dict[str, Path | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        python = self.target.python
        self.app = _listing(python) if python else {}
        if python:
            for name in self.app:
                found = python_dll(name)
                if (found and not found[2]) or name == "vcruntime140.dll":
                    self.loaded[name] = self.app[name]

    def place(self, path: Path) -> str:
        """A file as the user knows it."""
        for base in (self.root, self.target.site):
            if base is not None and base in path.parents:
                return path.relative_to(base).as_posix()
        return str(path)

    def import_torch(self) -> None:
        """``import torch``: every DLL of torch/lib is loaded, its folder added."""
        if self.target.torch:
            for name, path in _listing(self.target.torch / "lib").items():
                if name.endswith(".dll"):
                    self.loaded.setdefault(name, path)
        else:
            for name in windows_names("torch_before_import"):
                self.loaded.setdefault(name, None)

    def load(self, binary: Binary) -> list[Node]:
        """Loads a file by its path, as an import or ``ctypes`` does; the DLLs it finds stay loaded."""
        top: list[Node] = []
        here = binary.path.parent
        waiting: deque[tuple[Binary, list[Node]]] = deque([(binary, top)])
        self.loaded.setdefault(binary.path.name.lower(), binary.path)
        count = 0
        shown: set[str] = set()
        while waiting:
            asking, children = waiting.popleft()
            for needed in asking.needed:
                count += 1
                if count > _MOST_NODES:
                    return top
                node = self._find(needed, here)
                children.append(node)
                name = needed.library.lower()
                node.repeated = name in shown and not node.missing_symbols
                if needed.delayed or name in shown:
                    continue
                shown.add(name)
                if node.file is not None and not node.error and node.state != "loaded":
                    self.loaded.setdefault(name, node.file)
                    if node.binary is not None and node.state not in ("system", "known"):
                        waiting.append((node.binary, node.children))
        return top

    def _find(self, needed: Needed, here: Path) -> Node:
        node = Node(needed.library, delayed=needed.delayed)
        name = needed.library.lower()
        if "." not in name:
            name += ".dll"
        if api_set(name):
            node.state = "api_set"
            return node
        if name in self.loaded:
            return self._found(node, needed, "loaded", self.loaded[name])
        if name in windows_names("known_dlls"):
            node.state = "known"
            return node
        folders = [("load_dir", here), ("app_dir", self.target.python)]
        folders += [("added_dir" if added.certain else "guessed_dir", added.folder) for added in self.added]
        folders += [("registered_dir", folder) for folder in self.target.dll_directories]
        if self.target.torch and "torch" in self.target.after:
            folders.append(("added_dir", self.target.torch / "lib"))
        folders.append(("system", self.target.system32))
        for state, folder in folders:
            if folder is not None and name in _listing(folder):
                return self._found(node, needed, state, _listing(folder)[name])
        return self._not_found(node, needed, name)

    def _found(self, node: Node, needed: Needed, state: str, path: Path | None) -> Node:
        node.state, node.file = state, path
        if path is None:
            return node
        node.place = self.place(path)
        problem, node.binary = read_for(self.machine, path)
        if problem:
            node.state = problem
        elif node.binary is not None and state != "system":
            node.missing_symbols = tuple(s for s in needed.symbols if s and s not in node.binary.exports)
        return node

    def _not_found(self, node: Node, needed: Needed, name: str) -> Node:
        """A name that no folder searched has, as far as the folders are known."""
        if self.target.python is None and self._comes_with_python(name):
            node.state = "assumed_python"
        elif self.target.system32 is None and name in windows_names("system"):
            node.state = "assumed_system"
            if name in {*_conditional()}:
                node.state = "conditional_system"
        elif self.target.torch and name in _listing(self.target.torch / "lib"):
            self._found(node, needed, "after_torch", _listing(self.target.torch / "lib")[name])
            node.children = []
        elif self.target.torch is None and (
            name in windows_names("torch_before_import") or (self.with_torch and dll_kind(name) == "cuda")
        ):
            node.state = "after_torch"
        else:
            places = [path for base in (self.root, self.target.site) if base for path in _index(base).get(name, [])]
            node.state = "elsewhere" if places else "missing"
            if not places and self.target.system32 is None and dll_kind(name) in ("vc_runtime", "openmp_msvc"):
                node.state = "redistributable"
            node.place = ", ".join(dict.fromkeys(self.place(path) for path in places[:3]))
        return node

    def _comes_with_python(self, name: str) -> bool:
        if name in windows_names("with_python"):
            return name != "vcruntime140_1.dll" or self.machine == "x64"
        found = python_dll(name)
        if found is None or found[2]:
            return False
        version, free_threaded, _ = found
        if version is None:
            return free_threaded == self.free_threaded
        return (self.version is None or version == self.version) and free_threaded == self.free_threaded


@cache
def _conditional() -> tuple[str, ...]:
    from sage_attention.toolchain.data_files import table

    return tuple(table("windows_dlls")["conditional"]["names"])


def load_outcome(nodes: list[Node], version: tuple[int, int] | None, forgiven: frozenset[str] = frozenset()) -> Outcome:
    """What loading ends in, and for a module what Python says to it afterwards.

    Args:
        nodes: From ``WindowsProcess.load``.
        version: The Python that runs; None for a library that is no extension module.
        forgiven: States that do not count.
    """
    found = list(walk(nodes))
    # All files are brought in before the first symbol is looked up.
    for numbers in ((126, 193), (127,)):
        for node, via in found:
            if node.error in numbers and node.state not in forgiven:
                return Outcome("load_failed", node.error, node.name, via, node.missing_symbols[:20])
    # Python looks at the first of the direct imports that is called python and digits, but for python3.dll.
    first = next((node.name for node in nodes if re.fullmatch(r"python\d{2,}\.dll", node.name)), None)
    if version and first and first.lower() != f"python{version[0]}{version[1]}.dll":
        return Outcome("python_conflict", 0, first)
    return Outcome("ok")
