"""The answer first: can C++ extensions be built here, can CUDA extensions, and what is in the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sage_attention.toolchain.doctor.versions import short

from .cuda import accepted, chosen
from .finding import Finding
from .linux import cxx
from .msvc import usable_sdk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sage_attention.toolchain.doctor.model import Facts

__all__ = ["judge"]

_CPP = ("python", "msvc", "sdk", "compilers", "environment")
# A failure there leaves C++ untouched.
_NOT_CPP = ("environment.no_flag",)
# Another compiler than the default makes it work.
_CHOOSE = {"cuda.host_not_default": "verdict.cuda_choose", "cuda.host_older_gcc": "verdict.cuda_choose_gcc"}


def judge(facts: Facts, found: Sequence[Finding]) -> list[Finding]:
    """The verdicts, each with the ids of what stands in its way as details.

    Args:
        facts: What was gathered.
        found: All other findings.
    """
    failures = [finding for finding in found if finding.status == "fail"]
    cpp = [finding for finding in failures if finding.section in _CPP and finding.id not in _NOT_CPP]
    python = facts.python
    values = {"python": python.version if python else "?", "target": facts.target}
    verdicts = []
    with_what = _compiler(facts)
    if cpp or not with_what:
        # A probe that failed is no proof that something is missing.
        which, status = ("verdict.cpp_no", "fail") if cpp else ("verdict.cpp_unknown", "warn")
        verdicts.append(Finding("verdict", status, which, values, _ids(cpp)))
    else:
        verdicts.append(Finding("verdict", "ok", "verdict.cpp_yes", {**values, "compiler": with_what}))
    toolkit = chosen(facts)
    of_cuda = [finding for finding in failures if finding.section in ("cuda", "torch")]
    cuda = [*of_cuda, *(finding for finding in failures if finding.id in _NOT_CPP)]
    other = next((finding for finding in found if finding.id in _CHOOSE), None)
    if toolkit is None and not of_cuda:
        status = "warn" if facts.torch and facts.torch.cuda else "note"
        verdicts.append(Finding("verdict", status, "verdict.cuda_none", values))
    elif not (cpp or cuda or with_what):
        verdicts.append(Finding("verdict", "warn", "verdict.cuda_unknown", values))
    elif cpp or cuda or toolkit is None:
        verdicts.append(Finding("verdict", "fail", "verdict.cuda_no", values, _ids([*cpp, *cuda])))
    elif facts.torch and facts.torch.cuda is None and not facts.torch.hip:
        verdicts.append(
            Finding("verdict", "warn", "verdict.cuda_torch_cpu", {**values, "cuda": short(toolkit.version)})
        )
    elif other is not None:
        more = {**values, **other.values, "cuda": short(toolkit.version)}
        verdicts.append(Finding("verdict", "warn", _CHOOSE[other.id], more))
    else:
        compiler = _host(facts) or with_what
        verdicts.append(
            Finding("verdict", "ok", "verdict.cuda_yes", {**values, "cuda": toolkit.version, "compiler": compiler})
        )
    return verdicts


def _ids(findings: Sequence[Finding]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(finding.id for finding in findings))


def _compiler(facts: Facts) -> str:
    if not facts.windows:
        host = cxx(facts.linux) if facts.linux else None
        return f"{host[1]} {host[2]}" if host else ""
    if facts.environment.whole:
        return f"MSVC {facts.environment.toolset or '?'}"
    toolset = next((toolset for _, toolset in facts.toolsets if toolset.builds(facts.target)), None)
    sdk = usable_sdk(facts)
    return f"MSVC {toolset.version}, Windows SDK {sdk}" if toolset and sdk else ""


def _host(facts: Facts) -> str:
    toolkit = chosen(facts)
    fit = accepted(facts, toolkit) if toolkit and facts.windows else []
    return f"MSVC {fit[0][1].version}" if fit else ""
