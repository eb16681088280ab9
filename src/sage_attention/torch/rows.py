"""Rows of a table that are not gathered: the features of a sampled batch, read where they lie."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sage_attention.errors import ArgumentError

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Rows", "gathered_rows"]


class Rows:
    """Rows of a table, not gathered: what ``table[index]`` holds, read where it lies.

    A layer of this package takes it in place of the features of its nodes, such as those of a sampled batch.

    Attributes:
        table: [N, F], float32 or float64 for the native kernels. No gradient flows to it from them.
        index: int64 [S], rows of the table; None: all of them, in order.

    Raises:
        ArgumentError: `table` is not of two dimensions, or `index` is not an int64 tensor of one.

    Example:
        >>> rows = Rows(torch.arange(8.0).view(4, 2), torch.tensor([3, 0]))
        >>> rows.gathered()
        tensor([[6., 7.],
                [0., 1.]])
        >>> rows[:1].shape
        (1, 2)
    """

    def __init__(self, table: Tensor, index: Tensor | None = None) -> None:
        if table.dim() != 2:
            raise ArgumentError("table", "shape [num_rows, features]", list(table.shape))
        if index is not None and (index.dim() != 1 or index.dtype != torch.int64):
            raise ArgumentError("index", "an int64 tensor [num_nodes]", f"{index.dtype} {list(index.shape)}")
        self.table = table
        self.index = index

    def __getitem__(self, part: slice) -> Self:
        """The rows of a slice of the nodes, still not gathered."""
        index = self.index
        if index is None:
            if part.start in (None, 0) and part.step in (None, 1):
                return type(self)(self.table[part])
            index = torch.arange(self.table.size(0), device=self.table.device)
        return type(self)(self.table, index[part])

    def __len__(self) -> int:
        return self.size(0)

    def __repr__(self) -> str:
        return f"Rows({list(self.shape)} of {list(self.table.shape)})"

    def size(self, dimension: int) -> int:
        """The number of rows (0) or of features (1).

        Args:
            dimension: 0 or 1.

        Example:
            >>> Rows(torch.zeros(4, 2), torch.tensor([3])).size(0)
            1
        """
        if dimension == 0 and self.index is not None:
            return self.index.size(0)
        return self.table.size(dimension)

    @property
    def shape(self) -> tuple[int, int]:
        """(S, F)."""
        return self.size(0), self.size(1)

    @property
    def dtype(self) -> torch.dtype:
        """That of the table."""
        return self.table.dtype

    def like(self) -> Tensor:
        """[S, 0], of the type and on the device of the rows.

        Example:
            >>> Rows(torch.ones(2, 3), torch.tensor([1, 1, 0])).like().shape
            torch.Size([3, 0])
        """
        return self.table.new_empty((self.size(0), 0))

    def gathered(self) -> Tensor:
        """[S, F], a copy where there is an index.

        Example:
            >>> Rows(torch.ones(2, 1), torch.tensor([1, 1, 0])).gathered().shape
            torch.Size([3, 1])
        """
        return self.table if self.index is None else self.table.index_select(0, self.index)


def gathered_rows(rows: Tensor | Rows) -> Tensor:
    """Rows as a tensor.

    Args:
        rows: [N, F], gathered or not.

    Example:
        >>> gathered_rows(torch.zeros(2, 1)).shape
        torch.Size([2, 1])
    """
    return rows.gathered() if isinstance(rows, Rows) else rows
