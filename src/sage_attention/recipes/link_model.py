"""A trained recommender applied with NumPy alone: representations, scores, and who spoke for each item.

The model. Every user and item has an embedding x0. A layer sends messages over the in-edges of each node:

    x[l+1]_i = scale_i * sum over neighbours j of softmax_j((Q x[l]_i . K x[l]_j + p . e_ij)) x[l]_j

with the edges' features e and the nodes' scale as `link_graph` has them; head by head, where there are several. The
representation of a node is the mean of x[0] ... x[L], a score the dot product of the two, or their cosine. With Q or K
zero, and p = (1, 0, 0, 0), this is LightGCN (He et al. 2020).

As messages are sums, so is a score: over what the user's own embedding says and what each of its neighbours says.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from sage_attention.attention import dot_attention
from sage_attention.errors import ArgumentError
from sage_attention.inference import project
from sage_attention.recipes.link_graph import EDGE_FEATURES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sage_attention.recipes.link_graph import MessageGraph

    Floats = NDArray[np.float32]

__all__ = ["LinkConfig", "LinkModel", "Representation"]

_SMALLEST_NORM = 1e-12


@dataclass(frozen=True)
class LinkConfig:
    """What a recommender is, apart from its weights.

    Attributes:
        num_users: U.
        num_items: I.
        channels: Of an embedding, all heads together.
        heads: Attention heads; they divide the channels.
        layers: L.
        similarity: ``"cosine"`` or ``"dot"``.
    """

    num_users: int
    num_items: int
    channels: int = 64
    heads: int = 1
    layers: int = 2
    similarity: str = "cosine"

    def __post_init__(self) -> None:
        if self.channels % self.heads:
            raise ArgumentError("heads", f"a divisor of the {self.channels} channels", self.heads)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each weight, by name.

        Example:
            >>> LinkConfig(2, 3, channels=4, layers=1).shapes()["embedding"]
            (5, 4)
        """
        square = (self.channels, self.channels)
        made: dict[str, tuple[int, ...]] = {"embedding": (self.num_users + self.num_items, self.channels)}
        for layer in range(self.layers):
            made[f"query.{layer}"] = made[f"key.{layer}"] = square
            made[f"edge.{layer}"] = (self.heads, len(EDGE_FEATURES))
        return made

    def to_json(self) -> dict[str, Any]:
        """As ``config.json`` holds it."""
        return {"format": 1, "model": "link", **asdict(self)}


@dataclass(frozen=True)
class Representation:
    """What a model makes of a graph.

    Attributes:
        users: float32 [U, C].
        items: float32 [I, C]; divided by their length where scores are cosines, as are the users.
        inputs: The input of each layer, float32 [N, C].
        weights: The attention weights of each layer, float32 [E, H], in the order of the graph's edges by target; or
            none if they were not asked for.
        factors: float32 [U], what a user's sum of messages was multiplied by.
        connected: bool [N], which nodes have in-edges.
    """

    users: Floats
    items: Floats
    inputs: list[Floats]
    weights: list[Floats]
    factors: Floats
    connected: NDArray[np.bool_]


@dataclass(frozen=True)
class LinkModel:
    """A recommender.

    Args:
        config: What it is.
        tensors: Its weights by name, float32.

    Raises:
        ArgumentError: A weight is missing, of another shape or type, or one too many.
    """

    config: LinkConfig
    tensors: dict[str, Floats] = field(repr=False)

    def __post_init__(self) -> None:
        shapes = self.config.shapes()
        if set(shapes) != set(self.tensors):
            got = ", ".join(sorted(set(shapes) ^ set(self.tensors)))
            raise ArgumentError("tensors", "the weights of the model, each once", f"one too many or missing: {got}")
        for name, shape in shapes.items():
            tensor = self.tensors[name]
            if tensor.shape != shape or tensor.dtype != np.float32:
                expected = f"{name} as float32 {list(shape)}"
                raise ArgumentError("tensors", expected, f"{tensor.dtype} {list(tensor.shape)}")

    def represent(self, messages: MessageGraph, *, explain: bool = False, num_threads: int = 0) -> Representation:
        """Sends messages over a graph.

        Args:
            messages: A graph of the model's users and items.
            explain: Keep the attention weights.
            num_threads: 0 is one per core; the result is the same for any number.

        Raises:
            ArgumentError: The graph has another number of nodes.
        """
        config = self.config
        x = self.tensors["embedding"]
        if messages.graph.num_nodes != len(x):
            raise ArgumentError("messages", f"a graph of {len(x)} nodes", messages.graph.num_nodes)
        total = x.copy()
        inputs, weights = [x], []
        heads = (len(x), config.heads, config.channels // config.heads)
        for layer in range(config.layers):
            queries = project(x, self.tensors[f"query.{layer}"], num_threads).reshape(heads)
            keys = project(x, self.tensors[f"key.{layer}"], num_threads).reshape(heads)
            edge_queries = np.repeat(self.tensors[f"edge.{layer}"][None], len(x), axis=0)
            out = dot_attention(
                messages.graph, queries, keys, x.reshape(heads),
                edge_features=messages.features, edge_queries=edge_queries, scale=1.0,
                return_weights=explain, num_threads=num_threads,
            )  # fmt: skip
            if explain:
                out, weight = out
                order = messages.graph.edge_ids
                weights.append(weight if order is None else weight[order])
            x = out.reshape(len(x), config.channels) * messages.scale[:, None]
            inputs.append(x)
            total += x
        users, items = total[: config.num_users], total[config.num_users :]
        factors = messages.scale[: config.num_users] / np.float32(config.layers + 1)
        users, items = users / (config.layers + 1), items / (config.layers + 1)
        if config.similarity == "cosine":
            user_norms, item_norms = _norms(users), _norms(items)
            users, items, factors = users / user_norms, items / item_norms, factors / user_norms[:, 0]
        return Representation(users, items, inputs[:-1], weights, factors, messages.graph.in_degrees > 0)

    def scores(self, representation: Representation, users: NDArray[np.int64]) -> Floats:
        """Scores of all items for some users; minus infinity for items nobody has used.

        Args:
            representation: Of the graph.
            users: int64 [n].

        Returns:
            float32 [n, I].
        """
        made = representation.users[users] @ representation.items.T
        made[:, ~representation.connected[self.config.num_users :]] = -np.inf
        return np.asarray(made, np.float32)

    def spoken(
        self, representation: Representation, messages: MessageGraph, user: int, items: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], Floats]:
        """How much each neighbour of a user adds to the user's scores of some items.

        Args:
            representation: Of the graph, with the attention weights kept.
            messages: The graph.
            user: One user.
            items: int64 [k].

        Returns:
            The neighbours, int64 [m] nodes, in the order of the graph's edges, and what they add, float32 [m, k]. These
            sums over neighbours and ``x0_user . item`` (the user's own embedding) together are the scores.
        """
        graph = messages.graph
        first, last = graph.indptr[user : user + 2]
        neighbours = graph.indices[first:last].astype(np.int64)
        heads = (len(neighbours), self.config.heads, -1)
        message = np.zeros((len(neighbours), self.config.channels), np.float32)
        for x, weight in zip(representation.inputs, representation.weights):
            message += (x[neighbours].reshape(heads) * weight[first:last, :, None]).reshape(message.shape)
        return neighbours, (message * representation.factors[user]) @ representation.items[items].T


def _norms(rows: Floats) -> Floats:
    made: Floats = np.maximum(np.sqrt(np.einsum("ij,ij->i", rows, rows)), _SMALLEST_NORM)[:, None]
    return made
