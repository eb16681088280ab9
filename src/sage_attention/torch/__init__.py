"""SageAttention for PyTorch: operators, and layers that take the place of PyTorch Geometric's.

from sage_attention.torch import GATConv          # the layer, with PyG's arguments
model = sage_attention.torch.convert(model)       # or swap the layers of a model
"""

from __future__ import annotations

from sage_attention.errors import MissingDependencyError

try:
    import torch  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "torch":  # it is there, and lacks something
        raise
    raise MissingDependencyError("torch", "sage_attention.torch", "train") from error

from .convert import ConversionError, ConversionReport, ConvertedLayer, convert
from .guided import guide, guide_error
from .nn import GATConv, GATv2Conv, HGTConv, TransformerConv, forget
from .ops import Csc, csc, dot_attention, gat_attention, gatv2_attention
from .raw import gat_attention_rows
from .rows import Rows

__all__ = [
    "ConversionError",
    "ConversionReport",
    "ConvertedLayer",
    "Csc",
    "GATConv",
    "GATv2Conv",
    "HGTConv",
    "Rows",
    "TransformerConv",
    "convert",
    "csc",
    "dot_attention",
    "forget",
    "gat_attention",
    "gat_attention_rows",
    "gatv2_attention",
    "guide",
    "guide_error",
]
