"""What is measured: a graph with random features, and the steps on it that need NumPy alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sage_attention.attention import AttentionInputs, aggregate, attention_backward, attention_forward
from sage_attention.errors import ArgumentError, SageAttentionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from sage_attention.attention import AttentionOutputs
    from sage_attention.graph import Graph

    Floats = NDArray[np.float32]

__all__ = ["ROW_READS", "SCORES", "Problem", "Scored", "check_memory"]

SCORES = ("gat", "gatv2", "dot")

# How many rows of heads x channels an edge must read at least, (forward, backward), where nothing per edge and channel
# is kept. Backward by target the sources' values (and for dot their keys), by source the targets' gradients (and for
# gatv2 and dot their queries).
ROW_READS = {"gat": (1, 2), "gatv2": (1, 3), "dot": (2, 4)}

# Arrays of nodes x heads x channels alive at once at the worst: values, keys, queries, those kept for the backward
# pass, its results, and one of slack.
_ARRAYS = 11


def check_memory(num_nodes: int, heads: int, channels: int, free: int | None) -> None:
    """Makes sure that the arrays will fit.

    Args:
        num_nodes: N.
        heads: H.
        channels: C.
        free: Bytes that are free, None if nobody knows.

    Raises:
        ArgumentError: They will not.

    Example:
        >>> check_memory(1000, 8, 16, free=1 << 30)
    """
    needed = _ARRAYS * num_nodes * heads * channels * 4
    if free is not None and needed > free:
        raise ArgumentError(
            "--heads, --channels",
            f"arrays of {num_nodes:,} nodes that fit into the {free / 2**30:.1f} GiB of memory that are free",
            f"about {needed / 2**30:.1f} GiB",
            "choose fewer",
        )


@dataclass(frozen=True)
class Problem:
    """A graph and its size of rows.

    Attributes:
        name: Of the graph: what people know it by.
        graph: N nodes.
        heads: H.
        channels: C of each head.
        seed: Everything random starts from it.
    """

    name: str
    graph: Graph
    heads: int
    channels: int
    seed: int = 0

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of all heads."""
        return self.heads * self.channels * 4

    @property
    def table_bytes(self) -> int:
        """Bytes of the rows of all nodes."""
        return self.graph.num_sources * self.row_bytes

    def scored(self, score: str) -> Scored:
        """The arrays of one of `SCORES`; they are the same each time."""
        rng = np.random.default_rng(self.seed)
        nodes, shape = self.graph.num_nodes, (self.graph.num_nodes, self.heads, self.channels)

        def draw(*sizes: int) -> Floats:
            return rng.standard_normal(sizes, dtype=np.float32)

        values = draw(*shape)
        more: dict[str, Any] = {}
        if score == "gat":
            more = {"source_logits": draw(nodes, self.heads), "target_logits": draw(nodes, self.heads)}
        elif score == "gatv2":
            more = {"queries": draw(*shape), "attention": draw(self.heads, self.channels) / np.float32(4)}
        else:
            more = {"keys": draw(*shape), "queries": draw(*shape)}
        return Scored(self, score, AttentionInputs(score, self.graph, values, **more))


class Scored:
    """One kind of attention over all edges: steps forward and backward.

    Args:
        problem: The graph.
        score: One of `SCORES`.
        inputs: Of the attention.
    """

    def __init__(self, problem: Problem, score: str, inputs: AttentionInputs) -> None:
        self.problem = problem
        self.score = score
        self.inputs = inputs
        self.rows: Floats = np.ascontiguousarray(
            np.reshape(np.asarray(inputs.values), (-1, problem.heads * problem.channels)), np.float32
        )
        self.outputs: AttentionOutputs | None = None

    def prepare(self, threads: int) -> None:
        """Runs forward once and keeps what the backward pass starts from."""
        self.outputs = attention_forward(self.inputs, for_backward=True, num_threads=threads)

    def gather(self, threads: int) -> Any:
        """Adds up the neighbours' rows: what it costs to read them at all."""
        return aggregate(self.problem.graph, self.rows, num_threads=threads)

    def forward(self, threads: int) -> Any:
        """The attention [N, H, C]."""
        return attention_forward(self.inputs, num_threads=threads).out

    def backward(self, threads: int) -> Any:
        """The gradients of half the squared length of what `prepare` kept."""
        if self.outputs is None:
            raise SageAttentionError("bench: prepare comes before backward")
        return attention_backward(self.inputs, self.outputs, self.outputs.out, num_threads=threads)

    def steps(self, threads: int) -> dict[str, Callable[[], Any]]:
        """What is timed in turn, by name."""
        return {
            "gather": lambda: self.gather(threads),
            "forward": lambda: self.forward(threads),
            "backward": lambda: self.backward(threads),
        }
