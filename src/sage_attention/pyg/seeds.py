"""Seed nodes of several types in one loader; PyTorch Geometric's loaders take those of one type."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

from sage_attention.errors import ArgumentError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["SeveralSeedTypes", "TypedSeeds", "names_types"]


def names_types(input_nodes: Any) -> bool:
    """Whether seed nodes are given by type: {type: nodes}, or the names of types.

    Args:
        input_nodes: A loader's argument.

    Example:
        >>> names_types({"user": None}), names_types(["user", "item"]), names_types(("user", [3]))
        (True, True, False)
    """
    if isinstance(input_nodes, Mapping):
        return True
    return isinstance(input_nodes, (list, tuple)) and len(input_nodes) > 0 and _all_names(input_nodes)


def _all_names(names: Any) -> bool:
    return all(isinstance(name, str) for name in names)


@dataclass(frozen=True)
class TypedSeeds:
    """Seed nodes by type. Their positions run over all of the first type, then over all of the next.

    Attributes:
        nodes: Node type -> int64 [num_seeds].
        input_ids: Node type -> int64 [num_seeds], what batches call them.
        times: Node type -> int64 [num_seeds]; types that are left out have the times of their nodes.
    """

    nodes: dict[str, Tensor]
    input_ids: dict[str, Tensor]
    times: dict[str, Tensor]

    @classmethod
    def read(cls, input_nodes: Any, input_time: Any, input_id: Any, num_nodes: Mapping[str, int]) -> TypedSeeds:
        """Takes in a loader's arguments.

        Args:
            input_nodes: Node type -> indices, a mask, or None for all; or names of node types.
            input_time: Node type -> integers, as many as seeds; or None.
            input_id: Node type -> integers, as many as seeds; or None for positions, and for a mask the nodes.
            num_nodes: Node type -> number of its nodes.

        Raises:
            ArgumentError: An argument is not what is said above.
        """
        if not isinstance(input_nodes, Mapping):
            if len(set(input_nodes)) < len(input_nodes):
                raise ArgumentError("input_nodes", "each node type once", f"{input_nodes!r}")
            input_nodes = dict.fromkeys(input_nodes)
        if not input_nodes:
            raise ArgumentError("input_nodes", "at least one node type", f"{input_nodes!r}")
        nodes: dict[str, Tensor] = {}
        input_ids: dict[str, Tensor] = {}
        for name, given in input_nodes.items():
            if name not in num_nodes:
                raise ArgumentError("input_nodes", f"node types among {', '.join(map(repr, num_nodes))}", repr(name))
            mask = isinstance(given, torch.Tensor) and given.dtype == torch.bool
            found = torch.arange(num_nodes[name]) if given is None else torch.as_tensor(given).cpu()
            if mask and found.shape != (num_nodes[name],):
                raise ArgumentError(
                    f"input_nodes[{name!r}]", f"a mask of {num_nodes[name]} nodes", f"shape {list(found.shape)}"
                )
            nodes[name] = found.nonzero().view(-1) if mask else found.long()
            input_ids[name] = nodes[name] if mask else torch.arange(len(nodes[name]))
        seeds = cls(nodes, input_ids, {})
        return cls(nodes, {**input_ids, **seeds.each("input_id", input_id)}, seeds.each("input_time", input_time))

    def each(self, argument: str, given: Any) -> dict[str, Tensor]:
        """Something said of each seed, by type.

        Args:
            argument: What it is called.
            given: Node type -> integers, or None.

        Raises:
            ArgumentError: It is of another type, or of another number of seeds.
        """
        if given is None:
            return {}
        if not isinstance(given, Mapping):
            raise ArgumentError(
                argument, "node type -> numbers, since the seeds are given by type", type(given).__name__
            )
        found = {name: torch.as_tensor(values).cpu() for name, values in given.items()}
        for name, values in found.items():
            if name not in self.nodes:
                raise ArgumentError(argument, f"types of seeds: {', '.join(map(repr, self.nodes))}", repr(name))
            if values.shape != self.nodes[name].shape:
                raise ArgumentError(f"{argument}[{name!r}]", f"{len(self.nodes[name])}, one for each seed", len(values))
        return found

    def __len__(self) -> int:
        return sum(map(len, self.nodes.values()))

    def __getitem__(self, index: Any) -> TypedSeeds:
        positions = torch.as_tensor(index, dtype=torch.int64).view(-1)
        size = len(self)
        if len(positions) and not 0 <= int(positions.min()) <= int(positions.max()) < size:
            raise ArgumentError("index", f"positions in [0, {size})", positions.tolist())
        picked = {}
        first = 0
        for name, nodes in self.nodes.items():
            picked[name] = positions[(positions >= first) & (positions < first + len(nodes))] - first
            first += len(nodes)
        return TypedSeeds(
            *({name: values[picked[name]] for name, values in by_type.items()} for by_type in self._columns)
        )

    @property
    def _columns(self) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor]]:
        return self.nodes, self.input_ids, self.times


class SeveralSeedTypes:
    """A mixin before PyTorch Geometric's NodeLoader: each type of seeds has its `input_id` and `batch_size`."""

    input_data: Any
    transform: Any
    transform_sampler_output: Any

    def filter_fn(self, out: Any) -> Any:
        """Joins what was sampled with its features.

        Args:
            out: What the sampler gave.
        """
        if not isinstance(self.input_data, TypedSeeds):
            return super().filter_fn(out)  # type: ignore[misc]
        if self.transform_sampler_output is not None:
            out = self.transform_sampler_output(out)
        input_ids, times = out.metadata
        one_type = next(iter(input_ids))
        # PyTorch Geometric's code writes the seeds of one type, and asks for no more than its name.
        plain, out = copy.copy(self), copy.copy(out)
        plain.transform = plain.transform_sampler_output = None
        plain.input_data = SimpleNamespace(input_type=one_type)
        out.metadata = input_ids[one_type], None
        batch = plain.filter_fn(out)
        for name, ids in input_ids.items():
            batch[name].input_id, batch[name].batch_size = ids, len(ids)
            batch[name].seed_time = times.get(name)
        return batch if self.transform is None else self.transform(batch)
