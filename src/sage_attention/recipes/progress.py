"""Progress of long work: a bar on a terminal, one line per step in a log.

No thread is started: the bar is drawn when something is reported, so it never meets a forked worker halfway.
"""

from __future__ import annotations

import time
from collections import deque
from typing import IO, TYPE_CHECKING, Any

from sage_attention._console import SafeStream
from sage_attention.errors import ArgumentError

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Progress", "format_duration"]

# The rate is that of the latest steps: the first epoch also reads files and fills caches.
_REMEMBERED_STEPS = 16
_SECONDS_BETWEEN_DRAWINGS = 0.1


def format_duration(seconds: float) -> str:
    """Write a duration as people say it.

    Args:
        seconds: The duration.

    Returns:
        Two units at most, for example ``"0.42 s"``, ``"42 s"``, ``"3 min 05 s"``, ``"2 h 07 min"``.

    Example:
        >>> format_duration(185)
        '3 min 05 s'
    """
    if seconds < 0.001:
        return "0 s" if seconds <= 0 else "< 1 ms"
    if seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.995:
        return f"{seconds:.2g} s" if seconds < 0.995 else f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = round(seconds / 60)
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{minutes // 1440} d {minutes % 1440 // 60:02d} h"


class Progress:
    """Shows how far long work is, how fast it goes and how long it will still take.

    On a terminal this is a bar (by ``rich``, where installed); anywhere else it is a plain line per step.
    ``NO_COLOR`` is honoured, and it never raises because of the console: not for characters it cannot
    show, nor when it is gone.

    Args:
        total: Number of steps, or None if nobody knows.
        unit: What a step is, singular: ``"epoch"``, ``"batch"``.
        quiet: Show nothing at all.
        stream: Where to show it; standard output by default.
        seconds_between_lines: In a log, leave out lines that follow sooner than this, except the last.
        start: How many steps an earlier run has done already.

    Raises:
        ArgumentError: ``total`` is negative.

    Example:
        >>> with Progress(total=3, unit="epoch", quiet=True) as progress:
        ...     for _ in range(3):
        ...         progress.step(message="loss 0.31  val accuracy 0.93")
    """

    def __init__(
        self,
        total: int | None,
        unit: str = "step",
        quiet: bool = False,
        stream: IO[str] | None = None,
        seconds_between_lines: float = 0.0,
        start: int = 0,
    ) -> None:
        if total is not None and total < 0:
            raise ArgumentError("total", "a number of steps, 0 or more, or None", total)
        self.total = total
        self.unit = unit
        self.done = start
        self._quiet = quiet
        self._stream = SafeStream(stream)
        self._seconds_between_lines = seconds_between_lines
        self._last_line = float("-inf")
        self._bar: Any = None
        self._task: Any = None
        self._message = ""
        self._marks: deque[tuple[float, int]] = deque(maxlen=_REMEMBERED_STEPS + 1)
        self._marks.append((time.monotonic(), start))

    def __enter__(self) -> Progress:  # noqa: PYI034  # Self is not in the typing of Python 3.9
        self._marks[0] = (time.monotonic(), self.done)
        if not self._quiet and self._stream.isatty():
            self._bar = self._make_bar()
            if self._bar is not None:
                self._task = self._bar.add_task(
                    "", total=self.total, completed=self.done, count=self._count(), pace="", message=""
                )
                self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.refresh()
            self._bar.stop()
            self._bar = None

    def step(self, message: str = "", advance: int = 1) -> None:
        """Report that a step is done.

        Args:
            message: What to show beside it, such as the loss.
            advance: How many steps.
        """
        self.done += advance
        now = time.monotonic()
        self._marks.append((now, self.done))
        self._message = message
        if self._quiet:
            return
        if self._bar is not None:
            self._draw(now, 0.0, at_once=self._is_complete())
        elif self._is_complete() or now - self._last_line >= self._seconds_between_lines:
            self._line("  ".join(part for part in (self._count(), message, self._pace()) if part))
            self._last_line = now

    def tick(self, fraction: float) -> None:
        """Report how much of the step under way is done; moves the bar, prints nothing in a log.

        Args:
            fraction: From 0 to 1. Call it as often as you like: drawing is limited.
        """
        if self._bar is not None:
            self._draw(time.monotonic(), min(max(fraction, 0.0), 1.0))

    def note(self, text: str) -> None:
        """Say something besides, on lines of its own, above the bar.

        Args:
            text: What to say.
        """
        if self._quiet:
            return
        if self._bar is not None:
            self._bar.console.print(self._stream.shown(text), markup=False, highlight=False, soft_wrap=True)
        else:
            self._line(text)

    @property
    def seconds_per_step(self) -> float | None:
        """Duration of a step, averaged over the latest ones; None before the first."""
        (first, done_then), (last, done_now) = self._marks[0], self._marks[-1]
        return (last - first) / (done_now - done_then) if done_now > done_then else None

    def _is_complete(self) -> bool:
        return self.total is not None and self.done >= self.total

    def _count(self) -> str:
        of_total = "" if self.total is None else f"/{self.total}"
        return f"{self.unit} {self.done}{of_total}"

    def _pace(self) -> str:
        seconds = self.seconds_per_step
        if seconds is None:
            return ""
        rate = (
            f"{format_duration(seconds)}/{self.unit}"
            if seconds >= 0.1
            else f"{1 / max(seconds, 1e-9):,.0f} {self.unit}/s"
        )
        if self.total is None or self._is_complete():
            return rate
        return f"{rate}, {format_duration(seconds * (self.total - self.done))} left"

    def _line(self, text: str) -> None:
        self._stream.write(text + "\n")
        self._stream.flush()

    def _draw(self, now: float, fraction: float, at_once: bool = False) -> None:
        if now - self._last_line < _SECONDS_BETWEEN_DRAWINGS and not at_once:
            return
        self._last_line = now
        self._bar.update(
            self._task,
            completed=self.done + fraction,
            count=self._count(),
            pace=self._pace(),
            message=self._stream.shown(self._message),
        )
        self._bar.refresh()

    def _make_bar(self) -> Any:
        """The bar of rich, or None where rich is not installed."""
        try:
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn
            from rich.progress import Progress as RichProgress
        except ImportError:
            return None
        console = Console(file=self._stream, force_terminal=True)  # type: ignore[arg-type]
        columns = (
            TextColumn("{task.fields[count]}", markup=False),
            BarColumn(bar_width=24, complete_style="cyan", finished_style="green"),
            TextColumn("{task.fields[message]}", markup=False),
            TextColumn("{task.fields[pace]}", markup=False, style="dim"),
        )
        return RichProgress(*columns, console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
