"""A night of limited time: what is laid out, in which order, and what is kept."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from helpers.judging.night_cost import screening_cost, unsuspected_pairs
from helpers.judging.night_layout import choices_of, coming_nights, lay_out, with_week
from helpers.judging.night_plan import (
    PAIRS_COUNT_AS,
    CaseNeed,
    NightLimits,
    NightPlan,
    Why,
    drops_minutes,
    margin_minutes,
)

QUIET, NOISY = 0.001, 0.0115


def need(name: str, sigma: float = QUIET, **more: object) -> CaseNeed:
    given = {"run_seconds": 60.0, "seconds_from": "its last runs", "tau": 0.4 * sigma, "pairs": 40, **more}
    return CaseNeed(name, "cpu", sigma=sigma, **given)  # type: ignore[arg-type]


def cases(many: int, **more: object) -> list[CaseNeed]:
    return [need(f"case-{number:02}", **more) for number in range(many)]


def names(plan: NightPlan) -> list[str]:
    return [each.need.case_id for each in plan.tonight]


def test_without_a_limit_every_case_is_measured_as_it_is_configured() -> None:
    plan = lay_out(cases(5), NightLimits())
    assert {each.why for each in plan.tonight} == {Why.CONFIGURED}
    assert [each.choice.runs for each in plan.tonight if each.choice] == [1] * 5
    assert (plan.no_time, plan.later, plan.spare_minutes) == ((), (), 0.0)


def test_the_plan_does_not_depend_on_the_order_of_the_cases() -> None:
    mixed = [*cases(6), *(need(f"noisy-{number}", NOISY, waited=1 + number) for number in range(6))]
    limits = NightLimits(12)
    assert lay_out(mixed, limits) == lay_out(mixed[::-1], limits)


def test_what_is_laid_out_and_what_is_kept_fit_the_night() -> None:
    for minutes in (4, 10, 25, 60, 200):
        plan = lay_out([*cases(8), *(need(f"n{at}", NOISY) for at in range(8))], NightLimits(minutes, 0.1 * minutes))
        used = plan.screening_minutes + plan.confirmation_minutes + plan.limits.search_minutes
        assert used <= minutes + 1e-9
        assert plan.spare_minutes == pytest.approx(minutes - used)


def test_small_cases_run_once_and_noisy_ones_in_pairs_when_there_is_time() -> None:
    plan = lay_out([need("quiet"), need("noisy", NOISY)], NightLimits(60))
    chosen = {each.need.case_id: each.choice for each in plan.tonight}
    assert chosen["noisy"] is not None
    assert chosen["noisy"].in_pairs
    assert chosen["quiet"] is not None
    assert not chosen["quiet"].in_pairs


def test_of_cases_that_waited_as_long_the_ones_in_pairs_are_measured_last() -> None:
    plan = lay_out([need("a-noisy", NOISY), need("quiet"), need("z-noisy", NOISY, waited=2)], NightLimits(120))
    assert [each.choice.in_pairs for each in plan.tonight if each.choice] == [True, False, True]
    assert names(plan) == ["z-noisy", "quiet", "a-noisy"]


def test_without_a_good_build_nothing_is_planned_in_pairs_and_nothing_is_kept() -> None:
    plan = lay_out([need("noisy", NOISY, pairs=0)], NightLimits(60))
    (case,) = plan.tonight
    assert case.choice is not None
    assert not case.choice.in_pairs
    assert plan.confirmation_minutes == 0


def test_time_goes_to_the_case_that_finds_more_a_minute() -> None:
    plan = lay_out([need("cheap"), need("dear", run_seconds=300.0)], NightLimits(3, every_nights=30))
    assert names(plan) == ["cheap"]
    assert [(each.need.case_id, each.why) for each in plan.later] == [("dear", Why.LATER)]


def test_a_weight_and_a_long_wait_outweigh_minutes() -> None:
    first, second = need("a", run_seconds=80.0), need("b", run_seconds=100.0)
    limits = NightLimits(2.2, every_nights=30)
    assert names(lay_out([first, second], limits)) == ["a"]
    assert names(lay_out([first, replace(second, weight=2.0)], limits)) == ["b"]
    assert names(lay_out([first, replace(second, waited=3)], limits)) == ["b"]


def test_a_case_without_a_recorded_figure_comes_last() -> None:
    plan = lay_out([need("a-new", recorded=False), need("recorded", run_seconds=90.0)], NightLimits(2, every_nights=30))
    assert names(plan) == ["recorded"]
    with_time = lay_out([need("a-new", recorded=False), need("recorded")], NightLimits(60))
    (new,) = [each for each in with_time.tonight if each.need.case_id == "a-new"]
    assert new.drop is None


def test_a_due_case_comes_first_however_little_it_finds() -> None:
    dear = need("dear", NOISY, run_seconds=240.0, waited=7)
    plan = lay_out([*cases(20), dear], NightLimits(60, every_nights=7))
    assert names(plan)[0] == "dear"
    assert plan.tonight[0].why is Why.DUE


def test_a_due_case_without_time_is_promised_all_the_same() -> None:
    plan = lay_out([need("long", run_seconds=3600.0, waited=9), need("short")], NightLimits(10, every_nights=7))
    assert names(plan) == ["short"]
    assert [(each.need.case_id, each.why) for each in plan.no_time] == [("long", Why.NO_TIME)]
    assert not plan.keeps_its_word
    assert plan.counted == 2


def test_no_case_waits_for_ever_for_dearer_ones_that_are_due_too() -> None:
    mixed = [
        need(name, run_seconds=60.0 * minutes, pairs=0, most_runs=1, waited=2)
        for name, minutes in (("a", 25), ("b", 24), ("c", 23), ("d", 8))
    ]
    nights = coming_nights(mixed, NightLimits(45, every_nights=2), 8)
    # They fit the nights badly: two of a, b and c are in none, so each of these is late, and none by more than that.
    assert max(each.need.waited for night in nights for each in (*night.tonight, *night.no_time)) <= 4


@pytest.mark.parametrize("share", [1.0, 1.5, 3.0])
def test_every_case_is_measured_in_time_if_the_night_is_as_long_as_is_asked(share: float) -> None:
    mixed = [
        need(f"c{at:02}", sigma, run_seconds=60.0 + 15 * at)
        for at in range(12)
        for sigma in [NOISY if at % 2 else QUIET]
    ]
    every = NightLimits(1, 0, every_nights=5)
    minutes = share * lay_out(mixed, every).needed_minutes
    limits = NightLimits(minutes, 0.0, 5)
    waited = {each.key: 0 for each in mixed}
    for night in coming_nights(mixed, limits, 20):
        assert night.no_time == ()
        measured = {each.key for each in night.tonight}
        waited = {key: 0 if key in measured else nights + 1 for key, nights in waited.items()}
        assert max(waited.values()) < 5


def test_the_nights_correction_counts_what_is_laid_out_and_pairs_as_several_cases() -> None:
    few = lay_out(cases(40), NightLimits(6, every_nights=30))
    assert few.counted == len(few.tonight) < 40
    noisy = lay_out([need("noisy", NOISY)], NightLimits(60))
    assert noisy.counted == PAIRS_COUNT_AS


def test_more_runs_and_pairs_leave_time_to_confirm_a_drop_in_one_case_of_sixteen() -> None:
    mixed = [*cases(20), *(need(f"noisy-{at}", NOISY) for at in range(12))]
    once = sum(each.minutes for each in (choices_of(need)[0] for need in mixed))
    seen = []
    for minutes in range(math.ceil(once), math.ceil(once) + 400, 20):
        plan = lay_out(mixed, NightLimits(minutes))
        firsts = [choices_of(each.need)[0] for each in plan.tonight]
        if list(plan.choices) != firsts:
            planned = sum(each.minutes for each in plan.choices) + margin_minutes(plan.choices)
            assert planned + sum(each.drop_minutes for each in plan.choices) / 16 <= minutes
            seen.append(sum(each.in_pairs for each in plan.choices))
    # At first there is time for more runs alone, and at last for all pairs.
    assert (seen[0], seen[-1]) == (0, 12)


def test_what_is_kept_for_drops_is_for_one_case_at_least_and_never_for_more_time_than_there_is() -> None:
    noisy, new = need("noisy", NOISY), [need(f"new-{at:02}", recorded=False) for at in range(15)]
    (first, *_, pairs) = choices_of(noisy)
    assert choices_of(new[0])[0].drop_minutes == 0
    assert drops_minutes([first, *(choices_of(each)[0] for each in new)]) == first.drop_minutes > 20
    assert drops_minutes([first] * 32) == pytest.approx(2 * first.drop_minutes)
    # The first pairs that confirm a drop are those that are planned.
    assert pairs.minutes + pairs.drop_minutes == pytest.approx(pairs.screening_minutes + first.drop_minutes)
    short = lay_out([noisy], NightLimits(10))
    assert short.drops_minutes == pytest.approx(10 - first.minutes - margin_minutes([first]))
    assert lay_out([noisy], NightLimits()).drops_minutes == 0


def test_a_case_in_which_no_drop_is_found_takes_no_time_that_is_kept_for_drops() -> None:
    quiet, new = need("quiet"), need("new", recorded=False, run_seconds=600.0)
    (only,) = choices_of(quiet)
    short = only.minutes + margin_minutes([only]) + only.drop_minutes + 9.5
    assert names(lay_out([quiet, new], NightLimits(short))) == ["quiet"]
    assert names(lay_out([quiet, new], NightLimits(short + 1))) == ["new", "quiet"]
    # A due one is measured all the same.
    assert names(lay_out([quiet, replace(new, waited=7)], NightLimits(short))) == ["new", "quiet"]


def test_the_drop_that_is_found_is_told_at_the_threshold_of_the_night() -> None:
    few, many = (lay_out(cases(count, sigma=0.005, pairs=12), NightLimits()).tonight[0].drop for count in (60, 600))
    assert few is not None
    assert many is not None
    assert few == choices_of(need("one", 0.005, pairs=12))[0].drop < many


def test_a_week_finds_smaller_drops_than_one_night() -> None:
    plan = with_week(coming_nights([need("noisy", NOISY)], NightLimits(), 7))
    (case,) = plan.tonight
    assert case.drop is not None
    assert case.week_drop is not None
    assert case.week_drop < case.drop
    left_out = with_week(coming_nights([need("a"), need("b")], NightLimits(1.6, every_nights=7), 7))
    (later,) = left_out.later
    assert later.drop is None
    assert later.week_drop is not None


def test_each_choice_of_a_case_takes_longer_and_finds_a_smaller_drop() -> None:
    ways = choices_of(need("noisy", NOISY))
    assert len(ways) > 1
    assert [each.minutes for each in ways] == sorted(each.minutes for each in ways)
    assert [each.drop for each in ways] == sorted((each.drop for each in ways), reverse=True)


def test_a_noisy_case_is_expected_to_take_more_runs_and_to_be_suspected_more_often() -> None:
    quiet, noisy = (screening_cost(sigma, 0.4 * sigma + 0.0007, 1, 6, confirmed=True) for sigma in (QUIET, NOISY))
    assert 1 <= quiet.runs < 1.1 < noisy.runs < 6
    assert 0 <= quiet.suspected < 0.01 < noisy.suspected < 0.2
    assert screening_cost(NOISY, 0.005, 1, 1, confirmed=False).runs == 1
    assert unsuspected_pairs(QUIET, 40) <= unsuspected_pairs(NOISY, 40) <= 40
    assert unsuspected_pairs(0.5, 5) <= 5
