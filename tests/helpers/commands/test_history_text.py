"""A case's series as text: bars, and columns that stay within the width."""

from __future__ import annotations

from dataclasses import replace

import pytest

from helpers.commands.history import ShownSeries, render_history, sparkline
from helpers.report.nights import NightLine

LINE = NightLine("u", "2026-11-01", "2026-11-01T22:00:00+00:00", "s1", "3.3.1", 100.0, 1, "PASS", "why", -0.001, 1.2, 1)


def lines(*rates: float | None) -> list[NightLine]:
    return [replace(LINE, samples_per_s=rate, session=f"s{number}") for number, rate in enumerate(rates)]


def test_a_night_without_a_figure_is_a_dot_and_an_excluded_one_a_cross_outside_the_scale() -> None:
    shown = [*lines(100.0, None, 107.0), replace(LINE, samples_per_s=1.0, excluded=True)]
    assert sparkline(shown, "images/s") == "▁·█×  100 … 107 images/s"


@pytest.mark.parametrize("width", [60, 100])
def test_notes_and_title_stay_within_the_width(width: int) -> None:
    note = "other segment: " + "; ".join(f"fact {number}: before → after" for number in range(9))
    text = render_history(ShownSeries("c", "cpu", "a title " * 20, (replace(LINE, notes=(note,)),), 3), width)
    assert "3 nights of other segments left out" in text
    table = next(line for line in text.splitlines() if line.startswith("date"))
    assert all(len(line) <= max(width, len(table)) for line in text.splitlines())
