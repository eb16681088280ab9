"""The report as JSON, for programs: everything that the text says, and the names it leaves out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import crt
from .manylinux import demands
from .survey import linux_policy
from .text import outcome_text
from .tree import DEEPEST

if TYPE_CHECKING:
    from .findings import Finding
    from .survey import Survey, Surveyed
    from .tree import Node

__all__ = ["document", "unreadable"]

_VERSION = 1


def document(found: Survey, findings: list[Finding], language: str) -> dict[str, Any]:
    """The report as what ``json`` can write."""
    policy, foreign = linux_policy(found)
    return {
        "format": _VERSION,
        "subject": found.subject.title,
        "kind": found.subject.kind,
        "tag": found.subject.tags.text if found.subject.tags else None,
        "policy": policy or None,
        "not_in_any_policy": foreign,
        "files": [_file(file, language) for file in found.files],
        "unreadable": [{"file": name, "why": why} for name, why in found.unreadable],
        "findings": [_finding(item, language) for item in findings],
    }


def unreadable(subject: str, why: str) -> dict[str, Any]:
    """What stands for the report where there is none."""
    return {"format": _VERSION, "subject": subject, "error": why}


def _finding(item: Finding, language: str) -> dict[str, Any]:
    title, fix = item.words(language)
    return {
        "code": item.code, "severity": item.severity, "file": item.file, "libraries": list(item.libraries),
        "title": title, "fix": fix,
    }  # fmt: skip


def _file(file: Surveyed, language: str) -> dict[str, Any]:
    binary = file.binary
    row: dict[str, Any] = {
        "file": file.name,
        "role": file.role,
        "format": binary.format,
        "machine": binary.machine,
        "python": {
            "version": ".".join(map(str, file.version)) if file.version else None,
            "stable_abi": file.python.stable or bool(file.module and file.module.abi3),
            "free_threaded": file.python.free_threaded or bool(file.module and file.module.free_threaded),
            "symbols": len(file.python.symbols),
        },
        "torch": {"abi": file.torch.kind, "libraries": list(file.torch.libraries)},
        "exports": sorted(name for name in binary.exports if not name.startswith("#")),
        "outcome": {
            "kind": file.outcome.kind,
            "winerror": file.outcome.winerror or None,
            "culprit": file.outcome.culprit or None,
            "via": list(file.outcome.via),
            "text": outcome_text(file, language),
        },
        "loaded_by_another": file.reached,
        "libraries": [_node(node) for node in file.nodes],
    }
    if binary.pe is not None:
        row["linker"] = crt.toolset(binary)
        row["c_runtime"] = list(crt.flavours(binary))
        row["debug"] = "/MDd" in crt.flavours(binary)
    if binary.elf is not None:
        row["soname"] = binary.elf.soname or None
        row["rpath"], row["runpath"] = list(binary.elf.rpath), list(binary.elf.runpath)
        row["versions"] = [
            {"version": demand.text, "library": demand.library, "symbols": list(demand.symbols)}
            for demand in demands(binary)
        ]
    if binary.macho is not None:
        row["install_name"] = binary.macho.install_name or None
        row["rpaths"] = list(binary.macho.rpaths)
        row["minimum_system"] = ".".join(map(str, binary.macho.min_os)) or None
    return row


def _node(node: Node, depth: int = 0) -> dict[str, Any]:
    row: dict[str, Any] = {"library": node.name, "state": node.state, "place": node.place or None}
    if node.delayed:
        row["delayed"] = True
    if node.weak:
        row["weak"] = True
    if node.repeated:
        row["repeated"] = True
    if node.missing_symbols:
        row["missing_symbols"] = list(node.missing_symbols)
    if node.children and depth < DEEPEST:
        row["libraries"] = [_node(child, depth + 1) for child in node.children]
    return row
