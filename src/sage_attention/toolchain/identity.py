"""What a Python interpreter says of itself: asked of the one that runs this, or of another through a program."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["PROGRAM", "from_output", "of_this_interpreter"]

# Runs on any Python 3 from 3.5 on, isolated from the user's environment, and prints one line of JSON.
PROGRAM = """
import json, struct, sys, sysconfig
v = sysconfig.get_config_var
print(json.dumps({
    "executable": sys.executable or "", "version": "%d.%d.%d" % sys.version_info[:3],
    "release_level": sys.version_info[3], "implementation": sys.implementation.name,
    "prefix": sys.prefix, "base_prefix": sys.base_prefix, "bits": struct.calcsize("P") * 8,
    "platform": sysconfig.get_platform(), "free_threaded": bool(v("Py_GIL_DISABLED")),
    "debug": hasattr(sys, "gettotalrefcount"), "include": sysconfig.get_path("include") or "",
    "platlib": sysconfig.get_path("platlib") or "", "purelib": sysconfig.get_path("purelib") or "",
    "extension_suffix": v("EXT_SUFFIX") or "", "compiler": v("CXX") or "", "built_with": sys.version,
    "utf8_mode": sys.flags.utf8_mode if hasattr(sys.flags, "utf8_mode") else 0,
}))
"""


def of_this_interpreter() -> dict[str, Any]:
    """What the running interpreter says of itself.

    Example:
        >>> of_this_interpreter()["version"].count(".")
        2
    """
    import contextlib
    import io

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(PROGRAM, {"__name__": "identity"})  # noqa: S102  our own text, the same for every interpreter
    return from_output(printed.getvalue()) or {}


def from_output(text: str) -> dict[str, Any] | None:
    """What another interpreter printed; None if it is no answer.

    Args:
        text: The standard output of ``python -c PROGRAM``; lines of others before it are passed over.
    """
    for line in reversed([line for line in text.splitlines() if line.startswith("{")]):
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict) and _complete(found):
            return found
    return None


def _complete(found: Mapping[str, Any]) -> bool:
    strings = ("executable", "version", "prefix", "base_prefix", "include", "platlib", "purelib", "implementation")
    return all(isinstance(found.get(name), str) for name in strings) and isinstance(found.get("bits"), int)
