"""The synthetic graphs of the benchmarks: those of ``sage-attention bench``."""

from __future__ import annotations

from sage_attention.bench.graphs import GRAPHS, chung_lu, named

__all__ = ["GRAPHS", "chung_lu", "named"]
