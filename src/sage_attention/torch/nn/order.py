"""Whether a GAT layer projects its rows before it sums them, or the sums: the one place that says what costs less.

Projecting first maps each of S sources, and sums edges x heads x channels. Summing first weighs each row once per head,
edges x heads x features, and maps R targets. In a sampled batch there are several times more sources than targets, and
hardly more edges than sources; on a whole graph rows are attended many times, and are better projected once.

Rows with a gradient, those of all layers but the first, are summed first by layers of one head only: there the common
operator, which knows their gradient, takes the rows for its values.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sage_attention.errors import ArgumentError
from sage_attention.torch.rows import Rows

__all__ = [
    "ORDERS",
    "Sizes",
    "can_project_after",
    "can_sum_learned",
    "check_order",
    "cost",
    "has_gradient",
    "projects_after",
]

ORDERS = ("auto", "before", "after")

# In multiplications of a matrix product: what else a projected row's channel costs on its way through an edge, what a
# feature costs that is read for an edge, and one that is gathered into a batch of its own. Measured by
# benchmarks/minibatch.py on G1 and G2; the choice is not sensitive to them.
_EDGE_CHANNEL, _READ_FEATURE, _COPIED_FEATURE = 16, 8, 70
# How much a training step takes of each, with the forward pass as the unit.
_TRAIN_PROJECT, _TRAIN_ATTEND, _TRAIN_SUM, _TRAIN_PROJECT_SUMS = 2, 3, 3, 3
_TRAIN_PROJECT_LEARNED = 3  # where the rows have a gradient, too
_MARGIN = 0.8  # the other order must cost less than this part: the estimate is rough


class Sizes(NamedTuple):
    """What the cost of a layer depends on.

    Attributes:
        sources: S.
        targets: R.
        edges: E.
        heads: H.
        features: F.
        channels: C, per head.
        indexed: Whether the rows lie in a table and would have to be gathered.
        learned: Whether the rows have a gradient: then one head sums them as its values, in the common operator.
    """

    sources: int
    targets: int
    edges: int
    heads: int
    features: int
    channels: int
    indexed: bool
    learned: bool = False


def check_order(order: str) -> None:
    """Refuses what is no order.

    Args:
        order: As a layer's ``project`` says.

    Raises:
        ArgumentError: It is none of `ORDERS`.

    Example:
        >>> check_order("auto")
    """
    if order not in ORDERS:
        raise ArgumentError("project", '"auto", "before" or "after"', repr(order))


def can_project_after(rows: Tensor | Rows) -> bool:
    """Whether the kernels can sum these rows as they are: float32 or float64 on the CPU, without gradient.

    Args:
        rows: [N, F].

    Example:
        >>> can_project_after(torch.zeros(2, 3)), can_project_after(torch.zeros(2, 3, requires_grad=True))
        (True, False)
    """
    return _is_plain(rows) and not has_gradient(rows)


def can_sum_learned(rows: Tensor | Rows, heads: int) -> bool:
    """Whether the common operator can sum these rows as one head's values, their gradient included.

    Args:
        rows: [N, F].
        heads: H.

    Example:
        >>> can_sum_learned(torch.zeros(2, 3, requires_grad=True), 1), can_sum_learned(torch.zeros(2, 3), 1)
        (True, False)
    """
    return heads == 1 and isinstance(rows, Tensor) and _is_plain(rows) and has_gradient(rows)


def has_gradient(rows: Tensor | Rows) -> bool:
    """Whether a gradient is to flow to these rows.

    Args:
        rows: [N, F].

    Example:
        >>> has_gradient(torch.zeros(2, 3))
        False
    """
    table = rows.table if isinstance(rows, Rows) else rows
    return table.requires_grad and torch.is_grad_enabled()


def _is_plain(rows: Tensor | Rows) -> bool:
    table = rows.table if isinstance(rows, Rows) else rows
    plain = table.layout == torch.strided and table.dtype in (torch.float32, torch.float64)
    return table.device.type == "cpu" and plain and table.size(1) > 0 and not torch.is_autocast_enabled("cpu")


def cost(sizes: Sizes, training: bool) -> tuple[float, float]:
    """Multiplications, about, of projecting before and of projecting after.

    Args:
        sizes: Of the layer's inputs.
        training: Whether there is a backward pass.

    Example:
        >>> cost(Sizes(10, 10, 100, 1, 4, 4, False), training=False)
        (6560, 4160)
    """
    s = sizes
    project, attend, sum_rows, project_sums = 1, 1, 1, 1
    if training:
        project, attend, sum_rows, project_sums = _TRAIN_PROJECT, _TRAIN_ATTEND, _TRAIN_SUM, _TRAIN_PROJECT_SUMS
    if s.learned:
        project = _TRAIN_PROJECT_LEARNED
    by_row = s.heads * s.features * s.channels
    before = s.sources * by_row * project + s.edges * s.heads * s.channels * _EDGE_CHANNEL * attend
    before += s.sources * s.features * _COPIED_FEATURE if s.indexed else 0
    after = s.targets * by_row * project_sums
    if s.learned:
        after += s.edges * s.features * _EDGE_CHANNEL * attend
    else:
        after += s.edges * s.features * (2 * s.heads * sum_rows + _READ_FEATURE)
    return before, after


def projects_after(sizes: Sizes, training: bool) -> bool:
    """Whether projecting after summing is worth it.

    Args:
        sizes: Of the layer's inputs.
        training: Whether there is a backward pass.

    Example:
        >>> projects_after(Sizes(67_000, 12_600, 131_000, 8, 128, 16, True), training=True)
        True
        >>> projects_after(Sizes(170_000, 170_000, 1_200_000, 8, 128, 16, False), training=True)
        False
    """
    before, after = cost(sizes, training)
    return after < _MARGIN * before
