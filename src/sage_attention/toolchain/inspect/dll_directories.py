"""Which folders a package adds to the search for DLLs (``os.add_dll_directory``), read from its Python files.

The files are parsed, never run. What an expression stands for is worked out where it is made of ``__file__``,
``os.path`` and ``pathlib``; where it is not, a folder whose name stands in the same file as text is taken as meant.
"""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["AddedFolder", "added_folders", "imported_at_start"]

_CALLS = ("add_dll_directory", "CDLL", "WinDLL", "LoadLibrary", "LoadLibraryExW")
_LARGEST = 2 << 20
_DEEPEST = 40


@dataclass(frozen=True)
class AddedFolder:
    """A folder that a Python file adds, or whose DLLs it loads."""

    folder: Path
    file: Path
    line: int
    certain: bool  # worked out, not guessed from a name


def added_folders(files: Iterable[Path], root: Path) -> list[AddedFolder]:
    """The folders that some Python files add when they are run.

    Args:
        files: Python files; what cannot be parsed adds nothing.
        root: The folder that stands for site-packages; what lies outside it is not looked at.
    """
    found: dict[Path, AddedFolder] = {}
    inside = root.resolve()
    for file in files:
        for added in _of_file(file, inside):
            if inside not in (added.folder, *added.folder.parents):
                continue
            known = found.get(added.folder)
            if known is None or (added.certain and not known.certain):
                found[added.folder] = added
    return list(found.values())


def imported_at_start(site: Path) -> list[Path]:
    """The Python files that the ``.pth`` files of a site-packages folder import whenever Python starts."""
    folders, modules = [site], []
    for file in sorted(site.glob("*.pth")):
        try:
            if file.stat().st_size > _LARGEST:
                continue
            lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        modules += [match[1] for line in lines if (match := re.match(r"import[ \t]+(\w+)", line))]
        paths = (line.strip().replace("\\", "/") for line in lines if not re.match(r"import[ \t]|\s*#", line))
        folders += [site / path for path in paths if path and "\0" not in path]
    found = [folder / f"{module}.py" for module in modules for folder in folders]
    return [path for path in dict.fromkeys(found) if path.is_file()]


def _of_file(file: Path, root: Path) -> Iterator[AddedFolder]:
    try:
        if file.stat().st_size > _LARGEST:
            return
        text = file.read_text(encoding="utf-8", errors="replace")
        if not any(call in text for call in _CALLS):
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the escapes in other people's strings
            tree = ast.parse(text)
        nodes = list(ast.walk(tree))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return
    values: dict[str, object] = {"__file__": file}
    for alias in (alias for node in nodes if isinstance(node, ast.Import) for alias in node.names):
        package = root.joinpath(*alias.name.split("."))
        if package.is_dir():
            values.setdefault(alias.asname or alias.name, package)
    for node in nodes:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            value = _value(node.value, values, 0)
            if value is not None:
                values.setdefault(node.targets[0].id, value)
        elif isinstance(node, ast.For) and isinstance(node.target, ast.Name) and _is_path_of_package(node.iter):
            values.setdefault(node.target.id, _value(node.iter, values, 0))
    calls = [node for node in nodes if isinstance(node, ast.Call) and _name(node.func) in _CALLS]
    for call in calls:
        value = _value(call.args[0], values, 0) if call.args else None
        if value is not None:
            place = Path(str(value))
            folder = place if _name(call.func) == "add_dll_directory" else place.parent
            if folder.is_dir():
                yield AddedFolder(folder.resolve(), file, call.lineno, certain=True)
    if calls:
        yield from _named(file, calls[0].lineno, nodes)


def _is_path_of_package(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "__path__"


def _named(file: Path, line: int, nodes: list[ast.AST]) -> Iterator[AddedFolder]:
    """Folders near a file whose names stand in it as text."""
    texts = {
        PurePath(node.value).name
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and 0 < len(node.value) < 200
    }
    for text in sorted(texts):
        for base in (file.parent, file.parent.parent):
            folder = base / text
            try:
                if text not in ("", ".", "..") and folder.is_dir() and any(folder.glob("*.dll")):
                    yield AddedFolder(folder.resolve(), file, line, certain=False)
            except (OSError, ValueError):
                continue


def _name(function: ast.expr) -> str:
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def _value(node: ast.expr, values: dict[str, object], depth: int) -> Path | None:
    """The path that an expression stands for; None if that cannot be told."""
    if depth > _DEEPEST:
        return None
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and "\0" not in node.value:
        return Path(node.value)
    if isinstance(node, ast.Name):
        value = values.get(node.id)
        return value if isinstance(value, Path) else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        left, right = _value(node.left, values, depth + 1), _value(node.right, values, depth + 1)
        return None if left is None or right is None else left / right
    if isinstance(node, ast.Attribute):
        if node.attr in ("pardir", "curdir"):
            return Path(".." if node.attr == "pardir" else ".")
        inner = _value(node.value, values, depth + 1)
        if inner is None or node.attr == "__path__":
            return inner
        return inner / "__init__.py" if node.attr == "__file__" else inner.parent if node.attr == "parent" else None
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "parents":
        inner = _value(node.value.value, values, depth + 1)
        index = node.slice
        if inner is not None and isinstance(index, ast.Constant) and isinstance(index.value, int):
            return inner.parents[index.value] if 0 <= index.value < len(inner.parents) else None
        return None
    if isinstance(node, ast.Call):
        return _called(node, values, depth)
    return None


def _called(node: ast.Call, values: dict[str, object], depth: int) -> Path | None:
    name = _name(node.func)
    arguments = [_value(argument, values, depth + 1) for argument in node.args]
    if name in ("resolve", "absolute", "as_posix", "joinpath") and isinstance(node.func, ast.Attribute):
        inner = _value(node.func.value, values, depth + 1)
        if inner is None or any(argument is None for argument in arguments):
            return None
        return inner.joinpath(*(argument for argument in arguments if argument is not None))
    known = [argument for argument in arguments if argument is not None]
    if not known or len(known) < len(arguments):
        return None
    if name == "join":
        return known[0].joinpath(*known[1:])
    if name == "dirname":
        return known[0].parent
    return known[0] if name in ("abspath", "realpath", "normpath", "Path", "PurePath", "str", "fspath") else None
