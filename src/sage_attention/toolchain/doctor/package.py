"""``sage-attention doctor --for PACKAGE``: is there a wheel for this Python, and what would a build need?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from sage_attention.errors import ArgumentError
from sage_attention.toolchain.data_files import table

from .gather import index
from .judge.finding import Finding
from .versions import accepts, numbers, short

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sage_attention.toolchain.system import System

    from .model import Facts

__all__ = ["judge_package", "known"]

_GIB = 1 << 30


def known(name: str) -> dict[str, Any]:
    """What is known of a package; of one that is not known, what holds for most.

    Args:
        name: As it is spelled anywhere: case, ``-``, ``_`` and ``.`` do not matter.

    Example:
        >>> known("Flash_Attn")["needs"]
        ['cxx', 'cuda', 'torch', 'ninja']
    """
    plain = re.sub(r"[-_.]+", "-", name).lower()
    found = table("doctor/packages")
    for row in found["packages"]:
        if plain in (row["name"], *row.get("aliases", ())):
            return {**row, "known": True}
    return {**found["default"], "name": plain}


def judge_package(system: System, facts: Facts, requirement: str, findings: Sequence[Finding]) -> list[Finding]:
    """The findings about one package.

    Args:
        system: The machine, whose pip is asked.
        facts: What was gathered.
        requirement: A name, or a name with a version.
        findings: All other findings, for what a build needs.

    Raises:
        ArgumentError: If it is no name of a package.
    """
    match = re.fullmatch(
        r"\s*([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)(\[[\w,. -]*\])?\s*([<>=!~][\w.,<>=!~* +-]*)?\s*", requirement
    )
    if match is None:
        raise ArgumentError("--for", "the name of a package, as torch-scatter or torch-scatter==2.1.2", requirement)
    package = known(match[1])
    python = facts.python
    if python is None:
        return [Finding("package", "fail", "package.no_python", {"name": match[1]})]
    links = _find_links(facts, package)
    answer = index.ask(system, python.executable, (match[1] + (match[3] or "")).replace(" ", ""), links)
    values: dict[str, str] = {
        "name": str(package["name"]),
        "typed": requirement.strip(),
        "python": python.version,
        "target": facts.target,
        "platform": "Windows" if facts.windows else facts.machine.platform,
        "newest": answer.newest,
        "version": answer.version,
        "wheel": answer.wheel or "",
        "detail": answer.detail,
        "executable": python.executable,
        "links": links or "",
    }
    found = _notes(facts, package, values, compiled=answer.wheel is None)
    if answer.wheel:
        older = numbers(answer.version) < numbers(answer.newest) and not match[3]
        which = "package.wheel_older" if older else "package.wheel_pure" if _pure(answer.wheel) else "package.wheel"
        if links and not older:
            which = "package.wheel_links"
        return [Finding("package", "warn" if older else "ok", which, values), *found]
    if answer.problem:
        first = Finding("package", "warn", f"package.{answer.problem}", values)
    else:
        first = Finding("package", "warn", "package.no_wheel", values)
    if answer.problem == "unknown" and not package.get("known"):
        return [first]  # a misspelt name needs nothing
    return [first, *found, *_needs(facts, package, values, findings)]


def _pure(wheel: str) -> bool:
    return wheel.endswith("-none-any.whl")


def _find_links(facts: Facts, package: dict[str, Any]) -> str | None:
    """The page with wheels for this torch, where a package has one."""
    template = package.get("find_links")
    if not template or facts.torch is None:
        return None
    release = ".".join(map(str, (*numbers(facts.torch.version)[:2], 0)))
    cuda = "cu" + short(facts.torch.cuda).replace(".", "") if facts.torch.cuda else "cpu"
    return str(template).format(torch=release, cuda=cuda)


def _notes(facts: Facts, package: dict[str, Any], values: dict[str, str], *, compiled: bool) -> list[Finding]:
    found = []
    for note in package.get("notes", ()):
        if not (compiled or note.get("always")):
            continue
        platform = note.get("platform")
        if platform and platform != ("windows" if facts.windows else "other"):
            continue
        if not accepts(note.get("python", ""), values["python"]):
            continue
        found.append(
            Finding(
                "package",
                note.get("status", "note"),
                f"package.note.{note['id']}",
                values,
                (f"source: {note['source']}",),
            )
        )
    return found


def _needs(facts: Facts, package: dict[str, Any], values: dict[str, str], findings: Sequence[Finding]) -> list[Finding]:
    """What a build needs, each against what is there."""
    by_id = {finding.id: finding for finding in findings}
    found = []
    # Most packages with optional CUDA code are built without it where torch has none.
    optional = package.get("cuda") == "optional" and not (facts.torch and facts.torch.cuda)
    for need in package["needs"]:
        if need == "cuda" and optional:
            continue
        status = "ok" if _has(facts, need, by_id) else "fail"
        found.append(
            Finding("package", status, f"package.need.{need}" + ("" if status == "ok" else "_missing"), values)
        )
    memory = facts.machine.memory
    each = float(package.get("gib_per_job", 1.5))
    if memory is not None:
        fits = max(1, min(facts.machine.processors, int(memory[1] / (each * _GIB))))
        more = {**values, "each": f"{each:g}", "free": f"{memory[1] / _GIB:.1f}", "fits": str(fits)}
        short_of = memory[1] < each * _GIB or fits < facts.machine.processors
        found.append(
            Finding(
                "package", "warn" if short_of else "ok", "package.memory_short" if short_of else "package.memory", more
            )
        )
    if all(finding.status != "fail" for finding in found):
        isolated = (
            "package.build_no_isolation"
            if "torch" in package["needs"] or package.get("no_isolation")
            else "package.build"
        )
        found.append(Finding("package", "warn", isolated, values))
    return found


def _has(facts: Facts, need: str, by_id: dict[str, Finding]) -> bool:
    if need == "cxx":
        return "verdict.cpp_yes" in by_id
    if need == "cuda":
        return any(i in by_id for i in ("verdict.cuda_yes", "verdict.cuda_choose", "verdict.cuda_choose_gcc"))
    if need == "torch":
        return facts.torch is not None
    if need == "numpy":
        return bool(facts.python and "numpy" in facts.python.packages)
    program = facts.programs.get({"rust": "rustc"}.get(need, need))
    return program is not None and program.path is not None
