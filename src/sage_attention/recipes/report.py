"""``report.html``: what a training run achieved, on one self-contained page.

Written for two readers: the first screen answers "is it any good?" in plain words; the rest lets an engineer
check it. No script, no external resource, so it can be mailed, archived and opened from any disk.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sage_attention.errors import ArgumentError
from sage_attention.recipes.markup import element, escape
from sage_attention.recipes.output import write_text
from sage_attention.recipes.progress import format_duration
from sage_attention.recipes.report_parts import (
    degree_section,
    headline,
    learning_section,
    mistakes_section,
)
from sage_attention.recipes.report_style import style_sheet

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

__all__ = ["RunSummary", "page", "render_report", "run_section", "write_report"]

# Nothing on the page may run or load, whatever a class name holds.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_IN_TILES = {"val_accuracy", "epochs", "seconds_per_epoch", "peak_rss_mb", "seed"}
_ELSEWHERE = _IN_TILES | {"test_accuracy", "versions"}


def _no_integers() -> npt.NDArray[np.int64]:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class RunSummary:
    """All that a report tells about a run.

    Attributes:
        title: Headline of the page, such as the name of the data.
        class_names: Names of the K classes.
        history: One mapping per epoch: ``epoch``, ``train_loss``, ``val_loss``, ``val_accuracy``,
            ``train_accuracy``, ``seconds``; any may be missing, None or NaN.
        labels_true: Class of each test node, integers [T]; T may be 0.
        labels_pred: Class predicted for each test node, integers [T].
        degree: In-degree of each test node, integers [T]; empty if unknown.
        degrees: In-degree of every node of the graph, integers [N]; empty if unknown.
        metrics: ``test_accuracy``, ``val_accuracy``, ``epochs``, ``seconds_per_epoch``, ``peak_rss_mb``,
            ``seed``, ``versions`` (a mapping); any may be missing, others are listed as they are.
        settings: What the run was told: model, sizes, rates.
        command: The command line.
        data_files: Size in bytes of each file read.
        notes: Remarks for the reader, such as warnings about the data.
        finished: When it ended, as text.

    Example:
        >>> run = RunSummary("Friends", ["a", "b"], [{"epoch": 1, "train_loss": 0.7}])
        >>> "Friends" in render_report(run)
        True
    """

    title: str
    class_names: Sequence[str]
    history: Sequence[Mapping[str, Any]] = ()
    labels_true: npt.NDArray[np.integer[Any]] = field(default_factory=_no_integers)
    labels_pred: npt.NDArray[np.integer[Any]] = field(default_factory=_no_integers)
    degree: npt.NDArray[np.integer[Any]] = field(default_factory=_no_integers)
    degrees: npt.NDArray[np.integer[Any]] = field(default_factory=_no_integers)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    command: str = ""
    data_files: Mapping[str, int] = field(default_factory=dict)
    notes: Sequence[str] = ()
    finished: str = ""


def _check(run: RunSummary) -> None:
    if not len(run.class_names):
        raise ArgumentError("class_names", "at least one class", "none")
    for name in ("labels_true", "labels_pred", "degree", "degrees"):
        array = np.asarray(getattr(run, name))
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise ArgumentError(name, "integers, shape [N]", f"{array.dtype} of shape {list(array.shape)}")
        if name.startswith("labels") and array.size and not 0 <= array.min() <= array.max() < len(run.class_names):
            raise ArgumentError(
                name, f"classes from 0 to {len(run.class_names) - 1}", f"{array.min()} to {array.max()}"
            )
        if name.startswith("degree") and array.size and int(array.min()) < 0:
            raise ArgumentError(name, "degrees of 0 or more", int(array.min()))
    tests = len(run.labels_true)
    if len(run.labels_pred) != tests:
        raise ArgumentError("labels_pred", f"one class for each of the {tests} test nodes", len(run.labels_pred))
    if len(run.degree) not in (0, tests):
        raise ArgumentError("degree", f"one degree for each of the {tests} test nodes, or none", len(run.degree))


def _value(value: Any) -> str:
    """A setting as people write it, escaped."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not _is_told(value):
        return "–"
    if isinstance(value, float):
        return escape(f"{value:.6g}")
    if isinstance(value, (list, tuple)) and all(isinstance(one, (str, int, float)) for one in value):
        return ", ".join(_value(one) for one in value)
    if isinstance(value, (dict, list, tuple)):
        return escape(json.dumps(value, ensure_ascii=False, default=str))
    return escape(value)


def _bytes(count: int) -> str:
    size = float(count)
    for unit in ("bytes", "KB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            return f"{size:,.0f} {unit}" if unit == "bytes" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1000
    return ""


def _table(title: str, rows: Sequence[tuple[str, str]]) -> str:
    """A table of names and values, both escaped already; empty if there are none."""
    if not rows:
        return ""
    body = "".join(element("tr", element("th", name, scope="row") + element("td", value)) for name, value in rows)
    table = element("table", element("tbody", body), class_="settings")
    return element("div", element("h3", escape(title)) + table)


def _is_told(value: Any) -> bool:
    return value is not None and not (isinstance(value, (float, np.floating)) and not np.isfinite(value))


def _tiles(run: RunSummary) -> str:
    metrics = {name: value for name, value in run.metrics.items() if _is_told(value)}
    shown = []
    if "val_accuracy" in metrics:
        shown.append(("validation", f"{100 * float(metrics['val_accuracy']):.1f} %"))
    epochs = metrics.get("epochs", len(run.history) or None)
    if epochs is not None:
        shown.append(("epochs", f"{int(epochs):,}"))
    if "seconds_per_epoch" in metrics:
        shown.append(("time per epoch", format_duration(float(metrics["seconds_per_epoch"]))))
    if "peak_rss_mb" in metrics:
        shown.append(("peak memory", f"{float(metrics['peak_rss_mb']):,.0f} MB"))
    if len(run.degrees):
        shown.append(("nodes", f"{len(run.degrees):,}"))
        shown.append(("edges", f"{int(np.sum(run.degrees, dtype=np.int64)):,}"))
    if "seed" in metrics:
        shown.append(("seed", str(metrics["seed"])))
    tiles = "".join(element("div", element("dt", escape(name)) + element("dd", escape(value))) for name, value in shown)
    return element("dl", tiles, class_="tiles") if tiles else ""


def _command_words(command: str) -> str:
    """The command line in unbreakable words: a browser would break ``--seed`` after its first hyphen."""
    parts = re.split(r"(\s+)", command.strip())
    return "".join(escape(part) if part.isspace() else element("span", escape(part), class_="word") for part in parts)


def run_section(run: RunSummary) -> str:
    """Command, settings, files and versions of a run."""
    settings = [(escape(name), _value(value)) for name, value in run.settings.items()]
    settings += [(escape(name), _value(value)) for name, value in run.metrics.items() if name not in _ELSEWHERE]
    versions = [(escape(name), _value(value)) for name, value in dict(run.metrics.get("versions") or {}).items()]
    files = [(escape(name), escape(_bytes(size))) for name, size in run.data_files.items()]
    right = _table("Data read", files) + _table("Versions", versions)
    pair = _table("Settings", settings) + (element("div", right, class_="stack") if right else "")
    command = element("pre", element("code", _command_words(run.command))) if run.command else ""
    if not pair and not command:
        return ""
    lead = element("p", "The command, settings and seed that give this result again.", class_="lead")
    body = command + (element("div", pair, class_="pair") if pair else "")
    return element("section", element("h2", "What was run") + lead + body)


def page(title: str, body: str) -> str:
    r"""A page that refers to nothing outside itself and runs nothing.

    Args:
        title: What the browser calls it.
        body: Markup.

    Example:
        >>> page("Friends", "<p>Hello</p>").endswith("<p>Hello</p></main></body></html>\n")
        True
    """
    head = (
        '<meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style_sheet()}</style>"
    )
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head><body><main>{body}</main></body></html>\n'


def render_report(run: RunSummary) -> str:
    """Render the report of a run.

    Args:
        run: What to tell.

    Returns:
        One HTML page that refers to nothing outside itself; write it as UTF-8.

    Raises:
        ArgumentError: Arrays of the run do not fit together.

    Example:
        >>> page = render_report(RunSummary("Friends", ["a", "b"]))
        >>> page.startswith("<!DOCTYPE html>")
        True
    """
    _check(run)
    notes = "".join(element("li", escape(note)) for note in run.notes)
    eyebrow = "Training report" + (f" · {run.finished}" if run.finished else "")
    body = "".join([
        element("header", element("p", escape(eyebrow), class_="eyebrow") + element("h1", escape(run.title))),
        headline(run),
        _tiles(run),
        element("div", element("ul", notes), class_="notes", role="note") if notes else "",
        learning_section(run),
        mistakes_section(run),
        degree_section(run),
        run_section(run),
        element("footer", "Made by SageAttention for graphs. The page is self-contained, without scripts."),
    ])  # fmt: skip
    return page(run.title, body)


def write_report(path: str | os.PathLike[str], run: RunSummary) -> None:
    """Render the report of a run and write it, whole or not at all.

    Args:
        path: The HTML file.
        run: What to tell.

    Raises:
        ArgumentError: Arrays of the run do not fit together.
        SageAttentionError: The file cannot be written.

    Example:
        >>> write_report("report.html", RunSummary("Friends", ["a", "b"]))
    """
    write_text(path, render_report(run))
