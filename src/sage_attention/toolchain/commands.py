"""The arguments of ``explain``, ``doctor`` and ``inspect``; each command's module is imported when it is asked for."""

from __future__ import annotations

import argparse
from typing import Any

from .wording import LANGUAGES

__all__ = ["add_commands"]


def add_commands(commands: Any) -> None:
    """Adds the toolchain commands to the command line.

    Args:
        commands: What ``ArgumentParser.add_subparsers`` gave.
    """
    _add_explain(commands)
    _add_doctor(commands)
    _add_inspect(commands)


_EXPLAIN = """\
Reads what a failed build or import printed, names the root cause, quotes the line that proves it, and says what to
type. Takes any log: pip, uv, conda, CMake, ninja, meson, setuptools, torch extensions, nvcc, MSVC, gcc, clang, Rust;
any encoding (UTF-8, UTF-16 from PowerShell, GBK, Shift-JIS ...) and messages in many languages; a fragment will do.
"""
_EXPLAIN_EXAMPLES = """\
examples:
  pip install -v torch-scatter > build.log 2>&1         then: sage-attention explain build.log
  python -c "import mypkg" 2>&1 | sage-attention explain
  sage-attention explain build.log --format json        for scripts
  sage-attention explain build.log --doctor             weighs in what this machine has

answers:
  explained     the cause, how sure it is, the fix; where the log does not decide, the candidates and what decides
  no_failure    nothing failed; warnings that look bad are named harmless
  insufficient  the log passes on that something failed and not what; which lines to send
  unknown       no known signature; the first lines that report an error

exit code: 0 explained or no failure, 1 not explained, 2 wrong usage or a file that cannot be read
"""


_DOCTOR = """\
Looks at what this machine can compile and run, and says what to type where something is in the way: Pythons, Visual
Studio and its toolsets, the Windows SDK, this shell, CUDA and the compilers its nvcc accepts, torch, versions of
packages that break builds, memory. Changes nothing.
"""
_DOCTOR_EXAMPLES = """\
examples:
  sage-attention doctor                       everything, a line each
  sage-attention doctor -v                    with the evidence
  sage-attention doctor --for torch-scatter   is there a wheel for this Python? what would a build need?
  sage-attention doctor --python 3.11         for another Python than the one that runs this
  sage-attention doctor env --toolset 14.38 --shell cmd > activate.bat && call activate.bat

exit code: 0 nothing is in the way, 1 something is, 2 wrong usage
"""
_ENV = """\
Prints the commands that set up a shell for a build: the compiler of one toolset, the Windows SDK, the Python, CUDA, and
the flags that setuptools and torch ask for. Runs nothing.
"""


def _add_explain(commands: Any) -> None:
    parser = commands.add_parser(
        "explain",
        help="name the root cause in the log of a failed build or import",
        description=_EXPLAIN,
        epilog=_EXPLAIN_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("logs", nargs="*", metavar="LOG", help="files in the order they were written; - or none: stdin")
    parser.add_argument("--doctor", action="store_true", help="weigh in the facts of this machine")
    _add_output_options(parser)
    parser.set_defaults(run=_explain)


def _explain(arguments: argparse.Namespace) -> int:
    from .explain.command import run

    return run(arguments)


def _add_doctor(commands: Any) -> None:
    parser = commands.add_parser(
        "doctor",
        help="what this machine can compile, and how to mend what it cannot",
        description=_DOCTOR,
        epilog=_DOCTOR_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--for", dest="package", metavar="PACKAGE", help="a package to install: name or name==version")
    parser.add_argument("--python", metavar="PYTHON", help="path or version of another Python to look at")
    parser.add_argument("-v", "--verbose", action="store_true", help="notes and evidence too")
    _add_output_options(parser)
    parser.set_defaults(run=_doctor, action="look")
    actions = parser.add_subparsers(dest="action", metavar="", title="more")
    env = actions.add_parser("env", help="print the commands that activate a compiler", description=_ENV)
    env.add_argument(
        "--toolset", metavar="VERSION", help="of MSVC (14.38) or gcc (12); default: the one that fits CUDA"
    )
    env.add_argument("--python", metavar="PYTHON", default=argparse.SUPPRESS, help="path or version")
    env.add_argument("--target", choices=("x64", "x86", "arm64"), help="default: that of the Python")
    env.add_argument("--shell", choices=("cmd", "powershell", "bash"), help="default: cmd on Windows, bash elsewhere")
    env.add_argument("--lang", choices=LANGUAGES, default=argparse.SUPPRESS, help=argparse.SUPPRESS)


def _doctor(arguments: argparse.Namespace) -> int:
    from .doctor.command import run

    return run(arguments)


def _add_inspect(commands: Any) -> None:
    inspect = commands.add_parser(
        "inspect",
        help="what a DLL, extension module or wheel needs, and whether Python finds it",
        description="Reads extension modules, shared libraries and wheels of Windows, Linux and macOS on any system: "
        "what they were built for, what they export, and for each library they need where Python would find it, or "
        "why not. Nothing of them is run (but by --trace).",
        epilog="Examples:\n"
        "  sage-attention inspect package-1.0-cp311-cp311-win_amd64.whl\n"
        "  sage-attention inspect _ext.pyd --python C:\\Python311        as that Python would load it\n"
        "  sage-attention inspect torch_scatter --site venv/Lib/site-packages --after torch\n"
        "  sage-attention inspect dist/x.whl --strict        a gate for a build: 0 clean, 1 findings, 2 unreadable\n"
        "  sage-attention inspect --trace package._ext                 why does this import fail here?\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    inspect.add_argument(
        "subject", nargs="*", metavar="FILE|WHEEL|PACKAGE",
        help="binaries, wheels, folders, or names of installed modules or distributions",
    )  # fmt: skip
    target = inspect.add_argument_group("the installation it shall run in (default: a usual one)")
    target.add_argument(
        "--python", metavar="VERSION|FOLDER", help="3.12, 3.13t, or where a Python or an environment is"
    )
    target.add_argument("--site", metavar="FOLDER", help="its site-packages (default: that of --python)")
    target.add_argument("--torch", metavar="FOLDER|yes", help="its torch package (default: that in --site)")
    target.add_argument("--windows", metavar="FOLDER", help="its C:\\Windows (default: a list of what Windows brings)")
    target.add_argument("--after", action="append", metavar="MODULE", help="imported before it; may be repeated")
    target.add_argument(
        "--dll-directory", action="append", metavar="FOLDER",
        help="registered before it with os.add_dll_directory; may be repeated",
    )  # fmt: skip
    inspect.add_argument(
        "--expect-exports", metavar="HEADER|NAMES", help="functions that must be exported: a C header, a list, or a,b,c"
    )
    inspect.add_argument(
        "--trace", metavar="MODULE", help="import a module in a process of its own and say why it fails"
    )
    inspect.add_argument("--strict", action="store_true", help="exit code 1 if there is an error or a warning")
    inspect.add_argument("-v", "--verbose", action="store_true", help="every library on its own line, every export")
    _add_output_options(inspect)
    inspect.set_defaults(run=_run_inspect)


def _run_inspect(arguments: argparse.Namespace) -> int:
    from .inspect.command import run

    return run(arguments)


def _add_output_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")
    parser.add_argument(
        "--lang", choices=LANGUAGES, default=None, help="language of the findings (default: that of the system)"
    )
