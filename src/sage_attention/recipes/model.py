"""The trainable node classifier: GATConv layers over the blocks of a sampled batch, dense or sparse features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from sage_attention.attention import aggregate
from sage_attention.graph import Graph
from sage_attention.torch import library, ops
from sage_attention.torch.nn import GATConv

if TYPE_CHECKING:
    from sage_attention.inference import ModelConfig
    from sage_attention.recipes.batches import Batch, SparseRows

__all__ = ["TrainableClassifier"]


class _SparseProjection(torch.autograd.Function):
    """``rows @ weight.T`` for sparse rows and a dense weight [W, F]; the rows get no gradient."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, rows: SparseRows) -> Tensor:
        ctx.rows = rows
        out = aggregate(
            rows.graph, weight.detach().t().contiguous().numpy(), rows.values, num_threads=library.num_threads()
        )
        return torch.from_numpy(out)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, None]:
        rows = ctx.rows
        by_source = rows.graph.transposed
        transposed = Graph.from_trusted(by_source.indptr, by_source.indices, rows.graph.num_targets)
        grad = grads[0].contiguous().numpy()
        values = rows.values[by_source.positions]
        out = aggregate(transposed, grad, values, num_threads=library.num_threads())
        return torch.from_numpy(out).t(), None


class TrainableClassifier(torch.nn.Module):
    """Layers ``convs.0`` ... of a node classifier; parameters are named as PyG's ``GAT`` names them.

    Args:
        config: What the model is.
        dropout: Chance that an input of a layer is set to zero in training.
        attention_dropout: Chance that an attention weight is set to zero in training.
    """

    def __init__(self, config: ModelConfig, dropout: float, attention_dropout: float) -> None:
        super().__init__()
        self.config = config
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        self.layers = [
            GATConv(
                columns,
                channels,
                heads=heads,
                concat=layer < config.layers - 1,
                negative_slope=config.negative_slope,
                add_self_loops=False,
            )
            for layer, (columns, heads, channels) in enumerate(config.layer_sizes())
        ]
        self.convs = torch.nn.ModuleList(self.layers)

    def forward(self, batch: Batch) -> Tensor:
        """Logits [num_seeds, K] of a batch's seeds."""
        x = batch.features
        for layer, (conv, edges) in enumerate(zip(self.layers, batch.blocks)):
            values = self._project(conv, x).view(-1, conv.heads, conv.out_channels)
            num_targets = edges.indptr.shape[0] - 1
            source_logits = (values * conv.att_src).sum(-1)
            target_logits = (values[:num_targets] * conv.att_dst).sum(-1)
            out, _ = ops.gat_attention(
                edges,
                values,
                source_logits,
                target_logits,
                negative_slope=conv.negative_slope,
                dropout=self.attention_dropout if self.training else 0.0,
            )
            last = layer == len(self.convs) - 1
            assert conv.bias is not None  # noqa: S101 - none was asked to be left out
            out = (out.mean(1) if last else out.flatten(1)) + conv.bias
            x = out if last else functional.elu(out)
        assert isinstance(x, Tensor)  # noqa: S101 - there is at least one layer
        return x

    def _project(self, conv: GATConv, x: Tensor | SparseRows) -> Tensor:
        assert conv.lin is not None  # noqa: S101 - sources and targets share their projection
        projected: Tensor
        if isinstance(x, Tensor):
            projected = conv.lin(functional.dropout(x, self.dropout, self.training))
            return projected
        rows = x.dropped(self.dropout if self.training else 0.0)
        projected = _SparseProjection.apply(conv.lin.weight, rows)  # type: ignore[no-untyped-call]
        return projected

    def arrays(self) -> dict[str, Any]:
        """The weights as NumPy arrays that share memory with the parameters."""
        return {name: np.asarray(tensor.detach().numpy()) for name, tensor in self.state_dict().items()}
