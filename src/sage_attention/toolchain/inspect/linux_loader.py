"""How the dynamic linker of Linux finds libraries: RPATH, RUNPATH, then the system's own folders."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections import deque
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from sage_attention.toolchain.data_files import table

from .tree import Node, read_for

if TYPE_CHECKING:
    from .model import Binary
    from .target import Target

__all__ = ["LinuxProcess", "is_musl"]

_MOST_NODES = 20_000
_PYTHON = re.compile(r"libpython3(\.\d+)?t?(d|\.so).*")
_TORCH = re.compile(r"lib(c10|c10_cuda|torch|torch_cpu|torch_cuda|torch_python|torch_global_deps|shm)\.so.*")
_CUDA = re.compile(
    r"lib(cuda(rt)?|cu(blas|blasLt|dnn.*|fft|rand|solver|sparse.*|pti)|nv(rtc|JitLink|ToolsExt|ml.*)|nccl)\.so.*"
)
_SYSTEM = ("/lib", "/usr/lib", "/lib64", "/usr/lib64", "/usr/local/lib")
_TRIPLETS = {"x64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu", "x86": "i386-linux-gnu"}


def is_musl(binary: Binary) -> bool:
    """Whether a binary was linked against musl and not the GNU C library."""
    names = {needed.library for needed in binary.needed}
    return any(name.startswith("libc.musl-") for name in names) or "libc.so" in names


@cache
def _host_folders() -> tuple[Path, ...]:
    """The folders of this machine's own linker configuration."""
    found = []
    for config in sorted(Path("/etc/ld.so.conf.d").glob("*.conf")):
        try:
            lines = config.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        found += [Path(line.strip()) for line in lines if line.strip().startswith("/")]
    return tuple(found)


@dataclass
class LinuxProcess:
    """A Python process on Linux in which nothing of ours was imported yet.

    Args:
        target: The installation.
        machine: What it runs on.
        root: The folder that stands for site-packages.
        host: Whether this very machine is where it shall run, so that its folders may be looked at.
    """

    target: Target
    machine: str
    root: Path
    host: bool = False

    def __post_init__(self) -> None:
        self.host = self.host and sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64", "arm64")
        self.by_name = {path.name: path for path in self.root.rglob("lib*.so*")} if not self.host else {}

    def place(self, path: Path) -> str:
        """A file as the user knows it."""
        for base in (self.root, self.target.site):
            if base is not None and base in path.parents:
                return path.relative_to(base).as_posix()
        return str(path)

    def load(self, binary: Binary) -> list[Node]:
        """Loads a file by its path, as an import or ``ctypes`` does."""
        top: list[Node] = []
        elf = binary.elf
        above = _expanded(elf.rpath, binary.path) if elf and not elf.runpath else ()
        waiting: deque[tuple[Binary, list[Node], tuple[Path, ...]]] = deque([(binary, top, above)])
        shown: dict[str, Node] = {}
        count = 0
        while waiting:
            asking, children, rpath = waiting.popleft()
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
                node = self._find(needed.library, asking, rpath)
                shown[needed.library] = node
                children.append(node)
                if node.binary is not None and node.state == "bundled" and node.binary.elf is not None:
                    own = node.binary.elf
                    further = (*_expanded(own.rpath, node.binary.path), *rpath) if not own.runpath else ()
                    waiting.append((node.binary, node.children, further))
        return top

    def _find(self, library: str, asking: Binary, rpath: tuple[Path, ...]) -> Node:
        node = Node(library)
        facts = asking.elf
        runpath = _expanded(facts.runpath, asking.path) if facts else ()
        folders = [("bundled", folder) for folder in ((() if runpath else rpath) + runpath)]
        if "/" in library:
            folders = [("bundled", Path(library.replace("$ORIGIN", str(asking.path.parent))).parent)]
        if self._in_system(library, node):
            folders += [("", Path())]
        for state, folder in folders:
            if not state:
                return node
            path = Path(os.path.normpath(folder / Path(library).name))
            if path.is_file() and (self.host or self._ours(path)):
                return self._found(node, state, path)
        if self.host:
            triplet = _TRIPLETS.get(self.machine, "")
            system = [Path(base, triplet) for base in _SYSTEM] + [Path(base) for base in _SYSTEM]
            for folder in (*system, *_host_folders()):
                if (folder / library).is_file():
                    return self._found(node, "host", folder / library)
        return self._not_found(node, library)

    def _in_system(self, library: str, node: Node) -> bool:
        known = table("manylinux")
        if library in known["loaders"] or library.startswith("libc.musl-") or library == "libc.so":
            node.state = "c_library"
        elif library in known["libraries"] or library in known["libraries_since"]:
            node.state = "policy"
        return bool(node.state)

    def _ours(self, path: Path) -> bool:
        return any(base is not None and base in path.resolve().parents for base in (self.root, self.target.site))

    def _found(self, node: Node, state: str, path: Path) -> Node:
        problem, node.binary = read_for(self.machine, path)
        node.state, node.file, node.place = problem or state, path, self.place(path)
        return node

    def _not_found(self, node: Node, library: str) -> Node:
        torch = self.target.torch / "lib" / library if self.target.torch else None
        if _TORCH.fullmatch(library) or (torch is not None and torch.is_file()):
            node.state = "after_torch"
            if torch is not None and torch.is_file():
                _, node.binary = read_for(self.machine, torch)
                node.place = self.place(torch)
        elif _PYTHON.fullmatch(library):
            node.state = "libpython"
        elif _CUDA.fullmatch(library):
            node.state = "cuda"
        elif library in self.by_name:
            node.state, node.place = "elsewhere", self.place(self.by_name[library])
        else:
            node.state = "missing"
        return node


def _expanded(folders: tuple[str, ...], path: Path) -> tuple[Path, ...]:
    """Search folders with ``$ORIGIN`` replaced; a relative one depends on the current folder and is left out."""
    here = str(path.resolve().parent)
    filled = (re.sub(r"\$\{?ORIGIN\}?", lambda _: here, folder) for folder in folders)
    return tuple(Path(folder) for folder in filled if folder.startswith("/") or re.match(r"[A-Za-z]:", folder))
