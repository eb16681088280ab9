"""HGTConv: PyG's layer with the same arguments, parameters and results, its attention one fused pass over all types."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import Parameter, functional

from sage_attention.errors import ArgumentError
from sage_attention.torch import ops

from .adjacency import csc_to_edge_index, grouped_by_source, unify
from .cache import Topology, remembered
from .linear import Linear

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sage_attention.torch.ops import Csc

    from .adjacency import Adjacency

__all__ = ["HGTConv"]

EdgeType = tuple[str, str, str]


class HGTConv(torch.nn.Module):
    """Heterogeneous graph transformer (Hu et al., 2020), as ``torch_geometric.nn.HGTConv``.

    The weight of an edge j -> i of type r is the softmax, over the in-edges of i of all types, of
    q_i . (k_j K_r) p_r / sqrt(C); the output is the weighted sum of v_j V_r, a GELU, a linear map of the type of i
    and, where sizes allow it, a learned mix with x_i. The sources of all edge types are laid one after the other, and
    one pass attends over them: there is no loop over edge types there, and no array of edges x heads x channels.

    Args:
        in_channels: Size of the input rows, of all node types or each; -1 takes it from the first input.
        out_channels: Size of the output rows, a multiple of ``heads``.
        metadata: Node types and edge types.
        heads: Number of heads.
        **kwargs: ``aggr`` and ``flow``, of which only the defaults are supported.

    Raises:
        ArgumentError: An argument has a value that cannot be.

    Example:
        >>> likes = ("user", "likes", "item")
        >>> layer = HGTConv({"user": 4, "item": 3}, 8, (["user", "item"], [likes]), heads=2)
        >>> x = {"user": torch.randn(5, 4), "item": torch.randn(2, 3)}
        >>> layer(x, {likes: torch.tensor([[0, 3, 4], [0, 0, 1]])})["item"].shape
        torch.Size([2, 8])
    """

    def __init__(
        self,
        in_channels: int | Mapping[str, int],
        out_channels: int,
        metadata: tuple[Sequence[str], Sequence[EdgeType]],
        heads: int = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        if heads < 1 or out_channels < 1 or out_channels % heads:
            raise ArgumentError("out_channels", f"a multiple of heads={heads}, both at least 1", out_channels)
        aggr, flow = kwargs.pop("aggr", "add"), kwargs.pop("flow", "source_to_target")
        if aggr not in ("add", "sum") or flow != "source_to_target" or kwargs:
            raise ArgumentError("arguments of HGTConv", "those in its documentation", (aggr, flow, *kwargs))
        self.node_types, self.edge_types = list(metadata[0]), [tuple(edge_type) for edge_type in metadata[1]]
        if not isinstance(in_channels, int):
            self.in_channels = dict(in_channels)
        else:
            self.in_channels = dict.fromkeys(self.node_types, in_channels)
        self.out_channels = out_channels
        self.heads = heads
        self.dst_node_types = {edge_type[-1] for edge_type in self.edge_types}
        self.kqv_lin = _LinearOfTypes(self.in_channels, 3 * out_channels)
        self.out_lin = _LinearOfTypes(dict.fromkeys(self.node_types, out_channels), out_channels)
        dim = out_channels // heads
        self.k_rel = _Matrices(heads * len(self.edge_types), dim)
        self.v_rel = _Matrices(heads * len(self.edge_types), dim)
        self.skip = torch.nn.ParameterDict({_name(t, torch.nn.ParameterDict): torch.empty(1) for t in self.node_types})
        self.p_rel = torch.nn.ParameterDict()
        for edge_type in self.edge_types:
            self.p_rel[_name("__".join(edge_type), torch.nn.ParameterDict)] = Parameter(torch.empty(1, heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws all parameters anew, from PyTorch's default generator."""
        for drawn in (self.kqv_lin, self.out_lin, self.k_rel, self.v_rel):
            drawn.reset_parameters()
        for parameter in (*self.skip.values(), *self.p_rel.values()):
            torch.nn.init.ones_(parameter)

    def forward(self, x_dict: Mapping[str, Tensor], edge_index_dict: Mapping[EdgeType, Adjacency]) -> dict[str, Tensor]:
        """Attends every target to its in-edges of all types.

        Args:
            x_dict: Node type -> rows [N, F].
            edge_index_dict: Edge type -> [2, E] sources and targets, or what
                :mod:`~sage_attention.torch.nn.adjacency` lists.

        Returns:
            Node type -> [N, out_channels], of the types that edges may lead to.

        Raises:
            ArgumentError: Shapes do not fit together, an index is out of range, or a type is not known.
        """
        self._check_types(x_dict, edge_index_dict)
        keys, queries, values = {}, {}, {}
        for name, projected in self.kqv_lin(x_dict).items():
            parts = projected.view(-1, 3, self.heads, self.out_channels // self.heads).unbind(1)
            keys[name], queries[name], values[name] = parts
        sizes = {name: rows.size(0) for name, rows in queries.items()}
        attended = torch.cat([rows.flatten(1) for rows in queries.values()])
        if edge_index_dict:
            csc = self._edges(edge_index_dict, sizes, attended.device)
            sources = [edge_type[0] for edge_type in edge_index_dict]
            by_relation = zip(edge_index_dict, sources)
            scaled, plain = zip(*(self._relation(edge_type, keys[s], values[s]) for edge_type, s in by_relation))
            attended, _, _ = ops.dot_attention(
                csc, torch.cat(list(queries.values())), torch.cat(scaled), torch.cat(plain)
            )
            attended = attended.flatten(1)
        else:
            attended = torch.zeros_like(attended)
        rows_of = dict(zip(sizes, torch.split(attended, list(sizes.values()))))
        rows_of = {name: functional.gelu(rows) for name, rows in rows_of.items() if name in self.dst_node_types}
        out = self.out_lin(rows_of)
        for name, rows in out.items():
            if rows.size(-1) == x_dict[name].size(-1):
                share = self.skip[_name(name, torch.nn.ParameterDict)].sigmoid()
                out[name] = share * rows + (1 - share) * x_dict[name]
        return {name: out[name] for name in rows_of}

    def _check_types(self, x_dict: Any, edge_index_dict: Any) -> None:
        for name in x_dict:
            if name not in self.in_channels:
                raise ArgumentError("x_dict", f"node types among {self.node_types}", repr(name))
        for edge_type in edge_index_dict:
            if edge_type not in self.edge_types:
                raise ArgumentError("edge_index_dict", f"edge types among {self.edge_types}", edge_type)
            for end in (edge_type[0], edge_type[-1]):
                if end not in x_dict:
                    raise ArgumentError("x_dict", f"rows of {end!r} nodes, which edges {edge_type} have", list(x_dict))

    def _relation(self, edge_type: EdgeType, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values [N, H, C] of the sources of one edge type, through its matrices."""
        number, count = self.edge_types.index(edge_type), len(self.edge_types)
        prior = self.p_rel[_name("__".join(edge_type), torch.nn.ParameterDict)]
        shape = (self.heads, count, key.size(-1), key.size(-1))
        by_key, by_value = (rel.weight.view(shape)[:, number] for rel in (self.k_rel, self.v_rel))
        scaled = torch.einsum("nhc,hcd->nhd", key, by_key * prior.view(-1, 1, 1))
        return scaled, torch.einsum("nhc,hcd->nhd", value, by_value)

    def _edges(self, edge_index_dict: Mapping[EdgeType, Adjacency], sizes: dict[str, int], device: torch.device) -> Csc:
        """All edges as one graph, from the sources of each edge type, one after the other, to all nodes."""
        unified = {edge_type: unify(given, device) for edge_type, given in edge_index_dict.items()}
        starts = dict(zip(sizes, _sums(sizes.values())))
        num_sources, num_targets = sum(sizes[edge_type[0]] for edge_type in unified), sum(sizes.values())

        def build() -> Topology:
            parts = []
            first_sources = _sums(sizes[edge_type[0]] for edge_type in unified)
            for (edge_type, found), first_source in zip(unified.items(), first_sources):
                edge_index = found.edge_index
                if edge_index is None:
                    assert found.csc is not None  # noqa: S101  # one of the two is always there
                    edge_index = csc_to_edge_index(found.csc)
                _check_inside(edge_type, edge_index, sizes[edge_type[0]], sizes[edge_type[-1]])
                starts_of_ends = [first_source, starts[edge_type[-1]]]
                parts.append(edge_index.long() + torch.tensor(starts_of_ends, device=device).view(2, 1))
            return Topology(ops.csc(torch.cat(parts, dim=1), num_sources, num_targets), None, None)

        def again(topology: Topology) -> Topology:
            return topology._replace(csc=grouped_by_source(topology.csc, num_sources))

        alive = all(found.identity for found in unified.values())
        identity = tuple(tensor for found in unified.values() for tensor in found.identity) if alive else ()
        return remembered(identity, (*unified, *sizes.items()), build, again).csc

    def __repr__(self) -> str:
        return f"{type(self).__name__}(-1, {self.out_channels}, heads={self.heads})"


class _LinearOfTypes(torch.nn.Module):
    """A linear map for each node type."""

    def __init__(self, in_channels: Mapping[str, int], out_channels: int) -> None:
        super().__init__()
        self.lins = torch.nn.ModuleDict(
            {_name(name, torch.nn.ModuleDict): Linear(size, out_channels) for name, size in in_channels.items()}
        )
        self._names = {name: _name(name, torch.nn.ModuleDict) for name in in_channels}
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for linear in self.lins.values():
            linear.reset_parameters()  # type: ignore[operator]  # all of them are linear maps

    def forward(self, x_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: self.lins[key](x_dict[name]) for name, key in self._names.items() if name in x_dict}


class _Matrices(torch.nn.Module):
    """Square matrices [count, dim, dim]; those of head h and edge type r are number h * num_edge_types + r."""

    def __init__(self, count: int, dim: int) -> None:
        super().__init__()
        self.weight = Parameter(torch.empty(count, dim, dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        bound = math.sqrt(6 / ((1 + math.sqrt(5) ** 2) * self.weight.size(1)))
        with torch.no_grad():
            self.weight.uniform_(-bound, bound)


def _name(name: str, container: type) -> str:
    """A key that PyTorch takes, as PyG makes it: without dots, and none of the container's own attributes."""
    return (f"<{name}>" if name in dir(container) else name).replace(".", "#")


def _sums(sizes: Iterable[int]) -> list[int]:
    """Where parts of some sizes begin, one after the other."""
    starts = [0]
    for size in sizes:
        starts.append(starts[-1] + size)
    return starts[:-1]


def _check_inside(edge_type: EdgeType, edge_index: Tensor, num_sources: int, num_targets: int) -> None:
    """Past its own type, an index would name a node of the next one."""
    if edge_index.numel() == 0:
        return
    for what, ends, count in (("sources", edge_index[0], num_sources), ("targets", edge_index[1], num_targets)):
        least, most = (int(bound) for bound in torch.aminmax(ends))
        if least < 0 or most >= count:
            wrong = least if least < 0 else most
            raise ArgumentError(f"edge_index_dict[{edge_type}]", f"{what} in [0, {count})", wrong)
