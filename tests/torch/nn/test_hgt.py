"""HGTConv against PyG's: parameters, outputs and gradients; in mini-batches; errors."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
pyg_nn = pytest.importorskip("torch_geometric.nn", reason="compares with PyTorch Geometric")

from sage_attention import Graph  # noqa: E402
from sage_attention.errors import ArgumentError  # noqa: E402
from sage_attention.torch import HGTConv, csc  # noqa: E402

USERS, ITEMS, TAGS = 9, 7, 4
COUNTS = {"user": USERS, "item": ITEMS, "tag": TAGS}
BUYS, SOLD, KNOWS, SAYS = (
    ("user", "buys", "item"),
    ("item", "sold", "user"),
    ("user", "knows", "user"),
    ("tag", "of", "item"),
)
METADATA = (list(COUNTS), [BUYS, SOLD, KNOWS, SAYS])  # nothing leads to a tag


def made(dtype, channels=None, seed=1):
    """Rows of each type, and edges with duplicates, self loops and isolated ends."""
    generator = torch.Generator().manual_seed(seed)
    channels = channels or dict.fromkeys(COUNTS, 5)
    x = {name: torch.randn(count, channels[name], generator=generator, dtype=dtype) for name, count in COUNTS.items()}
    edges = {}
    for edge_type in METADATA[1]:
        ends = [torch.randint(0, COUNTS[end] - 1, (15,), generator=generator) for end in (edge_type[0], edge_type[-1])]
        edges[edge_type] = torch.cat([torch.stack(ends), torch.tensor([[0, 0], [1, 1]])], dim=1)
    return x, edges


def pair(*arguments, dtype=torch.float32, **options):
    """PyG's layer and ours, from the same seed."""
    layers = []
    for kind in (pyg_nn.HGTConv, HGTConv):
        torch.manual_seed(7)
        layers.append(kind(*arguments, **options).to(dtype))
    return layers


def computed(layer, x, edges):
    """Outputs by type, and the gradients of a random functional of them."""
    leaves = {name: rows.clone().requires_grad_() for name, rows in x.items()}
    out = layer(leaves, edges)
    generator = torch.Generator().manual_seed(2)
    loss = sum((rows * torch.randn(rows.shape, generator=generator).to(rows)).sum() for rows in out.values())
    parameters = dict(layer.named_parameters())
    gradients = torch.autograd.grad(loss, [*leaves.values(), *parameters.values()], allow_unused=True)
    names = [*(f"gradient of {name}" for name in (*leaves, *parameters))]
    return {**out, **dict(zip(names, gradients))}


def assert_same(theirs, ours, x, edges):
    expected, found = computed(theirs, x, edges), computed(ours, x, edges)
    assert list(found) == list(expected)
    tolerance = 1e-10 if next(iter(x.values())).dtype == torch.float64 else 2e-5
    largest = max(float(v.abs().max()) for k, v in expected.items() if k.startswith("gradient") and v is not None)
    for name, value in expected.items():
        assert (found[name] is None) == (value is None), name
        if value is not None and value.numel():
            size = largest if name.startswith("gradient") else float(value.detach().abs().max())
            assert float((found[name] - value).detach().abs().max()) <= tolerance * size, name


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("heads", [1, 2, 8])
@pytest.mark.parametrize("channels", [5, 16, {"user": 5, "item": 16, "tag": 3}])
def test_parameters_outputs_and_gradients(dtype, heads, channels):
    theirs, ours = pair(channels, 16, METADATA, heads, dtype=dtype)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for (name, mine), (_, yours) in zip(ours.state_dict().items(), theirs.state_dict().items()):
        assert torch.equal(mine, yours), name
    for parameter, other in zip(ours.parameters(), theirs.parameters()):  # those that begin as ones, too
        noise = torch.rand(parameter.shape, generator=torch.Generator().manual_seed(3)).to(dtype)
        parameter.data += noise
        other.data += noise
    x, edges = made(dtype, channels if isinstance(channels, dict) else dict.fromkeys(COUNTS, channels))
    assert_same(theirs, ours, x, edges)
    assert set(ours(x, edges)) == {"user", "item"}


def test_some_of_the_edge_types_in_any_order():
    """PyG's gives edge types the matrices of others where they come in another order than in `metadata`."""
    theirs, ours = pair(5, 8, METADATA, 2)
    x, edges = made(torch.float32)
    edges[KNOWS] = edges[KNOWS][:, :0]
    some = {name: edges[name] for name in (BUYS, KNOWS)}
    assert_same(theirs, ours, x, some)
    turned = ours(x, {name: some[name] for name in reversed(some)})
    for name, rows in theirs(x, some).items():
        torch.testing.assert_close(turned[name], rows)
    del x["tag"]
    assert_same(theirs, ours, x, some)
    alone = ours(x, {})  # PyG's fails
    torch.testing.assert_close(alone["user"], ours(x, {KNOWS: edges[KNOWS]})["user"])


def test_checkpoints_of_each_other():
    theirs, ours = pair({"user": 5, "item": 5, "tag": 5}, 8, METADATA, 2)
    torch.manual_seed(11)
    theirs.reset_parameters()
    ours.load_state_dict(theirs.state_dict())
    x, edges = made(torch.float32)
    assert_same(theirs, ours, x, edges)
    theirs.load_state_dict(pickle.loads(pickle.dumps(ours)).state_dict())
    lazy = HGTConv(-1, 8, METADATA, 2)
    lazy.load_state_dict(theirs.state_dict())
    assert_same(theirs, lazy, x, edges)


def test_lazy_sizes():
    layer = HGTConv(-1, 8, METADATA, 2)
    x, edges = made(torch.float32, {"user": 5, "item": 6, "tag": 7})
    layer(x, edges)
    assert layer.kqv_lin.lins["item"].weight.shape == (24, 6)


def test_names_that_pytorch_does_not_take_as_keys():
    metadata = (["items", "a"], [("items", "is.a", "a"), ("a", "keys", "items")])
    layer = HGTConv(3, 4, metadata)
    out = layer(
        {"items": torch.randn(2, 3), "a": torch.randn(3, 3)},
        {("items", "is.a", "a"): torch.tensor([[1], [2]]), ("a", "keys", "items"): torch.tensor([[0], [0]])},
    )
    assert {name: rows.shape for name, rows in out.items()} == {"items": (2, 4), "a": (3, 4)}


def test_edges_in_other_forms():
    _, ours = pair(5, 8, METADATA, 2)
    x, edges = made(torch.float32)
    expected = ours(x, edges)
    sources, targets = edges[BUYS]
    sparse = torch.sparse_coo_tensor(
        torch.stack([targets, sources]), torch.ones(len(sources)), (ITEMS, USERS), check_invariants=False
    )
    forms = [edges[BUYS].int(), csc(edges[BUYS], USERS, ITEMS), sparse]
    forms.append(Graph.from_edge_index(edges[BUYS].numpy(), (USERS, ITEMS)))
    for form in forms:
        found = ours(x, {**edges, BUYS: form})
        for name, rows in expected.items():
            torch.testing.assert_close(found[name], rows)


def test_edges_are_grouped_once_and_never_stale():
    _, ours = pair(5, 8, METADATA, 2)
    x, edges = made(torch.float32)
    first = ours(x, edges)
    torch.testing.assert_close(ours(x, edges), first, rtol=0, atol=0)
    more = {name: torch.cat([rows, rows[:1]]) for name, rows in x.items()}  # the same edges among more nodes
    longer = ours(more, edges)
    assert {name: len(rows) for name, rows in longer.items()} == {"user": USERS + 1, "item": ITEMS + 1}
    torch.testing.assert_close(longer["item"][:ITEMS], first["item"])
    edges[BUYS][0, 0] = (edges[BUYS][0, 0] + 1) % USERS
    theirs, _ = pair(5, 8, METADATA, 2)
    assert_same(theirs, ours, x, edges)


def test_mini_batches():
    """The output at the seeds, with all neighbours sampled, is that of the whole graph."""
    pyg = pytest.importorskip("sage_attention.pyg")
    from torch_geometric.data import HeteroData

    x, edges = made(torch.float32)
    data = HeteroData()
    for name, rows in x.items():
        data[name].x = rows
    for edge_type, edge_index in edges.items():
        data[edge_type].edge_index = edge_index
    first, second = HGTConv(5, 8, METADATA, 2), HGTConv(8, 8, METADATA, 2)

    def model(x, edges):
        hidden = first(x, edges)
        return second({**hidden, "tag": torch.zeros(len(x["tag"]), 8)}, edges)

    whole = model(x, edges)
    for batch in pyg.NeighborLoader(data, [-1, -1], ["user", "item"], batch_size=4, shuffle=True):
        found = model(batch.x_dict, batch.edge_index_dict)
        for name in ("user", "item"):
            size = batch[name].batch_size
            torch.testing.assert_close(found[name][:size], whole[name][batch[name].n_id[:size]])


def test_no_array_of_edges_by_channels_is_kept():
    """What autograd keeps grows with the nodes, not with the edges."""

    def kept(num_edges):
        layer = HGTConv(8, 64, (["a"], [("a", "to", "a")]), 4)
        edge_index = torch.from_numpy(np.random.default_rng(0).integers(0, 50, (2, num_edges)))
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.numel()) or t, lambda t: t):
            layer({"a": torch.randn(50, 8)}, {("a", "to", "a"): edge_index})
        return max(sizes)

    assert kept(20000) < 20000 * 64 / 8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((5, 9, METADATA, 2), "out_channels: expected a multiple of heads=2"),
        ((5, 8, METADATA, 0), "out_channels"),
    ],
)
def test_errors_of_the_constructor(arguments, message):
    with pytest.raises(ArgumentError, match=message):
        HGTConv(*arguments)
    for options in ({"aggr": "max"}, {"flow": "target_to_source"}, {"unknown": 1}):
        with pytest.raises(ArgumentError, match="arguments of HGTConv"):
            HGTConv(5, 8, METADATA, **options)


def test_errors_of_a_call():
    layer = HGTConv(5, 8, METADATA, 2)
    x, edges = made(torch.float32)
    wrong = edges[BUYS].clone()
    wrong[1, 3] = ITEMS  # would be the first of another type
    with pytest.raises(ArgumentError, match=r"targets in \[0, 7\), got 7"):
        layer(x, {**edges, BUYS: wrong})
    wrong[1, 3] = -1
    with pytest.raises(ArgumentError, match=r"targets in \[0, 7\), got -1"):
        layer(x, {**edges, BUYS: wrong})
    with pytest.raises(ArgumentError, match="edge types among"):
        layer(x, {("user", "sees", "item"): edges[BUYS]})
    with pytest.raises(ArgumentError, match="node types among"):
        layer({**x, "cat": x["tag"]}, edges)
    del x["item"]
    with pytest.raises(ArgumentError, match="rows of 'item' nodes"):
        layer(x, edges)


def test_repr():
    theirs, ours = pair(5, 8, METADATA, 2)
    assert repr(ours) == repr(theirs)
