"""Judges wheels and prints a table: python tools/wheel_gate WHEEL..."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from wheel_gate import rules

COLUMNS = ("wheel", "bytes", "sha256", "machine", "needs", "exports", "oldest system", "AVX2", "verdict")


def row(verdict: rules.Verdict) -> tuple[str, ...]:
    """What the table says of a wheel."""
    library = verdict.library
    seen = ("", "", "", "", "")
    if library:
        versions = [version for name in library.versions if (version := rules.glibc_version(name))]
        oldest = f"glibc {'.'.join(map(str, max(versions)))}" if versions else ""
        if library.minimum_os:
            oldest = f"macOS {'.'.join(map(str, library.minimum_os))}"
        needs = {name.rpartition("/")[2].replace("api-ms-win-crt-", "crt-") for name in library.needs}
        seen = (library.machine, f"{len(needs)}", str(len(library.exports)), oldest, str(verdict.wide or ""))
    faults = len(verdict.faults)
    return (verdict.name, f"{verdict.size:,}", verdict.sha256[:12], *seen, f"{faults} faults" if faults else "good")


def main(arguments: list[str]) -> int:
    """Prints the table, then what is wrong."""
    if not arguments:
        print("usage: python tools/wheel_gate WHEEL...", file=sys.stderr)
        return 2
    verdicts = [rules.judge(Path(name)) for name in arguments]
    table = [COLUMNS, *map(row, verdicts)]
    widths = [max(map(len, column)) for column in zip(*table)]
    for line in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())
    for verdict in verdicts:
        if verdict.library:
            print(f"{verdict.name} needs {', '.join(sorted(verdict.library.needs))}")
        for fault in verdict.faults:
            print(f"{verdict.name}: {fault}")
    return 1 if any(verdict.faults for verdict in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
