"""Puts what a log said into titles and commands.

Contract: a log is written by strangers. What goes into a command is a plain name, or a placeholder in its place; what
goes into a sentence is short and has no control characters.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .result import Step
from .system import fits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .knowledge import Cause, Fix, Knowledge, Text

__all__ = ["facts_for", "fill", "fill_command", "steps_for"]

_SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,79}")
_MANAGERS = (  # name, command, shell, system
    ("apt", "sudo apt install", "sh", "linux"),
    ("dnf", "sudo dnf install", "sh", "linux"),
    ("brew", "brew install", "sh", "macos"),
    ("conda", "conda install -c conda-forge", "any", ""),
)


def fill(text: str, subject: str) -> str:
    """A sentence with ``{subject}`` replaced.

    Args:
        text: The sentence.
        subject: What the log said, or "".

    Example:
        >>> fill("The library {subject} is missing", "cublas.lib")
        'The library cublas.lib is missing'
        >>> fill("It is missing: {subject}", "")
        'It is missing'
    """
    subject = subject.strip()
    if len(subject) > 120:
        subject = subject[:117] + "..."
    if "{" not in text:
        return text
    if not subject:
        return re.sub(r"[:：]? *\{subject\}", "", text).strip()
    return re.sub(r" *\{subject\}", lambda _: " " + subject, text).strip()


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


def steps_for(
    cause: Cause, subject: str, knowledge: Knowledge, language: str, package: str = "", system: str = ""
) -> tuple[Step, ...]:
    """The steps of a cause's fix for a system, or all of them; a step for ``{packages}`` becomes one per manager.

    Args:
        cause: The cause.
        subject: The file or library it is about.
        knowledge: Knows which package has it.
        language: ``"en"`` or ``"zh"``.
        package: What the log says is being built, or "".
        system: Where the log was written, or "".
    """
    some = list(_for_system(cause.fixes, system)) or [(fix, fix.note) for fix in cause.fixes]
    steps: list[Step] = []
    for fix, note in some:
        if fix.command == "{packages}":
            steps += _package_steps(subject, knowledge, system)
        else:
            words = fill(note.in_(language), subject) if note else ""
            steps.append(Step(fix.shell, fill_command(fix.command, subject, package), words))
    return tuple(steps)


def _for_system(fixes: tuple[Fix, ...], system: str) -> Iterator[tuple[Fix, Text | None]]:
    """Those for a system, each with its note; what is said at the command for one shell holds for those after it."""
    said = None
    for fix in fixes:
        if fix.note is not None or fix.shell not in ("cmd", "powershell", "sh"):
            said = None
        if fits(fix.on, system):
            yield fix, fix.note or said
            said = None
        elif fix.shell in ("cmd", "powershell"):
            said = fix.note or said


def _package_steps(subject: str, knowledge: Knowledge, system: str) -> Iterator[Step]:
    for pattern, packages in knowledge.packages:
        if pattern.search(subject):
            for name, command, shell, on in _MANAGERS:
                if name in packages and fits(on, system):
                    yield Step(shell, f"{command} {packages[name]}", "")
            return


def facts_for(cause: Cause, language: str, system: str = "") -> list[str]:
    """What would settle a cause on a system, all of it where none is.

    Args:
        cause: The cause.
        language: ``"en"`` or ``"zh"``.
        system: Where the log was written, or "".
    """
    some = [fact for fact in cause.facts if fits(fact.on, system)] or list(cause.facts)
    return [fact.text.in_(language) for fact in some]
