"""The shell on Windows: half-activated prompts, flags for setuptools and torch, the wrong link.exe."""

from __future__ import annotations

import ntpath
from typing import TYPE_CHECKING

from sage_attention.toolchain.doctor.gather.machine import architecture

from .finding import Finding

if TYPE_CHECKING:
    from sage_attention.toolchain.doctor.model import Environment, Facts

__all__ = ["judge"]


def judge(facts: Facts) -> list[Finding]:
    """What the variables and PATH mean for a build that is started here."""
    environment = facts.environment
    found = _prompt(facts, environment)
    found += _programs(environment)
    found += _leftovers(environment)
    return found


def _prompt(facts: Facts, environment: Environment) -> list[Finding]:
    flag = bool(environment.get("DISTUTILS_USE_SDK"))
    prompt = environment.developer_prompt
    cl, include, lib = bool(environment.compilers), environment.get("INCLUDE"), environment.get("LIB")
    values = {
        "cl": environment.compilers[0] if cl else "-",
        "toolset": environment.toolset or "?",
        "target": _target(environment) or "?",
        "host": environment.get("VSCMD_ARG_HOST_ARCH") or "?",
        "python": facts.target,
    }
    found = []
    if not prompt and not cl:
        if flag:
            found.append(Finding("environment", "fail", "environment.flag_without_prompt", values))
        elif facts.toolsets:
            found.append(Finding("environment", "ok", "environment.plain", values))
        return found
    if not environment.whole:
        missing = [name for name, there in (("cl.exe", cl), ("INCLUDE", include), ("LIB", lib)) if not there]
        values["missing"] = ", ".join(missing or environment.lacks)
        found.append(Finding("environment", "fail", "environment.half", values, environment.lacks))
    else:
        found.append(
            Finding("environment", "ok", "environment.prompt", values, (f"cl.exe: {environment.compilers[0]}",))
        )
    if not flag and include:
        status = "fail" if facts.torch else "warn"
        found.append(Finding("environment", status, "environment.no_flag", values))
    target = _target(environment)
    if target and facts.target and target != facts.target:
        found.append(Finding("environment", "fail", "environment.target", values))
    elif cl and "\\hostx86\\" in environment.compilers[0].lower() and facts.machine.architecture != "x86":
        found.append(Finding("environment", "warn", "environment.host_x86", values))
    return found


def _target(environment: Environment) -> str:
    named = environment.get("VSCMD_ARG_TGT_ARCH")
    if not named and environment.compilers:
        # ...\bin\Hostx64\x64\cl.exe
        folder = ntpath.basename(ntpath.dirname(environment.compilers[0]))
        named = folder if folder.lower() in ("x64", "x86", "arm64") else ""
    return architecture(named) if named else ""


def _programs(environment: Environment) -> list[Finding]:
    if not environment.linkers:
        return []
    first = environment.linkers[0]
    if environment.compilers:
        right = ntpath.dirname(environment.compilers[0]).lower()
        if ntpath.dirname(first).lower() == right:
            return []
        values = {"link": first, "right": ntpath.join(ntpath.dirname(environment.compilers[0]), "link.exe")}
        return [Finding("environment", "fail", "environment.link", values, environment.linkers)]
    if not first.lower().replace("/", "\\").count("\\vc\\tools\\msvc\\"):
        return [Finding("environment", "note", "environment.link_other", {"link": first}, environment.linkers)]
    return []


def _leftovers(environment: Environment) -> list[Finding]:
    found = []
    for which, folders in (("INCLUDE", environment.missing_includes), ("LIB", environment.missing_libraries)):
        if folders:
            values = {"variable": which, "count": str(len(folders)), "first": folders[0]}
            total = [folder for folder in environment.get(which).split(";") if folder.strip()]
            status = "fail" if len(folders) == len(total) else "warn"
            found.append(Finding("environment", status, "environment.missing_folders", values, folders))
    options = [(name, environment.get(name)) for name in ("CL", "_CL_", "LINK", "_LINK_") if environment.get(name)]
    found += [
        Finding("environment", "warn", "environment.options", {"variable": name, "value": value})
        for name, value in options
    ]
    for name in ("CC", "CXX"):
        value = environment.get(name)
        base = ntpath.basename(value.split(" ")[0]).lower().removesuffix(".exe")
        if value and base not in ("cl", "clang-cl"):
            found.append(
                Finding("environment", "warn", "environment.other_compiler", {"variable": name, "value": value})
            )
    if environment.get("MSYSTEM"):
        found.append(Finding("environment", "warn", "environment.msys", {"value": environment.get("MSYSTEM")}))
    return found
