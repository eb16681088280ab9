"""``sage-attention explain``: names the root cause in a build or import log.

Bytes are decoded (``decode``), cleaned (``clean``), matched with what is known (``knowledge``, ``match``, ``derive``),
judged (``rank``) and shown (``show``). ``explain`` is the way through all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .result import Explanation

__all__ = ["explain"]


def explain(logs: bytes | str | Sequence[tuple[str, bytes]], language: str = "en") -> Explanation:
    """The cause of the failure that a log reports.

    Args:
        logs: One log, as bytes or text, or several as (name, bytes) in the order in which they were written.
        language: Language of the findings, ``"en"`` or ``"zh"``.

    Returns:
        The verdict and the findings, the root cause first.

    Example:
        >>> answer = explain("LINK : fatal error LNK1104: cannot open file 'kernel32.lib'")
        >>> answer.verdict, answer.findings[0].cause, answer.findings[0].evidence[0].line
        ('explained', 'windows_sdk_missing', 1)
    """
    from .clean import clean
    from .decode import decode
    from .knowledge import load
    from .log import Log
    from .match import find_hits
    from .rank import judge

    if isinstance(logs, str):
        lines = clean(logs)
    elif isinstance(logs, bytes):
        lines = clean(decode(logs))
    else:
        lines = [line for name, data in logs for line in clean(decode(data), name if len(logs) > 1 else "")]
    log = Log(lines)
    knowledge = load()
    return judge(log, find_hits(log, knowledge), knowledge, language)
