"""Changed files end in an answer or a DataError: no other exception, no hang, no memory without bound.

``SAGE_ATTENTION_FUZZ`` says how many inputs in all.
"""

from __future__ import annotations

import os
import random
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("pefile", reason="Windows files are read with pefile")
pytest.importorskip("elftools", reason="Linux files are read with pyelftools")
pytest.importorskip("hypothesis", reason="inputs are made by hypothesis")

import hypothesis
from hypothesis import strategies as st
from tests.toolchain.inspect import binaries

from sage_attention import DataError
from sage_attention.toolchain.inspect import reading
from sage_attention.toolchain.inspect.dll_directories import added_folders
from sage_attention.toolchain.inspect.document import document
from sage_attention.toolchain.inspect.expected import declared
from sage_attention.toolchain.inspect.judge import judge
from sage_attention.toolchain.inspect.subject import find_subject
from sage_attention.toolchain.inspect.survey import survey
from sage_attention.toolchain.inspect.tags import module_name
from sage_attention.toolchain.inspect.target import describe_target
from sage_attention.toolchain.inspect.text import render

WHOLE = {
    "pe": binaries.pe(
        {"KERNEL32.dll": ["Sleep"], "x.dll": [3, "f"]}, ["PyInit_a"], delayed={"d.dll": ["h"]}, version=(14, 1, 2, 3),
        manifest="M", pdb="a.pdb", load_flags=0x800,
    ),
    "pe32": binaries.pe({"KERNEL32.dll": ["Sleep"]}, ["PyInit_a"], machine="x86"),
    "elf": binaries.elf(["libc.so.6"], ["f"], rpath="/a", versions={"libc.so.6": {"GLIBC_2.2.5": ["memcpy"]}}),
    "macho": binaries.macho(["@rpath/a", "?/b"], ["f"], undefined=["g"], rpaths=["/r"], install_name="n"),
    "universal": binaries.universal(binaries.macho(["/a"]), binaries.macho(machine=0x01000007)),
}  # fmt: skip
NUMBERS = [0, 1, 0x7F, 0xFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 63, (1 << 64) - 1]
MAGIC = [b"MZ", b"\x7fELF\x02\x01\x01", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe\0\0\0\2"]
HEAD = 2048  # where the structures are
MEMBERS = {
    "p/__init__.py": b"import os\nos.add_dll_directory(os.path.join(os.path.dirname(__file__), 'lib'))\n",
    "p/_a.cp311-win_amd64.pyd": binaries.pe({"x.dll": ["f"], "python311.dll": ["PyModule_Create2"]}, ["PyInit__a"]),
    "p/x.dll": binaries.pe({"y.dll": ["g"]}, ["f"]),
    "p/lib/y.dll": binaries.pe({"x.dll": ["f"], "VCRUNTIME140D.dll": ["memset"]}, ["g"]),
}
TARGET = describe_target(None, None, None, None, (), ())


def share(parts):
    """So many of 100 parts of all inputs."""
    return int(os.environ.get("SAGE_ATTENTION_FUZZ", "4000")) * parts // 100


def settings(examples):
    checks = [hypothesis.HealthCheck.function_scoped_fixture, hypothesis.HealthCheck.too_slow]
    return hypothesis.settings(max_examples=max(1, examples), deadline=None, suppress_health_check=checks)


def readable(data):
    """True or False; anything but an answer or a DataError goes through."""
    name = reading._format_of(data[:8])
    if name is None:
        return False
    try:
        return bool(reading._read(name, data, Path("file")))
    except DataError:
        return False


def changed(data, rng, head=HEAD):
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        place = rng.randrange(min(len(data), head) if rng.random() < 0.7 else len(data))
        kind = rng.randrange(4)
        if kind == 0:
            data[place] ^= 1 << rng.randrange(8)
        elif kind == 1:
            size = rng.choice((2, 4, 8))
            data[place : place + size] = (rng.choice(NUMBERS) & ((1 << 8 * size) - 1)).to_bytes(size, "little")
        elif kind == 2:
            del data[place : place + rng.randrange(1, 100)]
        else:
            data[place : place + 32] = data[(start := rng.randrange(len(data))) : start + 32]
        if not data:
            break
    return bytes(data)


@pytest.mark.parametrize("name", WHOLE)
def test_changed_files(name):
    rng = random.Random(name)
    answers = [readable(changed(WHOLE[name], rng)) for _ in range(share(16))]
    assert readable(WHOLE[name])
    assert True in answers
    assert False in answers


def inspected(path):
    """The codes of the findings, from the file to both reports; anything but that or a DataError goes through."""
    with tempfile.TemporaryDirectory() as scratch:
        try:
            found = survey(find_subject(str(path), None, Path(scratch)), TARGET)
        except DataError:
            return None
        findings = judge(found)
        for language in ("en", "zh"):
            assert list(render(found, findings, language, verbose=True))
            assert document(found, findings, language)
        return {item.code for item in findings}


def test_changed_wheels(tmp_path):
    rng = random.Random("wheel")
    whole = binaries.wheel(tmp_path, "p-1.0-cp311-cp311-win_amd64.whl", MEMBERS, requires=["torch"])
    data = whole.read_bytes()
    answers = []
    for _ in range(share(6)):
        whole.write_bytes(changed(data, rng, head=len(data)))
        answers.append(inspected(whole))
    assert None in answers
    assert any(answers)


def test_wheels_of_changed_files(tmp_path):
    rng = random.Random("members")
    answers = []
    for _ in range(share(4)):
        members = {name: changed(data, rng) if rng.random() < 0.6 else data for name, data in MEMBERS.items()}
        answers.append(inspected(binaries.wheel(tmp_path, "p-1.0-cp311-cp311-win_amd64.whl", members)))
    assert len({frozenset(codes or ()) for codes in answers}) > 2


@settings(share(4))
@hypothesis.given(st.sampled_from(MAGIC), st.binary(max_size=4000))
def test_any_bytes_after_a_magic_number(magic, data):
    readable(magic + data)


@settings(share(2))
@hypothesis.given(st.text(max_size=80))
def test_any_name(name):
    found = module_name(name)
    assert found is None or name.startswith(found.module)


@settings(share(2))
@hypothesis.given(st.text(max_size=300))
def test_any_header(text):
    assert all(name in text for name in declared(text))


@settings(share(2))
@hypothesis.given(st.text(max_size=200))
def test_any_python_file(tmp_path, text):
    file = tmp_path / "a.py"
    file.write_text("import os\nos.add_dll_directory(" + text, encoding="utf-8", errors="replace")
    assert isinstance(added_folders([file], tmp_path), list)
