"""The machine, as far as anything tells."""

from __future__ import annotations

import sys

import pytest

from sage_attention import __version__, _native
from sage_attention.bench import machine as module
from sage_attention.bench.machine import free_memory, machine


def test_this_machine():
    here = machine()
    assert here.cores >= here.usable_cores >= 1
    assert here.cpu_level == _native.cpu_level()
    assert here.cpu_level in here.cpu_levels
    assert here.page_size >= 4096
    assert here.cpu
    assert here.versions["sage_attention"] == __version__
    assert len(here.lines()) == 3


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_linux_tells_without_psutil(monkeypatch):
    pytest.importorskip("psutil")
    total, free = machine().memory_gib, free_memory()
    monkeypatch.setitem(sys.modules, "psutil", None)
    assert machine().memory_gib == pytest.approx(total)
    assert free_memory() == pytest.approx(free, rel=0.5)


def test_where_nothing_tells(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "psutil", None)
    for name in ("_MEMINFO", "_CPUINFO", "_HUGE_PAGES"):
        monkeypatch.setattr(module, name, tmp_path / "none")
    here = machine()
    assert here.memory_gib is None
    assert free_memory() is None
    assert here.transparent_huge_pages == "none"
    assert "memory unknown" in here.lines()[0]
    assert here.cpu


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="they tell in other ways")
@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("processor\t: 0\nmodel name\t: AMD EPYC 9754\nmodel name\t: other\n", "AMD EPYC 9754"),
        ("processor\t: 0\nBogoMIPS\t: 50\n\nModel\t\t: Raspberry Pi 5\n", "Raspberry Pi 5"),
    ],
)
def test_names_of_processors(monkeypatch, tmp_path, text, name):
    (tmp_path / "cpuinfo").write_text(text)
    monkeypatch.setattr(module, "_CPUINFO", tmp_path / "cpuinfo")
    assert machine().cpu == name


def test_torch_is_asked_only_where_it_was_loaded(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    here = machine()
    assert here.torch_cpu_level is None
    assert here.torch_huge_pages is None
    assert "PyTorch" not in " ".join(here.lines())
