"""What makes the batches of a loader repeatable, and has them ready when they are asked for.

An epoch has a key, each of its batches another. The order of the seeds is a function of the first, all draws of a
batch of the second. The key of a batch travels with its indices, so that worker processes and threads give the same
batches, several iterations do not disturb each other, and an epoch can be taken up again where it was left.
"""

from __future__ import annotations

import copy
import itertools
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.utils.data._utils.pin_memory import pin_memory
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader.base import DataLoaderIterator

from sage_attention._arrays import integer
from sage_attention.errors import ArgumentError

from .sampler import NeighborSampler, draws_named
from .sharing import share_tensors
from .starting import Answering, AreYouThere, Gate, Handover, Start, WhileWorkersStart

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Epochs"]

_GOLDEN = 0x9E3779B97F4A7C15


class Epochs:
    """A mixin before one of PyTorch Geometric's loaders.

    Args:
        *args: The loader's.
        seed: Names the sequence of batches; None: torch's generator does.
        prefetch: Batches that a thread makes ahead, 0 for none.
        rank: Which of `world_size` processes this one is.
        world_size: Processes that share the batches of an epoch.
        **kwargs: The loader's.

    Raises:
        ArgumentError: An argument is not what is said above.
    """

    _begun: tuple[int, int] | None = None  # key of the newest epoch, its first batch
    _gate: Gate | None = None  # the sampler of workers that start

    def __init__(self, *args: Any, seed: int | None, prefetch: int, rank: int, world_size: int, **kwargs: Any) -> None:
        self._seed = None if seed is None else integer("seed", seed, 0, 2**63 - 1)
        self._world_size = integer("world_size", world_size, 1, 2**31 - 1)
        self._rank = integer("rank", rank, 0, self._world_size - 1)
        if self._world_size > 1:
            if seed is None:
                raise ArgumentError("seed", "the same number in each of the processes that share the batches", None)
            if hasattr(kwargs.get("sampler"), "num_replicas"):
                raise ArgumentError(
                    "sampler", "one of all seeds, since world_size shares them out", "a distributed one"
                )
        self._prefetch = integer("prefetch", prefetch, 0, 2**20)
        self._next_epoch = self._epoch = self._batch = self._skip = self._run = 0
        super().__init__(*args, **kwargs)
        # torch lets nobody set it, since samplers are made for it; these ask for its length alone.
        self.__dict__["dataset"] = _Positions(len(self.dataset))  # type: ignore[attr-defined]

    def set_epoch(self, epoch: int) -> None:
        """Says which epoch the next iteration is; each is one further by itself.

        Args:
            epoch: From 0 on.
        """
        self._next_epoch = self._epoch = integer("epoch", epoch, 0, 2**63 - 1)
        self._batch = self._skip = 0
        self._run += 1

    def state_dict(self) -> dict[str, int]:
        """Where the newest iteration is: so many batches of so many-th epoch were handed out, by this process.

        Raises:
            ArgumentError: The loader has no seed.
        """
        if self._seed is None:
            raise ArgumentError("seed", "a number, which makes epochs repeatable", None)
        return {"seed": self._seed, "epoch": self._epoch, "batch": self._batch}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Lets the next iteration go on where another one was.

        Args:
            state: What `state_dict` gave.

        Raises:
            ArgumentError: It is of a loader with another seed, or with more batches, or none at all.
        """
        if not isinstance(state, dict) or set(state) != {"seed", "epoch", "batch"}:
            raise ArgumentError("state", "what state_dict gave", f"{state!r}")
        if self._seed is None or state["seed"] != self._seed:
            raise ArgumentError("state", f"one of a loader with seed {self._seed}", state["seed"])
        batch = integer("state['batch']", state["batch"], 0, self._number_of_batches())
        self.set_epoch(state["epoch"])
        self._batch = self._skip = batch

    def _number_of_batches(self) -> int | None:
        try:
            return len(self)  # type: ignore[arg-type]
        except TypeError:  # a sampler of the user's that has no length
            return None

    def __iter__(self) -> Iterator[Any]:
        self._begin()
        return _Counted(self, super().__iter__(), self._run)  # type: ignore[misc]

    def _begin(self) -> tuple[int, int]:
        self._epoch, self._next_epoch = self._next_epoch, self._next_epoch + 1
        self._batch, self._skip = self._skip, 0
        self._run += 1
        # Either way all of the epoch hangs on one number.
        key = int(torch.randint(0, 2**63 - 1, ())) if self._seed is None else _mixed(self._seed, self._epoch)
        self._begun = key, self._batch
        return self._begun

    def collate_fn(self, index: Any) -> Any:
        """Samples one batch.

        Args:
            index: Positions [n] among the seeds, as an iteration gives them or as a caller does.
        """
        if not isinstance(index, _Named):
            return super().collate_fn(index)  # type: ignore[misc]
        single = torch.as_tensor(index.positions).dim() == 0  # batch_size=None
        with draws_named(index.key):
            return super().collate_fn([int(index.positions)] if single else index.positions)  # type: ignore[misc]

    @property
    def _index_sampler(self) -> Any:
        return self._gate or _Indices(self, super()._index_sampler)  # type: ignore[misc]

    def _get_iterator(self) -> Iterator[Any]:
        # Other samplers may draw from torch's generator, or mind what thread they are in.
        ours = isinstance(getattr(self, "node_sampler", None) or getattr(self, "link_sampler", None), NeighborSampler)
        if self.num_workers == 0 and self._prefetch > 0 and ours:  # type: ignore[attr-defined]
            # As torch's iterators do, so that the next epoch is the same one whichever of them is used.
            self._drawn_by_iterators()
            return self._ahead(iter(self._index_sampler))
        if self.num_workers > 0 and self._starts_anew() and ours:  # type: ignore[attr-defined]
            self._share()
            if self._makes_first_batches():
                return self._while_workers_start()
        batches = super()._get_iterator()  # type: ignore[misc]
        if isinstance(batches, DataLoaderIterator):
            batches.transform_fn = self._gathered  # torch pins what was sampled, not what is then made of it
        return batches  # type: ignore[no-any-return]

    def _gathered(self, out: Any) -> Any:
        loader: Any = self
        batch = loader.filter_fn(out)
        return pin_memory(batch) if loader.pin_memory and torch.cuda.is_available() else batch  # type: ignore[no-untyped-call]

    def _drawn_by_iterators(self) -> int:
        return int(torch.empty((), dtype=torch.int64).random_(generator=self.generator))  # type: ignore[attr-defined]

    def _starts_anew(self) -> bool:
        """Whether worker processes are not forked, but get what they need over a pipe."""
        context: Any = self.multiprocessing_context or torch.multiprocessing  # type: ignore[attr-defined]
        return bool(context.get_start_method() != "fork")

    def _share(self) -> None:
        """Moves the graph and all tensors to where workers see them without a copy each."""
        sampler: NeighborSampler = getattr(self, "node_sampler", None) or self.link_sampler  # type: ignore[attr-defined]
        sampler.share()
        share_tensors(self)

    def _makes_first_batches(self) -> bool:
        """Whether nothing was asked for that only a worker does, or that goes by when it does it."""
        loader: Any = self
        return bool(self._prefetch > 0 and loader.worker_init_fn is None and loader.timeout == 0 and loader.in_order)

    def _while_workers_start(self) -> Iterator[Any]:
        """The first batches come from this process: workers that are not forked need seconds to start."""
        loader: Any = copy.copy(self)
        loader.generator = torch.Generator().manual_seed(self._drawn_by_iterators())
        loader.collate_fn = Answering(loader.collate_fn)
        loader.filter_per_worker = True  # the one that answers goes by this loader's
        gate = Gate(self._index_sampler)
        loader._gate = gate  # noqa: SLF001
        device = torch.cuda.current_device() if loader.pin_memory and torch.cuda.is_available() else None

        def begin() -> Iterator[Any]:
            if device is not None:  # each thread has its own
                torch.cuda.set_device(device)
            return super(Epochs, loader)._get_iterator()  # type: ignore[misc,no-any-return]

        def finished(batch: Any) -> Any:
            return batch if self.filter_per_worker else self._gathered(batch)  # type: ignore[attr-defined]

        start = Start(gate, begin, loader.num_workers)
        questions = loader.num_workers * loader.prefetch_factor
        anew = loader if loader.persistent_workers else None
        return WhileWorkersStart(Handover(start, self._index_sampler, self._ahead, finished, questions, anew))

    def __getstate__(self) -> dict[str, Any]:
        # What iterates belongs to this process.
        return {**self.__dict__, "_iterator": None}

    def _ahead(self, indices: Iterator[Any]) -> Generator[Any, None, None]:
        """Batches that a thread samples, and gathers where that is ours to do. What users bring stays in this one."""
        plain: Any = copy.copy(self)
        transform, plain.transform = plain.transform, None
        gathers = plain.transform_sampler_output is None and isinstance(plain.data, (Data, HeteroData))
        plain.filter_per_worker = gathers
        pins = plain.pin_memory and torch.cuda.is_available()

        def make(index: Any, with_gradients: bool) -> Any:
            with torch.set_grad_enabled(with_gradients):  # each thread has a setting of its own
                return type(plain).collate_fn(plain, index)  # torch keeps the one that is bound to this loader

        def submit(count: int) -> None:
            for index in itertools.islice(indices, count):
                waiting.append(pool.submit(make, index, torch.is_grad_enabled()))

        waiting: deque[Future[Any]] = deque()
        with ThreadPoolExecutor(1, thread_name_prefix="sage-attention-loader") as pool:
            try:
                submit(self._prefetch)
                while waiting:
                    batch = waiting.popleft().result()
                    submit(1)
                    batch = batch if gathers else plain.filter_fn(batch)
                    batch = batch if transform is None else transform(batch)
                    yield pin_memory(batch) if pins else batch  # type: ignore[no-untyped-call]
            finally:
                for future in waiting:
                    future.cancel()


class _Named(NamedTuple):
    """The positions of a batch and the key that names its draws."""

    key: int
    positions: Any


class _Positions(Sequence[Any]):
    """Positions among the seeds, a range to who compares them, which lets batches of them through as they are."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __eq__(self, other: object) -> bool:
        return range(self._count) == other if isinstance(other, range) else self is other

    __hash__ = object.__hash__

    def __getitem__(self, index: Any) -> Any:
        return index if isinstance(index, (_Named, AreYouThere)) else range(self._count)[index]

    def __getitems__(self, indices: Any) -> Any:
        return indices if isinstance(indices, (_Named, AreYouThere)) else [self[index] for index in indices]


class _Indices:
    """A sampler of indices, in the order that the key of the epoch names, without the batches that are skipped.

    Of `world_size` processes that share an epoch each has every `world_size`-th batch. All have as many: where the last
    round is not full, it is filled up with the first batches, drawn anew, or left out with `drop_last`.
    """

    def __init__(self, loader: Any, sampler: Any) -> None:
        self._loader = loader
        self._sampler = sampler

    def __iter__(self) -> Iterator[_Named]:
        # What is read here and now: by the time of the first batch, another iteration may have begun. None has where
        # users of torch's own _get_iterator, as PyTorch Geometric's tests of cores and threads are, go past __iter__.
        loader = self._loader
        return self._named(*(loader._begun or loader._begin()))  # noqa: SLF001

    def __len__(self) -> int:
        count, shares = len(self._sampler), int(self._loader._world_size)  # noqa: SLF001
        return count // shares if self._loader.drop_last else -(-count // shares)

    def _named(self, key: int, first: int) -> Iterator[_Named]:
        rank, world_size = self._loader._rank, self._loader._world_size  # noqa: SLF001
        held: _Named | None = None  # is not handed out before its round is known to be full
        first_round: list[Any] = []
        count = 0
        for positions in self._ordered(key):
            if len(first_round) < world_size:
                first_round.append(positions)
            if count % world_size == rank:
                held = _Named(_mixed(key, count), positions)
            count += 1
            if held is not None and count % world_size == 0:
                if count // world_size > first:
                    yield held
                held = None
        if count % world_size == 0 or self._loader.drop_last or count // world_size < first:
            return
        missing = rank - count % world_size  # place among the batches that fill up
        yield held or _Named(_mixed(key, count + missing), first_round[missing % len(first_round)])

    def _ordered(self, key: int) -> Iterator[Any]:
        """The positions of all batches of the epoch with a key."""
        positions: Iterator[Any] | None = None
        state = torch.Generator().manual_seed(_mixed(key, -1)).get_state()
        while True:
            # Samplers draw from torch's generator, some of them all along the way.
            before = torch.get_rng_state()
            torch.set_rng_state(state)
            try:
                if positions is None:
                    positions = iter(self._sampler)
                found = next(positions)
            except StopIteration:
                return
            finally:
                state = torch.get_rng_state()
                torch.set_rng_state(before)
            yield found


class _Counted:
    """The batches of an iteration; the loader is told how many of its newest one were handed out."""

    def __init__(self, loader: Any, batches: Iterator[Any], run: int) -> None:
        self._loader = loader
        self._batches = batches
        self._run = run

    def __iter__(self) -> Iterator[Any]:
        return self

    def __len__(self) -> int:
        return len(self._loader)

    def __next__(self) -> Any:
        loader = self._loader
        try:
            batch = next(self._batches)
            if loader._run == self._run:  # noqa: SLF001
                loader._batch += 1  # noqa: SLF001
        except StopIteration:
            if loader._run == self._run:  # noqa: SLF001
                loader._epoch, loader._batch = loader._next_epoch, 0  # noqa: SLF001
            raise
        except BaseException:
            # An interruption between two batches leaves the thread that makes them at work.
            if isinstance(self._batches, Generator):
                self._batches.close()
            raise
        return batch


def _mixed(key: int, number: int) -> int:
    """A key below 2^63 for something numbered of what has a key: SplitMix64's finaliser."""
    x = (key + (number + 2) * _GOLDEN) % 2**64
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
    return (x ^ (x >> 31)) >> 1
