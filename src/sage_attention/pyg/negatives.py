"""Edges that are not there, to learn from beside those that are."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch_geometric.sampler

from sage_attention.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

__all__ = ["KnownEdges", "NegativeSampling", "NodeDraws", "draw_pairs_apart", "draw_targets_apart"]

_ROUNDS = 20
_SOURCES = 1000


class NegativeSampling(torch_geometric.sampler.NegativeSampling):  # type: ignore[misc]
    """How negative edges are drawn: PyTorch Geometric's, and `strict`.

    Args:
        mode: "binary": both ends are drawn. "triplet": targets are drawn for the source of each edge.
        amount: Negative edges for each edge; a whole number for "triplet".
        src_weight: Numbers [num_sources], at least 0: sources are drawn in proportion.
        dst_weight: Numbers [num_targets], at least 0: targets are drawn in proportion.
        strict: Draw again what is an edge of the graph, or one of the loader's seed edges. The direction of edges
            matters.

    Raises:
        ValueError: `amount` is not what is said above.

    Example:
        >>> NegativeSampling("triplet", 2, strict=True).is_triplet()
        True
    """

    def __init__(
        self, mode: Any, amount: float = 1, src_weight: Any = None, dst_weight: Any = None, *, strict: bool = False
    ) -> None:
        super().__init__(mode, amount, src_weight, dst_weight)
        self.strict = strict
        self.seed_edges: KnownEdges | None = None

    def beside(self, edge_index: Tensor) -> NegativeSampling:
        """The same that, if strict, draws none of some edges either.

        Args:
            edge_index: Integers [2, n], all seed edges of a loader.
        """
        other = copy.copy(self)
        other.seed_edges = KnownEdges([edge_index.cpu().numpy()])
        return other

    def sample(self, num_samples: int, endpoint: str, num_nodes: int | None = None) -> Tensor:
        """Draws one end of edges, from torch's generator.

        Args:
            num_samples: How many.
            endpoint: "src" or "dst".
            num_nodes: How many nodes there are; not needed if they have weights.

        Returns:
            int64 [num_samples].

        Raises:
            ValueError: There is another number of weights, or neither weights nor a number.
        """
        weight = self.src_weight if endpoint == "src" else self.dst_weight
        if num_nodes is None:
            if weight is None:
                raise ValueError("'num_nodes' is needed to draw negative samples without weights")
            num_nodes = len(weight)
        shares = torch.rand(num_samples, dtype=torch.float64).numpy()
        return torch.from_numpy(NodeDraws(num_nodes, weight).draw(shares, None))


class KnownEdges:
    """Edges, to be asked whether they hold a pair.

    Args:
        edge_indices: Each integers [2, n], sources and targets.
    """

    def __init__(self, edge_indices: Iterable[NDArray[Any]]) -> None:
        edges = [np.asarray(edge_index, np.int64) for edge_index in edge_indices]
        self._num_targets = max((int(targets.max()) + 1 for _, targets in edges if len(targets)), default=0)
        pairs = [sources * self._num_targets + targets for sources, targets in edges]
        self._pairs = np.unique(np.concatenate(pairs)) if pairs else np.empty(0, np.int64)

    def hold(self, sources: NDArray[np.int64], targets: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Booleans [n]: whether there is an edge from sources[i] to targets[i]."""
        if len(self._pairs) == 0:
            return np.zeros(len(sources), np.bool_)
        wanted = sources * self._num_targets + targets
        places = np.searchsorted(self._pairs, wanted).clip(max=len(self._pairs) - 1)
        held: NDArray[np.bool_] = (self._pairs[places] == wanted) & (targets < self._num_targets)
        return held

    def targets_of(self, source: int) -> NDArray[np.int64]:
        """int64: the targets of a source."""
        first, last = np.searchsorted(self._pairs, [source * self._num_targets, (source + 1) * self._num_targets])
        return self._pairs[first:last] - source * self._num_targets


@dataclass
class NodeDraws:
    """Draws nodes, uniformly or by weight, of those that a time allows.

    Args:
        num_nodes: How many there are.
        weight: Numbers [num_nodes], at least 0, or None.
        time: Numbers [num_nodes], or None: nodes younger than a given time are not drawn.

    Raises:
        ValueError: There is another number of weights, or they are negative, or all 0; or there are no nodes.
    """

    num_nodes: int
    weight: Tensor | None = None
    time: Tensor | None = None

    def __post_init__(self) -> None:
        self._order: NDArray[np.int64] | None = None
        self._times: NDArray[Any] | None = None
        self._sums: NDArray[np.float64] | None = None
        if self.num_nodes == 0:
            raise ValueError("There are no nodes to draw negative samples from")
        if self.time is not None:
            times = self.time.cpu().numpy()
            self._order = np.argsort(times, kind="stable")
            self._times = times[self._order]
        if self.weight is None:
            return
        weights = torch.as_tensor(self.weight).detach().cpu().numpy().astype(np.float64).ravel()
        if len(weights) != self.num_nodes:
            raise ValueError(
                f"The 'weight' attribute in 'NegativeSampling' needs to match the number of nodes {self.num_nodes} "
                f"(got {len(weights)})"
            )
        self._weights = weights
        self._sums = np.cumsum(weights if self._order is None else weights[self._order])
        if not (weights >= 0).all() or not 0 < self._sums[-1] < np.inf:
            raise ValueError(
                "The 'weight' attribute in 'NegativeSampling' needs finite numbers of at least 0, not all 0"
            )

    def draw(self, shares: NDArray[np.float64], times: NDArray[Any] | None) -> NDArray[np.int64]:
        """Nodes at shares of what is allowed.

        Args:
            shares: Numbers [n] in [0, 1).
            times: Numbers [n]: nodes younger than that are not drawn. Where all are, the oldest is; or None.
        """
        allowed = np.full(len(shares), self.num_nodes, np.int64)
        if times is not None and self._times is not None:
            allowed = np.searchsorted(self._times, times, side="right").astype(np.int64)
        if self._sums is None:
            places = (shares * allowed).astype(np.int64)
        else:
            most = np.where(allowed > 0, self._sums[allowed - 1], 0.0)
            places = np.searchsorted(self._sums, shares * most, side="right").astype(np.int64)
        places = np.minimum(places, np.maximum(allowed - 1, 0))
        return places if self._order is None else self._order[places]

    def weights_of(self, nodes: NDArray[np.int64], time: Any) -> NDArray[np.float64]:
        """The weights of nodes, 0 for those younger than `time`."""
        weights = np.ones(len(nodes)) if self._sums is None else self._weights[nodes]
        if time is None or self.time is None:
            return weights
        young: NDArray[np.bool_] = self.time.cpu().numpy()[nodes] > time
        return np.where(young, 0.0, weights)


def draw_targets_apart(
    draws: NodeDraws,
    sources: NDArray[np.int64],
    known: Sequence[KnownEdges],
    times: NDArray[Any] | None,
    generator: torch.Generator,
) -> NDArray[np.int64]:
    """Targets that no edge leads to from `sources`.

    Args:
        draws: What they are drawn by.
        sources: int64 [n].
        known: The edges.
        times: Numbers [n] or None, see `NodeDraws.draw`.
        generator: Of the draws.

    Raises:
        ArgumentError: A source has an edge to all that may be drawn.
    """
    targets = np.zeros_like(sources)
    places = np.arange(len(sources), dtype=np.int64)
    for _ in range(_ROUNDS):
        targets[places] = draws.draw(_shares(len(places), generator), None if times is None else times[places])
        places = places[_held(known, sources[places], targets[places])]
        if len(places) == 0:
            return targets
    for place in places.tolist():
        source = int(sources[place])
        found = _one_apart(draws, source, known, None if times is None else times[place], generator)
        if found is None:
            raise ArgumentError(
                "neg_sampling", "strict=False, or sources without an edge to all targets", f"source {source}"
            )
        targets[place] = found
    return targets


def draw_pairs_apart(
    source_draws: NodeDraws,
    target_draws: NodeDraws,
    count: int,
    known: Sequence[KnownEdges],
    times: NDArray[Any] | None,
    generator: torch.Generator,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Sources and targets that no edge joins.

    Args:
        source_draws: What sources are drawn by.
        target_draws: What targets are drawn by.
        count: How many pairs.
        known: The edges.
        times: Numbers [count] or None, see `NodeDraws.draw`.
        generator: Of the draws.

    Raises:
        ArgumentError: No pair without an edge was found.
    """
    sources, targets = np.zeros(count, np.int64), np.zeros(count, np.int64)
    places = np.arange(count, dtype=np.int64)
    for _ in range(_ROUNDS):
        given = None if times is None else times[places]
        for ends, draws in ((sources, source_draws), (targets, target_draws)):
            ends[places] = draws.draw(_shares(len(places), generator), given)
        places = places[_held(known, sources[places], targets[places])]
        if len(places) == 0:
            return sources, targets
    for place in places.tolist():
        time = None if times is None else times[place]
        for source in source_draws.draw(
            _shares(_SOURCES, generator), None if time is None else np.full(_SOURCES, time)
        ).tolist():
            found = _one_apart(target_draws, source, known, time, generator)
            if found is not None:
                sources[place], targets[place] = source, found
                break
        else:
            raise ArgumentError("neg_sampling", "strict=False, or a graph with fewer edges", "edges between all nodes")
    return sources, targets


def _one_apart(
    draws: NodeDraws, source: int, known: Sequence[KnownEdges], time: Any, generator: torch.Generator
) -> int | None:
    """A target for one of the few sources that have an edge to nearly all: what is left for it is listed."""
    taken = np.concatenate([edges.targets_of(source) for edges in known])
    left = np.setdiff1d(np.arange(draws.num_nodes, dtype=np.int64), taken)
    weights = draws.weights_of(left, time)
    if not weights.any():
        return None
    sums = np.cumsum(weights)
    place = int(np.searchsorted(sums, _shares(1, generator)[0] * sums[-1], side="right"))
    return int(left[min(place, int(np.flatnonzero(weights)[-1]))])


def _shares(count: int, generator: torch.Generator) -> NDArray[np.float64]:
    shares: NDArray[np.float64] = torch.rand(count, generator=generator, dtype=torch.float64).numpy()
    return shares


def _held(known: Sequence[KnownEdges], sources: NDArray[np.int64], targets: NDArray[np.int64]) -> NDArray[np.bool_]:
    held = np.zeros(len(sources), np.bool_)
    for edges in known:
        held |= edges.hold(sources, targets)
    return held
