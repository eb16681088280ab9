"""Who knows of Pythons on a machine, and the parsers of what they say."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sage_attention.toolchain.doctor.model import Problem

if TYPE_CHECKING:
    from sage_attention.toolchain.system import System

__all__ = ["Candidate", "from_folders", "from_path", "from_py", "from_registry", "parse_py_json", "parse_py_paths"]


@dataclass(frozen=True)
class Candidate:
    """A Python that somebody names.

    Attributes:
        executable: Its interpreter.
        version: As far as known.
        source: Who names it.
        tag: As ``"3.13t-64"``, where there is one.
        company: As ``"PythonCore"`` or ``"ContinuumAnalytics"``, where known.
        architecture: ``"64bit"``, ``"32bit"`` or nothing.
    """

    executable: str
    version: str
    source: str
    tag: str = ""
    company: str = ""
    architecture: str = ""


def from_py(system: System, problems: list[Problem]) -> list[Candidate]:
    """What the ``py`` command lists: that of the install manager, else that of the older launcher."""
    if not system.windows:
        return []
    program = next(iter(system.which("py")), None)
    if program is None:
        return []
    answer = system.run([program, "list", "-f", "json"])
    found = parse_py_json(answer.text) if answer.ok else None
    if found is None and answer.problem != "timeout":
        answer = system.run([program, "-0p"])
        found = parse_py_paths(answer.text) if answer.ok else None
    if found is None:
        # The older launcher says "No installed Pythons found!" with an error code, which is an answer.
        if answer.problem or "No installed Pythons" not in answer.text + answer.errors:
            said = (answer.errors or answer.text).strip()[:300]
            problems.append(Problem("py", answer.problem or "unreadable", said or program))
        return []
    return found


def parse_py_json(text: str) -> list[Candidate] | None:
    """What ``py list -f json`` printed; None if it is something else.

    Example:
        >>> entry = '{"tag": "3.13-64", "executable": "p.exe", "sort-version": "3.13.1"}'
        >>> parse_py_json('{"versions": [' + entry + ']}')[0].version
        '3.13.1'
    """
    start = text.find("{")
    try:
        found = json.loads(text[start:]) if start >= 0 else None
    except (ValueError, RecursionError):
        return None
    versions = found.get("versions") if isinstance(found, dict) else None
    if not isinstance(versions, list):
        return None
    candidates = []
    for entry in versions:
        if isinstance(entry, dict) and isinstance(entry.get("executable"), str):
            said = {key: entry[key] for key in ("sort-version", "tag", "company") if isinstance(entry.get(key), str)}
            tag = said.get("tag", "")
            candidates.append(
                Candidate(
                    entry["executable"], said.get("sort-version", ""), "py", tag, said.get("company", ""), _bits(tag)
                )
            )
    return candidates


_PATH_TAG = re.compile(r"(?:-V:(\S+)|-(\d\.\d+)(-\d+)?(?=\s)|(?=\*))")


def parse_py_paths(text: str) -> list[Candidate]:
    r"""What ``py -0p`` printed, of the launcher of any age.

    Example:
        >>> lines = " -V:3.12 *        C:\\py\\python.exe\n -3.8-64        C:\\py38\\python.exe *"
        >>> [c.version for c in parse_py_paths(lines)]
        ['3.12', '3.8']
    """
    candidates = []
    for line in text.splitlines():
        line = line.strip()[:2000]
        match = _PATH_TAG.match(line)
        path = line[match.end() :].strip("* \t") if match else ""
        if match is None or not path.lower().endswith(".exe"):
            continue
        tag = match[1] or (match[2] or "") + (match[3] or "")
        company, slash, short = tag.rpartition("/") if "/" in tag else tag.rpartition("\\")
        version = re.match(r"\d+\.\d+", short)
        candidates.append(
            Candidate(path, version[0] if version else "", "py", short, company if slash else "", _bits(short))
        )
    return candidates


def _bits(tag: str) -> str:
    if tag.endswith("-arm64"):
        return "arm64"
    return "32bit" if tag.endswith("-32") else "64bit" if tag.endswith("-64") else ""


def from_registry(system: System) -> list[Candidate]:
    r"""PEP 514: ``Software\Python\<Company>\<Tag>\InstallPath``, in both hives and both views."""
    if not system.windows:
        return []
    candidates = []
    for root, bits in ((r"HKCU\SOFTWARE\Python", 64), (r"HKLM\SOFTWARE\Python", 64), (r"HKLM\SOFTWARE\Python", 32)):
        top = system.registry(root, bits)
        for company in top.subkeys if top else ():
            if company.lower() == "pylauncher":
                continue
            tags = system.registry(f"{root}\\{company}", bits)
            for tag in tags.subkeys if tags else ():
                entry = system.registry(f"{root}\\{company}\\{tag}", bits)
                place = system.registry(f"{root}\\{company}\\{tag}\\InstallPath", bits)
                if place is None:
                    continue
                folder, executable = place.values.get(""), place.values.get("ExecutablePath")
                if not isinstance(executable, str) or not executable:
                    if not isinstance(folder, str) or not folder:
                        continue
                    executable = system.join(folder, "python.exe")
                said = {k: v for k, v in (entry.values if entry else {}).items() if isinstance(v, str)}
                version = said.get("Version") or said.get("SysVersion") or (re.match(r"[\d.]*", tag) or [""])[0]
                architecture = said.get("SysArchitecture") or ("32bit" if bits == 32 else "")
                candidates.append(Candidate(executable, version, "registry", tag, company, architecture))
    return candidates


def from_folders(system: System) -> list[Candidate]:
    """Where conda, uv and pyenv keep theirs."""
    environ = system.environ
    home = environ.get("USERPROFILE" if system.windows else "HOME", "")
    file = ("python.exe",) if system.windows else ("bin", "python3")
    candidates: list[Candidate] = []

    def add(folder: str, source: str) -> None:
        path = system.join(folder, *file)
        if system.is_file(path):
            candidates.append(Candidate(path, "", source))

    if environ.get("CONDA_PREFIX"):
        add(environ["CONDA_PREFIX"], "conda")
    if home:
        listed = system.text(system.join(home, ".conda", "environments.txt"), 1 << 16) or ""
        for line in listed.splitlines()[:40]:
            if line.strip():
                add(line.strip(), "conda")
        uv = environ.get("UV_PYTHON_INSTALL_DIR") or (
            system.join(environ.get("APPDATA", home), "uv", "python")
            if system.windows
            else system.join(environ.get("XDG_DATA_HOME") or system.join(home, ".local", "share"), "uv", "python")
        )
        for folder, source in ((uv, "uv"), (system.join(home, ".pyenv", "versions"), "pyenv")):
            for name in system.names(folder)[:40]:
                add(system.join(folder, name), source)
    return candidates


def from_path(system: System) -> list[Candidate]:
    """The Pythons that PATH offers, the Store's empty aliases among them."""
    candidates = []
    for folder in dict.fromkeys(system.path_folders()):
        if system.windows:
            path = system.join(folder, "python.exe")
            if system.is_file(path):
                candidates.append(Candidate(path, "", "path"))
            continue
        if folder.endswith("/shims"):  # pyenv's and asdf's scripts, which choose one of those known already
            continue
        for name in system.names(folder):
            match = re.fullmatch(r"python(3(?:\.(\d+))?t?)", name)
            if match:
                candidates.append(
                    Candidate(system.join(folder, name), match[1].rstrip("t") if match[2] else "", "path")
                )
    return candidates
