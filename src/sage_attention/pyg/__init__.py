"""Drop-ins for PyTorch Geometric's samplers and loaders, which then need neither pyg-lib nor torch-sparse.

from sage_attention.pyg import NeighborLoader          # the loader, with PyG's arguments
"""

from __future__ import annotations

from sage_attention.errors import MissingDependencyError

try:
    import torch_geometric  # noqa: F401
except ModuleNotFoundError as error:
    if error.name not in ("torch", "torch_geometric"):  # it is there, and lacks something
        raise
    raise MissingDependencyError(error.name, "sage_attention.pyg", "pyg") from error

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
