"""SampledSubgraph: what multi-hop sampling returns, as views of the native library's memory."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _native
from ._arrays import integer, read_only
from ._memory import NativeMemory, numbers
from .errors import ArgumentError
from .graph import Graph

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["SampledSubgraph", "adopt"]


@dataclass(frozen=True, eq=False, repr=False)
class SampledSubgraph:
    """What `sample_neighbours` found: nodes, and the picked in-edges of all but the outermost.

    Nodes are the seeds as given (repeated ones too), then new nodes in order of discovery. Edges are grouped
    by hop, by target, in the order they were picked, so that targets never fall: they are in CSC order.

    Attributes:
        nodes: int64 [num_nodes], ids in the graph.
        indptr: int64 [num_expanded + 1]; in-edges of node i are positions indptr[i] to indptr[i + 1] - 1.
        sources: int64 [num_edges], local ids (positions in `nodes`).
        positions: int64 [num_edges], positions in the graph's `indices`.
        num_sampled_nodes: Nodes found per hop; the first entry is the number of seeds. num_hops + 1 of them.
        num_sampled_edges: Edges picked per hop. num_hops of them.
        inverse_probabilities: float64 [num_expanded], 1 / the probability with which each in-edge of a node was
            picked; None but for strategies "labor" and "labor_sequential".
        probabilities: float64 [num_edges], with which each in-edge was picked; None but for strategies "top_attention"
            and "importance".
    """

    nodes: NDArray[np.int64]
    indptr: NDArray[np.int64]
    sources: NDArray[np.int64]
    positions: NDArray[np.int64]
    num_sampled_nodes: tuple[int, ...]
    num_sampled_edges: tuple[int, ...]
    _graph_edge_ids: NDArray[np.int64] | None = None
    inverse_probabilities: NDArray[np.float64] | None = None
    probabilities: NDArray[np.float64] | None = None

    @property
    def num_seeds(self) -> int:
        """Number of seeds; they are the first nodes."""
        return self.num_sampled_nodes[0]

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return len(self.nodes)

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return len(self.sources)

    @functools.cached_property
    def edge_ids(self) -> NDArray[np.int64]:
        """int64 [num_edges], positions among the edges the graph was made from (PyG's ``e_id``)."""
        if self._graph_edge_ids is None:
            return self.positions
        # Positions are valid by construction; "wrap" is the mode in which NumPy checks least.
        return read_only(self._graph_edge_ids.take(self.positions, mode="wrap"))

    @functools.cached_property
    def targets(self) -> NDArray[np.int64]:
        """int64 [num_edges], local ids of the targets, never falling."""
        return read_only(np.repeat(np.arange(len(self.indptr) - 1, dtype=np.int64), np.diff(self.indptr)))

    @functools.cached_property
    def edge_index(self) -> NDArray[np.int64]:
        """int64 [2, num_edges]: row 0 sources, row 1 targets, local ids."""
        return read_only(np.stack([self.sources, self.targets]))

    def edge_weights(self, normalise: bool = False) -> NDArray[np.float64]:
        """Weights of the picked edges that make up for those that were not, unless the sample is uniform.

        Args:
            normalise: False: 1 / the probability of being picked (Horvitz and Thompson): weighted sums over the
                picked in-edges of a node are unbiased estimates of the sums over all of them. True: the same,
                divided by their sum at each node (Hajek): estimates of the mean, with less variance.

        Returns:
            float64 [num_edges].

        Raises:
            ArgumentError: The sample is uniform.

        Example:
            >>> from sage_attention import sample_neighbours
            >>> star = Graph.from_edge_index([[1, 2, 3, 4], [0, 0, 0, 0]])
            >>> sample = sample_neighbours(star, [0], [2], strategy="labor_sequential")
            >>> sample.edge_weights(), sample.edge_weights(normalise=True)
            (array([2., 2.]), array([0.5, 0.5]))
        """
        counts = np.diff(self.indptr)
        if self.probabilities is not None:
            weights = 1.0 / self.probabilities
            sums = np.bincount(self.targets, weights, len(counts))
            return weights / np.repeat(sums, counts) if normalise else weights
        if self.inverse_probabilities is None:
            raise ArgumentError("edge_weights", "a sample with strategy 'labor', ..., 'importance'", "a uniform one")
        by_target = 1.0 / np.maximum(counts, 1) if normalise else self.inverse_probabilities
        return np.repeat(by_target, counts)

    def layer(self, k: int) -> Graph:
        """The edges the k-th layer of a model needs, as PyG's ``trim_to_layer``.

        The first layer (0) needs all; each later one needs one hop less. Its sources are the first
        ``num_sources`` nodes, its targets the first ``num_targets``, which are the sources of the next layer.

        Args:
            k: Number of the layer, from 0 to the number of hops - 1.

        Returns:
            A graph from sources to targets. Its edges are the first of this sample, in the same order.

        Raises:
            ArgumentError: There is no such layer.

        Example:
            >>> from sage_attention import sample_neighbours
            >>> sample = sample_neighbours(Graph.from_edge_index([[0, 1], [1, 2]]), [2], [1, 1])
            >>> [sample.layer(k) for k in range(2)]
            [Graph(3 sources, 2 targets, 2 edges, int32), Graph(2 sources, 1 targets, 1 edges, int32)]
        """
        hops = len(self.num_sampled_edges)
        kept = hops - integer("k", k, 0, hops - 1)
        num_edges = sum(self.num_sampled_edges[:kept])
        num_targets = sum(self.num_sampled_nodes[:kept])
        num_sources = num_targets + self.num_sampled_nodes[kept]
        # One narrowed array for all layers: the edges of a layer are the first of those of the layer before.
        indices = self._narrow_sources
        return Graph.from_trusted(self.indptr[: num_targets + 1], indices[:num_edges], num_sources)

    @functools.cached_property
    def _narrow_sources(self) -> NDArray[np.integer[Any]]:
        fits = self.num_nodes <= 2**31 - 1
        return self.sources.astype(np.int32) if fits else self.sources

    def __repr__(self) -> str:
        hops = len(self.num_sampled_edges)
        counts = f"{self.num_seeds} seeds, {self.num_nodes} nodes, {self.num_edges} edges"
        return f"SampledSubgraph({counts}, {hops} hops)"

    def __reduce__(self) -> tuple[Any, ...]:
        # The edge ids of this sample travel, not those of the whole graph.
        arrays = (self.nodes, self.indptr, self.sources, self.positions)
        edge_ids = None if self._graph_edge_ids is None else self.edge_ids
        chances = (self.inverse_probabilities, self.probabilities)
        fields = (*arrays, self.num_sampled_nodes, self.num_sampled_edges, None, *chances)
        return _restore, (*fields, edge_ids)


def _restore(*fields: Any) -> SampledSubgraph:
    *fields_of_class, edge_ids = fields
    sample = SampledSubgraph(*fields_of_class)
    if edge_ids is not None:
        sample.__dict__["edge_ids"] = edge_ids
        object.__setattr__(sample, "_graph_edge_ids", edge_ids[:0])
    return sample


def adopt(pointer: Any, graph_edge_ids: NDArray[np.int64] | None) -> SampledSubgraph:
    """Takes over a native sample, which is freed with the last array on it.

    Args:
        pointer: Pointer to a ``sage_attention_sample``.
        graph_edge_ids: int64, the `edge_ids` of the graph it was drawn from.
    """
    view = NativeMemory(pointer, _native.library().sage_attention_sample_free).view
    sample = pointer.contents
    hops = sample.num_hops
    return SampledSubgraph(
        view(sample.nodes, sample.num_nodes),
        view(sample.indptr, sample.num_expanded + 1),
        view(sample.sources, sample.num_edges),
        view(sample.edge_ids, sample.num_edges),
        numbers(sample.num_sampled_nodes, hops + 1),
        numbers(sample.num_sampled_edges, hops),
        graph_edge_ids,
    )
