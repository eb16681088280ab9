"""A result as a page or a drawing, in the style of the training report: nothing runs, nothing is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sage_attention.bench.chart import WIDTH, Chart, Lane
from sage_attention.bench.result import threads_text
from sage_attention.bench.tables import milliseconds, tables
from sage_attention.recipes.markup import element, escape
from sage_attention.recipes.report import page
from sage_attention.recipes.report_style import style_sheet

if TYPE_CHECKING:
    from sage_attention.bench.result import Figure, Result
    from sage_attention.bench.tables import Table

__all__ = ["drawing", "report_page"]

_XML = "http://www.w3.org/2000/svg"
_GAP = 40.0


def _limit_chart(figures: list[Figure]) -> Chart | None:
    lanes = []
    for figure in figures:
        if figure.share is not None:
            low, high = figure.timing.quartiles
            scale = figure.share * figure.timing.median
            label = f"{figure.step}, {threads_text(figure.threads)}"
            lanes.append(Lane(figure.score, label, figure.share, scale / high, scale / low, f"{figure.share:.0%}"))
    title = "Share of the gather limit"
    return Chart(title, lanes, "share of the gather limit", lambda x: f"{x:.0%}", 1.0) if lanes else None


def _times_ours(figure: Figure) -> str:
    return "" if figure.contender == "ours" or figure.times_ours is None else f" (x {figure.times_ours:.1f})"


def _peer_chart(figures: list[Figure]) -> Chart | None:
    lanes = []
    for figure in figures:
        low, high = (1e3 * seconds for seconds in figure.timing.quartiles)
        shown = f"{milliseconds(figure.timing.median)} ms{_times_ours(figure)}"
        group = f"{figure.score}, {figure.step}, {threads_text(figure.threads)}"
        value = 1e3 * figure.timing.median
        lanes.append(Lane(group, figure.contender, value, low, high, shown, figure.contender == "ours"))
    return Chart("Time beside PyTorch Geometric", lanes, "milliseconds", lambda x: f"{x:,g}") if lanes else None


def _sampling_chart(figures: list[Figure]) -> Chart | None:
    lanes = []
    for figure in figures:
        low, high = figure.timing.quartiles
        ns = figure.ns_per_edge
        scale = ns / figure.timing.median
        label = f"{figure.contender}, {threads_text(figure.threads)}"
        shown = f"{ns:.0f} ns{_times_ours(figure)}"
        first = figure.contender == "ours"
        lanes.append(Lane(f"fan-outs {figure.step}", label, ns, low * scale, high * scale, shown, first))
    return Chart("Sampling", lanes, "nanoseconds per edge", lambda x: f"{x:,g}") if lanes else None


def _charts(result: Result) -> dict[str, Chart]:
    """Title of a table -> the chart beside it; only what has something to show."""
    charts = {
        "Attention beside the gather limit": _limit_chart(result.of("attention")),
        "Sampling": _sampling_chart(result.of("sampling")),
        "Beside PyTorch Geometric": _peer_chart(result.of("peers")),
    }
    return {title: chart for title, chart in charts.items() if chart is not None}


def _title(result: Result) -> str:
    graph = result.problem.graph
    return f"{result.problem.name}: {graph.num_nodes:,} nodes, {graph.num_edges:,} edges"


def _table(table: Table) -> str:
    head = "".join(
        element("th", escape(name), scope="col", class_="" if number < table.left else "number")
        for number, name in enumerate(table.columns)
    )
    body = "".join(
        element(
            "tr",
            "".join(
                element("td", escape(cell), class_="" if number < table.left else "number")
                for number, cell in enumerate(row)
            ),
        )
        for row in table.rows
    )
    whole = element("table", element("thead", element("tr", head)) + element("tbody", body))
    return element("details", element("summary", "In numbers") + element("div", whole, class_="scroll"), open="")


def report_page(result: Result, finished: str = "") -> str:
    """One HTML page that refers to nothing outside itself.

    Args:
        result: What was measured.
        finished: When, as text.
    """
    problem = result.problem
    notes = "".join(element("li", escape(note)) for note in result.notes())
    charts = _charts(result)
    sections = []
    for number, table in enumerate(tables(result)):
        lead = element("p", escape(table.lead), class_="lead")
        chart = ""
        if table.title in charts:
            chart = element("figure", element("div", charts[table.title].svg(f"chart-{number}"), class_="wide"))
        sections.append(element("section", element("h2", escape(table.title)) + lead + chart + _table(table)))
    if result.left_out:
        items = "".join(element("li", escape(f"{why}: {'; '.join(what)}")) for why, what in result.why_left_out())
        sections.append(element("section", element("h2", "Left out") + element("ul", items)))
    facts = "".join(element("p", escape(line)) for line in result.machine.lines())
    sections.append(element("section", element("h2", "The machine") + facts))
    eyebrow = "Benchmark" + (f" · {finished}" if finished else "")
    what = f"{problem.heads} heads x {problem.channels} channels, float32; rows of all nodes: "
    what += f"{problem.table_bytes / 2**20:,.1f} MiB"
    header = element("p", escape(eyebrow), class_="eyebrow") + element("h1", escape(_title(result)))
    body = "".join([
        element("header", header + element("p", escape(what), class_="sentence")),
        element("div", element("ul", notes), class_="notes", role="note") if notes else "",
        *sections,
        element("footer", "Made by SageAttention for graphs. The page is self-contained, without scripts."),
    ])  # fmt: skip
    return page(_title(result), body)


def drawing(result: Result) -> str:
    """The charts alone, one under the other, as an SVG file."""
    heading = element("text", escape(_title(result)), x=0.0, y=20.0, class_="name ink")
    heading += element("text", escape(result.machine.lines()[0]), x=0.0, y=40.0, class_="axis")
    parts, y = [heading], 64.0
    for title, chart in _charts(result).items():
        height, content = chart.elements()
        parts.append(element("text", escape(title), x=0.0, y=y + 10, class_="name first"))
        parts.append(element("g", content, transform=f"translate(0 {y + 20:g})"))
        y += 20 + height + _GAP
    style = element("style", style_sheet())
    ground = style + element("rect", x=-16.0, y=-8.0, width=WIDTH + 32, height=y + 8, style="fill:var(--page)")
    view = f"-16 -8 {WIDTH + 32:g} {y + 8:g}"
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        + element("svg", ground + "".join(parts), xmlns=_XML, viewBox=view, width=WIDTH + 32, height=y + 8)
        + "\n"
    )
