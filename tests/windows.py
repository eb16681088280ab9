"""What Windows, and Wine in its place, do otherwise."""

from __future__ import annotations

import ctypes
import signal
import sys

import pytest

ON_WINE = sys.platform == "win32" and hasattr(ctypes.WinDLL("ntdll"), "wine_get_version")

# A test in which torch throws something inside, whether or not that comes out.
torch_throws = pytest.mark.skipif(ON_WINE, reason="Wine destroys what torch throws once too often")


def send_break(process):
    """Ctrl-Break to a process in a group of its own; False where nothing passes it on: under Wine without a console."""
    try:
        process.send_signal(signal.CTRL_BREAK_EVENT)
    except (OSError, SystemError):  # as CPython says it
        return False
    return True
