"""Drop-ins for PyTorch Geometric's samplers and loaders, which then need neither pyg-lib nor torch-sparse.

from sage_attention.pyg import NeighborLoader          # the loader, with PyG's arguments
"""

from __future__ import annotations

from sage_attention.errors import MissingDependencyError

try:
    import torch_geometric  # noqa: F401
except ImportError as error:
    raise MissingDependencyError("torch_geometric", "sage_attention.pyg", "pyg") from error

from .audit import Audit, AuditError, audit
from .both_ways import BidirectionalNeighborSampler
from .loader import LinkNeighborLoader, NeighborLoader
from .negatives import NegativeSampling
from .sampler import NeighborSampler

__all__ = [
    "Audit",
    "AuditError",
    "BidirectionalNeighborSampler",
    "LinkNeighborLoader",
    "NegativeSampling",
    "NeighborLoader",
    "NeighborSampler",
    "audit",
]
