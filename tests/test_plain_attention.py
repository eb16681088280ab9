"""The straight way to the kernels gives what the careful way gives, and leaves to it all that is not plain."""

from __future__ import annotations

import ctypes
import struct
import threading

import numpy as np
import pytest

from sage_attention import Graph, _native, _plain_attention
from sage_attention.attention import (
    AttentionInputs,
    attention_forward,
    dot_attention,
    gat_attention,
    gatv2_attention,
)
from sage_attention.errors import ArgumentError

S, R, H, C = 5, 4, 2, 3
GRAPH = Graph([0, 2, 2, 5, 6], [0, 4, 1, 2, 3, 4], num_sources=S, edge_ids=[5, 4, 3, 2, 1, 0])
SHAPES = {
    "gat": {"values": (S, H, C), "source_logits": (S, H), "target_logits": (R, H)},
    "gatv2": {"values": (S, H, C), "queries": (R, H, C), "attention": (H, C)},
    "dot": {"queries": (R, H, C), "keys": (S, H, C), "values": (S, H, C)},
}
ARRAYS = [(score, name) for score, shapes in SHAPES.items() for name in shapes]
CALLS = {"gat": gat_attention, "gatv2": gatv2_attention, "dot": dot_attention}


def arrays_of(score, dtype=np.float32):
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal(shape).astype(dtype) for name, shape in SHAPES[score].items()}


def plainly(score, arrays, graph=GRAPH, num_threads=0):
    arrays = dict(arrays)
    bias = arrays.pop("bias", None)
    return getattr(_plain_attention, score)(graph, *arrays.values(), bias, num_threads)


def carefully(score, arrays, graph=GRAPH):
    return attention_forward(AttentionInputs(score, graph, **arrays)).out


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("score", SHAPES)
def test_the_same_to_the_bit(score, dtype):
    arrays = arrays_of(score, dtype)
    out = plainly(score, arrays)
    assert out.dtype == dtype
    np.testing.assert_array_equal(out, carefully(score, arrays))
    np.testing.assert_array_equal(plainly(score, arrays, num_threads=1), out)


@pytest.mark.parametrize("score", SHAPES)
def test_bias(score):
    arrays = arrays_of(score)
    bias = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    expected = carefully(score, {**arrays, "bias": bias})
    np.testing.assert_array_equal(plainly(score, {**arrays, "bias": bias}), expected)
    np.testing.assert_array_equal(CALLS[score](GRAPH, *arrays.values(), bias=bias), expected)
    assert plainly(score, {**arrays, "bias": np.asfortranarray(bias)}) is None
    for wrong in (bias[:1], bias.astype(np.float64), bias[:, :0], [[0.0] * 3] * 2):
        assert plainly(score, {**arrays, "bias": wrong}) is None
        with pytest.raises(ArgumentError, match="bias"):
            CALLS[score](GRAPH, *arrays.values(), bias=wrong)


def test_without_target_logits():
    arrays = arrays_of("gat")
    arrays["target_logits"] = None
    np.testing.assert_array_equal(plainly("gat", arrays), carefully("gat", arrays))


@pytest.mark.parametrize(("score", "name"), ARRAYS)
def test_read_only_arrays_are_plain(score, name):
    arrays = arrays_of(score)
    expected = carefully(score, arrays)
    arrays[name].flags.writeable = False
    np.testing.assert_array_equal(plainly(score, arrays), expected)


def misaligned(array):
    memory = np.zeros(array.nbytes + 1, np.uint8)[1:]
    moved = memory.view(array.dtype).reshape(array.shape)
    moved[:] = array
    assert not moved.flags.aligned
    return moved


OTHER_FORMS = {
    "by column": np.asfortranarray,
    "reversed": lambda array: array[::-1].copy()[::-1],
    "misaligned": misaligned,
    "a matrix subclass": lambda array: array.view(type("Mine", (np.ndarray,), {})),
}


@pytest.mark.parametrize("form", OTHER_FORMS)
@pytest.mark.parametrize(("score", "name"), ARRAYS)
def test_other_forms_go_the_careful_way(score, name, form):
    arrays = arrays_of(score)
    expected = carefully(score, arrays)
    arrays[name] = OTHER_FORMS[form](arrays[name])
    assert plainly(score, arrays) is None
    np.testing.assert_array_equal(CALLS[score](GRAPH, *arrays.values()), expected)


WRONG = {
    "another shape": lambda array: np.concatenate([array, array]),
    "a dimension more": lambda array: array[None],
    "another dtype": lambda array: array.astype(np.float16),
    "swapped bytes": lambda array: array.astype(array.dtype.newbyteorder()),
    "no rows": lambda array: array[:0],
    "no array": lambda array: None if array.ndim == 1 else "text",
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize(("score", "name"), ARRAYS)
def test_what_is_wrong_is_said_the_careful_way(score, name, wrong):
    arrays = arrays_of(score)
    arrays[name] = WRONG[wrong](arrays[name])
    assert plainly(score, arrays) is None
    with pytest.raises(ArgumentError):
        CALLS[score](GRAPH, *arrays.values())


@pytest.mark.parametrize("score", SHAPES)
@pytest.mark.parametrize("num_threads", [-1, 2**31, True, 1.0, None])
def test_other_numbers_of_threads(score, num_threads):
    arrays = arrays_of(score)
    assert plainly(score, arrays, num_threads=num_threads) is None
    with pytest.raises(ArgumentError, match="num_threads"):
        CALLS[score](GRAPH, *arrays.values(), num_threads=num_threads)


@pytest.mark.parametrize("score", SHAPES)
def test_other_graphs(score):
    arrays = arrays_of(score)
    larger = Graph([0, 2, 2, 5, 6], [0, 4, 1, 2, 3, 4], num_sources=S + 1)
    for graph in (larger, None, type("Mine", (Graph,), {})(GRAPH.indptr, GRAPH.indices, S)):
        assert plainly(score, arrays, graph) is None


@pytest.mark.parametrize("score", SHAPES)
def test_graphs_without_targets(score):
    arrays = arrays_of(score)
    arrays = {name: array[:0] if SHAPES[score][name][0] == R else array for name, array in arrays.items()}
    graph = Graph([0], [], num_sources=S)
    assert plainly(score, arrays, graph) is None
    assert CALLS[score](graph, *arrays.values()).shape == (0, H, C)


def test_many_threads_at_once():
    """Each with numbers of its own: nothing of a call is shared."""
    cases = [(score, arrays_of(score)) for score in SHAPES] * 2
    expected = [carefully(score, arrays) for score, arrays in cases]
    wrong = []

    def attend(case, out):
        score, arrays = case
        wrong.extend(score for _ in range(300) if not np.array_equal(plainly(score, arrays), out))

    threads = [threading.Thread(target=attend, args=pair) for pair in zip(cases, expected)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_structures_as_bytes():
    """Numbers that are all different land where ctypes reads them."""
    scalars = _native._formats(_native.Problem)
    flat = "".join(scalars.values())
    numbers = [float(i) if kind == "d" else i for i, kind in enumerate(flat, 1)]
    problem = _native.Problem.from_buffer_copy(_native.pack_problem(*numbers))
    got = []
    for name, kinds in scalars.items():
        value = getattr(problem, name)
        got += [getattr(value, field[0]) for field in value._fields_] if len(kinds) > 1 else [value]
    assert got == numbers
    for structure, pack in {
        _native.Result: _native.pack_result,
        _native.Transposed: _native.pack_transposed,
        _native.Gradients: _native.pack_gradients,
    }.items():
        fields = [field[0] for field in structure._fields_]
        made = structure.from_buffer_copy(pack(*range(1, len(fields) + 1)))
        assert [getattr(made, name) for name in fields] == list(range(1, len(fields) + 1))


def test_plain_structures_as_bytes():
    size = struct.calcsize(_native._plain["graph"])
    assert size == _native.Problem.heads.offset - _native.Problem.graph.offset
    part = _native.pack_of_graph(*range(1, 16))
    packed = _native.pack_plain_problem(1, 2, 3, part, 4, 5, 6.0, 7.0, *range(8, 16))
    problem = _native.Problem.from_buffer_copy(packed)
    assert len(packed) == ctypes.sizeof(_native.Problem)
    assert (problem.struct_size, problem.score, problem.dtype, problem.heads, problem.channels) == (1, 2, 3, 4, 5)
    assert [getattr(problem.graph, field[0]) for field in problem.graph._fields_] == list(range(1, 8))
    assert (problem.edge_ids, problem.num_edge_rows, problem.targets, problem.num_rows) == (8, 9, 10, 11)
    assert [getattr(problem.sampling, field[0]) for field in problem.sampling._fields_] == [12, 13, 14, 15]
    arrays = ("values", "keys", "queries", "source_logits", "target_logits", "attention", "bias", "num_threads")
    assert (problem.negative_slope, problem.scale) == (6.0, 7.0)
    assert [getattr(problem, name) for name in arrays] == list(range(8, 16))
    assert [getattr(problem, name) or 0 for name in _native._NOT_PLAIN] == [0] * len(_native._NOT_PLAIN)
    assert bytes(_native.Result(out=9)) == _native.pack_out(9)
