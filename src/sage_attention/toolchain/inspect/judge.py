"""From facts to findings: what can be said of one file is here, what contradicts a wheel's tag in ``judge_wheel``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from sage_attention.toolchain.data_files import table

from . import crt
from .findings import Finding, few, joined
from .judge_wheel import wheel_findings
from .lists import dll_kind
from .model import version_text
from .python_abi import init_names, initialised_modules
from .survey import library_runtimes
from .tree import Node, walk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .survey import Survey, Surveyed

__all__ = ["judge"]

_SEARCH_FLAGS = 0x1F00  # LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR to LOAD_LIBRARY_SEARCH_DEFAULT_DIRS
_PLAIN_NODES = {"no_such_place": "no_such_place", "libpython": "libpython"}


def judge(found: Survey, expected_exports: tuple[str, ...] = ()) -> list[Finding]:
    """Everything there is to say, the gravest first.

    Args:
        found: The facts.
        expected_exports: Functions that must be exported by one of the files.
    """
    findings: list[Finding] = []
    for file in found.files:
        findings += _file_findings(file, found)
    findings += wheel_findings(found)
    if expected_exports:
        exported = frozenset[str]().union(*(file.binary.exports for file in found.files))
        absent = [name for name in expected_exports if name not in exported]
        if absent:
            facts = {"count": str(len(absent)), "symbols": few(absent, 10)}
            findings.append(Finding("exports_missing", found.subject.title, facts))
    python = found.target.python
    if python is not None and (python / "conda-meta").is_dir() and any(file.binary.pe for file in found.files):
        findings.append(Finding("conda", found.subject.title, {}))
    order = {"error": 0, "warning": 1, "note": 2}
    return sorted(joined(findings), key=lambda item: (order[item.severity], item.file, item.code))


def _file_findings(file: Surveyed, found: Survey) -> Iterator[Finding]:
    orphan = file.role == "library" and file.binary.path.parent.name.endswith((".libs", ".dylibs"))
    if file.role != "program" and not file.reached and not orphan:
        for node, via in walk(file.nodes):
            yield from _node_findings(node, via, file, found)
        yield from _from_elsewhere(file, found)
    if file.binary.pe is not None:
        yield from _windows_findings(file)
        wanted = found.target.machine
        if wanted and file.binary.machine != wanted:
            yield Finding("machine_target", file.name, {"machine": file.binary.machine, "wanted": wanted})
    yield from _python_findings(file)
    yield from _search_path_findings(file)
    if file.torch.kind == "cpp":
        example = min(file.torch.cpp, key=len)
        yield Finding("torch_cpp", file.name, {"count": str(len(file.torch.cpp)), "example": example})
    elif file.torch.kind == "stable" and file.torch.stable:
        yield Finding("torch_stable", file.name, {"count": str(len(file.torch.stable))})


def _kind(key: str) -> dict[str, str]:
    return dict(table("inspect_texts")["kinds"].get(key, {"en": "put it into the package", "zh": "请把它放进包里"}))


def _node_findings(node: Node, via: tuple[str, ...], file: Surveyed, found: Survey) -> Iterator[Finding]:
    if node.repeated or node.delayed or node.weak:
        return
    asked = {
        "en": f", {' → '.join(via[-6:])} asks for it" if via else "",
        "zh": f"，由 {' → '.join(via[-6:])} 要求" if via else "",
    }
    facts: dict[str, Any] = {"library": node.name, "via": asked, "place": node.place}
    if node.state in ("missing", "redistributable"):
        kind = dll_kind(node.name)
        if file.binary.pe is None:
            yield Finding("missing_so", file.name, facts)
        elif (
            kind == "python"
            and node.name in file.python.dlls
            and (file.version not in (None, file.python.version) or node.name.lower().endswith("_d.dll"))
        ):
            return  # said as python_conflict, or as debug_python
        elif kind in ("debug_crt", "openmp_debug"):
            yield Finding("debug_runtime", file.name, facts)
        elif kind == "gpu_driver":
            yield Finding("gpu_library", file.name, {**facts, "kind": _kind(kind)})
        elif kind == "vc_runtime" and _with_torch(found) and file.after_torch is not None:
            yield Finding("runtime_with_torch", file.name, facts)
        else:
            yield Finding("missing_library", file.name, {**facts, "kind": _kind(kind)})
    elif node.state == "conditional_system":
        which = table("windows_dlls")["conditional"]["names"][node.name.lower()]
        yield Finding("conditional_library", file.name, {**facts, "kind": _kind(which)})
    elif node.state == "wrong_machine":
        machine = node.binary.machine if node.binary else "?"
        yield Finding("wrong_machine", file.name, {**facts, "found": machine, "wanted": file.binary.machine})
    elif node.state == "unreadable":
        yield Finding("unreadable_library", file.name, facts)
    elif node.state == "elsewhere":
        yield Finding("elsewhere", file.name, facts)
    elif node.state in _PLAIN_NODES:
        yield Finding(_PLAIN_NODES[node.state], file.name, facts)
    if node.missing_symbols:
        yield Finding("missing_symbols", file.name, {**facts, "symbols": few(node.missing_symbols)})


def _with_torch(found: Survey) -> bool:
    """Whether torch can be taken to be there: the package says so, or there is no package to say anything."""
    return "torch" in found.subject.requires or found.subject.kind == "file" or found.target.torch_is_there


def _from_elsewhere(file: Surveyed, found: Survey) -> Iterator[Finding]:
    """What is no fault: it comes with torch or CUDA."""
    for node, _ in walk(file.nodes):
        if node.repeated or node.delayed:
            continue
        if node.state == "after_torch":
            code = "after_torch" if _with_torch(found) else "after_torch_undeclared"
            yield Finding(code, file.name, {"library": node.name})
        if node.state == "cuda" or (node.state == "after_torch" and dll_kind(node.name) == "cuda"):
            yield Finding("gpu_library", file.name, {"library": node.name, "kind": _kind("cuda")})


def _windows_findings(file: Surveyed) -> Iterator[Finding]:
    facts = file.binary.pe
    if facts is None:
        return
    if facts.load_flags & _SEARCH_FLAGS:
        yield Finding("load_flags", file.name, {"flags": f"{facts.load_flags:x}"})
    for assembly in facts.assemblies:
        if assembly != "Microsoft.Windows.Common-Controls":
            yield Finding("side_by_side", file.name, {"assembly": assembly})
    if file.reached:
        return
    for needed in file.binary.needed:
        if dll_kind(needed.library) in ("debug_crt", "openmp_debug") and not needed.delayed:
            yield Finding("debug_runtime", file.name, {"library": needed.library})
    runtimes = library_runtimes(file)
    dynamic = {name: files for name, files in runtimes.items() if name not in ("/MT", "hybrid")}
    if len(dynamic) > 1:
        named = sorted({name for files in dynamic.values() for name in files})
        yield Finding("mixed_runtimes", file.name, {"files": few(named), "runtimes": ", ".join(sorted(dynamic))})
    yield from _runtime_age(file)


def _runtime_age(file: Surveyed) -> Iterator[Finding]:
    """An msvcp140.dll older than what was built for a later one."""
    users = [(file.name, file.binary, file.nodes)]
    users += [(node.name, node.binary, node.children) for node, _ in walk(file.nodes) if node.binary is not None]
    runtime = next((node for node, _ in walk(file.nodes) if node.name.lower() == "msvcp140.dll"), None)
    if runtime is None:
        return
    version = crt.file_version(runtime)
    since = tuple(table("windows_dlls")["runtime_break"]["since"])
    for name, binary, _ in users:
        if binary.pe is None or runtime.name not in {n.library for n in binary.needed}:
            continue
        facts = {
            "toolset": crt.toolset(binary), "place": runtime.place or runtime.name,
            "version": version_text(version[:3]),
        }  # fmt: skip
        demanded = crt.runtime_demands(binary)
        if demanded and not version:
            yield Finding("runtime_demand", name, {"toolset": facts["toolset"], "symbols": few(demanded)})
        elif demanded and version[:2] < since:
            yield Finding("runtime_too_old", name, {**facts, "symbols": few(demanded)})
        elif version and binary.pe.made_by == "MSVC" and version[:2] < binary.pe.linker:
            yield Finding("runtime_older", name, facts)


def _python_findings(file: Surveyed) -> Iterator[Finding]:
    use = file.python
    for library in use.dlls:
        if library.lower().endswith("_d.dll"):
            yield Finding("debug_python", file.name, {"library": library})
    if use.version and file.version and use.version != file.version:
        library = next(dll for dll in use.dlls if str(use.version[1]) in dll)
        facts = {"library": library, "version": version_text(file.version)}
        yield Finding("python_conflict", file.name, facts)
    if file.role != "module" or file.module is None:
        return
    if file.outcome.kind == "not_considered" and file.version:
        yield Finding("not_considered", file.name, {"version": version_text(file.version)})
    names = init_names(file.module.module)
    if not any(name in file.binary.exports for name in names):
        own = sorted(initialised_modules(file.binary))
        exported: Any = {"en": "no PyInit_ at all", "zh": "没有任何 PyInit_"}
        shown = few(f"PyInit_{name}" for name in own) if own else exported
        yield Finding("no_init", file.name, {"symbol": names[0], "exported": shown})


def _search_path_findings(file: Surveyed) -> Iterator[Finding]:
    elf, macho = file.binary.elf, file.binary.macho
    if elf is not None and elf.executable_stack:
        yield Finding("executable_stack", file.name, {})
    folders = (*elf.rpath, *elf.runpath) if elf else macho.rpaths if macho else ()
    for folder in dict.fromkeys(folders):
        if re.match(r"\$\{?(ORIGIN|LIB|PLATFORM)|@(loader_path|executable_path)", folder) or folder.startswith(
            "/usr/lib"
        ):
            continue
        code = "rpath_absolute" if folder.startswith("/") else "rpath_relative"
        yield Finding(code, file.name, {"folder": folder})
