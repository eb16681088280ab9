"""Every machine that was written down, gathered and judged: nothing missed, nothing invented."""

from __future__ import annotations

import pytest
from tests.toolchain.doctor.machine_folders import FOLDER, NAMES, facts_of, findings_of, ids, load

from sage_attention.toolchain.doctor.facts import gather
from sage_attention.toolchain.doctor.judge import judge

# Machine -> what is in the way or to be watched, and the verdicts on C++ and on CUDA.
EXPECTED = {
    "arm64": (["warn python.arm64"], "cpp_yes cuda_none"),
    "chinese": (
        [
            "warn machine.long_paths",
            "warn machine.temporary_name",
            "warn machine.code_page",
            "warn machine.memory_short",
        ],
        "cpp_yes cuda_yes",
    ),
    "conda": (["warn machine.memory_short"], "cpp_yes cuda_yes"),
    "embedded_python": (
        ["fail python.embedded", "warn cuda.none_torch", "warn programs.ninja_missing"],
        "cpp_no cuda_none",
    ),
    "half_prompt": (["fail environment.half"], "cpp_no cuda_none"),
    "hanging": (["warn probe.timeout", "warn probe.unreadable", "warn probe.timeout"], "cpp_yes cuda_none"),
    "linux_bare": (
        [
            "fail python.header_missing.other",
            "fail compilers.none.apk",
            "warn compilers.musl",
            "warn machine.memory_short",
        ],
        "cpp_no cuda_none",
    ),
    "linux_conda": (["fail compilers.libstdcxx_old"], "cpp_no cuda_none"),
    "linux_cuda": (["warn cuda.host_older_gcc", "warn machine.memory_short"], "cpp_yes cuda_choose_gcc"),
    "mixed": (
        [
            "warn python.32bit",
            "warn python.stale",
            "warn msvc.incomplete",
            "warn msvc.reboot",
            "warn sdk.half_newer",
            "warn packages.pip_old",
        ],
        "cpp_yes cuda_none",
    ),
    "msys2": (
        [
            "fail python.msys2",
            "fail msvc.none",
            "warn environment.other_compiler",
            "warn environment.msys",
        ],
        "cpp_no cuda_none",
    ),
    "no_cpp": (["fail msvc.no_cpp"], "cpp_no cuda_none"),
    "no_sdk": (["fail sdk.none"], "cpp_no cuda_none"),
    "nothing": (
        ["warn python.store_alias", "fail msvc.none", "warn machine.long_paths", "warn machine.memory_short"],
        "cpp_no cuda_none",
    ),
    "portable_msvc": (["fail cuda.host_of_shell", "warn machine.memory_short"], "cpp_yes cuda_no"),
    "store_python": (["warn python.store", "fail msvc.none", "warn machine.long_paths"], "cpp_no cuda_none"),
    "two_toolsets": (["warn cuda.host_not_default", "warn machine.memory_short"], "cpp_yes cuda_choose"),
    "ubuntu": (["fail python.header_missing.apt"], "cpp_no cuda_none"),
    "ucrt_only": (["fail sdk.ucrt_only"], "cpp_no cuda_none"),
    "vs2017": (["warn cuda.gpu_newer", "warn machine.long_paths", "warn machine.memory_short"], "cpp_yes cuda_yes"),
    "vs2019": ([], "cpp_yes cuda_none"),
    "vs2022_17_14": (
        ["fail cuda.host_none", "warn packages.setuptools_torch_windows", "warn machine.memory_short"],
        "cpp_yes cuda_no",
    ),
    "vs2022_17_9": (["warn machine.memory_short"], "cpp_yes cuda_yes"),
    "vs2026": (
        ["fail cuda.host_none", "warn programs.cmake_generator", "warn machine.memory_short"],
        "cpp_yes cuda_no",
    ),
    "wrong_link": (
        [
            "fail environment.no_flag",
            "fail environment.target",
            "fail environment.link",
            "warn environment.missing_folders",
            "warn programs.ninja_missing",
        ],
        "cpp_no cuda_none",
    ),
}


def test_every_machine_is_expected():
    assert sorted(EXPECTED) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_machine(name):
    in_the_way, verdicts = EXPECTED[name]
    findings = findings_of(name)
    seen = [f"{f.status} {f.id}" for f in findings if f.status in ("warn", "fail") and f.section != "verdict"]
    assert seen == in_the_way
    assert " ".join(i.removeprefix("verdict.") for i in ids(findings, "verdict")) == verdicts


@pytest.mark.parametrize("name", NAMES)
def test_no_probe_crashes(name):
    assert [p for p in facts_of(name).problems if p.reason == "crashed"] == []


def test_every_toolset_of_every_studio():
    facts = facts_of("two_toolsets")
    assert [toolset.version for _, toolset in facts.toolsets] == ["14.44.35207", "14.38.33130"]
    newest, older = facts.visual_studios[0].toolsets
    assert (newest.default, older.default) == (True, False)
    assert (newest.msc_ver, older.msc_ver) == (1944, 1938)
    assert ("x64", "x64") in newest.compilers
    assert newest.builds("x64")
    assert not newest.builds("arm64")


def test_arm64_without_vswhere_is_read_from_state_json():
    facts = facts_of("arm64")
    (studio,) = facts.visual_studios
    assert studio.sources == ("state.json", "folder")
    assert studio.has_cpp
    assert studio.toolsets[0].builds("arm64")
    assert [(p.version, p.architecture) for p in facts.pythons] == [("3.12.4", "arm64"), ("3.11.9", "x64")]


def test_output_in_the_code_page_of_the_machine():
    facts = facts_of("chinese")
    assert facts.visual_studios[0].name == "Visual Studio 生成工具 2022"
    assert facts.python.executable == "D:\\软件\\Python310\\python.exe"
    assert facts.python.sources == ("running", "py", "registry")


def test_pythons_of_both_views_of_the_registry():
    pythons = {python.version: python for python in facts_of("mixed").pythons}
    assert pythons["3.10.11"].architecture == "x86"
    assert pythons["3.10.11"].import_library == "C:\\Python310-32\\libs\\python310.lib"
    assert not pythons["3.9.13"].exists


def test_kinds_of_python():
    kinds = {name: facts_of(name).python.kind for name in NAMES}
    assert {name: kind for name, kind in kinds.items() if kind != "python.org"} == {
        "conda": "conda",
        "embedded_python": "embedded",
        "linux_bare": "system",
        "linux_conda": "conda",
        "linux_cuda": "venv",
        "msys2": "msys2",
        "store_python": "store",
        "ubuntu": "system",
        "vs2022_17_9": "venv",
        "vs2026": "manager",
    }


def test_header_of_the_base_of_a_virtual_environment():
    python = facts_of("vs2022_17_9").python
    assert python.executable.startswith("C:\\work\\venv")
    assert python.home == python.header.removesuffix("\\Include\\Python.h")


def test_own_host_config_comes_before_the_table():
    assert facts_of("vs2022_17_9").cudas[0].bounds.source == "host_config.h"
    assert facts_of("two_toolsets").cudas[0].bounds.source == "table"
    machine = load("vs2022_17_14")
    header = "C:\\Program Files\\NVIDIA GPU Computing Toolkit\\CUDA\\v12.1\\include\\crt\\host_config.h"
    machine.write(header, b"#if _MSC_VER < 1910 || _MSC_VER >= 1950\n#error\n#endif\n")  # as people edit it
    assert "cuda.host_ok" in ids(judge(gather(machine)))


def test_what_to_install_for_cuda_depends_on_the_visual_studio():
    wanted = {}
    for name in ("vs2022_17_14", "vs2026"):
        (finding,) = [f for f in findings_of(name) if f.id == "cuda.host_none"]
        wanted[name] = finding.values["wanted"], finding.values["component"]
    assert wanted == {
        "vs2022_17_14": ("14.39", "Microsoft.VisualStudio.Component.VC.14.39.17.9.x86.x64"),
        "vs2026": ("14.44", "Microsoft.VisualStudio.Component.VC.14.44.17.14.x86.x64"),
    }


def test_vswhere_is_asked_twice():
    machine = load("no_cpp")
    facts = gather(machine)
    asked = [command for command in machine.asked if "vswhere" in command[0]]
    assert ["-requires" in command for command in asked] == [False, True]
    assert all("-products" in command and "-prerelease" in command for command in asked)
    assert facts.visual_studios[0].has_cpp is False


def test_libstdcxx_of_conda():
    facts = facts_of("linux_conda")
    assert facts.linux.libstdcxx == {"/opt/conda/envs/gnn/lib/libstdc++.so.6": "3.4.29"}
    assert facts.conda.packages["libstdcxx-ng"] == "11.2.0"


def test_cuda_in_msbuild():
    assert facts_of("vs2022_17_9").visual_studios[0].cuda == ("12.1",)
    assert "cuda.integration" not in ids(findings_of("vs2022_17_9"))
    assert "cuda.integration" in ids(findings_of("two_toolsets"))


def test_part_of_a_toolkit():
    machine = load("vs2022_17_9")
    machine.spec["commands"].insert(0, {"program": "nvidia-smi.exe", "text": "470.1, NVIDIA GeForce GTX 1080, 6.1\n"})
    root = machine.environ["CUDA_PATH"]
    machine._sizes.pop(machine._key(root + "\\include\\cusparse.h"))
    machine.write(root + "\\version.json", b'{"cuda_nvcc": {"version": "13.0.88"}}')
    found = {finding.id: finding for finding in judge(gather(machine))}
    assert found["cuda.headers"].values["names"] == "cusparse.h"
    assert found["cuda.gpu_older"].values["removed"] == "13.0"
    assert found["torch.cuda_major"].status == "fail"


def change(name, **environ):
    machine = load(name)
    machine.environ = {**machine.environ, **environ}
    return judge(gather(machine))


@pytest.mark.parametrize(
    ("name", "environ", "expected"),
    [
        ("two_toolsets", {"CUDA_HOME": "C:\\gone"}, "cuda.home_missing"),
        ("vs2022_17_9", {"DISTUTILS_USE_SDK": "1"}, "environment.flag_without_prompt"),
        ("vs2022_17_9", {"PYTHONHOME": "C:\\Python38"}, "python.pythonhome"),
        ("vs2022_17_9", {"_CL_": "/MT"}, "environment.options"),
        ("vs2022_17_9", {"TEMP": "C:\\Users\\li\\" + "deep\\" * 20}, "machine.temporary_long"),
        ("vs2022_17_9", {"MAX_JOBS": "64"}, "machine.max_jobs_high"),
        ("ubuntu", {"CXX": "g++-9"}, "compilers.named_missing"),
        ("linux_conda", {"CONDA_PREFIX": "/opt/conda/envs/other"}, "compilers.conda_other_python"),
    ],
)
def test_one_variable_makes_a_finding(name, environ, expected):
    assert expected not in ids(findings_of(name))
    assert expected in ids(change(name, **environ))


def test_enough_jobs_is_fine():
    assert "machine.memory" in ids(change("vs2022_17_9", MAX_JOBS="4"))


def test_files_are_small():
    # A fixture is read by people.
    assert max(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) < 30_000


NONSENSE = {
    "gcc": "\x1b[2J\ufffd\x07",
    "g++": "oops",
    "ldd": "%%",
    "cmake": "[",
    "ninja": "-",
    "nvidia-smi": "\ufffd, \x07, x",
    "nvcc": "?",
}


def test_nonsense_is_a_line_of_its_own():
    machine = load("linux_cuda")
    machine.environ = {"PATH": "/odd"}
    machine.spec["commands"] = [{"program": name, "text": text} for name, text in NONSENSE.items()]
    for name in NONSENSE:
        machine.write(f"/odd/{name}", b"")
    findings = judge(gather(machine))
    said = [finding.values["probe"] for finding in findings if finding.id == "probe.unreadable"]
    assert sorted(said) == ["cmake", "compiler", "compiler", "ldd", "ninja", "nvidia-smi"]
    assert "cuda.driver" not in ids(findings)
    assert "programs.cmake_missing" not in ids(findings)


@pytest.mark.parametrize("problem", ["timeout", "failed", "unreadable"])
def test_compilers_without_an_answer_are_not_missing(problem):
    machine = load("linux_cuda")
    names = ("gcc", "g++", "cc", "c++")
    machine.environ = {"PATH": "/odd", "CC": "gcc"}
    machine.spec["commands"] = [{"program": name, "problem": problem} for name in names]
    for name in names:
        machine.write(f"/odd/{name}", b"")
    findings = judge(gather(machine))
    assert ids(findings, "compilers") == [f"probe.{problem}"] * len(names)
    assert ids(findings, "verdict") == ["verdict.cpp_unknown", "verdict.cuda_unknown"]


@pytest.mark.parametrize("cuda", ["", "?", "12", "x.y"])
def test_a_torch_that_says_nonsense_of_its_cuda(cuda):
    machine = load("linux_cuda")
    site = machine.python["platlib"]
    machine.write(f"{site}/torch/version.py", f"__version__ = '2.4.1'\ncuda = '{cuda}'\n".encode())
    findings = judge(gather(machine))
    assert "probe.crashed" not in ids(findings)
    assert "torch.found" in ids(findings)


def test_a_mistake_in_one_section_costs_no_other(monkeypatch):
    monkeypatch.setattr("sage_attention.toolchain.doctor.judge.torch.judge", lambda _: 1 // 0)
    findings = judge(gather(load("linux_cuda")))
    assert [finding.section for finding in findings if finding.id == "probe.crashed"] == ["torch"]
    assert "compilers.cxx" in ids(findings)
