"""What is measured in which order, and how the time that is there is divided.

A group is timed in turn: a gather with the passes of one score, the ways to sample, or ours with its peers. Each group
gets an equal part of the time that is left, three rounds at least and at most as many as asked for. Where not even
three would fit, it is left out, and said to be; only the first is measured whatever time is left.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING

from sage_attention.bench import peers
from sage_attention.bench.checks import check_scored
from sage_attention.bench.machine import free_memory
from sage_attention.bench.problem import ROW_READS, SCORES
from sage_attention.bench.result import BUSY, Figure, LeftOut, threads_text
from sage_attention.bench.samplers import PygLibSampler, Sampler, pyg_lib_missing, pyg_lib_samplers
from sage_attention.bench.tables import milliseconds
from sage_attention.bench.timing import Timing, alternate
from sage_attention.errors import SageAttentionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sage_attention.bench.problem import Problem, Scored
    from sage_attention.bench.result import Result
    from sage_attention.recipes.progress import Progress

__all__ = ["Plan", "measure"]

_LEAST_ROUNDS = 3
_SHORT_SECONDS, _MOST_SHORT_ROUNDS = 0.5, 101  # rounds that take next to nothing are cheap, and noisy
_TIME = "the time limit (--time-limit) came first"
_FAN_OUTS = ([15, 10], [15, 10, 5])


@dataclass(frozen=True)
class Plan:
    """What is asked for.

    Attributes:
        threads: Numbers of threads, each once.
        ends: When to be done, by ``time.monotonic``.
        most_rounds: Of a group whose rounds are long; of short ones there are more.
        peers: Names of PyTorch Geometric's contenders; empty to leave it out.
    """

    threads: tuple[int, ...]
    ends: float
    most_rounds: int = 11
    peers: tuple[str, ...] = ()

    def left(self) -> float:
        """Seconds that are left."""
        return self.ends - time.monotonic()


@dataclass
class _Run:
    problem: Problem
    plan: Plan
    result: Result
    progress: Progress
    digests: dict[tuple[str, str], int] = field(default_factory=dict)
    groups_left: int = 0
    compiling: float = 0.0  # seconds that it took at most
    sides: dict[str, Scored] = field(default_factory=dict)

    def leave_out(self, what: str, why: str) -> None:
        self.result.left_out.append(LeftOut(what, why))
        self.progress.note(f"left out: {what}: {why}")

    def skip(self, what: str, why: str) -> None:
        """Leaves a whole group out."""
        self.leave_out(what, why)
        self.progress.step()

    def scored(self, score: str) -> Scored:
        """The arrays of a score; those of one alone are kept."""
        if score not in self.sides:
            self.sides.clear()
            self.sides[score] = self.problem.scored(score)
        return self.sides[score]

    def rounds(
        self, steps: dict[str, Callable[[], object]], round_seconds: float, into: dict[str, Timing],
        before: Callable[[], object] | None = None,
    ) -> None:  # fmt: skip
        """Times a group that has been run once already."""
        left = max(0.0, self.plan.left())
        once = max(round_seconds, 1e-6)
        most = max(self.plan.most_rounds, min(_MOST_SHORT_ROUNDS, int(_SHORT_SECONDS / once)))
        least = max(1, min(_LEAST_ROUNDS, int(left / once), most))
        seconds = left / max(1, self.groups_left)
        alternate(steps, most, 0, seconds=seconds, least_rounds=least, before=before, into=into)

    def attention(self, score: str, threads: int) -> None:
        """A gather and both passes of one score."""
        if self.result.figures and self.plan.left() <= 0:
            self.skip(f"{score}, {threads_text(threads)}", _TIME)
            return
        scored = self.scored(score)
        start = time.perf_counter()
        digests = check_scored(scored, threads)
        once = time.perf_counter() - start
        for name, digest in digests.items():
            if self.digests.setdefault((score, name), digest) != digest:
                raise SageAttentionError(
                    f"bench: {score}, {name}: expected the same result on {threads_text(threads)} as before, "
                    "bit by bit, got another; nothing is timed that is wrong: please report it"
                )
        if self.result.figures and self.plan.left() < _LEAST_ROUNDS * once:
            self.skip(f"{score}, {threads_text(threads)}", _TIME)
            return
        timings: dict[str, Timing] = {}
        try:
            self.rounds(scored.steps(threads), once, timings)
        finally:
            self._add_attention(score, threads, timings)
        shown = [f"{f.step} {milliseconds(f.timing.median)} ms" for f in self.result.figures[-len(timings) :]]
        self.progress.step(f"{score}, {threads_text(threads)}: " + ", ".join(shown))

    def _add_attention(self, score: str, threads: int, timings: dict[str, Timing]) -> None:
        edges, row_bytes = self.problem.graph.num_edges, self.problem.row_bytes
        reads = {"forward": ROW_READS[score][0], "backward": ROW_READS[score][1]}
        gather = timings.get("gather", Timing())
        for name, timing in timings.items():
            if timing.wall and gather.wall:
                share = None
                if name in reads:  # round by round: what disturbs one of a pair disturbs both more often than not
                    share = median(reads[name] * g / t for g, t in zip(gather.wall, timing.wall))
                rate = edges * row_bytes / timing.median / 1e9 if name == "gather" else None
                ns = timing.median / edges * 1e9
                self.result.figures.append(Figure("attention", score, name, threads, "ours", timing, ns, rate, share))

    def sampling(self) -> None:
        """Mini-batches on each number of threads, and pyg-lib's."""
        if self.plan.left() <= 0:
            self.skip("sampling", _TIME)
            return
        ways: list[Sampler] = [
            Sampler(self.problem, one, threads) for one in _FAN_OUTS for threads in self.plan.threads
        ]
        if self.plan.peers:
            ways += self.pyg_lib()
        timings: dict[str, Timing] = {}
        steps = {str(number): one.sample for number, one in enumerate(ways)}

        def renew() -> None:
            for one in ways:
                one.renew()

        start = time.perf_counter()
        for one in ways:  # warms up
            one.sample()
            one.edges.clear()
        try:
            self.rounds(steps, time.perf_counter() - start, timings, renew)
        finally:
            self._add_sampling(ways, list(timings.values()))
        shown = [
            f"{f.contender} {f.step} on {threads_text(f.threads)} {f.ns_per_edge:.0f} ns/edge"
            for f in self.result.of("sampling")
        ]
        if not shown:
            self.skip("sampling", "no batch found an edge")
            return
        self.progress.step(message="sampling: " + ", ".join(shown))

    def load_peers(self) -> None:
        """Loads PyTorch Geometric, or leaves it out: what needs NumPy alone is measured in any case."""
        why = peers.unusable()
        if why:
            self.leave_out("PyTorch Geometric", why)
            fewer = replace(self.plan, peers=())
            dropped = groups(self.plan) - groups(fewer)
            self.plan = fewer
            self.groups_left -= dropped
            self.progress.step(advance=dropped)

    def pyg_lib(self) -> list[PygLibSampler]:
        """The samplers of pyg-lib, none if there is a reason, which is said."""
        why = pyg_lib_missing(self.problem, free_memory())
        if not why:
            try:
                return pyg_lib_samplers(self.problem, _FAN_OUTS)
            except SageAttentionError:
                raise
            except Exception as error:  # noqa: BLE001 - built for another torch, too old, in many ways
                why = peers.failure(error)
        self.leave_out("pyg-lib's sampler", why)
        return []

    def _add_sampling(self, ways: list[Sampler], timings: list[Timing]) -> None:
        ours: dict[tuple[str, int], float] = {}
        for one, timing in zip(ways, timings):
            found = [seconds / edges * 1e9 for seconds, edges in zip(timing.wall, one.edges) if edges]
            if not found:
                continue
            ns = median(found)
            if one.contender == "ours":
                ours[one.step, one.threads] = ns
            beside = ours.get((one.step, one.threads))
            self.result.figures.append(
                Figure("sampling", "", one.step, one.threads, one.contender, timing, ns,
                       times_ours=None if beside is None else ns / beside)
            )  # fmt: skip

    def beside(self, score: str, threads: int, *, training: bool) -> None:
        """Ours and PyTorch Geometric's."""
        name = peers.PASSES[training]
        what = f"PyTorch Geometric, {score}, {name}, {threads_text(threads)}"
        if self.plan.left() <= 0:
            self.skip(what, _TIME)
            return
        problem, names = self.problem, [peers.OURS]
        for peer in self.plan.peers:
            why = peers.why_not(
                peer, score, problem.graph.num_edges, problem.row_bytes, problem.table_bytes, free_memory()
            )
            if peer == peers.COMPILED and self.plan.left() < self.compiling:
                why = f"compiling takes {self.compiling:.0f} s, and {_TIME}"
            if why:
                self.leave_out(f"{peer}, {score}, {name}, {threads_text(threads)}", why)
            else:
                names.append(peer)
        if len(names) == 1:
            self.skip(what, "no peer is left")
            return
        made = peers.Contenders.make(self.scored(score), names, threads, training=training)
        once = made.check()
        self.compiling = max([self.compiling, *made.compile_seconds.values()])
        for peer, why in made.dropped.items():
            self.leave_out(f"{peer}, {score}, {name}, {threads_text(threads)}", why)
        if len(made.steps) == 1 or self.plan.left() < _LEAST_ROUNDS * once:
            self.skip(what, "no peer is left" if len(made.steps) == 1 else _TIME)
            return
        timings: dict[str, Timing] = {}
        try:
            self.rounds(made.steps, once, timings)
        finally:
            self._add_peers(made, name, threads, timings)
        shown = [f"{f.contender} {milliseconds(f.timing.median)} ms" for f in self.result.figures[-len(timings) :]]
        self.progress.step(f"{score}, {name}, {threads_text(threads)}: " + ", ".join(shown))

    def _add_peers(self, made: peers.Contenders, name: str, threads: int, timings: dict[str, Timing]) -> None:
        ours = timings.get(peers.OURS, Timing())
        for contender, timing in timings.items():
            if timing.wall and ours.wall:
                self.result.figures.append(
                    Figure(
                        "peers", made.score, name, threads, contender, timing,
                        timing.median / self.problem.graph.num_edges * 1e9,
                        times_ours=timing.median / ours.median, compile_s=made.compile_seconds.get(contender),
                    )
                )  # fmt: skip


def _wait_passively(result: Result) -> None:
    """Tells OpenMP, before torch loads it, not to spin where other processes need the cores.

    On a small graph and two busy cores, threads that spun for one that was put off took PyTorch Geometric ten times as
    long, which says nothing of it; on a large one both sides were a little faster without spinning.
    """
    if "torch" not in sys.modules and "OMP_WAIT_POLICY" not in os.environ and result.busy > BUSY:
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    result.settings["omp_wait_policy"] = os.environ.get("OMP_WAIT_POLICY")


def groups(plan: Plan) -> int:
    """How many groups there are to measure."""
    pairs = len(plan.threads) * len(SCORES)
    return pairs + 1 + (pairs * len(peers.PASSES) if plan.peers else 0)


def measure(problem: Problem, plan: Plan, result: Result, progress: Progress) -> None:
    """Measures, into `result`, which holds what there is also where this is interrupted.

    Args:
        problem: The graph.
        plan: What is asked for.
        result: Is filled.
        progress: Of `groups` steps.

    Raises:
        SageAttentionError: Results that are compared before they are timed differ.
    """
    run = _Run(problem, plan, result, progress, groups_left=groups(plan))
    for threads in sorted(plan.threads, reverse=True):  # all of them first: what people run, if time is short
        for score in SCORES:
            run.attention(score, threads)
            run.groups_left -= 1
        if threads == max(plan.threads):
            if plan.peers and plan.left() > 0:
                _wait_passively(result)
                run.load_peers()
            run.sampling()
            run.groups_left -= 1
        if not run.plan.peers:
            continue
        for score in SCORES:
            for training in (False, True):
                run.beside(score, threads, training=training)
                run.groups_left -= 1
