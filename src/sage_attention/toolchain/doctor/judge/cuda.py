"""CUDA toolkits and whether an installed compiler is one that ``nvcc`` accepts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sage_attention.toolchain.data_files import table
from sage_attention.toolchain.doctor.versions import numbers, short

from .finding import Finding
from .linux import cxx
from .msvc import component, year

if TYPE_CHECKING:
    from sage_attention.toolchain.doctor.model import CudaToolkit, Facts, Toolset, VisualStudio

__all__ = ["accepted", "chosen", "judge", "window"]


def chosen(facts: Facts) -> CudaToolkit | None:
    """The toolkit a build of a torch extension takes: CUDA_HOME, CUDA_PATH, PATH, then the usual folders."""
    usable = [toolkit for toolkit in facts.cudas if toolkit.nvcc]
    if not usable:
        return None
    # Where torch fits another one better, nothing says that the build finds it: first come, first served.
    return usable[0]


def accepted(facts: Facts, toolkit: CudaToolkit) -> list[tuple[VisualStudio, Toolset]]:
    """The installed MSVC toolsets that an ``nvcc`` accepts, newest first."""
    bounds = toolkit.bounds.msvc if toolkit.bounds else None
    if bounds is None:
        return []
    return [
        (studio, toolset)
        for studio, toolset in facts.toolsets
        if bounds[0] <= toolset.msc_ver < bounds[1] and toolset.builds(facts.target)
    ]


def window(bounds: tuple[int, int]) -> str:
    """An interval of ``_MSC_VER`` as versions of the tools.

    Example:
        >>> window((1910, 1940))
        '14.10 - 14.39'
    """
    return f"14.{bounds[0] - 1900} - 14.{bounds[1] - 1901}"


def judge(facts: Facts) -> list[Finding]:
    """Toolkits, host compilers, driver."""
    found = _toolkits(facts)
    toolkit = chosen(facts)
    if toolkit is not None:
        found += _msvc(facts, toolkit) if facts.windows else _gcc(facts, toolkit)
        found += _integration(facts, toolkit)
    return found + _driver(facts)


def _integration(facts: Facts, toolkit: CudaToolkit) -> list[Finding]:
    """CMake's generators for Visual Studio build CUDA through MSBuild alone."""
    studio = next((studio for studio in facts.visual_studios if studio.toolsets and studio.major >= 16), None)
    release = short(toolkit.version)
    if studio is None or not release or release in studio.cuda:
        return []
    values = {"version": release, "name": studio.name, "path": studio.path, "root": toolkit.root}
    values["folder"] = f"v{studio.major}0"
    return [Finding("cuda", "note", "cuda.integration", values)]


def _toolkits(facts: Facts) -> list[Finding]:
    found: list[Finding] = []
    environment = facts.environment
    for name in ("CUDA_HOME", "CUDA_PATH"):
        root = environment.get(name)
        if root and not any(t.nvcc or t.runtime for t in facts.cudas if name in t.sources):
            found.append(Finding("cuda", "fail", "cuda.home_missing", {"variable": name, "root": root}))
    toolkit = chosen(facts)
    if toolkit is None:
        half = [t for t in facts.cudas if t.runtime]
        if half:
            found.append(Finding("cuda", "fail", "cuda.no_nvcc", {"root": half[0].root, "version": half[0].version}))
        elif facts.torch and facts.torch.cuda:
            values = {"torch": facts.torch.version, "cuda": short(facts.torch.cuda)}
            found.append(Finding("cuda", "warn", "cuda.none_torch", values))
        else:
            found.append(Finding("cuda", "note", "cuda.none"))
        return found
    others = [t for t in facts.cudas if t is not toolkit and t.nvcc]
    values = {"version": toolkit.version or "?", "root": toolkit.root, "source": toolkit.sources[0]}
    details = tuple(f"also {t.version or '?'}: {t.root} ({', '.join(t.sources)})" for t in others)
    found.append(Finding("cuda", "ok", "cuda.toolkit", values, details))
    if not toolkit.runtime:
        found.append(Finding("cuda", "fail", "cuda.no_runtime", values))
    elif toolkit.lacks and facts.torch and facts.torch.cuda:
        found.append(Finding("cuda", "fail", "cuda.headers", {**values, "names": ", ".join(toolkit.lacks)}))
    on_path = next((t for t in facts.cudas if "path" in t.sources), None)
    if on_path and on_path is not toolkit and on_path.release not in (toolkit.release, (0, 0)):
        more = {
            **values,
            "other": on_path.version,
            "nvcc": facts.environment.nvcc[0] if facts.environment.nvcc else "nvcc",
        }
        found.append(Finding("cuda", "warn", "cuda.path_differs", more))
    return found


def _msvc(facts: Facts, toolkit: CudaToolkit) -> list[Finding]:
    bounds = toolkit.bounds
    active = numbers(facts.environment.toolset)
    if not facts.toolsets and not active:
        return []
    if bounds is None or bounds.msvc is None:
        return [Finding("cuda", "warn", "cuda.bounds_unknown", {"version": toolkit.version or "?"})]
    if not facts.toolsets:  # a compiler that is active and nowhere installed
        fits = bounds.msvc[0] <= 1900 + active[1] < bounds.msvc[1]
        shell = {"version": short(toolkit.version) or "?", "window": window(bounds.msvc)}
        shell["toolset"] = facts.environment.toolset
        which = "cuda.host_ok" if fits else "cuda.host_of_shell"
        return [Finding("cuda", "ok" if fits else "fail", which, shell)]
    fit = accepted(facts, toolkit)
    default = _default(facts)
    values = {
        "version": short(toolkit.version) or "?",
        "window": window(bounds.msvc),
        "default": default.version if default else "-",
        "installed": ", ".join(toolset.version for _, toolset in facts.toolsets),
        "source": bounds.source,
    }
    details = (f"_MSC_VER {bounds.msvc[0]} <= version < {bounds.msvc[1]}, from {bounds.source}",)
    if fit:
        values["toolset"] = fit[0][1].version
        values["short"] = fit[0][1].short
        if default is not None and any(toolset is default for _, toolset in fit):
            values["toolset"] = default.version
            return [Finding("cuda", "ok", "cuda.host_ok", values, details)]
        return [Finding("cuda", "warn", "cuda.host_not_default", values, details)]
    studio = facts.toolsets[0][0]
    wanted = _to_install(studio.major, bounds.msvc, facts.target)
    values["path"] = studio.path
    values["studio"] = f"Visual Studio {year(studio)}"
    if wanted:
        values["wanted"], values["component"] = wanted
        return [Finding("cuda", "fail", "cuda.host_none", values, details)]
    return [Finding("cuda", "fail", "cuda.host_none_offered", values, details)]


def _default(facts: Facts) -> Toolset | None:
    """What a build takes when nobody says otherwise: of the active prompt, else of the newest installation."""
    active = facts.environment.toolset
    for _, toolset in facts.toolsets:
        if active and toolset.version == active:
            return toolset
    for studio in facts.visual_studios:
        for toolset in studio.toolsets:
            if toolset.default:
                return toolset
    return None


def _to_install(major: int, bounds: tuple[int, int], target: str) -> tuple[str, str] | None:
    """The newest toolset within bounds that the installer of a Visual Studio offers: (short, component)."""
    for number in range(bounds[1] - 1901, bounds[0] - 1901, -1):
        name = component(f"14.{number}", major, target)
        if name:
            return f"14.{number}", name
    return None


def _gcc(facts: Facts, toolkit: CudaToolkit) -> list[Finding]:
    host = cxx(facts.linux) if facts.linux else None
    if host is None:
        return []
    bounds = toolkit.bounds
    _, kind, version = host
    limit = (bounds.gcc if kind == "gcc" else bounds.clang) if bounds else None
    values = {"version": short(toolkit.version) or "?", "kind": kind, "compiler": version, "limit": str(limit)}
    if limit is None:
        return [Finding("cuda", "note", "cuda.bounds_unknown", values)]
    details = (f"{kind} limit {limit}, from {bounds.source if bounds else '-'}",)
    major = numbers(version)[0]
    if (major <= limit) if kind == "gcc" else (major < limit):
        return [Finding("cuda", "ok", "cuda.host_ok_gcc", values, details)]
    older = _older(facts, limit) if kind == "gcc" else None
    if older:
        values["older"], values["older_version"] = older
        return [Finding("cuda", "warn", "cuda.host_older_gcc", values, details)]
    values["package"] = f"g++-{limit}" if kind == "gcc" else "g++"
    return [Finding("cuda", "fail", "cuda.host_none_gcc", values, details)]


def _architectures(facts: Facts, said: str) -> list[Finding]:
    """Whether the toolkit knows the GPUs that the driver lists."""
    toolkit = chosen(facts)
    found = []
    rows = table("doctor/cuda_architectures")["rows"]
    for capability in dict.fromkeys(re.findall(r",\s*(\d{1,2}\.\d)\s*(?:;|$)", said)):
        row = next((row for row in rows if row["capability"] == capability), None)
        if row is None or toolkit is None or toolkit.release == (0, 0):
            continue
        values = {"version": short(toolkit.version), "capability": capability, "first": row["first"]}
        if toolkit.release < numbers(row["first"]):
            found.append(Finding("cuda", "warn", "cuda.gpu_newer", values))
        elif row["removed"] and toolkit.release >= numbers(row["removed"]):
            found.append(Finding("cuda", "fail", "cuda.gpu_older", {**values, "removed": row["removed"]}))
    return found


def _older(facts: Facts, limit: int) -> tuple[str, str] | None:
    """The newest other ``g++`` within the limit: (path, version)."""
    if facts.linux is None:
        return None
    fit = [
        (numbers(text.partition(" ")[2]), facts.linux.paths[name])
        for name, text in facts.linux.compilers.items()
        if name.startswith("g++") and text.startswith("gcc ") and numbers(text.partition(" ")[2])[0] <= limit
    ]
    best = max(fit, default=None)
    return (best[1], ".".join(map(str, best[0]))) if best else None


def _driver(facts: Facts) -> list[Finding]:
    program = facts.programs.get("nvidia-smi")
    if program is None or chosen(facts) is None or (facts.torch and facts.torch.cuda is None):
        return []
    if program.path is not None and program.version:
        return [
            Finding("cuda", "ok", "cuda.driver", {"text": program.version}),
            *_architectures(facts, program.version),
        ]
    if program.problem in ("missing", "failed") and not facts.environment.get("TORCH_CUDA_ARCH_LIST"):
        return [Finding("cuda", "warn", "cuda.no_gpu")]
    return []
