"""Attention over sampled neighbours of large graphs.

Importing this package loads nothing but itself: neither torch nor the native library nor NumPy is touched
before something is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .errors import ArgumentError, DataError, MissingDependencyError, NativeError, SageAttentionError

if TYPE_CHECKING:
    from .attention import aggregate, dot_attention, gat_attention, gatv2_attention
    from .graph import Graph
    from .guided_attending import AttentionErrors, attention_error, guided_attention, neighbour_means
    from .guided_sampling import GatScores, GuidedOneHop
    from .inference import NodeClassifier, load_model
    from .quantized import QuantizationError, QuantizedTable, quantize
    from .quantized_report import QuantizationReport, quantization_report
    from .reordering import Reordered
    from .reuse import set_reuse_limit
    from .sampling import OneHop, SampledSubgraph, Workspace, sample_neighbours, sample_one_hop
    from .walks import RandomWalker, RandomWalks, random_walk

__all__ = [
    "ArgumentError",
    "AttentionErrors",
    "DataError",
    "GatScores",
    "Graph",
    "GuidedOneHop",
    "MissingDependencyError",
    "NativeError",
    "NodeClassifier",
    "OneHop",
    "QuantizationError",
    "QuantizationReport",
    "QuantizedTable",
    "RandomWalker",
    "RandomWalks",
    "Reordered",
    "SageAttentionError",
    "SampledSubgraph",
    "Workspace",
    "__version__",
    "aggregate",
    "attention_error",
    "dot_attention",
    "gat_attention",
    "gatv2_attention",
    "guided_attention",
    "load_model",
    "neighbour_means",
    "quantization_report",
    "quantize",
    "random_walk",
    "sample_neighbours",
    "sample_one_hop",
    "set_reuse_limit",
]

__version__ = "0.1.0"

# name -> module; looked up on first use (PEP 562)
_LAZY = {
    "AttentionErrors": "guided_attending",
    "GatScores": "guided_sampling",
    "Graph": "graph",
    "GuidedOneHop": "guided_sampling",
    "NodeClassifier": "inference",
    "OneHop": "sampling",
    "QuantizationError": "quantized",
    "QuantizationReport": "quantized_report",
    "QuantizedTable": "quantized",
    "RandomWalker": "walks",
    "RandomWalks": "walks",
    "Reordered": "reordering",
    "SampledSubgraph": "sampling",
    "Workspace": "sampling",
    "aggregate": "attention",
    "attention_error": "guided_attending",
    "dot_attention": "attention",
    "gat_attention": "attention",
    "gatv2_attention": "attention",
    "guided_attention": "guided_attending",
    "load_model": "inference",
    "neighbour_means": "guided_attending",
    "quantization_report": "quantized_report",
    "quantize": "quantized",
    "random_walk": "walks",
    "sample_neighbours": "sampling",
    "sample_one_hop": "sampling",
    "set_reuse_limit": "reuse",
}


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{module}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
