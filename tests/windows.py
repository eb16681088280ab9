"""What Windows, and Wine in its place, do otherwise."""

from __future__ import annotations

import ctypes
import signal
import sys

import pytest

ON_WINE = sys.platform == "win32" and hasattr(ctypes.WinDLL("ntdll"), "wine_get_version")

raises_in_backward = pytest.mark.skipif(
    ON_WINE, reason="PyTorch's engine does not outlive an exception of a backward pass under Wine"
)


def send_break(process):
    """Ctrl-Break to a process in a group of its own; False where nothing passes it on: under Wine without a console."""
    try:
        process.send_signal(signal.CTRL_BREAK_EVENT)
    except (OSError, SystemError):  # as CPython says it
        return False
    return True
