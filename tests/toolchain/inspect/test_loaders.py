"""Where each system finds libraries, on small trees of files."""

from __future__ import annotations

import pytest

pytest.importorskip("pefile", reason="Windows files are read with pefile")
pytest.importorskip("elftools", reason="Linux files are read with pyelftools")

from tests.toolchain.inspect import binaries

from sage_attention import ArgumentError
from sage_attention.toolchain.inspect.reading import read_binaries
from sage_attention.toolchain.inspect.subject import find_subject
from sage_attention.toolchain.inspect.survey import survey
from sage_attention.toolchain.inspect.target import describe_target
from sage_attention.toolchain.inspect.tree import walk

ADD = "import os\nos.add_dll_directory(os.path.join(os.path.dirname(__file__), 'libs'))\n"


@pytest.fixture
def folder(tmp_path):
    """Writes files below a folder that stands for site-packages."""
    read_binaries.cache_clear()

    def put(files):
        for name, data in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return tmp_path

    return put


def module(**imports):
    return binaries.pe(
        {"python311.dll": ["PyModule_Create2"], **{f"{k}.dll": v for k, v in imports.items()}}, ["PyInit_a"]
    )


def library(*exports, **more):
    return binaries.pe({"KERNEL32.dll": ["Sleep"]}, exports, **more)


def inspected(path, **options):
    target = describe_target(**options)
    (file,) = survey(find_subject(str(path), target.site, path.parent), target).files
    return file


def states(file):
    return {node.name: node.state for node, _ in walk(file.nodes)}


def python(folder, machine="x64"):
    """A Windows Python 3.11."""
    for name in ("python311.dll", "python3.dll"):
        data = binaries.pe({}, ["PyModule_Create2"], machine=machine)
        folder({f"Python/{name}": data})
    return folder({"Python/vcruntime140.dll": library("memcpy", version=(14, 44, 1, 1), machine=machine)}) / "Python"


def test_windows_order(folder):
    """The folder of the module, then that of python.exe, then the added ones; the first file counts."""
    place = python(folder)
    root = folder({"site/pkg/__init__.py": ADD, "site/pkg/a.pyd": module(b=["f"], c=["f"], d=["f"], e=["f"])})
    for name in (
        "site/pkg/b.dll",
        "Python/b.dll",
        "Python/c.dll",
        "site/pkg/libs/c.dll",
        "site/pkg/libs/d.dll",
        "site/pkg/other/e.dll",
    ):
        folder({name: library("f")})
    file = inspected(root / "site/pkg/a.pyd", python=str(place), site=str(root / "site"))
    assert states(file) == {
        "python311.dll": "loaded", "b.dll": "load_dir", "c.dll": "app_dir", "d.dll": "added_dir", "e.dll": "elsewhere",
        "KERNEL32.dll": "known",
    }  # fmt: skip
    assert (file.outcome.kind, file.outcome.winerror, file.outcome.culprit) == ("load_failed", 126, "e.dll")


def test_first_file_of_the_name_counts(folder):
    root = folder({"a.pyd": module(b=["f"]), "b.dll": library("f", machine="x86")})
    file = inspected(root / "a.pyd")
    assert states(file)["b.dll"] == "wrong_machine"
    assert file.outcome.winerror == 193
    read_binaries.cache_clear()
    file = inspected(folder({"b.dll": library("g")}) / "a.pyd")
    assert (file.outcome.winerror, file.outcome.detail) == (127, ("f",))
    read_binaries.cache_clear()
    file = inspected(folder({"b.dll": b"<html>"}) / "a.pyd")
    assert (states(file)["b.dll"], file.outcome.winerror) == ("unreadable", 193)


def test_a_missing_file_is_told_before_a_missing_function(folder):
    root = folder({"a.pyd": module(b=["g"], c=["f"]), "b.dll": library("f")})
    assert inspected(root / "a.pyd").outcome.winerror == 126


def test_delayed_libraries_do_not_count(folder):
    root = folder({"a.pyd": binaries.pe({}, ["PyInit_a"], delayed={"b.dll": ["f"]})})
    file = inspected(root / "a.pyd")
    assert (states(file), file.outcome.kind) == ({"b.dll": "missing"}, "ok")


def test_dlls_in_a_ring(folder):
    root = folder({"a.pyd": module(b=["f"])})
    folder({"b.dll": binaries.pe({"c.dll": ["f"]}, ["f"]), "c.dll": binaries.pe({"b.dll": ["f"]}, ["f"])})
    assert inspected(root / "a.pyd").outcome.kind == "ok"


def test_long_chain_of_dlls(folder):
    root = folder({"a.pyd": module(d0=["f"])})
    folder({f"d{number}.dll": binaries.pe({f"d{number + 1}.dll": ["f"]}, ["f"]) for number in range(300)})
    outcome = inspected(root / "a.pyd").outcome
    assert (outcome.winerror, outcome.culprit, len(outcome.via)) == (126, "d300.dll", 300)


def test_torch(folder):
    root = folder({"site/a.pyd": module(torch_cpu=["f"], c10=["g"]), "site/torch/lib/torch_cpu.dll": library("f")})
    folder({"site/torch/lib/c10.dll": library("g")})
    site = str(root / "site")
    file = inspected(root / "site/a.pyd", site=site)
    assert states(file)["c10.dll"] == "after_torch"
    assert (file.outcome.winerror, file.after_torch.kind) == (126, "ok")
    file = inspected(root / "site/a.pyd", site=site, after=("torch",))
    assert (states(file)["c10.dll"], file.outcome.kind, file.after_torch) == ("loaded", "ok", None)
    read_binaries.cache_clear()
    folder({"site/torch/lib/c10.dll": library("another")})
    file = inspected(root / "site/a.pyd", site=site, after=("torch",))
    assert (file.outcome.winerror, file.outcome.culprit) == (127, "c10.dll")


def test_torch_that_is_not_here(folder):
    root = folder({"a.pyd": module(c10=["g"])})
    assert states(inspected(root / "a.pyd"))["c10.dll"] == "after_torch"
    assert inspected(root / "a.pyd", after=("torch",)).outcome.kind == "ok"


def test_python_of_the_target(folder):
    place = python(folder)
    root = folder({"a.pyd": binaries.pe({"python310.dll": ["f"]}, ["PyInit_a"]), "python310.dll": library("f")})
    assert inspected(root / "a.pyd", python=str(place)).outcome.kind == "python_conflict"
    folder({"b.cp310-win_amd64.pyd": binaries.pe({}, ["PyInit_b"]), "c.pyd": binaries.pe({}, ["PyInit_d"])})
    assert inspected(root / "b.cp310-win_amd64.pyd", python=str(place)).outcome.kind == "not_considered"
    assert inspected(root / "b.cp310-win_amd64.pyd", python="3.10").outcome.kind == "ok"
    assert inspected(root / "c.pyd", python=str(place)).outcome.detail == ("PyInit_c",)
    folder({"d.pyd": binaries.pe({}, ["PyInit_d"], machine="x86")})
    assert inspected(root / "d.pyd", python=str(place)).outcome.winerror == 193


def test_redistributable(folder):
    """Nobody knows whether it is installed, unless the system folder is there to look into."""
    root = folder({"a.pyd": module(MSVCP140=["_Xlen"], c10=["f"]), "Windows/System32/other.dll": library("f")})
    file = inspected(root / "a.pyd")
    assert states(file)["MSVCP140.dll"] == "redistributable"
    assert (file.outcome.winerror, file.after_torch.kind) == (126, "ok")
    assert states(inspected(root / "a.pyd", windows=str(root / "Windows")))["MSVCP140.dll"] == "missing"


def test_virtual_environment(folder):
    place = python(folder)
    root = folder({"venv/pyvenv.cfg": f"home = {place}\nversion = 3.11.9\n", "venv/Scripts/python.exe": b"MZ"})
    for name in ("venv", "venv/Scripts", "venv/Scripts/python.exe"):
        assert describe_target(python=str(root / name)).python == place


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"python": "no such"}, "--python"), ({"site": "no such"}, "--site"), ({"torch": "no such"}, "--torch"),
        ({"windows": "no such"}, "--windows"), ({"dll_directories": ("no such",)}, "--dll-directory"),
        ({"python": "."}, "--python"),
    ],
)  # fmt: skip
def test_wrong_options(options, named, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ArgumentError, match=f"^{named}: expected"):
        describe_target(**options)


def test_windows_folder(folder):
    root = folder(
        {
            "Windows/System32/mine.dll": library("f"),
            "a.pyd": binaries.pe({"mine.dll": ["f"], "iphlpapi.dll": ["f"]}, ["PyInit_a"]),
        }
    )
    assert states(inspected(root / "a.pyd", windows=str(root / "Windows"))) == {
        "mine.dll": "system",
        "iphlpapi.dll": "missing",
    }
    assert states(inspected(root / "a.pyd"))["iphlpapi.dll"] == "assumed_system"


def test_linux_search_paths(folder):
    root = folder({
        "site/pkg/a.cpython-311-x86_64-linux-gnu.so": binaries.elf(
            ["libb.so", "libc.so.6"], ["PyInit_a"], runpath="$ORIGIN/../pkg.libs"
        ),
        "site/pkg.libs/libb.so": binaries.elf(["libd.so"]),
        "site/pkg.libs/libd.so": binaries.elf(["libc.so.6"]),
    })  # fmt: skip
    path = root / "site/pkg/a.cpython-311-x86_64-linux-gnu.so"
    file = inspected(path, site=str(root / "site"))
    assert states(file) == {"libb.so": "bundled", "libc.so.6": "policy", "libd.so": "elsewhere"}
    assert (file.outcome.kind, file.outcome.culprit, file.outcome.via) == ("load_failed", "libd.so", ("libb.so",))
    # A library of that name that is loaded already will do, wherever it lies.
    read_binaries.cache_clear()
    both = binaries.elf(["libb.so", "libd.so"], ["PyInit_a"], runpath="$ORIGIN/../pkg.libs")
    folder({"site/pkg/a.cpython-311-x86_64-linux-gnu.so": both})
    file = inspected(path, site=str(root / "site"))
    assert (file.outcome.kind, file.nodes[0].place) == ("ok", "pkg.libs/libb.so")
    # RPATH, unlike RUNPATH, is handed down.
    read_binaries.cache_clear()
    folder(
        {
            "site/pkg/a.cpython-311-x86_64-linux-gnu.so": binaries.elf(
                ["libb.so"], ["PyInit_a"], rpath="${ORIGIN}/../pkg.libs"
            )
        }
    )
    assert inspected(path, site=str(root / "site")).outcome.kind == "ok"


def test_linux_for_another_machine_and_with_libpython(folder):
    root = folder({
        "site/a.abi3.so": binaries.elf(
            ["libb.so", "libpython3.11.so.1.0", "libcudart.so.12"], ["PyInit_a"], runpath="$ORIGIN"
        ),
        "site/libb.so": binaries.elf(machine=183),
    })  # fmt: skip
    assert states(inspected(root / "site/a.abi3.so", site=str(root / "site"))) == {
        "libb.so": "wrong_machine", "libpython3.11.so.1.0": "libpython", "libcudart.so.12": "cuda",
    }  # fmt: skip


def test_macos_search_paths(folder):
    needed = [
        "@rpath/libb.dylib",
        "/usr/lib/libSystem.B.dylib",
        "@loader_path/libd.dylib",
        "/opt/x/libe.dylib",
        "?@rpath/libf.dylib",
    ]
    root = folder({
        "site/pkg/a.cpython-311-darwin.so": binaries.macho(
            [*needed, "@rpath/libc10.dylib"], ["PyInit_a"], rpaths=["@loader_path/../lib"]
        ),
        "site/lib/libb.dylib": binaries.macho(["@rpath/libd.dylib"]),
        "site/pkg/libd.dylib": binaries.macho(),
    })  # fmt: skip
    file = inspected(root / "site/pkg/a.cpython-311-darwin.so", site=str(root / "site"))
    assert states(file) == {
        "@rpath/libb.dylib": "bundled", "/usr/lib/libSystem.B.dylib": "macos", "@loader_path/libd.dylib": "bundled",
        "/opt/x/libe.dylib": "no_such_place", "@rpath/libf.dylib": "missing", "@rpath/libc10.dylib": "after_torch",
        "@rpath/libd.dylib": "missing",
    }  # fmt: skip
