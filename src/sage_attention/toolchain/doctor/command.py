"""``sage-attention doctor``: from arguments to an exit code.

Exit codes: 0 nothing is in the way, 1 something is, 2 wrong usage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sage_attention._console import write, write_script
from sage_attention.toolchain.wording import choose_language

from . import show
from .facts import gather
from .judge import judge

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from sage_attention.toolchain.system import System

    from .judge import Finding

__all__ = ["run"]


def run(arguments: argparse.Namespace, system: System | None = None) -> int:
    """Runs the command.

    Args:
        arguments: As the command line parsed them.
        system: The machine; this one by default.

    Returns:
        The exit code.
    """
    if system is None:
        from sage_attention.toolchain.system import RealSystem

        system = RealSystem()
    language = choose_language(arguments.lang)
    if arguments.action == "env":
        from .activation import run as run_activation

        return run_activation(arguments, system, write_script)
    facts = gather(system, arguments.python)
    findings = judge(facts)
    if arguments.package is not None:
        from .package import judge_package

        about = judge_package(system, facts, arguments.package, findings)
        findings = (*about, *_in_the_way(about, findings, everything=arguments.verbose or arguments.format == "json"))
    if arguments.format == "json":
        write(show.as_json(findings, language, windows=facts.windows))
    else:
        write(show.as_text(findings, language, windows=facts.windows, verbose=arguments.verbose))
    return 1 if any(finding.status == "fail" for finding in findings) else 0


def _in_the_way(about: Sequence[Finding], findings: Sequence[Finding], *, everything: bool) -> tuple[Finding, ...]:
    """What else there is to say of a package: nothing where a wheel spares the build, else what a build trips over."""
    if any(finding.id.startswith("package.wheel") for finding in about):
        return ()
    return tuple(
        finding
        for finding in findings
        if everything
        or finding.status == "fail"
        or finding.section == "verdict"
        or (finding.status == "warn" and finding.section in ("cuda", "torch"))
    )
