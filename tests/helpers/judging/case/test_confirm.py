"""Confirmation by interleaved pairs: order, stopping, every outcome, and what each leaves to later nights."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.judging.case.evalue import Direction
from helpers.judging.case.evidence import Budget, Build, Compared, Evidence, Past, RunEvidence, Stage
from helpers.judging.case.judge import judge
from helpers.judging.case.level import learn_level
from helpers.judging.case.verdict import NeedRuns, Status, Verdict
from helpers.judging.statistics import student_t_95
from tests.helpers.judging.case.evidences import (
    CENTRE,
    GOOD,
    GROUP,
    asked,
    evidence,
    gap_of,
    good,
    new,
    nights,
    noise,
    pairs,
    rate_of,
    recorded,
    run,
    standing,
    verdict,
)

SLOW, FAST = run(CENTRE - 0.03), run(CENTRE + 0.04)
A, B = Build.REFERENCE, Build.CANDIDATE


def confirmed(*runs: RunEvidence, **values: Any) -> Verdict:
    return verdict(*runs, **{"reference_build": GOOD, **values})


def more(*runs: RunEvidence, **values: Any) -> NeedRuns:
    return asked(*runs, **{"reference_build": GOOD, **values})


# --- what is asked for


@pytest.mark.parametrize("seed", ["one", "two", "three"])
def test_the_order_alternates_from_pair_to_pair(seed: str) -> None:
    orders = [more(SLOW, *pairs(*[-0.01] * made), seed=seed).order for made in range(4)]
    assert orders[0] != orders[1]
    assert orders[2:] == orders[:2]


def test_the_seed_throws_the_coin_for_the_first_pair() -> None:
    first = [more(SLOW, seed=str(seed)).order[0] for seed in range(40)]
    assert 8 <= first.count(A) <= 32
    assert first == [more(SLOW, seed=str(seed)).order[0] for seed in range(40)]


def test_only_the_missing_side_of_a_pair_is_run_again() -> None:
    broken = replace(new(), invalid="throttled")
    assert more(SLOW, good(), broken).order == (B,)
    assert more(SLOW, replace(good(), invalid="contended"), new()).order == (A,)
    assert more(SLOW, *pairs(-0.01), good(), broken).order == (B,)


def test_pairs_are_made_of_the_usable_runs_in_order() -> None:
    broken = replace(new(CENTRE - 0.5), invalid="throttled")
    runs = (good(), broken, new(CENTRE - 0.12), new(CENTRE - 0.12), good())
    answer = confirmed(SLOW, *runs)
    assert (answer.status, standing(answer).pair_count) == (Status.REGRESSION, 2)


def test_a_group_that_fell_is_confirmed_at_once_however_open_the_case_itself_is() -> None:
    assert more(run(rate_of(1.5))).stage is Stage.SCREEN
    assert more(run(rate_of(1.5)), suspicion=GROUP).stage is Stage.CONFIRM


# --- outcomes


@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize(("e_value", "found"), [(1190.0, False), (1210.0, True)])
def test_a_change_is_found_from_twelve_hundred_to_one(
    count: int, direction: Direction, e_value: float, found: bool
) -> None:
    gap = gap_of(e_value, count, direction=direction)
    suspect = SLOW if direction is Direction.DROP else FAST
    answer = judge(evidence(suspect, *pairs(*[gap] * count), reference_build=GOOD))
    status = Status.REGRESSION if direction is Direction.DROP else Status.IMPROVEMENT
    assert (isinstance(answer, Verdict) and answer.status is status) is found
    assert isinstance(answer, NeedRuns) is not found


@pytest.mark.parametrize(("e_value", "same"), [(0.199, True), (0.201, False)])
def test_two_pairs_that_speak_for_no_change_end_it(e_value: float, same: bool) -> None:
    gap = gap_of(e_value, 2)
    assert isinstance(judge(evidence(SLOW, *pairs(gap), reference_build=GOOD)), NeedRuns)
    answer = confirmed(SLOW, *pairs(gap, gap))
    assert answer.status is Status.PASS
    assert (answer.reason.code == "same-as-reference") is same


@pytest.mark.parametrize(("e_value", "ends"), [(0.297, True), (0.303, False)])
def test_pairs_that_show_no_drop_end_where_they_rule_a_large_one_out(e_value: float, ends: bool) -> None:
    gap = gap_of(e_value, 2)
    answer = judge(evidence(SLOW, *pairs(gap, gap), reference_build=GOOD))
    assert isinstance(answer, Verdict) is ends
    if isinstance(answer, Verdict):
        assert (answer.status, answer.reason.code) == (Status.PASS, "no-drop-beside-reference")
        assert standing(answer).evidence == 1.0


def test_pairs_that_rule_out_too_little_go_on() -> None:
    gap = gap_of(0.25, 2)
    narrow = recorded(band=0.008)
    assert more(SLOW, *pairs(gap, gap), recorded=narrow).stage is Stage.CONFIRM
    last = confirmed(SLOW, *pairs(gap, gap, gap), recorded=recorded(band=0.003), budget=Budget(pairs=3))
    assert (last.status, last.reason.code) in [
        (Status.INCONCLUSIVE, "pairs-used-up"),
        (Status.PASS, "same-as-reference"),
    ]


def test_pairs_go_on_while_a_gain_is_asked_about() -> None:
    gap = gap_of(30.0, 2, direction=Direction.GAIN)
    assert more(FAST, *pairs(gap, gap)).stage is Stage.CONFIRM
    # Asked about a drop, they have shown that there is none.
    assert confirmed(SLOW, *pairs(gap, gap)).status is Status.PASS


@pytest.mark.parametrize(("e_value", "status"), [(0.98, Status.PASS), (1.02, Status.INCONCLUSIVE)])
def test_the_last_pair_passes_what_explains_no_drop_better(e_value: float, status: Status) -> None:
    gaps = [gap_of(e_value, 4)] * 4
    answer = confirmed(SLOW, *pairs(*gaps), budget=Budget(pairs=4))
    assert answer.status is status


@pytest.mark.parametrize(("e_value", "status"), [(0.98, Status.PASS), (1.02, None)])
def test_after_a_quarter_of_the_pairs_a_drop_needs_to_explain_them_better(
    e_value: float, status: Status | None
) -> None:
    budget = Budget(pairs=20)
    early, late = ([gap_of(e_value, count)] * count for count in (4, 5))
    assert isinstance(judge(evidence(SLOW, *pairs(*early), reference_build=GOOD, budget=budget)), NeedRuns)
    answer = judge(evidence(SLOW, *pairs(*late), reference_build=GOOD, budget=budget))
    assert (answer.status if isinstance(answer, Verdict) else None) is status


def badly_known(*gaps: float) -> Evidence:
    """A suspected case whose level rests on three pairs that lie 2% apart."""
    apart = Compared(GOOD, (CENTRE + 0.02, CENTRE, CENTRE - 0.02), (CENTRE,) * 3)
    return replace(
        evidence(SLOW, *pairs(*gaps), reference_build=GOOD, recorded=recorded(build="another")),
        past=Past(nights(), compared=(apart,)),
    )


def test_pairs_end_where_the_level_is_known_too_badly_for_more_to_tell() -> None:
    gaps = [-0.03 + 0.001 * (at % 2) for at in range(8)]
    assert isinstance(judge(badly_known(*gaps[:7])), NeedRuns)
    answer = judge(badly_known(*gaps))
    assert isinstance(answer, Verdict)
    assert (answer.status, answer.reason.code) == (Status.INCONCLUSIVE, "level-uncertain")


def test_pairs_that_nothing_asked_for_measure_the_level_and_leave_no_question_open() -> None:
    """The level is known badly, tonight ran as on the nights before, and its pairs lie a little below that level."""
    unasked = replace(badly_known(*[-0.03 + 0.001 * (at % 2) for at in range(8)]), budget=Budget(rotation=1))
    answer = judge(replace(unasked, runs=(run(), *unasked.runs[1:])))
    assert isinstance(answer, Verdict)
    assert standing(answer).pairs.teaches_level


def test_a_suspicion_on_the_first_night_of_another_stack_is_judged_without_the_recorded_figure() -> None:
    """Nothing comparable is known, and pairs below the night's first run once ended the session with an exception."""
    apart = recorded(build="another", differences=("cuDNN: 9.1 → 9.5",))
    alike = pairs(0.0, 0.0, 0.0, 0.0, at=CENTRE - 0.05)
    answer = verdict(run(), *alike, past=(), recorded=apart, reference_build=GOOD, suspicion=GROUP)
    assert answer.status is Status.INCONCLUSIVE


def test_a_level_known_as_well_as_the_pairs_asks_for_more_of_them() -> None:
    gaps = [-0.03 + 0.05 * (at % 2) for at in range(8)]
    assert isinstance(judge(badly_known(*gaps)), NeedRuns)


def test_the_error_of_a_level_counts_that_both_runs_of_a_pair_vary() -> None:
    alike = Compared(GOOD, (CENTRE,) * 16, (CENTRE - 0.02,) * 16)
    given = replace(evidence(recorded=recorded(build="another build")), past=Past(nights(), compared=(alike,)))
    level = learn_level(given, noise())
    assert (level.known, level.pairs, level.offset) == (True, 16, pytest.approx(0.02))
    assert level.error == pytest.approx(math.sqrt(2) * noise().sigma / 4 * student_t_95(16) / 1.96)


def test_an_unknown_level_is_measured_by_three_pairs_and_by_more_where_these_know_it_badly() -> None:
    level_unknown = {"recorded": recorded(build="another build"), "budget": Budget(rotation=1)}
    assert len(more(run(), *pairs(0.0, 0.0), **level_unknown).order) == 2
    assert standing(confirmed(run(), *pairs(0.0, 0.0, 0.0), **level_unknown)).pair_count == 3
    apart = pairs(0.02, -0.02, 0.0)
    assert len(more(run(), *apart, **level_unknown).order) == 2
    assert standing(confirmed(run(), *apart, **level_unknown | {"budget": Budget(pairs=3, rotation=1)})).pair_count == 3


def barely_known(*runs: RunEvidence, learned_from: int = 16, known: int = 20, rotation: int = 1) -> NeedRuns | Verdict:
    """Of noisy nights whose level, 2% above the reference build, was learned from pairs 2% apart."""
    around = [CENTRE + 0.02 + 0.01 * (-1) ** at for at in range(learned_from)]
    past = Past(nights(known, scale=0.012), compared=(Compared(GOOD, tuple(around), (CENTRE,) * learned_from),))
    given = evidence(*runs, recorded=recorded(build="another build"), reference_build=GOOD)
    return judge(replace(given, past=past, budget=Budget(rotation=rotation)))


@pytest.mark.slow
def test_a_level_that_is_known_badly_is_measured_on_a_turn_until_it_is_known_well() -> None:
    request = barely_known(run())
    assert isinstance(request, NeedRuns)
    around = [0.02 + 0.01 * (-1) ** at for at in range(40)]
    answers = [barely_known(run(), *pairs(*around[:made])) for made in range(41)]
    made = next(at for at, answer in enumerate(answers) if isinstance(answer, Verdict))
    assert 16 < made < 40
    found = answers[made]
    assert isinstance(found, Verdict)
    assert (found.status, standing(found).pairs.teaches_level) == (Status.PASS, True)


def test_a_level_that_is_known_badly_waits_for_a_turn_and_for_a_history() -> None:
    quick = [barely_known(run(), rotation=1000), barely_known(run(), learned_from=80)]
    quick.append(barely_known(run(), *pairs(0.02, 0.02, 0.02, 0.02), known=14))
    assert all(isinstance(answer, Verdict) and answer.status is Status.PASS for answer in quick)


def test_a_drop_that_shows_while_the_level_is_measured_is_a_regression() -> None:
    answer = barely_known(run(), *pairs(*[-0.1] * 12))
    assert isinstance(answer, Verdict)
    assert answer.status is Status.REGRESSION


def test_a_regression_prints_all_it_rests_on_and_is_not_accepted() -> None:
    answer = confirmed(SLOW, *pairs(-0.03, -0.031, -0.029, -0.03))
    found = standing(answer)
    assert (answer.status, answer.reason.code) == (Status.REGRESSION, "confirmed-regression")
    assert (found.accepted, found.pair_count, found.new_segment, found.pairs.machine_slow) == (False, 4, False, False)
    assert found.pairs.evidence is not None
    assert found.pairs.evidence >= 1200
    assert found.effect.point == pytest.approx(math.expm1(-0.03))
    assert found.effect.low < found.effect.point < found.effect.high < 0


def test_the_same_builds_settle_a_small_suspicion() -> None:
    suspect = run(rate_of(2.5))
    answer = confirmed(suspect, *pairs(0.0, 0.0005, -0.0005))
    found = standing(answer)
    assert (answer.status, answer.reason.code) == (Status.PASS, "same-as-reference")
    assert (found.evidence, found.accepted, found.pairs.machine_slow) == (1.0, True, False)


@pytest.mark.parametrize(("e_value", "slow"), [(2.97, False), (3.03, True)])
def test_the_same_builds_on_a_slow_night_name_the_machine(e_value: float, slow: bool) -> None:
    rate = rate_of(e_value)
    answer = confirmed(run(rate), *pairs(0.0, 0.0005, -0.0005, at=rate))
    found = standing(answer)
    assert answer.status is Status.PASS
    assert (answer.reason.code == "machine-slow", found.pairs.machine_slow, not found.accepted) == (slow,) * 3
    assert found.evidence == 1.0


@pytest.mark.parametrize(("lower", "teaches"), [(0.0, True), (0.02, False)])
def test_a_night_on_which_both_builds_run_low_does_not_teach_what_the_good_build_usually_does(
    lower: float, teaches: bool
) -> None:
    found = confirmed(run(), *pairs(*[0.0] * 6, at=CENTRE - lower), suspicion=GROUP)
    assert (found.status, standing(found).accepted) == (Status.PASS, True)
    assert standing(found).pairs.teaches_good is teaches


@pytest.mark.parametrize(("row", "code"), [(3, "machine-slow"), (4, "reference-build-slower")])
def test_the_fifth_slow_night_of_the_machine_in_a_row_does_not_pass_and_begins_no_segment(row: int, code: str) -> None:
    refused = tuple(replace(night, accepted=False) for night in nights(row))
    answer = confirmed(SLOW, *pairs(0.0, 0.0005, -0.0005, at=CENTRE - 0.03), past=nights() + refused)
    lasting = row == 4
    assert (answer.reason.code, standing(answer).new_segment) == (code, False)
    assert answer.status is (Status.INCONCLUSIVE if lasting else Status.PASS)


@pytest.mark.parametrize(("entry", "status"), [(CENTRE, Status.REGRESSION), (CENTRE - 0.06, Status.INCONCLUSIVE)])
def test_a_confirmed_drop_is_a_regression_unless_so_low_a_level_was_recorded(entry: float, status: Status) -> None:
    """Nobody knows where the nights before stand; one that passed without pairs does not stand in the way."""
    figure = recorded(build="another build", replicates=(math.exp(entry),))
    answer = confirmed(SLOW, *pairs(*[-0.06] * 4), recorded=figure, past=nights(1), suspicion=GROUP)
    assert (answer.status, standing(answer).pairs.level) == (status, None)


def test_pairs_that_look_slower_are_no_measure_of_a_level_that_nobody_accepted() -> None:
    given = {"recorded": recorded(build="another build"), "budget": Budget(rotation=1)}
    open_still = more(run(), *pairs(*[-0.02] * 3), **given)
    assert open_still.stage is Stage.CONFIRM
    assert confirmed(run(), *pairs(*[-0.02] * 12), **given).status is Status.REGRESSION
    low = {**given, "recorded": recorded(build="another build", replicates=(math.exp(CENTRE - 0.02),))}
    assert confirmed(run(), *pairs(*[-0.02] * 3), **low).reason.code == "level-measured"


def test_a_bad_run_that_the_pairs_do_not_repeat_is_no_slow_machine() -> None:
    answer = confirmed(SLOW, *pairs(0.0, 0.0005, -0.0005))
    assert (answer.status, answer.reason.code) == (Status.PASS, "same-as-reference")
    assert (standing(answer).pairs.machine_slow, standing(answer).accepted) == (False, False)


def test_a_suspected_drop_is_never_answered_by_a_gain() -> None:
    answer = confirmed(SLOW, *pairs(0.04, 0.041, 0.039))
    assert (answer.status, answer.reason.code) == (Status.PASS, "drop-not-repeated")
    assert not standing(answer).new_segment


def test_pairs_used_up_are_inconclusive() -> None:
    gaps = [-0.02, 0.001, -0.016, 0.0]
    budget = Budget(pairs=4)
    assert len(more(SLOW, *pairs(*gaps[:3]), budget=budget).order) == 2
    answer = confirmed(SLOW, *pairs(*gaps), budget=budget)
    assert (answer.status, answer.reason.code) == (Status.INCONCLUSIVE, "pairs-used-up")


@pytest.mark.parametrize(("e_value", "carried"), [(1.2, 1.2), (40.0, 40.0)])
def test_after_pairs_used_up_the_next_night_goes_on_from_them(e_value: float, carried: float) -> None:
    answer = confirmed(SLOW, *pairs(*[gap_of(e_value, 3)] * 3), budget=Budget(pairs=3))
    assert answer.status is Status.INCONCLUSIVE
    assert standing(answer).evidence == pytest.approx(carried, rel=0.01)
    assert standing(answer).e_drop > 10


@pytest.mark.parametrize(("good_above", "teaches"), [(True, True), (False, False)])
def test_open_pairs_tell_the_level_where_the_new_build_ran_as_before(good_above: bool, teaches: bool) -> None:
    gap = gap_of(40.0, 3)
    used_up = pairs(*[gap] * 3, at=CENTRE - gap if good_above else CENTRE)
    answer = confirmed(run(rate_of(2.5)), *used_up, budget=Budget(pairs=3, screen_runs=1))
    assert (answer.status, answer.reason.code) == (Status.INCONCLUSIVE, "pairs-used-up")
    assert (standing(answer).accepted, standing(answer).pairs.teaches_level) == (True, teaches)


@pytest.mark.parametrize(("tolerance", "status"), [(0.0299, Status.REGRESSION), (0.0301, Status.PASS)])
def test_a_drop_counts_beyond_the_tolerance_only(tolerance: float, status: Status) -> None:
    gap = math.log1p(-0.03)
    answer = confirmed(SLOW, *pairs(gap, gap, gap), recorded=recorded(tolerance=tolerance))
    assert answer.status is status
    if status is Status.PASS:
        assert answer.reason.code == "below-tolerance"
        assert standing(answer).evidence == 1.0


@pytest.mark.parametrize(("tolerance", "status"), [(0.0299, Status.IMPROVEMENT), (0.0301, Status.PASS)])
def test_a_gain_counts_beyond_the_tolerance_only(tolerance: float, status: Status) -> None:
    gap = math.log1p(0.03)
    assert confirmed(FAST, *pairs(*[gap] * 4), recorded=recorded(tolerance=tolerance)).status is status


def test_a_drop_that_a_group_was_suspected_of_is_never_answered_by_faster() -> None:
    asked_for = {"suspicion": GROUP}
    answer = confirmed(run(CENTRE - 0.002), *pairs(0.02, 0.021, 0.02, 0.021, at=CENTRE - 0.02), **asked_for)
    assert (answer.status, answer.reason.code) == (Status.PASS, "drop-not-repeated"), answer.reason
    assert not standing(answer).new_segment
    # A member that has itself gained says so.
    assert confirmed(FAST, *pairs(0.04, 0.041, 0.04, 0.04), **asked_for).status is Status.IMPROVEMENT


def test_an_improvement_starts_a_new_segment() -> None:
    answer = confirmed(FAST, *pairs(0.09, 0.091))
    found = standing(answer)
    assert (answer.status, answer.reason.code) == (Status.IMPROVEMENT, "confirmed-improvement")
    assert (found.new_segment, found.accepted, found.evidence) == (True, True, 1.0)


# --- is it the same work?


@pytest.mark.parametrize(
    ("loss", "gain", "status", "code"),
    [
        (6.9 * 1.24, 0.15, Status.IMPROVEMENT, "confirmed-improvement"),
        (6.9 * 1.26, 0.15, Status.INCONCLUSIVE, "work-changed"),
        (6.9 * 0.74, 0.15, Status.INCONCLUSIVE, "work-changed"),
        (0.0, 0.15, Status.INCONCLUSIVE, "work-changed"),
        (None, 0.15, Status.INCONCLUSIVE, "work-unchecked"),
        (math.nan, 0.15, Status.INCONCLUSIVE, "work-unchecked"),
        (None, math.log(1.099), Status.IMPROVEMENT, "confirmed-improvement"),
        (None, math.log(1.101), Status.INCONCLUSIVE, "work-unchecked"),
    ],
)
def test_a_gain_beyond_a_tenth_needs_the_same_losses(
    loss: float | None, gain: float, status: Status, code: str
) -> None:
    answer = confirmed(FAST, *pairs(gain, gain, loss=loss))
    assert (answer.status, answer.reason.code) == (status, code)


# --- stalls


STALLED = run(stall_share=0.2)


def test_stalls_that_the_reference_build_has_too_are_the_machines() -> None:
    alike = [replace(each, stall_share=0.2) for each in pairs(0.0, 0.0005, -0.0005)]
    answer = confirmed(STALLED, STALLED, *alike)
    assert (answer.status, answer.reason.code) == (Status.PASS, "same-as-reference")
    assert not standing(answer).accepted


@pytest.mark.parametrize(("share", "status"), [(0.0299, Status.PASS), (0.0301, Status.INCONCLUSIVE)])
def test_stalls_of_the_new_build_alone_are_inconclusive(share: float, status: Status) -> None:
    answer = confirmed(STALLED, STALLED, *pairs(0.0, 0.0005, -0.0005, stall_share=share))
    assert answer.status is status
    assert (answer.reason.code == "stalls") is (status is Status.INCONCLUSIVE)


def test_stalls_unmeasured_beside_the_reference_stay_open() -> None:
    answer = confirmed(STALLED, STALLED, *pairs(0.0, 0.0005, -0.0005, stall_share=None))
    assert (answer.status, answer.reason.code) == (Status.INCONCLUSIVE, "stalls")


def test_stalls_that_vary_in_the_reference_must_stand_out_from_it() -> None:
    shares = (0.02, 0.12, 0.22)
    varied = [
        replace(each, stall_share=shares[at // 2] if each.build is A else 0.3)
        for at, each in enumerate(pairs(0.0, 0.0005, -0.0005))
    ]
    assert confirmed(SLOW, *varied).status is Status.PASS
    far = [replace(each, stall_share=0.7) if each.build is B else each for each in varied]
    assert confirmed(SLOW, *far).reason.code == "stalls"


def test_a_regression_outranks_its_stalls_and_stalls_an_improvement() -> None:
    assert confirmed(SLOW, *pairs(-0.12, -0.12, stall_share=0.5)).status is Status.REGRESSION
    assert confirmed(FAST, *pairs(0.09, 0.09, stall_share=0.5)).reason.code == "stalls"


# Gaps that lie close together: of such as are drawn one by one hardly any are a regression or an improvement.
ALIKE = st.builds(
    lambda gap, around: [gap + each for each in around],
    st.sampled_from([-0.13, 0.13]) | st.floats(-0.15, 0.15),
    st.lists(st.floats(-0.01, 0.01), min_size=6, max_size=16),
)


@pytest.mark.slow
@given(
    ALIKE | st.lists(st.floats(-0.15, 0.15), min_size=2, max_size=16),
    st.floats(0.0, 0.1),
    st.integers(0, 20),
    st.sampled_from([0.97, 1.0, 1.05, 1.13]),
)
def test_no_regression_without_evidence_and_effect(
    gaps: list[float], tolerance: float, known: int, screened: float
) -> None:
    answer = judge(
        evidence(
            run(CENTRE + math.log(screened)),
            *pairs(*gaps),
            past=nights(known),
            recorded=recorded(tolerance=tolerance),
            reference_build=GOOD,
            suspicion=GROUP,
        )
    )
    if isinstance(answer, NeedRuns):
        assert answer.stage is Stage.CONFIRM
        assert len(gaps) < Budget().pairs
        return
    found = standing(answer)
    assert found.pair_count == len(gaps)
    assert found.pairs is not None and found.effect is not None
    if answer.status is Status.REGRESSION:
        assert found.pairs.evidence >= 1200
        assert found.effect.point < -tolerance
    elif answer.status is Status.IMPROVEMENT:
        assert found.pairs.evidence >= 1200
        assert tolerance < found.effect.point
    elif answer.status is Status.PASS:
        shown_none = answer.reason.code in ("drop-not-repeated", "no-drop-beside-reference")
        assert found.pairs.evidence < 0.2 or abs(found.effect.point) <= tolerance or shown_none


def test_a_build_far_below_the_record_and_like_the_good_one_fails_only_while_nobody_knows_the_level() -> None:
    far = CENTRE - 0.15
    slow = (run(far), run(far), run(far), *pairs(0.0, 0.0, 0.0, 0.0, at=far))
    # Recorded with another build, and compared with the good one on no night: the reference build may have been faster.
    assert confirmed(*slow, recorded=recorded(build="another build"), past=nights(0)).status is Status.SLOWER
    # Recorded with the reference build itself: it is the machine.
    assert confirmed(*slow, recorded=recorded(build=GOOD), past=nights(0)).status is not Status.SLOWER
