"""When nothing failed, when a log does not say enough, when a failure is unknown, and what is cause or consequence."""

from __future__ import annotations

import pytest

from sage_attention.toolchain.explain import explain
from toolchain.explain.fixtures import INDEX, healthy_lines, read

HEALTHY = sorted(name for name in INDEX if name.startswith("healthy/"))


def causes(log, language="en"):
    return [finding.cause for finding in explain(log, language).findings]


def test_there_are_healthy_logs():
    assert len(HEALTHY) >= 10


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_logs_have_no_failure(name):
    assert explain(read(name)).verdict == "no_failure"


def test_all_healthy_logs_together():
    assert explain(b"\n".join(healthy_lines(20_000))).verdict == "no_failure"


@pytest.mark.parametrize(
    "log",
    [
        "error: command 'C:\\\\VS\\\\cl.exe' failed with exit code 2",
        "ninja: build stopped: subcommand failed.",
        "subprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 1.",
        "ERROR: Failed building wheel for torch-sparse\nFailed to build torch-sparse",
        "make: *** [Makefile:12: all] Error 2",
        "CMake Error: CMake was unable\n-- Configuring incomplete, errors occurred!".partition("\n")[2],
        "core.pyd : fatal error LNK1120: 3 unresolved externals",
        "RuntimeError: Error compiling objects for extension",
        "error: cargo failed with code: 101",
        "×  Building wheel for x (pyproject.toml) did not run successfully.\n│ exit code: 1",
        "Original error was: DLL load failed: The specified module could not be found.",
        "",
        "\n\n   \n",
    ],
)
def test_wrappers_alone_are_insufficient(log):
    answer = explain(log)
    assert answer.verdict == "insufficient"
    assert answer.findings[0].facts_needed


@pytest.mark.parametrize(
    "log",
    [
        "src\\a.cpp(12): error C2100: illegal indirection\nerror: command 'cl.exe' failed with exit code 2",
        "a.c:3:5: error: expected ';' before 'return'\nninja: build stopped: subcommand failed.",
        "FrobnicationError: the frob is out of gloop",
        "nvcc fatal   : The frob is out of gloop",
        "ptxas fatal   : Unresolved extern function 'frob'",
        "CMake Error at CMakeLists.txt:7 (frobnicate):\n  no frob\n-- Configuring incomplete, errors occurred!",
    ],
)
def test_unknown_failures_are_said_to_be_unknown(log):
    answer = explain(log)
    assert answer.verdict == "unknown"
    assert answer.findings[0].evidence[0].line == 1


@pytest.mark.parametrize(
    "line",
    [
        "-- Performing Test HAVE_FLAG_ERROR - Failed",
        "-- Looking for pthread.h - not found",
        "checking for windows.h... no",
        "    0 Warning(s)\n    0 Error(s)",
        "gcc -Werror=implicit-int -DERROR=1 -c error.c -o error.o",
        "copying src/errors.py -> build/lib/errors.py",
        "cl : Command line warning D9002 : ignoring unknown option '-std=c++11'",
        "x.cpp(3): warning C4819: 该文件包含不能在当前代码页(936)中表示的字符",
        "warning: no previously-included files matching '*.error' found under directory 'x'",
        "Run-time dependency openblas found: NO (tried pkgconfig and cmake)",
        "ERROR: pip's dependency resolver does not currently take into account all the packages that are installed.",
        "_configtest.c:1:10: fatal error: foo.h: No such file or directory",
        "CMake Warning at CMakeLists.txt:9 (message):\n  Could NOT find CUDA (missing: CUDA_CUDART_LIBRARY)\n\n-- Done",
        "WARNING: Retrying (Retry(total=4)) after connection broken by 'ReadTimeoutError()'\nSuccessfully installed x",
        "-- Could NOT find Doxygen (missing: DOXYGEN_EXECUTABLE)\n-- Configuring done",
        "LINK : warning LNK4044: unrecognized option '/Wl,-O1'; ignored",
        "x.obj : warning LNK4197: export 'PyInit_x' specified multiple times; using first specification",
        "LINK : warning LNK4098: defaultlib 'LIBCMT' conflicts with use of other libs; use /NODEFAULTLIB:library",
    ],
)
def test_harmless_lines(line):
    assert explain(line).verdict == "no_failure"


def test_cause_before_consequence():
    log = (
        "C:\\Python\\include\\pyconfig.h(59): fatal error C1083: Cannot open include file: 'io.h': No such file\n"
        "error: command 'cl.exe' failed with exit code 2\n"
        "ERROR: Failed building wheel for x\n"
        "ModuleNotFoundError: No module named 'x'\n"
    )
    assert causes(log)[0] == "windows_sdk_missing"


def test_network_before_what_follows_from_it():
    log = (
        "WARNING: Retrying after connection broken by 'NewConnectionError(...: Failed to establish a new connection: "
        "[Errno 11001] getaddrinfo failed')': /simple/numpy/\n"
        "ERROR: Could not find a version that satisfies the requirement numpy (from versions: none)\n"
        "ERROR: No matching distribution found for numpy\n"
    )
    assert causes(log) == ["network_unreachable"]


def test_interleaved_jobs_and_independent_faults():
    log = (
        "[1/9] cl.exe /c a.cpp /Foa.obj\n[2/9] cl.exe /c b.cpp /Fob.obj\n"
        "FAILED: a.obj\n[3/9] cl.exe /c c.cpp /Foc.obj\n"
        "a.cpp(5): error C2065: 'M_PI': undeclared identifier\n[4/9] cl.exe /c d.cpp\n"
        "FAILED: c.obj\n"
        "c.cpp(9): fatal error C1083: Cannot open include file: 'Eigen/Dense': No such file or directory\n"
        "a.cpp(6): error C2065: 'M_PI': undeclared identifier\nninja: build stopped: subcommand failed.\n"
    )
    answer = explain(log)
    assert [finding.cause for finding in answer.findings] == ["m_pi_math_defines", "dependency_headers_missing"]
    assert [finding.evidence[0].line for finding in answer.findings] == [5, 8]


def test_candidates_name_what_decides():
    finding = explain("ImportError: DLL load failed: The specified module could not be found.").findings[0]
    assert len(finding.candidates) >= 3
    assert finding.candidates[0].cause == finding.cause
    assert all(candidate.decided_by for candidate in finding.candidates)
    assert finding.confidence <= 0.6


LOAD_FAILURES = {
    "zh": "ImportError: DLL load failed while importing _core: 找不到指定的模块。",
    "ja": "ImportError: DLL load failed while importing _core: 指定されたモジュールが見つかりません。",
    "de": "ImportError: DLL load failed while importing _core: Das angegebene Modul wurde nicht gefunden.",
    "fr": "ImportError: DLL load failed while importing _core: Le module spécifié est introuvable.",
    "ru": "ImportError: DLL load failed while importing _core: Не найден указанный модуль.",
    "ko": "ImportError: DLL load failed while importing _core: 지정된 모듈을 찾을 수 없습니다.",
    "pt": "ImportError: DLL load failed while importing _core: Não foi possível encontrar o módulo especificado.",
}
# fmt: off
HEADERS = {
    "zh": "x.c(3): fatal error C1083: 无法打开包括文件: “termios.h”: No such file or directory",
    "zh-tw": "x.c(3): fatal error C1083: 無法開啟包含檔: 'termios.h': No such file or directory",
    "ja": "x.c(3): fatal error C1083: include ファイルを開けません。'termios.h':No such file or directory",
    "de": "x.c(3): fatal error C1083: Datei (Include) kann nicht geöffnet werden: \"termios.h\": No such file",
    "fr": "x.c(3): fatal error C1083: Impossible d'ouvrir le fichier include : 'termios.h' : No such file or directory",
    "ru": "x.c(3): fatal error C1083: Не удается открыть файл включение: termios.h: No such file or directory",
    "ko": "x.c(3): fatal error C1083: 포함 파일을 열 수 없습니다. 'termios.h': No such file or directory",
    "pt": "x.c(3): fatal error C1083: Não é possível abrir arquivo de inclusão: 'termios.h': No such file or directory",
}
# fmt: on
SYMBOLS = {
    "zh": "x.obj : error LNK2001: 无法解析的外部符号 cublasCreate_v2",
    "ja": "x.obj : error LNK2019: 未解決の外部シンボル cublasCreate_v2 が関数 PyInit_x で参照されました。",
    "de": 'x.obj : error LNK2019: Verweis auf nicht aufgelöstes externes Symbol "cublasCreate_v2" in Funktion "f".',
    "fr": "x.obj : error LNK2019: symbole externe non résolu cublasCreate_v2 référencé dans la fonction PyInit_x",
    "ru": "x.obj : error LNK2019: ссылка на неразрешенный внешний символ cublasCreate_v2 в функции PyInit_x",
    "ko": "x.obj : error LNK2019: PyInit_x 함수에서 참조되는 확인할 수 없는 외부 기호 cublasCreate_v2",
    "pt": "x.obj : error LNK2019: símbolo externo não resolvido cublasCreate_v2 referenciado na função PyInit_x",
}


@pytest.mark.parametrize("log", LOAD_FAILURES.values(), ids=LOAD_FAILURES)
def test_missing_dll_in_any_language(log):
    assert causes(log) == ["missing_runtime_dll"]


@pytest.mark.parametrize("log", HEADERS.values(), ids=HEADERS)
def test_missing_header_in_any_language(log):
    assert causes(log) == ["posix_only_package"]


@pytest.mark.parametrize("log", SYMBOLS.values(), ids=SYMBOLS)
def test_unresolved_symbol_in_any_language(log):
    assert causes(log) == ["missing_link_library"]


def test_words_of_the_log_never_become_commands():
    log = "ModuleNotFoundError: No module named 'x; rm -rf ~'\n'cmake & del *' is not recognized as an internal or "
    log += "external command\n"
    for finding in explain(log).findings:
        for step in finding.fix:
            assert "rm -rf ~" not in step.command
            assert "del *" not in step.command


@pytest.mark.parametrize(
    ("around", "named"),
    [
        ("{}", "NAME"),
        ("Building wheel for lxml (pyproject.toml): started\n{}\n  ERROR: Failed building wheel for lxml", "lxml"),
        ("Building wheel for cffi: started\nBuilding wheel for lxml: started\n{}\nFailed to build lxml", "lxml"),
        ("{}\nERROR: Failed to build installable wheels for some pyproject.toml based projects (lxml)", "lxml"),
        ("{}\nERROR: Failed to build installable wheels for some pyproject.toml based projects", "NAME"),
        (
            "Building wheel for cffi (pyproject.toml)\nRunning setup.py install for py_lets-be.rational\n{}",
            "py_lets-be.rational",
        ),
        ("× Failed to build `lxml==5.2.1`\n{}", "lxml"),
        ("ERROR: Failed building wheel for $(reboot)\n{}", "NAME"),
    ],
)
def test_commands_name_the_package_that_was_built(around, named):
    fault = "error: Microsoft Visual C++ 14.0 or greater is required."
    steps = explain(around.format(fault)).findings[0].fix
    assert f"pip install --only-binary :all: {named}" in [step.command for step in steps]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_answer_speaks_the_language(language):
    chinese = any("\u4e00" <= character <= "\u9fff" for character in "".join(
        finding.title + finding.why
        for log in ("LINK : fatal error LNK1104: cannot open file 'kernel32.lib'", "error: x failed with exit code 2")
        for finding in explain(log, language).findings
    ))  # fmt: skip
    assert chinese == (language == "zh")
