"""The naive truth for what the native core does: slow, short, independent of it. Read by the tests."""

from __future__ import annotations

from . import sampling

__all__ = ["sampling"]
