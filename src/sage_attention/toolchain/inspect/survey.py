"""Every file of a subject, with its tree of libraries and what an import would end in: facts, no judgement."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Union

from sage_attention.errors import DataError

from . import crt
from .dll_directories import added_folders, imported_at_start
from .linux_loader import LinuxProcess, is_musl
from .macos_loader import MacProcess
from .manylinux import fitting_policy
from .python_abi import PythonUse, init_names, initialised_modules, python_use
from .reading import read_binaries
from .tags import ModuleName, module_name
from .torch_abi import TorchUse, torch_use
from .tree import Node, Outcome, walk
from .windows_loader import WindowsProcess, load_outcome

if TYPE_CHECKING:
    from pathlib import Path

    from .dll_directories import AddedFolder
    from .model import Binary
    from .subject import Subject
    from .target import Target

__all__ = ["Survey", "Surveyed", "survey"]

# Where torch could be imported these are there: it does not work without the Redistributable itself.
_WITH_TORCH = frozenset({"after_torch", "redistributable"})
_ROLES = ("module", "program", "library")
_MANY_NODES = 10_000  # of all trees together
_MOST_NODES = 500_000
_Process = Union[WindowsProcess, LinuxProcess, MacProcess]


@dataclass
class Surveyed:
    """One binary of the subject.

    Attributes:
        role: ``module``, ``library`` or ``program``.
        version: The Python it runs in, as far as the target, its name, its imports or its wheel say.
        reached: Another file of the subject loads it.
    """

    name: str
    binary: Binary
    role: str
    module: ModuleName | None
    python: PythonUse
    torch: TorchUse
    version: tuple[int, int] | None
    nodes: list[Node] = field(default_factory=list)
    outcome: Outcome = field(default_factory=lambda: Outcome("ok"))
    after_torch: Outcome | None = None  # if it is another one once torch was imported
    reached: bool = False


@dataclass
class Survey:
    """All of the subject."""

    subject: Subject
    target: Target
    files: list[Surveyed] = field(default_factory=list)
    unreadable: list[tuple[str, str]] = field(default_factory=list)  # file, why


def survey(subject: Subject, target: Target) -> Survey:
    """Reads every file and follows what it needs.

    Raises:
        DataError: There is one file and it cannot be read.
    """
    found = Survey(subject, target)
    for path in subject.files:
        try:
            binaries = read_binaries(path)
        except DataError as error:
            if len(subject.files) == 1:
                raise
            found.unreadable.append((subject.name_of(path), str(error)))
            continue
        name = subject.name_of(path)
        found.files += [_surveyed(f"{name} ({b.machine})" if len(binaries) > 1 else name, b, found) for b in binaries]
    added = _added(subject) if any(file.binary.pe for file in found.files) else []
    asked_for = {_base(needed.library) for file in found.files for needed in file.binary.needed}
    files_at: dict[Path, list[Surveyed]] = {}
    for file in found.files:
        files_at.setdefault(file.binary.path, []).append(file)
    count = 0
    for file in sorted(
        found.files, key=lambda file: (_ROLES.index(file.role), _base(file.binary.path.name) in asked_for)
    ):
        # In a large package nearly every library is part of another's tree: there it was judged already.
        if count > (_MANY_NODES if file.reached and file.role == "library" else _MOST_NODES):
            file.outcome = Outcome("not_followed")
            continue
        process = _process(file, found, added)
        file.nodes = process.load(file.binary)
        count += sum(1 for _ in walk(file.nodes))
        file.outcome = _outcome(file, file.nodes, wanted=target.machine)
        if any(node.state == "after_torch" for node, _ in walk(file.nodes)):
            file.after_torch = _outcome(file, file.nodes, _WITH_TORCH, target.machine)
        for reached in {node.file for node, _ in walk(file.nodes) if node.file is not None}:
            for other in files_at.get(reached, ()):
                if other is not file:
                    other.reached = True
    return found


def _base(library: str) -> str:
    """The file name in a path, an install name or an import table."""
    return library.replace("\\", "/").rpartition("/")[2].lower()


def _surveyed(name: str, binary: Binary, found: Survey) -> Surveyed:
    module = module_name(binary.path.name)
    use = python_use(binary)
    role = "library"
    if binary.pe is not None and not binary.pe.is_dll:
        role = "program"
    elif initialised_modules(binary):
        role = "module" if module else "library"
    elif module and (module.suffix == "pyd" or module.python or module.abi3):
        # Operators for torch are named like modules and loaded as libraries (torch.ops.load_library).
        operators = torch_use(binary).kind != "none" and not use.symbols
        role = "library" if operators else "module"
    tags, target = found.subject.tags, found.target
    tagged = tags.python if tags and not tags.abi3 and not tags.no_abi else None
    version = target.version or (module.python if module else None) or tagged or use.version
    return Surveyed(name, binary, role, module, use, torch_use(binary), version)


def _added(subject: Subject) -> list[AddedFolder]:
    """What the Python files near the binaries add to the search for DLLs."""
    folders = {subject.root}
    for path in subject.files:
        here = path.parent
        while subject.root in here.parents:
            folders.add(here)
            here = here.parent
    files = [file for folder in sorted(folders) if folder != subject.root for file in sorted(folder.glob("*.py"))]
    return added_folders([*files, *imported_at_start(subject.root)], subject.root)


def _process(file: Surveyed, found: Survey, added: list[AddedFolder]) -> _Process:
    target, root, machine = found.target, found.subject.root, file.binary.machine
    if file.binary.elf is not None:
        linux = target
        host = found.subject.kind != "wheel" and target.python is None and target.site is None
        return LinuxProcess(linux, machine, root, host=host)
    if file.binary.macho is not None:
        return MacProcess(target, machine, root, sealed=found.subject.kind == "wheel")
    tags = found.subject.tags
    free = target.free_threaded or bool(
        (file.module and file.module.free_threaded) or (tags and tags.free_threaded) or file.python.free_threaded
    )
    torch = target.torch_is_there or "torch" in found.subject.requires or file.torch.kind != "none"
    process = WindowsProcess(target, file.version, free, machine, root, added, with_torch=torch)
    for module in target.after:
        if module == "torch":
            process.import_torch()
        else:
            _import_first(module, process)
    return process


def _import_first(module: str, process: WindowsProcess) -> None:
    """``import module``: what its extension modules load stays loaded, the folders it adds stay added."""
    for base in (process.root, process.target.site):
        if base is None:
            continue
        place = base.joinpath(*module.split("."))
        chain = [base.joinpath(*module.split(".")[:count]) for count in range(1, module.count(".") + 2)]
        files = [file for folder in chain if folder.is_dir() for file in sorted(folder.glob("*.py"))]
        process.added = [*process.added, *added_folders(files, base)]
        if not place.parent.is_dir():
            continue
        for path in sorted(place.parent.glob(f"{place.name}*.pyd")):
            named = module_name(path.name)
            if named and named.module == place.name:
                for binary in read_binaries(path):
                    process.load(binary)


def _outcome(file: Surveyed, nodes: list[Node], forgiven: frozenset[str] = frozenset(), wanted: str = "") -> Outcome:
    if file.role == "program":
        return Outcome("ok")
    module = file.module if file.role == "module" else None
    if module and file.version and not considered(module, file.version):
        return Outcome("not_considered")
    if wanted and file.binary.pe is not None and file.binary.machine != wanted:
        return Outcome("load_failed", 193, file.name)
    if file.binary.pe is not None:
        outcome = load_outcome(nodes, file.version if module else None, forgiven)
    else:
        failing = next((item for item in walk(nodes) if item[0].error and item[0].state not in forgiven), None)
        outcome = Outcome("load_failed", 0, failing[0].name, failing[1]) if failing else Outcome("ok")
    if outcome.kind == "ok" and module:
        names = init_names(module.module)
        if not any(name in file.binary.exports for name in names):
            return Outcome("no_init", detail=names[:1])
    return outcome


def linux_policy(found: Survey) -> tuple[str, list[str]]:
    """The oldest manylinux policy that the symbols of all Linux files fit, and the libraries that no policy allows."""
    files = [file for file in found.files if file.binary.elf is not None]
    if not files or any(is_musl(file.binary) for file in files):
        return "", []
    states = ("after_torch", "cuda", "host", "libpython", "missing")
    foreign = {node.name for file in files for node, _ in walk(file.nodes) if node.state in states}
    return fitting_policy([file.binary for file in files]), sorted(foreign)


def considered(module: ModuleName, version: tuple[int, int]) -> bool:
    """Whether a Python looks at a file of this name at all."""
    if module.other:
        return False
    return module.python is None or module.python == version


def library_runtimes(file: Surveyed) -> dict[str, list[str]]:
    """C run-time library -> files, over a Windows file and what it loads of the same package."""
    found: dict[str, list[str]] = {}
    rows = [(file.name, file.binary)]
    rows += [
        (node.name, node.binary)
        for node, _ in walk(file.nodes)
        if node.binary is not None
        and node.state in ("load_dir", "added_dir", "guessed_dir")
        and not crt_itself(node.name)
    ]
    for name, binary in rows:
        for flavour in crt.flavours(binary):
            found.setdefault(flavour, []).append(name)
    return found


def crt_itself(library: str) -> bool:
    """Whether a DLL is itself part of a C or C++ run-time library, renamed copies included."""
    return bool(re.match(r"(msvcp|vcruntime|vcomp|ucrtbase|concrt|msvcr)", library.lower()))
