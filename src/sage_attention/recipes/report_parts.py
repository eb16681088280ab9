"""The parts of the report that show results: headline, learning, mistakes, degrees."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from sage_attention.errors import counted
from sage_attention.recipes.charts import Bar, Curve, bar_chart, curve_chart, tail_chart
from sage_attention.recipes.markup import compact, element, escape, percent
from sage_attention.recipes.matrix_chart import MOST_CLASSES, matrix_chart
from sage_attention.recipes.scores import (
    ClassScore,
    class_scores,
    confusion_counts,
    degree_buckets,
    degree_tail,
    wilson_interval,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from sage_attention.recipes.report import RunSummary

__all__ = ["degree_section", "headline", "learning_section", "mistakes_section"]

_MOST_MIXUPS = 5
_OPTIMISTIC = (
    "No test nodes were set aside. The validation nodes also chose the best epoch, so expect less on new nodes."
)


def _figure(title: str, chart: str, caption: str = "", style: str = "") -> str:
    """A chart under its title; empty if there is no chart."""
    if not chart:
        return ""
    inner = element("h3", escape(title)) + element("div", chart, class_=style or "chart")
    if caption:
        inner += element("p", caption, class_="caption")
    return element("figure", inner)


def _section(title: str, lead: str, body: str) -> str:
    if not body:
        return ""
    return element("section", element("h2", escape(title)) + element("p", lead, class_="lead") + body)


def _big_figure(share: float, name: str) -> str:
    number = percent(share).replace("\u00a0%", "")
    shown = element("div", escape(number) + element("small", "%"), class_="figure")
    return element("div", element("p", escape(name), class_="figure-name") + shown)


def _lane(name: str, share: float, style: str) -> str:
    bar = f'<span style="width:{100 * share:.2f}%"></span>'
    return (
        element("dt", escape(name))
        + element("dd", bar, class_=f"lane{style}", aria_hidden="true")
        + element("dd", escape(percent(share)))
    )


def headline(run: RunSummary) -> str:
    """Test accuracy in large type and in plain words, beside what guessing would reach.

    Args:
        run: The run.

    Returns:
        Markup.
    """
    total = len(run.labels_true)
    if not total:
        return _headline_without_test(run)
    true, predicted = np.asarray(run.labels_true), np.asarray(run.labels_pred)
    right = int(np.count_nonzero(true == predicted))
    sizes = np.bincount(true, minlength=len(run.class_names))
    biggest = int(sizes.argmax())
    accuracy, guess = right / total, int(sizes[biggest]) / total
    low, high = wilson_interval(right, total)
    guess_name = f"Always guessing the biggest class, “{run.class_names[biggest]}”"
    lanes = _lane("This model", accuracy, "") + _lane(guess_name, guess, " other")
    nodes = "1 test node" if total == 1 else f"{total:,} test nodes"
    sentence = (
        f"Of {nodes} whose classes were kept from training, the model names the right class for "
        f"<strong>{right:,}</strong> ({percent(accuracy)}; 95 % interval {percent(low)} to {percent(high)}). "
    )
    return element(
        "div", _big_figure(accuracy, "Test accuracy") + element("dl", lanes, class_="compare"), class_="hero"
    ) + element("p", sentence + _verdict(accuracy, guess, low), class_="sentence")


def _verdict(accuracy: float, guess: float, low: float) -> str:
    if accuracy <= guess:
        return "That is <strong>no better than always guessing the biggest class</strong>."
    if low <= guess:
        return "On so few nodes that cannot be told from always guessing the biggest class."
    if accuracy == 1.0:
        return "It makes no mistake at all, which deserves a second look: is the answer hidden in the features?"
    fewer = (1 - guess) / (1 - accuracy)
    if fewer < 1.5:
        return f"That is {percent(1 - 1 / fewer, 0)} fewer mistakes than always guessing the biggest class."
    return f"Always guessing the biggest class would make <strong>{fewer:.1f} times</strong> as many mistakes."


def _headline_without_test(run: RunSummary) -> str:
    metrics = run.metrics
    for name, label, remark in (
        ("test_accuracy", "Test accuracy", "The predictions behind it were not kept."),
        ("val_accuracy", "Validation accuracy", _OPTIMISTIC),
    ):
        value = metrics.get(name)
        if value is not None and math.isfinite(float(value)):
            figure = element("div", _big_figure(float(value), label), class_="hero")
            return figure + element("p", escape(remark), class_="sentence")
    return element("p", "No labelled nodes were set aside, so nothing can be said about accuracy.", class_="sentence")


def _points(history: Sequence[Any], name: str) -> list[tuple[float, float]]:
    points = []
    for number, entry in enumerate(history, start=1):
        value = entry.get(name)
        points.append((float(entry.get("epoch", number)), math.nan if value is None else float(value)))
    return points


def _percent_ticks(ticks: Sequence[float]) -> list[str]:
    """Percentages with as many digits as tell the ticks apart."""
    digits = next(one for one in range(4) if one == 3 or all(round(100 * t, one) == round(100 * t, 6) for t in ticks))
    return [percent(tick, digits) for tick in ticks]


def _floor(curves: Sequence[Curve]) -> float | None:
    """Lower end of an accuracy axis: never so close that noise looks like progress."""
    values = [y for curve in curves for _, y in curve.points if math.isfinite(y)]
    return max(0.0, min(min(values), max(values) - 0.1)) if values else None


def learning_section(run: RunSummary) -> str:
    """Loss and accuracy over the epochs.

    Args:
        run: The run.

    Returns:
        Markup, empty without a history.
    """
    loss = [Curve("training", "second", _points(run.history, "train_loss")),
            Curve("validation", "first", _points(run.history, "val_loss"))]  # fmt: skip
    loss_chart = curve_chart("loss", "Loss by epoch", _from_to(loss, "{:.3g}".format), loss, "loss",
                             lambda ticks: [f"{tick:g}" for tick in ticks], (0.0, None))  # fmt: skip
    accuracy = [Curve("validation", "first", _points(run.history, "val_accuracy"))]
    if any(entry.get("train_accuracy") is not None for entry in run.history):
        accuracy.append(Curve("training", "second", _points(run.history, "train_accuracy")))
    known = [(y, -x) for x, y in accuracy[0].points if math.isfinite(y)]
    mark = None
    if len(known) > 1:
        best, epoch = max(known)
        mark = (-epoch, best, f"best {percent(best)}, epoch {-epoch:g}")
    accuracy_chart = curve_chart("accuracy", "Accuracy by epoch", _from_to(accuracy, percent), accuracy,
                                 "accuracy",
                                 _percent_ticks, (_floor(accuracy), 1.0), mark)  # fmt: skip
    body = _figure("Loss", loss_chart) + _figure("Accuracy on validation nodes", accuracy_chart)
    lead = "A validation loss that turns up while the training loss still falls means overfitting."
    return _section("How it learned", lead, element("div", body, class_="pair") if body else "")


def _from_to(curves: Sequence[Curve], text: Any) -> str:
    """A description of curves for those who cannot see them."""
    told = []
    for curve in curves:
        values = [y for _, y in curve.points if math.isfinite(y)]
        if values:
            told.append(
                f"{curve.name}: from {text(values[0])} to {text(values[-1])} over {counted(len(values), 'epoch')}"
            )
    return "; ".join(told)


def mistakes_section(run: RunSummary) -> str:
    """Confusion matrix, the commonest mix-ups and the score of each class.

    Args:
        run: The run.

    Returns:
        Markup, empty without test nodes.
    """
    if not len(run.labels_true):
        return ""
    counts = confusion_counts(run.labels_true, run.labels_pred, len(run.class_names))
    scores = class_scores(counts)
    chart = matrix_chart(counts, run.class_names, scores)
    lead = (
        "Each row holds the test nodes of one class and shows what they were taken for. Blue is right, "
        "orange is wrong; the deeper, the larger the share of the row. Recall: the share of a class found. "
        "Precision: the share of those named so that are."
    )
    if len(run.class_names) > MOST_CLASSES:
        lead += f" Of {len(run.class_names)} classes the largest are drawn; the table lists all."
    figure = element("figure", element("div", chart, class_="wide", tabindex="0", role="group",
                                       aria_label="Confusion matrix"))  # fmt: skip
    return _section("Where it is right and wrong", lead,
                    figure + _mixups(counts, run.class_names)
                    + _class_table(scores, run.class_names))  # fmt: skip


def _mixups(counts: npt.NDArray[np.int64], class_names: Sequence[str]) -> str:
    wrong = counts.copy()
    np.fill_diagonal(wrong, 0)
    order = np.argsort(-wrong, axis=None, kind="stable")[:_MOST_MIXUPS]
    items = []
    for place in order:
        row, column = divmod(int(place), len(class_names))
        count = int(wrong[row, column])
        if count:
            share = count / int(counts[row].sum())
            items.append(element("li", f"<strong>{escape(class_names[row])}</strong> taken for "
                                       f"<strong>{escape(class_names[column])}</strong>: {count:,} "
                                       f"({percent(share)} of the former)"))  # fmt: skip
    if not items:
        return ""
    return element("h3", "Most common mix-ups", style="margin-top:24px") + element(
        "ol", "".join(items), class_="mixups"
    )


def _class_table(scores: Sequence[ClassScore], class_names: Sequence[str]) -> str:
    heads = ("class", "test nodes", "taken for it", "right", "recall", "precision")
    head = element("tr", "".join(
        element("th", name, scope="col", class_="number" if column else "name")
        for column, name in enumerate(heads)
    ))  # fmt: skip
    rows = []
    for name, score in zip(class_names, scores):
        cells = (f"{score.support:,}", f"{score.predicted:,}", f"{score.right:,}", percent(score.recall),
                 percent(score.precision))  # fmt: skip
        rows.append(element("tr", element("th", escape(name), scope="row")
                            + "".join(element("td", cell, class_="number") for cell in cells)))  # fmt: skip
    table = element("table", element("thead", head) + element("tbody", "".join(rows)))
    return element("details", element("summary", "Every class in numbers") + element("div", table, class_="scroll"))


def _bucket_label(low: int, high: int | None) -> str:
    if high is None:
        return f"{compact(low)}+"
    return compact(low) if low == high else f"{compact(low)}–{compact(high)}"


def degree_section(run: RunSummary) -> str:
    """Accuracy by number of neighbours, and how many neighbours nodes have.

    Args:
        run: The run.

    Returns:
        Markup, empty if no degree is known.
    """
    body = _accuracy_by_degree(run) + _degree_figure(run)
    lead = "Neighbours are counted by incoming edges: those a node can learn from."
    return _section("The graph and its neighbourhoods", lead, element("div", body, class_="pair") if body else "")


def _accuracy_by_degree(run: RunSummary) -> str:
    if not len(run.degree):
        return ""
    correct = np.asarray(run.labels_true) == np.asarray(run.labels_pred)
    overall = float(correct.mean())
    bars = []
    for bucket in degree_buckets(run.degree, correct):
        low, high = wilson_interval(bucket.right, bucket.total) if bucket.total else (0.0, 0.0)
        share = bucket.right / bucket.total if bucket.total else 0.0
        bars.append(Bar(_bucket_label(bucket.low, bucket.high), share, low, high, bucket.total))
    told = "; ".join(f"{bar.label} neighbours: {percent(bar.share)} of {bar.count:,}" for bar in bars if bar.count)
    chart = bar_chart("buckets", "Accuracy by number of neighbours", told, bars, overall, "neighbours", "accuracy")
    caption = f"Dashed: all test nodes, {percent(overall)}. Thin lines: 95 % intervals; pale: fewer than 30 nodes."
    return _figure("Accuracy by number of neighbours", chart, caption)


def _degree_figure(run: RunSummary) -> str:
    degrees = np.asarray(run.degrees)
    if not degrees.size:
        return ""
    values, shares = degree_tail(degrees)
    title = "How many neighbours nodes have"
    none = int(np.count_nonzero(degrees == 0))
    low, high = int(degrees.min()), int(degrees.max())
    if low == high:
        told = "No node has a neighbour." if not high else f"Every node has exactly {high:,} of them."
        return element("figure", element("h3", title) + element("p", told, class_="caption"))
    half, mean = float(np.median(degrees)), float(degrees.mean())
    caption = (
        f"Half of the nodes have at most {half:,.0f}, the busiest has {high:,}; the mean is {mean:,.1f}. "
        f"{none:,} ({percent(none / degrees.size)}) have none."
    )
    chart = tail_chart("degrees", title, caption, values.tolist(), shares.tolist(), "neighbours, at least",
                       "share of nodes")  # fmt: skip
    return _figure(title, chart, caption)
