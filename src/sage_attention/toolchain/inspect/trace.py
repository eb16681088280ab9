"""``inspect --trace MODULE``: imports a module in a process of its own and says why that fails.

The import happens in a child, so that a crash or an endless loop in somebody's initialisation cannot take us along.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from sage_attention.errors import ArgumentError, SageAttentionError

from .findings import phrase

__all__ = ["Trace", "trace_import", "trace_lines"]

_SECONDS = 180
_MARK = "sage-attention-trace:"

# Runs in the other Python, whatever its version: no syntax later than 3.8, nothing but its standard library.
_CHILD = r"""
import importlib, importlib.util, json, os, sys
name, mark = sys.argv[1], sys.argv[2]
told = {"executable": sys.executable, "base": getattr(sys, "_base_executable", "") or sys.executable,
        "version": list(sys.version_info[:2]), "path": [p for p in sys.path if p], "origin": None, "error": None}
def tell():
    sys.stdout.flush()
    os.write(1, ("\n" + mark + json.dumps(told) + "\n").encode())
def loaded():
    try:
        if os.name == "nt":
            import ctypes
            from ctypes import wintypes
            k, size = ctypes.WinDLL("kernel32"), 4096
            get = k.K32EnumProcessModules
            get.argtypes = [wintypes.HANDLE, ctypes.c_void_p, wintypes.DWORD, ctypes.c_void_p]
            k.GetCurrentProcess.restype = wintypes.HANDLE
            handles, needed = (ctypes.c_void_p * size)(), wintypes.DWORD()
            get(k.GetCurrentProcess(), handles, ctypes.sizeof(handles), ctypes.byref(needed))
            k.GetModuleFileNameW.argtypes = [ctypes.c_void_p, wintypes.LPWSTR, wintypes.DWORD]
            out, text = [], ctypes.create_unicode_buffer(32768)
            for handle in handles[: min(size, needed.value // ctypes.sizeof(ctypes.c_void_p))]:
                if k.GetModuleFileNameW(handle, text, 32768):
                    out.append(text.value)
            return out
        with open("/proc/self/maps") as maps:
            return sorted({line.split(None, 5)[5].strip() for line in maps if ".so" in line})
    except Exception:
        return []
def origin_of(full):
    # What find_spec would find, without importing the module itself.
    try:
        spec = importlib.util.find_spec(full)
        return getattr(spec, "origin", None)
    except BaseException:
        return None
told["origin"] = origin_of(name)
tell()
try:
    importlib.import_module(name)
except BaseException as error:
    first = error
    while first.__cause__ is not None or (first.__context__ is not None and not first.__suppress_context__):
        first = first.__cause__ or first.__context__
    chosen = next((e for e in (error, first) if getattr(e, "path", None)), first)
    told["error"] = {"type": type(chosen).__name__, "message": str(chosen),
                     "winerror": getattr(chosen, "winerror", None), "file": getattr(chosen, "path", None)}
told["loaded"] = loaded()
told["done"] = True
tell()
"""


@dataclass(frozen=True)
class Trace:
    """What importing a module in a process of its own ended in.

    Attributes:
        module: Its dotted name.
        python: The executable.
        base: The executable whose folder is searched (of a virtual environment: that it was made from).
        version: Of that Python.
        file: The file that could not be loaded, else the module's own.
        error: Type and message of the exception; empty if there was none.
        winerror: The number that Windows gave, 0 if none.
        exit_code: Of the process, if it ended before the import did.
        loaded: The libraries in the process afterwards.
    """

    module: str
    python: str
    base: str
    version: tuple[int, int]
    file: Path | None
    error: str = ""
    winerror: int = 0
    exit_code: int | None = None
    loaded: tuple[str, ...] = field(default=(), repr=False)


def trace_import(module: str, python: str | None = None, paths: tuple[str, ...] = ()) -> Trace:
    """Imports a module elsewhere.

    Args:
        module: Its dotted name.
        python: The executable, or the folder it is in; this Python by default.
        paths: Folders to put before its search path.

    Raises:
        ArgumentError: There is no Python of that name, or the name is not one of a module.
        SageAttentionError: That Python cannot be run.
    """
    if not module or not all(part.isidentifier() for part in module.split(".")):
        raise ArgumentError("--trace", "the dotted name of a module", repr(module))
    executable = _executable(python)
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    if paths:
        environment["PYTHONPATH"] = os.pathsep.join([*paths, *filter(None, [environment.get("PYTHONPATH", "")])])
    try:
        done = subprocess.run(  # noqa: S603  # the Python that the user named
            [executable, "-c", _CHILD, module, _MARK], input=b"", capture_output=True,
            timeout=_SECONDS, check=False, env=environment,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Trace(module, executable, executable, (0, 0), None, f"no answer within {_SECONDS} s")
    except OSError as error:
        raise SageAttentionError(f"{executable}: cannot be run: {error.strerror or error}") from error
    lines = [line for line in done.stdout.decode("utf-8", "replace").splitlines() if line.startswith(_MARK)]
    if not lines:
        said = "".join(done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]) or "-"
        raise SageAttentionError(f"{executable}: expected a working Python, got exit code {done.returncode}: {said}")
    told = json.loads(lines[-1][len(_MARK) :])
    failure = told["error"]
    file = (failure or {}).get("file") or told["origin"]
    return Trace(
        module=module,
        python=told["executable"] or executable,
        base=told["base"] or executable,
        version=(told["version"][0], told["version"][1]),
        file=Path(file) if file and Path(file).is_file() else None,
        error=f"{failure['type']}: {failure['message']}" if failure else "",
        winerror=(failure or {}).get("winerror") or _number(failure),
        exit_code=None if told.get("done") else done.returncode,
        loaded=tuple(told.get("loaded") or ()),
    )


def _executable(python: str | None) -> str:
    if python is None:
        return sys.executable
    path = Path(python)
    names = ("python.exe", "Scripts/python.exe", "bin/python3", "bin/python", "python3", "python")
    found = path if path.is_file() else next((path / name for name in names if (path / name).is_file()), None)
    if found is None:
        raise ArgumentError("--python", "with --trace, a Python that can be run here", python)
    return str(found)


def _number(error: dict[str, object] | None) -> int:
    """An ImportError carries no number; its text does, in whatever language, for Windows' own messages."""
    text = str(error["message"]) if error else ""
    if error is None or "DLL load failed" not in text:
        return 0
    for number, signs in (
        (193, ("%1", "Win32", "valid application")),
        (127, ("procedure", "程序", "プロシージャ", "Prozedur", "procédure", "процедура")),
        (1114, ("initialization routine", "初始化例程", "初期化ルーチン", "Initialisierungsroutine")),
        (126, ("module", "模块", "モジュール", "Modul", "модуль", "módulo", "모듈")),
    ):
        if any(sign in text.partition("importing")[2].partition(":")[2] for sign in signs):
            return number
    return 0


def trace_lines(trace: Trace, language: str) -> list[str]:
    """What happened, in words.

    Args:
        trace: From ``trace_import``.
        language: ``en`` or ``zh``.
    """
    python = f"{trace.python} ({trace.version[0]}.{trace.version[1]})"
    lines = [phrase("trace", "imported", language, module=trace.module, python=python)]
    if trace.exit_code is not None:
        lines.append("✗ " + phrase("trace", "crashed", language, code=exit_code_text(trace.exit_code, language)))
    elif trace.error:
        lines.append(f"✗ {trace.error}")
    else:
        lines.append("✓ " + phrase("trace", "works", language))
    if trace.file is not None:
        lines.append(phrase("trace", "file", language, file=str(trace.file)))
    elif trace.error or trace.exit_code is not None:
        lines.append(phrase("trace", "no_file", language))
    return lines


def exit_code_text(code: int, language: str) -> str:
    """An exit code with what it stands for.

    Example:
        >>> exit_code_text(0xC0000005, "en")
        '0xC0000005, access violation: mixed C run-time libraries, a wrong ABI, or a plain bug'
    """
    unsigned = code & 0xFFFFFFFF
    if code < 0 and os.name != "nt":
        try:
            return f"{signal.Signals(-code).name}"
        except ValueError:
            return str(code)
    if unsigned < 0x10000:
        return str(code)
    meaning = phrase("crashes", f"{unsigned:08X}", language)
    return f"0x{unsigned:08X}" + (f", {meaning}" if meaning else "")
