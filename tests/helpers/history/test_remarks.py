"""What people say: exclusions take a run or a night out and come back, nothing is deleted; the rest is kept."""

from __future__ import annotations

from dataclasses import replace

import pytest

from helpers.history.history import History
from helpers.history.stored import Calibration, Exclusion
from helpers.judging.case.evidence import Past
from helpers.trainers.contract.errors import HistoryError
from tests.helpers.history.made import CASE, OTHER, SEGMENT, moment, night, run, segment

NOW, LATER = "2024-03-01T00:00:00.000000+00:00", "2024-03-11T00:00:00.000000+00:00"
CALIBRATION = Calibration(CASE, "cpu", SEGMENT, NOW, "s1", 10, 0.003, 9.0, 0.002, 0.006, 0.01)


def past(history: History) -> Past:
    return history.past(CASE, "cpu", SEGMENT, 2, "tonight")


def uuid_of(history: History, day: int) -> str:
    return next(each.uuid for each in history.series(CASE) if each.record.session == f"s{day}")


@pytest.fixture
def judged(history: History) -> History:
    """Two nights, the first of two runs."""
    runs = run("aaaaaa1", 4.5), run("aaaaaa2", 4.25)
    for each in runs:
        history.add_result(each)
    rates = tuple(each.log_rate or 0 for each in runs)
    history.add_night(night(1, *rates, run_uuids=("aaaaaa1", "aaaaaa2"), evidence=3.0))
    history.add_night(night(2, 4.0))
    return history


# --- exclusions


def test_an_excluded_run_is_left_out_of_its_night_with_the_nights_evidence(judged: History) -> None:
    before = past(judged)
    said = judged.exclude("aaaaaa1", "me", NOW, "coffee")
    assert said == Exclusion("result", "aaaaaa1", "me", NOW, "coffee")
    first, second = past(judged).nights
    assert (len(first.log_rates), first.log_rates[0], first.evidence) == (1, before.nights[0].log_rates[1], 1.0)
    assert second == before.nights[1]
    assert judged.series(CASE)[0].unlearned == "run aaaaaa1: excluded by me: coffee"


def test_a_night_without_any_run_left_is_out(judged: History) -> None:
    judged.exclude("aaaaaa1", "me", NOW, "coffee")
    judged.exclude("aaaaaa2", "me", NOW, "tea")
    assert [each.session for each in past(judged).nights] == ["s2"]


def test_an_excluded_night_is_out_and_still_shown(judged: History) -> None:
    said = judged.exclude(uuid_of(judged, 1), "me", NOW, "power cut")
    assert [each.session for each in past(judged).nights] == ["s2"]
    assert judged.past(OTHER, "cpu", SEGMENT, 2, "x").siblings == ((4.0,),)
    shown = judged.series(CASE)
    assert [each.exclusion for each in shown] == [said, None]
    assert len(shown[0].record.log_rates) == 2


def test_an_excluded_night_starts_no_segment(history: History) -> None:
    history.add_night(night(1))
    history.add_night(night(2, new_segment=True))
    assert len(past(history).nights) == 1
    history.exclude(uuid_of(history, 2), "me", NOW, "not a gain at all")
    assert [each.session for each in past(history).nights] == ["s1"]


@pytest.mark.parametrize("of_night", [True, False])
def test_restored_all_is_as_it_was_and_both_stay_stored(judged: History, of_night: bool) -> None:
    before = past(judged), judged.series(CASE)
    uuid = uuid_of(judged, 1) if of_night else "aaaaaa1"
    judged.exclude(uuid, "me", NOW, "coffee")
    assert past(judged) != before[0]
    said = judged.restore(uuid, "you", moment(70), "it was tea")
    assert (past(judged), judged.series(CASE)) == before
    assert not said.holds
    assert judged.exclusions() == ()
    assert judged.exclusions(holding_only=False) == (said,)
    assert (said.who, said.restored_by, said.restored_reason) == ("me", "you", "it was tea")
    judged.exclude(uuid, "me", moment(71), "coffee after all")
    assert [each.holds for each in judged.exclusions(holding_only=False)] == [False, True]


def test_judged_or_stored_again_an_excluded_run_stays_out(judged: History) -> None:
    judged.exclude("aaaaaa1", "me", NOW, "coffee")
    left = past(judged).nights[0].log_rates
    first = judged.series(CASE)[0].record
    judged.add_result(run("aaaaaa1", 4.5, verdict={"status": "PASS"}))
    judged.add_night(first)
    assert past(judged).nights[0].log_rates == left
    excluded = [each.exclusion is not None for each in judged.results_of(session="s0")]
    assert excluded == [True, False]


def test_a_uuid_may_be_told_by_its_first_characters(judged: History) -> None:
    uuid = uuid_of(judged, 2)
    with pytest.raises(HistoryError, match="6 or more"):
        judged.exclude(uuid[:5], "me", NOW, "r")
    assert judged.exclude(uuid[:6], "me", NOW, "r").uuid == uuid


@pytest.mark.parametrize("uuid", ["aaaaaa", "aaaaa", "bbbbbbb", "", "%", "aaaaaa_"])
def test_a_uuid_that_is_of_none_or_of_two_is_refused(judged: History, uuid: str) -> None:
    with pytest.raises(HistoryError):
        judged.exclude(uuid, "me", NOW, "r")
    assert judged.exclusions() == ()


def test_twice_excluded_and_restored_without_need_are_refused(judged: History) -> None:
    with pytest.raises(HistoryError, match="got 'no'"):
        judged.restore("aaaaaa1", "me", NOW, "r")
    judged.exclude("aaaaaa1", "me", NOW, "coffee")
    with pytest.raises(HistoryError, match=r"by me, .*: coffee"):
        judged.exclude("aaaaaa1", "you", NOW, "r")


# --- calibrations


def test_the_newest_calibration_of_a_segment_counts(history: History) -> None:
    assert history.calibration(CASE, "cpu", SEGMENT) is None
    full = replace(CALIBRATION, tolerance=0.005, sigma_night=0.1 + 0.2, sigma_night_low=0.1, sigma_night_high=1e-300)
    newest = replace(full, created="2024-03-02T00:00:00.000000+00:00", runs=20)
    for each in (full, newest, CALIBRATION, replace(newest, segment=segment(driver="x"), runs=99)):
        history.add_calibration(each)
    assert history.calibration(CASE, "cpu", SEGMENT) == newest
    assert history.calibration(CASE, "v100", SEGMENT) is None
    assert history.calibration(OTHER, "cpu", SEGMENT) is None
