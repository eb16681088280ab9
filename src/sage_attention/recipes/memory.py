"""How much memory this process has needed at most."""

from __future__ import annotations

import sys

__all__ = ["peak_rss_mb"]


def peak_rss_mb() -> float | None:
    """Peak resident memory of this process in MiB (2**20 bytes); None where nothing tells it."""
    if sys.platform == "win32":
        try:
            import psutil
        except ImportError:
            return None
        return float(psutil.Process().memory_info().peak_wset) / 2**20
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10  # bytes there, KiB on Linux
