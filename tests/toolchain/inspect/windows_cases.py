"""Extension modules that load, and ones that fail in each way there is, built with Microsoft's headers and libraries.

``SAGE_ATTENTION_WINDOWS_LAB`` names a folder with ``bin/clangcl`` and ``bin/cl`` (compilers that find headers and
libraries by themselves), ``bin/wpy`` (a Windows Python) and ``py311`` (its folder).
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.toolchain.inspect import binaries

MODULE = """
#define PY_SSIZE_T_CLEAN
#ifdef DEBUG_RUNTIME
#undef _DEBUG
#include <Python.h>
#define _DEBUG
#else
#include <Python.h>
#endif
#ifdef NEEDS
__declspec(dllimport) int NEEDS(void);
#endif
#ifdef OLD_PYTHON
__declspec(dllimport) int only_in_old_python(void);
#endif
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "m", NULL, -1, NULL};
PyMODINIT_FUNC INIT(void) {
    PyObject *made = PyModule_Create(&module);
#ifdef NEEDS
    if (made && !LATER) PyModule_AddIntConstant(made, "value", NEEDS());
#endif
#ifdef OLD_PYTHON
    if (made && LATER) PyModule_AddIntConstant(made, "value", only_in_old_python());
#endif
    return made;
}
"""
LIBRARY = """
#ifdef NEEDS
__declspec(dllimport) int NEEDS(void);
__declspec(dllexport) int NAME(void) { return NEEDS() + 1; }
#else
__declspec(dllexport) int NAME(void) { return 1; }
#endif
"""


@dataclass(frozen=True)
class Case:
    """One import: what is prepared first, and what it ends in on Windows.

    ``ends`` is ok, 126, 127, 193, python_conflict, no_init or not_considered; ``on_wine`` what Wine makes of it where
    it differs from Windows, with the reason in ``why``.
    """

    name: str
    module: str
    ends: str
    before: str = ""  # Python that runs first
    after: tuple[str, ...] = ()
    dll_directories: tuple[str, ...] = ()
    on_wine: str = ""
    why: str = ""


class Builder:
    """Compiles into a folder."""

    def __init__(self, lab: Path, folder: Path) -> None:
        self.lab, self.folder = lab, folder
        self.work = folder / "build"
        self.work.mkdir(parents=True)
        (self.work / "module.c").write_text(MODULE, encoding="utf-8")
        (self.work / "library.c").write_text(LIBRARY, encoding="utf-8")

    def run(self, *words: str) -> None:
        done = subprocess.run(words, cwd=self.work, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(words)}\n{done.stdout}\n{done.stderr}")

    def library(self, name: str, place: str, needs: str = "", libs: tuple[str, ...] = ()) -> None:
        """place/name.dll, which exports a function of its name."""
        target = self.folder / place / f"{name}.dll"
        target.parent.mkdir(parents=True, exist_ok=True)
        defines = [f"/DNAME={name}"] + ([f"/DNEEDS={needs}"] if needs else [])
        self.run(
            str(self.lab / "bin/clangcl"), "/nologo", "/LD", "/MD", *defines, "library.c", f"/Fo{name}.obj",
            f"/Fe{target}", "/link", *libs, f"/implib:{name}.lib",
        )  # fmt: skip

    def module(
        self, place: str, needs: str = "", *, init: str = "", old_python: bool = False, limited: bool = False,
        debug: bool = False, link: tuple[str, ...] = (), later: bool = False,
    ) -> None:  # fmt: skip
        """An extension module at a place below the folder, ``a.pyd`` or ``pkg/a.cp311-win_amd64.pyd``."""
        target = self.folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        python = self.lab / "py311"
        name = target.name.split(".")[0]
        defines = [f"/DINIT={init or 'PyInit_' + name}", f"/DLATER={int(later or old_python)}"]
        defines += [f"/DNEEDS={needs}"] if needs else []
        defines += ["/DOLD_PYTHON"] if old_python else []
        defines += ["/DPy_LIMITED_API=0x03090000"] if limited else []
        defines += ["/DDEBUG_RUNTIME"] if debug else []
        libs = ["python310.lib" if old_python else str(python / ("python3.lib" if limited else "libs/python311.lib"))]
        libs += [f"{needs}.lib"] if needs else []
        self.run(
            str(self.lab / "bin/clangcl"), "/nologo", "/LD", "/MDd" if debug else "/MD", f"/I{python / 'include'}",
            *defines, "module.c", f"/Fo{name}.obj", f"/Fe{target}", "/link", *libs, f"/implib:{name}_.lib",
            "/nodefaultlib:python3.lib", "/nodefaultlib:python311.lib", *link,
        )  # fmt: skip

    def imports(self, name: str, *symbols: str) -> None:
        """name.lib for a name.dll that need not exist."""
        (self.work / f"{name}.def").write_text(f"LIBRARY {name}.dll\nEXPORTS\n" + "\n".join(symbols), encoding="utf-8")
        dlltool = next(tool for tool in ("llvm-dlltool-19", "llvm-dlltool") if _there(tool))
        self.run(dlltool, "-m", "i386:x86-64", "-d", f"{name}.def", "-l", f"{name}.lib")

    def data(self, place: str, data: bytes | str) -> None:
        target = self.folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data.encode() if isinstance(data, str) else data)


def _there(tool: str) -> bool:
    return any(Path(folder, tool).is_file() for folder in os.environ["PATH"].split(os.pathsep))


def build(lab: Path, folder: Path) -> list[Case]:
    """Builds everything and returns the cases; each has a folder of its own, its site-packages."""
    made = Builder(lab, folder)
    made.imports("nosuch", "nosuch")
    made.imports("python310", "PyModule_Create2", "PyModule_AddIntConstant", "only_in_old_python")
    made.library("helper", "store")
    made.library("inner", "store")
    made.library("outer", "store", needs="inner", libs=("inner.lib",))
    helper = (folder / "store/helper.dll").read_bytes()
    inner, outer = (folder / "store/inner.dll").read_bytes(), (folder / "store/outer.dll").read_bytes()
    wrong = binaries.pe({"KERNEL32.dll": ["Sleep"]}, ["helper"], machine="x86")
    add = b"import os\nos.add_dll_directory(os.path.join(os.path.dirname(__file__), 'libs'))\n"
    cases: list[Case] = []

    def case(name: str, module: str, ends: str, **more: object) -> str:
        cases.append(Case(name, module, ends, **more))  # type: ignore[arg-type]
        return name

    here = case("plain", "a", "ok")
    made.module(f"{here}/a.pyd")
    plain = (folder / here / "a.pyd").read_bytes()
    here = case("tagged", "a", "ok")
    made.data(f"{here}/a.cp311-win_amd64.pyd", plain)
    here = case("tag of another Python", "a", "not_considered")
    made.data(f"{here}/a.cp310-win_amd64.pyd", plain)
    here = case("missing DLL", "a", "126")
    made.module(f"{here}/a.pyd", "nosuch")
    here = case("beside the module", "a", "ok")
    made.module(f"{here}/a.pyd", "helper")
    needs_helper = (folder / here / "a.pyd").read_bytes()
    made.data(f"{here}/helper.dll", helper)
    here = case("beside the module in other letters", "a", "ok")
    made.data(f"{here}/a.pyd", needs_helper)
    made.data(f"{here}/HELPER.DLL", helper)
    here = case("in a subfolder nobody adds", "pkg.a", "126")
    made.data(f"{here}/pkg/__init__.py", "")
    made.data(f"{here}/pkg/a.pyd", needs_helper)
    made.data(f"{here}/pkg/libs/helper.dll", helper)
    here = case("in a subfolder that the package adds", "pkg.a", "ok")
    made.data(f"{here}/pkg/__init__.py", add)
    made.data(f"{here}/pkg/a.pyd", needs_helper)
    made.data(f"{here}/pkg/libs/helper.dll", helper)
    here = case(
        "in a folder that the user adds", "a", "ok", dll_directories=("elsewhere",),
        before="import os; os.add_dll_directory(os.path.join(HERE, 'elsewhere'))",
    )  # fmt: skip
    made.data(f"{here}/a.pyd", needs_helper)
    made.data(f"{here}/elsewhere/helper.dll", helper)
    path = "import os; os.environ['PATH'] = os.path.join(HERE, 'elsewhere') + os.pathsep + os.environ['PATH']"
    here = case("in PATH alone", "a", "126", before=path)
    made.data(f"{here}/a.pyd", needs_helper)
    made.data(f"{here}/elsewhere/helper.dll", helper)
    here = case(
        "in the current folder alone", "a", "126", before="import os; os.chdir(os.path.join(HERE, 'elsewhere'))"
    )
    made.data(f"{here}/a.pyd", needs_helper)
    made.data(f"{here}/elsewhere/helper.dll", helper)
    for name, ends, before, after in (
        ("before the other import", "126", "", ()),
        ("after the other import", "ok", "import first._x", ("first._x",)),
    ):
        here = case(name, "a", ends, before=before, after=after)
        made.data(f"{here}/a.pyd", needs_helper)
        made.data(f"{here}/first/__init__.py", "")
        made.module(f"{here}/first/_x.pyd", "helper")
        made.data(f"{here}/first/helper.dll", helper)
    here = case("a DLL of a DLL beside", "a", "ok")
    made.module(f"{here}/a.pyd", "outer")
    needs_outer = (folder / here / "a.pyd").read_bytes()
    made.data(f"{here}/outer.dll", outer)
    made.data(f"{here}/inner.dll", inner)
    here = case("a DLL of a DLL is missing", "a", "126")
    made.data(f"{here}/a.pyd", needs_outer)
    made.data(f"{here}/outer.dll", outer)
    here = case("both in a subfolder that the package adds", "pkg.a", "ok")
    made.data(f"{here}/pkg/__init__.py", add)
    made.data(f"{here}/pkg/a.pyd", needs_outer)
    made.data(f"{here}/pkg/libs/outer.dll", outer)
    made.data(f"{here}/pkg/libs/inner.dll", inner)
    here = case("one beside, its DLL in a subfolder", "a", "126")
    made.data(f"{here}/a.pyd", needs_outer)
    made.data(f"{here}/outer.dll", outer)
    made.data(f"{here}/libs/inner.dll", inner)
    here = case(
        "beside the DLL that needs it, not beside the module",
        "pkg.a",
        "126",
        before="import os; os.add_dll_directory(os.path.join(HERE, 'one'))",
        dll_directories=("one",),
    )
    made.data(f"{here}/pkg/__init__.py", "")
    made.data(f"{here}/pkg/a.pyd", needs_outer)
    made.data(f"{here}/one/outer.dll", outer)
    made.data(f"{here}/two/inner.dll", inner)
    here = case(
        "DLL for another processor",
        "a",
        "193",
        on_wine="126",
        why="Wine reports every failure of a dependency as not found",
    )
    made.data(f"{here}/a.pyd", needs_helper)
    made.data(f"{here}/helper.dll", wrong)
    here = case(
        "DLL for another processor before the right one", "a", "193", dll_directories=("right",),
        before="import os; os.add_dll_directory(os.path.join(HERE, 'right'))",
        on_wine="ok", why="Wine skips a file of another machine and looks further",
    )  # fmt: skip
    made.data(f"{here}/a.pyd", needs_helper)
    made.data(f"{here}/helper.dll", wrong)
    made.data(f"{here}/right/helper.dll", helper)
    here = case("loaded before, whatever lies beside", "a", "ok", before="import first._x", after=("first._x",))
    made.data(f"{here}/a.pyd", needs_helper)
    made.data(f"{here}/helper.dll", wrong)
    made.data(f"{here}/first/__init__.py", "")
    made.module(f"{here}/first/_x.pyd", "helper")
    made.data(f"{here}/first/helper.dll", helper)
    here = case("module for another processor", "a", "193")
    made.data(f"{here}/a.pyd", binaries.pe({"KERNEL32.dll": ["Sleep"]}, ["PyInit_a"], machine="x86"))
    here = case("DLL lacks the function", "a", "127", on_wine="ok", why="Wine puts a stub there that fails when called")
    made.module(f"{here}/a.pyd", "helper", later=True)
    made.data(f"{here}/helper.dll", inner)
    here = case(
        "DLL is no DLL", "a", "193", on_wine="126", why="Wine reports every failure of a dependency as not found"
    )
    made.data(f"{here}/a.pyd", needs_helper)
    made.data(f"{here}/helper.dll", "<html>404 Not Found</html>" * 100)
    here = case("module is cut off", "a", "193")
    made.data(f"{here}/a.pyd", plain[: len(plain) // 2])
    here = case("module is empty", "a", "193")
    made.data(f"{here}/a.pyd", b"")
    here = case("debug C run-time library", "a", "126")
    made.module(f"{here}/a.pyd", debug=True)
    here = case("another Python's DLL, absent", "a", "126")
    made.module(f"{here}/a.pyd", old_python=True)
    needs_310 = (folder / here / "a.pyd").read_bytes()
    here = case("another Python's DLL, present", "a", "python_conflict")
    made.data(f"{here}/a.pyd", needs_310)
    made.data(
        f"{here}/python310.dll",
        binaries.pe({"KERNEL32.dll": ["Sleep"]}, ["PyModule_Create2", "PyModule_AddIntConstant", "only_in_old_python"]),
    )
    here = case("no PyInit", "a", "no_init")
    made.module(f"{here}/a.pyd", init="PyInit_b")
    here = case("renamed", "b", "no_init")
    made.data(f"{here}/b.pyd", plain)
    here = case("stable ABI", "a", "ok")
    made.module(f"{here}/a.pyd", limited=True)
    here = case("an API set is no file", "a", "ok")
    made.data(f"{here}/a.pyd", plain)
    made.data(f"{here}/api-ms-win-crt-runtime-l1-1-0.dll", wrong)
    here = case("missing DLL, loaded at the first call", "a", "ok")
    made.module(f"{here}/a.pyd", "nosuch", link=("/delayload:nosuch.dll", "delayimp.lib"), later=True)
    here = case("beside python.exe", "a", "ok")
    made.imports("msvcp140", "_Mtx_unlock")
    (made.work / "_Mtx_unlock.lib").write_bytes((made.work / "msvcp140.lib").read_bytes())
    made.module(f"{here}/a.pyd", "_Mtx_unlock", later=True)
    return cases
