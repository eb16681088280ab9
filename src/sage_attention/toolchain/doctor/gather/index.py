"""What the package index offers for a Python, as its own pip sees it: with its mirrors, proxies and certificates."""

from __future__ import annotations

import json
import re
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sage_attention.toolchain.system import Answer, System

__all__ = ["IndexAnswer", "ask", "parse_report", "parse_versions"]

_TIMEOUT = 40.0
# Without a retry pip does not say that there was no connection.
_OPTIONS = ["--disable-pip-version-check", "--no-input", "--retries", "1", "--timeout", "8"]
_OFFLINE = re.compile(
    r"NewConnectionError|NameResolutionError|ConnectTimeout|ReadTimeout|ProxyError|SSLError|getaddrinfo|"
    r"Temporary failure in name resolution|Failed to establish|Max retries|Could not fetch URL|timed out",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class IndexAnswer:
    """What the index offers.

    Attributes:
        wheel: File name of the newest wheel that fits, or None.
        version: Its version.
        newest: The newest version of all, ``""`` if unknown.
        problem: ``""``, or why nothing is known: ``"offline"``, ``"no_pip"``, ``"old_pip"``, ``"unknown"``,
            ``"timeout"``, ``"failed"``.
        detail: What pip said of it.
    """

    wheel: str | None
    version: str = ""
    newest: str = ""
    problem: str = ""
    detail: str = ""


def ask(system: System, python: str, requirement: str, find_links: str | None = None) -> IndexAnswer:
    """Asks for a wheel and for the newest version, side by side. Installs nothing.

    Args:
        system: The machine.
        python: The interpreter whose pip is asked.
        requirement: A name, or a name and a condition, e.g. ``"torch-scatter==2.1.2"``.
        find_links: A page with more wheels.
    """
    name = re.split(r"[\s\[<>=!~;]", requirement)[0]
    more = ["--find-links", find_links] if find_links else []
    wheel = [
        python, "-m", "pip", "install", "--dry-run", "--quiet", "--ignore-installed", "--no-deps",
        "--only-binary", ":all:", "--report", "-", *_OPTIONS, *more, requirement,
    ]  # fmt: skip
    versions = [python, "-m", "pip", "index", "versions", *_OPTIONS, name]
    answers: dict[str, Answer] = {}

    def run(key: str, command: list[str]) -> None:
        answers[key] = system.run(command, _TIMEOUT)

    threads = [threading.Thread(target=run, args=item, daemon=True) for item in (("wheel", wheel), ("all", versions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    newest = parse_versions(answers["all"].text) if answers["all"].ok else ""
    found = parse_report(answers["wheel"].text) if answers["wheel"].ok else None
    if found:
        return IndexAnswer(found[0], found[1], newest or found[1])
    return IndexAnswer(None, newest=newest, **_why(answers["wheel"], answers["all"], newest))


def _why(wheel: Answer, versions: Answer, newest: str) -> dict[str, str]:
    said = wheel.errors + versions.errors
    last = next((line.strip() for line in reversed(wheel.errors.splitlines()) if line.strip()), "")[:300]
    if "No module named pip" in said:
        return {"problem": "no_pip", "detail": last}
    if "no such option: --dry-run" in said or "no such option: --report" in said:
        return {"problem": "old_pip", "detail": last}
    if wheel.problem:
        return {"problem": "timeout" if wheel.problem == "timeout" else "failed", "detail": wheel.errors[:300]}
    if newest:
        return {}
    if _OFFLINE.search(said):
        line = next(line for line in said.splitlines() if _OFFLINE.search(line))
        return {"problem": "offline", "detail": line.rpartition(">: ")[2].strip()[:300]}
    if "No matching distribution" in said or "not find a version" in said:
        return {"problem": "unknown", "detail": last}
    return {"problem": "failed", "detail": last or "no answer"}


def parse_report(text: str) -> tuple[str, str] | None:
    """(file name, version) in the report of ``pip install --dry-run --report -``; None if there is none.

    Example:
        >>> entry = '{"download_info": {"url": "https://h/a-1-py3-none-any.whl"}, "metadata": {"version": "1"}}'
        >>> parse_report('{"install": [' + entry + ']}')
        ('a-1-py3-none-any.whl', '1')
    """
    start = text.find("{")
    try:
        found: Any = json.loads(text[start:]) if start >= 0 else {}
        entry = found["install"][0]
        name = entry["download_info"]["url"].rpartition("/")[2].partition("#")[0]
        version = entry["metadata"]["version"]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    from urllib.parse import unquote

    return (unquote(name), version) if isinstance(version, str) and name else None


def parse_versions(text: str) -> str:
    """The newest version in the output of ``pip index versions``; empty if it has none.

    Example:
        >>> parse_versions("torch-scatter (2.1.2)")
        '2.1.2'
    """
    match = re.search(r"^[\w.-]+ \(([^()\s]+)\)\s*$", text, re.MULTILINE)
    return match[1] if match else ""
