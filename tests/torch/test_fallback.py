"""The operators in plain PyTorch against loops over targets, chunked and not."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

from sage_attention.torch import fallback  # noqa: E402
from sage_attention.torch.nn.adjacency import Csc  # noqa: E402

S, R, H, C, D = 6, 5, 2, 3, 4


@pytest.fixture(params=[1 << 22, 20, 1], ids=["one chunk", "chunks", "an edge a chunk"])
def _chunk(request, monkeypatch):
    monkeypatch.setattr(fallback, "_CHUNK_ELEMENTS", request.param)


@pytest.fixture(params=[torch.int64, torch.int32], ids=str)
def csc(request):
    """17 edges, duplicates among them, the last target without any, in an order that is not the caller's."""
    generator = torch.Generator().manual_seed(0)
    indptr = torch.tensor([0, 5, 5, 9, 17, 17])
    indices = torch.randint(0, S, (17,), generator=generator, dtype=request.param)
    return Csc(indptr, indices, torch.randperm(17, generator=generator))


def tensors(*shapes, dtype=torch.float64):
    """Random tensors that want gradients."""
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(shape, generator=generator, dtype=dtype).requires_grad_() for shape in shapes]


def naive(csc, values, score, edge_features=None):
    """Sums over each target's edges, one target after the other."""
    out, edge_out, weights = [], [], torch.zeros(17, H, dtype=values.dtype)
    for i in range(R):
        edges = range(int(csc.indptr[i]), int(csc.indptr[i + 1]))
        ids = [int(csc.edge_ids[k]) for k in edges]
        sources = [int(csc.indices[k]) for k in edges]
        if not ids:
            out.append(torch.zeros(H, C, dtype=values.dtype))
            edge_out.append(torch.zeros(H, D, dtype=values.dtype))
            continue
        alpha = torch.stack([score(j, i, e) for j, e in zip(sources, ids)]).softmax(0)  # [n, H]
        weights[ids] = alpha
        out.append(torch.einsum("nh,nhc->hc", alpha, values[sources]))
        if edge_features is not None:
            edge_out.append(torch.einsum("nh,nd->hd", alpha, edge_features[ids]))
    return torch.stack(out), None if edge_features is None else torch.stack(edge_out), weights


def agree(mine, yours, leaves):
    """Asserts equal outputs and gradients."""
    grads = []
    for results in (mine, yours):
        loss = sum((r * torch.linspace(-1, 2, r.numel()).view_as(r)).sum() for r in results if r is not None)
        grads.append(torch.autograd.grad(loss, leaves, allow_unused=True))
    for a, b in zip(mine, yours):
        torch.testing.assert_close(a, b)
    for a, b in zip(*grads):
        torch.testing.assert_close(a, b)


@pytest.mark.usefixtures("_chunk")
@pytest.mark.parametrize("with_targets", [True, False])
@pytest.mark.parametrize("with_edges", [True, False])
def test_gat(csc, with_targets, with_edges):
    values, source, target, features, weight = tensors((S, H, C), (S, H), (R, H), (17, D), (H, D))

    def score(j, i, e):
        logit = source[j]
        logit = logit + target[i] if with_targets else logit
        logit = logit + weight @ features[e] if with_edges else logit
        return torch.nn.functional.leaky_relu(logit, 0.2)

    out, weights = fallback.gat_attention(
        csc,
        values,
        source,
        target if with_targets else None,
        edge_features=features if with_edges else None,
        edge_weight=weight if with_edges else None,
        return_weights=True,
    )
    expected, _, expected_weights = naive(csc, values, score)
    leaves = [values, source] + [target] * with_targets + [features, weight] * with_edges
    agree([out, weights], [expected, expected_weights], leaves)


@pytest.mark.usefixtures("_chunk")
@pytest.mark.parametrize("with_edges", [True, False])
def test_gatv2(csc, with_edges):
    values, queries, attention, features, weight = tensors((S, H, C), (R, H, C), (H, C), (17, D), (H * C, D))

    def score(j, i, e):
        hidden = values[j] + queries[i]
        hidden = hidden + (weight @ features[e]).view(H, C) if with_edges else hidden
        return (torch.nn.functional.leaky_relu(hidden, 0.2) * attention).sum(-1)

    out, weights = fallback.gatv2_attention(
        csc,
        values,
        queries,
        attention,
        edge_features=features if with_edges else None,
        edge_weight=weight if with_edges else None,
        return_weights=True,
    )
    expected, _, expected_weights = naive(csc, values, score)
    leaves = [values, queries, attention] + [features, weight] * with_edges
    agree([out, weights], [expected, expected_weights], leaves)


@pytest.mark.usefixtures("_chunk")
@pytest.mark.parametrize("scale", [None, 0.3])
@pytest.mark.parametrize("with_edges", [True, False])
def test_dot(csc, with_edges, scale):
    queries, keys, values, features, edge_queries = tensors((R, H, C), (S, H, C), (S, H, C), (17, D), (R, H, D))
    factor = C**-0.5 if scale is None else scale

    def score(j, i, e):
        logit = (queries[i] * keys[j]).sum(-1)
        logit = logit + edge_queries[i] @ features[e] if with_edges else logit
        return factor * logit

    results = fallback.dot_attention(
        csc,
        queries,
        keys,
        values,
        edge_features=features if with_edges else None,
        edge_queries=edge_queries if with_edges else None,
        scale=scale,
        return_weights=True,
    )
    expected = naive(csc, values, score, features if with_edges else None)
    assert (results[1] is None) == (not with_edges)
    results, expected = [[r for r in group if r is not None] for group in (results, expected)]
    agree(results, expected, [queries, keys, values] + [features, edge_queries] * with_edges)


@pytest.mark.usefixtures("_chunk")
def test_second_derivatives(csc):
    values, source, target = tensors((S, H, C), (S, H), (R, H))
    assert torch.autograd.gradgradcheck(
        lambda *given: fallback.gat_attention(csc, *given, return_weights=True), (values, source, target)
    )


def test_large_and_tied_scores(csc):
    values, source = tensors((S, H, C), (S, H))
    for logits in (source * 1e30, torch.zeros_like(source), source * 0 - 1e30):
        out, weights = fallback.gat_attention(csc, values, logits, return_weights=True)
        assert out.isfinite().all()
        totals = torch.zeros(R, H, dtype=values.dtype)
        rows = torch.arange(R).repeat_interleave(csc.indptr.diff())
        totals.index_add_(0, rows, weights[csc.edge_ids])
        torch.testing.assert_close(totals, (csc.indptr.diff() > 0).to(values).unsqueeze(1).expand(-1, H))


@pytest.mark.parametrize("seed", [None, 5, torch.tensor(5)], ids=str)
def test_dropout(csc, seed):
    values, source = tensors((S, H, C), (S, H))
    torch.manual_seed(2)
    options = {"dropout": 0.5, "dropout_seed": seed, "return_weights": True}
    out, after = fallback.gat_attention(csc, values, source, **options)
    torch.manual_seed(2)
    same, before = fallback.gat_attention(csc, values, source, weights_before_dropout=True, **options)
    assert torch.equal(out, same)
    kept = after != 0
    assert 0 < int(kept.sum()) < kept.numel()
    torch.testing.assert_close(after[kept], before[kept] * 2)
    torch.manual_seed(3)
    other, _ = fallback.gat_attention(csc, values, source, **options)
    assert torch.equal(other, out) == (seed is not None)


def test_the_mask_does_not_depend_on_the_grouping(csc):
    values, source = tensors((S, H, C), (S, H))
    # The same edges with those of each target in another order.
    order = torch.cat([torch.arange(first, last).flip(0) for first, last in zip(csc.indptr[:-1], csc.indptr[1:])])
    turned = Csc(csc.indptr, csc.indices[order], csc.edge_ids[order])
    options = {"dropout": 0.5, "dropout_seed": 8, "return_weights": True}
    out, weights = fallback.gat_attention(csc, values, source, **options)
    other, other_weights = fallback.gat_attention(turned, values, source, **options)
    torch.testing.assert_close(weights, other_weights)
    torch.testing.assert_close(out, other)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_narrow_types(csc, dtype):
    shapes = (R, H, C), (S, H, C), (S, H, C), (17, D), (R, H, D)
    exact = fallback.dot_attention(csc, *tensors(*shapes)[:3])[0]
    queries, keys, values, features, edge_queries = tensors(*shapes, dtype=dtype)
    out, _, _ = fallback.dot_attention(csc, *(t.detach().to(dtype) for t in tensors(*shapes)[:3]))
    assert out.dtype == dtype
    torch.testing.assert_close(out.double(), exact.detach(), atol=0.05, rtol=0.05)
    results = fallback.dot_attention(
        csc, queries, keys, values, edge_features=features, edge_queries=edge_queries, return_weights=True
    )
    assert {r.dtype for r in results} == {dtype}


def test_no_edges_still_give_gradients():
    csc = Csc(
        torch.zeros(R + 1, dtype=torch.long),
        torch.empty(0, dtype=torch.long),
        torch.empty(0, dtype=torch.long),
    )
    values, source, target, queries, attention = tensors((S, H, C), (S, H), (R, H), (R, H, C), (H, C))
    outs = [
        fallback.gat_attention(csc, values, source, target)[0],
        fallback.gatv2_attention(csc, values, queries, attention)[0],
        fallback.dot_attention(csc, queries, values, values)[0],
    ]
    for out in outs:
        assert not out.any()
        grads = torch.autograd.grad(out.sum(), values)
        assert not grads[0].any()


def test_compiles_whole(csc):
    values, source, target = tensors((S, H, C), (S, H), (R, H))
    expected = fallback.gat_attention(csc, values, source, target)[0]
    compiled = torch.compile(fallback.gat_attention, backend="aot_eager", fullgraph=True)
    out = compiled(csc, values, source, target)[0]
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(
        torch.autograd.grad(out.sum(), [values, source, target]),
        torch.autograd.grad(expected.sum(), [values, source, target]),
    )
