"""Which nights become points of which series."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from helpers.history.stored import StoredNight
from helpers.history.trend.series import Kind, series_of

MakeNight = Callable[..., StoredNight]


def test_a_point_is_the_median_of_a_nights_runs_with_its_build(make_night: MakeNight) -> None:
    (series,) = series_of([make_night(0), make_night(1, (90.0, 110.0, 99.0))])
    assert (series.kind, series.values[1]) == (Kind.NIGHTS, pytest.approx(99.0))
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
    assert (ratios.kind, ratios.values) == (Kind.PAIRS, [pytest.approx(0.98)])


@pytest.mark.parametrize("values", [{"pairs": 0}, {"standing": None}])
def test_a_night_without_pairs_has_no_ratio(make_night: MakeNight, values: dict[str, Any]) -> None:
    given = {"ratio": 0.98, **values} if "pairs" in values else values
    assert [series.kind for series in series_of([make_night(0, **given)])] == [Kind.NIGHTS]


def test_an_excluded_run_takes_the_ratio_of_its_night_away(make_night: MakeNight) -> None:
    nights = [make_night(0, ratio=0.98), make_night(1, ratio=0.97)]
    _, ratios = series_of(nights, excluded={"u0"})
    assert [point.session for point in ratios.points] == ["s1"]
