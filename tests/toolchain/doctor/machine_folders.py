"""The machines that were written down, and how the tests look at them."""

from __future__ import annotations

import functools
from pathlib import Path

from sage_attention.toolchain.doctor.facts import gather
from sage_attention.toolchain.doctor.judge import judge
from sage_attention.toolchain.recorded import RecordedSystem

FOLDER = Path(__file__).parents[2] / "fixtures" / "machines"
NAMES = sorted(path.parent.name for path in FOLDER.glob("*/machine.json"))


def load(name):
    """A fresh machine, free to be changed."""
    return RecordedSystem(FOLDER / name)


@functools.cache
def facts_of(name):
    return gather(load(name))


def findings_of(name):
    return judge(facts_of(name))


def ids(findings, section=None):
    return [finding.id for finding in findings if section in (None, finding.section)]
