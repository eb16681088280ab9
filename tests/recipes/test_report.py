"""The report is one sound, self-contained page for any run, and says what the numbers say."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from sage_attention.errors import ArgumentError, SageAttentionError
from sage_attention.recipes import report_style
from sage_attention.recipes.matrix_chart import ORDINARY_ON_DARK, ORDINARY_ON_LIGHT
from sage_attention.recipes.report import RunSummary, render_report, write_report

VOID = {"meta", "br", "hr", "img", "input", "link"}
NASTY = [
    "<script>alert('x')</script>",
    'a" onload="x',
    "图神经网络 & 社交",
    "half \udcff",
    "bell \x07",
    "]]>",
]


class Page(HTMLParser):
    """Reads a page strictly: every tag balanced, every id unique, everything referred to is there."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == [], f"never closed: {self.open}"
        ids = [attributes["id"] for _, attributes in self.tags if "id" in attributes]
        assert len(ids) == len(set(ids))
        for _, attributes in self.tags:
            assert set(attributes.get("aria-labelledby", "").split()) <= set(ids)
        self.text = re.sub(r"\s+", " ", " ".join(self.words))

    def handle_starttag(self, tag, attrs):
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"attribute twice in {tag}: {names}"
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.words.append(data)

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.tags if name == tag]


def read(run: RunSummary) -> Page:
    """The page, checked for everything that holds for every page."""
    text = render_report(run)
    text.encode("utf-8")
    page = Page(text)
    assert text.count("<style>") == text.count("<main>") == text.count("<h1>") == 1
    for forbidden in (
        "http://",
        "https://",
        "src=",
        "url(",
        "@import",
        "href",
        "<script",
        "<link",
        "nan",
        "NaN",
        "None",
    ):
        assert forbidden not in text, forbidden
    assert not re.search(r"\b(nan|inf)\b", text)
    for tag, attributes in page.tags:
        assert not any(name.startswith("on") for name in attributes), (tag, attributes)
        for name in ("x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "width", "height", "r"):
            if name in attributes and tag not in ("svg", "meta"):
                assert float(attributes[name]) >= 0, (tag, attributes)
    for attributes in page.all("svg"):
        assert attributes["role"] == "img"
        assert attributes["aria-labelledby"]
    return page


def a_run(classes: int = 5, tests: int = 400, epochs: int = 12, accuracy: float = 0.9) -> RunSummary:
    rng = np.random.default_rng(0)
    true = rng.integers(0, classes, tests)
    predicted = np.where(rng.random(tests) < accuracy, true, rng.integers(0, classes, tests))
    degrees = (3 / (1 - rng.random(2_000))).astype(np.int64)
    history = [
        {
            "epoch": one,
            "train_loss": 2 / one,
            "val_loss": 2.2 / one,
            "val_accuracy": 1 - 0.7 / one,
            "seconds": 0.5,
        }
        for one in range(1, epochs + 1)
    ]
    return RunSummary(
        title="Friends", class_names=[f"class {one}" for one in range(classes)],
        history=history, labels_true=true,
        labels_pred=predicted, degree=degrees[:tests], degrees=degrees,
        metrics={"test_accuracy": 0.9, "val_accuracy": 0.9312, "epochs": epochs, "seconds_per_epoch": 0.5,
                 "peak_rss_mb": 512.4, "seed": 17, "versions": {"torch": "2.13.0"}, "edges_per_second": 1e6},
        settings={"heads": [8, 1], "dropout": 0.5, "self_loops": True, "resume": None, "nested": {"a": 1}},
        command='sage-attention train --edges "my edges.csv" --seed 17', data_files={"edges.csv": 7_123_456},
        notes=["3 labels were empty."], finished="2 May 2025",
    )  # fmt: skip


def test_it_tells_everything():
    page = read(a_run())
    for words in ("Friends", "Test accuracy", "How it learned", "Where it is right", "Accuracy by number",
                  "How many neighbours", "What was run", "3 labels were empty.", "93.1 %", "512 MB", "0.5 s",
                  "17", "2.13.0", "edges.csv", "7.1 MB", "8, 1", "yes", "2 May 2025", "1e+06"):  # fmt: skip
        assert words in page.text, words
    assert len(page.all("svg")) == 5
    command = re.search(r"<pre>.*?</pre>", render_report(a_run()))
    assert command
    assert re.sub("<[^>]+>", "", command.group()).replace("&quot;", '"') == a_run().command


def test_the_headline_is_what_the_predictions_say():
    true = np.array([0] * 60 + [1] * 40)
    predicted = true.copy()
    predicted[:10] = 1
    page = read(replace(a_run(2, 0), labels_true=true, labels_pred=predicted, metrics={"test_accuracy": 0.1}))
    assert "Of 100 test nodes" in page.text
    assert "right class for 90 (" in page.text
    assert "90.0\u00a0%; 95 % interval 82.6\u00a0% to 94.5\u00a0%" in " ".join(page.words)
    assert "“class 0”" in page.text
    assert "60.0 %" in page.text.replace("\u00a0", " ")
    assert "would make 4.0 times as many mistakes" in page.text
    assert "class 0 taken for class 1 : 10" in page.text


@pytest.mark.parametrize(
    ("right", "words"),
    [(60, "no better than"), (0, "no better than"), (64, "cannot be told from"), (100, "second look"),
     (72, "fewer mistakes than")],
)  # fmt: skip
def test_the_verdict_is_honest(right, words):
    true = np.array([0] * 60 + [1] * 40)
    predicted = np.where(np.arange(100) < right, true, 1 - true)
    assert words in read(replace(a_run(2, 0), labels_true=true, labels_pred=predicted)).text


def channels(colour: str) -> np.ndarray:
    return np.array([int(colour[one : one + 2], 16) for one in (1, 3, 5)]) / 255


def contrast(one: np.ndarray, other: np.ndarray) -> float:
    """Contrast ratio as the Web Content Accessibility Guidelines define it."""

    def luminance(rgb: np.ndarray) -> float:
        linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_colours_have_contrast():
    for colours in (report_style.LIGHT, report_style.DARK):
        for ink, grounds in (("ink", ("page", "panel", "note")), ("muted", ("page",)), ("first", ("page",)),
                             ("second", ("page",))):  # fmt: skip
            for ground in grounds:
                assert contrast(channels(colours[ink]), channels(colours[ground])) >= 4.5, (ink, ground)
    assert "prefers-color-scheme:dark" in report_style.style_sheet()
    assert "@media print" in report_style.style_sheet()
    assert report_style.style_sheet().count("{") == report_style.style_sheet().count("}")


def test_counts_on_heat_have_contrast():
    """The count in a cell stays readable at every shade, in both modes."""
    for colours in (report_style.LIGHT, report_style.DARK):
        for style in ("first", "second"):
            for ink in np.linspace(0.0, 1.0, 101):
                text = "count-middle" if ink > ORDINARY_ON_DARK else "count"
                text = "count-deep" if ink > ORDINARY_ON_LIGHT else text
                ground = ink * channels(colours[style]) + (1 - ink) * channels(colours["panel"])
                assert contrast(ground, channels(colours[text])) >= 4.5, (style, ink)


def test_text_of_users_is_never_markup():
    run = replace(a_run(len(NASTY)), class_names=NASTY, title=NASTY[0], command=NASTY[0], notes=NASTY,
                  finished=NASTY[1], settings={NASTY[0]: NASTY[1]}, data_files={NASTY[0]: 5},
                  metrics={"versions": {NASTY[0]: NASTY[0]}, NASTY[1]: NASTY[0],
                           "seed": NASTY[0]})  # fmt: skip
    page = read(run)
    assert "script" not in {tag for tag, _ in page.tags}
    assert "<script>alert('x')</script>" in page.text
    assert "图神经网络 & 社交" in page.text
    assert "\x07" not in render_report(run)


@pytest.mark.parametrize("classes", [1, 2, 4, 5, 13, 16, 17, 60, 300])
def test_any_number_of_classes(classes):
    run = a_run(classes, tests=2_000)
    page = read(replace(run, degree=np.zeros(0, dtype=np.int64)))
    cells = [one for one in page.all("rect") if one["class"] == "cell"]
    assert len(cells) == (classes**2 if classes <= 16 else 13**2)
    if classes > 16:
        assert f"{classes - 12} others" in page.text
        assert f"Of {classes} classes" in page.text
    rows = [one for one in page.all("th") if one.get("scope") == "row"]
    assert len(rows) >= classes, "the table lists every class"


@pytest.mark.parametrize("epochs", [0, 1, 2, 3, 5_000])
def test_any_number_of_epochs(epochs):
    page = read(a_run(epochs=epochs))
    assert ("How it learned" in page.text) == (epochs > 0)
    assert len(render_report(a_run(epochs=epochs))) < 200_000
    if epochs == 1:
        assert page.all("circle"), "a single epoch is a dot, not an empty chart"
    if epochs > 1:
        assert f"epoch {epochs}" in page.text


@pytest.mark.parametrize(
    "history",
    [
        [{}],
        [{"epoch": 1, "train_loss": None, "val_loss": float("nan"), "val_accuracy": float("inf")}],
        [
            {"epoch": 1, "train_loss": 0.0, "val_accuracy": 0.0},
            {"epoch": 2, "train_loss": 0.0, "val_accuracy": 0.0},
        ],
        [
            {"epoch": 1, "train_loss": -3.0, "val_accuracy": 1.0},
            {"epoch": 2, "train_loss": 1e30, "val_accuracy": 1.0},
        ],
        [{"train_loss": 1e-30}, {"train_loss": float("nan")}, {"train_loss": 2e-30}],
        [{"epoch": np.int64(4), "train_loss": np.float32(0.5), "train_accuracy": 0.5, "val_accuracy": 0.4}],
        [{"epoch": one, "val_accuracy": 0.93 + one * 1e-5} for one in range(5)],
    ],
)
def test_odd_histories(history):
    read(replace(a_run(), history=history))


def test_a_nearly_flat_accuracy_does_not_look_like_progress():
    text = render_report(replace(a_run(), history=[{"val_accuracy": 0.930 + one * 1e-4} for one in range(5)]))
    ticks = re.findall(r'class="axis" text-anchor="end">([\d.]+)\u00a0%<', text.split('id="accuracy-title"')[1][:4000])
    assert float(ticks[-1]) - float(ticks[0]) >= 10
    assert len(set(ticks)) == len(ticks), "no two ticks read the same"


def test_gaps_are_left_out_of_curves():
    history = [{"epoch": one, "train_loss": float("nan") if one == 3 else 1.0 / one} for one in range(1, 7)]
    text = render_report(replace(a_run(), history=history)).split('id="loss-title"')[1].split("</svg>")[0]
    assert text.count("<polyline") == 2


def test_no_test_nodes():
    none = np.zeros(0, dtype=np.int64)
    run = replace(a_run(), labels_true=none, labels_pred=none, degree=none)
    assert "The predictions behind it were not kept" in read(run).text
    page = read(replace(run, metrics={"val_accuracy": 0.8}))
    assert "Validation accuracy" in page.text
    assert "expect less" in page.text
    assert "nothing can be said about accuracy" in read(replace(run, metrics={})).text
    assert "nothing can be said" in read(replace(run, metrics={"val_accuracy": float("nan")})).text
    assert "Where it is right" not in page.text


def test_nearly_nothing_is_known():
    page = read(RunSummary("Empty", ["a"]))
    assert "Empty" in page.text
    assert page.all("svg") == []


@pytest.mark.parametrize(
    ("degree", "words"), [(0, "No node has a neighbour"), (1, "exactly 1 of"), (7, "exactly 7 of")]
)
def test_degrees_that_are_all_equal(degree, words):
    run = a_run()
    page = read(replace(run, degrees=np.full(500, degree), degree=np.full(400, degree)))
    assert words in page.text


def test_one_test_node():
    page = read(replace(a_run(), labels_true=np.array([1]), labels_pred=np.array([1]), degree=np.array([0])))
    assert "Of 1 test node " in page.text


def test_ten_million_degrees():
    rng = np.random.default_rng(0)
    degrees = (3 / (1 - rng.random(10_000_000, dtype=np.float32))).astype(np.int64) - 3
    degrees[0] = 3_000_000_000  # one hub must not make a table of its degree
    start = time.perf_counter()
    text = render_report(RunSummary("Large", ["a"], degrees=degrees))
    assert time.perf_counter() - start < 10
    assert len(text) < 40_000
    assert "the busiest has 3,000,000,000" in text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"labels_pred": np.array([0])}, "labels_pred"),
        ({"degree": np.array([0, 1])}, "degree"),
        ({"labels_true": np.full(400, 9)}, "classes from 0 to 4"),
        ({"labels_pred": np.full(400, -1)}, "classes from 0 to 4"),
        ({"labels_true": np.full(400, 0.5)}, "labels_true"),
        ({"degrees": np.array([-1])}, "degrees of 0 or more"),
        ({"class_names": []}, "class_names"),
    ],
)
def test_runs_that_do_not_fit_together(change, words):
    with pytest.raises(ArgumentError, match=words):
        render_report(replace(a_run(), **change))


def test_it_is_written_whole(tmp_path):
    path = tmp_path / "报告 folder" / "report.html"
    with pytest.raises(SageAttentionError, match="folder does not exist"):
        write_report(path, a_run())
    path.parent.mkdir()
    run = replace(a_run(len(NASTY)), class_names=NASTY)
    write_report(path, run)
    Page(path.read_text(encoding="utf-8"))
