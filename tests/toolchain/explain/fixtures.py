"""The logs under tests/fixtures/build_logs and what is to be found in each (index.json).

Those in ``msvc`` are what Microsoft's tools printed; their index also says how each was made (``tools/msvc_logs.py``).
"""

from __future__ import annotations

import json
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "fixtures" / "build_logs"
INDEX = json.loads((FOLDER / "index.json").read_text(encoding="utf-8"))
MSVC = json.loads((FOLDER / "msvc" / "index.json").read_text(encoding="utf-8"))


def read(name):
    return (FOLDER / name).read_bytes()


def healthy_lines(count):
    """Output of builds that went well, as many lines as asked for."""
    lines = [line for path in sorted((FOLDER / "healthy").glob("*.log")) for line in path.read_bytes().splitlines()]
    return (lines * (count // len(lines) + 1))[:count]
