"""``sage-attention doctor env``: the commands that make a shell ready for a build. Prints, runs nothing."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Callable

from sage_attention.errors import ArgumentError

from .facts import gather
from .judge.cuda import accepted, chosen
from .judge.linux import cxx
from .judge.machine import jobs
from .judge.msvc import usable_sdk
from .versions import numbers, short

if TYPE_CHECKING:
    import argparse

    from sage_attention.toolchain.system import System

    from .model import CudaToolkit, Facts, PythonInstall, Toolset, VisualStudio

__all__ = ["Plan", "plan", "run", "script"]

_GIB = 1 << 30
# vcvarsall's word for (host, target).
_WORDS = {
    ("x64", "x64"): "x64", ("x64", "x86"): "amd64_x86", ("x64", "arm64"): "amd64_arm64",
    ("x86", "x86"): "x86", ("x86", "x64"): "x86_amd64", ("x86", "arm64"): "x86_arm64",
    ("arm64", "arm64"): "arm64", ("arm64", "x64"): "arm64_amd64", ("arm64", "x86"): "arm64_x86",
}  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """What a shell is to be set up for.

    Attributes:
        about: A line for each choice.
        vcvarsall: Path of ``vcvarsall.bat``, or None elsewhere than on Windows.
        arguments: Its words.
        variables: What to set.
        folders: What to put in front of PATH, first first.
    """

    about: tuple[str, ...]
    vcvarsall: str | None
    arguments: tuple[str, ...]
    variables: tuple[tuple[str, str], ...]
    folders: tuple[str, ...]


def run(arguments: argparse.Namespace, system: System, write: Callable[[str], None]) -> int:
    """Prints the script.

    Args:
        arguments: As the command line parsed them.
        system: The machine.
        write: Takes the text.

    Returns:
        The exit code.

    Raises:
        ArgumentError: If a toolset, target or shell is asked for that this machine has not.
    """
    shell = arguments.shell or ("cmd" if system.windows else "bash")
    if system.windows and shell == "bash":
        raise ArgumentError("--shell", "cmd or powershell on Windows", "bash", "vcvarsall cannot set up Git Bash")
    if not system.windows and shell != "bash":
        raise ArgumentError("--shell", "bash on this system", shell)
    facts = gather(system, arguments.python)
    if arguments.python and facts.python is None:
        raise ArgumentError("--python", "a path or version of a Python that starts", arguments.python)
    write(script(plan(facts, arguments.toolset, arguments.target), shell))
    return 0


def plan(facts: Facts, toolset: str | None = None, target: str | None = None) -> Plan:
    """Chooses compiler, SDK, CUDA and Python that fit each other.

    Args:
        facts: What was gathered.
        toolset: Version of the MSVC tools (``"14.38"``) or of gcc (``"12"``); by default the newest that
            the chosen CUDA accepts.
        target: ``"x64"``, ``"x86"`` or ``"arm64"``; that of the Python by default.

    Raises:
        ArgumentError: If there is no such toolset, or none for that target.
    """
    if facts.windows:
        return _windows(facts, toolset, target or facts.target)
    if target and target != facts.target:
        raise ArgumentError("--target", f"{facts.target}, the architecture of this Python", target)
    return _linux(facts, toolset)


def _toolkit(facts: Facts) -> CudaToolkit | None:
    """The toolkit for torch's CUDA if there is one, else the one a build would find."""
    if facts.torch and facts.torch.cuda:
        want = numbers(facts.torch.cuda)[:2]
        for length in (2, 1):
            found = next((t for t in facts.cudas if t.nvcc and t.release[:length] == want[:length]), None)
            if found:
                return found
    return chosen(facts)


def _windows(facts: Facts, wanted: str | None, target: str) -> Plan:
    toolkit = _toolkit(facts)
    studio, toolset = _toolset(facts, wanted, target, toolkit if target == facts.target else None)
    host = next(
        (h for h in (facts.machine.architecture, "x64", "x86", "arm64") if (h, target) in toolset.compilers), ""
    )
    if not studio.vcvarsall or (host, target) not in _WORDS:
        raise ArgumentError(
            "--toolset", "an installation with vcvarsall.bat", studio.path, "repair it with its installer"
        )
    same = [other for other in studio.toolsets if other.short == toolset.short]
    words = [_WORDS[host, target]]
    sdk = usable_sdk(facts) if target == facts.target else None
    if sdk and facts.sdks[0].version != sdk:
        words.append(sdk)
    words.append(f"-vcvars_ver={toolset.short if len(same) == 1 else toolset.version}")
    about = [f"MSVC {toolset.version} of {studio.name}, {host} -> {target}"]
    if sdk:
        about.append(f"Windows SDK {sdk}")
    variables = [("DISTUTILS_USE_SDK", "1"), ("MSSdk", "1")]
    folders = _python_folders(facts, about)
    if toolkit is not None and target == facts.target:
        about.append(f"CUDA {toolkit.version or '?'}" + _refused(facts, toolkit, toolset))
        variables += [("CUDA_HOME", toolkit.root), ("CUDA_PATH", toolkit.root)]
        folders.append(toolkit.root + "\\bin")
    variables += _max_jobs(facts, toolkit)
    return Plan(tuple(about), studio.vcvarsall, tuple(words), tuple(variables), tuple(folders))


def _toolset(
    facts: Facts, wanted: str | None, target: str, toolkit: CudaToolkit | None
) -> tuple[VisualStudio, Toolset]:
    pairs = [(studio, toolset) for studio, toolset in facts.toolsets if toolset.builds(target)]
    installed = ", ".join(f"{toolset.version}" for _, toolset in facts.toolsets) or "none"
    if wanted:
        want = numbers(wanted)
        match = [pair for pair in pairs if want and numbers(pair[1].version)[: len(want)] == want]
        if not match:
            raise ArgumentError(
                "--toolset",
                f"a version of MSVC that is installed and builds for {target}",
                wanted,
                f"installed: {installed}",
            )
        return match[0]
    if not pairs:
        raise ArgumentError("--target", "one that an installed MSVC builds for", target, f"installed: {installed}")
    fit = [pair for pair in accepted(facts, toolkit) if pair in pairs] if toolkit else []
    return fit[0] if fit else pairs[0]


def _refused(facts: Facts, toolkit: CudaToolkit, toolset: Toolset) -> str:
    if toolkit.bounds is None or any(other is toolset for _, other in accepted(facts, toolkit)):
        return ""
    return " - whose nvcc REFUSES this compiler (C1189)"


def _python_folders(facts: Facts, about: list[str]) -> list[str]:
    python: PythonInstall | None = facts.python
    if python is None:
        return []
    about.append(f"Python {python.version}: {python.executable}")
    if not facts.windows:
        return [python.executable.rpartition("/")[0]] if python.kind != "system" else []
    folder = python.executable.rpartition("\\")[0]
    if python.kind == "venv":
        return [folder]
    folders = [folder, folder + "\\Scripts"]
    return [*folders, folder + "\\Library\\bin"] if python.kind == "conda" else folders


def _max_jobs(facts: Facts, toolkit: CudaToolkit | None) -> list[tuple[str, str]]:
    fits = jobs(facts, (3 if toolkit else 1.5) * _GIB)
    return [("MAX_JOBS", str(fits))] if fits < facts.machine.processors else []


def _linux(facts: Facts, wanted: str | None) -> Plan:
    linux = facts.linux
    host = cxx(linux) if linux else None
    if linux is None or host is None:
        raise ArgumentError("--toolset", "a C++ compiler on PATH", "none", "see sage-attention doctor")
    toolkit = _toolkit(facts)
    limit = toolkit.bounds.gcc if toolkit and toolkit.bounds else None
    name, path = host[0], linux.paths.get(host[0], host[0])
    version = host[2]
    if wanted:
        want = numbers(wanted)
        names = [
            n for n, text in linux.compilers.items()
            if n.startswith(("g++", "c++", "$CXX")) and want and numbers(text.partition(" ")[2])[: len(want)] == want
        ]  # fmt: skip
        if not names:
            installed = ", ".join(sorted(set(linux.compilers.values())))
            raise ArgumentError("--toolset", "the version of a g++ on PATH", wanted, f"installed: {installed}")
        name, path = names[0], linux.paths[names[0]]
    elif limit is not None and host[1] == "gcc" and numbers(host[2])[0] > limit:
        fit = [
            (numbers(text.partition(" ")[2]), n) for n, text in linux.compilers.items()
            if n.startswith("g++") and text.startswith("gcc ") and numbers(text.partition(" ")[2])[0] <= limit
        ]  # fmt: skip
        if fit:
            name = max(fit)[1]
            path = linux.paths[name]
    version = linux.compilers[name].partition(" ")[2]
    c_path = _c_of(facts, path)
    about = [f"{linux.compilers[name]}: {path}"]
    folders = _python_folders(facts, about)
    variables = [("CC", c_path), ("CXX", path)]
    if toolkit is not None:
        refused = limit is not None and host[1] == "gcc" and numbers(version)[0] > limit
        about.append(
            f"CUDA {short(toolkit.version) or '?'}" + (" - whose nvcc REFUSES this compiler" if refused else "")
        )
        variables += [("CUDA_HOME", toolkit.root), ("CUDAHOSTCXX", path), ("NVCC_PREPEND_FLAGS", f"-ccbin {path}")]
        folders.append(toolkit.root + "/bin")
    return Plan(tuple(about), None, (), tuple(variables + _max_jobs(facts, toolkit)), tuple(folders))


def _c_of(facts: Facts, path: str) -> str:
    """The C compiler that belongs to a C++ compiler, else the one of PATH."""
    folder, slash, name = path.rpartition("/")
    own = folder + slash + name.replace("clang++", "clang").replace("g++", "gcc").replace("c++", "cc")
    paths = facts.linux.paths if facts.linux else {}
    return own if own in paths.values() else paths.get("$CC") or paths.get("cc") or paths.get("gcc") or own


def script(made: Plan, shell: str) -> str:
    """A plan as the commands of a shell.

    Args:
        made: The plan.
        shell: ``"cmd"``, ``"powershell"`` or ``"bash"``.
    """
    about = tuple(" ".join(line.split()) for line in made.about)  # a comment ends with its line
    return {"cmd": _cmd, "powershell": _powershell, "bash": _bash}[shell](replace(made, about=about))


def _cmd(made: Plan) -> str:
    def quote(text: str) -> str:
        return text.replace("%", "%%").replace('"', "")

    lines = [f"@rem {quote(line)}" for line in made.about]
    # A prompt that is active keeps its toolset whatever is asked for.
    lines += [
        "@if defined VSCMD_VER echo This shell already has MSVC %VCToolsVersion%: use a new one. 1>&2 & exit /b 1"
    ]
    called = quote(made.vcvarsall or "").replace("%", "%%")  # call looks for variables once more
    lines.append(f'@call "{called}" {" ".join(made.arguments)}')
    # Its exit code is not to be relied on; this variable is.
    lines.append("@if not defined VCToolsVersion echo vcvarsall.bat failed. 1>&2 & exit /b 1")
    lines += [f'@set "{name}={quote(value)}"' for name, value in made.variables]
    if made.folders:
        lines.append(f'@set "PATH={";".join(map(quote, made.folders))};%PATH%"')
    return "\n".join(lines) + "\n"


def _powershell(made: Plan) -> str:
    call = f'"{made.vcvarsall}" {" ".join(made.arguments)} >nul & set'
    lines = [f"# {line}" for line in made.about]
    lines += [
        'if ($env:VSCMD_VER) { throw "This shell already has MSVC $($env:VCToolsVersion): use a new one." }',
        # cmd lists the variables in the console's encoding: one that lacks a character would damage what holds it.
        "$sage_encoding = [Console]::OutputEncoding",
        "try { [Console]::OutputEncoding = New-Object Text.UTF8Encoding $false } catch { }",
        f"cmd.exe /d /s /c {_powershell_text(call)} | ForEach-Object {{",
        "    if ($_ -match '^([^=]+)=(.*)$') { Set-Item -LiteralPath \"Env:$($Matches[1])\" -Value $Matches[2] }",
        "}",
        "try { [Console]::OutputEncoding = $sage_encoding } catch { }",
        "if (-not $env:VCToolsVersion) { throw 'vcvarsall.bat failed' }",
    ]
    lines += [f"$env:{name} = {_powershell_text(value)}" for name, value in made.variables]
    if made.folders:
        lines.append(f"$env:PATH = {_powershell_text(';'.join(made.folders) + ';')} + $env:PATH")
    return "\n".join(lines) + "\n"


def _powershell_text(text: str) -> str:
    """A text as an expression in ASCII: what PowerShell makes of the other characters depends on how it got them.

    It takes them for those of another code page, and typographic quotes for quotes.
    """
    pieces = re.split(r"([^\x00-\x7f]+)", text)
    quoted = ["'" + piece.replace("'", "''") + "'" for piece in pieces[::2]]
    if len(pieces) == 1:
        return quoted[0]
    made = quoted[0]
    for foreign, piece in zip(pieces[1::2], quoted[1:]):
        units = memoryview(foreign.encode("utf-16-le")).cast("H")
        made += "".join(f" + [char]0x{unit:04X}" for unit in units) + (f" + {piece}" if piece != "''" else "")
    return f"({made})"


def _bash(made: Plan) -> str:
    lines = [f"# {line}" for line in made.about]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in made.variables]
    if made.folders:
        lines.append(f'export PATH={shlex.quote(":".join(made.folders))}:"$PATH"')
    return "\n".join(lines) + "\n"
