"""Taking turns: who runs when, what is kept after an interruption, and what nobody knows."""

from __future__ import annotations

import gc
import math
import sys

import pytest

from sage_attention.bench import timing
from sage_attention.bench.timing import Timing, alternate, busy_seconds


def test_nobody_always_comes_after_the_same_other():
    calls = []
    steps = {name: (lambda name=name: calls.append(name)) for name in "abc"}
    timings = alternate(steps, rounds=3, warm_up=1)
    assert "".join(calls) == "abc" + "bca" + "cab" + "abc"
    assert {name: len(one.wall) for name, one in timings.items()} == {"a": 3, "b": 3, "c": 3}


def test_time_ends_it_but_not_before_the_least_rounds():
    done = alternate({"a": int}, rounds=50, warm_up=0, seconds=0.0, least_rounds=4)
    assert len(done["a"].wall) == 4


def test_what_was_timed_before_an_interruption_is_kept():
    calls = []

    def step():
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt

    kept: dict[str, Timing] = {}
    with pytest.raises(KeyboardInterrupt):
        alternate({"a": step, "b": int}, rounds=5, warm_up=0, into=kept)
    assert len(kept["a"].wall) == 3
    assert gc.isenabled()


def test_the_collector_stays_off_where_it_was():
    gc.disable()
    try:
        alternate({"a": int}, rounds=1)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_summary():
    one = Timing([4.0, 1.0, 2.0, 3.0], [1.0, 1.0, 1.0, 1.0], [0.25, 0.75])
    assert one.quartiles == (1.75, 3.25)
    assert one.summary() == {
        "median_s": 2.5, "least_s": 1.0, "median_cpu_s": 1.0, "spread": 0.6, "rounds": 4, "others_share": 0.5
    }  # fmt: skip


def test_what_is_not_known_is_none():
    one = Timing([2.0], [1.0])
    assert math.isnan(one.spread)
    assert math.isnan(one.others_share)
    assert one.summary()["spread"] is None
    assert one.summary()["others_share"] is None


def test_busy_seconds_never_fall():
    first = busy_seconds()
    if first is None:
        pytest.skip("nothing tells")
    assert 0 <= first <= busy_seconds()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/stat")
def test_linux_tells_without_psutil(monkeypatch):
    pytest.importorskip("psutil")
    with_it = busy_seconds()
    monkeypatch.setitem(sys.modules, "psutil", None)
    assert busy_seconds() == pytest.approx(with_it, abs=60, rel=1e-3)


def test_where_nothing_tells(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "psutil", None)
    monkeypatch.setattr(timing, "_STAT", tmp_path / "none")
    assert busy_seconds() is None
    assert alternate({"a": int}, rounds=2)["a"].others == []


def test_guests_are_not_counted_twice(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "psutil", None)
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 10 40 5000 300 2 3 5 70 7\ncpu0 1 1 1 1 1 1 1 1 1 1\n")
    monkeypatch.setattr(timing, "_STAT", stat)
    monkeypatch.setattr(timing.os, "sysconf", lambda _: 100, raising=False)
    assert busy_seconds() == pytest.approx(1.6)
