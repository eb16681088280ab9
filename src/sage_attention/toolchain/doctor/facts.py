"""``gather``: everything that can be found out about a machine, as the dataclasses of ``model``."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Callable

from .model import (
    Conda,
    CudaToolkit,
    Environment,
    Facts,
    HostBounds,
    LinuxCompilers,
    Machine,
    Problem,
    Program,
    PythonInstall,
    Toolset,
    Torch,
    VisualStudio,
    WindowsSdk,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sage_attention.toolchain.system import System

__all__ = [
    "Conda", "CudaToolkit", "Environment", "Facts", "HostBounds", "LinuxCompilers", "Machine", "Problem", "Program",
    "PythonInstall", "Toolset", "Torch", "VisualStudio", "WindowsSdk", "gather",
]  # fmt: skip

# A folder on a dead network drive may block a probe for longer than anybody waits.
_PATIENCE = 14.0


def gather(system: System, python: str | None = None, patience: float = _PATIENCE) -> Facts:
    """Finds out about a machine. The probes run side by side; one that fails or hangs becomes a ``Problem``.

    Args:
        system: The machine.
        python: Path of the interpreter to look at; the one that runs this by default.
        patience: Seconds after which what has not answered is given up.

    Returns:
        The facts.

    Example:
        >>> from sage_attention.toolchain.system import RealSystem
        >>> facts = gather(RealSystem())
        >>> facts.python.minor >= (3, 9)
        True
    """
    from .gather import cuda, environment, linux, machine, packages, programs, pythons, visual_studio, windows_sdk

    probes: dict[str, Callable[[], Any]] = {
        "machine": lambda: machine.gather(system),
        "python": lambda: packages.gather(system, pythons.gather(system, python)),
        "environment": lambda: environment.gather(system),
        "cuda": lambda: cuda.gather(system),
        "programs": lambda: programs.gather(system),
    }
    if system.windows:
        probes["visual_studio"] = lambda: visual_studio.gather(system)
        probes["windows_sdk"] = lambda: windows_sdk.gather(system)
    else:
        probes["compilers"] = lambda: linux.gather(system)
    found, problems = _run(probes, patience)
    pythons_found, torch, conda = found.get("python") or ((), None, None)
    return Facts(
        machine=found.get("machine") or Machine(system.platform, system.machine, processors=system.processors),
        pythons=pythons_found,
        visual_studios=found.get("visual_studio") or (),
        sdks=found.get("windows_sdk") or (),
        environment=found.get("environment") or Environment(dict(system.environ)),
        cudas=found.get("cuda") or (),
        torch=torch,
        programs=found.get("programs") or {},
        linux=found.get("compilers"),
        conda=conda,
        problems=problems,
    )


def _run(probes: Mapping[str, Callable[[], Any]], patience: float) -> tuple[dict[str, Any], tuple[Problem, ...]]:
    """Every probe's (value, problems); a probe returns its value and a tuple of problems."""
    import time

    results: dict[str, tuple[Any, tuple[Problem, ...]]] = {}

    def run(name: str, probe: Callable[[], Any]) -> None:
        try:
            results[name] = probe()
        except Exception as error:  # noqa: BLE001  one probe's mistake must not cost the others
            results[name] = (None, (Problem(name, "crashed", f"{type(error).__name__}: {error}"),))

    threads = {
        name: threading.Thread(target=run, args=(name, probe), name=f"probe {name}", daemon=True)
        for name, probe in probes.items()
    }
    for thread in threads.values():
        thread.start()
    end = time.monotonic() + patience
    for thread in threads.values():
        thread.join(max(0.0, end - time.monotonic()))
    problems: list[Problem] = []
    values: dict[str, Any] = {}
    for name in probes:
        if name in results:
            values[name] = results[name][0]
            problems += results[name][1]
        else:
            problems.append(Problem(name, "timeout", f"no answer within {patience:.0f} s"))
    return values, tuple(problems)
