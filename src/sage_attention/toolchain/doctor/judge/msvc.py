"""Visual Studio, its MSVC toolsets and the Windows SDK."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sage_attention.toolchain.data_files import table
from sage_attention.toolchain.doctor.versions import numbers

from .finding import Finding

if TYPE_CHECKING:
    from sage_attention.toolchain.doctor.model import Facts, VisualStudio

__all__ = ["component", "judge", "usable_sdk"]

_YEARS = {14: "2015", 15: "2017", 16: "2019", 17: "2022", 18: "2026"}


def year(studio: VisualStudio) -> str:
    """As people call it: ``"2022"`` for 17."""
    return _YEARS.get(studio.major, str(studio.major or "?"))


def component(short: str, studio_major: int, target: str = "x64") -> str | None:
    """The installer's name for a toolset; None where it has none.

    Example:
        >>> component("14.38", 17)
        'Microsoft.VisualStudio.Component.VC.14.38.17.8.x86.x64'
    """
    suffix = "ARM64" if target == "arm64" else "x86.x64"
    for row in table("doctor/visual_studio")["toolsets"]:
        if row["toolset"] == short and studio_major in row["offered_by"]:
            # That release's own toolset, as long as it is the newest, has the name without a version.
            return f"Microsoft.VisualStudio.Component.VC.{row['component']}.{suffix}"
    return None


def usable_sdk(facts: Facts) -> str | None:
    """The newest whole SDK for what is to be built."""
    return next((sdk.version for sdk in facts.sdks if sdk.builds(facts.target)), None)


def judge(facts: Facts) -> list[Finding]:
    """Installations, toolsets, SDK."""
    if facts.environment.whole and not facts.visual_studios:
        values = {"toolset": facts.environment.toolset or "?", "cl": facts.environment.compilers[0]}
        return [Finding("msvc", "ok", "msvc.of_shell", values)]
    found = [*_studios(facts), *_sdks(facts)]
    if facts.environment.whole:
        # A compiler that is active and whole needs no installation: a portable one, one of conda, one from a share.
        found = [replace(finding, status="warn") if finding.status == "fail" else finding for finding in found]
    return found


def _values(facts: Facts, studio: VisualStudio) -> dict[str, str]:
    return {
        "name": studio.name,
        "version": studio.version,
        "path": studio.path,
        "target": facts.target,
        "workload": "VCTools" if "buildtools" in studio.product.lower() else "NativeDesktop",
        "tools": "VC.Tools.ARM64" if facts.target == "arm64" else "VC.Tools.x86.x64",
    }


def _studios(facts: Facts) -> list[Finding]:
    found: list[Finding] = []
    target = facts.target
    if not facts.visual_studios:
        # Not seen is not absent where a probe failed.
        unknown = any(problem.probe in ("visual_studio", "vswhere", "state.json") for problem in facts.problems)
        return [Finding("msvc", "warn" if unknown else "fail", "msvc.unknown" if unknown else "msvc.none")]
    any_builds = any(toolset.builds(target) for _, toolset in facts.toolsets)
    for studio in facts.visual_studios:
        values = _values(facts, studio)
        sources = (f"{studio.path} ({', '.join(studio.sources)})",)
        if not studio.complete:
            found.append(Finding("msvc", "warn", "msvc.incomplete", values, sources))
        if studio.reboot:
            found.append(Finding("msvc", "warn", "msvc.reboot", values, sources))
        if studio.prerelease:
            found.append(Finding("msvc", "warn", "msvc.prerelease", values, sources))
        if not studio.toolsets:
            old = studio.major == 14
            which = "msvc.vs2015" if old else "msvc.no_cpp"
            found.append(Finding("msvc", "warn" if any_builds else "fail", which, values, sources))
            continue
        if studio.vcvarsall is None:
            found.append(Finding("msvc", "fail", "msvc.no_vcvarsall", values, sources))
        for toolset in studio.toolsets:
            more = {
                **values,
                "toolset": toolset.version,
                "short": toolset.short,
                "msc_ver": str(toolset.msc_ver),
                "targets": ", ".join(dict.fromkeys(pair[1] for pair in toolset.compilers)) or "-",
            }
            details = (toolset.path, "compilers: " + ", ".join(f"{h}->{t}" for h, t in toolset.compilers))
            if toolset.builds(target):
                which = "msvc.toolset_default" if toolset.default else "msvc.toolset"
                found.append(Finding("msvc", "ok", which, more, details))
            else:
                which = "msvc.target_missing" if toolset.compilers else "msvc.toolset_broken"
                found.append(Finding("msvc", "warn" if any_builds else "fail", which, more, details))
    return found


def _sdks(facts: Facts) -> list[Finding]:
    target = facts.target
    setup = next((studio.path for studio in facts.visual_studios if studio.toolsets), "")
    if not facts.sdks:
        if not facts.visual_studios and facts.toolsets == ():
            return []  # it comes with the Build Tools, which are missing too
        which = "sdk.none" if setup else "sdk.none_no_studio"
        return [Finding("sdk", "fail", which, {"path": setup, "component": _component(facts)})]
    found = []
    whole = usable_sdk(facts)
    for sdk in facts.sdks:
        values = {"version": sdk.version, "target": target, "path": setup, "component": _component(facts, sdk.version)}
        ucrt = f"ucrt headers {_yes(sdk.ucrt_headers)}, libraries {', '.join(sdk.ucrt_libraries) or 'none'}"
        um = f"um headers {_yes(sdk.um_headers)}, libraries {', '.join(sdk.um_libraries) or 'none'}"
        details = (sdk.root, ucrt, um)
        if sdk.builds(target):
            status, which = ("ok", "sdk.whole") if sdk.resource_compiler else ("warn", "sdk.no_rc")
        else:
            has_ucrt = sdk.ucrt_headers and bool(sdk.ucrt_libraries)
            has_um = sdk.um_headers and bool(sdk.um_libraries)
            halves = {(True, True): "sdk.target_missing", (True, False): "sdk.ucrt_only", (False, True): "sdk.um_only"}
            which = halves.get((has_ucrt, has_um), "sdk.empty")
            # vcvarsall takes the newest; an older whole one does not help unless it is asked for.
            newer = whole is None or numbers(sdk.version) > numbers(whole)
            status = "note" if not newer else "warn" if whole else "fail"
            values["whole"] = whole or "-"
            if whole and newer and which == "sdk.ucrt_only":
                which = "sdk.half_newer"
        found.append(Finding("sdk", status, which, values, details))
    return found


def _component(facts: Facts, version: str = "") -> str:
    """The installer's name for an SDK: what is half there, made whole, else one that fits the Visual Studio."""
    newest = max((studio.major for studio in facts.visual_studios), default=17)
    build = (*numbers(version), 0, 0, 0)[2]
    rows = table("doctor/visual_studio")["sdks"]
    known = [row for row in rows if newest in row["offered_by"]] or rows
    row = next((row for row in known if row["build"] == build), known[0])
    return str(row["component"])


def _yes(value: bool) -> str:
    return "yes" if value else "no"
