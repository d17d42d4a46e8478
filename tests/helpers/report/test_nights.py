"""A night as a line: its interval, the reference build's figure beside it, and the slope of its segment."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from helpers.history.stored import StoredNight
from helpers.judging.case.evidence import Compared
from helpers.report.nights import good_rate, interval_of, lines_of_nights
from tests.helpers.history.made import night


def stored(day: int, *rates: float, **values: object) -> StoredNight:
    record = night(day, *rates, **values)
    return StoredNight(f"u{day}", record, "segment")


def test_the_interval_of_a_night_is_by_the_spread_that_the_judge_knew() -> None:
    low, high = interval_of([4.5], 0.01)
    assert low is not None and high is not None
    assert (math.log(low), math.log(high)) == pytest.approx((4.5 - 0.0196, 4.5 + 0.0196))
    # The median of three runs has 1.16 times the error of their mean.
    narrower = interval_of([4.5, 4.5, 4.5], 0.01)
    assert narrower[0] == pytest.approx(math.exp(4.5 - 1.16 * 0.0196 / math.sqrt(3)), rel=2e-4)


def test_without_such_a_spread_it_is_that_of_the_runs_and_one_run_has_none() -> None:
    assert interval_of([4.5], None) == interval_of([], 0.01) == (None, None)
    low, high = interval_of([math.log(100), math.log(101), math.log(102)], None)
    assert low is not None and high is not None and low < 101 < high and high - 101 == pytest.approx(2.60, abs=0.03)


def test_the_good_builds_figure_is_the_geometric_mean_of_its_runs() -> None:
    compared = Compared("good", (1.0, 1.0), (math.log(100), math.log(400)))
    assert good_rate(stored(1, 4.5, compared=compared)) == pytest.approx(200)
    assert good_rate(stored(1, 4.5)) is None


def test_a_night_of_which_nothing_ran_begins_no_segment() -> None:
    lost = replace(stored(2, status="INFRA_ERROR", segment={}), segment_digest="none")
    nights = [stored(1, 4.5), lost, stored(3, 4.5)]
    lines = lines_of_nights(nights, lambda each: each.record.log_rates)
    assert [each.segment for each in lines] == [1, 1, 1] and [each.notes for each in lines] == [(), (), ()]
