"""Which nights become points of which series; steps get their nights, sizes and acknowledgements."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from helpers.history.nights import NightRecord
from helpers.history.stored import Acknowledgement, StoredNight
from helpers.history.trend import LEAST_NIGHTS, ChangePoint, Detect, Series, SeriesKind, Trend, find_trends, series_of
from helpers.judging.verdict import Standing

CASE = "paddle-vgg16-fp32-bs8-1x1-dali-static"
FIRST = datetime.date(2026, 9, 1)


def night(number: int, samples_per_s: float | Sequence[float] = 100.0, **values: Any) -> StoredNight:
    """Night ``number`` of the case; ``ratio`` and ``pairs`` give it an A/B, else ``values`` are NightRecord's or
    StoredNight's."""
    several = [samples_per_s] if isinstance(samples_per_s, float) else samples_per_s
    rates = tuple(math.log(rate) for rate in several)
    standing = Standing(rates[0], 1.0, 1.0, True, 0.003, 0.001, 20, len(rates))
    if "ratio" in values:
        standing = replace(standing, effect=values.pop("ratio") - 1, pairs=values.pop("pairs", 4))
    day = FIRST + datetime.timedelta(number)
    record: dict[str, Any] = {
        "session": f"s{number}",
        "case_id": CASE,
        "target": "cpu",
        "created": f"{day}T02:00:00+00:00",
        "date": str(day),
        "segment": {"host": "h", "driver": "1"},
        "status": "PASS",
        "code": "c",
        "reason": "r",
        "cards": 1,
        "log_rates": rates,
        "run_uuids": (f"u{number}",),
        "standing": standing,
        "build": {"framework": "paddle", "version": "3.3.1", "commit": f"{number:040x}"},
    }
    stored: dict[str, Any] = {"uuid": f"n{number}", "rates": rates, "segment_digest": "d"}
    for name, value in values.items():
        (record if name in record else stored)[name] = value
    return StoredNight(record=NightRecord(**record), **stored)


@pytest.fixture
def make_night() -> Callable[..., StoredNight]:
    return night


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


# ---- series


def test_a_point_is_the_median_of_a_nights_runs_with_its_build(make_night: MakeNight) -> None:
    (series,) = series_of([make_night(0), make_night(1, (90.0, 110.0, 99.0))])
    assert (series.kind, series.values[1]) == (SeriesKind.NIGHTS, pytest.approx(99.0))
    point = series.points[1]
    assert (point.day, point.session, point.build) == ("2026-09-02", "s1", "paddle 3.3.1 @000000000000")
    assert point.commit == f"{1:040x}"


def test_otava_gets_a_list(make_night: MakeNight) -> None:
    assert type(series_of([make_night(0)])[0].values) is list


def test_a_build_without_a_commit_is_its_version(make_night: MakeNight) -> None:
    (series,) = series_of([make_night(0, build={"framework": "paddle", "version": "3.3.1", "commit": ""})])
    assert (series.points[0].build, series.points[0].commit) == ("paddle 3.3.1", "")


def test_only_the_newest_segment_is_looked_at(make_night: MakeNight) -> None:
    nights = [make_night(0, segment_digest="old"), make_night(1), make_night(2, segment_digest="d")]
    assert [point.session for point in series_of(nights)[0].points] == ["s1", "s2"]


def test_targets_and_hosts_have_series_of_their_own(make_night: MakeNight) -> None:
    nights = [
        make_night(0, target="v100", segment={"host": "b"}, segment_digest="x"),
        make_night(1),
        make_night(2, segment={"host": "other"}, segment_digest="y"),
    ]
    found = [(series.target, series.host, len(series.points)) for series in series_of(nights)]
    assert found == [("cpu", "h", 1), ("cpu", "other", 1), ("v100", "b", 1)]


def test_nights_of_which_nothing_is_learned_are_left_out(make_night: MakeNight) -> None:
    (series,) = series_of([make_night(0), make_night(1, rates=(), ratio=0.9), make_night(2)])
    assert [point.session for point in series.points] == ["s0", "s2"]


def test_the_last_nights_alone(make_night: MakeNight) -> None:
    (series,) = series_of([make_night(number) for number in range(9)], last=3)
    assert [point.session for point in series.points] == ["s6", "s7", "s8"]


def test_nights_before_the_present_reference_are_points_but_not_pinned(make_night: MakeNight) -> None:
    nights = [make_night(0, current=False, ratio=0.5), make_night(1, current=False), make_night(2, ratio=0.98)]
    medians, ratios = series_of(nights)
    assert (len(medians.points), medians.pinned_from) == (3, 2)
    assert (ratios.kind, ratios.values) == (SeriesKind.PAIRS, [pytest.approx(0.98)])


@pytest.mark.parametrize("values", [{"pairs": 0}, {"standing": None}])
def test_a_night_without_pairs_has_no_ratio(make_night: MakeNight, values: dict[str, Any]) -> None:
    given = {"ratio": 0.98, **values} if "pairs" in values else values
    assert [series.kind for series in series_of([make_night(0, **given)])] == [SeriesKind.NIGHTS]


def test_an_excluded_run_takes_the_ratio_of_its_night_away(make_night: MakeNight) -> None:
    nights = [make_night(0, ratio=0.98), make_night(1, ratio=0.97)]
    _, ratios = series_of(nights, excluded={"u0"})
    assert [point.session for point in ratios.points] == ["s1"]
