"""On which system a log was written, and whether a step or a fact is for it.

Contract: where a log bears signs of two systems (Git Bash, WSL, a cross build) or of none, it is of no one system and
everything fits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .knowledge import Knowledge
    from .log import Log

__all__ = ["fits", "system_of"]


def system_of(log: Log, knowledge: Knowledge) -> str:
    """``"windows"``, ``"linux"`` or ``"macos"``; "" where the log does not tell.

    Args:
        log: The log.
        knowledge: Its observations ``from_...`` are the signs.
    """
    signs = {name for name in ("windows", "linux", "macos") if log.first(knowledge.observations[f"from_{name}"])}
    if "macos" in signs:
        signs.discard("linux")  # both have /usr/include
    return signs.pop() if len(signs) == 1 else ""


def fits(on: str, system: str) -> bool:
    """Whether what is for ``on`` is for a system.

    Args:
        on: ``"windows"``, ``"linux"``, ``"macos"``, ``"unix"`` for the last two, "" for all.
        system: As ``system_of`` gives it.

    Example:
        >>> fits("unix", "linux"), fits("windows", "linux"), fits("windows", "")
        (True, False, True)
    """
    return not on or not system or on == system or (on == "unix" and system != "windows")
