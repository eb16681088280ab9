"""What the benchmarks share: options, alternating timing, peak memory, the machine, tables, JSON.

Contenders are timed in turn, round by round, so that what else the machine does falls on all of them alike.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import platform
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Callable

import numpy as np
import psutil

# PyTorch reads it once, before its first large tensor.
if "--huge-pages" in sys.argv:
    os.environ["THP_MEM_ALLOC_ENABLE"] = "1"

import torch
import torch_geometric

import sage_attention

__all__ = [
    "Timing",
    "alternate",
    "in_fresh_process",
    "machine",
    "options",
    "peak_memory",
    "relative_error",
    "report",
    "table",
    "use_threads",
]

_MIB = 1 << 20
_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


@dataclass
class Timing:
    """Seconds per round.

    Attributes:
        wall: By the clock on the wall.
        cpu: By the clock of the calling thread, which does all the work where one thread is used.
        others: Parts of all cores that other processes used meanwhile; with much of it, only least times tell.
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
    def others_share(self) -> float:
        """Mean part of all cores that other processes used, 0 where it was not looked at."""
        return sum(self.others) / len(self.others) if self.others else 0.0

    def timed(self, step: Callable[[], Any]) -> Any:
        """Runs a step and adds its times; freeing what it returned is not counted."""
        cpu, wall = time.thread_time(), time.perf_counter()
        result = step()
        self.wall.append(time.perf_counter() - wall)
        self.cpu.append(time.thread_time() - cpu)
        return result

    def summary(self) -> dict[str, float | int]:
        """For the JSON file."""
        return {
            "median_s": self.median,
            "least_s": self.least,
            "median_cpu_s": self.median_cpu,
            "rounds": len(self.wall),
            "others_share": self.others_share,
        }


def alternate(contenders: dict[str, Callable[[], Any]], rounds: int, warm_up: int = 1) -> dict[str, Timing]:
    """Times every contender once per round.

    Args:
        contenders: name -> a step.
        rounds: Rounds that count.
        warm_up: Rounds before, that do not.
    """
    timings = {name: Timing() for name in contenders}
    order = list(contenders)
    gc.collect()
    gc.disable()
    start, busy, own = time.perf_counter(), _busy_seconds(), time.process_time()
    try:
        for number in range(warm_up + rounds):
            for name in order:
                timing = timings[name] if number >= warm_up else Timing()
                timing.timed(contenders[name])
            order.append(order.pop(0))  # nobody always comes after the same other
    finally:
        gc.enable()
    elsewhere = _busy_seconds() - busy - (time.process_time() - own)
    capacity = (time.perf_counter() - start) * (os.cpu_count() or 1)
    for timing in timings.values():
        timing.others.append(min(1.0, max(0.0, elsewhere / capacity)))
    return timings


def _busy_seconds() -> float:
    """Time all cores together have worked since the machine started."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0))


def use_threads(count: int) -> None:
    """Sets the threads of PyTorch and so of our operators; code compiled for another number is dropped."""
    torch.set_num_threads(count)
    torch.compiler.reset()


def relative_error(got: torch.Tensor, wanted: torch.Tensor, floor: float = 0.0) -> float:
    """The largest difference as a part of the largest value wanted, or of `floor` if that is more."""
    if got.shape != wanted.shape:
        raise SystemExit(f"shapes differ: {list(got.shape)} and {list(wanted.shape)}")
    scale = max(float(wanted.detach().abs().max()), floor, 1e-30)
    return float((got.detach() - wanted.detach()).abs().max()) / scale


def _status(key: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) << 10
    raise KeyError(key)


def peak_memory(step: Callable[[], Any]) -> int:
    """Bytes by which the resident memory of this process grew at most during a step.

    Linux keeps the peak itself; elsewhere a thread looks every millisecond.
    """
    gc.collect()
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).malloc_trim(0)
    if _CLEAR.exists():
        _CLEAR.write_text("5")  # the peak so far becomes the present size
        before = _status("VmRSS")
        result = step()
        peak = _status("VmHWM")
        del result
        return max(0, peak - before)
    process = psutil.Process()
    before = most = process.memory_info().rss
    done = threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.wait(0.001):
            most = max(most, process.memory_info().rss)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    result = step()
    most = max(most, process.memory_info().rss)
    done.set()
    watcher.join()
    del result
    return int(most - before)


def in_fresh_process(script: str, arguments: list[str]) -> dict[str, Any]:
    """Runs a script with other arguments and reads the JSON in its last line.

    Freed memory goes back to the system at once there, so that a peak is that of what is alive.

    Returns:
        What it printed, or ``{"failed": why}``.
    """
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0"}
    extra = ["--huge-pages"] if "--huge-pages" in sys.argv else []
    command = [sys.executable, script, *arguments, *extra]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        return {"failed": f"exit status {done.returncode}"}
    answer: dict[str, Any] = json.loads(lines[-1])
    return answer


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


@dataclass(frozen=True)
class Machine:
    """What figures depend on."""

    cpu: str
    cores: int
    memory_gib: float
    system: str
    page_size: int
    transparent_huge_pages: str
    torch_huge_pages: bool
    torch_cpu_level: str
    versions: dict[str, str]

    def lines(self) -> list[str]:
        """For people."""
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        asks = "asks" if self.torch_huge_pages else "does not ask"
        chip = f"{self.cores} cores {self.cpu} ({self.torch_cpu_level})"
        pages = f"pages of {self.page_size} bytes, transparent huge pages: {self.transparent_huge_pages}"
        return [
            f"{chip}, {self.memory_gib:.0f} GiB, {self.system}",
            f"{pages}, PyTorch {asks} for them",
            versions,
        ]


def machine() -> Machine:
    """The machine this runs on."""
    pages = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    setting = pages.read_text().split("[")[-1].split("]")[0] if pages.exists() else "unknown"
    return Machine(
        cpu=_cpu_name(),
        cores=os.cpu_count() or 1,
        memory_gib=psutil.virtual_memory().total / 2**30,
        system=platform.system(),
        page_size=getattr(os, "sysconf", lambda _: 4096)("SC_PAGESIZE"),
        transparent_huge_pages=setting,
        torch_huge_pages=os.environ.get("THP_MEM_ALLOC_ENABLE") == "1",
        torch_cpu_level=torch.backends.cpu.get_cpu_capability(),
        versions={
            "Python": platform.python_version(),
            "sage_attention": getattr(sage_attention, "__version__", "unknown"),
            "torch": torch.__version__,
            "torch_geometric": torch_geometric.__version__,
            "NumPy": np.__version__,
        },
    )


def options(description: str) -> argparse.ArgumentParser:
    """A parser with the options every benchmark has."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small graph, one thread: does it still run?")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], metavar="N")
    parser.add_argument("--rounds", type=int, default=7, help="rounds that are timed (default %(default)s)")
    parser.add_argument(
        "--huge-pages", action="store_true", help="let PyTorch ask for huge pages, for all contenders (Linux)"
    )
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all figures there")
    return parser


def table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    """Prints a table, with rich where it is installed."""
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        print(f"\n{title}")
        widths = [max(len(row[i]) for row in [columns, *rows]) for i in range(len(columns))]
        for row in [columns, *rows]:
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
        return
    shown = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        shown.add_column(column, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        shown.add_row(*row)
    width = None if sys.stdout.isatty() else 160
    Console(width=width).print(shown)


def report(path: Path | None, figures: dict[str, Any]) -> None:
    """Writes the figures and the machine to a file, whole or not at all."""
    if path is None:
        return
    load = os.getloadavg() if hasattr(os, "getloadavg") else ()
    text = json.dumps({"machine": asdict(machine()), "load_at_end": load, **figures}, indent=1)
    beside = path.with_name(path.name + ".part")
    beside.write_text(text + "\n")
    beside.replace(path)
    print(f"figures: {path}")
