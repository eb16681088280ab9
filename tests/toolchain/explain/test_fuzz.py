"""No input makes it fail: arbitrary bytes and text, and changed logs (SAGE_ATTENTION_FUZZ: how many in all)."""

from __future__ import annotations

import os
import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sage_attention.toolchain.explain import explain
from sage_attention.toolchain.explain.result import VERDICTS
from sage_attention.toolchain.explain.show import as_json, as_text
from toolchain.explain.fixtures import INDEX, MSVC, read

COUNT = int(os.environ.get("SAGE_ATTENTION_FUZZ", "2500"))
ARBITRARY = settings(max_examples=COUNT // 5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
LOGS = [*(read(name) for name in INDEX), *(read(f"msvc/{name}") for name in MSVC)]
PIECES = [
    b"\n", b"\r", b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"'", b'"', b"\\", b"/", b"(", b"[", b"\x1b[31m", b"error ",
    b"fatal error C1083: ", b"LNK2001: ", b"\xd5\xd2\xb2\xbb\xb5\xbd", b"{subject}", b"%s", b" " * 300, b"a" * 5000,
]  # fmt: skip


def check(data):
    answer = explain(data)
    assert answer.verdict in VERDICTS
    for language in ("en", "zh"):
        assert as_text(answer, language)
    as_json(answer).encode("ascii")
    return answer


@ARBITRARY
@given(st.binary(max_size=2000))
def test_bytes(data):
    check(data)


@ARBITRARY
@given(st.text(max_size=1000))
def test_text(text):
    check(text)


def mutated(random_):
    data = bytearray(random_.choice(LOGS)[:20_000])
    for _ in range(random_.randint(1, 12)):
        at = random_.randrange(len(data) + 1)
        action = random_.randrange(6)
        if action == 0:
            del data[at : at + random_.randint(1, 200)]
        elif action == 1:
            data[at:at] = random_.choice(PIECES)
        elif action == 2 and data:
            data[at % len(data)] = random_.randrange(256)
        elif action == 3:
            other = random_.choice(LOGS)
            start = random_.randrange(len(other) + 1)
            data[at:at] = other[start : start + random_.randint(1, 2000)]
        elif action == 4:
            data[at : at + 60] = data[at : at + 60] * random_.randint(2, 30)
        else:
            data = bytearray(bytes(data).decode("utf-8", "replace").encode(random_.choice(["utf-16", "gb18030"])))
    return bytes(data)


def test_mutated_logs():
    random_ = random.Random(20261202)
    for _ in range(COUNT - 2 * (COUNT // 5)):
        check(mutated(random_))


def test_hostile_lines():
    for text in (
        "(" * 50_000,
        "'" * 50_000,
        "LNK2001: " * 6000,
        "error C1083: '" * 4000,
        "C1083: '" + "a.h" * 1000,
        "LNK1104: cannot open " + "a.b" * 1000,
        "DLL load failed while importing " + "a." * 1500 + "DLL load failed: " * 100,
        "error" + " " * 5000 + ":",
        "a " * 100_000,
        "\\n" * 50_000,
    ):
        check(text)
        check((text[:5000] + "\n") * 20)
