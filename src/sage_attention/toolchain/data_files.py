"""The tables under ``data/``: JSON that comes with the package, read when first asked for."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

__all__ = ["table"]


@functools.cache
def table(name: str) -> Any:
    """A table of ours.

    Args:
        name: Its path under ``data/`` without the suffix.

    Example:
        >>> table("doctor/cuda_host_compilers")["rows"][0]["cuda"]
        '11.2'
    """
    return json.loads((Path(__file__).with_name("data") / f"{name}.json").read_text(encoding="utf-8"))
