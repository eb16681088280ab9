"""What names say, and which symbols belong to whom."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("packaging", reason="wheels' names are read with packaging")

from sage_attention import ArgumentError, DataError
from sage_attention.toolchain.data_files import table
from sage_attention.toolchain.inspect.crt import flavours, runtime_demands
from sage_attention.toolchain.inspect.dll_directories import added_folders
from sage_attention.toolchain.inspect.expected import declared, expected_exports
from sage_attention.toolchain.inspect.lists import api_set, dll_kind, stable_abi, windows_names
from sage_attention.toolchain.inspect.manylinux import fitting_policy, policy_of_tag, refused_by
from sage_attention.toolchain.inspect.model import Binary, ELFFacts, Needed, PEFacts
from sage_attention.toolchain.inspect.python_abi import init_names, outside_stable_abi
from sage_attention.toolchain.inspect.tags import module_name, wheel_tags
from sage_attention.toolchain.inspect.torch_abi import torch_use


@pytest.mark.parametrize(
    ("name", "module", "python", "abi3", "free", "debug", "platform"),
    [
        ("_a.cp311-win_amd64.pyd", "_a", (3, 11), False, False, False, "win_amd64"),
        ("_a_d.cp311-win_amd64.pyd", "_a", (3, 11), False, False, True, "win_amd64"),
        ("_a.cp314t-win_arm64.pyd", "_a", (3, 14), False, True, False, "win_arm64"),
        ("_a.pyd", "_a", None, False, False, False, ""),
        ("_a_d.pyd", "_a", None, False, False, True, ""),
        ("a.cpython-39-x86_64-linux-gnu.so", "a", (3, 9), False, False, False, "x86_64-linux-gnu"),
        ("a.cpython-313t-darwin.so", "a", (3, 13), False, True, False, "darwin"),
        ("a.abi3.so", "a", None, True, False, False, ""),
        ("a_d.so", "a_d", None, False, False, False, ""),
    ],
)
def test_module_names(name, module, python, abi3, free, debug, platform):
    found = module_name(name)
    assert (found.module, found.python, found.abi3) == (module, python, abi3)
    assert (found.free_threaded, found.debug, found.platform) == (free, debug, platform)


@pytest.mark.parametrize("name", ["libfoo.so.1", "a.dll", "a.dylib", "a", "a.py"])
def test_no_module_names(name):
    assert module_name(name) is None


def test_wheel_names():
    tags = wheel_tags(Path("my_a-1.0-cp39-abi3-macosx_11_0_universal2.whl"))
    assert (tags.distribution, tags.python, tags.abi3, tags.system) == ("my-a", (3, 9), True, "Mach-O")
    assert tags.machines == {"x64", "arm64"}
    assert wheel_tags(Path("a-1-cp313-cp313t-win_arm64.whl")).free_threaded
    assert wheel_tags(Path("a-1-py3-none-any.whl")).machines == set()
    with pytest.raises(DataError, match="a name like"):
        wheel_tags(Path("a.whl"))


@pytest.mark.parametrize(
    ("library", "kind"),
    [
        ("MSVCP140.dll", "vc_runtime"), ("VCRUNTIME140_1D.dll", "debug_crt"), ("ucrtbased.dll", "debug_crt"),
        ("MSVCP140D.dll", "debug_crt"), ("MSVCR120.dll", "old_vc_runtime"), ("VCOMP140.DLL", "openmp_msvc"),
        ("libgcc_s_seh-1.dll", "mingw"), ("msys-2.0.dll", "cygwin"), ("nvcuda.dll", "gpu_driver"),
        ("cudart64_12.dll", "cuda"), ("cudnn_ops64_9.dll", "cuda"), ("c10.dll", "torch"), ("python311_d.dll", "python"),
        ("mkl_rt.2.dll", "intel"), ("mine.dll", ""), ("vcomp.dll", ""),
    ],
)  # fmt: skip
def test_kinds_of_dll(library, kind):
    assert dll_kind(library) == kind


def test_lists():
    assert {"kernel32.dll", "ws2_32.dll"} <= windows_names("known_dlls")
    assert windows_names("known_dlls") <= windows_names("system")
    assert {"msvcp140.dll", "vcomp140.dll", "vcruntime140.dll", "nvcuda.dll"}.isdisjoint(windows_names("system"))
    assert all(name == name.lower() for name in windows_names("system"))
    assert api_set("API-MS-WIN-CRT-HEAP-L1-1-0.DLL")
    assert api_set("ext-ms-win-ntuser-dialogbox-l1-1-0.dll")
    assert not api_set("apihelper.dll")
    assert stable_abi()["PyList_New"] == (3, 2)
    assert len(stable_abi()) > 900


def test_every_text_is_there_in_both_languages():
    texts = table("inspect_texts")
    for group in ("states", "kinds", "outcomes", "trace", "crashes"):
        for key, entry in texts[group].items():
            assert set(entry) == {"en", "zh"}, key
            assert all(entry.values()), key
    for code, entry in texts["findings"].items():
        assert set(entry) == {"severity", "en", "zh"}, code
        assert entry["severity"] in ("error", "warning", "note")
        assert len(entry["en"]) == len(entry["zh"]) == 2


def pe(imports, linker=(14, 44), made_by="MSVC"):
    needed = tuple(Needed(name, tuple(symbols)) for name, symbols in imports.items())
    return Binary(Path("a.dll"), "x64", needed, pe=PEFacts(True, linker, made_by))


@pytest.mark.parametrize(
    ("imports", "found"),
    [
        (["VCRUNTIME140.dll", "api-ms-win-crt-heap-l1-1-0.dll"], ("/MD",)),
        (["VCRUNTIME140D.dll", "ucrtbased.dll"], ("/MDd",)),
        (["VCRUNTIME140D.dll", "VCRUNTIME140.dll"], ("/MDd", "/MD")),
        (["api-ms-win-crt-heap-l1-1-0.dll", "KERNEL32.dll"], ("hybrid",)),
        (["msvcrt.dll"], ("msvcrt",)),
        (["MSVCR120.dll"], ("msvcr120",)),
        (["KERNEL32.dll"], ("/MT",)),
    ],
)
def test_run_time_libraries(imports, found):
    assert flavours(pe(dict.fromkeys(imports, ()))) == found


def test_who_needs_a_run_time_library_of_14_40():
    assert runtime_demands(pe({"MSVCP140.dll": ["_Mtx_lock", "_Xlen"]})) == ("_Mtx_lock",)
    assert runtime_demands(pe({"MSVCP140.dll": ["_Mtx_lock"]}, linker=(14, 0), made_by="LLVM"))
    assert not runtime_demands(pe({"MSVCP140.dll": ["_Mtx_unlock", "_Xlen"]}))
    assert not runtime_demands(pe({"MSVCP140.dll": ["_Mtx_lock", "_Mtx_init_in_situ"]}))


def test_stable_abi():
    symbols = frozenset({"PyList_New", "PyType_GetModuleByDef", "_PyList_Extend"})
    assert outside_stable_abi(symbols, (3, 9)) == {"PyType_GetModuleByDef": (3, 13), "_PyList_Extend": None}
    assert outside_stable_abi(symbols, (3, 13)) == {"_PyList_Extend": None}
    assert init_names("ext")[0] == "PyInit_ext"
    assert init_names("模块")[0].startswith("PyInitU_")


def test_torch_abi():
    assert torch_use(pe({"c10.dll": ["??1Error@c10@@UEAA@XZ"], "torch_cpu.dll": ["aoti_torch_get_dim"]})).kind == "cpp"
    assert torch_use(pe({"torch_cpu.dll": ["aoti_torch_get_dim"]})).kind == "stable"
    assert torch_use(pe({"KERNEL32.dll": ["Sleep"]})).kind == "none"
    elf = Binary(
        Path("a.so"), "x64", (Needed("libc10.so"),), undefined=frozenset({"_ZN3c105ErrorC2ENS_14SourceLocationE"}),
        elf=ELFFacts(),
    )  # fmt: skip
    assert torch_use(elf).kind == "cpp"


def elf(versions, machine="x64"):
    rows = {library: dict.fromkeys(found, ("f",)) for library, found in versions.items()}
    return Binary(Path("a.so"), machine, elf=ELFFacts(versions=rows))


def test_manylinux():
    old, new = elf({"libc.so.6": ["GLIBC_2.2.5"]}), elf({"libc.so.6": ["GLIBC_2.2.5", "GLIBC_2.34"]})
    cpp = elf({"libstdc++.so.6": ["GLIBCXX_3.4.29", "CXXABI_1.3"]})
    assert fitting_policy([old]) == "manylinux_2_5"
    assert fitting_policy([old, new]) == fitting_policy([cpp]) == "manylinux_2_34"
    assert [demand.text for demand in refused_by("manylinux_2_28", new)] == ["GLIBC_2.34"]
    assert fitting_policy([elf({"libc.so.6": ["GLIBC_2.99"]})]) == ""
    assert fitting_policy([elf({"libc.so.6": ["GLIBC_2.17"]}, "arm64")]) == "manylinux_2_17"
    assert policy_of_tag("manylinux1_i686") == "manylinux_2_5"
    assert policy_of_tag("manylinux_2_99_x86_64") == "manylinux_2_99"


ADDING = {
    "join": ("os.add_dll_directory(os.path.join(os.path.dirname(__file__), 'libs'))", True),
    "pathlib": ("os.add_dll_directory(str(Path(__file__).resolve().parent / 'libs'))", True),
    "named": (
        "here = os.path.dirname(os.path.abspath(__file__))\nl = os.path.join(here, 'libs')\nos.add_dll_directory(l)",
        True,
    ),
    "pardir": ("os.add_dll_directory(os.path.join(os.path.dirname(__file__), os.pardir, 'pkg', 'libs'))", True),
    "parents": ("os.add_dll_directory(pathlib.Path(__file__).parents[0].joinpath('libs'))", True),
    "loop": ("for name in ('libs', 'other'):\n    os.add_dll_directory(os.path.join(ROOT, name))", False),
    "preloaded": ("ctypes.CDLL(os.path.join(os.path.dirname(__file__), 'libs', 'b.dll'))", True),
}


@pytest.mark.parametrize("how", ADDING)
def test_folders_that_a_package_adds(tmp_path, how):
    text, certain = ADDING[how]
    (tmp_path / "pkg/libs").mkdir(parents=True)
    (tmp_path / "pkg/libs/b.dll").write_bytes(b"MZ")
    file = tmp_path / "pkg/__init__.py"
    file.write_text(text, encoding="utf-8")
    (found,) = added_folders([file], tmp_path)
    assert (found.folder, found.certain) == ((tmp_path / "pkg/libs").resolve(), certain)


@pytest.mark.parametrize(
    "text",
    [
        "os.add_dll_directory('/')", "x = 'libs'", "os.add_dll_directory(", "os.add_dll_directory()",
        "os.add_dll_directory(__file__" + "/'libs'" * 500 + ")", "(" * 5000 + " add_dll_directory",
        "os.add_dll_directory(os.path.join(os.path.dirname(__file__), '..', '..', '..'))",
    ],
)  # fmt: skip
def test_nothing_added(tmp_path, text):
    (tmp_path / "pkg/libs").mkdir(parents=True)
    file = tmp_path / "pkg/__init__.py"
    file.write_text(text, encoding="utf-8")
    assert added_folders([file], tmp_path) == []


HEADER = """
#ifndef A_H
#define API __declspec(dllexport)
#ifdef __cplusplus
extern "C" {
#endif
typedef struct { int x; } thing;
/* int commented(void); */
A_API int32_t first(const thing *a, double b);
A_API const char *
second(void);  // void third(void);
static inline int helper(int x) { return x; }
typedef void (*callback)(int);
#ifdef __cplusplus
}
#endif
#endif
"""


def test_expected_exports(tmp_path):
    assert declared(HEADER) == ["first", "second"]
    assert declared("int f(void);\nvoid g(int);") == ["f", "g"]
    header = tmp_path / "a.h"
    header.write_text(HEADER, encoding="utf-8")
    assert expected_exports(str(header)) == ("first", "second")
    names = tmp_path / "names.txt"
    names.write_text("# mine\nf\ng\n", encoding="utf-8")
    assert expected_exports(str(names)) == ("f", "g")
    with pytest.raises(DataError, match=r"no\.h"):
        expected_exports(str(tmp_path / "no.h"))
    with pytest.raises(ArgumentError, match="--expect-exports"):
        expected_exports(",")
