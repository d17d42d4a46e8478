"""Round numbers, places and texts of a drawing."""

from __future__ import annotations

import xml.etree.ElementTree

import pytest

from helpers.drawing.axes import Scale, drawing, label, round_numbers, span_of, words
from tests.for_each import for_each
from tests.hostile_strings import TEXTS


@pytest.mark.parametrize(
    ("low", "high", "most", "numbers"),
    [
        (5.0, 5.6, 5, [5.0, 5.2, 5.4]),
        (0, 1234, 5, [0, 250, 500, 750, 1000]),
        (880.0, 966.0, 5, [880, 900, 920, 940, 960]),
        (0.00012, 0.00018, 4, [0.00012, 0.00014, 0.00016, 0.00018]),
        (39900.0, 41100.0, 5, [40000, 40250, 40500, 40750, 41000]),
    ],
)
def test_an_axis_has_few_round_numbers(low: float, high: float, most: int, numbers: list[float]) -> None:
    assert round_numbers(low, high, most) == pytest.approx(numbers)


def test_an_axis_spans_at_least_a_share_of_its_middle_and_one_value_is_in_its_middle() -> None:
    assert span_of([100.0, 100.1], 0.06) == pytest.approx((97.05, 103.05), abs=0.01)
    low, high = span_of([80.0, 120.0], 0.06)
    assert low < 80.0 and high > 120.0
    assert sum(span_of([5.0], 0.06)) == pytest.approx(10.0)


def test_a_scale_runs_upwards_on_paper_that_counts_downwards() -> None:
    scale = Scale(0.0, 10.0, 200.0, 20.0)
    assert [scale(0.0), scale(5.0), scale(10.0)] == [200.0, 110.0, 20.0]


def test_a_value_beyond_an_axis_is_at_its_end() -> None:
    scale = Scale(0.0, 10.0, 200.0, 20.0)
    assert [scale.within(-5.0), scale.within(5.0), scale.within(99.0)] == [200.0, 110.0, 20.0]


@for_each("name", TEXTS)
def test_foreign_text_stays_text(name: str) -> None:
    """svg.py writes what it gets, so a drawing that is read back as XML has the text and nothing else."""
    text = TEXTS[name]
    root = xml.etree.ElementTree.fromstring(str(drawing(10, 10, text, [label(text, 1, 2, "e")])))
    (shown,) = root
    assert shown.tag == "text" and not list(shown) and sorted(root.attrib) == ["aria-label", "class", "role", "viewBox"]
    assert (shown.text or "").isprintable()


def test_a_long_text_is_shortened() -> None:
    assert words("x" * 10_000, 20) == "x" * 19 + "…"
