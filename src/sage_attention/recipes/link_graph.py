"""The graph that messages travel on: users and items as nodes, each pair in both directions, ties between users.

Its edges carry what the attention may go by. The first is the logarithm of the degree normalisation of LightGCN (He et
al. 2020): with it alone, and the scale of each target, a layer of attention *is* a layer of LightGCN; what is learned
goes from there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sage_attention.graph import Graph

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["EDGE_FEATURES", "MessageGraph", "message_graph"]

# What the columns of the edge features are, and what their attention weights are before training.
EDGE_FEATURES = ("degree", "weight_to_user", "weight_to_item", "friend")


@dataclass(frozen=True)
class MessageGraph:
    """Users are nodes 0 to U - 1, items U to U + I - 1.

    Attributes:
        graph: N = U + I nodes. Edge k leads from the item of pair k to its user, edge P + k back, the edges after 2 P
            from friend to friend.
        features: float32 [E, 4] in that order: -log(degree of the source) / 2; how much more weight the pair has than
            the others of its user (logarithms), 0 for other edges; the same for its item; 1 for ties.
        scale: float32 [N], the sum over in-edges of 1 / sqrt(degree of source * degree of target).
        num_pairs: P.
    """

    graph: Graph
    features: NDArray[np.float32]
    scale: NDArray[np.float32]
    num_pairs: int


def message_graph(
    num_users: int,
    num_items: int,
    users: NDArray[np.int64],
    items: NDArray[np.int64],
    weights: NDArray[np.float32] | None = None,
    social: NDArray[np.int64] | None = None,
) -> MessageGraph:
    """Puts pairs and ties together.

    Args:
        num_users: U.
        num_items: I.
        users: int64 [P].
        items: int64 [P].
        weights: float32 [P], over 0, or None.
        social: int64 [2, S], user to user, or None.

    Example:
        >>> made = message_graph(1, 2, np.array([0, 0]), np.array([0, 1]))
        >>> print(made.graph, made.scale.round(2))
        Graph(3 nodes, 4 edges, int32) [1.41 0.71 0.71]
    """
    num_nodes, num_pairs = num_users + num_items, len(users)
    ties = np.empty((2, 0), np.int64) if social is None else social
    source = np.concatenate([items + num_users, users, ties[0]])
    target = np.concatenate([users, items + num_users, ties[1]])
    degree = np.maximum(np.bincount(source, minlength=num_nodes), 1).astype(np.float64)
    features = np.zeros((len(source), len(EDGE_FEATURES)), np.float32)
    features[:, 0] = -0.5 * np.log(degree[source])
    if weights is not None:
        size = np.log1p(weights.astype(np.float64))
        features[:num_pairs, 1] = _above_mean(size, users, num_users)
        features[num_pairs : 2 * num_pairs, 2] = _above_mean(size, items, num_items)
    features[2 * num_pairs :, 3] = 1.0
    scale = np.bincount(target, 1 / np.sqrt(degree[source] * degree[target]), minlength=num_nodes)
    graph = Graph.from_edge_index(np.stack([source, target]), num_nodes)
    return MessageGraph(graph, features, scale.astype(np.float32), num_pairs)


def _above_mean(values: NDArray[np.float64], group: NDArray[np.int64], num_groups: int) -> NDArray[np.float64]:
    counts = np.bincount(group, minlength=num_groups)
    means = np.bincount(group, values, minlength=num_groups) / np.maximum(counts, 1)
    return values - means[group]
