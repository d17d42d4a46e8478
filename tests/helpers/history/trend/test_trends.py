"""Steps get their nights, sizes and acknowledgements; Otava is asked once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from helpers.history.stored import Acknowledgement, StoredNight
from helpers.history.trend.otava import ChangePoint, Detect
from helpers.history.trend.series import Series, series_of
from helpers.history.trend.trends import LEAST_NIGHTS, Trend, find_trends

MakeNight = Callable[..., StoredNight]
RATES = [100.0, 101.0, 99.0, 100.0, 100.0, 100.0, 98.0, 98.0, 50.0, 98.0, 98.0, 98.0]


def detecting(*indices: int, asked: list[list[list[float]]] | None = None) -> Detect:
    """Stands where Otava stands: the same change points in every series."""

    def detect(several: Sequence[Sequence[float]]) -> tuple[tuple[ChangePoint, ...], ...]:
        if asked is not None:
            asked.append([list(series) for series in several])
        return tuple(tuple(ChangePoint(index, 0.0, 0.0, 1e-6) for index in indices) for _ in several)

    return detect


def known(
    first: str = "2026-09-07", last: str = "2026-09-07", pattern: str = "*", reason: str = "r"
) -> Acknowledgement:
    return Acknowledgement(pattern, first, last, "abcd1234", reason, "me", "2026-09-20T00:00:00+00:00")


@pytest.fixture
def series(make_night: MakeNight) -> Series:
    return series_of([make_night(number, rate) for number, rate in enumerate(RATES)])[0]


def only(series: Series, *acknowledgements: Acknowledgement, at: tuple[int, ...] = (6,)) -> Trend:
    (trend,) = find_trends([series], acknowledgements, detecting(*at))
    return trend


def test_a_step_lies_between_two_nights_and_has_a_size_with_its_sign(series: Series) -> None:
    (step,) = only(series).steps
    assert (step.index, step.before.session, step.after.session) == (6, "s5", "s6")
    assert step.effect == pytest.approx(-0.02)
    assert (step.p, step.known, step.part_of_drift) == (1e-6, None, False)


def test_a_size_is_between_neighbouring_pieces(series: Series) -> None:
    steps = only(series, at=(6, 8, 9)).steps
    assert [step.effect for step in steps] == [pytest.approx(each) for each in (-0.02, 50 / 98 - 1, 98 / 50 - 1)]


def test_otava_is_asked_once_and_only_for_what_is_long_enough(series: Series, make_night: MakeNight) -> None:
    short = series_of([make_night(number, target="v100") for number in range(LEAST_NIGHTS - 1)])[0]
    asked: list[list[list[float]]] = []
    trends = find_trends([short, series, short, series], [], detecting(6, asked=asked))
    assert asked == [[series.values, series.values]]
    assert [len(trend.steps) for trend in trends] == [0, 1, 0, 1]
    assert [trend.too_short for trend in trends] == [True, False, True, False]


@pytest.mark.parametrize(
    ("first", "last", "is_known"),
    [
        ("2026-09-07", "2026-09-07", True),
        ("2026-09-05", "2026-09-05", True),
        ("2026-09-09", "2026-09-09", True),
        ("2026-09-04", "2026-09-04", False),
        ("2026-09-10", "2026-09-10", False),
        ("", "", True),
        ("2026-09-09", "", True),
        ("", "2026-09-04", False),
        ("2026-09-07T02:00:00+00:00", "2026-09-07T02:00:00+00:00", True),
    ],
)
def test_a_step_is_known_where_its_night_or_one_near_it_was_acknowledged(
    series: Series, first: str, last: str, is_known: bool
) -> None:
    trend = only(series, known(first, last))
    assert (trend.steps[0].known is not None) == is_known
    assert len(trend.open_steps) == (0 if is_known else 1)


@pytest.mark.parametrize(
    ("pattern", "is_known"),
    [("*", True), ("paddle-vgg16-*", True), ("paddle-vgg16-fp32-bs8-1x1-dali-static", True), ("*-amp_o2-*", False)],
)
def test_an_acknowledgement_is_for_the_cases_of_its_pattern(series: Series, pattern: str, is_known: bool) -> None:
    assert (only(series, known(pattern=pattern)).steps[0].known is not None) == is_known


def test_the_newest_acknowledgement_is_the_one_that_is_told(series: Series) -> None:
    older = Acknowledgement("*", "", "", "abcd", "older", "me", "2026-09-10T00:00:00+00:00")
    told = only(series, older, known(reason="newer"), older).steps[0].known
    assert told is not None
    assert told.reason == "newer"


def test_the_steps_of_a_slope_are_part_of_the_drift(make_night: MakeNight) -> None:
    nights = [make_night(number, 100 * 0.999**number * (1 + 0.001 * (number % 3))) for number in range(60)]
    (trend,) = find_trends(series_of(nights), [], detecting(15, 30, 45))
    assert trend.drift is not None
    assert trend.drift.explains_steps
    assert [step.part_of_drift for step in trend.steps] == [True] * 3
