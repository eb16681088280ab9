"""The scripts of ``doctor env``: the right compiler, named so that vcvarsall understands, quoted for each shell."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from tests.toolchain.doctor.machine_folders import facts_of

from sage_attention.errors import ArgumentError
from sage_attention.toolchain.doctor.activation import Plan, plan, script

VS = "C:\\Program Files\\Microsoft Visual Studio\\2022\\Professional\\VC\\Auxiliary\\Build\\vcvarsall.bat"


def test_the_toolset_that_cuda_accepts_is_the_default():
    made = plan(facts_of("two_toolsets"))
    assert made.vcvarsall == VS
    assert made.arguments == ("x64", "-vcvars_ver=14.38")
    variables = dict(made.variables)
    assert variables["DISTUTILS_USE_SDK"] == variables["MSSdk"] == "1"
    assert variables["CUDA_HOME"].endswith("v12.3")
    assert variables["MAX_JOBS"] == "6"


def test_a_toolset_that_nvcc_refuses_is_given_with_a_warning():
    made = plan(facts_of("two_toolsets"), "14.44")
    assert made.arguments == ("x64", "-vcvars_ver=14.44")
    assert any("REFUSES" in line for line in made.about)


@pytest.mark.parametrize(
    ("name", "target", "words"),
    [
        ("arm64", None, ("arm64", "-vcvars_ver=14.40")),
        ("arm64", "x64", ("arm64_amd64", "-vcvars_ver=14.40")),
        ("two_toolsets", "x86", ("amd64_x86", "-vcvars_ver=14.44")),
        ("mixed", None, ("amd64_x86", "10.0.19041.0", "-vcvars_ver=14.39")),  # the newer SDK is half there
    ],
)
def test_words_for_vcvarsall(name, target, words):
    assert plan(facts_of(name), target=target).arguments == words


def test_an_older_gcc_for_cuda():
    made = plan(facts_of("linux_cuda"))
    variables = dict(made.variables)
    assert variables["CXX"] == variables["CUDAHOSTCXX"] == "/usr/bin/g++-11"
    assert variables["CC"] == "/usr/bin/gcc-11"
    assert variables["NVCC_PREPEND_FLAGS"] == "-ccbin /usr/bin/g++-11"
    assert made.folders == ("/opt/venv/bin", "/usr/local/cuda/bin")


@pytest.mark.parametrize(
    ("name", "toolset", "target", "message"),
    [
        ("two_toolsets", "14.29", None, "installed: 14.44.35207, 14.38.33130"),
        ("two_toolsets", "latest", None, "--toolset: expected"),
        ("vs2019", None, "arm64", "--target: expected one that an installed MSVC builds for"),
        ("nothing", None, None, "installed: none"),
        ("linux_bare", None, None, "a C\\+\\+ compiler on PATH"),
        ("ubuntu", "99", None, "installed: gcc 13.3.0"),
        ("ubuntu", None, "arm64", "--target: expected x64"),
    ],
)
def test_what_is_not_there_is_said(name, toolset, target, message):
    with pytest.raises(ArgumentError, match=message):
        plan(facts_of(name), toolset, target)


HOSTILE = Plan(
    ("a 100% 'line'",),
    "C:\\Tools & more\\it's 50%\\vcvarsall.bat",
    ("x64", "-vcvars_ver=14.38"),
    (("CUDA_HOME", "C:\\it's $(here) %PATH%"),),
    ("C:\\a;b's",),
)


def test_cmd_quotes_percent_signs():
    lines = script(HOSTILE, "cmd").splitlines()
    assert '@set "CUDA_HOME=C:\\it\'s $(here) %%PATH%%"' in lines
    assert lines[-1] == '@set "PATH=C:\\a;b\'s;%PATH%"'
    assert all(line.startswith("@") for line in lines)


def test_powershell_quotes_apostrophes():
    lines = script(HOSTILE, "powershell").splitlines()
    assert "$env:CUDA_HOME = 'C:\\it''s $(here) %PATH%'" in lines
    assert lines[-1] == "$env:PATH = 'C:\\a;b''s;' + $env:PATH"


def powershell_value(expression):
    """What a sum of single-quoted strings and ``[char]`` is, by PowerShell's rules; anything else is refused."""
    inner = expression[1:-1] if expression.startswith("(") else expression
    units, at = [], 0
    while at < len(inner):
        match = re.compile(r"'((?:[^']|'')*)'|\[char\]0x([0-9A-F]{4})").match(inner, at)
        assert match, inner[at:]
        assert at or match[1] is not None, "the first of a sum decides its type"
        units.append((match[1] or "").replace("''", "'").encode("utf-16-le") if match[2] is None
                     else int(match[2], 16).to_bytes(2, "little"))  # fmt: skip
        at = match.end()
        if at < len(inner):
            assert inner.startswith(" + ", at), inner[at:]
            at += 3
    return b"".join(units).decode("utf-16-le")


@pytest.mark.parametrize(
    "folder",
    ["C:\\Program Files", "C:\\it's", "C:\\用户\\李", "用户", "C:\\don’t ‘quote’", "C:\\a`b$(c)", "C:\\😀", "", "''"],
)
def test_powershell_gets_every_path_as_it_is(folder):
    made = Plan(
        ("用户\nSet-Item x",), folder + "\\vcvarsall.bat", ("x64",), (("CUDA_HOME", folder),), (folder, "D:\\b")
    )
    lines = script(made, "powershell").splitlines()
    assert lines[0] == "# 用户 Set-Item x"
    assert all(line.isascii() for line in lines[1:])
    assert not re.search(r'"[^"]*\$env:\w+:', "\n".join(lines)), "the second colon would belong to the name"
    (called,) = [line for line in lines if line.startswith("cmd.exe")]
    call = called.removeprefix("cmd.exe /d /s /c ").removesuffix(" | ForEach-Object {")
    assert powershell_value(call) == f'"{folder}\\vcvarsall.bat" x64 >nul & set'
    (home,) = [line for line in lines if line.startswith("$env:CUDA_HOME = ")]
    assert powershell_value(home.partition(" = ")[2]) == folder
    assert powershell_value(lines[-1].removeprefix("$env:PATH = ").removesuffix(" + $env:PATH")) == f"{folder};D:\\b;"


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_runs_and_sets_what_it_says():
    made = Plan(("x",), None, (), (("CC", "/opt/a b/gcc'"), ("NVCC_PREPEND_FLAGS", "-ccbin $(false)")), ("/opt/a b",))
    program = script(made, "bash") + 'printf "%s\\n" "$CC" "$NVCC_PREPEND_FLAGS" "$PATH"\n'
    done = subprocess.run(["bash", "-eu", "-c", program], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines[:2] == ["/opt/a b/gcc'", "-ccbin $(false)"]
    assert lines[2].startswith("/opt/a b:")
