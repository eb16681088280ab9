"""Probes that found nothing out: said where the answer is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .finding import Finding

if TYPE_CHECKING:
    from sage_attention.toolchain.doctor.model import Facts

__all__ = ["judge"]

_SECTIONS = {
    "py": "python", "python": "python", "vswhere": "msvc", "state.json": "msvc", "visual_studio": "msvc",
    "windows_sdk": "sdk", "nvcc": "cuda", "cuda": "cuda", "compiler": "compilers", "compilers": "compilers",
    "ldd": "compilers", "environment": "environment", "machine": "machine", "nvidia-smi": "cuda",
}  # fmt: skip


def judge(facts: Facts) -> list[Finding]:
    """One warning per probe without an answer."""
    return [
        Finding(
            _SECTIONS.get(problem.probe, "programs"), "warn", f"probe.{problem.reason}",
            {"probe": problem.probe, "detail": problem.detail or "-"},
        )
        for problem in facts.problems
    ]  # fmt: skip
