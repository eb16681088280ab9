"""What was measured, for programs: one document with the machine, the graph, every figure and what was left out."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sage_attention.bench.machine import Machine
    from sage_attention.bench.problem import Problem
    from sage_attention.bench.timing import Timing

__all__ = ["BUSY", "FORMAT", "Figure", "LeftOut", "Result", "threads_text"]

FORMAT = 1  # of the document; a change that a reader must know of raises it
BUSY = 0.1  # part of all cores that others may use before a warning
_WIDE = 0.2  # distance of the quartiles, as a part of the median, before a warning
_CACHE = 64 << 20  # a table of rows smaller than this may lie in a cache, wholly or in large part


def threads_text(count: int) -> str:
    """A number of threads, in words.

    Example:
        >>> threads_text(1), threads_text(2)
        ('1 thread', '2 threads')
    """
    return "1 thread" if count == 1 else f"{count} threads"


@dataclass(frozen=True)
class Figure:
    """The times of one contender at one step.

    Attributes:
        part: ``attention`` (NumPy alone), ``sampling``, or ``peers`` (beside PyTorch Geometric, through torch).
        score: ``gat``, ``gatv2`` or ``dot``; empty for sampling.
        step: ``gather``, ``forward``, ``backward``, ``training``, or fan-outs such as ``15,10``.
        threads: How many.
        contender: ``ours``, ``PyG eager``, ``PyG compiled`` or ``pyg-lib``.
        timing: Seconds of each round.
        ns_per_edge: Median, in nanoseconds.
        gb_per_s: Of rows, where they are only gathered.
        share: Of the gather limit: the time it takes to read the rows that each edge must read, by the time taken.
        times_ours: How many times ours its median is; of sampling, its median per edge. None where there is no ours.
        compile_s: Seconds that compiling took; not counted.
    """

    part: str
    score: str
    step: str
    threads: int
    contender: str
    timing: Timing
    ns_per_edge: float
    gb_per_s: float | None = None
    share: float | None = None
    times_ours: float | None = None
    compile_s: float | None = None

    def document(self) -> dict[str, Any]:
        """For JSON."""
        names = ("part", "score", "step", "threads", "contender", "ns_per_edge", "gb_per_s", "share", "times_ours")
        return {**{name: getattr(self, name) for name in names}, "compile_s": self.compile_s, **self.timing.summary()}


@dataclass(frozen=True)
class LeftOut:
    """What was not measured, and why."""

    what: str
    why: str


@dataclass
class Result:
    """All that a run measured; it grows while it runs.

    Attributes:
        problem: The graph and the size of rows.
        machine: Facts, as they were at the end.
        settings: What was asked for.
        figures: In the order they were taken.
        left_out: What was not measured.
        seconds: The whole run took.
        interrupted: Whether somebody ended it before its end.
    """

    problem: Problem
    machine: Machine
    settings: dict[str, Any]
    figures: list[Figure] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    seconds: float = 0.0
    interrupted: bool = False

    def of(self, part: str) -> list[Figure]:
        """The figures of a part."""
        return [figure for figure in self.figures if figure.part == part]

    @property
    def busy(self) -> float:
        """The largest part of all cores that other processes used during a figure; NaN if nothing tells."""
        return max((f.timing.others_share for f in self.figures if f.timing.others), default=math.nan)

    def why_left_out(self) -> list[tuple[str, list[str]]]:
        """(why, what) for each reason, in the order they came."""
        found: dict[str, list[str]] = {}
        for one in self.left_out:
            found.setdefault(one.why, []).append(one.what)
        return list(found.items())

    def notes(self) -> list[str]:
        """What the reader must know before trusting a figure."""
        notes = []
        if self.interrupted:
            notes.append("It was interrupted: the last figures stand on few rounds, others are missing.")
        busy = self.busy
        if math.isnan(busy):
            notes.append("What other processes did meanwhile is not known: psutil, which tells, is not installed.")
        elif busy > BUSY:
            notes.append(
                f"Other processes used up to {busy:.0%} of all cores meanwhile: least times and one thread tell more "
                "than medians and several threads; run it again when the machine is idle."
            )
            if any(figure.threads > 1 for figure in self.of("peers")):
                notes.append(
                    "On several threads each side waits for its slowest, in its own way: ratios to PyTorch Geometric "
                    "there tell of the load more than of the layers."
                )
        if self.settings.get("omp_wait_policy") == "PASSIVE":
            notes.append("OpenMP, and so PyTorch, waits passively (OMP_WAIT_POLICY=PASSIVE).")
        wide = [figure for figure in self.figures if figure.timing.spread > _WIDE]
        if wide:
            notes.append(
                f"{len(wide)} of {len(self.figures)} figures vary by more than {_WIDE:.0%} between the quartiles of "
                "their rounds; a second run may well give others."
            )
        few = sum(len(figure.timing.wall) < 3 for figure in self.figures)
        if few:
            notes.append(f"Fewer than three rounds: {few} of {len(self.figures)} figures.")
        if self.problem.table_bytes < _CACHE:
            size = self.problem.table_bytes / 2**20
            notes.append(
                f"The table of rows has {size:.1f} MiB and may lie in the processor's cache: larger graphs are slower."
            )
        most = max((figure.threads for figure in self.figures), default=1)
        if most > self.machine.usable_cores:
            cores = self.machine.usable_cores
            notes.append(f"{most} threads shared {cores} {'core' if cores == 1 else 'cores'}.")
        compiling = [figure.compile_s for figure in self.figures if figure.compile_s is not None]
        if compiling:
            notes.append(f"Compiling took up to {max(compiling):.0f} s each time; it is not counted.")
        return notes

    def document(self) -> dict[str, Any]:
        """The JSON document; NaN has become None.

        `docs/bench.md` describes it.
        """
        graph = self.problem.graph
        return {
            "format": FORMAT,
            "interrupted": self.interrupted,
            "seconds": self.seconds,
            "machine": asdict(self.machine),
            "graph": {
                "name": self.problem.name,
                "nodes": graph.num_nodes,
                "edges": graph.num_edges,
                "largest_in_degree": int(graph.in_degrees.max(initial=0)),
                "row_bytes": self.problem.row_bytes,
            },
            "settings": self.settings,
            "figures": [figure.document() for figure in self.figures],
            "left_out": [asdict(one) for one in self.left_out],
            "notes": self.notes(),
        }
