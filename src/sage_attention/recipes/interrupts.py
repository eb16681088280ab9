"""Ctrl-C and its relatives: a request to stop arrives as KeyboardInterrupt, and never in the middle of a rename."""

from __future__ import annotations

import contextlib
import signal
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
    with _handled([number for number in _ALL if signal.getsignal(number) in untouched], stop):
        yield came


@contextlib.contextmanager
def undisturbed(*, forget: bool = False) -> Iterator[None]:
    """Holds requests to stop back inside a short block, and delivers the first of them after it.

    Args:
        forget: Do not deliver it: the work is being stopped already.
    """
    came: list[int] = []
    if not _in_main_thread():
        yield
        return
    with _handled([n for n in _ALL if callable(signal.getsignal(n))], lambda number, _frame: came.append(number)):
        yield
    if came and not forget:
        signal.raise_signal(came[0])


def ignore() -> None:
    """From here to the end of the process nothing interrupts: it has been asked to end and does."""
    if _in_main_thread():
        for number in _ALL:
            signal.signal(number, signal.SIG_IGN)
