"""The native operators under PyTorch: gradients, schemas, compile, export, low precision, threads, fallback."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch", reason="the operators for PyTorch need torch")

from tests.windows import torch_throws  # noqa: E402
from torch.autograd import forward_ad  # noqa: E402

from sage_attention import Graph, sample_one_hop  # noqa: E402
from sage_attention.errors import ArgumentError, NativeError  # noqa: E402
from sage_attention.torch import fallback, library, ops  # noqa: E402

SOURCES, TARGETS, EDGES, HEADS, CHANNELS, EDGE_CHANNELS = 9, 7, 40, 3, 5, 4
FUNCTIONS = {"gat": ops.gat_attention, "gatv2": ops.gatv2_attention, "dot": ops.dot_attention}


def make_edges(by_source: bool = False, dtype: torch.dtype = torch.int64) -> ops.Csc:
    generator = torch.Generator().manual_seed(3)
    sources = torch.randint(0, SOURCES, (EDGES,), generator=generator)
    targets = torch.randint(0, TARGETS - 1, (EDGES,), generator=generator)  # the last target stays empty
    return ops.csc(torch.stack([sources, targets]).to(dtype), SOURCES, TARGETS, by_source=by_source)


def make_tensors(score: str, edge_features: bool, dtype: torch.dtype = torch.float64) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(4)

    def leaf(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()

    tensors = {
        "gat": lambda: {
            "values": leaf(SOURCES, HEADS, CHANNELS),
            "source_logits": leaf(SOURCES, HEADS),
            "target_logits": leaf(TARGETS, HEADS),
        },
        "gatv2": lambda: {
            "values": leaf(SOURCES, HEADS, CHANNELS),
            "queries": leaf(TARGETS, HEADS, CHANNELS),
            "attention": leaf(HEADS, CHANNELS),
        },
        "dot": lambda: {
            "queries": leaf(TARGETS, HEADS, CHANNELS),
            "keys": leaf(SOURCES, HEADS, CHANNELS),
            "values": leaf(SOURCES, HEADS, CHANNELS),
        },
    }[score]()
    if edge_features:
        tensors["bias"] = leaf(HEADS, CHANNELS)
        tensors["edge_features"] = leaf(EDGES, EDGE_CHANNELS)
        if score == "gat":
            tensors["edge_weight"] = leaf(HEADS, EDGE_CHANNELS)
        elif score == "gatv2":
            tensors["edge_weight"] = leaf(HEADS * CHANNELS, EDGE_CHANNELS)
        else:
            tensors["edge_queries"] = leaf(TARGETS, HEADS, EDGE_CHANNELS)
    return tensors


cases = pytest.mark.parametrize(
    ("score", "edge_features"), [(score, edges) for score in FUNCTIONS for edges in (False, True)]
)


@cases
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"dropout": 0.4, "dropout_seed": 11, "return_weights": True},
        {"dropout": 0.4, "dropout_seed": 2**64 - 1, "return_weights": True, "weights_before_dropout": True},
    ],
)
@pytest.mark.parametrize("by_source", [False, True])
def test_gradients(score, edge_features, options, by_source):
    edges = make_edges(by_source)
    tensors = make_tensors(score, edge_features)

    def outputs(*leaves):
        result = FUNCTIONS[score](edges, **dict(zip(tensors, leaves)), **options)
        return tuple(tensor for tensor in result if tensor is not None)

    assert torch.autograd.gradcheck(outputs, tuple(tensors.values()))


@cases
def test_each_gradient_alone(score, edge_features):
    """What is not asked for is not computed, and what is asked for does not depend on it."""
    edges = make_edges()
    tensors = make_tensors(score, edge_features)
    out = FUNCTIONS[score](edges, **tensors)[0]
    whole = dict(zip(tensors, torch.autograd.grad(out.square().sum(), list(tensors.values()), allow_unused=True)))
    for name, expected in whole.items():
        alone = {n: t.detach().requires_grad_(n == name) for n, t in tensors.items()}
        (grad,) = torch.autograd.grad(FUNCTIONS[score](edges, **alone)[0].square().sum(), [alone[name]])
        torch.testing.assert_close(grad, expected, rtol=1e-12, atol=1e-12)


@cases
@pytest.mark.parametrize("index_type", [torch.int32, torch.int64])
def test_equals_fallback(score, edge_features, index_type):
    edges = make_edges(dtype=index_type)
    ours, theirs = make_tensors(score, edge_features), make_tensors(score, edge_features)
    first = FUNCTIONS[score](edges, **ours, return_weights=True)
    second = getattr(fallback, FUNCTIONS[score].__name__)(edges, **theirs, return_weights=True)
    for a, b in zip(first, second):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
    loss = [sum((t.sin().sum() for t in r if t is not None), torch.zeros(())) for r in (first, second)]
    for a, b in zip(
        torch.autograd.grad(loss[0], list(ours.values())), torch.autograd.grad(loss[1], list(theirs.values()))
    ):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


@cases
def test_opcheck(score, edge_features):
    edges = make_edges()
    tensors = make_tensors(score, edge_features)
    inputs = [tensors.get(name) for name in library.INPUTS]
    arguments = (
        *edges,
        None,
        -1,
        False,
        None,
        0,
        score,
        *inputs,
        0.2,
        0.5,
        0.3,
        torch.tensor(5),
        False,
        True,
        True,
    )
    torch.library.opcheck(torch.ops.sage_attention.forward.default, arguments)


def test_opcheck_of_topology():
    edge_index = torch.tensor([[0, 2, 1], [1, 1, 0]])
    torch.library.opcheck(torch.ops.sage_attention.csc.default, (edge_index, 3, 2))
    edges = ops.csc(edge_index, 3, 2)
    torch.library.opcheck(torch.ops.sage_attention.by_source.default, (edges.indptr, edges.indices, 3))


class Layer(torch.nn.Module):
    def __init__(self, score: str) -> None:
        super().__init__()
        self.score = score

    def forward(self, edge_index: torch.Tensor, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
        edges = ops.csc(edge_index, SOURCES, TARGETS)
        return FUNCTIONS[self.score](edges, **tensors)[0]


def edge_index_of(edges: ops.Csc) -> torch.Tensor:
    targets = torch.repeat_interleave(torch.arange(TARGETS), edges.indptr.diff())
    return torch.stack([edges.indices, targets])


@cases
def test_export(score, edge_features):
    tensors = {n: t.detach() for n, t in make_tensors(score, edge_features).items()}
    edge_index = edge_index_of(make_edges())
    if edge_features:
        tensors["edge_features"] = tensors["edge_features"].contiguous()
    program = torch.export.export(Layer(score), (edge_index, tensors))
    torch.testing.assert_close(program.module()(edge_index, tensors), Layer(score)(edge_index, tensors))


@pytest.mark.parametrize("score", list(FUNCTIONS))
def test_compile_whole_graph(score):
    """One graph, without breaks; the ahead-of-time backend traces the backward pass too."""
    tensors = make_tensors(score, edge_features=True)
    edge_index = edge_index_of(make_edges())
    compiled = torch.compile(Layer(score), fullgraph=True, backend="aot_eager")
    out = compiled(edge_index, tensors)
    expected = Layer(score)(edge_index, tensors)
    torch.testing.assert_close(out, expected)
    grads = torch.autograd.grad(out.sin().sum(), list(tensors.values()))
    for grad, wanted in zip(grads, torch.autograd.grad(expected.sin().sum(), list(tensors.values()))):
        torch.testing.assert_close(grad, wanted)


@cases
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_stays(score, edge_features, dtype):
    edges = make_edges()
    tensors = make_tensors(score, edge_features, dtype)
    out = FUNCTIONS[score](edges, **tensors)[0]
    assert out.dtype == dtype
    exact = FUNCTIONS[score](edges, **{n: t.detach().double() for n, t in tensors.items()})[0]
    torch.testing.assert_close(out.double(), exact, rtol=0, atol=8e-3 * max(1.0, exact.abs().max().item()))
    out.float().sum().backward()
    assert all(t.grad is not None and t.grad.dtype == dtype for t in tensors.values())


def test_dropout_follows_manual_seed():
    edges = make_edges()
    tensors = make_tensors("gat", edge_features=False)

    def draw(seed):
        torch.manual_seed(seed)
        return ops.gat_attention(edges, **tensors, dropout=0.5)[0]

    assert torch.equal(draw(1), draw(1))
    assert not torch.equal(draw(1), draw(2))


@pytest.mark.parametrize("score", list(FUNCTIONS))
def test_threads_do_not_matter(score):
    edges = make_edges()
    results = []
    for count in (1, 2, 5):
        library.set_num_threads(count)
        tensors = make_tensors(score, edge_features=True, dtype=torch.float32)
        out = FUNCTIONS[score](edges, **tensors, dropout=0.2, dropout_seed=1)[0]
        out.sum().backward()
        results.append([out, *(t.grad for t in tensors.values())])
    library.set_num_threads(None)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other))


@cases
@pytest.mark.parametrize("replace", [False, True])
def test_picks_equal_the_sampled_graph(score, edge_features, replace):
    """Sampled inside the operator or before it: the same rows, and the same gradients."""
    edges = make_edges()
    targets = torch.tensor([4, 0, 4, 6])
    graph = Graph.from_trusted(edges.indptr.numpy(), edges.indices.numpy(), SOURCES, edges.edge_ids.numpy())
    hop = sample_one_hop(graph, targets.numpy(), 3, seed=8, hop=2, replace=replace)
    by_target = {"target_logits", "queries", "edge_queries"}
    tensors = make_tensors(score, edge_features)
    chosen = {n: t.detach()[targets].requires_grad_() if n in by_target else t for n, t in tensors.items()}
    picks = ops.Picks(targets, 3, replace, 8, 2)
    inside = FUNCTIONS[score](edges, **chosen, picks=picks)[0]
    sampled = ops.Csc(*(torch.from_numpy(a.copy()) for a in (hop.indptr, hop.sources)), torch.arange(len(hop.sources)))
    rows = torch.from_numpy(hop.edge_ids.copy())
    before = FUNCTIONS[score](sampled, **{n: t[rows] if n == "edge_features" else t for n, t in chosen.items()})[0]
    torch.testing.assert_close(inside, before)
    leaves = list(chosen.values())
    for a, b in zip(torch.autograd.grad(inside.sin().sum(), leaves), torch.autograd.grad(before.sin().sum(), leaves)):
        torch.testing.assert_close(a, b)


def test_no_targets():
    picks = ops.Picks(torch.empty(0, dtype=torch.int64), fan_out=2)
    tensors = make_tensors("gat", edge_features=False)
    del tensors["target_logits"]
    assert ops.gat_attention(make_edges(), **tensors, picks=picks)[0].shape == (0, HEADS, CHANNELS)


def test_empty_targets_get_zeros():
    edges = make_edges()
    out = ops.gat_attention(edges, **make_tensors("gat", edge_features=False))[0]
    assert (out[-1] == 0).all()


def test_no_edges():
    edges = ops.csc(torch.empty(2, 0, dtype=torch.int64), SOURCES, TARGETS)
    tensors = make_tensors("dot", edge_features=False)
    out = ops.dot_attention(edges, **tensors)[0]
    out.sum().backward()
    assert (out == 0).all()
    assert (tensors["values"].grad == 0).all()


@pytest.mark.parametrize(
    ("edge_index", "says"),
    [
        (torch.tensor([[0, 9], [0, 0]]), "sources"),
        (torch.tensor([[0, 1], [0, 7]]), "targets"),
        (torch.tensor([[0, -1], [0, 0]]), "sources"),
        (torch.tensor([0, 1]), "edge_index"),
        (torch.tensor([[0.0], [0.0]]), "edge_index"),
    ],
)
def test_bad_edges(edge_index, says):
    with pytest.raises(ArgumentError, match=says):
        ops.csc(edge_index, SOURCES, TARGETS)


@pytest.mark.parametrize("name", ["source_logits", "target_logits"])
def test_bad_shapes(name):
    tensors = make_tensors("gat", edge_features=False)
    tensors[name] = tensors[name][:, :-1]
    with pytest.raises(ArgumentError, match=name):
        ops.gat_attention(make_edges(), **tensors)


@pytest.mark.parametrize("dropout", [-0.1, 1.0, math.nan])
def test_bad_dropout(dropout):
    with pytest.raises(ArgumentError, match="dropout"):
        torch.ops.sage_attention.forward(
            *make_edges(), None, -1, False, None, 0, "gat",
            *(make_tensors("gat", edge_features=False).get(name) for name in library.INPUTS),
            0.2, 0.5, dropout, None, False, False, False,
        )  # fmt: skip


@pytest.mark.parametrize("count", [0, -1, 1.5, True, 2**31])
def test_bad_thread_count(count):
    with pytest.raises(ArgumentError, match="count"):
        library.set_num_threads(count)


@torch_throws
@pytest.mark.parametrize("score", list(FUNCTIONS))
def test_second_derivatives_are_refused(score):
    """PyTorch alone would warn, and leave out the attention's part."""
    tensors = make_tensors(score, edge_features=False)
    out = FUNCTIONS[score](make_edges(), **tensors)[0]
    (grad,) = torch.autograd.grad(out.pow(2).sum(), tensors["values"], create_graph=True)
    with pytest.raises(NativeError, match="first derivatives only"):
        grad.sum().backward()


@pytest.mark.parametrize("requires_grad", [False, True])
def test_forward_mode_is_refused(requires_grad):
    """PyTorch alone would go on without tangents."""
    tensors = {name: t.detach() for name, t in make_tensors("gat", edge_features=False).items()}
    edges, logits = make_edges(), tensors["source_logits"].requires_grad_(requires_grad)
    with forward_ad.dual_level():
        tensors["source_logits"] = forward_ad.make_dual(logits, torch.ones_like(logits))
        with pytest.raises(ArgumentError, match="source_logits: expected a tensor without tangent"):
            ops.gat_attention(edges, **tensors)


@pytest.mark.parametrize("options", [{"picks": ops.Picks(hop=2**32)}, {"dropout": 0.5, "dropout_seed": 2**64}])
def test_numbers_that_would_wrap(options):
    with pytest.raises(ArgumentError, match=r"hop|seed"):
        ops.gat_attention(make_edges(), **make_tensors("gat", edge_features=False), **options)


@pytest.mark.parametrize("score", list(FUNCTIONS))
def test_meta_tensors(score):
    """Shapes without data, as tools that measure models use them; meta has no autocast."""
    tensors = {name: t.detach().to("meta") for name, t in make_tensors(score, edge_features=False).items()}
    edges = ops.csc(torch.zeros(2, EDGES, dtype=torch.int64, device="meta"), SOURCES, TARGETS)
    assert FUNCTIONS[score](edges, **tensors)[0].shape == (TARGETS, HEADS, CHANNELS)


@pytest.mark.parametrize("name", [*ops.Csc._fields, "values", "queries", "bias", "targets"])
def test_one_tensor_is_elsewhere(name):
    """PyTorch would take the operator of no device, whose outputs hold what was in memory."""
    edges, tensors = make_edges(by_source=True), make_tensors("gatv2", edge_features=True)
    options = {}
    if name in ops.Csc._fields:
        edges = edges._replace(**{name: getattr(edges, name).to("meta")})
    elif name == "targets":
        options["picks"] = ops.Picks(torch.arange(TARGETS, device="meta"))
    else:
        tensors[name] = tensors[name].to("meta")
    error, message = (ArgumentError, rf"{name}: expected a tensor on cpu.* got one on meta")
    if name == "values":  # the others are then where it is not, as the plain way finds out
        error, message = RuntimeError, "meta"
    with pytest.raises(error, match=message):
        ops.gatv2_attention(edges, **tensors, **options)


@pytest.mark.parametrize("options", [{}, {"dropout": 0.5, "dropout_seed": 3}, {"picks": ops.Picks(fan_out=2, seed=5)}])
def test_another_default_device(options):
    """Seeds are for the operators, which are the CPU's."""
    edges, tensors = make_edges(), make_tensors("gat", edge_features=False)
    expected = ops.gat_attention(edges, **tensors, **options)[0]
    with torch.device("meta"):
        torch.testing.assert_close(ops.gat_attention(edges, **tensors, **options)[0], expected, rtol=0, atol=0)
        assert ops.draw_seed().device.type == "cpu"
