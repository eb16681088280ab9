"""The logs of this repository: the expected causes, in the expected order."""

from __future__ import annotations

import pytest

from sage_attention.toolchain.explain import explain
from toolchain.explain.fixtures import FOLDER, INDEX, read


@pytest.mark.parametrize("name", sorted(INDEX))
def test_fixture(name):
    answer = explain(read(name))
    expected = INDEX[name]
    assert answer.verdict == expected["verdict"]
    causes = [finding.cause for finding in answer.findings]
    assert causes[: len(expected["causes"])] == expected["causes"]


def test_every_log_is_listed():
    there = {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.log")}
    assert {name for name in there if not name.startswith("msvc/")} == set(INDEX)


@pytest.mark.parametrize("name", sorted(name for name in INDEX if INDEX[name]["verdict"] == "explained"))
def test_evidence_is_quoted_as_it_stands(name):
    text = read(name).decode("utf-8", "replace").replace("\r", "").split("\n")
    for finding in explain(read(name)).findings:
        assert finding.evidence
        for evidence in finding.evidence:
            assert evidence.text.removesuffix(" …") in text[evidence.line - 1]
