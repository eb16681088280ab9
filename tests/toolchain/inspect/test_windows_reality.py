"""What ``inspect`` says of an import against what a Windows Python makes of it.

Needs a bench with Microsoft's headers and libraries and a Windows Python (natively or on Wine); skipped without it.
Run it with ``SAGE_ATTENTION_WINDOWS_LAB=<folder> pytest tests/toolchain/inspect/test_windows_reality.py``.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("pefile", reason="Windows files are read with pefile")

from tests.toolchain.inspect.windows_cases import build

from sage_attention.errors import DataError
from sage_attention.toolchain.inspect.subject import find_subject
from sage_attention.toolchain.inspect.survey import survey
from sage_attention.toolchain.inspect.target import describe_target

LAB = Path(os.environ.get("SAGE_ATTENTION_WINDOWS_LAB", "/nonexistent"))
pytestmark = pytest.mark.skipif(
    not (LAB / "bin/wpy").is_file() or not (LAB / "bin/clangcl").is_file(),
    reason="needs a Windows bench: SAGE_ATTENTION_WINDOWS_LAB names a folder with bin/wpy and bin/clangcl",
)

# Runs in the Windows Python: imports, and where loading failed asks the loader itself for the number.
PROGRAM = r"""
import ctypes, glob, importlib, importlib.util, json, os, sys
HERE, module, before = sys.argv[1:4]
sys.path.insert(0, HERE)
def outcome():
    try:
        exec(before, {"HERE": HERE})
        importlib.import_module(module)
        return "ok"
    except ModuleNotFoundError:
        return "not_considered"
    except ImportError as error:
        text = str(error)
        if "conflicts with this version" in text:
            return "python_conflict"
        if "does not define module export function" in text:
            return "no_init"
        try:
            ctypes.WinDLL(error.path, winmode=0x1100)
        except FileNotFoundError:  # what ctypes makes of 126
            return "126"
        except OSError as again:
            return str(again.winerror)
        return text
    except BaseException as error:
        return type(error).__name__ + ": " + str(error)
print("OUTCOME " + json.dumps(outcome()))
"""


def windows(path):
    """A path as the Windows Python sees it."""
    return "Z:" + str(path).replace("/", "\\")


def real_outcome(case, folder):
    words = [str(LAB / "bin/wpy"), "-c", PROGRAM, windows(folder), case.module, case.before]
    done = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("OUTCOME ")]
    assert lines, done.stdout + done.stderr
    return json.loads(lines[-1][8:])


def predicted_outcome(case, folder):
    system32 = LAB / "prefix/drive_c/windows"
    target = describe_target(
        python=str(LAB / "py311"), site=str(folder), windows=str(system32) if system32.is_dir() else None,
        after=case.after, dll_directories=tuple(str(folder / name) for name in case.dll_directories),
    )  # fmt: skip
    (path,) = folder.joinpath(*case.module.split(".")).parent.glob(f"{case.module.rpartition('.')[2]}.*pyd")
    try:
        (file,) = survey(find_subject(str(path), target.site, folder / "scratch"), target).files
    except DataError:
        return "193"  # what the loader says to a file that is no module
    return str(file.outcome.winerror or file.outcome.kind)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cases")
    return folder, build(LAB, folder)


def test_prediction_is_what_windows_does(built):
    folder, cases = built
    assert len(cases) >= 20
    wrong = []
    for case in cases:
        predicted = predicted_outcome(case, folder / case.name)
        real = real_outcome(case, folder / case.name)
        print(f"{case.name:55} predicted {predicted:16} really {real}")
        if predicted != case.ends or real != (case.on_wine or case.ends):
            wrong.append(f"{case.name}: predicted {predicted}, expected {case.ends}, really {real}")
    assert not wrong, "\n".join(wrong)
