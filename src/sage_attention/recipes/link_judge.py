"""What a recommender knows of a data set, and how well it ranks the rest. Torch is not needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sage_attention.recipes.link_graph import message_graph
from sage_attention.recipes.ranking import ItemLists, RankingMetrics, evaluate_ranking

if TYPE_CHECKING:
    from sage_attention.recipes.link_dataset import LinkDataset
    from sage_attention.recipes.link_graph import MessageGraph
    from sage_attention.recipes.link_model import LinkModel

__all__ = ["item_lists", "judge", "messages_of"]


def messages_of(data: LinkDataset, *parts: int) -> MessageGraph:
    """The graph of the pairs of some parts, and of all ties."""
    pairs = data.pairs(*parts)
    weights = None if data.weights is None else data.weights[pairs]
    return message_graph(data.num_users, data.num_items, data.users[pairs], data.items[pairs], weights, data.social)


def item_lists(data: LinkDataset, *parts: int) -> ItemLists:
    """The items of each user in some parts, sorted."""
    pairs = data.pairs(*parts)
    return ItemLists.from_pairs(data.users[pairs], data.items[pairs], data.num_users)


def judge(
    model: LinkModel, data: LinkDataset, known: tuple[int, ...], wanted: int, k: int, num_threads: int = 0
) -> RankingMetrics:
    """How a model ranks the pairs of a part, knowing others: they make its graph, and are not ranked.

    Args:
        model: The model.
        data: The data set.
        known: Parts that are known.
        wanted: The part to find.
        k: Length of the list.
        num_threads: 0 is one per core.
    """
    made = model.represent(messages_of(data, *known), num_threads=num_threads)
    return evaluate_ranking(
        lambda users: model.scores(made, users),
        data.num_items, item_lists(data, *known), item_lists(data, wanted), k,
    )  # fmt: skip
