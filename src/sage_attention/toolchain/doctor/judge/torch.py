"""torch, its CUDA, and the compilers and toolkits beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sage_attention.toolchain.data_files import table
from sage_attention.toolchain.doctor.gather.cuda import bounds_from_table
from sage_attention.toolchain.doctor.versions import accepts, numbers, short

from .cuda import chosen, window
from .finding import Finding
from .linux import cxx

if TYPE_CHECKING:
    from sage_attention.toolchain.doctor.model import Facts, Torch

__all__ = ["judge"]


def judge(facts: Facts) -> list[Finding]:
    """Torch × CUDA × compiler × Python."""
    torch = facts.torch
    if torch is None:
        return [Finding("torch", "note", "torch.none")]
    found = [
        Finding(
            "torch",
            "ok",
            "torch.found",
            {"version": torch.version, "cuda": torch.cuda or torch.hip or "-"},
            (torch.path,),
        )
    ]
    return found + _cuda(facts, torch) + _language(facts, torch) + _python(facts, torch)


def _cuda(facts: Facts, torch: Torch) -> list[Finding]:
    toolkit = chosen(facts)
    if torch.hip:
        return []
    if torch.cuda is None:
        if toolkit is None:
            return [Finding("torch", "note", "torch.cpu", {"version": torch.version})]
        values = {"version": torch.version, "cuda": short(toolkit.version), "plain": torch.version.partition("+")[0]}
        values["index"] = _index(torch.version, toolkit.release)
        return [Finding("torch", "warn", "torch.cpu_with_toolkit", values)]
    want = numbers(torch.cuda)[:2]
    values = {
        "version": torch.version,
        "cuda": short(torch.cuda),
        "toolkit": short(toolkit.version) if toolkit else "-",
    }
    found = []
    if toolkit is not None and toolkit.release != (0, 0) and want:
        better = next((t for t in facts.cudas if t.nvcc and t.release == want), None) or next(
            (t for t in facts.cudas if t.nvcc and t.release[:1] == want[:1]), None
        )
        if toolkit.release == want:
            found.append(Finding("torch", "ok", "torch.cuda_same", values))
        elif toolkit.release[0] == want[0]:
            found.append(
                Finding("torch", "warn" if better and better.release == want else "ok", "torch.cuda_minor", values)
            )
        elif better is not None:
            values["root"] = better.root
            found.append(Finding("torch", "fail", "torch.cuda_other_home", values))
        else:
            found.append(Finding("torch", "fail", "torch.cuda_major", values))
    if facts.windows and toolkit is None and facts.toolsets:
        bounds = bounds_from_table(torch.cuda)
        newest = facts.toolsets[0][1]
        if bounds and bounds.msvc and not any(bounds.msvc[0] <= t.msc_ver < bounds.msvc[1] for _, t in facts.toolsets):
            values["window"], values["newest"] = window(bounds.msvc), newest.version
            found.append(Finding("torch", "warn", "torch.msvc_outside", values))
    return found


def _index(version: str, release: tuple[int, ...]) -> str:
    """The wheel index of torch with the CUDA nearest to a toolkit's: the same major version, the newest not newer."""
    for row in table("doctor/torch_cuda")["rows"]:
        if numbers(row["torch"]) == numbers(version)[:2]:
            names = row["cuda"] + row["experimental"]
            same = [name for name in names if _release(name)[0] == release[0]]
            fit = [name for name in same if _release(name) <= release] or same or names
            return str(max(fit, key=_release))
    return f"cu{release[0]}{release[1]}"


def _release(name: str) -> tuple[int, int]:
    """(12, 4) of ``"cu124"``."""
    return int(name[2:-1]), int(name[-1])


def _language(facts: Facts, torch: Torch) -> list[Finding]:
    """Headers of newer releases need newer C++."""
    need = next((row for row in table("doctor/torch_cuda")["language"] if accepts(row["torch"], torch.version)), None)
    if need is None:
        return []
    values = {"version": torch.version, "standard": need["standard"]}
    if facts.windows:
        if not facts.toolsets:
            return []
        newest = facts.toolsets[0][1]
        if newest.msc_ver >= need["msc_ver"]:
            return []
        values.update(compiler=f"MSVC {newest.version}", needs=f"MSVC 14.{need['msc_ver'] - 1900}")
    else:
        host = cxx(facts.linux) if facts.linux else None
        if host is None or numbers(host[2])[0] >= need[host[1]]:
            return []
        values.update(compiler=f"{host[1]} {host[2]}", needs=f"{host[1]} {need[host[1]]}")
    return [Finding("torch", "fail", "torch.language", values)]


def _python(facts: Facts, torch: Torch) -> list[Finding]:
    python = facts.python
    for row in table("doctor/torch_cuda")["rows"]:
        if python and numbers(row["torch"]) == numbers(torch.version)[:2] and row["python"]:
            low, high = (numbers(text) for text in row["python"])
            if not low <= python.minor <= high:
                values = {"version": torch.version, "python": python.version, "range": " - ".join(row["python"])}
                return [Finding("torch", "warn", "torch.python", values)]
    return []
