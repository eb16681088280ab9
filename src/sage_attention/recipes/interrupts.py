"""Ctrl-C and its relatives: a request to stop arrives as KeyboardInterrupt, and never in the middle of a rename.

On Windows Ctrl-Break is a signal like Ctrl-C. A console that is closed is none that Python could handle in time: the
process is ended as soon as the C runtime has noted it down. There a handler of our own lets the work unwind first.
"""

from __future__ import annotations

import _thread
import contextlib
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["as_interrupts", "ignore", "undisturbed"]

# Ended by a service manager or a container, by a closed terminal, by Ctrl-Break.
_LIKE_CTRL_C = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGBREAK") if hasattr(signal, name)]
_ALL = [signal.SIGINT, *_LIKE_CTRL_C]
_UNWINDING_SECONDS = 1.0
_CONSOLE_ENDS = (2, 5, 6)  # CTRL_CLOSE_EVENT, CTRL_LOGOFF_EVENT, CTRL_SHUTDOWN_EVENT
_CONSOLE_GRACE_SECONDS = 4.5  # Windows ends a process five seconds after its console, whatever it does


def _in_main_thread() -> bool:
    """Only the main thread may change what signals do; only it is interrupted by them."""
    return threading.current_thread() is threading.main_thread()


@contextlib.contextmanager
def _handled(numbers: list[signal.Signals], handler: Any) -> Iterator[None]:
    """Lets `handler` handle signals inside the block."""
    before = {}
    try:
        for number in numbers:
            before[number] = signal.signal(number, handler)
        yield
    finally:
        for number, earlier in before.items():
            # None: it was installed by other than Python code, which alone could put it back.
            signal.signal(number, signal.SIG_DFL if earlier is None else earlier)


@contextlib.contextmanager
def as_interrupts() -> Iterator[list[int]]:
    """Makes the signals that end a process raise KeyboardInterrupt inside the block, as Ctrl-C does.

    Signals that are ignored (``nohup``) or handled already are left alone. The impatient press Ctrl-C twice: what
    follows within a second does not disturb the tidying up after the first.

    Yields:
        The numbers of those that came.
    """
    came: list[int] = []
    last = float("-inf")

    def stop(number: int, _frame: object) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last > _UNWINDING_SECONDS:
            last = now
            came.append(number)
            raise KeyboardInterrupt

    if not _in_main_thread():
        yield came
        return
    untouched = (signal.SIG_DFL, signal.default_int_handler)
    with _handled([number for number in _ALL if signal.getsignal(number) in untouched], stop), _console_ends():
        yield came


def _on_console_event(event: int, unwound: threading.Event) -> bool:
    """Answers Windows, in a thread of its own; True says that all is done that needs to be done."""
    if event not in _CONSOLE_ENDS:
        return False  # Ctrl-C and Ctrl-Break: Python's own handler makes signals of them
    _thread.interrupt_main()
    unwound.wait(_CONSOLE_GRACE_SECONDS)
    return True


@contextlib.contextmanager
def _console_ends() -> Iterator[None]:
    """Makes the end of a Windows console a Ctrl-C inside the block, and has Windows wait for the end of the block."""
    if sys.platform != "win32":
        yield
        return
    import ctypes

    unwound = threading.Event()
    set_handler = ctypes.WinDLL("kernel32").SetConsoleCtrlHandler
    handler = ctypes.WINFUNCTYPE(ctypes.c_int, ctypes.c_ulong)(lambda event: _on_console_event(event, unwound))
    set_handler(handler, 1)
    try:
        yield
    finally:
        unwound.set()
        set_handler(handler, 0)


@contextlib.contextmanager
def undisturbed(*, forget: bool = False) -> Iterator[list[int]]:
    """Holds requests to stop back inside a short block, and delivers the first of them after it.

    Args:
        forget: Do not deliver it: the work is being stopped already.

    Yields:
        The numbers of those that came, for whoever has to wait inside.
    """
    came: list[int] = []
    if not _in_main_thread():
        yield came
        return
    with _handled([n for n in _ALL if callable(signal.getsignal(n))], lambda number, _frame: came.append(number)):
        yield came
    if came and not forget:
        signal.raise_signal(came[0])


def ignore() -> None:
    """From here to the end of the process nothing interrupts: it has been asked to end and does."""
    if _in_main_thread():
        for number in _ALL:
            signal.signal(number, signal.SIG_IGN)
