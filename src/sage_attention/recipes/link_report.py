"""``report.html`` of a recommender: how well it ranks, beside what popularity alone reaches, and how it was made."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from sage_attention.errors import counted
from sage_attention.recipes.charts import Curve, curve_chart
from sage_attention.recipes.markup import element, escape, percent
from sage_attention.recipes.output import write_text
from sage_attention.recipes.report import page, run_section

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sage_attention.recipes.report import RunSummary
    from sage_attention.recipes.tables import PathLike

__all__ = ["render_link_report", "write_link_report"]

_NAMES = ("recall", "ndcg", "mrr")


def _headline(metrics: Mapping[str, Any], k: int) -> str:
    for part, name in (("test", "Test"), ("val", "Validation")):
        users = metrics.get(f"{part}_users")
        if users:
            recall = float(metrics[f"{part}_recall@{k}"])
            popular = float(metrics[f"popularity_{part}_recall@{k}"])
            figure = element(
                "div", escape(percent(recall).replace("\u00a0%", "")) + element("small", "%"), class_="figure"
            )
            lanes = "".join(
                _lane(*lane) for lane in (("This model", recall, ""), ("The most popular", popular, " other"))
            )
            hero = element("p", f"{name} recall@{k}", class_="figure-name") + figure
            text = (
                f"Of what {counted(users, 'user')} {'was' if users == 1 else 'were'} found to use and "
                "the model was not told, "
                f"<strong>{percent(recall)}</strong> stands among the first {k} of its ranking of all items "
                "(mean over users). "
            )
            if recall <= popular:
                text += "That is <strong>no better than recommending everybody what is most popular</strong>."
            elif popular > 0:
                text += f"Recommending everybody the most popular items finds {percent(popular)}."
            if part == "val":
                text += " These pairs also chose the best epoch, so expect less of others."
            return element(
                "div", element("div", hero) + element("dl", lanes, class_="compare"), class_="hero"
            ) + element("p", text, class_="sentence")
    return element("p", "No pairs were set aside, so nothing can be said about how well it ranks.", class_="sentence")


def _lane(name: str, share: float, style: str) -> str:
    bar = f'<span style="width:{100 * share:.2f}%"></span>'
    parts = element("dd", bar, class_=f"lane{style}", aria_hidden="true") + element("dd", escape(percent(share)))
    return element("dt", escape(name)) + parts


def _results(metrics: Mapping[str, Any], k: int) -> str:
    rows = []
    for label, prefix in (("this model", ""), ("the most popular items", "popularity_")):
        for part, name in (("test", "test"), ("val", "validation")):
            if metrics.get(f"{part}_users"):
                cells = [f"{prefix}{part}_{n}" + (f"@{k}" if n != "mrr" else "") for n in _NAMES]
                shown = "".join(element("td", f"{float(metrics[cell]):.4f}") for cell in cells)
                rows.append(element("tr", element("th", escape(f"{label}, {name}"), scope="row") + shown))
    if not rows:
        return ""
    top = "".join(element("th", name, scope="col") for name in ("", f"recall@{k}", f"NDCG@{k}", "MRR"))
    table = element("table", element("thead", element("tr", top)) + element("tbody", "".join(rows)), class_="settings")
    lead = element(
        "p", "Every item is ranked for every user who has such pairs, but for those known already.", class_="lead"
    )
    return element("section", element("h2", "How well it ranks") + lead + table)


def _learning(history: Sequence[Mapping[str, Any]], k: int) -> str:
    def curve(name: str, style: str, column: str) -> Curve:
        return Curve(name, style, [(float(row["epoch"]), max(float(row[column]), 0.0)) for row in history])

    figures = []
    loss = [curve("training", "second", "train_loss")]
    recall = [curve("validation", "first", "val_recall")] if any(row["val_recall"] >= 0 for row in history) else []
    for key, title, curves in (("loss", "Loss", loss), ("recall", f"Recall@{k} on validation pairs", recall)):
        values = [y for one in curves for _, y in one.points if math.isfinite(y)]
        if len(values) > 1:
            told = f"from {values[0]:.3g} to {values[-1]:.3g} over {counted(len(values), 'epoch')}"
            chart = curve_chart(
                key, f"{title} by epoch", told, curves, key, lambda ticks: [f"{tick:g}" for tick in ticks], (0.0, None)
            )
            figures.append(element("figure", element("h3", escape(title)) + element("div", chart, class_="chart")))
    body = element("div", "".join(figures), class_="pair") if figures else ""
    return element("section", element("h2", "How it learned") + body) if body else ""


def render_link_report(run: RunSummary, k: int) -> str:
    """Render the report of a recommender.

    Args:
        run: What to tell; classes, labels and degrees are not used.
        k: Length of the lists that were judged.

    Returns:
        One HTML page that refers to nothing outside itself.

    Example:
        >>> from sage_attention.recipes.report import RunSummary
        >>> "set aside" in render_link_report(RunSummary("Plays", ["-"]), 20)
        True
    """
    notes = "".join(element("li", escape(note)) for note in run.notes)
    eyebrow = "Training report" + (f" · {run.finished}" if run.finished else "")
    body = "".join([
        element("header", element("p", escape(eyebrow), class_="eyebrow") + element("h1", escape(run.title))),
        _headline(run.metrics, k),
        element("div", element("ul", notes), class_="notes", role="note") if notes else "",
        _results(run.metrics, k),
        _learning(run.history, k),
        run_section(run),
        element("footer", "Made by SageAttention for graphs. The page is self-contained, without scripts."),
    ])  # fmt: skip
    return page(run.title, body)


def write_link_report(path: PathLike, run: RunSummary, k: int) -> None:
    """Render the report of a recommender and write it, whole or not at all.

    Args:
        path: The HTML file.
        run: What to tell.
        k: Length of the lists that were judged.

    Raises:
        SageAttentionError: The file cannot be written.
    """
    write_text(path, render_link_report(run, k))
