"""Every Visual Studio and every MSVC toolset in it.

Asked of vswhere, twice: for all there is, and for what has the C++ tools. Where vswhere is missing, fails or forgets an
installation, the installer's own ``state.json`` is read, then the registry of Visual Studio 2017 and older.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from sage_attention.toolchain.doctor.model import Problem, Toolset, VisualStudio
from sage_attention.toolchain.doctor.versions import numbers

if TYPE_CHECKING:
    from sage_attention.toolchain.system import System

__all__ = ["gather", "parse_state", "parse_vswhere"]

_COMPONENTS = ("Microsoft.VisualStudio.Component.VC.Tools.x86.x64", "Microsoft.VisualStudio.Component.VC.Tools.ARM64")
_TARGETS = ("x64", "x86", "arm64", "arm")
_HOSTS = ("Hostx64", "Hostx86", "Hostarm64")
_ALL = ["-products", "*", "-prerelease", "-all", "-format", "json", "-utf8", "-nologo"]
_INSTANCES = ("Microsoft", "VisualStudio", "Packages", "_Instances")


def gather(system: System) -> tuple[tuple[VisualStudio, ...], tuple[Problem, ...]]:
    """The installations, newest first."""
    problems: list[Problem] = []
    records = _from_vswhere(system, problems)
    for record in [*_from_states(system, problems), *_from_registry(system), *_from_folders(system)]:
        known = next((other for other in records if system.same(other["path"], record["path"])), None)
        if known is None:
            records.append(record)
        else:
            known["sources"] += tuple(source for source in record["sources"] if source not in known["sources"])
            known["name"] = known["name"] or record["name"]
            if known["has_cpp"] is None:
                known["has_cpp"] = record["has_cpp"]
    studios = [_studio(system, record) for record in records]
    return tuple(sorted(studios, key=lambda studio: numbers(studio.version), reverse=True)), tuple(problems)


def _vswhere(system: System) -> str | None:
    for name in ("PROGRAMFILES(X86)", "PROGRAMFILES"):
        if system.environ.get(name):
            path = system.join(system.environ[name], "Microsoft Visual Studio", "Installer", "vswhere.exe")
            if system.is_file(path):
                return path
    return next(iter(system.which("vswhere")), None)


def _from_vswhere(system: System, problems: list[Problem]) -> list[dict[str, Any]]:
    program = _vswhere(system)
    if program is None:
        return []
    answer = system.run([program, *_ALL])
    if answer.problem:
        problems.append(Problem("vswhere", answer.problem, program))
        return []
    records = parse_vswhere(answer.text)
    if records is None or not answer.ok:
        problems.append(Problem("vswhere", "unreadable", (answer.errors or answer.text).strip()[:300]))
        return []
    if records:
        with_cpp = system.run([program, *_ALL, "-requiresAny", "-requires", *_COMPONENTS])
        ids = {record["id"] for record in parse_vswhere(with_cpp.text) or ()} if with_cpp.ok else None
        for record in records:
            record["has_cpp"] = None if ids is None else record["id"] in ids
    return records


def parse_vswhere(text: str) -> list[dict[str, Any]] | None:
    """What ``vswhere -format json`` printed.

    Args:
        text: Its output.

    Returns:
        A record per installation; None if it is no list of them.
    """
    try:
        found = json.loads(text.lstrip("\ufeff \r\n"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, list):
        return None
    records = []
    for entry in found:
        path = entry.get("installationPath") if isinstance(entry, dict) else None
        if isinstance(path, str) and path:
            records.append(
                _record(
                    path, "vswhere", instance=entry.get("instanceId"), name=entry.get("displayName"),
                    version=entry.get("installationVersion"), product=entry.get("productId"),
                    complete=entry.get("isComplete") is not False, reboot=entry.get("isRebootRequired") is True,
                    prerelease=entry.get("isPrerelease") is True,
                )
            )  # fmt: skip
    return records


def _from_states(system: System, problems: list[Problem]) -> list[dict[str, Any]]:
    data = system.environ.get("PROGRAMDATA")
    if not data:
        return []
    folder = system.join(data, *_INSTANCES)
    records = []
    for instance in system.names(folder)[:64]:
        # The list of packages makes it some megabytes.
        text = system.text(system.join(folder, instance, "state.json"), 1 << 25)
        if text is None:
            continue
        record = parse_state(text, instance)
        if record is None:
            problems.append(Problem("state.json", "unreadable", system.join(folder, instance, "state.json")))
        else:
            records.append(record)
    return records


def parse_state(text: str, instance: str = "") -> dict[str, Any] | None:
    """What the installer noted of an installation in its ``state.json``.

    Args:
        text: The file.
        instance: The name of its folder.

    Returns:
        A record as of ``parse_vswhere``; None if it is no such file.
    """
    try:
        found = json.loads(text.lstrip("\ufeff"))
    except (ValueError, RecursionError):
        return None
    path = found.get("installationPath") if isinstance(found, dict) else None
    if not isinstance(path, str) or not path:
        return None
    product = found.get("product")
    titles = found.get("localizedResources")
    title = titles[0].get("title") if isinstance(titles, list) and titles and isinstance(titles[0], dict) else ""
    packages = [found.get("packages"), found.get("selectedPackages")]
    ids = {
        entry.get("id") for group in packages if isinstance(group, list) for entry in group if isinstance(entry, dict)
    }
    record = _record(
        path, "state.json", instance=instance, name=title, version=found.get("installationVersion"),
        product=product.get("id") if isinstance(product, dict) else "",
    )  # fmt: skip
    if ids:
        record["has_cpp"] = any(component in ids for component in _COMPONENTS)
    return record


def _from_registry(system: System) -> list[dict[str, Any]]:
    """Visual Studio 2017 and 2015, which older installers noted there."""
    records = []
    key = system.registry(r"HKLM\SOFTWARE\Microsoft\VisualStudio\SxS\VS7", 32)
    for version, path in (key.values if key else {}).items():
        if isinstance(path, str) and numbers(version) >= (15,) and system.is_folder(path):
            records.append(_record(path.rstrip("\\"), "registry", version=version))
    key = system.registry(r"HKLM\SOFTWARE\Microsoft\VisualStudio\SxS\VC7", 32)
    vc = key.values.get("14.0") if key else None
    if isinstance(vc, str) and system.is_file(system.join(vc, "bin", "cl.exe")):
        records.append(_record(system.parent(vc.rstrip("\\")), "registry", version="14.0"))
    return records


def _from_folders(system: System) -> list[dict[str, Any]]:
    """Where the installer puts them by default, for machines on which nobody answers."""
    records = []
    for variable in ("PROGRAMW6432", "PROGRAMFILES", "PROGRAMFILES(X86)"):
        base = system.join(system.environ.get(variable, ""), "Microsoft Visual Studio")
        for year, version in (("2017", "15"), ("2019", "16"), ("2022", "17"), ("18", "18")):
            for edition in system.names(system.join(base, year)):
                path = system.join(base, year, edition)
                if system.is_file(system.join(path, "VC", "Auxiliary", "Build", "vcvarsall.bat")):
                    records.append(_record(path, "folder", name=f"Visual Studio {year} {edition}", version=version))
    return records


def _record(
    path: str, source: str, *, instance: object = "", name: object = "", version: object = "", product: object = "",
    complete: bool = True, reboot: bool = False, prerelease: bool = False,
) -> dict[str, Any]:  # fmt: skip
    def text(value: object) -> str:
        return value if isinstance(value, str) else ""

    return {
        "path": path, "sources": (source,), "id": text(instance), "name": text(name), "version": text(version),
        "product": text(product), "complete": complete, "reboot": reboot, "prerelease": prerelease, "has_cpp": None,
    }  # fmt: skip


def _studio(system: System, record: dict[str, Any]) -> VisualStudio:
    path = record["path"]
    vcvarsall = system.join(path, "VC", "Auxiliary", "Build", "vcvarsall.bat")
    if numbers(record["version"])[:1] == (14,):  # Visual Studio 2015 has the tools where VC itself is
        vcvarsall = system.join(path, "VC", "vcvarsall.bat")
    return VisualStudio(
        name=record["name"] or system.base(path),
        version=record["version"],
        path=path,
        product=record["product"],
        sources=record["sources"],
        has_cpp=record["has_cpp"],
        complete=record["complete"],
        reboot=record["reboot"],
        prerelease=record["prerelease"],
        toolsets=_toolsets(system, path),
        vcvarsall=vcvarsall if system.is_file(vcvarsall) else None,
        cuda=_cuda(system, path),
    )


def _cuda(system: System, studio: str) -> tuple[str, ...]:
    """CUDA's own part of MSBuild, which its installer copies into the installations that it finds."""
    base = system.join(studio, "MSBuild", "Microsoft", "VC")
    names = [n for v in system.names(base) for n in system.names(system.join(base, v, "BuildCustomizations"))]
    found = [re.fullmatch(r"CUDA (\d+\.\d+)\.props", name, re.IGNORECASE) for name in names]
    return tuple(sorted({match[1] for match in found if match}, key=numbers))


def _toolsets(system: System, studio: str) -> tuple[Toolset, ...]:
    folder = system.join(studio, "VC", "Tools", "MSVC")
    versions = sorted((name for name in system.names(folder) if re.match(r"14\.\d\d?\.", name)), key=numbers)
    default = _default(system, studio)
    if default not in versions:
        default = versions[-1] if versions else ""
    found = []
    for version in reversed(versions):
        path = system.join(folder, version)
        compilers = tuple(
            (host[4:].lower(), target)
            for host in _HOSTS
            for target in _TARGETS
            if system.is_file(system.join(path, "bin", host, target, "cl.exe"))
        )
        libraries = tuple(
            target for target in _TARGETS if system.is_file(system.join(path, "lib", target, "vcruntime.lib"))
        )
        headers = system.is_file(system.join(path, "include", "vcruntime.h"))
        if compilers or libraries or headers:  # an uninstalled one leaves its folder behind
            found.append(Toolset(version, path, compilers, libraries, headers, default=version == default))
    return tuple(found)


def _default(system: System, studio: str) -> str:
    build = system.join(studio, "VC", "Auxiliary", "Build")
    text = system.text(system.join(build, "Microsoft.VCToolsVersion.default.txt"), 1 << 12)
    if text and text.strip():
        return text.strip()
    named = [
        name for name in system.names(build) if re.fullmatch(r"Microsoft\.VCToolsVersion\.v\d+\.default\.txt", name)
    ]
    return (system.text(system.join(build, max(named)), 1 << 12) or "").strip() if named else ""
