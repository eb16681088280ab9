"""Steps and facts are those of the system that the log is from; questions that are one are asked once."""

from __future__ import annotations

import pytest

from sage_attention.toolchain.explain import explain
from sage_attention.toolchain.explain.clean import clean
from sage_attention.toolchain.explain.decode import decode
from sage_attention.toolchain.explain.fill import steps_for
from sage_attention.toolchain.explain.knowledge import load
from sage_attention.toolchain.explain.log import Log
from sage_attention.toolchain.explain.system import fits, system_of
from toolchain.explain.fixtures import INDEX, MSVC, read

GCC = "a.c:1:10: fatal error: sodium.h: No such file or directory\ncompilation terminated.\n"
CL = "a.c(1): fatal error C1083: Cannot open include file: 'sodium.h': No such file or directory\n"
CLANG = "ld: symbol(s) not found for architecture arm64\n/usr/include/a.h\n"


@pytest.mark.parametrize(
    ("text", "system"),
    [
        (GCC, "linux"),
        (CL, "windows"),
        (CLANG, "macos"),
        ("LINK : fatal error LNK1104: cannot open file 'a.lib'", "windows"),
        ("a.c(1): 错误 C2065: “x”: 未声明的标识符", "windows"),
        (r"C:\msys64\mingw64\bin\gcc.exe -c a.c" + "\n" + GCC, ""),
        ("ImportError: numpy.core.multiarray failed to import", ""),
        ("ERROR: a-1-cp311-cp311-manylinux_2_17_x86_64.whl is not a supported wheel on this platform.", ""),
        ("ERROR: a-1-cp311-cp311-win_amd64.whl is not a supported wheel on this platform.", ""),
        ("Looking in indexes: https://example.org/simple", ""),
    ],
)
def test_system_of(text, system):
    assert system_of(Log(clean(text)), load()) == system


def test_what_microsoft_tools_print_is_of_windows():
    failed = [f"msvc/{name}" for name, made in MSVC.items() if made["cause"]]
    systems = {name: system_of(Log(clean(decode(read(name)))), load()) for name in failed}
    assert set(systems.values()) <= {"windows", ""}
    assert sum(system == "windows" for system in systems.values()) > 0.9 * len(systems)


def shells(text):
    return {step.shell for finding in explain(text).findings for step in finding.fix if step.command}


def test_commands_are_those_of_the_shell():
    assert shells(GCC) == {"sh"}
    assert "sh" not in shells(CL)
    memory = "cc1plus: out of memory allocating 8388584 bytes after a total of 6709248 bytes\n"
    (finding,) = explain(memory).findings
    assert [(step.shell, step.command) for step in finding.fix if step.command] == [("sh", "export MAX_JOBS=1")]
    assert finding.fix[0].note.startswith("For torch"), "what was said at the command for cmd holds for sh"
    assert not any("HostX" in fact for fact in finding.facts_needed)


def test_all_steps_where_the_log_does_not_tell():
    cause = load().causes["compiler_out_of_memory"]
    assert {"cmd", "powershell", "sh"} <= {step.shell for step in steps_for(cause, "", load(), "en")}


@pytest.mark.parametrize("system", ["windows", "linux", "macos"])
@pytest.mark.parametrize("name", sorted(load().causes))
def test_no_system_is_left_without_a_step(name, system):
    cause = load().causes[name]
    steps = steps_for(cause, "sodium.h", load(), "en", system=system)
    assert steps
    foreign = {"windows": {"sh"}, "linux": {"cmd", "powershell"}, "macos": {"cmd", "powershell"}}[system]
    if any(fits(fix.on, system) for fix in cause.fixes):
        assert not any(step.shell in foreign for step in steps)


def test_one_question_is_asked_once():
    (finding,) = explain(read("causes/link_windows/two_own_symbols.log")).findings
    assert len(finding.evidence) == 2
    assert {"source_symbol_not_defined", "missing_link_library"} <= {one.cause for one in finding.candidates}


def test_a_version_that_pip_left_out_is_certain_and_another_is_not():
    (refused,) = explain(read("causes/packaging/asked_version_is_refused.log")).findings
    (unknown,) = explain(read("causes/packaging/version_that_is_not_there.log")).findings
    assert refused.cause == unknown.cause
    assert not refused.candidates
    assert "package_name_wrong" in {one.cause for one in unknown.candidates}


def test_titles_without_a_subject_end_cleanly():
    titles = {finding.title for name in INDEX for finding in explain(read(name)).findings}
    assert not [title for title in titles if title.rstrip().endswith((":", "：", ","))]
