"""What the words of the command line must be; argparse names the kind when one is not."""

from __future__ import annotations

from typing import Callable, TypeVar

__all__ = [
    "MOST_CHANNELS",
    "MOST_LAYERS",
    "chance",
    "channels",
    "count",
    "fan_outs",
    "layers",
    "members",
    "path",
    "positive",
    "rate",
    "seed",
    "split",
    "temperature",
    "thread_counts",
    "threads",
    "time_limit",
]

T = TypeVar("T")


def _kind(name: str, convert: Callable[[str], T], fits: Callable[[T], bool]) -> Callable[[str], T]:
    """A type for argparse, which says ``invalid <name> value`` where it raises ValueError."""

    def parse(text: str) -> T:
        value = convert(text)
        if not fits(value):
            raise ValueError(text)
        return value

    parse.__name__ = name
    return parse


def _integers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _fractions(text: str) -> tuple[float, ...]:
    return tuple(float(part) for part in text.split(","))


MOST_LAYERS = 1000  # what a model may have that is to be loaded again
MOST_CHANNELS = 2**20  # of a layer, all heads together: products of sizes stay far from what 64 bits hold

positive = _kind("positive integer", int, lambda value: value >= 1)
threads = _kind("number of threads", int, lambda value: 1 <= value < 2**31)
thread_counts = _kind(
    "list of numbers of threads from 1 to 1024, each once",  # OpenMP ends the process where it cannot start them
    _integers,
    lambda values: len(set(values)) == len(values) and all(1 <= v <= 1024 for v in values),
)
time_limit = _kind("number of seconds over 0", float, lambda value: 0 < value <= 1e6)
layers = _kind(f"number of layers from 1 to {MOST_LAYERS}", int, lambda value: 1 <= value <= MOST_LAYERS)
members = _kind("number of members from 16 to 2147483647", int, lambda value: 16 <= value < 2**31)
channels = _kind(f"number from 1 to {MOST_CHANNELS}", int, lambda value: 1 <= value <= MOST_CHANNELS)
seed = _kind("seed", int, lambda value: 0 <= value < 2**63)
chance = _kind("chance in [0, 1)", float, lambda value: 0 <= value < 1)
count = _kind("number of 0 or more", int, lambda value: 0 <= value < 2**31)
temperature = _kind("number over 0", float, lambda value: 0 < value < 1e6)
rate = _kind("rate", float, lambda value: 0 <= value < 1e6)
fan_outs = _kind("fan-out list", _integers, lambda values: all(v == -1 or 0 < v < 2**31 for v in values))
split = _kind("list of fractions", _fractions, lambda _: True)  # `check_fractions` says more
path = _kind("path", str, bool)  # an empty one, as "$OUT" may be, would mean the current folder
