"""Puts what a log said into titles and commands.

Contract: a log is written by strangers. What goes into a command is a plain name, or a placeholder in its place; what
goes into a sentence is short and has no control characters.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .result import Step

if TYPE_CHECKING:
    from .knowledge import Cause, Knowledge

__all__ = ["fill", "fill_command", "steps_for"]

_SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,79}")
_MANAGERS = (
    ("apt", "sudo apt install"),
    ("dnf", "sudo dnf install"),
    ("brew", "brew install"),
    ("conda", "conda install -c conda-forge"),
)


def fill(text: str, subject: str) -> str:
    """A sentence with ``{subject}`` replaced.

    Args:
        text: The sentence.
        subject: What the log said, or "".

    Example:
        >>> fill("The library {subject} is missing", "cublas.lib")
        'The library cublas.lib is missing'
    """
    subject = subject.strip()
    if len(subject) > 120:
        subject = subject[:117] + "..."
    return re.sub(r" *\{subject\}", " " + subject if subject else "", text).strip() if "{" in text else text


def fill_command(text: str, subject: str = "", package: str = "") -> str:
    """A command with ``{subject}`` and ``{package}`` replaced if that is a plain name, by ``NAME`` otherwise.

    Args:
        text: The command.
        subject: What the log said.
        package: What the log says is being built.

    Example:
        >>> fill_command("pip install {subject}", "torch")
        'pip install torch'
        >>> fill_command("pip install {subject}", "x; rm -rf /")
        'pip install NAME'
    """
    for placeholder, name in (("{subject}", subject), ("{package}", package)):
        text = text.replace(placeholder, name if _SAFE.fullmatch(name) else "NAME")
    return text


def steps_for(cause: Cause, subject: str, knowledge: Knowledge, language: str, package: str = "") -> tuple[Step, ...]:
    """The steps of a cause's fix; a step for ``{packages}`` becomes one per package manager.

    Args:
        cause: The cause.
        subject: The file or library it is about.
        knowledge: Knows which package has it.
        language: ``"en"`` or ``"zh"``.
        package: What the log says is being built, or "".
    """
    steps = []
    for fix in cause.fixes:
        note = fill(fix.note.in_(language), subject) if fix.note else ""
        if fix.command != "{packages}":
            steps.append(Step(fix.shell, fill_command(fix.command, subject, package), note))
            continue
        for pattern, packages in knowledge.packages:
            if pattern.search(subject):
                steps += [
                    Step("any" if name == "conda" else "sh", f"{command} {packages[name]}", "")
                    for name, command in _MANAGERS
                    if name in packages
                ]
                break
    return tuple(steps)
