"""The page, the drawing and the tables: whatever was measured, and whatever a graph is called."""

from __future__ import annotations

import io
import re
from xml.dom import minidom

import pytest

from sage_attention import Graph
from sage_attention.bench import show
from sage_attention.bench.chart import Chart, Lane
from sage_attention.bench.machine import machine
from sage_attention.bench.page import drawing, report_page
from sage_attention.bench.problem import Problem
from sage_attention.bench.result import Figure, LeftOut, Result
from sage_attention.bench.tables import milliseconds, tables
from sage_attention.bench.timing import Timing

FIGURES = [
    Figure("attention", "gat", "gather", 1, "ours", Timing([0.1, 0.2, 0.4], [0.1] * 3, [0.5]), 90.0, gb_per_s=7.5),
    Figure("attention", "gat", "forward", 1, "ours", Timing([0.2, 0.3, 0.3], [0.1] * 3, [0.5]), 150.0, share=0.75),
    Figure("sampling", "", "15,10", 1, "ours", Timing([0.001], [0.001], [0.0]), 21.0, times_ours=1.0),
    Figure("sampling", "", "15,10", 1, "pyg-lib", Timing([0.003] * 3, [0.001] * 3, [0.0]), 63.0, times_ours=3.0),
    Figure("peers", "gat", "training", 2, "ours", Timing([0.5] * 3, [0.1] * 3), 400.0, times_ours=1.0),
    Figure("peers", "gat", "training", 2, "PyG compiled", Timing([1.0] * 3, [0.1] * 3), 800.0, times_ours=2.0,
           compile_s=12.3),
]  # fmt: skip


def a_result(figures=FIGURES, name="社交 <b>&\"graph'.csv", **more):
    problem = Problem(name, Graph([0, 1, 3], [1, 0, 1]), 8, 16)
    return Result(problem, machine(), {"threads": [1, 2]}, list(figures), **more)


def shown(result):
    stream = io.StringIO()
    show.show(result, stream)
    return stream.getvalue()


@pytest.mark.parametrize("count", range(len(FIGURES) + 1))
def test_a_page_of_whatever_there_is(count):
    left = [LeftOut("PyG <eager>", "needs 9 GiB"), LeftOut("that", "needs 9 GiB")]
    text = report_page(a_result(FIGURES[:count], left_out=left), "2 May 2025")
    for forbidden in ("http:", "https:", "src=", "url(", "@import", "href", "<script", "<link", "<b>", "NaN", "None"):
        assert forbidden not in text, forbidden
    assert not re.search(r"\b(nan|inf)\b", text)
    assert "社交 &lt;b&gt;&amp;&quot;graph&#x27;.csv: 2 nodes, 3 edges" in text
    assert "needs 9 GiB: PyG &lt;eager&gt;; that" in text
    drawings = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(drawings) == len({figure.part for figure in FIGURES[:count] if figure.step != "gather"})
    for one in drawings:
        minidom.parseString(one)


def test_all_figures_are_on_the_page():
    text = report_page(a_result())
    for cell in ("75%", "7.5", "21.0", "2.00", "150.0", "63.0", "3.00"):
        assert f">{cell}</td>" in text, cell
    assert "1000 ms (x 2.0)" in text
    assert "63 ns (x 3.0)" in text
    assert "Compiling took up to 12 s" in text
    assert machine().lines()[0] in text.replace("&amp;", "&")


@pytest.mark.parametrize("count", range(len(FIGURES) + 1))
def test_a_drawing_is_a_file_of_its_own(count):
    text = drawing(a_result(FIGURES[:count]))
    root = minidom.parseString(text.encode()).documentElement
    assert root.getAttribute("xmlns") == "http://www.w3.org/2000/svg"
    assert not root.getElementsByTagName("svg"), "one within another takes its size from the style sheet"
    height = float(root.getAttribute("height"))
    for group in root.getElementsByTagName("g"):
        assert float(group.getAttribute("transform").split()[1].rstrip(")")) < height


def test_bars_fit_and_start_at_zero():
    lanes = [Lane("", "a" * 90, 3.0, 2.0, 9.5, "3"), Lane("g", "b", 0.0, 0.0, 0.0, "0")]
    root = minidom.parseString(Chart("t", lanes, "ms", str, reference=1.0).svg("k")).documentElement
    bars = root.getElementsByTagName("rect")
    assert len(bars) == 2
    assert len({bar.getAttribute("x") for bar in bars}) == 1
    lines = root.getElementsByTagName("line")
    assert max(float(line.getAttribute("x2")) for line in lines) <= float(root.getAttribute("width"))


def test_notes_say_what_is_not_to_be_trusted():
    notes = " ".join(a_result(interrupted=True).notes())
    for words in ("interrupted", "up to 50% of all cores", "1 of 6 figures vary", "three rounds: 1 of 6", "cache"):
        assert words in notes, words
    quiet = Timing([1.0] * 3, [1.0] * 3, [0.01])
    large = Problem("large", Graph([0] * 2**14, []), 64, 128)
    assert Result(large, machine(), {}, [Figure("attention", "gat", "gather", 1, "ours", quiet, 1.0)]).notes() == []


def test_notes_where_nobody_knows_of_others():
    figures = [Figure("attention", "gat", "gather", 1, "ours", Timing([1.0] * 3, [1.0] * 3), 1.0)]
    assert any("is not known" in note for note in a_result(figures).notes())


def test_more_threads_than_cores():
    figures = [Figure("sampling", "", "5", 10_000, "ours", Timing([1.0] * 3, [1.0] * 3, [0.0]), 1.0)]
    assert any(note.startswith("10000 threads shared") for note in a_result(figures).notes())


def test_tables_on_a_console():
    text = shown(a_result(left_out=[LeftOut("all the rest", "time")]))
    for words in ("gather limit", "15,10", "pyg-lib", "PyG compiled", "2.00", "75%", "note: "):
        assert words in text, words
    assert "left out, as time: all the rest" in text
    assert "社交 <b>" in text
    assert "?" in text, "the spread of one round is not known"
    in_tables = text.split("\n\n")[1:-1]
    assert len(in_tables) == 3
    assert max(len(line) for table in in_tables for line in table.splitlines()) <= 80


def test_a_console_without_the_characters():
    raw = io.BytesIO()
    console = io.TextIOWrapper(raw, encoding="ascii", write_through=True)
    show.show(a_result(), console)
    assert b"gather" in raw.getvalue()


def test_every_row_has_a_cell_for_every_column():
    found = tables(a_result())
    assert len(found) == 3
    for table in found:
        assert {len(row) for row in table.rows} == {len(table.columns)}


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0, "0"), (12.3456, "12346"), (0.00999, "9.99"), (1e-6, "0.00100"), (0.1, "100")]
)
def test_milliseconds(seconds, text):
    assert milliseconds(seconds) == text
