"""A case's series as text and as a picture: bars, marks, columns that stay within the width."""

from __future__ import annotations

import xml.etree.ElementTree
from dataclasses import replace

import pytest

from helpers.commands.history import ShownSeries, render_history, sparkline
from helpers.history.stored import Acknowledgement
from helpers.report.html.night_drawings import night_picture
from helpers.report.nights import NightLine, build_text

LINE = NightLine("u", "2026-11-01", "2026-11-01T22:00:00+00:00", "s1", "3.3.1", 100.0, 1, "PASS", "why", -0.001, 1.2, 1)


def lines(*rates: float | None) -> list[NightLine]:
    return [replace(LINE, samples_per_s=rate, session=f"s{number}") for number, rate in enumerate(rates)]


def test_bars_go_from_the_slowest_to_the_fastest() -> None:
    assert sparkline(lines(100.0, 107.0, 103.0), "images/s") == "▁█▄  100 … 107 images/s"


def test_a_night_without_a_figure_is_a_dot_and_an_excluded_one_a_cross_outside_the_scale() -> None:
    shown = [*lines(100.0, None, 107.0), replace(LINE, samples_per_s=1.0, excluded=True)]
    assert sparkline(shown, "images/s") == "▁·█×  100 … 107 images/s"


def test_nights_alike_and_single_ones_need_no_scale() -> None:
    assert sparkline(lines(5.0, 5.0), "images/s").startswith("▁▁")
    assert sparkline(lines(5.0, None), "images/s") == ""


@pytest.mark.parametrize("width", [60, 100])
def test_notes_and_title_stay_within_the_width(width: int) -> None:
    note = "other segment: " + "; ".join(f"fact {number}: before → after" for number in range(9))
    text = render_history(ShownSeries("c", "cpu", "a title " * 20, (replace(LINE, notes=(note,)),), 3), width)
    assert "3 nights of other segments left out" in text
    table = next(line for line in text.splitlines() if line.startswith("date"))
    assert all(len(line) <= max(width, len(table)) for line in text.splitlines())


def test_nothing_of_a_history_forges_terminal_output() -> None:
    told = render_history(
        ShownSeries("c", "cpu", "t", (replace(LINE, session="\x1b[31ms", notes=("\x1b[2J",)),), 0), 100
    )
    assert "\x1b" not in told


@pytest.mark.parametrize(
    ("build", "text"),
    [({}, "-"), ({"version": "3.3.1"}, "3.3.1"), ({"version": "3", "commit": "abcdef0123"}, "3 @abcdef0")],
)
def test_a_build_in_few_characters(build: dict[str, str], text: str) -> None:
    assert build_text(build) == text


@pytest.mark.parametrize(
    ("first", "last", "known"),
    [
        ("", "", True),
        ("2026-11-01", "2026-11-01", True),
        ("2026-11-02", "", False),
        ("", "2026-10-31", False),
        ("2026-11-01T22:00:00+00:00", "", True),
        ("2026-11-01T22:00:00.000000+00:00", "2026-11-01T22:00:00.000000+00:00", True),
        ("2026-11-01T22:00:01+00:00", "", False),
        ("", "2026-11-01T21:59:59+00:00", False),
    ],
)
def test_an_acknowledgement_holds_from_its_first_to_its_last_night(first: str, last: str, known: bool) -> None:
    said = Acknowledgement("paddle-*", first, last, "", "why", "ada", "2026-11-20")
    assert said.covers("paddle-x", LINE.date, LINE.created) is known
    assert not said.covers("pytorch-x", LINE.date, LINE.created)


CASE = "paddle-vgg16-fp32-bs8-1x2-dali-static"


def marks_in(svg: str) -> set[str]:
    """The classes of the shapes that the picture has, and of the groups that hold small ones."""
    root = xml.etree.ElementTree.fromstring(svg)
    classes = {name for each in root.iter() for name in each.get("class", "").split()}
    return {each for each in classes if each.startswith(("s-", "excluded", "segment"))}


def test_the_picture_marks_segments_statuses_and_exclusions() -> None:
    series = lines(100.0, 101.0, 99.0, 100.0)
    assert marks_in(night_picture("t", CASE, series)) == {"s-pass"}
    series[0] = replace(series[0], status="SLOWER")
    series[1] = replace(series[1], status="REGRESSION")
    series[2] = replace(series[2], excluded=True)
    series[3] = replace(series[3], segment=2)
    found = marks_in(night_picture("t", CASE, series))
    assert found == {"s-pass", "s-slower", "s-regression", "excluded", "segment"}


def test_noise_does_not_fill_the_picture_and_a_picture_of_no_figures_says_so() -> None:
    # 0.1% apart: the axis spans 6%, so its labels are coarser than the noise.
    assert "99.95" not in night_picture("t", CASE, lines(100.0, 100.1))
    assert ">no night has a figure<" in night_picture("t", CASE, lines(None, None))


@pytest.mark.usefixtures("models_of_sentences")
def test_the_unit_is_that_of_the_models_samples() -> None:
    shown = ShownSeries("paddle-vgg16-fp32-bs8-1x2-dali-static", "cpu", "t", tuple(lines(100.0, 107.0)), 0)
    text = render_history(shown, 100)
    assert "100 … 107 sentences/s" in text and "images" not in text
    assert any(line.startswith("date") and "  sentences/s  " in line for line in text.splitlines())
    assert ">sentences/s<" in night_picture("t", shown.case_id, shown.lines)
