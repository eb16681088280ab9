"""The trainable recommender: attention over the blocks of a sampled neighbourhood; `link_model` has the formulas."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from sage_attention.recipes.link_graph import EDGE_FEATURES
from sage_attention.torch import ops

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sage_attention.recipes.link_batches import LinkBatch, Neighbourhood
    from sage_attention.recipes.link_model import LinkConfig

__all__ = ["LinkNetwork", "bpr_loss", "penalty", "softmax_loss"]

_EMBEDDING_SIZE = 0.1
_QUERY_SIZE = 0.1
_OUT = -1e9  # of the softmax; not infinite, or its gradient would be NaN where all are out


class LinkNetwork(torch.nn.Module):
    """Embeddings and layers, named as `LinkConfig.shapes` names them. At the start it is LightGCN.

    Args:
        config: What the model is.
        attention_dropout: Chance that an attention weight is set to zero in training.
    """

    def __init__(self, config: LinkConfig, attention_dropout: float = 0.0) -> None:
        super().__init__()
        self.config = config
        self.attention_dropout = attention_dropout
        shapes = config.shapes()
        self.embedding = torch.nn.Parameter(torch.randn(shapes["embedding"]) * _EMBEDDING_SIZE)
        square = (config.channels, config.channels)
        # Keys of zero: no score but that of the degrees; their gradients are not zero, for the queries are not.
        self.query = torch.nn.ParameterList([torch.randn(square) * _QUERY_SIZE for _ in range(config.layers)])
        self.key = torch.nn.ParameterList([torch.zeros(square) for _ in range(config.layers)])
        edge = torch.zeros(config.heads, len(EDGE_FEATURES))
        edge[:, 0] = 1.0
        self.edge = torch.nn.ParameterList([edge.clone() for _ in range(config.layers)])

    def forward(self, around: Neighbourhood) -> Tensor:
        """Representations [num_seeds, C] of the seeds, not yet divided by their length."""
        heads = (-1, self.config.heads, self.config.channels // self.config.heads)
        x = functional.embedding(around.nodes, self.embedding)
        total = x[: around.num_seeds]
        for layer, edges in enumerate(around.blocks):
            num_targets = edges.indptr.shape[0] - 1
            out, _, _ = ops.dot_attention(
                edges,
                (x[:num_targets] @ self.query[layer].t()).view(heads),
                (x @ self.key[layer].t()).view(heads),
                x.view(heads),
                edge_features=around.features[: edges.indices.shape[0]],
                edge_queries=self.edge[layer].expand(num_targets, -1, -1),
                scale=1.0,
                dropout=self.attention_dropout if self.training else 0.0,
            )
            x = out.flatten(1) * around.scale[:num_targets, None]
            total = total + x[: around.num_seeds]
        return total / (self.config.layers + 1)

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """The weights as NumPy arrays that share memory with the parameters."""
        return {name: np.asarray(tensor.detach().numpy()) for name, tensor in self.state_dict().items()}


def softmax_loss(network: LinkNetwork, batch: LinkBatch, temperature: float) -> Tensor:
    """Cross-entropy of a pair's item beside all items the user is not known to have, estimated from those drawn."""
    z: Tensor = network(batch.around)
    if network.config.similarity == "cosine":
        z = functional.normalize(z)
    users, items = z[batch.users], z[batch.items]
    assert batch.known is not None  # noqa: S101 - its negatives are shared
    assert batch.correction is not None  # noqa: S101
    others = (users @ z[batch.negatives].t() / temperature).masked_fill(batch.known, _OUT)
    own = (users * items).sum(1) / temperature
    return (torch.logaddexp(own, others.logsumexp(1) + batch.correction) - own).mean()


def bpr_loss(network: LinkNetwork, batch: LinkBatch, temperature: float) -> Tensor:
    """Bayesian personalised ranking (Rendle et al. 2009): each pair's item above its negatives."""
    z: Tensor = network(batch.around)
    if network.config.similarity == "cosine":
        z = functional.normalize(z)
    users, items = z[batch.users], z[batch.items]
    own = (users * items).sum(1, keepdim=True)
    others = torch.einsum("bc,bmc->bm", users, z[batch.negatives])
    loss: Tensor = functional.softplus((others - own) / temperature).mean()
    return loss


def penalty(network: LinkNetwork, batch: LinkBatch) -> Tensor:
    """Half the mean over pairs of the squared length of the embeddings it is about, as in LightGCN."""
    seeds = torch.cat([batch.users, batch.items, batch.negatives.flatten()])
    rows = functional.embedding(batch.around.nodes[seeds], network.embedding)
    return rows.square().sum() / (2 * len(batch.users))
