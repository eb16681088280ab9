"""Versions of packages that break builds, by themselves or together: the rules are data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sage_attention.toolchain.data_files import table
from sage_attention.toolchain.doctor.versions import accepts

from .finding import Finding

if TYPE_CHECKING:
    from sage_attention.toolchain.doctor.model import Facts

__all__ = ["judge"]

_SHOWN = ("pip", "setuptools", "wheel", "numpy", "cython", "pybind11", "scikit-build-core", "meson-python")


def judge(facts: Facts) -> list[Finding]:
    """The rules that match, after a line of what is there."""
    python = facts.python
    if python is None:
        return []
    packages = dict(python.packages)
    if facts.torch is not None:
        packages.setdefault("torch", facts.torch.version)
    shown = ", ".join(f"{name} {packages[name]}" for name in _SHOWN if name in packages)
    found = [Finding("packages", "ok", "packages.found", {"names": shown})] if shown else []
    for rule in table("doctor/package_rules")["rules"]:
        if _matches(facts, packages, rule):
            values = {name: packages.get(name, "-") for name in rule["packages"]}
            values["python"] = python.version
            text = {f"{name}_version".replace("-", "_"): version for name, version in values.items()}
            found.append(
                Finding("packages", rule["status"], f"packages.{rule['id']}", text, (f"source: {rule['source']}",))
            )
    return found


def _matches(facts: Facts, packages: dict[str, str], rule: dict[str, object]) -> bool:
    python = facts.python
    conditions = rule["packages"]
    environment = facts.environment
    if rule.get("unless") == "prompt" and environment.whole and environment.get("DISTUTILS_USE_SDK"):
        return False
    platform = rule.get("platform", "")
    if platform and platform != ("windows" if facts.windows else "other"):
        return False
    if python is None or not isinstance(conditions, dict) or not accepts(str(rule.get("python", "")), python.version):
        return False
    for name, condition in conditions.items():
        if condition is None:
            if name in packages:
                return False
        elif name not in packages or not accepts(condition, packages[name]):
            return False
    return True
