"""Ticks, labels and small texts of the charts."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sage_attention.recipes import charts, markup


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_ticks_cover_the_range(low, span):
    high = low + span
    ticks = charts.nice_ticks(low, high)
    step = ticks[1] - ticks[0]
    assert 2 <= len(ticks) <= 12
    assert ticks[0] <= low + 1e-6 * step + 1e-9
    assert ticks[-1] >= high - 1e-6 * step - 1e-9
    assert ticks == sorted(set(ticks))


@pytest.mark.parametrize("value", [0.0, 3.0, -2.0, 1e-12])
def test_ticks_of_a_single_value(value):
    ticks = charts.nice_ticks(value, value)
    assert ticks[0] <= value <= ticks[-1]
    assert len(ticks) >= 2


def test_names_at_curve_ends_do_not_overlap():
    places = charts._spread([50.0, 52.0, 51.0], 15.0)
    assert places[0] < places[2] < places[1], "their order stays"
    ordered = sorted(places)
    assert min(after - before for before, after in zip(ordered, ordered[1:])) >= 15.0


def test_long_curves_are_thinned_and_keep_their_last_point():
    points = [(float(one), 1.0) for one in range(10_001)]
    thinned = charts._thinned(points)
    assert len(thinned) <= 402
    assert thinned[0] == points[0]
    assert thinned[-1] == points[-1]


def test_nothing_to_draw_is_no_chart():
    curve = charts.Curve("a", "first", [(1.0, math.nan)])
    assert charts.curve_chart("k", "t", "d", [curve], "y", lambda ticks: [str(one) for one in ticks]) == ""


@pytest.mark.parametrize(
    ("share", "digits", "text"),
    [(0.934, 1, "93.4 %"), (1.0, 1, "100 %"), (0.99999, 1, "99.9 %"), (0.999, 0, "99 %"), (0.0, 0, "0 %"),
     (0.00001, 3, "0.001 %"), (None, 1, "–"), (math.nan, 1, "–"), (0.5, 0, "50 %")],
)  # fmt: skip
def test_percent(share, digits, text):
    assert markup.percent(share, digits).replace("\u00a0", " ") == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (950, "950"),
        (9_500, "9,500"),
        (12_345, "12k"),
        (1_200_000, "1.2M"),
        (10**7, "10M"),
        (3e9, "3G"),
    ],
)
def test_compact(number, text):
    assert markup.compact(number) == text


@given(st.text(max_size=40), st.floats(2.0, 20.0))
def test_shortened_texts_fit(text, width):
    short = markup.shorten(text, width)
    assert markup.text_width(short) <= width + 0.5
    assert "\n" not in short


@given(st.text(max_size=60))
def test_escaped_text_holds_no_markup(text):
    escaped = markup.escape(text)
    assert not set("<>\"'") & set(escaped)
    escaped.encode("utf-8")
