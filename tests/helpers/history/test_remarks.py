"""What people say: exclusions take a run or a night out and come back, nothing is deleted; the rest is kept."""

from __future__ import annotations

from dataclasses import replace

import pytest

from helpers.history.history import History
from helpers.history.stored import Acknowledgement, Calibration, Exclusion
from helpers.judging.evidence import Past
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
    assert (shown[0].rates, len(shown[0].record.log_rates)) == ((), 2)


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


def test_an_excluded_run_of_the_confirmation_leaves_the_night_as_it_is(history: History) -> None:
    history.add_result(run("c", stage="confirm"))
    history.add_night(night(1, run("c").log_rate or 0, run_uuids=("c",)))
    before = past(history)
    history.exclude("c", "me", NOW, "coffee")
    assert past(history) == before


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


@pytest.mark.parametrize(("who", "created", "reason"), [("", NOW, "r"), ("me", NOW, " "), ("me", "today", "r")])
def test_who_when_and_why_are_wanted(judged: History, who: str, created: str, reason: str) -> None:
    with pytest.raises(HistoryError):
        judged.exclude("aaaaaa1", who, created, reason)
    with pytest.raises(HistoryError):
        judged.acknowledge(Acknowledgement(CASE, "", "", "", reason, who, created))


# --- acknowledgements


def test_acknowledgements_are_found_by_the_cases_they_match(history: History) -> None:
    one = Acknowledgement("paddle-vgg16-*", "2024-01-01", "", "abc", "new cuDNN", "me", NOW)
    two = Acknowledgement(OTHER, "", "2024-02-01", "", "known \x00 ü", "you", NOW)
    history.acknowledge(one)
    history.acknowledge(two)
    assert history.acknowledgements(CASE) == (one,)
    assert history.acknowledgements() == (one, replace(two, reason="known \\x00 ü"))


def test_an_acknowledgement_that_is_taken_back_stays_with_who_when_and_why(history: History) -> None:
    made = Acknowledgement(CASE, "2024-01-01", "2024-01-01", "abc", "new cuDNN", "me", NOW)
    other = replace(made, commit="def")
    for each in (made, other):
        history.acknowledge(each)
    back = history.take_back(made, "you", LATER, "it was the driver")
    assert (back.taken_back_by, back.taken_back, back.taken_back_reason) == ("you", LATER, "it was the driver")
    assert not back.holds
    assert history.acknowledgements() == (other,)
    assert history.acknowledgements(holding_only=False) == (back, other)
    assert history.nights_so_far(CASE, "cpu", "s", 9).acknowledgements == (back, other)


def test_what_does_not_hold_is_not_taken_back(history: History) -> None:
    made = Acknowledgement(CASE, "2024-01-01", "2024-01-01", "abc", "new cuDNN", "me", NOW)
    with pytest.raises(HistoryError, match="one that holds"):
        history.take_back(made, "you", moment(70), "why")
    history.acknowledge(made)
    with pytest.raises(HistoryError, match="reason"):
        history.take_back(made, "you", moment(70), " ")
    back = history.take_back(made, "you", moment(70), "why")
    for again in (made, back):
        with pytest.raises(HistoryError, match="one that holds"):
            history.take_back(again, "she", moment(71), "why")
    assert history.acknowledgements(holding_only=False) == (back,)


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


def test_a_bare_calibration_reads_back_equal(history: History) -> None:
    history.add_calibration(CALIBRATION)
    assert history.calibration(CASE, "cpu", SEGMENT) == CALIBRATION
