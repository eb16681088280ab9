"""The test suite on Windows Python, once for each library, and a table of what came out."""

from __future__ import annotations

import shutil
import tempfile
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from wine import windows_path

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Run = Callable[[Sequence[str], dict[str, str]], int]


@dataclass(frozen=True)
class Build:
    """What a compiler made of the sources, to be tested.

    Args:
        library: The library's path, None for the one in the installed package.
        program: The path of deploy/c's program, None if there is none.
    """

    library: Path | None = None
    program: Path | None = None


@dataclass(frozen=True)
class Outcome:
    """What a run of the suite came to.

    Args:
        name: Which build was tested.
        passed: Tests that passed; failed and skipped alike.
        failed: Failures and errors.
        skipped: Skipped tests.
        seconds: Running time.
        status: pytest's exit status.
    """

    name: str
    passed: int
    failed: int
    skipped: int
    seconds: float
    status: int


def run_suite(run: Run, builds: dict[str, Build], arguments: Sequence[str]) -> int:
    """Runs the suite.

    Args:
        run: Runs Windows Python with arguments and more variables in the repository's root, returns its exit status.
        builds: Name -> what is tested.
        arguments: pytest's.

    Returns:
        The first exit status that is not 0, else 0.
    """
    outcomes = [_run_once(run, name, build, arguments) for name, build in builds.items()]
    print(f"\n{'library':24} {'passed':>7} {'failed':>7} {'skipped':>8} {'minutes':>8}")
    for outcome in outcomes:
        counts = f"{outcome.passed:7} {outcome.failed:7} {outcome.skipped:8} {outcome.seconds / 60:8.1f}"
        print(f"{outcome.name:24} {counts}{f'  exit status {outcome.status}' if outcome.status else ''}")
    return next((outcome.status for outcome in outcomes if outcome.status), 0)


def _run_once(run: Run, name: str, build: Build, arguments: Sequence[str]) -> Outcome:
    print(f"\nWindows Python, {name}", flush=True)
    temporary = Path(tempfile.mkdtemp(prefix="windows-"))
    try:
        report = temporary / "report.xml"
        environment = {"HYPOTHESIS_STORAGE_DIRECTORY": str(temporary / "hypothesis")}
        if build.library:
            environment["SAGE_ATTENTION_LIBRARY"] = windows_path(build.library.absolute())
        if build.program:
            environment["SAGE_ATTENTION_APPLY_MODEL"] = windows_path(build.program.absolute())
        # Nothing is written into the tree: the same files are compiled and cached by Linux' Python.
        options = ["-B", "-m", "pytest", "-p", "no:cacheprovider", f"--junitxml={report}"]
        status = run([*options, *arguments], environment)
        if not report.exists():
            return Outcome(name, 0, 0, 0, 0.0, status or 1)
        suite = next(ET.parse(report).getroot().iter("testsuite"))  # noqa: S314 - our own
        total, failures, errors, skipped = (
            int(suite.get(key, 0)) for key in ("tests", "failures", "errors", "skipped")
        )
        failed = failures + errors
        return Outcome(name, total - failed - skipped, failed, skipped, float(suite.get("time", 0)), status)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
