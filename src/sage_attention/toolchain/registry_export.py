r"""Reads what ``reg export`` and Regedit write: ``.reg`` text, versions 4 and 5."""

from __future__ import annotations

import re

from .system import RegistryKey

__all__ = ["parse_export"]

_ROOTS = {"HKEY_LOCAL_MACHINE": "HKLM", "HKEY_CURRENT_USER": "HKCU"}
_VALUE = re.compile(r'^(?:"((?:[^"\\]|\\.)*)"|@)=(.*)$', re.DOTALL)
_32_BIT = "\\software\\wow6432node"


def parse_export(text: str) -> dict[tuple[str, int], RegistryKey]:
    r"""The keys of an export, by lower-case path and view.

    What lies under ``WOW6432Node`` is what 32-bit programs see without it, and so is found under both.

    Args:
        text: The export.

    Returns:
        (path as ``hklm\software\...``, 32 or 64) → key. Lines that are no values are passed over.

    Example:
        >>> keys = parse_export('[HKEY_CURRENT_USER\\Software\\Python]\n@="x"\n"bits"=dword:00000040\n')
        >>> dict(keys[("hkcu\\software\\python", 64)].values)
        {'': 'x', 'bits': 64}
    """
    values: dict[tuple[str, int], dict[str, str | int]] = {}
    subkeys: dict[tuple[str, int], dict[str, str]] = {}
    where: list[tuple[str, int]] = []
    for line in _joined(text):
        if line.startswith("[") and line.endswith("]"):
            where = _places(line[1:-1])
            for path, bits in where:
                _add_key(path, bits, values, subkeys)
            continue
        match = _VALUE.match(line)
        if match is None:
            continue
        name, value = re.sub(r"\\(.)", r"\1", match[1] or ""), _value(match[2].strip())
        for path, bits in where:
            if value is not None:
                values[path.lower(), bits][name] = value
    return {place: RegistryKey(found, tuple(subkeys.get(place, {}).values())) for place, found in values.items()}


def _joined(text: str) -> list[str]:
    """Lines, those that end with a backslash joined to the next: long hex values are written so."""
    return re.sub(r"\\\r?\n[ \t]*", "", text).splitlines()


def _places(key: str) -> list[tuple[str, int]]:
    root, _, path = key.partition("\\")
    short = _ROOTS.get(root.upper())
    if short is None or not path:
        return []
    full = f"{short}\\{path}"
    start = full.lower().find(_32_BIT)
    if short == "HKLM" and start == len(short):
        rest = full[start + len(_32_BIT) :]
        return [(full, 64), (f"{short}\\SOFTWARE{rest}", 32)]
    # Only HKLM\SOFTWARE differs between the views.
    return [(full, 64)] if full.lower().startswith("hklm\\software") else [(full, 64), (full, 32)]


def _add_key(
    path: str, bits: int, values: dict[tuple[str, int], dict[str, str | int]],
    subkeys: dict[tuple[str, int], dict[str, str]],
) -> None:  # fmt: skip
    values.setdefault((path.lower(), bits), {})
    while "\\" in path:
        path, _, name = path.rpartition("\\")
        values.setdefault((path.lower(), bits), {})
        subkeys.setdefault((path.lower(), bits), {}).setdefault(name.lower(), name)


def _value(written: str) -> str | int | None:
    if written.startswith('"') and written.endswith('"') and len(written) > 1:
        return re.sub(r"\\(.)", r"\1", written[1:-1])
    kind, _, data = written.partition(":")
    try:
        if kind.lower() == "dword":
            return int(data, 16)
        if kind.lower() in ("hex(2)", "hex(1)"):  # strings with variables in them, in UTF-16
            return bytes.fromhex(data.replace(",", " ")).decode("utf-16-le", "replace").rstrip("\0")
    except ValueError:
        return None
    return None
