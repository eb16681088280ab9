"""What Microsoft's compiler, linker and CPython really print: the cause, and the line that proves it."""

from __future__ import annotations

import pytest

from sage_attention.toolchain.explain import explain
from toolchain.explain.fixtures import FOLDER, MSVC, read

GOOD = [read("msvc/setuptools_good.log"), read("msvc/cmake_good.log")]
BROKEN = sorted(name for name, case in MSVC.items() if case.get("verdict") != "no_failure")


def assert_found(finding, case):
    """The cause itself, or, where the log alone cannot tell, the cause among the first three candidates."""
    if case.get("undecided"):
        assert case["cause"] in [candidate.cause for candidate in finding.candidates][:3]
    else:
        assert finding.cause == case["cause"]
    assert case["proof"] in finding.evidence[0].text


@pytest.mark.parametrize("name", BROKEN)
def test_root_cause_and_its_proof(name):
    answer = explain(read(f"msvc/{name}"))
    assert answer.verdict == "explained"
    assert_found(answer.findings[0], MSVC[name])


@pytest.mark.parametrize("name", sorted(set(MSVC) - set(BROKEN)))
def test_builds_that_went_well(name):
    assert explain(read(f"msvc/{name}")).verdict == "no_failure"


@pytest.mark.parametrize("name", BROKEN)
def test_amid_builds_that_went_well(name):
    log = b"\n".join([*GOOD * 20, read(f"msvc/{name}"), *GOOD * 20])
    answer = explain(log.decode("utf-8", "replace").encode("utf-16"))
    assert_found(answer.findings[0], MSVC[name])


def test_every_log_is_listed():
    assert {path.name for path in (FOLDER / "msvc").glob("*.log")} == set(MSVC)


def test_most_logs_decide():
    assert sum(bool(case.get("undecided")) for case in MSVC.values()) <= len(MSVC) // 20
