"""What a wheel's tag promises against what is in it."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("pefile", reason="Windows files are read with pefile")
pytest.importorskip("elftools", reason="Linux files are read with pyelftools")
pytest.importorskip("packaging", reason="wheels' names are read with packaging")

from tests.toolchain.inspect import binaries

from sage_attention.cli import main

PYTHON = {"python311.dll": ["PyModule_Create2"]}
WINDOWS = binaries.pe(PYTHON, ["PyInit_a"])
LOCKED = binaries.pe({"python313.dll": ["f"]}, ["PyInit_a"])
FREE = binaries.pe({"python313t.dll": ["f"]}, ["PyInit_a"])
STABLE = binaries.pe({"python3.dll": ["PyModule_Create2"]}, ["PyInit_a"])
LINUX = binaries.elf(
    ["libc.so.6"], ["PyInit_a"], undefined=["PyModule_Create2"],
    versions={"libc.so.6": {"GLIBC_2.2.5": ["memcpy"], "GLIBC_2.34": ["pthread_create"]}},
)  # fmt: skip
MAC = binaries.macho(["/usr/lib/libSystem.B.dylib"], ["PyInit_a"], min_os=(13, 0))


@pytest.fixture
def inspect(tmp_path, capsys):
    """Makes a wheel, inspects it; returns code -> the sentences."""

    def run(name, files, *words, **metadata):
        path = binaries.wheel(tmp_path, f"a-1.0-{name}.whl", files, **metadata)
        main(["inspect", str(path), "--format", "json", "--lang", "en", *words])
        report = json.loads(capsys.readouterr().out)
        found = {}
        for item in report["findings"]:
            found.setdefault(item["code"], []).append(item["title"])
        return found

    return run


@pytest.mark.parametrize(
    ("name", "file", "data", "codes"),
    [
        ("cp311-cp311-win_amd64", "a/a.cp311-win_amd64.pyd", WINDOWS, set()),
        ("cp311-cp311-win_amd64", "a-1.0.data/platlib/a/a.cp311-win_amd64.pyd", WINDOWS, set()),
        ("cp312-cp312-win_amd64", "a/a.cp311-win_amd64.pyd", WINDOWS, {"file_tag"}),
        ("cp312-cp312-win_amd64", "a/a.pyd", WINDOWS, {"python_conflict"}),
        ("cp39-abi3-win_amd64", "a/a.pyd", STABLE, set()),
        ("cp39-abi3-win_amd64", "a/a.pyd", WINDOWS, {"abi3_named"}),
        ("cp39-abi3-win_amd64", "a/a.cp311-win_amd64.pyd", WINDOWS, {"file_tag"}),
        ("py3-none-win_amd64", "a/a.pyd", WINDOWS, {"none_uses_python"}),
        ("py3-none-any", "a/a.pyd", STABLE, {"tag_any", "none_uses_python"}),
        ("cp311-cp311-win_arm64", "a/a.pyd", WINDOWS, {"machine_tag"}),
        ("cp311-cp311-win_amd64", "a/a.so", LINUX, {"format_tag"}),
        ("cp311-cp311-win_amd64", "a/b.pyd", WINDOWS, {"no_init"}),
        ("cp313-cp313t-win_amd64", "a/a.cp313-win_amd64.pyd", LOCKED, {"file_tag", "missing_library"}),
        ("cp313-cp313t-win_amd64", "a/a.cp313t-win_amd64.pyd", FREE, set()),
        ("cp311-cp311-manylinux_2_34_x86_64", "a/a.cpython-311-x86_64-linux-gnu.so", LINUX, set()),
        ("cp311-cp311-manylinux_2_35_x86_64", "a/a.cpython-311-x86_64-linux-gnu.so", LINUX, {"older_tag"}),
        ("cp311-cp311-manylinux2014_x86_64", "a/a.cpython-311-x86_64-linux-gnu.so", LINUX, {"manylinux"}),
        ("cp311-cp311-linux_x86_64", "a/a.cpython-311-x86_64-linux-gnu.so", LINUX, {"linux_tag"}),
        ("cp311-cp311-macosx_13_0_arm64", "a/a.cpython-311-darwin.so", MAC, set()),
        ("cp311-cp311-macosx_11_0_arm64", "a/a.cpython-311-darwin.so", MAC, {"macos_version"}),
        ("cp311-cp311-macosx_13_0_x86_64", "a/a.cpython-311-darwin.so", MAC, {"machine_tag"}),
    ],
)  # fmt: skip
def test_tags(inspect, name, file, data, codes):
    assert set(inspect(name, {file: data})) == codes


def test_manylinux_says_which_symbols(inspect):
    found = inspect("cp311-cp311-manylinux_2_17_x86_64", {"a/a.cpython-311-x86_64-linux-gnu.so": LINUX})
    assert found == {
        "manylinux": ["the tag manylinux_2_17 does not allow GLIBC_2.34 of libc.so.6, which these need: pthread_create"]
    }


def test_symbols_outside_the_stable_abi(inspect):
    data = binaries.pe(
        {"python3.dll": ["PyModule_Create2", "PyType_GetModuleByDef", "PyList_GetItemRef"]}, ["PyInit_a"]
    )
    (title,) = inspect("cp39-abi3-win_amd64", {"a/a.pyd": data})["abi3_symbols"]
    assert title == ("not in the stable ABI of Python 3.9 (2): PyList_GetItemRef (3.13), PyType_GetModuleByDef (3.13)")
    assert not inspect("cp313-abi3-win_amd64", {"a/a.pyd": data})
    linux = binaries.elf(["libc.so.6"], ["PyInit_a"], undefined=["PyList_New", "_PyObject_GetDictPtr", "Pytest"])
    found = inspect("cp39-abi3-manylinux_2_5_x86_64", {"a/a.abi3.so": linux})
    assert set(found) == {"abi3_symbols"}


def test_debug_builds(inspect):
    data = binaries.pe({"python311_d.dll": ["f"], "VCRUNTIME140D.dll": ["memcpy"]}, ["PyInit_a"])
    assert {"debug_runtime", "debug_python"} <= set(
        inspect("cp311-cp311-win_amd64", {"a/a_d.cp311-win_amd64.pyd": data})
    )


def test_mixed_run_time_libraries(inspect):
    module = binaries.pe({**PYTHON, "VCRUNTIME140.dll": ["memcpy"], "b.dll": ["f"]}, ["PyInit_a"])
    files = {"a/a.pyd": module, "a/b.dll": binaries.pe({"msvcrt.dll": ["malloc"]}, ["f"], linker=(2, 43), rich=False)}
    (title,) = inspect("cp311-cp311-win_amd64", files)["mixed_runtimes"]
    assert "/MD, msvcrt" in title


def test_bound_to_torch(inspect):
    module = binaries.pe({**PYTHON, "c10.dll": ["??1Error@c10@@UEAA@XZ"], "MSVCP140.dll": ["_Xlen"]}, ["PyInit_a"])
    found = inspect("cp311-cp311-win_amd64", {"a/a.pyd": module}, requires=["torch>=2"])
    assert set(found) == {"after_torch", "runtime_with_torch", "torch_cpp"}
    found = inspect("cp311-cp311-win_amd64", {"a/a.pyd": module}, requires=['torch; extra == "gpu"'])
    assert set(found) == {"after_torch_undeclared", "missing_library", "torch_cpp"}
    operators = binaries.pe({"torch_cpu.dll": ["aoti_torch_get_dim"]}, ["f"])
    found = inspect("cp311-cp311-win_amd64", {"a/_C.pyd": operators}, requires=["torch"])
    assert set(found) == {"after_torch", "torch_stable"}
    found = inspect("cp311-cp311-win_amd64", {"a/libiomp5md.dll": binaries.pe({}, ["f"])}, requires=["torch"])
    assert set(found) == {"openmp_twice"}


def test_search_paths_of_the_machine_it_was_built_on(inspect):
    data = binaries.elf(["libc.so.6"], ["PyInit_a"], runpath="/home/me/lib:lib:$ORIGIN", stack=7)
    found = inspect("cp311-cp311-manylinux_2_5_x86_64", {"a/a.cpython-311-x86_64-linux-gnu.so": data})
    assert set(found) == {"rpath_absolute", "rpath_relative", "executable_stack"}


def test_expected_exports(inspect, tmp_path):
    header = tmp_path / "a.h"
    header.write_text("A_API int f(void);\nA_API int g(void);\n", encoding="utf-8")
    files = {"a/a.dll": binaries.pe({}, ["f"])}
    found = inspect("py3-none-win_amd64", files, "--expect-exports", str(header))
    assert found == {"exports_missing": ["declared and not exported (1): g"]}
    assert not inspect("py3-none-win_amd64", files, "--expect-exports", "f")


def test_wheel_that_was_renamed(inspect):
    found = inspect("py3-none-win_amd64", {"a/a.dll": binaries.pe({}, ["f"])}, tags=["py3-none-any"])
    assert set(found) == {"wheel_file_tags"}


def test_one_damaged_file_among_others(tmp_path, capsys):
    files = {"a/a.dll": binaries.pe({}, ["f"]), "a/b.dll": binaries.pe({}, ["f"])[:700]}
    path = binaries.wheel(tmp_path, "a-1.0-py3-none-win_amd64.whl", files)
    assert main(["inspect", str(path), "--strict", "--lang", "en"]) == 1
    assert "b.dll: cannot be read" in capsys.readouterr().out


def test_installed_packages(tmp_path, capsys):
    files = {
        "pkg/__init__.py": b"",
        "pkg/a.cp311-win_amd64.pyd": WINDOWS,
        "pkg-1.0.dist-info/METADATA": b"Name: my-pkg\n",
    }
    files["my_pkg-1.0.dist-info/RECORD"] = (
        b"pkg/__init__.py,,\npkg/a.cp311-win_amd64.pyd,sha256=x,1\n../../evil.dll,,\n"
    )
    for name, data in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    for name in ("pkg", "pkg.a", "my-pkg", "My_Pkg", str(tmp_path / "pkg")):
        assert main(["inspect", name, "--site", str(tmp_path), "--lang", "en", "--strict"]) == 0
        assert "pkg/a.cp311-win_amd64.pyd" in capsys.readouterr().out
    (tmp_path / "pure").mkdir()
    assert main(["inspect", "pure", "--site", str(tmp_path)]) == 2
    assert "pure Python" in capsys.readouterr().err


def test_one_finding_for_each_cause(tmp_path, capsys):
    debug = {"VCRUNTIME140D.dll": ["memset"], "ucrtbased.dll": ["malloc"]}
    files = {
        "a/a_d.cp311-win_amd64.pyd": binaries.pe(
            {**debug, "MSVCP140D.dll": ["f"], "b.dll": ["g"], "python311_d.dll": ["h"]}, ["PyInit_a"]
        ),
        "a/b.dll": binaries.pe(debug, ["g"]),
    }
    path = binaries.wheel(tmp_path, "a-1.0-cp311-cp311-win_amd64.whl", files)
    main(["inspect", str(path), "--format", "json"])
    found = json.loads(capsys.readouterr().out)["findings"]
    assert [(item["code"], item["libraries"]) for item in found] == [
        ("debug_python", ["python311_d.dll"]),
        ("debug_runtime", ["MSVCP140D.dll", "VCRUNTIME140D.dll", "ucrtbased.dll"]),
    ]
    main(["inspect", str(path), "--lang", "en"])
    assert capsys.readouterr().out.count("built for debugging") == 1


def test_libraries_of_cuda_come_with_torch(inspect):
    file = {"a/a.pyd": binaries.pe({**PYTHON, "cudart64_12.dll": ["f"]}, ["PyInit_a"])}
    assert set(inspect("cp311-cp311-win_amd64", file)) == {"missing_library"}
    found = inspect("cp311-cp311-win_amd64", file, requires=["torch"])
    assert set(found) == {"after_torch", "gpu_library"}
    extra = inspect("cp311-cp311-win_amd64", file, requires=["torch; extra=='gpu'"])
    assert set(extra) == {"missing_library"}


def test_folders_that_python_adds_when_it_starts(inspect):
    """As pywin32 does: a .pth file imports a module, and that adds the folder of another package."""
    program = "import os\nimport a_system\nfor path in a_system.__path__:\n    os.add_dll_directory(path)\n"
    files = {
        "a.pth": "# comment\na\na\\lib\nimport a_bootstrap\n",
        "a/lib/a_bootstrap.py": program,
        "a_system/b.dll": binaries.pe({}, ["f"]),
        "a/a.pyd": binaries.pe({**PYTHON, "b.dll": ["f"]}, ["PyInit_a"]),
    }
    assert inspect("cp311-cp311-win_amd64", files) == {}
    del files["a.pth"]
    assert set(inspect("cp311-cp311-win_amd64", files)) == {"elsewhere"}


def test_a_module_in_a_folder_that_is_not_searched(inspect):
    files = {
        "a/x/b.pyd": binaries.pe(PYTHON, ["PyInit_b", "f"]),
        "a/y/a.pyd": binaries.pe({**PYTHON, "b.pyd": ["f"]}, ["PyInit_a"]),
    }
    (title,) = inspect("cp311-cp311-win_amd64", files)["elsewhere"]
    assert "a/x/b.pyd" in title
