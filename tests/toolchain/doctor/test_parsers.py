"""Parsers of what others write: any text is read or refused, none raises (SAGE_ATTENTION_FUZZ: inputs to each)."""

from __future__ import annotations

import json
import os
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.toolchain.doctor.machine_folders import FOLDER, NAMES, load

from sage_attention.toolchain import identity
from sage_attention.toolchain.doctor import show
from sage_attention.toolchain.doctor.facts import gather
from sage_attention.toolchain.doctor.gather import cuda, index, linux, packages, programs, python_sources, visual_studio
from sage_attention.toolchain.doctor.judge import judge
from sage_attention.toolchain.doctor.versions import accepts, numbers
from sage_attention.toolchain.registry_export import parse_export
from sage_attention.toolchain.system import decode

TEXT_PARSERS = [
    cuda.parse_host_config,
    cuda.parse_nvcc_version,
    identity.from_output,
    index.parse_report,
    index.parse_versions,
    linux.parse_compiler_version,
    numbers,
    parse_export,
    programs.parse_version,
    python_sources.parse_py_json,
    python_sources.parse_py_paths,
    visual_studio.parse_state,
    visual_studio.parse_vswhere,
    lambda text: packages.parse_torch_version(text, "torch"),
    lambda text: packages.parse_distributions(text.splitlines()),
    lambda text: packages.parse_conda_names(text.splitlines()),
    lambda text: accepts(text, "1.2"),
    lambda text: accepts(">=1", text),
]
FRAGMENTS = [
    "_MSC_VER < 1910 || _MSC_VER >= 1940", "#if __GNUC__ > 15", "release 12.4, V12.4.131", "GLIBCXX_3.4.99",
    "-V:3.12 *  C:\\p\\python.exe", '{"versions": [{"executable": 1, "tag": null}]}', "[HKEY_LOCAL_MACHINE\\",
    '[{"installationPath": "C:\\\\VS", "isComplete": 0}]', '"a"=hex(2):41,00,', "@=dword:zz", "__version__ = '2'",
    "cuda: Optional[str] = None", "gcc (x) 13.2.0", '{"install": [{"download_info": {"url": "%41"}}]}',
    "numpy-2.dist-info", "\x00", "\ufeff", "[" * 2000, "9" * 400, "\\\n",
]  # fmt: skip
TEXT = st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.text(max_size=30)), max_size=6).map("".join)
KEYS = [
    "versions", "executable", "tag", "installationPath", "product", "packages", "localizedResources", "install",
    "download_info", "url", "metadata", "version", "installationVersion", "id", "title", "prefix", "bits",
]  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)


COUNT = int(os.environ.get("SAGE_ATTENTION_FUZZ", "2000"))
RECORDED = sorted(path for path in FOLDER.rglob("*") if path.suffix in (".txt", ".json", ".reg", ".h", ".bin"))


def parse(text):
    """Gives a text to every parser."""
    for parser in TEXT_PARSERS:
        parser(text)


@settings(max_examples=COUNT // 5, deadline=None)
@given(TEXT)
def test_any_text(text):
    parse(text)


@settings(max_examples=COUNT // 5, deadline=None)
@given(JSON)
def test_any_json(value):
    parse(json.dumps(value))


def damage(data, dice):
    """Bytes changed, some taken out, some doubled, the end cut off."""
    data = bytearray(data)
    for _ in range(dice.randrange(1, 20)):
        place, kind = dice.randrange(len(data) + 1), dice.randrange(4)
        if kind == 0:
            data[place:place] = dice.choice(FRAGMENTS).encode()
        elif kind == 1:
            del data[place : place + dice.randrange(40)]
        elif kind == 2:
            data[place : place + 30] = data[place : place + 30] * dice.randrange(2, 20)
        elif data:
            data[place % len(data)] = dice.randrange(256)
    return bytes(data[: dice.randrange(len(data) + 1)]) if dice.random() < 0.3 else bytes(data)


def test_damaged_recordings():
    dice = random.Random(20261202)
    originals = [path.read_bytes()[:6000] for path in RECORDED]
    for _ in range(COUNT - 2 * (COUNT // 5)):
        data = damage(dice.choice(originals), dice)
        parse(decode(data, dice.choice([None, 932, 936, 1252, 65001])))


@settings(max_examples=COUNT // 5, deadline=None)
@given(st.binary(max_size=300), st.sampled_from([None, 932, 936, 1252, 65001, 99999]))
def test_any_bytes_decode(data, page):
    assert isinstance(decode(data, page), str)
    linux.newest_glibcxx(data)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "gbk"])
def test_encodings_of_windows(encoding):
    text = "生成工具 2022 已安装"
    assert decode(text.encode(encoding), 936) == text


def test_utf_16_without_a_mark():
    assert decode("Visual Studio".encode("utf-16-le")) == "Visual Studio"


@pytest.mark.parametrize("bits", [32, 64])
def test_views_of_the_registry(bits):
    text = "Windows Registry Editor Version 5.00\r\n\r\n[HKEY_LOCAL_MACHINE\\SOFTWARE\\WOW6432Node\\Kits]\r\n"
    text += '"Root"="C:\\\\Kits\\\\"\r\n"Path"=hex(2):43,00,3a,00,\\\r\n  00,00\r\n'
    keys = parse_export(text)
    place = "hklm\\software\\kits" if bits == 32 else "hklm\\software\\wow6432node\\kits"
    assert dict(keys[place, bits].values) == {"Root": "C:\\Kits\\", "Path": "C:"}
    assert ("hklm\\software\\kits", 64) not in keys


@pytest.mark.parametrize("parser", TEXT_PARSERS)
@pytest.mark.parametrize("piece", [" ", "9", ".", "9.", "-", "* ", "-V:3 ", "\\\n", "#if ", '"', "[", "a-"])
def test_long_repetitions_end(parser, piece):
    # A pattern that backtracks without end would run into the timeout of the test run.
    parser(piece * 20_000)
    parser("-V:3.12 " + piece * 20_000 + "x")


def test_py_of_every_age():
    text = (
        "Installed Pythons found by py Launcher for Windows\n"
        "  *               C:\\w\\venv\\Scripts\\python.exe\n"
        " -V:3.13t         C:\\Program Files\\Python313\\python3.13t.exe\n"
        " -V:ContinuumAnalytics/py312-64 C:\\conda\\python.exe\n"
        " -3.7-32          C:\\Python37-32\\python.exe\n"
        " -2.7-64 *        C:\\Python27\\python.exe\n"
    )
    found = python_sources.parse_py_paths(text)
    assert [(c.executable.rpartition("\\")[2], c.version, c.architecture, c.company) for c in found] == [
        ("python.exe", "", "", ""),
        ("python3.13t.exe", "3.13", "", ""),
        ("python.exe", "", "64bit", "ContinuumAnalytics"),
        ("python.exe", "3.7", "32bit", ""),
        ("python.exe", "2.7", "64bit", ""),
    ]


def test_damaged_answers_never_end_the_doctor():
    """Every program answers with its own output, cut and with bytes changed."""
    dice = random.Random(1202)
    for number in range(max(len(NAMES), COUNT // 20)):
        machine = load(NAMES[number % len(NAMES)])
        original = machine._bytes
        machine._bytes = lambda content, original=original: damage(original(content), dice)
        machine._contents = {path: damage(data, dice) for path, data in machine._contents.items()}
        facts = gather(machine)
        assert [problem for problem in facts.problems if problem.reason == "crashed"] == []
        findings = judge(facts)
        assert [finding.values for finding in findings if finding.id == "probe.crashed"] == []
        for language in ("en", "zh"):
            json.loads(show.as_json(findings, language, windows=facts.windows))
            assert show.as_text(findings, language, windows=facts.windows, verbose=True)
