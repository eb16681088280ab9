"""Which language the toolchain commands speak."""

from __future__ import annotations

import locale
import os
from typing import TYPE_CHECKING

from sage_attention._console import can_show

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["LANGUAGES", "choose_language"]

LANGUAGES = ("en", "zh")


def choose_language(option: str | None = None, environ: Mapping[str, str] | None = None) -> str:
    """The language of the tool's own words: ``"zh"`` on a Chinese system unless asked otherwise, else ``"en"``.

    A Chinese system whose console would show question marks gets English.

    Args:
        option: What ``--lang`` said, or None.
        environ: The environment to look at; that of the process by default.

    Example:
        >>> choose_language(None, {"LANG": "zh_CN.UTF-8"})
        'zh'
        >>> choose_language("en", {"LANG": "zh_CN.UTF-8"})
        'en'
    """
    if option in LANGUAGES:
        return str(option)
    named = os.environ if environ is None else environ
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        if named.get(name):
            chinese = named[name].lower().startswith("zh")
            break
    else:
        chinese = environ is None and _system_language().lower().startswith(("zh", "chinese"))
    return "zh" if chinese and (environ is not None or can_show("原因")) else "en"


def _system_language() -> str:
    """As Windows calls the user's language, where no variable says it."""
    try:
        return locale.getlocale()[0] or ""
    except ValueError:  # a locale Python does not know
        return ""
