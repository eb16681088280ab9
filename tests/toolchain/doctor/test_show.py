"""Texts: complete in both languages, filled, and harmless to a terminal."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.toolchain.doctor.machine_folders import NAMES, facts_of, findings_of

import sage_attention.toolchain.doctor as doctor
from sage_attention.toolchain.data_files import table
from sage_attention.toolchain.doctor import show
from sage_attention.toolchain.doctor.judge.finding import SECTIONS, Finding

TEXTS = table("doctor/texts")
SOURCE = Path(doctor.__file__).parent
BLANK = re.compile(r"(?<!\{)\{(\w+)\}(?!\})")


@pytest.mark.parametrize("name", TEXTS["findings"])
def test_both_languages_say_the_same(name):
    entry = TEXTS["findings"][name]
    blanks = set(BLANK.findall(entry["en"]))
    assert set(BLANK.findall(entry["zh"])) == blanks
    # What has no Chinese character says nothing but names and values.
    assert re.search(r"[\u4e00-\u9fff]", entry["zh"]) or len(re.sub(r"\{\w+\}", "", entry["en"])) < 24
    if "advice" in entry:
        assert set(entry["advice"]) == {"en", "zh"}
    assert set(entry.get("commands", {})) <= {"cmd", "powershell", "windows", "sh", "any"}


def test_sections_have_titles():
    assert set(TEXTS["sections"]) == set(SECTIONS)


def test_every_id_in_the_code_has_a_text():
    code = "\n".join(path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py"))
    first = "|".join({name.partition(".")[0] for name in TEXTS["findings"]})
    named = set(re.findall(rf'"((?:{first})\.[a-z0-9_.]+)"', code))
    others = {"cuda.h", "python.exe", "python.org", "compilers.none", "compilers.no_cxx"}  # files, kinds, beginnings
    assert {name for name in named if not name.endswith(".")} - others <= set(TEXTS["findings"])


def test_every_text_is_said_by_somebody():
    code = "\n".join(path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py"))
    built = ("probe.", "compilers.none.", "compilers.no_cxx.", "python.header_missing.", "package.", "packages.")
    assert [n for n in TEXTS["findings"] if f'"{n}"' not in code and not n.startswith(built)] == []
    rules = {f"packages.{rule['id']}" for rule in table("doctor/package_rules")["rules"]}
    assert {n for n in TEXTS["findings"] if n.startswith("packages.")} == rules | {"packages.found"}
    notes = {
        f"package.note.{note['id']}" for row in table("doctor/packages")["packages"] for note in row.get("notes", ())
    }
    assert {n for n in TEXTS["findings"] if n.startswith("package.note.")} == notes


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("language", ["en", "zh"])
def test_no_blank_stays_empty(name, language):
    text = show.as_text(findings_of(name), language, windows=facts_of(name).windows, verbose=True)
    assert BLANK.findall(text.replace("${env:", "")) == []


@pytest.mark.parametrize("name", NAMES)
def test_json(name):
    found = json.loads(show.as_json(findings_of(name), "en", windows=facts_of(name).windows))
    assert set(found) == {"status", "can_build", "findings"}
    assert set(found["can_build"]) == {"cpp", "cuda"}
    assert found["status"] == next(
        (s for s in ("fail", "warn") if any(f["status"] == s for f in found["findings"])), "ok"
    )
    for finding in found["findings"]:
        assert set(finding) == {"section", "status", "id", "text", "advice", "commands", "values", "details"}


def test_what_stands_in_files_cannot_steer_the_terminal():
    finding = Finding(
        "python", "warn", "python.pythonhome", {"value": "a\x1b[31m\r\nb\u202e{value}{0.__class__}"}, ("\x07",)
    )
    text = show.as_text([finding], "en", windows=True, verbose=True)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\x07" not in text
    assert "a [31m  b {value}{0.__class__}" in text


def test_tables_name_their_sources():
    for name, rows in (
        ("cuda_architectures", ["rows"]),
        ("cuda_host_compilers", ["rows"]),
        ("libstdcxx", ["rows"]),
        ("package_rules", ["rules"]),
        ("torch_cuda", ["rows", "language"]),
        ("visual_studio", ["toolsets", "sdks"]),
    ):
        for key in rows:
            assert all(row["source"] for row in table(f"doctor/{name}")[key]), name
    assert all(note["source"] for row in table("doctor/packages")["packages"] for note in row.get("notes", ()))


def test_tables_agree_with_each_other():
    for row in table("doctor/visual_studio")["toolsets"]:
        assert row["msc_ver"] == 1900 + int(row["toolset"].split(".")[1])
    bounds = [row["msvc"] for row in table("doctor/cuda_host_compilers")["rows"]]
    assert bounds == sorted(bounds)
    gcc = [row["gcc"] for row in table("doctor/cuda_host_compilers")["rows"]]
    assert gcc == sorted(gcc)
