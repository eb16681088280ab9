"""Tables in fewer bytes: what they hold, attention and sums over them against the naive twins, what is refused."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest

from attention_cases import (
    FORWARD_LIMIT,
    HEADS_AND_CHANNELS,
    OPTIONS,
    SCORES,
    as_type,
    assert_close,
    awkward_graph,
    each_cpu_level,
    edges_of_degrees,
    make_inputs,
    widen,
)
from reference import attention as reference
from reference import quantized as naive
from sage_attention import (
    ArgumentError,
    Graph,
    NodeClassifier,
    QuantizedTable,
    aggregate,
    quantization_report,
    quantize,
)
from sage_attention.attention import (
    attention_backward,
    attention_forward,
    dot_attention,
    gat_attention,
    gatv2_attention,
)
from sage_attention.inference import ModelConfig

KINDS = ("float16", "bfloat16", "int8")
LIMIT = FORWARD_LIMIT["float32"]


@pytest.fixture(autouse=True)
def _poison(monkeypatch):
    """Scratch memory starts as not-a-number: what is read before it is written shows."""
    monkeypatch.setenv("SAGE_ATTENTION_POISON", "1")


def floats(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def exact(table):
    """What the naive twin says a table stands for."""
    return naive.dequantize(table.data, table.kind, table.scales)


def in_kind(inputs, kind, keys_kind):
    """A float32 problem over quantized tables, and the one the reference solves."""
    values = quantize(inputs.values, kind)
    quantized, plain = {"values": values}, {"values": exact(values)}
    if inputs.keys is not None and keys_kind:
        keys = quantize(inputs.keys, keys_kind)
        quantized["keys"], plain["keys"] = keys, exact(keys)
    return dataclasses.replace(inputs, **quantized), dataclasses.replace(inputs, **plain)


def awkward_numbers():
    """Every exponent of float32 with fractions around the halves; halves to even; zeros, subnormals, both signs."""
    fractions = np.array([0, 1, 0x0FFF, 0x1000, 0x1001, 0x7FFF, 0x8000, 0x8001, 0x18000, 0x3000, 0x7FFFFF, 0x7F7FFF])
    bits = (np.arange(0, 255)[:, None] << 23 | fractions).astype(np.uint32)
    numbers = bits.view(np.float32)
    return np.concatenate([numbers, -numbers])


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_rounds_to_the_nearest(kind):
    numbers = awkward_numbers()
    most = 65504.0 if kind == "float16" else 3.38e38
    numbers = np.where(np.abs(numbers) <= most, numbers, np.float32(1.5))
    table = quantize(numbers, kind)
    expected, _ = naive.quantize(numbers, kind)
    np.testing.assert_array_equal(table.data.view(np.uint16), expected)
    np.testing.assert_array_equal(table.dequantize().astype(np.float64), exact(table))


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_every_number_of_sixteen_bits(kind):
    """All 65536 through the kernels: a row of one edge is the number itself."""
    bits = np.arange(2**16, dtype=np.uint16)
    for channels in (1, 8, 16, 64):
        data = bits.view(np.float16) if kind == "float16" else bits
        table = QuantizedTable(data.reshape(-1, channels))
        expected = exact(table)
        rows = len(table)
        graph = Graph.from_edge_index([np.arange(rows), np.arange(rows)], rows)
        by_heads = QuantizedTable(table.data.reshape(rows, 1, channels))
        for level in each_cpu_level():
            for got in (
                aggregate(graph, table).astype(np.float64),
                gat_attention(graph, by_heads, np.zeros((rows, 1), np.float32))[:, 0].astype(np.float64),
            ):
                np.testing.assert_array_equal(got, expected, err_msg=f"{level} {channels}")


def test_int8_matches_its_naive_twin():
    values = floats(40, 3, 7) * np.float32(10.0) ** np.arange(-20, 20, dtype=np.float32)[:, None, None]
    values[3] = 0
    values[4, 0, 0] = 1e-44  # too small for a scale of its own
    values[5] = values[5, 0, 0]
    values[6, 1, 2] = -np.finfo(np.float32).max  # by 127 and times 127 it would be infinite
    values[7, 1] = np.float32(1e-44) * np.arange(7, dtype=np.float32)
    values[7, [0, 2]] = 0
    table = quantize(values, "int8")
    data, scales = naive.quantize(values, "int8")
    np.testing.assert_array_equal(table.data, data)
    np.testing.assert_array_equal(table.scales, scales)
    np.testing.assert_allclose(table.dequantize(), exact(table), rtol=2e-7, atol=1e-44)
    assert np.abs(table.data).max() == 127
    assert np.isfinite(table.dequantize()).all()
    graph = Graph.from_edge_index([np.arange(40), np.arange(40)], 40)
    for _ in each_cpu_level():
        got = gat_attention(graph, table, np.zeros((40, 3), np.float32))
        np.testing.assert_allclose(got, exact(table), rtol=1e-6, atol=1e-43)


@pytest.mark.parametrize(("kind", "limit"), [("float16", 2**-11), ("bfloat16", 2**-8), ("int8", 0.5001 / 127)])
def test_error_report(kind, limit):
    values = floats(300, 2, 9) * np.exp(floats(300, 1, 1, seed=1) * 3)
    values[7] = 0
    table = quantize(values, kind)
    error = table.error(values)
    assert 0 < error.mean < error.max <= limit
    most = np.abs(values.astype(np.float64)).max((1, 2), keepdims=True)
    relative = np.abs(exact(table) - values) / np.where(most > 0, most, 1)
    assert error.max == pytest.approx(relative.max(), rel=1e-5)
    assert error.mean == pytest.approx(relative.mean(), rel=1e-5)


def test_large_tables_are_made_in_pieces(monkeypatch):
    values = floats(130, 4, 5)
    whole = {kind: quantize(values, kind) for kind in KINDS}
    errors = {kind: whole[kind].error(values) for kind in KINDS}
    monkeypatch.setattr("sage_attention.quantized._PIECE", 64)
    for kind in KINDS:
        table = quantize(values, kind)
        np.testing.assert_array_equal(table.data, whole[kind].data)
        np.testing.assert_array_equal(table.dequantize(), whole[kind].dequantize())
        assert table.error(values).max == errors[kind].max
        assert table.error(values).mean == pytest.approx(errors[kind].mean)


def test_bytes_and_shape():
    values = floats(10, 4, 8)
    sizes = {kind: quantize(values, kind).nbytes for kind in KINDS}
    assert sizes == {"float16": 640, "bfloat16": 640, "int8": 320 + 40}
    for kind in KINDS:
        table = quantize(values, kind)
        assert (table.kind, table.shape, table.ndim, len(table)) == (kind, (10, 4, 8), 3, 10)
        assert table.data.__array_interface__["data"][0] % 64 == 0
        assert kind in repr(table)
        np.testing.assert_array_equal(quantize(values.astype(np.float64), kind).data, table.data)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("heads", "channels"), [*HEADS_AND_CHANNELS, (3, 16), (2, 32), (9, 64)])
@pytest.mark.parametrize("score", SCORES)
def test_attention_matches_reference(score, heads, channels, kind):
    graph = awkward_graph()
    others = {"float16": "int8", "bfloat16": None, "int8": "int8"}
    for text, options in OPTIONS.items():
        for edge_channels in (0, 3):
            inputs = as_type(make_inputs(score, graph, heads, channels, edge_channels, **options), "float32")
            quantized, plain = in_kind(inputs, kind, others[kind])
            expected = reference.attention_forward(plain)
            whole = inputs.attends_whole_graph
            for level in each_cpu_level():
                for threads in (1, 2):
                    got = attention_forward(quantized, return_weights=whole, num_threads=threads)
                    assert got.out.dtype == np.float32
                    for name in ("out", "edge_out", "weights"):
                        array = getattr(got, name)
                        if array is not None:
                            assert_close(array, expected[name], LIMIT, f"{name} {kind} {level} {text} {edge_channels}")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("channels", [1, 3, 7, 8, 9, 16, 31, 64, 65, 128, 200])
def test_aggregate_matches_reference(channels, weighted, kind):
    for graph in (awkward_graph(), widen(awkward_graph())):
        table = quantize(floats(graph.num_sources, channels), kind)
        factors = floats(graph.num_edges, seed=1) if weighted else None
        expected = reference.aggregate(graph, exact(table), factors)
        for level in each_cpu_level():
            for threads in (1, 2):
                got = aggregate(graph, table, factors, num_threads=threads)
                assert got.dtype == np.float32
                assert_close(got, expected, LIMIT, f"{kind} {level}")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("score", SCORES)
def test_row_of_thousands_of_edges(score, kind):
    graph = Graph.from_edge_index(edges_of_degrees([3, 5000, 0, 65], 50), (50, 4))
    for shape in ((2, 8), (8, 16), (3, 5)):
        inputs = as_type(make_inputs(score, graph, *shape), "float32")
        quantized, plain = in_kind(inputs, kind, kind)
        expected = reference.attention_forward(plain)
        for level in each_cpu_level():
            assert_close(attention_forward(quantized, num_threads=2).out, expected["out"], 2e-4, f"{level} {shape}")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("score", SCORES)
def test_any_number_of_threads_gives_the_same_bits(ragged, score, kind):
    inputs, _ = in_kind(as_type(make_inputs(score, ragged, 8, 16), "float32"), kind, kind)
    for _ in each_cpu_level():
        expected = attention_forward(inputs, num_threads=1).out
        for threads in (2, 5, 0):
            np.testing.assert_array_equal(attention_forward(inputs, num_threads=threads).out, expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("num_sources", "num_targets"), [(0, 0), (4, 0), (0, 4), (4, 3)])
def test_without_edges(num_sources, num_targets, kind):
    graph = Graph(np.zeros(num_targets + 1, np.int64), np.zeros(0, np.int32), num_sources)
    table = quantize(np.ones((num_sources, 2, 8), np.float32), kind)
    for _ in each_cpu_level():
        got = gat_attention(graph, table, np.zeros((num_sources, 2), np.float32))
        assert got.shape == (num_targets, 2, 8)
        assert not got.any()
        assert not aggregate(graph, quantize(np.ones((num_sources, 5), np.float32), kind)).any()


def test_not_a_number_stays_where_it_belongs():
    graph = awkward_graph()
    values = floats(13, 2, 8)
    values[5, 1, 3], values[6, 0, 2] = np.nan, np.inf
    for kind in ("float16", "bfloat16"):
        table = quantize(values, kind)
        expected = gat_attention(graph, values, np.zeros((13, 2), np.float32))
        assert np.isnan(expected).any()
        for _ in each_cpu_level():
            got = gat_attention(graph, table, np.zeros((13, 2), np.float32))
            np.testing.assert_array_equal(np.isfinite(got), np.isfinite(expected))


def test_whole_functions_take_tables():
    graph = awkward_graph()
    values, queries, keys = floats(13, 2, 8), floats(9, 2, 8, seed=1), floats(13, 2, 8, seed=2)
    logits, attention = floats(13, 2, seed=3), floats(2, 8, seed=4)
    for kind in KINDS:
        table, key_table = quantize(values, kind), quantize(keys, kind)
        for got, expected in (
            (gat_attention(graph, table, logits), gat_attention(graph, values, logits)),
            (gatv2_attention(graph, table, queries, attention), gatv2_attention(graph, values, queries, attention)),
            (dot_attention(graph, queries, key_table, table), dot_attention(graph, queries, keys, values)),
            (dot_attention(graph, queries, key_table, values), dot_attention(graph, queries, keys, values)),
            (dot_attention(graph, queries, keys, table), dot_attention(graph, queries, keys, values)),
        ):
            assert 0 < np.abs(got - expected).max() < 0.05


def test_memory_layouts():
    data = np.asfortranarray(np.arange(13 * 16, dtype=np.int16).reshape(13, 16).astype(np.int8))
    scales = np.repeat(np.abs(floats(13)), 2)[::2]
    table = QuantizedTable(data, scales)
    expected = reference.aggregate(awkward_graph(), data.astype(np.float64) * scales[:, None])
    for _ in each_cpu_level():
        assert_close(aggregate(awkward_graph(), table), expected, LIMIT, "")
    odd = np.empty(13 * 16 * 2 + 2, np.uint8)[2:].view(np.float16).reshape(13, 16)  # no address of a whole line
    odd[:] = floats(13, 16)
    for _ in each_cpu_level():
        got = aggregate(awkward_graph(), QuantizedTable(odd))
        assert_close(got, reference.aggregate(awkward_graph(), odd.astype(np.float64)), LIMIT, "")


def refused(argument, call, *parts):
    with pytest.raises(ArgumentError) as caught:
        call()
    assert caught.value.argument == argument, str(caught.value)
    for part in ("expected", "got", *parts):
        assert part in str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("score", SCORES)
def test_gradients_are_refused(score, kind):
    inputs = as_type(make_inputs(score, awkward_graph()), "float32")
    outputs = attention_forward(inputs, for_backward=True)
    for name in ("values", "keys"):
        if getattr(inputs, name) is None:
            continue
        quantized = dataclasses.replace(inputs, **{name: quantize(getattr(inputs, name), kind)})
        refused(name, functools.partial(attention_forward, quantized, for_backward=True), "no gradients", kind)
        refused(name, functools.partial(attention_backward, quantized, outputs, outputs.out), "no gradients", kind)


def test_refuses_numbers_without_a_place():
    values = floats(5, 2, 3)
    values[3, 1, 2] = 70000
    refused("values[3, 1, 2]", lambda: quantize(values, "float16"), "65504", "70000", "bfloat16")
    quantize(values, "bfloat16")
    values[3, 1, 2] = np.finfo(np.float32).max
    refused("values[3, 1, 2]", lambda: quantize(values, "bfloat16"))
    for number in (np.nan, np.inf):
        values[3, 1, 2] = number
        refused("values[3, 1, 2]", lambda: quantize(values, "int8"), "finite")
    large = np.ones((2, 2))
    large[1, 0] = 1e300
    for kind in KINDS:
        refused("values[1, 0]", lambda kind=kind: quantize(large, kind), "1e+300")


def test_refuses():
    ones = np.ones((13, 2, 4), np.float32)
    table, graph, logits = quantize(ones, "int8"), awkward_graph(), np.zeros((13, 2), np.float32)
    refused("kind", lambda: quantize(ones, "int4"), "int4", "bfloat16")
    refused("values", lambda: quantize(np.ones(3, np.float32), "int8"))
    refused("values", lambda: quantize(np.ones((3, 3), np.int64), "int8"), "astype")
    refused("values", lambda: quantize(np.ones((3, 3), np.float16), "int8"), "QuantizedTable(values)")
    refused("values", lambda: quantize(None, "int8"))
    refused("data", lambda: QuantizedTable(ones), "quantize()")
    refused("data", lambda: QuantizedTable(np.ones(3, np.int8), np.ones(3, np.float32)))
    refused("scales", lambda: QuantizedTable(table.data), "None")
    refused("scales", lambda: QuantizedTable(table.data, np.ones(13)), "float64")
    refused("scales", lambda: QuantizedTable(table.data, np.ones(12, np.float32)))
    refused("scales", lambda: QuantizedTable(np.ones((3, 3), np.float16), np.ones(3, np.float32)))
    refused("values", lambda: table.error(ones[:3]))
    refused("values", lambda: gat_attention(graph, quantize(ones[:12], "int8"), logits), "S=13")
    refused("values", lambda: gat_attention(graph, quantize(ones[:, :, 0], "int8"), logits), "[S, H, C]")
    refused("values", lambda: aggregate(graph, table), "[S, C]")
    refused("values", lambda: aggregate(graph, quantize(ones[:12, 0], "int8")), "S=13")
    refused("values", lambda: gat_attention(graph, ones.astype(np.float16), logits), "QuantizedTable(values)")
    refused("source_logits", lambda: gat_attention(graph, table, logits.astype(np.float64)), "float32")
    refused("source_logits", lambda: gat_attention(graph, table, table))
    double = np.ones((13, 2, 4))
    refused("keys", lambda: dot_attention(graph, double[:9], table, double), "float32")
    refused("edge_values", lambda: aggregate(graph, quantize(ones[:, 0], "int8"), np.ones(graph.num_edges)), "float32")


def classifier():
    config = ModelConfig(num_features=5, class_names=["a", "b", "c"], hidden=4, heads=3)
    tensors = {}
    for layer, (columns, heads, channels) in enumerate(config.layer_sizes()):
        name = f"convs.{layer}."
        tensors[name + "lin.weight"] = floats(heads * channels, columns, seed=layer)
        tensors[name + "att_src"], tensors[name + "att_dst"] = floats(2, 1, heads, channels, seed=layer + 5)
        tensors[name + "bias"] = floats(channels if layer else heads * channels, seed=layer + 9)
    return NodeClassifier(config, tensors)


def test_report_on_a_model():
    model, x = classifier(), floats(60, 5, seed=3)
    graph = Graph.from_edge_index(np.random.default_rng(2).integers(0, 60, (2, 400)), 60)
    wanted = model.forward(graph, x)[0].astype(np.float64)
    reports = quantization_report(lambda keep: model.forward(graph, x, keep=keep)[0])
    assert list(reports) == list(KINDS)
    for kind, report in reports.items():
        tables = []

        def keep(values, kind=kind, tables=tables):
            tables.append((values, quantize(values, kind)))
            return tables[-1][1]

        got = model.forward(graph, x, keep=keep)[0].astype(np.float64)
        assert [table.shape for _, table in tables] == [(60, 3, 4), (60, 1, 3)]
        assert report.kind == kind
        assert report.bytes_kept == pytest.approx(0.5 if kind != "int8" else 0.25 + 2 / (12 + 3))
        assert report.table_max == max(table.error(values).max for values, table in tables)
        assert 0 < report.output_max == pytest.approx(np.abs(got - wanted).max() / np.abs(wanted).max())
        assert 0 < report.output_mean == pytest.approx(np.abs(got - wanted).mean() / np.abs(wanted).mean())
        assert report.same_choice == (got.argmax(1) == wanted.argmax(1)).mean() > 0.9
    assert reports["float16"].output_max < reports["bfloat16"].output_max


def test_report_of_a_model_that_fails():
    table = np.ones((2, 2), np.float32)
    table[0, 0] = 1.001

    def broken(keep):
        return np.full((2, 2), np.nan) if keep(table) is not table else table

    report = quantization_report(broken, ["int8"])["int8"]
    assert report.output_max == report.output_mean == np.inf
    unlike = quantization_report(lambda keep: [[keep(table) is table, False], [True, True]], ["float16"])["float16"]
    assert (unlike.output_max, unlike.same_choice) == (1, 1)
    swapped = quantization_report(lambda keep: [[keep(table) is table, 0.5], [0, 1]], ["float16"])["float16"]
    assert swapped.same_choice == 0.5
    nothing = quantization_report(lambda keep: 0 * keep(table)[:] if keep(table) is table else table * 0, ["int8"])
    assert nothing["int8"].output_max == 0


def test_report_refuses():
    table = np.ones((3, 2), np.float32)
    refused("kinds", lambda: quantization_report(lambda _: table, ["int4"]), "int4")
    refused("model", lambda: quantization_report(lambda _: table), "keep()")
    refused("model", lambda: quantization_report(lambda keep: keep(table[:0]) is None or table), "keep()")
    refused("model", lambda: quantization_report(lambda keep: keep(table)), "object")
    refused("model", lambda: quantization_report(lambda _: np.ones(3)), "[3]")
    refused("model", lambda: quantization_report(lambda keep: table[: 2 + (keep(table) is table)]), "[2, 2]", "[3, 2]")
    refused("values", lambda: quantization_report(lambda keep: (keep(np.ones(3)), table)[1]), "reshape")


def test_tensors():
    torch = pytest.importorskip("torch", minversion="2")
    tensor = torch.from_numpy(floats(6, 4))
    refused("values", lambda: quantize(tensor.bfloat16(), "int8"), "tensor.float()")
    refused("data", lambda: QuantizedTable(tensor.bfloat16()), "torch.uint16")
    table = QuantizedTable(tensor.bfloat16().view(torch.uint16))
    np.testing.assert_array_equal(table.data, quantize(tensor, "bfloat16").data)
    np.testing.assert_array_equal(QuantizedTable(tensor.half()).data, quantize(tensor, "float16").data)
