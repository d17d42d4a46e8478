"""What a night is held against: which nights count, where a segment starts, what is not learned from, siblings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from helpers.history import past as past_nights
from helpers.history.history import History
from helpers.history.nights import NightRecord
from helpers.history.results import CONTENDED, MACHINE_SHARED
from helpers.history.stored import SegmentStart
from helpers.judging.case.evidence import Compared, Past
from tests.helpers.history.made import CASE, OTHER, SEGMENT, moment, night, run, segment

THIRD = "paddle-vgg16-amp_o1-bs8-1x2-dali-static"


def past(history: History, session: str = "tonight", **values: Any) -> Past:
    given = {"case_id": CASE, "target": "cpu", "segment": SEGMENT, "cards": 2}
    return history.past(**{**given, **values}, session=session)


def days(found: Past) -> list[int]:
    """The nights by the first log rate, which the made nights have from their day."""
    return [round(each.log_rates[0]) for each in found.nights]


def add(history: History, *nights: NightRecord) -> None:
    for each in nights:
        history.add_night(each)


# --- which nights


def test_a_night_comes_back_as_it_was_left(history: History) -> None:
    left = night(3, 4.25, 4.0, accepted=False, evidence=1.75, status="REGRESSION", stall_share=0.125)
    add(history, left)
    (found,) = past(history).nights
    assert found.log_rates == (4.25, 4.0)
    assert (found.accepted, found.evidence, found.confirmed_regression) == (False, 1.75, True)
    assert (found.stall_share, found.session, found.date) == (0.125, "s3", "2024-01-04")


def test_only_this_case_target_and_segment(history: History) -> None:
    add(
        history,
        night(1),
        night(2, case_id=OTHER),
        night(3, target="v100"),
        night(4, segment=segment(driver="other")),
        night(5),
    )
    assert days(past(history)) == [1, 5]


def test_oldest_first_by_the_time_of_judging_whatever_the_order_of_writing(history: History) -> None:
    zones = replace(night(2), created="2024-01-03T01:30:00+02:00")
    add(history, night(5), night(1), replace(night(2, 2.4), created="2024-01-02T23:45:00Z", session="z"), zones)
    assert days(past(history)) == [1, 2, 2, 5]
    assert past(history).nights[1].log_rates == (2.0,)


def test_a_resumed_session_is_held_against_what_it_was_held_against_before(history: History) -> None:
    add(history, night(1), night(2, session="tonight"), night(3), night(3, case_id=OTHER), night(1, case_id=OTHER))
    found = past(history, session="tonight")
    assert (days(found), found.siblings) == ([1], ((1.0,),))
    assert days(past(history, session="later")) == [1, 2, 3]


def test_a_resumed_session_is_not_bound_by_a_segment_that_started_since(history: History) -> None:
    add(history, night(1), night(2, session="tonight"), night(3, new_segment=True))
    history.start_segment(SegmentStart(CASE, "cpu", SEGMENT, moment(4), "recorded anew"))
    assert days(past(history, session="tonight")) == [1]
    assert days(past(history, session="later")) == []


def test_a_night_judged_again_replaces_the_first_judgement(history: History) -> None:
    add(history, night(1), night(1, 7.0))
    assert [each.log_rates for each in past(history).nights] == [(7.0,)]


def test_two_hosts_may_give_their_sessions_one_name(history: History) -> None:
    add(history, night(1), night(1, 7.0, segment=segment(host="h9")))
    assert days(past(history)) == [1]
    assert days(past(history, segment=segment(host="h9"))) == [7]


def test_two_hosts_on_which_nothing_ran_keep_both_their_nights(history: History) -> None:
    broken = [night(1, segment={}, standing=None, host=host, reason=f"crashed on {host}") for host in ("h0", "h9")]
    add(history, *broken, replace(broken[1], reason="crashed again"))
    assert [each.record.reason for each in history.series(CASE)] == ["crashed on h0", "crashed again"]


def test_the_newest_accepted_nights_and_what_lies_between_and_after_them(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past_nights, "ACCEPTED_NIGHTS", 4)
    add(history, *(night(day, day / 10, accepted=day not in {1, 4, 8, 9}) for day in range(1, 10)))
    # 5 accepted nights: the second, and what is older, is left out.
    assert [round(10 * each.log_rates[0]) for each in past(history).nights] == list(range(3, 10))


# --- where a segment starts


def test_an_accepted_night_that_starts_a_segment_is_its_first(history: History) -> None:
    add(history, night(1), night(2, new_segment=True), night(3))
    assert days(past(history)) == [2, 3]


def test_a_refused_night_that_starts_a_segment_is_left_behind_with_its_evidence(history: History) -> None:
    add(history, night(1), night(2, new_segment=True, accepted=False, evidence=1e6))
    assert past(history).nights == ()
    add(history, night(3))
    assert days(past(history)) == [3]


def test_a_baseline_recorded_anew_starts_a_segment(history: History) -> None:
    add(history, night(1), night(2), night(3))
    history.start_segment(SegmentStart(CASE, "cpu", SEGMENT, moment(2), "recorded anew", "abc"))
    # The night of the same second is the one that was recorded.
    assert days(past(history)) == [3]
    # Told of another case, target or segment it starts none here.
    for start in (
        SegmentStart(OTHER, "cpu", SEGMENT, moment(9), "r"),
        SegmentStart(CASE, "v100", SEGMENT, moment(9), "r"),
        SegmentStart(CASE, "cpu", segment(driver="x"), moment(9), "r"),
    ):
        history.start_segment(start)
    assert days(past(history)) == [3]
    assert history.segment_starts(CASE, "cpu") == (
        SegmentStart(CASE, "cpu", SEGMENT, "2024-01-03T00:00:00.000000+00:00", "recorded anew", "abc"),
        SegmentStart(CASE, "cpu", segment(driver="x"), "2024-01-10T00:00:00.000000+00:00", "r"),
    )


@pytest.mark.parametrize(("told", "left"), [(2, [3, 4]), (3, [4])])
def test_the_later_of_a_told_and_a_judged_start_counts(history: History, told: int, left: list[int]) -> None:
    add(history, night(1), night(2), night(3, new_segment=True), night(4))
    history.start_segment(SegmentStart(CASE, "cpu", SEGMENT, moment(told), "r"))
    assert days(past(history)) == left


# --- what is not learned from


@pytest.mark.parametrize(
    "values",
    [
        {"marks": (CONTENDED,)},
        {"marks": (MACHINE_SHARED,)},
        {"overrides": {"learning_rate": 0.1}},
        {"origin": "imported"},
    ],
)
@pytest.mark.parametrize("runs_first", [True, False])
def test_disturbed_changed_and_foreign_runs_are_not_learned_from(
    history: History, values: dict[str, Any], runs_first: bool
) -> None:
    judged = night(1, run("b").log_rate or 0, run_uuids=("b",), evidence=5.0)
    if runs_first:
        history.add_result(run("b", **values))
    add(history, judged, night(2))
    if not runs_first:
        history.add_result(run("b", **values))
    assert days(past(history)) == [2]
    assert days(past(history, case_id=OTHER)) == []
    assert past(history, case_id=OTHER).siblings == ((2.0,),)
    (first, _) = history.series(CASE)
    assert first.record == judged
    assert "run b:" in first.unlearned


def test_of_a_night_with_one_disturbed_run_the_others_count_without_its_evidence(history: History) -> None:
    runs = [run("a", 4.5), run("b", 4.25, marks=(CONTENDED,)), run("c", 4.75)]
    for each in runs:
        history.add_result(each)
    add(history, night(1, *(each.log_rate or 0 for each in runs), run_uuids=("a", "b", "c"), evidence=5.0))
    (found,) = past(history).nights
    assert found.log_rates == (runs[0].log_rate, runs[2].log_rate)
    assert found.evidence == 1.0


@pytest.mark.parametrize("values", [{"stage": "confirm"}, {"role": "reference", "stage": "confirm"}])
def test_a_disturbed_run_of_the_confirmation_leaves_the_night_as_it_is(history: History, values: Any) -> None:
    runs = [run("a", 4.5), run("b", 4.5, marks=(CONTENDED,), **values)]
    for each in runs:
        history.add_result(each)
    add(history, night(1, runs[0].log_rate or 0, run_uuids=("a", "b"), evidence=5.0))
    (found,) = past(history).nights
    assert (found.log_rates, found.evidence) == ((runs[0].log_rate,), 5.0)


# --- pairs of both builds


def pairs(rate: float, **values: Any) -> Compared:
    return Compared("paddle 3.3.1 @good", (rate,), (rate + 0.5,), **values)


def test_the_pairs_of_a_segments_nights_come_back_oldest_first(history: History) -> None:
    left = pairs(2.0), pairs(1.0, teaches_level=False), pairs(3.0, teaches_good=False)
    add(history, night(2, compared=left[0]), night(1, compared=left[1]), night(3), night(4, compared=left[2]))
    found = past(history)
    assert (found.compared, found.gained) == ((left[1], left[0], left[2]), False)


def test_a_confirmed_gain_begins_the_pairs_anew_and_is_the_first_of_them(history: History) -> None:
    add(
        history,
        night(1, compared=pairs(1.0)),
        night(2, compared=pairs(2.0), new_segment=True, status="IMPROVEMENT"),
        night(3, compared=pairs(3.0)),
    )
    found = past(history)
    assert (found.compared, found.gained) == ((pairs(2.0), pairs(3.0)), True)


def test_the_pairs_of_another_stack_teach_the_level_alone(history: History) -> None:
    add(
        history,
        night(1, compared=pairs(1.0), segment=segment(driver="x")),
        night(2, compared=pairs(2.0), segment=segment(driver="x"), new_segment=True, status="IMPROVEMENT"),
        night(3, compared=pairs(3.0)),
    )
    found = past(history)
    assert (found.compared, found.elsewhere, found.gained) == ((pairs(3.0),), (pairs(2.0),), True)
    assert days(found) == [3]


def test_of_a_case_recorded_anew_the_recorded_nights_pairs_tell_the_level(history: History) -> None:
    recorded = pairs(2.0, teaches_level=False, teaches_good=False)
    add(history, night(1, compared=pairs(1.0)), night(2, compared=recorded, status="REGRESSION"))
    history.start_segment(SegmentStart(CASE, "cpu", SEGMENT, moment(2, 30), "accepted"))
    add(history, night(3, compared=pairs(3.0)))
    assert past(history).compared == (pairs(2.0), pairs(3.0))


def test_excluded_nights_and_pairs_teach_no_level(history: History) -> None:
    for uuid in ("aaaaaa", "bbbbbb"):
        history.add_result(run(uuid, stage="confirm"))
    add(
        history,
        night(1, compared=pairs(1.0), run_uuids=("aaaaaa",)),
        night(2, compared=pairs(2.0), run_uuids=("bbbbbb",)),
    )
    history.exclude("aaaaaa", "me", moment(9), "the wrong wheel")
    assert past(history).compared == (pairs(2.0),)
    history.restore("aaaaaa", "me", moment(9), "it was the right one")
    assert past(history).compared == (pairs(1.0), pairs(2.0))


# --- siblings


def test_siblings_are_the_accepted_first_log_rates_of_the_hosts_other_cases_with_as_many_cards(
    history: History,
) -> None:
    add(
        history,
        night(1),
        night(1, 5.0, 5.5, case_id=OTHER),
        night(2, 6.0, case_id=OTHER),
        night(3, 9.0, case_id=OTHER, accepted=False),
        night(4, 9.0, case_id=OTHER, session="tonight"),
        night(1, 9.0, case_id="one-card", cards=1),
        night(1, 9.0, case_id="elsewhere", segment=segment(host="h9")),
        night(1, 9.0, case_id="on-gpu", target="v100"),
        night(1, 7.0, case_id=THIRD, segment=segment(**{"setting layout": "other"})),
    )
    assert set(past(history).siblings) == {(5.0, 6.0), (7.0,)}


def test_of_a_sibling_the_newest_segment_counts(history: History) -> None:
    add(
        history,
        night(1, case_id=OTHER, segment=segment(driver="old")),
        night(2, case_id=OTHER),
        night(3, case_id=OTHER, new_segment=True),
        night(4, case_id=OTHER),
    )
    assert past(history).siblings == ((3.0, 4.0),)
    # Tonight's own first night in yet another segment has nothing to say.
    add(history, night(9, case_id=OTHER, segment=segment(driver="new"), session="tonight"))
    assert past(history).siblings == ((3.0, 4.0),)


def test_a_siblings_segment_that_began_tonight_leaves_its_older_nights(history: History) -> None:
    add(history, night(1, case_id=OTHER), night(2, case_id=OTHER))
    add(history, night(3, case_id=OTHER, new_segment=True, session="tonight"))
    assert past(history).siblings == ((1.0, 2.0),)
    assert past(history, session="later").siblings == ((3.0,),)


def test_of_many_siblings_the_newest_40_nights_and_60_cases_count(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past_nights, "ACCEPTED_NIGHTS", 4)
    monkeypatch.setattr(past_nights, "SIBLINGS", 5)
    add(history, *(night(day, day / 10, case_id=OTHER) for day in range(6)))
    add(history, *(night(100, 10.0, case_id=f"case-{number:02}", created=moment(100, number)) for number in range(5)))
    siblings = past(history).siblings
    assert len(siblings) == 5
    assert all(each == (10.0,) for each in siblings)
    only = history.past("case-00", "cpu", segment(host="h9"), 2, "x")
    assert only.siblings == ()
    alone = history.past("case-00", "cpu", SEGMENT, 2, "s100").siblings
    assert alone == (tuple(day / 10 for day in range(2, 6)),)
