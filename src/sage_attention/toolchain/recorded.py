r"""A machine that was written down, for the probes to run on anywhere.

A folder with ``machine.json`` and beside it what programs print and registries export, in their own shape:

* ``platform``, ``machine``, ``processors``, ``memory`` [total, free], ``code_page``, ``windows``, ``environ``,
  ``python``: as in ``System``;
* ``files``: lists of paths, each ``{"root": ..., "list": "name.txt"}`` with one path below the root on a line, a size
  after a tab if it is not 1, a ``\`` or ``/`` at the end of an empty folder; or ``{"root": ..., "paths": [...]}``;
* ``contents``: path → text, or ``"@name"`` for the bytes of a file beside;
* ``links``: path → where it leads;
* ``registry``: names of ``.reg`` exports;
* ``commands``: ``{"program": "py.exe", "with": ["list"], "text": ... or "@name", "code": 0, "problem": ""}``; the first
  whose program and words fit answers.
"""

from __future__ import annotations

import json
import ntpath
import posixpath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .registry_export import parse_export
from .system import Answer, RegistryKey, System, decode

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["RecordedSystem"]


class RecordedSystem(System):
    """A machine from a folder.

    Args:
        folder: Where ``machine.json`` lies.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self.spec: dict[str, Any] = json.loads((self._folder / "machine.json").read_text(encoding="utf-8"))
        spec = self.spec
        self.platform = spec["platform"]
        self.machine = spec["machine"]
        self.processors = spec.get("processors", 8)
        self.python = spec["python"]
        self.environ = {(k.upper() if self.windows else k): v for k, v in spec.get("environ", {}).items()}
        self.asked: list[tuple[str, ...]] = []  # every command, in the order of asking
        self._sizes: dict[str, int] = {}
        self._contents: dict[str, bytes] = {}
        self._folders: dict[str, dict[str, str]] = {}
        self._links = {self._key(path): target for path, target in spec.get("links", {}).items()}
        for group in spec.get("files", ()):
            self._add_files(group)
        for path, content in spec.get("contents", {}).items():
            self.write(path, self._bytes(content))
        for path in spec.get("links", {}):  # so that the folder lists it
            self._add(path, 1)
        self._registry: dict[tuple[str, int], RegistryKey] = {}
        for name in spec.get("registry", ()):
            self._registry.update(parse_export(decode((self._folder / name).read_bytes())))

    def write(self, path: str, data: bytes) -> None:
        """Puts a file onto the machine."""
        self._add(path, len(data))
        self._contents[self._key(path)] = data

    def _bytes(self, content: str) -> bytes:
        return (self._folder / content[1:]).read_bytes() if content.startswith("@") else content.encode()

    def _add_files(self, group: dict[str, Any]) -> None:
        lines = list(group.get("paths", ()))
        if "list" in group:
            lines += (self._folder / group["list"]).read_text(encoding="utf-8").splitlines()
        for line in lines:
            path, _, size = line.partition("\t")
            if path:
                self._add(self.join(group["root"], path), int(size or 1))

    def _add(self, path: str, size: int) -> None:
        flavour = ntpath if self.windows else posixpath
        folder = path.endswith(("/", "\\"))
        path = flavour.normpath(path)
        if folder:
            self._folders.setdefault(self._key(path), {})
        else:
            self._sizes[self._key(path)] = size
        while flavour.dirname(path) != path:
            path, name = flavour.split(path)
            self._folders.setdefault(self._key(path), {})[self._fold(name)] = name

    def _fold(self, text: str) -> str:
        return text.lower() if self.windows else text

    def _key(self, path: str) -> str:
        return self._fold((ntpath if self.windows else posixpath).normpath(path))

    def read(self, path: str, limit: int = 1 << 22) -> bytes | None:  # noqa: D102
        key = self._key(self.resolve(path))
        if key in self._contents:
            return self._contents[key][:limit]
        return None if key not in self._sizes else b"?" * min(limit, self._sizes[key])

    def names(self, folder: str) -> tuple[str, ...]:  # noqa: D102
        return tuple(sorted(self._folders.get(self._key(self.resolve(folder)), {}).values()))

    def size(self, path: str) -> int | None:  # noqa: D102
        return self._sizes.get(self._key(self.resolve(path)))

    def is_folder(self, path: str) -> bool:  # noqa: D102
        return self._key(self.resolve(path)) in self._folders

    def resolve(self, path: str) -> str:  # noqa: D102
        for _ in range(8):
            start = path
            while self._key(start) not in self._links and self.parent(start) != start:
                start = self.parent(start)
            target = self._links.get(self._key(start))
            if target is None:
                break
            path = self.join(self.parent(start), target) + path[len(start) :]
        return path

    def run(self, command: Sequence[str], timeout: float = 0.0) -> Answer:  # noqa: ARG002, D102
        self.asked.append(tuple(command))
        program, arguments = self.base(command[0]).lower(), list(command[1:])
        for entry in self.spec.get("commands", ()):
            names = entry["program"].lower()
            full = names == command[0].lower()
            if (full or names == program) and all(word in arguments for word in entry.get("with", ())):
                page = self.code_page()
                return Answer(
                    None if entry.get("problem") else entry.get("code", 0),
                    decode(self._bytes(entry.get("text", "")), page),
                    decode(self._bytes(entry.get("errors", "")), page),
                    entry.get("problem", ""),
                )
        return Answer(None, problem="missing")

    def registry(self, key: str, bits: int = 64) -> RegistryKey | None:  # noqa: D102
        return self._registry.get((key.lower(), bits))

    def memory(self) -> tuple[int, int] | None:  # noqa: D102
        found = self.spec.get("memory")
        return (found[0], found[1]) if found else None

    def code_page(self) -> int | None:  # noqa: D102
        found = self.spec.get("code_page")
        return int(found) if found else None

    def windows_version(self) -> tuple[int, int, int] | None:  # noqa: D102
        found = self.spec.get("windows")
        return (found[0], found[1], found[2]) if found else None
