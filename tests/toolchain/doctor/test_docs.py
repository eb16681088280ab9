"""The story in ``docs/doctor.md`` is what the doctor really prints."""

from __future__ import annotations

import re
from pathlib import Path

from tests.toolchain.doctor.machine_folders import facts_of, findings_of

from sage_attention.toolchain.doctor.activation import plan, script
from sage_attention.toolchain.doctor.show import as_text

PAGE = Path(__file__).parents[3] / "docs" / "doctor.md"


def blocks(first):
    """The parts, between dots, of the block that starts with a command."""
    text = PAGE.read_text(encoding="utf-8")
    (block,) = [b for b in re.findall(r"```\n(.*?)```", text, re.DOTALL) if b.startswith(first)]
    lines = [line for line in block.splitlines() if not line.startswith("> ")]
    return "\n".join(lines).split("\n...")


def test_the_story():
    printed = as_text(findings_of("two_toolsets"), "en", windows=True)
    for part in blocks("> sage-attention doctor\n"):
        assert part.strip("\n") in printed


def test_the_script():
    made = script(plan(facts_of("two_toolsets")), "cmd")
    for part in blocks("> sage-attention doctor env"):
        assert part.strip("\n") in made
