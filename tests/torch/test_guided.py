"""GAT layers that attend the in-edges their own attention picks: values, gradients, what is remembered, the report."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from sage_attention import ArgumentError, GatScores, Graph, attention_error, guided_attention, neighbour_means  # noqa: E402
from sage_attention.torch import GATConv, GATv2Conv, guide, guide_error  # noqa: E402
from sage_attention.torch.nn.guide import Guide  # noqa: E402

STRATEGIES = ("uniform", "top_attention", "importance")
NODES = 60


@pytest.fixture(scope="module")
def edge_index():
    rng = np.random.default_rng(4)
    targets = np.repeat(np.arange(NODES), rng.integers(0, 14, NODES))
    sources = (targets + rng.integers(1, NODES, len(targets))) % NODES
    return torch.from_numpy(rng.permutation(np.stack([sources, targets]), axis=1))


def layer_and_rows(dtype=torch.float64, **options):
    torch.manual_seed(1)
    layer = GATConv(6, 5, heads=3, **options).to(dtype).eval()
    with torch.no_grad():
        for parameter in (layer.att_src, layer.att_dst):
            parameter.mul_(3)  # attention that knows differences
        layer.bias.normal_()
    return layer, torch.randn(NODES, 6, dtype=dtype)


def logits(layer, x):
    values = layer.lin(x).view(-1, layer.heads, layer.out_channels)
    return values, (values * layer.att_src).sum(-1), (values * layer.att_dst).sum(-1)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("means", [False, True])
@pytest.mark.parametrize("loops", [False, True])
def test_layers_give_what_the_arrays_give(edge_index, strategy, means, loops):
    layer, x = layer_and_rows(add_self_loops=loops)
    guide(layer, 4, strategy, means=means, seed=3)
    with torch.no_grad():
        got = layer(x, edge_index)
        values, source, target = (t.numpy() for t in logits(layer, x))
    graph = Graph.from_edge_index(edge_index, NODES)
    wanted = guided_attention(
        graph, values, GatScores(source, target), 4, strategy=strategy, seed=3, self_loops=loops,
        means=neighbour_means(graph, values) if means else None,
    )  # fmt: skip
    assert got.numpy() - layer.bias.detach().numpy() == pytest.approx(wanted.reshape(NODES, -1), rel=1e-9, abs=1e-9)
    with torch.no_grad():  # in another dtype, and with the mean of the heads
        narrow = layer.float()(x.float(), edge_index)
    if strategy != "importance":
        assert narrow.numpy() == pytest.approx(got.numpy(), rel=1e-3, abs=1e-4)


def written_out(layer, x, edge_index, features, fan_out, means):
    """The same with one sum for each target, in plain PyTorch; top_attention."""
    values, source, target = logits(layer, x)
    out = []
    for i in range(NODES):
        at = (edge_index[1] == i).nonzero().view(-1)
        z = source[edge_index[0, at]] + target[i]
        own = source[i] + target[i]
        if features is not None:
            weight = (
                layer.lin_edge.weight.view(layer.heads, layer.out_channels, -1) * layer.att_edge[0, :, :, None]
            ).sum(1)
            z = z + features[at] @ weight.T
            own = own + (features[at].mean(0) if len(at) else torch.zeros(features.size(1), dtype=x.dtype)) @ weight.T
        score, own = (torch.nn.functional.leaky_relu(t, 0.2) for t in (z, own))
        key = score.softmax(0).amax(1) if len(at) else score[:, 0]
        order = torch.argsort(key, descending=True, stable=True)
        picked, left = order[:fan_out], order[fan_out:]
        power, loop = score.exp(), own.exp()
        total = power[picked].sum(0) + loop
        summed = (power[picked].unsqueeze(2) * values[edge_index[0, at[picked]]]).sum(0) + loop.unsqueeze(1) * values[i]
        if means and len(left):
            rest = power[left].sum(0)
            total = total + rest
            summed = summed + rest.unsqueeze(1) * values[edge_index[0, at[left]]].mean(0)
        out.append(summed / total.unsqueeze(1))
    return torch.stack(out).flatten(1) + layer.bias


@pytest.mark.parametrize("means", [False, True])
@pytest.mark.parametrize("edge_dim", [None, 2])
@pytest.mark.parametrize("rows_need_grad", [False, True])
def test_values_and_gradients_against_sums_written_out(edge_index, means, edge_dim, rows_need_grad):
    layer, x = layer_and_rows(edge_dim=edge_dim)
    features = None if edge_dim is None else torch.randn(edge_index.size(1), edge_dim, dtype=torch.float64)
    if features is not None:
        features.requires_grad_()
    x.requires_grad_(rows_need_grad)
    guide(layer, 3, means=means)
    grad = torch.randn(NODES, 15, dtype=torch.float64)
    inputs = [p for p in layer.parameters() if p.requires_grad] + [
        t for t in (x, features) if t is not None and t.requires_grad
    ]
    results = []
    for run in (lambda: layer(x, edge_index, features), lambda: written_out(layer, x, edge_index, features, 3, means)):
        out = run()
        results.append([out.detach(), *torch.autograd.grad(out, inputs, grad)])
    for got, wanted in zip(*results):
        assert torch.isfinite(got).all()
        assert torch.allclose(got, wanted, rtol=1e-8, atol=1e-9)


def test_more_than_there_are_is_all(edge_index):
    layer, x = layer_and_rows()
    with torch.no_grad():
        full = layer(x, edge_index)
        for strategy in STRATEGIES:
            assert torch.allclose(guide(layer, 14, strategy)(x, edge_index), full)
        assert torch.equal(guide(layer, None)(x, edge_index), full)
        assert layer.guide is None


def test_bipartite(edge_index):
    sources, targets = torch.randn(NODES, 6), torch.randn(NODES + 3, 4)
    layer = guide(GATConv((6, 4), 5, add_self_loops=False).eval(), 2, means=False)
    out = layer((sources, targets), edge_index)
    assert out.shape == (NODES + 3, 5)
    assert torch.equal(out[NODES:], layer.bias.expand(3, 5))
    with_means = guide(layer, 2)((sources, targets), edge_index)
    full = guide(layer, None)((sources, targets), edge_index)
    assert torch.linalg.vector_norm(with_means - full) < torch.linalg.vector_norm(out - full)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_any_number_of_threads_gives_the_same(edge_index, strategy):
    layer, x = layer_and_rows()
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            layer.zero_grad()
            out = guide(layer, 3, strategy, means=False)(x, edge_index)
            results.append([out.detach(), *torch.autograd.grad(out.square().sum(), [layer.att_src, layer.att_dst])])
    finally:
        torch.set_num_threads(before)
    assert torch.equal(results[0][0], results[1][0])
    for one, two in zip(*results):
        assert torch.allclose(one, two, rtol=1e-12)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_edge_index_of_32_bits(edge_index, strategy):
    layer, x = layer_and_rows()
    guide(layer, 3, strategy)
    with torch.no_grad():
        assert torch.equal(layer(x, edge_index.int()), layer(x, edge_index))


def test_training_draws_and_evaluation_repeats(edge_index):
    layer, x = layer_and_rows()
    guide(layer, 3, "importance", means=False)
    with torch.no_grad():
        assert torch.equal(layer(x, edge_index), layer(x, edge_index))
        layer.train()
        torch.manual_seed(5)
        first, second = layer(x, edge_index), layer(x, edge_index)
        torch.manual_seed(5)
        assert torch.equal(layer(x, edge_index), first)
        assert not torch.equal(first, second)


def test_layers_draw_for_themselves():
    model = torch.nn.ModuleList([GATConv(6, 6), GATConv(6, 6)])
    guide(model, 3, "importance")
    assert [layer.guide.hop for layer in model] == [0, 1]


def test_a_guided_layer_learns(edge_index):
    torch.manual_seed(0)
    x, wanted = torch.randn(NODES, 6), torch.randint(0, 3, (NODES,))
    for strategy in STRATEGIES:
        for means in (False, True):
            layer = guide(GATConv(6, 3, heads=2, concat=False, dropout=0.1), 3, strategy, means=means)
            optimizer = torch.optim.Adam(layer.parameters(), 0.05)
            losses = []
            for _ in range(30):
                loss = torch.nn.functional.cross_entropy(layer(x, edge_index), wanted)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(float(loss.detach()))
            assert min(losses[-5:]) < losses[0]


def test_means_of_inputs_are_taken_once_and_again_when_they_change(edge_index, monkeypatch):
    from sage_attention.torch import ops

    widths = []
    plain = ops.gat_attention

    def counted(csc, values, *arguments, **options):
        widths.append(tuple(values.shape[1:]))
        return plain(csc, values, *arguments, **options)

    monkeypatch.setattr(ops, "gat_attention", counted)
    layer, x = layer_and_rows()
    guide(layer, 3)
    for _ in range(3):
        layer(x, edge_index).sum().backward()
    assert widths.count((1, 6)) == 1
    before = layer(x, edge_index)
    x.mul_(2)
    after = layer(x, edge_index)
    assert widths.count((1, 6)) == 2
    assert not torch.allclose(before, after)
    fresh = guide(layer, 3)(x, edge_index)
    assert torch.equal(fresh, after)
    other = edge_index.flip(0)
    assert torch.allclose(layer(x, other), guide(copy.deepcopy(layer), 3)(x, other))


def test_guides_travel(edge_index):
    layer, x = layer_and_rows()
    guide(layer, 3, "importance", seed=8, means=False)
    out = layer(x, edge_index)
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert twin.guide == layer.guide
        assert torch.equal(twin(x, edge_index), out)
    assert "guide" not in layer.state_dict()


def test_inference_mode(edge_index):
    layer, x = layer_and_rows()
    guide(layer, 3)
    with torch.no_grad():
        wanted = layer(x, edge_index)
    with torch.inference_mode():
        assert torch.equal(layer(x, edge_index), wanted)
        assert torch.equal(layer(x.clone(), edge_index.clone()), wanted)


def test_report_beside_uniform(edge_index):
    layer, x = layer_and_rows()
    model = torch.nn.ModuleDict({"first": layer})
    model.forward = lambda x, edge_index: model["first"](x, edge_index)
    layer.train()
    guide(layer, 7)
    report = guide_error(model, 4, x, edge_index, repeats=2)["first"]
    assert layer.guide.fan_out == 7
    assert layer.training
    layer.bias.data.zero_()
    report = guide_error(model, 4, x, edge_index, repeats=2)["first"]
    with torch.no_grad():
        values, source, target = (t.numpy() for t in logits(layer, x))
    graph = Graph.from_edge_index(edge_index, NODES)
    wanted = attention_error(graph, values, GatScores(source, target), 4, self_loops=True, repeats=2)
    assert report.errors == pytest.approx(wanted.errors, rel=1e-6)
    assert report.flatness == pytest.approx(wanted.flatness, rel=1e-6)
    assert report.ratio("top_attention, means") < 0.5


def test_errors(edge_index):
    layer, x = layer_and_rows()
    with pytest.raises(ArgumentError, match=r"model: expected a model with layers .*GATConv, got GATv2Conv"):
        guide(GATv2Conv(3, 3), 2)
    with pytest.raises(ArgumentError, match="fan_out: expected an integer of at least 1, got 0"):
        guide(layer, 0)
    with pytest.raises(ArgumentError, match="strategy: expected 'uniform' or"):
        guide(layer, 2, "best")
    assert layer.guide is None
    guide(layer, 2)
    with pytest.raises(ArgumentError, match="return_attention_weights: expected False with a guide"):
        layer(x, edge_index, return_attention_weights=True)
    with pytest.raises(ArgumentError, match=r"_logits: expected finite numbers"):
        layer(x * torch.nan, edge_index)
    assert Guide(3) == Guide(3)
