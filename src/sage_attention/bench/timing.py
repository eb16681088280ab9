"""Contenders timed in turn, round by round, so that what else the machine does falls on all of them alike."""

from __future__ import annotations

import gc
import math
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Timing", "alternate", "busy_seconds"]

_STAT = Path("/proc/stat")


@dataclass
class Timing:
    """Seconds per round.

    Attributes:
        wall: By the clock on the wall.
        cpu: By the clock of the calling thread, which does all the work where one thread is used.
        others: Parts of all cores that other processes used meanwhile; with much of it, only least times tell. Empty
            where nothing tells.
    """

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    others: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """Median wall time."""
        return median(self.wall)

    @property
    def least(self) -> float:
        """Least wall time."""
        return min(self.wall)

    @property
    def median_cpu(self) -> float:
        """Median time of the calling thread."""
        return median(self.cpu)

    @property
    def quartiles(self) -> tuple[float, float]:
        """Wall times that a quarter and three quarters of the rounds stayed below."""
        if len(self.wall) < 2:
            return self.wall[0], self.wall[0]
        low, _, high = quantiles(self.wall, n=4, method="inclusive")
        return low, high

    @property
    def spread(self) -> float:
        """Distance of the quartiles as a part of the median; NaN for fewer than three rounds, which tell none."""
        low, high = self.quartiles
        return (high - low) / self.median if len(self.wall) > 2 else math.nan

    @property
    def others_share(self) -> float:
        """Mean part of all cores that other processes used, NaN where it is not known."""
        return sum(self.others) / len(self.others) if self.others else math.nan

    def timed(self, step: Callable[[], Any]) -> Any:
        """Runs a step and adds its times; freeing what it returned is not counted."""
        cpu, wall = time.thread_time(), time.perf_counter()
        result = step()
        self.wall.append(time.perf_counter() - wall)
        self.cpu.append(time.thread_time() - cpu)
        return result

    def summary(self) -> dict[str, float | int | None]:
        """For a JSON file: what is not known is None."""
        spread, others = self.spread, self.others_share
        return {
            "median_s": self.median,
            "least_s": self.least,
            "median_cpu_s": self.median_cpu,
            "spread": None if math.isnan(spread) else spread,
            "rounds": len(self.wall),
            "others_share": None if math.isnan(others) else others,
        }


def alternate(
    contenders: Mapping[str, Callable[[], Any]],
    rounds: int,
    warm_up: int = 1,
    *,
    seconds: float = math.inf,
    least_rounds: int = 1,
    before: Callable[[], Any] | None = None,
    into: dict[str, Timing] | None = None,
) -> dict[str, Timing]:
    """Times every contender once per round.

    Args:
        contenders: name -> a step.
        rounds: Rounds that count, at most.
        warm_up: Rounds before, that do not.
        seconds: No round begins after them, once there are `least_rounds`.
        least_rounds: Rounds that count, at least.
        before: Is called before each round, and not timed.
        into: Is filled as rounds are done, for whoever may be interrupted.

    Returns:
        name -> its times.

    Example:
        >>> timings = alternate({"nothing": int, "a list": list}, rounds=3)
        >>> [len(timing.wall) for timing in timings.values()]
        [3, 3]
    """
    timings = {} if into is None else into
    timings.update({name: Timing() for name in contenders})
    order = list(contenders)
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    start, busy, own = time.perf_counter(), busy_seconds(), time.process_time()
    try:
        for number in range(warm_up + rounds):
            if number >= warm_up + least_rounds and time.perf_counter() - start > seconds:
                break
            if before is not None:
                before()
            for name in order:
                timing = timings[name] if number >= warm_up else Timing()
                timing.timed(contenders[name])
            order.append(order.pop(0))  # nobody always comes after the same other
    finally:
        if enabled:
            gc.enable()
        now = busy_seconds()
        if busy is not None and now is not None:
            elsewhere = now - busy - (time.process_time() - own)
            capacity = (time.perf_counter() - start) * (os.cpu_count() or 1)
            for timing in timings.values():
                timing.others.append(min(1.0, max(0.0, elsewhere / capacity)))
    return timings


def busy_seconds() -> float | None:
    """Time all cores together have worked since the machine started; None where nothing tells.

    psutil tells, and Linux without it.
    """
    try:
        import psutil
    except ImportError:
        return _busy_by_linux()
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0))


def _busy_by_linux() -> float | None:
    try:
        words = _STAT.read_text(encoding="ascii").split("\n", 1)[0].split()
    except OSError:
        return None
    # user nice system idle iowait irq softirq steal guest guest_nice; guests are within user and nice
    ticks = [int(word) for word in words[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / float(os.sysconf("SC_CLK_TCK"))
