"""Compilers and C libraries elsewhere than on Windows, and conda's own beside the system's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sage_attention.toolchain.data_files import table
from sage_attention.toolchain.doctor.versions import numbers

from .finding import Finding

if TYPE_CHECKING:
    from sage_attention.toolchain.doctor.model import Facts, LinuxCompilers

__all__ = ["cxx", "judge", "package_family"]


def package_family(facts: Facts) -> str:
    """Which package manager a system speaks: ``"apt"``, ``"dnf"``, ``"apk"`` or ``"other"``."""
    if facts.machine.platform == "darwin":
        return "mac"
    name = facts.machine.distribution.lower()
    if any(word in name for word in ("ubuntu", "debian", "mint", "deepin", "kylin")):
        return "apt"
    if any(
        word in name
        for word in ("fedora", "red hat", "centos", "rocky", "alma", "amazon", "oracle", "anolis", "openeuler")
    ):
        return "dnf"
    return "apk" if "alpine" in name else "other"


# In the order in which builds take them.
_CXX = ("$CXX", "c++", "g++", "clang++")


def cxx(compilers: LinuxCompilers) -> tuple[str, str, str] | None:
    """(name, kind, version) of the C++ compiler that a build takes: CXX, else ``c++``, ``g++``, ``clang++``."""
    for name in _CXX:
        kind, _, version = compilers.compilers.get(name, "").partition(" ")
        if version:
            return name, kind, version
    return None


def judge(facts: Facts) -> list[Finding]:
    """Compiler, C library, C++ library."""
    linux = facts.linux
    if linux is None:
        return []
    found = _compilers(facts, linux)
    if linux.glibc:
        values = {"version": linux.glibc, "tag": linux.glibc.replace(".", "_")}
        found.append(Finding("compilers", "ok", "compilers.glibc", values))
    elif facts.machine.platform.startswith("linux") and package_family(facts) == "apk":
        found.append(Finding("compilers", "warn", "compilers.musl"))
    found += _libstdcxx(facts, linux)
    conda = facts.conda
    python = facts.python
    active = facts.environment.get("CONDA_PREFIX")
    if conda and active and python and not python.home.startswith(active):
        values = {"prefix": active, "executable": python.executable}
        found.append(Finding("compilers", "warn", "compilers.conda_other_python", values))
    return found


def _compilers(facts: Facts, linux: LinuxCompilers) -> list[Finding]:
    found: list[Finding] = []
    values = {"family": package_family(facts)}
    family = package_family(facts)
    for variable in ("CC", "CXX"):
        named = facts.environment.get(variable)
        if named and f"${variable}" not in linux.paths:
            found.append(
                Finding("compilers", "fail", "compilers.named_missing", {"variable": variable, "value": named})
            )
    chosen = cxx(linux)
    has_c = any(linux.paths.get(name) for name in ("$CC", "cc", "gcc", "clang"))
    if chosen is None and any(linux.paths.get(name) for name in _CXX):
        return found  # there, and without an answer: said as a problem
    if chosen is None:
        which = "compilers.no_cxx" if has_c else "compilers.none"
        found.append(Finding("compilers", "fail", f"{which}.{family}", values))
        return found
    name, kind, version = chosen
    path = linux.paths.get(name, name)
    others = sorted({f"{program} {text}" for program, text in linux.compilers.items() if program != name})
    found.append(
        Finding("compilers", "ok", "compilers.cxx", {"kind": kind, "version": version, "path": path}, tuple(others))
    )
    if not has_c:
        found.append(Finding("compilers", "warn", "compilers.no_c", values))
    return found


def _libstdcxx(facts: Facts, linux: LinuxCompilers) -> list[Finding]:
    """An extension needs the libstdc++ of its compiler; conda's Python loads conda's."""
    chosen = cxx(linux)
    if chosen is None or chosen[1] != "gcc" or facts.conda is None:
        return []
    needs = ""
    for row in table("doctor/libstdcxx")["rows"]:
        if numbers(row["gcc"]) <= numbers(chosen[2]):
            needs = row["glibcxx"]
    own = {path: newest for path, newest in linux.libstdcxx.items() if path.startswith(facts.conda.prefix)}
    for path, newest in own.items():
        values = {"path": path, "newest": newest, "gcc": chosen[2], "needs": needs}
        values["major"] = chosen[2].split(".")[0]
        compiler = linux.paths.get(chosen[0], "")
        if needs and numbers(newest) < numbers(needs) and not compiler.startswith(facts.conda.prefix):
            return [Finding("compilers", "fail", "compilers.libstdcxx_old", values)]
        return [Finding("compilers", "ok", "compilers.libstdcxx", values)]
    return []
