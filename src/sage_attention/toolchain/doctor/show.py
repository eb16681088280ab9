"""Findings as text for people and as JSON for programs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sage_attention.toolchain.data_files import table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .judge import Finding

__all__ = ["as_json", "as_text", "commands", "sentence"]

_MARKS = {"ok": "✓", "note": "·", "warn": "!", "fail": "✗"}
_TITLES = {
    "cmd": {"en": "cmd:", "zh": "cmd："},
    "powershell": {"en": "PowerShell:", "zh": "PowerShell："},
}
_NOTHING = {"en": "nothing was found out", "zh": "没有得到任何结果"}
_MORE = {
    "en": "-v shows the evidence; a failed build log: sage-attention explain build.log",
    "zh": "-v 显示依据；编译失败的日志：sage-attention explain build.log",
}


class _Blanks(dict):  # type: ignore[type-arg]
    """A blank for which there is no value stays visible."""

    def __missing__(self, key: str) -> str:
        return "{" + key + "}"


def _fill(template: str, values: Mapping[str, str]) -> str:
    clean = {name: _one_line(value) for name, value in values.items()}
    return template.format_map(_Blanks(clean))


def _one_line(text: str) -> str:
    """What came from files and programs must neither break the layout nor steer the terminal."""
    return "".join(character if character.isprintable() else " " for character in str(text))[:600]


def sentence(finding: Finding, language: str) -> str:
    """The line of a finding.

    Args:
        finding: What was found.
        language: ``"en"`` or ``"zh"``.
    """
    return _fill(table("doctor/texts")["findings"][finding.id][language], finding.values)


def advice(finding: Finding, language: str) -> str:
    """What else to know to mend it; empty if the line says all."""
    found = table("doctor/texts")["findings"][finding.id].get("advice")
    return _fill(found[language], finding.values) if found else ""


def commands(finding: Finding, windows: bool) -> dict[str, list[str]]:
    """The commands that mend it, by shell: ``cmd`` and ``powershell`` on Windows, ``sh`` elsewhere.

    Args:
        finding: What was found.
        windows: Whether the machine is a Windows machine.
    """
    given = table("doctor/texts")["findings"][finding.id].get("commands", {})
    found = {}
    for shell in ("cmd", "powershell") if windows else ("sh",):
        lines = given.get(shell) or (given.get("windows") if windows else None) or given.get("any")
        if lines:
            found[shell] = [_fill(line, finding.values) for line in lines]
    return found


def as_text(findings: Iterable[Finding], language: str, *, windows: bool, verbose: bool = False) -> str:
    """The findings for a terminal.

    Args:
        findings: In the order of printing.
        language: ``"en"`` or ``"zh"``.
        windows: Whether the machine is a Windows machine.
        verbose: Also notes, evidence and what is known of all that is fine.
    """
    sections = table("doctor/texts")["sections"]
    lines: list[str] = []
    last = ""
    for finding in findings:
        if finding.status == "note" and not verbose:
            continue
        if finding.section != last:
            last = finding.section
            lines += [""] * bool(lines) + [sections[last][language]]
        lines.append(f"  {_MARKS[finding.status]} {sentence(finding, language)}")
        hint = advice(finding, language)
        if hint and (finding.status != "ok" or verbose):
            lines.append(f"      {hint}")
        if finding.status != "ok":
            lines += _command_lines(commands(finding, windows), language)
        if verbose and finding.section != "verdict":
            lines += [f"      - {_one_line(detail)}" for detail in finding.details]
    if not lines:
        lines.append(_NOTHING[language])
    return "\n".join([*lines, "", _MORE[language]]) + "\n"


def _command_lines(found: Mapping[str, list[str]], language: str) -> list[str]:
    distinct = {tuple(lines) for lines in found.values()}
    if len(distinct) <= 1:
        return [f"      > {line}" for lines in distinct for line in lines]
    lines = []
    for shell, given in found.items():
        lines.append(f"      {_TITLES[shell][language]}")
        lines += [f"      > {line}" for line in given]
    return lines


def as_json(findings: Iterable[Finding], language: str, *, windows: bool) -> str:
    """The findings for a program: one object with ``verdict``, ``status`` and ``findings``.

    Args:
        findings: In the order of printing.
        language: Of the texts in it.
        windows: Whether the machine is a Windows machine.
    """
    found = list(findings)
    verdicts = {
        finding.id.partition(".")[2].partition("_")[0]: finding for finding in found if finding.section == "verdict"
    }
    answer = {name: _VERDICTS.get(finding.id) for name, finding in verdicts.items()}
    entries: list[dict[str, Any]] = [
        {
            "section": finding.section,
            "status": finding.status,
            "id": finding.id,
            "text": sentence(finding, language),
            "advice": advice(finding, language),
            "commands": commands(finding, windows) if finding.status != "ok" else {},
            "values": {name: _one_line(value) for name, value in finding.values.items()},
            "details": [_one_line(detail) for detail in finding.details],
        }
        for finding in found
    ]
    worst = next((status for status in ("fail", "warn") if any(f.status == status for f in found)), "ok")
    return json.dumps({"status": worst, "can_build": answer, "findings": entries}, indent=2) + "\n"


# Can it be built? None: not known, or nobody asked.
_VERDICTS = {
    "verdict.cpp_yes": True, "verdict.cpp_no": False, "verdict.cuda_yes": True, "verdict.cuda_choose": True,
    "verdict.cuda_choose_gcc": True,
    "verdict.cuda_no": False, "verdict.cuda_none": False, "verdict.cuda_torch_cpu": False,
}  # fmt: skip
