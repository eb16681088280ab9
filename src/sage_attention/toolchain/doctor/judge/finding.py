"""A finding: what was judged, in no language yet."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["SECTIONS", "Finding"]

# In the order of printing.
SECTIONS = (
    "verdict", "package", "python", "msvc", "sdk", "compilers", "environment", "cuda", "torch", "packages", "programs",
    "machine",
)  # fmt: skip


@dataclass(frozen=True)
class Finding:
    """One line of the doctor.

    Attributes:
        section: One of ``SECTIONS``.
        status: ``"ok"``, ``"note"`` (shown with ``-v``), ``"warn"`` or ``"fail"``.
        id: Which text says it, a key of ``data/doctor/texts.json``.
        values: What the text's blanks are filled with.
        details: The evidence, shown with ``-v``.
    """

    section: str
    status: str
    id: str
    values: Mapping[str, str] = field(default_factory=dict)
    details: tuple[str, ...] = ()
