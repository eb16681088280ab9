"""What the benchmarks share: options, peak memory, JSON. Timing, machine and tables are `sage-attention bench`'s."""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import subprocess
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any, Callable

import psutil

# PyTorch reads it once, before its first large tensor.
if "--huge-pages" in sys.argv:
    os.environ["THP_MEM_ALLOC_ENABLE"] = "1"

import torch

from sage_attention.bench.machine import machine
from sage_attention.bench.show import print_table
from sage_attention.bench.timing import Timing, alternate

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
    print_table(title, columns, rows)


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
