"""Screening: when a night repeats, suspects, accepts and carries on; and what is said without a reference build."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.judging.case.evalue import Direction, evalue
from helpers.judging.case.evidence import Budget, Build, Compared, Evidence, Night, Past, Stage
from helpers.judging.case.judge import judge
from helpers.judging.case.verdict import NeedRuns, Status, Verdict
from helpers.judging.finding import Code
from helpers.trainers.contract.errors import SuiteError
from tests.helpers.judging.case.evidences import (
    CENTRE,
    GOOD,
    GROUP,
    asked,
    codes,
    evidence,
    good,
    new,
    nights,
    noise,
    pairs,
    rate_of,
    recorded,
    run,
    solve,
    standing,
    verdict,
)


def refused(count: int, **values: Any) -> tuple[Night, ...]:
    """Nights that were not accepted."""
    return tuple(replace(night, **{"accepted": False, **values}) for night in nights(count))


# --- one run, unless the answer is open


def test_an_ordinary_night_takes_one_run() -> None:
    first = asked()
    assert (first.order, first.stage) == ((Build.CANDIDATE,), Stage.SCREEN)
    answer = verdict(run())
    assert (answer.status, answer.reason.code) == (Status.PASS, "no-drop")


@pytest.mark.parametrize(("e_value", "again"), [(0.44, False), (0.46, True), (1.98, True), (2.02, False)])
def test_repeats_only_while_the_answer_is_open(e_value: float, again: bool) -> None:
    answer = judge(evidence(run(rate_of(e_value))))
    assert isinstance(answer, NeedRuns) is again
    if isinstance(answer, NeedRuns):
        assert (answer.order, answer.stage) == ((Build.CANDIDATE,), Stage.SCREEN)


def test_repeats_no_more_than_its_budget() -> None:
    open_rate = rate_of(1.9)
    one = run(open_rate)
    known = noise()
    for made, more in ((1, True), (2, False)):
        answer = judge(evidence(*[one] * made, budget=Budget(screen_runs=2)))
        assert isinstance(answer, NeedRuns) is more
    assert evalue([open_rate - known.centre] * 2, known.sigma, known.tau) >= 0.7


@pytest.mark.parametrize("good_build", [GOOD, None])
def test_what_is_still_open_after_the_last_run_is_confirmed_where_a_good_build_is_at_hand(
    good_build: str | None,
) -> None:
    known = noise()
    gap = solve(lambda gap: evalue([-gap] * 2, known.sigma, known.tau), 1.5)
    runs = [run(known.centre - gap)] * 2
    answer = judge(evidence(*runs, budget=Budget(screen_runs=2), reference_build=good_build))
    assert isinstance(answer, NeedRuns) is (good_build is not None)
    if isinstance(answer, NeedRuns):
        assert answer.stage is Stage.CONFIRM


@pytest.mark.parametrize(("e_value", "again"), [(0.29, False), (0.31, True)])
def test_what_is_clearly_no_drop_ends_a_carried_suspicion(e_value: float, again: bool) -> None:
    carried = nights(20)[:-1] + nights(1, evidence=4.0)
    assert isinstance(judge(evidence(run(rate_of(e_value, carried)), past=carried)), NeedRuns) is again


# --- suspicion


@pytest.mark.parametrize(("e_value", "status"), [(1.98, Status.PASS), (2.02, Status.INCONCLUSIVE)])
def test_a_drop_is_suspected_from_two_to_one(e_value: float, status: Status) -> None:
    assert verdict(run(rate_of(e_value)), budget=Budget(screen_runs=1)).status is status


@pytest.mark.parametrize(("e_value", "code"), [(19.8, "no-drop"), (20.2, "faster-unconfirmed")])
def test_a_gain_is_suspected_from_twenty_to_one(e_value: float, code: str) -> None:
    answer = verdict(run(rate_of(e_value, direction=Direction.GAIN)))
    assert (answer.status, answer.reason.code) == (Status.PASS, code)


def test_an_unconfirmed_drop_within_the_tolerance_passes_and_says_so() -> None:
    answer = verdict(run(CENTRE - 0.03), recorded=recorded(tolerance=0.10))
    assert (answer.status, answer.reason.code) == (Status.PASS, "below-tolerance")
    assert verdict(run(CENTRE - 0.03), recorded=recorded(tolerance=0.02)).status is Status.INCONCLUSIVE


def test_a_large_unconfirmed_gain_is_not_green_since_the_work_may_have_changed() -> None:
    small, large = (verdict(run(CENTRE + math.log(rate)), budget=Budget(screen_runs=1)) for rate in (1.08, 1.12))
    assert (small.status, small.reason.code) == (Status.PASS, "faster-unconfirmed")
    assert (large.status, large.reason.code) == (Status.INCONCLUSIVE, "work-unchecked")


def test_a_group_that_fell_together_is_told_where_nothing_can_confirm_it() -> None:
    answer = verdict(run(), suspicion=GROUP)
    assert (answer.status, answer.reason.code) == (Status.INCONCLUSIVE, "unconfirmed-drop")


def test_noise_that_hides_half_the_rate_is_no_pass() -> None:
    answer = verdict(*[run()] * 6, past=nights(20, scale=0.5))
    assert (answer.status, answer.reason.code) == (Status.INCONCLUSIVE, "too-noisy")


# --- what is carried on, accepted, left behind


@pytest.mark.parametrize(
    ("carried", "at", "left"),
    [
        (1.0, CENTRE + 0.001, 0.2),
        (0.2, CENTRE - 0.03, None),
        (0.01, CENTRE - 0.03, None),
        (1e6, CENTRE - 0.03, 1e6),
        (1e9, CENTRE + 0.002, 1e6),
    ],
)
def test_evidence_is_carried_on_within_bounds(carried: float, at: float, left: float | None) -> None:
    past = nights(19) + nights(1, evidence=carried)
    found = standing(verdict(run(at), past=past))
    assert found.evidence == pytest.approx(left if left is not None else found.e_drop)


def test_last_nights_evidence_counts_whether_or_not_it_was_accepted() -> None:
    last = refused(1, evidence=30.0)
    found = verdict(run(rate_of(0.5)), past=nights(19) + last, budget=Budget(screen_runs=1))
    assert found.reason.code == "unconfirmed-drop"
    assert found.reason.findings[0].details[0].figures["carry"] == 30.0
    before = (*nights(18), *last, *nights(1))
    assert verdict(run(rate_of(0.5)), past=before, budget=Budget(screen_runs=1)).reason.code == "no-drop"


@pytest.mark.parametrize(("e_value", "accepted"), [(2.97, True), (3.03, False)])
def test_a_night_is_accepted_up_to_three_to_one(e_value: float, accepted: bool) -> None:
    assert standing(verdict(run(rate_of(e_value)))).accepted is accepted


def test_only_accepted_nights_are_compared_with() -> None:
    slow = tuple(replace(night, log_rates=(CENTRE - 0.5,)) for night in refused(10))
    assert standing(verdict(run(), past=slow + nights())).nights == 20
    assert standing(verdict(run(), past=slow + nights())).effect == standing(verdict(run())).effect


# --- too few nights


def test_without_a_reference_build_few_nights_take_restarts() -> None:
    answer = asked(run(), past=nights(14))
    assert (answer.order, answer.stage) == ((Build.CANDIDATE,) * 4, Stage.SCREEN)
    assert verdict(run(), past=nights(15)).status is Status.PASS


def test_few_nights_pass_or_are_inconclusive() -> None:
    passed = verdict(*[run()] * 5, past=nights(3))
    assert (passed.status, passed.reason.code) == (Status.PASS, "no-drop")
    dropped = verdict(*[run(CENTRE - 0.05)] * 5, past=nights(3))
    assert (dropped.status, dropped.reason.code) == (Status.INCONCLUSIVE, "unconfirmed-drop")


def test_the_first_night_is_held_against_the_recorded_runs_alone() -> None:
    fast = recorded(replicates=(120.0, 120.1, 120.2))
    answer = verdict(*[run()] * 5, past=(), recorded=fast)
    assert (answer.status, standing(answer).nights) == (Status.INCONCLUSIVE, 0)
    assert verdict(*[run()] * 5, past=(), recorded=replace(fast, replicates=())).status is Status.PASS


def test_the_recorded_runs_are_forgotten_once_there_is_a_history() -> None:
    far = recorded(replicates=(500.0,))
    assert verdict(run(), past=nights(15), recorded=far) == verdict(run(), past=nights(15))


def turns(step: int, nights_made: int = 400, **values: Any) -> list[int]:
    """On which of so many nights, ``step`` days apart, pairs are asked for without a suspicion. The reference build has
    run once tonight (helpers.judging.case.recorded)."""
    given = {"recorded": recorded(build="another build"), "past": nights(40), "reference_build": GOOD, **values}
    return [
        night
        for night in range(nights_made)
        if isinstance(judge(evidence(run(), good(), **given, day=739_000 + night * step)), NeedRuns)
    ]


@pytest.mark.slow
def test_a_case_whose_level_is_unknown_has_one_turn_in_every_eight_days() -> None:
    """Also after 40 nights, the most that a history gives: turns go by the calendar."""
    found = turns(1)
    assert len(found) == 50
    assert max(after - before for before, after in itertools.pairwise(found)) < 16


@pytest.mark.slow
@pytest.mark.parametrize("step", [2, 3, 7, 8, 16])
def test_no_rhythm_of_nights_leaves_a_case_out(step: int) -> None:
    assert 25 <= len(turns(step)) <= 80


@pytest.mark.parametrize("known", [0, 1, 14, 15, 40])
def test_a_case_whose_level_is_known_has_no_turns(known: int) -> None:
    assert turns(1, 40, recorded=recorded(), past=nights(known)) == []


def test_cases_take_their_turns_on_different_nights() -> None:
    tonight = evidence(run(), recorded=recorded(build="another build"), reference_build=GOOD, day=739_000)
    due = [isinstance(judge(replace(tonight, case_id=f"case {at}")), NeedRuns) for at in range(60)]
    assert 1 <= sum(due) <= 15


@pytest.mark.parametrize(("e_value", "again"), [(3.9, False), (4.1, True), (19.0, True), (21.0, False)])
def test_an_open_gain_is_looked_at_again_where_pairs_could_confirm_it(e_value: float, again: bool) -> None:
    gained = run(rate_of(e_value, direction=Direction.GAIN))
    answer = judge(evidence(gained, reference_build=GOOD))
    assert (isinstance(answer, NeedRuns) and answer.stage is Stage.SCREEN) is again
    assert isinstance(judge(evidence(gained)), Verdict)


# --- nothing recorded, or another stack, and a reference build at hand


ASIDE = [{"recorded": None}, {"recorded": recorded(differences=("cuDNN: 9.1 → 9.5",))}]


@pytest.mark.parametrize("aside", ASIDE, ids=["nothing recorded", "stack changed"])
@pytest.mark.parametrize(
    ("gap", "status"), [(0.0, Status.PASS), (-0.03, Status.REGRESSION), (0.03, Status.IMPROVEMENT)]
)
def test_pairs_decide_where_no_figure_can_be_compared(aside: dict[str, Any], gap: float, status: Status) -> None:
    given = {**aside, "past": (), "reference_build": GOOD}
    assert asked(run(), **given).stage is Stage.CONFIRM
    answer = verdict(run(), *pairs(*[gap + 0.0002 * (-1) ** at for at in range(12)]), **given)
    assert answer.status is status
    assert answer.recorded is not None and answer.recorded.reference == pytest.approx(100.0, rel=0.001)
    assert answer.recorded.label == GOOD
    assert (Code.NOT_COMPARED if aside["recorded"] else Code.NOTHING_RECORDED) in codes(answer)
    assert standing(answer).accepted is (status is not Status.REGRESSION)


@pytest.mark.parametrize("aside", ASIDE, ids=["nothing recorded", "stack changed"])
def test_three_nights_of_pairs_stand_for_what_is_not_recorded(aside: dict[str, Any]) -> None:
    given = {**aside, "reference_build": GOOD}
    pair = Compared(GOOD, (CENTRE,) * 3, (CENTRE,) * 3)
    for known in range(5):
        before = Past(nights(known), compared=(pair,) * known)
        answer = judge(replace(evidence(run(), **given), past=before))
        assert isinstance(answer, NeedRuns) is (known < 3)
    if aside["recorded"]:
        # Nights by another protocol stand for nothing, however many there are.
        other = replace(aside["recorded"], other_protocol=True)
        assert isinstance(judge(replace(evidence(run(), **given), past=before, recorded=other)), NeedRuns)
    drop = judge(replace(evidence(run(CENTRE - 0.05), **given), past=before))
    assert isinstance(drop, NeedRuns) and drop.stage is Stage.CONFIRM


@pytest.mark.parametrize("aside", ASIDE, ids=["nothing recorded", "stack changed"])
def test_a_few_lucky_nights_of_a_stack_keep_no_later_one_out(aside: dict[str, Any]) -> None:
    """Four nights lie 5% too high by chance; the pairs find both builds alike, the good one as usual."""
    high = tuple(replace(night, log_rates=(night.log_rates[0] + 0.05,)) for night in nights(4))
    pair = Compared(GOOD, (CENTRE,) * 4, (CENTRE,) * 4)
    tonight = evidence(run(), *pairs(*[0.0002 * (-1) ** at for at in range(12)]), reference_build=GOOD, **aside)
    answer = judge(replace(tonight, past=Past(high, compared=(pair,) * 4)))
    assert isinstance(answer, Verdict)
    assert standing(answer).e_drop > 3
    assert (answer.status, standing(answer).accepted) == (Status.PASS, True)


def test_the_level_of_another_stack_counts_on_this_one() -> None:
    """The build gained 4% over the reference build; of that 2% are lost with the night's cuDNN."""
    gained = Compared(GOOD, (CENTRE + 0.04,) * 16, (CENTRE,) * 16)
    tonight = evidence(
        run(), *pairs(*[0.02] * 12), past=(), reference_build=GOOD,
        recorded=recorded(build="another build", differences=("cuDNN: 9.1 → 9.5",)),
    )  # fmt: skip
    answer = judge(replace(tonight, past=Past(elsewhere=(gained,), gained=True)))
    assert isinstance(answer, Verdict)
    assert answer.status is Status.REGRESSION
    assert standing(answer).pairs.level == pytest.approx(math.expm1(0.04))


# --- stalls


def test_stalls_beyond_all_earlier_nights_are_looked_at_twice() -> None:
    assert verdict(run(stall_share=0.2), run(stall_share=0.01)).status is Status.PASS
    answer = verdict(run(stall_share=0.2), run(stall_share=0.3))
    assert (answer.status, answer.reason.code) == (Status.INCONCLUSIVE, "stalls")
    assert not standing(answer).accepted


@pytest.mark.parametrize(("share", "status"), [(0.0299, Status.PASS), (0.0301, Status.INCONCLUSIVE)])
def test_stalls_of_two_points_more_are_too_many(share: float, status: Status) -> None:
    assert verdict(*[run(stall_share=share)] * 2).status is status


@pytest.mark.parametrize(("beyond", "status"), [(-0.001, Status.PASS), (0.001, Status.INCONCLUSIVE)])
def test_where_stalls_vary_they_must_stand_out_by_three_spreads(beyond: float, status: Status) -> None:
    past = tuple(replace(night, stall_share=0.1 + 0.1 * (at % 2)) for at, night in enumerate(nights()))
    # Half of them 0.05 above their median and half below: a spread of 0.074 above the largest, 0.2.
    allowed = 0.2 + 3 * 1.4826 * 0.05
    assert verdict(*[run(stall_share=allowed + beyond)] * 2, past=past).status is status


def test_stalls_of_nights_that_were_not_accepted_excuse_nothing() -> None:
    past = nights() + refused(1, stall_share=0.5)
    assert verdict(*[run(stall_share=0.2)] * 2, past=past).reason.code == "stalls"


# --- what is no evidence


@pytest.mark.parametrize("log_rate", [None, math.nan, math.inf])
def test_a_run_without_a_median_step_is_inconclusive(log_rate: float | None) -> None:
    for runs in ((replace(run(), log_rate=log_rate),), (run(CENTRE - 0.03), replace(new(), log_rate=log_rate))):
        answer = verdict(*runs, reference_build=GOOD)
        assert (answer.status, answer.reason.code) == (Status.INCONCLUSIVE, "rule-not-computable")


@pytest.mark.parametrize(
    "values", [{"log_rates": (math.nan,)}, {"evidence": 0.0}, {"evidence": math.inf}, {"stall_share": math.nan}]
)
def test_a_night_that_holds_no_number_cannot_be_made(values: dict[str, Any]) -> None:
    with pytest.raises(SuiteError, match="night s1"):
        Night(**{"log_rates": (1.0,), "session": "s1", **values})


# Some runs are all slow, some all as usual: of runs that are drawn one by one hardly any night is slower or passes.
SLOW_GAPS = st.lists(st.floats(-0.3, -0.06), min_size=3, max_size=5)
USUAL_GAPS = st.lists(st.floats(-0.003, 0.003), min_size=1, max_size=5)


@pytest.mark.slow
@given(
    st.lists(st.floats(-0.3, 0.3), min_size=1, max_size=5) | SLOW_GAPS | USUAL_GAPS,
    st.integers(0, 20),
    st.floats(0.2, 2) | st.floats(0.2, 1e6),
    st.sampled_from([None, GOOD]),
    st.sampled_from([None, None, GROUP]),
)
def test_screening_alone_never_fails_a_case(
    gaps: list[float], known: int, carried: float, good_build: str | None, suspicion: str
) -> None:
    past = nights(known)[:-1] + nights(1, evidence=carried) if known else ()
    given_evidence: Evidence = evidence(
        *[run(CENTRE + gap) for gap in gaps], past=past, reference_build=good_build, suspicion=suspicion
    )
    answer = judge(given_evidence)
    if isinstance(answer, NeedRuns):
        assert answer.order
        assert Build.REFERENCE not in answer.order or good_build is not None
        return
    if answer.status is Status.SLOWER:
        assert good_build is None and len(gaps) >= 3
        assert max(gaps) < math.log(0.95)
        return
    assert answer.status in (Status.PASS, Status.INCONCLUSIVE)
    if answer.status is Status.PASS:
        found = standing(answer)
        assert found.effect is not None
        assert found.evidence < 2 or found.effect.low >= -0.005
        assert not suspicion


# --- a segment that began elsewhere


@pytest.mark.parametrize("level", [math.log(0.96), math.log(1.1)])
def test_a_new_segment_is_not_held_against_the_entry_that_it_left_behind(level: float) -> None:
    began = tuple(replace(night, log_rates=(night.log_rates[0] + level,)) for night in nights(1))
    answer = verdict(*[run(CENTRE + level)] * 5, past=began)
    assert (answer.status, answer.reason.code) == (Status.PASS, "no-drop")
    assert standing(answer).accepted
    assert standing(answer).effect.point == pytest.approx(0, abs=0.002)
