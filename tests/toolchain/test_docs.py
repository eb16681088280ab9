"""What ``docs/origin.md`` and the README show is what the tools print."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.toolchain.doctor.machine_folders import facts_of, findings_of

from sage_attention.toolchain.doctor.activation import plan, script
from sage_attention.toolchain.doctor.show import as_text as doctor_text
from sage_attention.toolchain.explain import explain
from sage_attention.toolchain.explain.show import as_text as explain_text

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "origin.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```\n([$>] .*?)^```", PAGE, re.DOTALL | re.MULTILINE)
EXPLAINED = [block for block in BLOCKS if "| sage-attention explain" in block]
# The page tells of these machines, without their names.
MACHINES = {
    "CUDA extensions can be built": "two_toolsets",
    "python38_d.lib": "vs2019",
    "developer prompt without": "wrong_link",
    "half a developer prompt": "half_prompt",
    "NumPy 1.21.6": "vs2019",
    "memory 32 GB": "two_toolsets",
}
DOCTORED = [
    block for block in BLOCKS if block.startswith(("> sage-attention doctor\n", "> sage-attention doctor -v\n"))
]


def parts(block):
    command, _, shown = block.partition("\n")
    return command, shown.splitlines()


def test_all_kinds_are_there():
    assert len(EXPLAINED) >= 15
    assert len(DOCTORED) == len(MACHINES)


@pytest.mark.parametrize("block", EXPLAINED, ids=lambda block: block[8:48])
def test_explained(block):
    command, shown = parts(block)
    log = re.search(r"echo (['\"])(.*)\1 \|", command)[2]
    printed = explain_text(explain(log), "en").splitlines()
    assert [line for line in shown if line not in printed] == []


@pytest.mark.parametrize("block", DOCTORED, ids=lambda block: block.splitlines()[-1][:40])
def test_doctored(block):
    command, shown = parts(block)
    (machine,) = {name for mark, name in MACHINES.items() if mark in block}
    printed = doctor_text(findings_of(machine), "en", windows=True, verbose="-v" in command).splitlines()
    assert [line for line in shown if line not in printed] == []


@pytest.mark.parametrize("page", ["README.md", "docs/explain.md"])
def test_the_story(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    title, quote = re.search(r"(.* \[windows_sdk_missing\].*)\n  line 24: (.*)\n", text).groups()
    printed = explain_text(explain("\n" * 23 + quote), "en").splitlines()
    assert printed[0] == title
    assert printed[1] == f"  line 24: {quote}"


def test_script():
    (block,) = [block for block in BLOCKS if block.startswith("> sage-attention doctor env\n")]
    made = script(plan(facts_of("vs2022_17_9")), "cmd").splitlines()
    assert [line for line in parts(block)[1] if line not in made] == []
