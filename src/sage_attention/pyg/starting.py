"""Batches from this process while worker processes start, and from these as soon as they answer.

A process that is not forked imports everything anew, which takes seconds. As a batch is the same whatever makes it,
nobody has to wait for that.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

__all__ = ["Answering", "AreYouThere", "Gate", "Handover", "Start", "WhileWorkersStart"]


class AreYouThere:
    """Goes to a worker in the place of indices, and comes back in the place of a batch."""


class Answering:
    """A loader's `collate_fn` that answers who asks whether it is there.

    Args:
        collate: The loader's own.
    """

    def __init__(self, collate: Callable[[Any], Any]) -> None:
        self._collate = collate

    def __call__(self, index: Any) -> Any:
        """A batch, or the question that was asked."""
        return index if isinstance(index, AreYouThere) else self._collate(index)


class Gate:
    """The sampler that workers are given: questions until all have answered, then what is left of the epoch.

    Args:
        sampler: The loader's own.
    """

    def __init__(self, sampler: Iterable[Any]) -> None:
        self._sampler = sampler
        self.open = threading.Event()
        self.left: Iterator[Any] | None = None  # of the epoch that is under way when it opens

    def __iter__(self) -> Iterator[Any]:
        while not self.open.is_set():
            yield AreYouThere()
        left, self.left = self.left, None
        yield from iter(self._sampler) if left is None else left


class Start:
    """Starts the workers in a thread, once the workers of all earlier loaders are there.

    One at a time in a process: many loaders that are iterated a little would else start workers of which nobody wants
    any more, and the end of the process waits for each of them. What was given up meanwhile never begins.

    Args:
        gate: What they are given.
        begin: Gives torch's iterator over what workers make; is called in the thread.
        num_workers: How many there are.
    """

    _newest: ClassVar[threading.Thread | None] = None

    def __init__(self, gate: Gate, begin: Callable[[], Iterator[Any]], num_workers: int) -> None:
        self.gate = gate
        self.batches: Any = None  # torch's iterator, once the workers are there
        self._begin = begin
        self._num_workers = num_workers
        self._after = Start._newest
        self._error: BaseException | None = None
        self._given_up = False
        self._lock = threading.RLock()  # giving up may come from a collection of garbage within it
        self.thread = threading.Thread(target=self._run, name="sage-attention-start")
        self.thread.start()
        Start._newest = self.thread

    @property
    def _unwanted(self) -> bool:
        # The interpreter ends: it waits for this thread, and nobody iterates any more.
        return self._given_up or not threading.main_thread().is_alive()

    def _run(self) -> None:
        try:
            if self._after is not None:
                self._after.join()
                self._after = None
            if self._unwanted:
                return
            batches = self._begin()
            # The first questions went to each of them in turn.
            for _ in range(self._num_workers):
                if self._unwanted:
                    break
                next(batches)
            with self._lock:
                if not self._unwanted:
                    self.batches = batches
                    return
            # A worker that is ended while it answers may abort, and torch's handler of that signal raises in the main
            # thread, whatever that is at. All are let answer.
            self.gate.left = iter(())
            self.gate.open.set()
            for _ in batches:
                pass
        except BaseException as error:  # noqa: BLE001 - is raised where batches are asked for
            self._error = error
        finally:
            if self._error is None and self.batches is None and not self._given_up:
                self._error = RuntimeError("the interpreter ended before the worker processes had started")
            self.gate.open.set()

    @property
    def is_over(self) -> bool:
        """Whether the workers are there.

        Raises:
            BaseException: What kept them from starting.
        """
        if not self.gate.open.is_set():
            return False
        self.thread.join()
        if self._error is not None:
            raise self._error
        return True

    def give_up(self) -> None:
        """Lets the workers end, as soon as they have started."""
        with self._lock:
            self._given_up = True
            batches, self.batches = self.batches, None
        del batches  # ends those that are there


class WhileWorkersStart:
    """The batches of an epoch; with persistent workers of all epochs.

    Args:
        handover: From this process to the workers.
    """

    def __init__(self, handover: Handover) -> None:
        self._handover = handover
        self._epoch = handover.batches()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._epoch)

    def __del__(self) -> None:
        self._handover.start.give_up()

    def _reset(self, loader: Any, first_iter: bool = False) -> None:  # noqa: ARG002
        """Torch calls it for the next epoch of persistent workers."""
        self._epoch.close()
        self._epoch = self._handover.batches()


class Handover:
    """How an epoch begins in this process and goes on in workers.

    Args:
        start: The workers that start.
        sampler: The loader's own, of indices.
        here: Makes batches of indices in this process.
        finished: Is given what workers make, and returns batches.
        questions: How many questions are on their way when the workers are there.
        loader: What torch's iterator is begun anew with in the next epoch; None if there is none.
    """

    def __init__(
        self,
        start: Start,
        sampler: Iterable[Any],
        here: Callable[[Iterator[Any]], Generator[Any, None, None]],
        finished: Callable[[Any], Any],
        questions: int,
        loader: Any,
    ) -> None:
        self.start = start
        self._sampler = sampler
        self._here = here
        self._finished = finished
        self._questions = questions
        self._loader = loader
        self._done = False

    def batches(self) -> Generator[Any, None, None]:
        """The batches of an epoch. What is to be read of the loader for it is read here and now."""
        if self.start.is_over:
            self.start.batches._reset(self._loader)  # noqa: SLF001
            return self._from_workers()
        return self._from_here_first(iter(self._sampler))

    def _from_here_first(self, indices: Iterator[Any]) -> Generator[Any, None, None]:
        with contextlib.closing(self._here(self._until_workers_are_there(indices))) as batches:
            yield from batches
        if self._done:
            yield from self._from_workers()
        elif self._loader is None:
            self.start.give_up()

    def _until_workers_are_there(self, indices: Iterator[Any]) -> Iterator[Any]:
        while not self.start.is_over:
            try:
                index = next(indices)
            except StopIteration:
                return
            yield index
        self._done = True
        self.start.gate.left = indices
        for _ in range(self._questions):  # each that has been answered makes room for indices
            next(self.start.batches)

    def _from_workers(self) -> Generator[Any, None, None]:
        for batch in self.start.batches:
            yield self._finished(batch)
        if self._loader is None:
            self.start.give_up()
