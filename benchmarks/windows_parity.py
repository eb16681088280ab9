"""Is Windows as fast as Linux? The same kernels on the same data, by both libraries, in turn.

  python benchmarks/windows_parity.py --windows-python "/lab/bin/wpy" --windows-library Z:/dist/sage_attention.dll

Two processes that live as long as the run, this Python with the Linux library (``SAGE_ATTENTION_LIBRARY``, or the
installed one) and a Windows Python with the Windows library, make the same arrays and then time one kernel after the
other, taking turns: one computes while the other waits. Both must give the same results first. The ratio is Windows'
time by Linux' time: below 1, Windows is faster. "cache": 300 nodes, 30,000 edges. "memory": 170,000 nodes, 1.2 million
edges. All have 8 heads x 16 channels, float32.

Page size decides the times of large tables and is not the compiler's doing: huge pages are switched off for the Linux
process (``--huge-pages`` leaves them on). The Windows Python needs NumPy alone.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any, Callable

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "src")]
_PR_SET_THP_DISABLE = 41  # prctl(2)


def small_pages() -> None:
    """No huge pages for this process and what it starts, whoever asks for them."""
    if sys.platform == "linux" and ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_THP_DISABLE, 1, 0, 0, 0) != 0:
        raise SystemExit("windows_parity: huge pages cannot be switched off")


SIZES = {"cache": (300, 30_000), "memory": (170_000, 1_200_000)}
HEADS, CHANNELS = 8, 16


def problems() -> dict[str, Callable[[int], Any]]:
    """The kernels by "size: name", as functions of the number of threads that give what is to be compared."""
    import numpy as np

    from graphs import chung_lu
    from sage_attention import Graph, sample_neighbours
    from sage_attention.attention import AttentionInputs, aggregate, attention_backward, attention_forward

    def uniform(num_nodes: int, num_edges: int) -> Graph:
        rng = np.random.default_rng(0)
        return Graph.from_edge_index(rng.integers(0, num_nodes, (2, num_edges), dtype=np.int64), num_nodes)

    found: dict[str, Callable[[int], Any]] = {}
    for size, (num_nodes, num_edges) in SIZES.items():
        graph = uniform(num_nodes, num_edges) if size == "cache" else chung_lu(num_nodes, num_edges, 0)
        rng = np.random.default_rng(1)

        def draw(*shape: int, rng: Any = rng) -> Any:
            return rng.standard_normal(shape, dtype=np.float32)

        table = draw(num_nodes, HEADS, CHANNELS)
        logits = draw(num_nodes, HEADS), draw(num_nodes, HEADS)
        queries, keys = draw(num_nodes, HEADS, CHANNELS), draw(num_nodes, HEADS, CHANNELS)
        grad = draw(num_nodes, HEADS, CHANNELS)
        inputs = {
            "gat": AttentionInputs("gat", graph, table, source_logits=logits[0], target_logits=logits[1]),
            "gatv2": AttentionInputs("gatv2", graph, table, queries=queries, attention=draw(HEADS, CHANNELS) / 4),
            "dot": AttentionInputs("dot", graph, table, keys=keys, queries=queries),
        }
        flat = table.reshape(num_nodes, -1)
        found[f"{size}: aggregate"] = lambda n, graph=graph, flat=flat: aggregate(graph, flat, num_threads=n)
        for score, problem in inputs.items():
            kept = attention_forward(problem, for_backward=True)
            found[f"{size}: {score} forward"] = lambda n, p=problem: attention_forward(p, num_threads=n).out
            found[f"{size}: {score} backward"] = lambda n, p=problem, k=kept, g=grad: (
                attention_backward(p, k, g, num_threads=n).values
            )
        seeds = np.arange(0, num_nodes, max(1, num_nodes // 1024), dtype=np.int64)
        found[f"{size}: sample"] = lambda n, graph=graph, seeds=seeds: (
            sample_neighbours(graph, seeds, [15, 10], seed=3, num_threads=n).nodes
        )
    return found


def work() -> None:
    """Answers requests, a JSON object a line, until its input ends."""
    import numpy as np

    from sage_attention import _native

    kernels = problems()
    about = {"kernels": list(kernels), "cpu_level": _native.cpu_level(), "numpy": np.__version__}
    print(json.dumps({**about, "python": sys.version.split()[0], "platform": sys.platform}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        run, threads = kernels[request["kernel"]], request["threads"]
        if request["repeat"] == 0:
            result = run(threads)
            if result.dtype.kind in "iu":
                places = np.arange(1, result.size + 1, dtype=np.int64)
                digest = [int((result * places).sum()), int(result.max(initial=0)), result.size, True]
            else:
                weights = np.cos(np.arange(result.size, dtype=np.float64)).reshape(result.shape)
                digest = [float((result * weights).sum()), float(np.abs(result).max(initial=0)), result.size, False]
            print(json.dumps({"digest": digest}), flush=True)
            continue
        started = time.perf_counter()
        for _ in range(request["repeat"]):
            run(threads)
        print(json.dumps({"seconds": (time.perf_counter() - started) / request["repeat"]}), flush=True)


class Worker:
    """One of the two processes."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [*command, str(Path(__file__).resolve()), "--worker"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment},
        )  # fmt: skip
        self.about = self._read()

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"windows_parity: {self.process.args}: ended with {self.process.wait()}")
        return json.loads(line)

    def ask(self, **request: Any) -> dict[str, Any]:
        """Sends a request and waits for the answer."""
        assert self.process.stdin is not None
        print(json.dumps(request), file=self.process.stdin, flush=True)
        return self._read()

    def close(self) -> None:
        """Lets the process end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)


def same(linux: list[Any], windows: list[Any]) -> bool:
    """Whether two digests agree: ids exactly, numbers to rounding."""
    if linux[2:] != windows[2:]:
        return False
    limit = 0 if linux[3] else 1e-5 * linux[1] * linux[2] ** 0.5
    return abs(linux[0] - windows[0]) <= limit


def measure(linux: Worker, windows: Worker, kernel: str, threads: int, rounds: int, seconds: float) -> tuple[Any, ...]:
    """Medians and least of the seconds per call: linux, windows."""
    digests = [worker.ask(kernel=kernel, threads=threads, repeat=0)["digest"] for worker in (linux, windows)]
    if not same(*digests):
        raise SystemExit(f"windows_parity: {kernel}: results differ: {digests}")
    once = max(worker.ask(kernel=kernel, threads=threads, repeat=1)["seconds"] for worker in (linux, windows))
    repeat = max(1, round(seconds / rounds / 2 / once))
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(rounds):
        for at in (0, 1) if turn % 2 else (1, 0):  # neither is always first
            times[at].append((linux, windows)[at].ask(kernel=kernel, threads=threads, repeat=repeat)["seconds"])
    return median(times[0]), median(times[1]), min(times[0]), min(times[1])


def main() -> int:
    """Prints the table of ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--windows-python", help="command of a Windows Python with NumPy")
    parser.add_argument("--windows-library", help="sage_attention.dll, as the Windows Python sees it")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=6.0, help="per kernel, for both (default: 6)")
    parser.add_argument("--only", default="", help="kernels whose name contains this")
    parser.add_argument("--huge-pages", action="store_true", help="leave the Linux process its huge pages")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    arguments = parser.parse_args()
    if arguments.worker:
        work()
        return 0
    if not arguments.windows_python or not arguments.windows_library:
        parser.error("--windows-python and --windows-library are needed")
    if not arguments.huge_pages:
        small_pages()
    pages = {} if arguments.huge_pages else {"NUMPY_MADVISE_HUGEPAGE": "0"}
    linux = Worker([sys.executable], pages)
    windows = Worker(shlex.split(arguments.windows_python), {"SAGE_ATTENTION_LIBRARY": arguments.windows_library})
    for worker in (linux, windows):
        print(", ".join(f"{key} {value}" for key, value in worker.about.items() if key != "kernels"))
    print(f"{'kernel':<24}{'threads':>8}{'Linux ms':>11}{'Windows ms':>12}{'ratio':>8}{'of least':>10}")
    rows = []
    for threads in arguments.threads:
        for kernel in linux.about["kernels"]:
            if arguments.only not in kernel:
                continue
            first, second, least, least_windows = measure(
                linux, windows, kernel, threads, arguments.rounds, arguments.seconds
            )
            rows.append({"kernel": kernel, "threads": threads, "linux": first, "windows": second,
                         "ratio": second / first, "ratio_of_least": least_windows / least})  # fmt: skip
            print(f"{kernel:<24}{threads:>8}{first * 1e3:>11.3f}{second * 1e3:>12.3f}{second / first:>8.2f}"
                  f"{least_windows / least:>10.2f}", flush=True)  # fmt: skip
    ratios = [row["ratio"] for row in rows]
    print(f"ratio of all: median {median(ratios):.2f}, largest {max(ratios):.2f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    linux.close()
    windows.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
