"""Real build failures with their established causes: how many of them are explained, and in which disguises."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sage_attention.toolchain.explain import explain
from toolchain.explain.fixtures import healthy_lines

FAILURES = Path(__file__).parents[4] / "shared" / "build_failures.jsonl"
if not FAILURES.is_file():
    pytest.skip("the collection of build failures is not beside the repository", allow_module_level=True)
CASES = [json.loads(line) for line in FAILURES.read_text(encoding="utf-8").splitlines()]
ESTABLISHED = [case for case in CASES if case["certainty"] in ("confirmed", "maintainer", "community")]
VERDICTS = {"insufficient_log": "insufficient", "warnings_only_no_failure": "no_failure"}


def is_right(case, answer):
    """Whether the first finding is the established cause, or holds it among its first three candidates."""
    expected = VERDICTS.get(case["cause_class"], "explained")
    if answer.verdict != expected:
        return False
    if expected != "explained":
        return True
    first = answer.findings[0]
    return case["cause_class"] in ([one.cause for one in first.candidates[:3]] or [first.cause])


def share(cases, disguise=None):
    """The share of right answers, and which are wrong."""
    wrong = [
        case["id"] for case in cases if not is_right(case, explain(disguise(case["log"]) if disguise else case["log"]))
    ]
    return 1 - len(wrong) / len(cases), wrong


def test_established_causes_come_first():
    right, wrong = share(ESTABLISHED)
    assert right >= 0.95, wrong


def test_unconfirmed_causes_mostly_agree():
    right, wrong = share([case for case in CASES if case not in ESTABLISHED])
    assert right >= 0.85, wrong


def without(text, encoding):
    """What of a text an encoding can hold."""
    return text.encode(encoding, "ignore").decode(encoding)


def colours(log):
    lines = [line.replace("error", "\x1b[01;31m\x1b[Kerror\x1b[m\x1b[K") for line in log.splitlines()]
    return "".join(f"\x1b[0m{line}\x1b[0m\n" for line in lines)


def among_healthy_lines(log):
    lines = healthy_lines(5000)
    return b"\n".join([*lines[:2500], *log.encode().splitlines(), *lines[2500:]])


DISGUISES = {
    "UTF-16": lambda log: log.encode("utf-16"),
    "UTF-16 without a mark": lambda log: log.encode("utf-16-le"),
    "UTF-16 big-endian": lambda log: b"\xfe\xff" + log.encode("utf-16-be"),
    "UTF-8 with a mark": lambda log: log.encode("utf-8-sig"),
    "Windows line ends": lambda log: log.replace("\n", "\r\n"),
    "colours": colours,
    "time stamps": lambda log: "".join(f"2026-05-01T10:00:00.1234567Z {line}\n" for line in log.splitlines()),
    "5,000 healthy lines": among_healthy_lines,
}


@pytest.mark.parametrize("name", DISGUISES)
def test_disguises_change_nothing(name):
    for case in CASES[:: 4 if "healthy" in name else 1]:  # long ones take their time
        before, after = explain(case["log"]), explain(DISGUISES[name](case["log"]))
        assert after.verdict == before.verdict, case["id"]
        if before.verdict == "explained":
            assert [f.cause for f in after.findings] == [f.cause for f in before.findings], case["id"]


@pytest.mark.parametrize("encoding", ["gb18030", "gbk"])
def test_chinese_code_page(encoding):
    for case in CASES:
        text = without(case["log"], encoding)
        assert explain(text.encode(encoding)).verdict == explain(text).verdict, case["id"]
        assert is_right(case, explain(text.encode(encoding))) == is_right(case, explain(text)), case["id"]


def test_two_faults_joined():
    explained = [case for case in CASES if case["cause_class"] not in VERDICTS and is_right(case, explain(case["log"]))]
    lost = []
    for one, other in zip(explained, explained[1:] + explained[:1]):
        first, second = explain(one["log"]).findings[0], explain(other["log"]).findings[0]
        causes = [finding.cause for finding in explain(one["log"] + "\n" + other["log"] + "\n").findings]
        lost += [(one["id"], other["id"], cause) for cause in (first.cause, second.cause) if cause not in causes]
    # A cause may be named a consequence of the other one; that is rare.
    assert len(lost) <= 0.05 * 2 * len(explained), lost
