"""Findings that need the wheel's tag: Python ABI, platform, manylinux policy, macOS version."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .findings import Finding, few
from .linux_loader import is_musl
from .manylinux import fitting_policy, policies, policy_of_tag, refused_by
from .model import version_text
from .python_abi import outside_stable_abi
from .tags import platform_machine
from .tree import walk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .survey import Survey, Surveyed
    from .tags import WheelTags

__all__ = ["wheel_findings"]

_OPENMP = re.compile(r"(libiomp5md|libomp140|libomp|vcomp140|libgomp|libiomp5)\b.*", re.IGNORECASE)


def wheel_findings(found: Survey) -> Iterator[Finding]:
    """What contradicts the tag of a wheel; for a single module, what contradicts its own name."""
    tags = found.subject.tags
    for file in found.files:
        yield from _stable_abi(file, tags)
        if tags is not None:
            yield from _platform(file, tags)
            yield from _python_tag(file, tags)
    if "torch" in found.subject.requires:
        for file in found.files:
            base = file.binary.path.name
            if _OPENMP.fullmatch(base):
                yield Finding("openmp_twice", file.name, {"library": base})
    if tags is None:
        return
    title = found.subject.title.replace("\\", "/").rpartition("/")[2]
    if found.files and tags.platforms == ("any",):
        yield Finding("tag_any", title, {"tag": tags.text})
    if found.subject.wheel_file_tags:
        named = {f"{p}-{a}-{f}" for p in tags.pythons for a in tags.abis for f in tags.platforms}
        if named != found.subject.wheel_file_tags:
            yield Finding("wheel_file_tags", title, {"tag": tags.text, "inside": few(found.subject.wheel_file_tags)})
    if tags.system == "ELF":
        yield from _linux_policy(found, tags, title)


def _stable_abi(file: Surveyed, tags: WheelTags | None) -> Iterator[Finding]:
    """A promise of the stable ABI, given by the wheel's tag, the file's name, or ``python3.dll``."""
    if tags is not None and tags.no_abi and file.python.symbols:
        yield Finding("none_uses_python", file.name, {"tag": tags.text, "symbols": few(file.python.symbols)})
        return
    named = file.module is not None and file.module.abi3
    promised = file.role == "module" and ((tags is not None and tags.abi3) or named or file.python.stable)
    if not promised or (file.module and file.module.python):
        return
    for library in file.python.dlls:
        if not re.fullmatch(r"python3t?(_d)?\.dll", library, re.IGNORECASE):
            yield Finding("abi3_named", file.name, {"library": library})
    since = (tags.python if tags and tags.abi3 else None) or (3, 99)
    outside = outside_stable_abi(file.python.symbols, since)
    later = {f"{name} ({version_text(added)})" for name, added in outside.items() if added}
    private = {name for name, added in outside.items() if not added}
    # python3.dll has no other names: on Windows each of them fails to load; elsewhere they may be somebody else's.
    unknown = {name for name in private if file.binary.pe is not None or _is_cpython(name)}
    bad = later | unknown
    if bad:
        version = version_text(since) if since != (3, 99) else "3"
        yield Finding("abi3_symbols", file.name, {"count": str(len(bad)), "symbols": few(bad, 5), "version": version})
    if private - unknown:
        yield Finding(
            "abi3_private", file.name, {"count": str(len(private - unknown)), "symbols": few(private - unknown, 5)}
        )


def _is_cpython(name: str) -> bool:
    """Whether a symbol looks like CPython's: a class of its API and a function of it."""
    return bool(re.fullmatch(r"_?Py[A-Z][A-Za-z]*_[A-Za-z]\w*|_Py_\w+|Py_[A-Z]\w*", name))


def _platform(file: Surveyed, tags: WheelTags) -> Iterator[Finding]:
    if tags.system and file.binary.format != tags.system:
        yield Finding("format_tag", file.name, {"format": file.binary.format, "tag": tags.text})
        return
    machines = tags.machines
    if machines and file.binary.machine not in machines and file.role != "program":
        yield Finding("machine_tag", file.name, {"machine": file.binary.machine, "tag": tags.text})
    macho = file.binary.macho
    if macho is not None and macho.platform == "macOS":
        versions = [re.match(r"macosx_(\d+)_(\d+)_(\w+)", tag) for tag in tags.platforms]
        promised = [
            (int(match[1]), int(match[2]))
            for match in versions
            if match and file.binary.machine in platform_machine(match[0])
        ]
        if promised:
            lowest = min(promised)
            if file.binary.machine == "arm64":
                lowest = max(lowest, (11, 0))  # there is no earlier one
            if macho.min_os > lowest:
                facts = {"platform": macho.platform, "needs": version_text(macho.min_os), "tag": tags.text}
                yield Finding("macos_version", file.name, facts)


def _python_tag(file: Surveyed, tags: WheelTags) -> Iterator[Finding]:
    module = file.module
    if file.role != "module" or module is None or module.python is None:
        return
    if tags.no_abi or tags.abi3 or module.python not in _versions(tags) or module.free_threaded != tags.free_threaded:
        says = f"cp{module.python[0]}{module.python[1]}{'t' if module.free_threaded else ''}"
        yield Finding("file_tag", file.name, {"name_says": says, "tag": tags.text})


def _versions(tags: WheelTags) -> set[tuple[int, int]]:
    found = (re.fullmatch(r"(?:cp|pp)(\d)(\d+)", tag) for tag in tags.pythons)
    return {(int(match[1]), int(match[2])) for match in found if match}


def _linux_policy(found: Survey, tags: WheelTags, title: str) -> Iterator[Finding]:
    files = [file for file in found.files if file.binary.elf is not None]
    binaries = [file.binary for file in files]
    fits = "" if any(is_musl(binary) for binary in binaries) else fitting_policy(binaries)
    named = [policy for policy in map(policy_of_tag, tags.platforms) if policy]
    if not named:
        if files and not any(tag.startswith(("musllinux", "android")) for tag in tags.platforms):
            yield Finding("linux_tag", title, {"tag": tags.text, "fits": fits or "none"})
        return
    order = [name for name, _ in policies()]
    policy = min(named, key=lambda name: order.index(name) if name in order else len(order))
    for file in files:
        for demand in refused_by(policy, file.binary):
            facts = {
                "tag": policy, "demand": demand.text, "library": demand.library,
                "symbols": few(demand.symbols, 5) or "?", "fits": fits or "?",
            }  # fmt: skip
            yield Finding("manylinux", file.name, facts)
        for node, _ in walk(file.nodes):
            if node.state == "libpython" and not node.repeated:
                yield Finding("not_manylinux", file.name, {"library": node.name, "tag": policy})
    if fits in order and policy in order and order.index(fits) < order.index(policy):
        yield Finding("older_tag", title, {"fits": fits})
