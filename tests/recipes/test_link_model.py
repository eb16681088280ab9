"""What a recommender computes: LightGCN at the start, the same in training and in NumPy, and sums that explain it."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="training needs torch")

import torch

from reference.recommend import lightgcn
from sage_attention.errors import ArgumentError, DataError
from sage_attention.recipes.link_batches import LinkBatchSource, draw_negatives, neighbourhood
from sage_attention.recipes.link_graph import message_graph
from sage_attention.recipes.link_model import LinkConfig, LinkModel
from sage_attention.recipes.link_network import LinkNetwork, bpr_loss, penalty, softmax_loss
from sage_attention.recipes.ranking import ItemLists

USERS, ITEMS = 7, 9  # the last item is nobody's


def pairs(seed=0):
    chance = np.random.default_rng(seed)
    has = chance.random((USERS, ITEMS)) < 0.4
    has[:, -1] = False
    has[np.arange(USERS), np.arange(USERS)] = True
    users, items = np.nonzero(has)
    ties = np.array([[0, 1, 2, 3], [1, 0, 3, 2]])
    return users.astype(np.int64), items.astype(np.int64), chance.integers(1, 99, len(users)).astype(np.float32), ties


def network_of(moved=True, **config):
    torch.manual_seed(1)
    network = LinkNetwork(LinkConfig(USERS, ITEMS, channels=8, **config))
    if moved:
        with torch.no_grad():
            for parameter in network.parameters():
                parameter += 0.3 * torch.randn(parameter.shape)
    return network


def model_of(network):
    return LinkModel(network.config, {name: array.copy() for name, array in network.arrays().items()})


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_before_training_it_is_lightgcn(layers):
    users, items, _, _ = pairs()
    model = model_of(network_of(moved=False, layers=layers, similarity="dot"))
    made = model.represent(message_graph(USERS, ITEMS, users, items))
    edges = [*zip(users.tolist(), (items + USERS).tolist()), *zip((items + USERS).tolist(), users.tolist())]
    expected = np.array(lightgcn(model.tensors["embedding"].tolist(), edges, layers))
    np.testing.assert_allclose(np.concatenate([made.users, made.items]), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("layers", [1, 3])
def test_before_training_it_is_lightgcn_of_pytorch_geometric(layers):
    models = pytest.importorskip("torch_geometric.nn.models", reason="compared with PyTorch Geometric")
    users, items, _, _ = pairs()
    model = model_of(network_of(moved=False, layers=layers, similarity="dot"))
    peer = models.LightGCN(USERS + ITEMS, 8, layers)
    with torch.no_grad():
        peer.embedding.weight.copy_(torch.from_numpy(model.tensors["embedding"]))
        both = np.stack([np.concatenate([users, items + USERS]), np.concatenate([items + USERS, users])])
        expected = peer.get_embedding(torch.from_numpy(both)).numpy()
    made = model.represent(message_graph(USERS, ITEMS, users, items))
    np.testing.assert_allclose(np.concatenate([made.users, made.items]), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("config", [{}, {"heads": 2, "layers": 3}, {"similarity": "dot", "layers": 1}])
def test_training_and_numpy_agree(config):
    """On all neighbours; which edges are taken out of a batch is looked at below."""
    users, items, weights, ties = pairs()
    messages = message_graph(USERS, ITEMS, users, items, weights, ties)
    network = network_of(**config).eval()
    seeds = np.arange(USERS + ITEMS, dtype=np.int64)
    z = network(neighbourhood(messages, seeds, [-1] * network.config.layers, 0))
    if network.config.similarity == "cosine":
        z = torch.nn.functional.normalize(z)
    made = model_of(network).represent(messages)
    np.testing.assert_allclose(
        np.concatenate([made.users, made.items]), z.detach().numpy(), rtol=1e-4, atol=1e-5
    )  # fmt: skip


@pytest.mark.parametrize("config", [{}, {"heads": 2, "layers": 3}, {"similarity": "dot", "layers": 1}])
def test_a_score_is_the_sum_of_what_neighbours_say_and_the_own_embedding(config):
    users, items, weights, ties = pairs()
    messages = message_graph(USERS, ITEMS, users, items, weights, ties)
    model = model_of(network_of(**config))
    made = model.represent(messages, explain=True)
    wanted = np.arange(ITEMS, dtype=np.int64)
    scores = made.users @ made.items.T
    for user in range(USERS):
        neighbours, added = model.spoken(made, messages, user, wanted)
        own = items[users == user] + USERS
        friends = ties[0][ties[1] == user]
        assert sorted(neighbours.tolist()) == sorted([*own.tolist(), *friends.tolist()])
        factor = made.factors[user] / messages.scale[user]
        alone = factor * (model.tensors["embedding"][user] @ made.items.T)
        np.testing.assert_allclose(added.sum(0) + alone, scores[user], rtol=1e-4, atol=1e-5)
    assert all(np.isclose(w.sum(), w.shape[1] * (messages.graph.in_degrees > 0).sum()) for w in made.weights)


def test_items_nobody_has_are_never_recommended():
    users, items, _, _ = pairs()
    model = model_of(network_of())
    made = model.represent(message_graph(USERS, ITEMS, users, items))
    scores = model.scores(made, np.arange(USERS))
    assert (scores[:, -1] == -np.inf).all()
    assert np.isfinite(scores[:, :-1]).all()


def test_weights_that_do_not_fit():
    tensors = dict(model_of(network_of()).tensors)
    with pytest.raises(ArgumentError, match=r"key\.1"):
        LinkModel(LinkConfig(USERS, ITEMS, channels=8), {k: v for k, v in tensors.items() if k != "key.1"})
    with pytest.raises(ArgumentError, match=r"embedding as float32 \[16, 8\]"):
        LinkModel(LinkConfig(USERS, ITEMS, channels=8), {**tensors, "embedding": tensors["embedding"][1:]})
    with pytest.raises(ArgumentError, match="a graph of 16 nodes"):
        model_of(network_of()).represent(message_graph(2, 2, np.array([0]), np.array([1])))
    with pytest.raises(ArgumentError, match="a divisor of the 8 channels"):
        LinkConfig(USERS, ITEMS, channels=8, heads=3)


def source_of(messages, users, items, **options):
    settings = {"fan_outs": [-1, -1], "batch_size": 5, "negatives": 4, "shared": True, "seed": 3, "num_threads": 1}
    known = ItemLists.from_pairs(users, items, USERS)
    return LinkBatchSource(messages, USERS, users, items, known, **{**settings, **options})


@pytest.mark.parametrize("shared", [True, False])
def test_batches_ask_nothing_they_answer(shared):
    """Every pair once per epoch; its edges are gone both ways; negatives are items the user lacks, or are marked."""
    users, items, weights, ties = pairs()
    messages = message_graph(USERS, ITEMS, users, items, weights, ties)
    seen, has = [], set(zip(users.tolist(), items.tolist()))
    for batch in source_of(messages, users, items, shared=shared).epoch(1):
        nodes = batch.around.nodes.numpy()
        asked = list(zip(nodes[batch.users].tolist(), (nodes[batch.items] - USERS).tolist()))
        seen += asked
        for block in batch.around.blocks:
            targets = np.repeat(np.arange(len(block.indptr) - 1), np.diff(block.indptr.numpy()))
            edges = set(zip(nodes[block.indices.numpy()].tolist(), nodes[targets].tolist()))
            assert edges
            for user, item in asked:
                assert not {(user, item + USERS), (item + USERS, user)} & edges
        for row, (user, _) in enumerate(asked):
            drawn = nodes[batch.negatives.numpy() if shared else batch.negatives.numpy()[row]] - USERS
            for column, item in enumerate(drawn.tolist()):
                marked = bool(batch.known[row, column]) if shared else False
                assert marked == ((user, item) in has)
    assert sorted(seen) == sorted(has)


def test_batches_are_the_same_on_threads_and_others_in_another_epoch():
    users, items, weights, ties = pairs()
    messages = message_graph(USERS, ITEMS, users, items, weights, ties)

    def nodes(epoch, threads):
        batches = source_of(messages, users, items, num_threads=threads, fan_outs=[2, 2]).epoch(epoch)
        return [batch.around.nodes.tolist() + batch.users.tolist() for batch in batches]

    assert nodes(1, 1) == nodes(1, 2)
    assert nodes(1, 1) != nodes(2, 1)


def test_negatives_where_a_user_has_nearly_all():
    known = ItemLists.from_pairs(np.repeat([0, 1], [99, 3]), np.concatenate([np.arange(99), [0, 1, 2]]), 2)
    drawn = draw_negatives(np.array([0, 1, 0]), 50, np.arange(100), known, np.random.default_rng(0))
    assert (drawn[[0, 2]] == 99).all()
    assert set(drawn[1].tolist()) <= set(range(3, 100))
    assert len(set(drawn[1].tolist())) > 20
    with pytest.raises(DataError, match="lack at least one item"):
        draw_negatives(np.array([0]), 1, np.arange(99), known, np.random.default_rng(0))


def test_losses_are_their_definitions():
    users, items, weights, ties = pairs()
    messages = message_graph(USERS, ITEMS, users, items, weights, ties)
    network = network_of().eval()
    batch = next(source_of(messages, users, items, negatives=8).epoch(1))  # all items there are
    z = torch.nn.functional.normalize(network(batch.around)).detach()
    has, expected = set(zip(users.tolist(), items.tolist())), []
    nodes = batch.around.nodes
    for user, item in zip(batch.users.tolist(), batch.items.tolist()):
        lacks = [n for n in batch.negatives.tolist() if (int(nodes[user]), int(nodes[n]) - USERS) not in has]
        logits = torch.stack([z[user] @ z[n] for n in (item, *lacks)]) / 0.2
        expected.append(-torch.log_softmax(logits, 0)[0])
    assert float(softmax_loss(network, batch, 0.2).detach()) == pytest.approx(
        float(torch.stack(expected).mean()), rel=1e-5
    )

    network = network_of(similarity="dot").eval()
    batch = next(source_of(messages, users, items, shared=False, negatives=2).epoch(1))
    z = network(batch.around).detach()
    expected = [
        -torch.nn.functional.logsigmoid((z[user] @ z[item] - z[user] @ z[other]) / 0.5)
        for user, item, others in zip(batch.users.tolist(), batch.items.tolist(), batch.negatives.tolist())
        for other in others
    ]
    assert float(bpr_loss(network, batch, 0.5).detach()) == pytest.approx(float(torch.stack(expected).mean()), rel=1e-5)
    rows = [*batch.users.tolist(), *batch.items.tolist(), *batch.negatives.flatten().tolist()]
    squares = sum(float(network.embedding[nodes_of].square().sum()) for nodes_of in batch.around.nodes[rows].tolist())
    assert float(penalty(network, batch).detach()) == pytest.approx(squares / 2 / len(batch.users), rel=1e-5)


def test_gradients_reach_every_weight():
    users, items, weights, ties = pairs()
    messages = message_graph(USERS, ITEMS, users, items, weights, ties)
    network = network_of()
    batch = next(source_of(messages, users, items).epoch(1))
    softmax_loss(network, batch, 0.2).backward()
    for name, parameter in network.named_parameters():
        assert float(parameter.grad.abs().max()) > 0, name
