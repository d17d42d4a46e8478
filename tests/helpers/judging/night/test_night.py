"""The verdict on a night: groups that fell together, most cases moving alike, and what confirms or clears them."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from helpers.judging.case.evidence import CaseKey
from helpers.judging.case.verdict import PairStanding, Standing, Status
from helpers.judging.night.groups import (
    ALL_CASES,
    RULES,
    NightCase,
    NightRules,
    common_move,
    find_alarms,
    labels_of,
)
from helpers.judging.night.verdict import Cause, NeedConfirmation, NightVerdict, judge_night
from helpers.judging.statistics import EffectSize
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import SuiteError

QUIET_SIGMA = 0.001


def case(
    number: int,
    shift: float = 0.0,
    e_drop: float = 1.0,
    group: str = "amp",
    status: Status = Status.PASS,
    can_confirm: bool = False,
    **standing: Any,
) -> NightCase:
    """Member ``number`` of ``group`` and of all cases; noisier the larger its number."""
    values: dict[str, Any] = {"sigma": QUIET_SIGMA * (1 + number / 100), "tau": 0.0007, "nights": 40, "runs": 1}
    values |= {"effect": EffectSize(shift, shift, shift), "evidence": e_drop, "accepted": True, **standing}
    labels = (ALL_CASES, group)
    known = Standing(log_rate=5.0, e_drop=e_drop, **values)
    return NightCase(f"case{number}", "v100", labels, status, known, can_confirm=can_confirm)


def fallen(count: int = 4, e_drop: float = 60.0, shift: float = -0.02, **also: Any) -> list[NightCase]:
    """A night of ten cases, ``count`` of which fell: all amp."""
    others = [case(number, group="fp32", e_drop=0.7) for number in range(count, 10)]
    return [*(case(number, shift, e_drop, **also) for number in range(count)), *others]


def verdict(cases: list[NightCase], confirmed: dict[CaseKey, NightCase] | None = None, **also: Any) -> NightVerdict:
    answer = judge_night(cases, confirmed or {}, **also)
    assert isinstance(answer, NightVerdict)
    return answer


def asked(cases: list[NightCase], confirmed: dict[CaseKey, NightCase] | None = None) -> NeedConfirmation:
    answer = judge_night(cases, confirmed or {})
    assert isinstance(answer, NeedConfirmation)
    return answer


def alike(before: NightCase, machine_slow: bool = False, e_confirm: float = 0.1) -> NightCase:
    """The case after its interleaved runs found no slower build."""
    pairs = PairStanding(4, e_confirm, machine_slow=machine_slow)
    effect = EffectSize(-0.0003, -0.0003, -0.0003)
    known = replace(before.standing, pairs=pairs, shift=before.shift, effect=effect)
    return replace(before, standing=known)


def slower(before: NightCase) -> NightCase:
    known = replace(before.standing, pairs=PairStanding(4, 1e4), shift=before.shift)
    return replace(before, standing=known, status=Status.REGRESSION)


# ---- groups


def test_nothing_that_moved_is_a_quiet_night() -> None:
    found = verdict([case(number) for number in range(10)])
    assert (found.status, found.reason.code, found.groups, found.common) == (Status.PASS, "quiet", (), None)


def test_a_group_falls_together_where_no_case_does_alone() -> None:
    found = verdict(fallen(e_drop=15.0, shift=-0.007))
    (group,) = found.groups
    assert (group.alarm.label, group.alarm.shift, len(group.alarm.members)) == ("amp", -0.007, 4)
    assert (found.status, found.reason.code) == (Status.INCONCLUSIVE, "unconfirmed-group-drop")


def product_alone(needed: float) -> NightRules:
    """Rules for which three groups need ``needed``; a drift far above all shifts leaves the product alone."""
    return replace(RULES, error_rate=3 / needed, machine_drift=1.0)


@pytest.mark.parametrize(("needed", "alarms"), [(999.0, 1), (1100.0, 0)])
def test_a_group_is_reported_from_the_e_value_that_is_needed(needed: float, alarms: int) -> None:
    # (10 x 10 x 20 + about 0) / 2: the fourth and largest member is left out.
    cases = fallen(e_drop=10.0)
    cases[1] = case(1, -0.02, 20.0)
    cases[2] = case(2, -0.02, 1e6)
    found = find_alarms(cases, product_alone(needed))
    assert len(found) == alarms
    assert all(alarm.e_value == pytest.approx(1000.0, rel=0.01) and alarm.needed == needed for alarm in found)


def test_the_e_value_needed_grows_with_the_groups_of_the_night() -> None:
    (alarm,) = find_alarms(fallen())
    assert alarm.needed == 3 / RULES.error_rate
    more = [replace(each, labels=(*each.labels, "vgg16")) for each in fallen()[:3]]
    (alarm,) = find_alarms([*more, *fallen()[3:]])
    assert alarm.needed == 4 / RULES.error_rate


def test_one_slow_case_makes_no_group() -> None:
    assert verdict([case(0, -0.1, 1e6), *fallen(0)[1:]]).groups == ()


def test_two_cases_make_no_group() -> None:
    assert find_alarms(fallen(2, e_drop=1e5)) == ()
    assert len(find_alarms(fallen(3, e_drop=1e5))) == 1


def test_a_drop_below_the_tolerance_is_none_however_certain() -> None:
    assert find_alarms(fallen(e_drop=1e5, shift=-0.0049)) == ()
    assert len(find_alarms(fallen(e_drop=1e5, shift=-0.0051))) == 1
    coarse = [replace(each, tolerance=0.03) for each in fallen(e_drop=1e5)]
    assert find_alarms(coarse) == ()


def test_many_noisy_members_are_found_of_which_none_says_anything() -> None:
    noisy = [case(number, -0.02, 1.0, sigma=0.008) for number in range(20)]
    (alarm,) = find_alarms([*noisy, *(case(number, group="fp32") for number in range(20, 30))])
    assert alarm.label == "amp"


def test_what_a_machine_drifts_is_expected_of_all_its_cases() -> None:
    cases = [case(number, -0.006, 1.0) for number in range(20)]
    assert find_alarms(cases) == ()
    assert len(find_alarms(cases, replace(RULES, machine_drift=0.0002))) == 1


def test_repeated_runs_lessen_the_noise_between_runs_but_not_between_nights() -> None:
    known = case(0, sigma=0.01, tau=0.003, runs=4)
    assert known.noise == pytest.approx(math.hypot(0.005, 0.003))


def test_a_case_that_was_compared_counts_with_its_comparison() -> None:
    found = [alike(each) for each in fallen()[:4]]
    assert find_alarms([*found, *fallen()[4:]]) == ()


@pytest.mark.parametrize(("effect", "counts"), [(0.02, False), (-0.004, True)])
def test_a_comparison_that_found_the_build_faster_is_no_evidence_for_a_drop(effect: float, counts: bool) -> None:
    also = {"pairs": PairStanding(4, 1e4), "effect": EffectSize(effect, effect, effect), "shift": -0.02}
    cases = [replace(each, standing=replace(each.standing, **also)) for each in fallen()[:4]]
    assert bool(find_alarms([*cases, *fallen()[4:]], product_alone(100.0))) is counts


def test_a_case_that_was_found_slower_is_told_by_its_own_row_and_not_by_a_group() -> None:
    cases = fallen()
    cases[:2] = [slower(each) for each in cases[:2]]
    found = verdict(cases)
    assert (found.groups, found.reason.code) == ((), "quiet")


def test_everything_that_fell_is_told_once_and_by_its_largest_name() -> None:
    (alarm,) = find_alarms([case(n, -0.02, 60.0, group=f"{n % 3}-card") for n in range(12)])
    assert (alarm.label, len(alarm.members)) == (ALL_CASES, 12)


def test_a_group_inside_all_cases_is_told_by_its_own_name() -> None:
    # The others lean a little towards a drop, so that all cases together have the larger e-value.
    others = [case(number, -0.0002, 1.2, group="fp32") for number in range(4, 10)]
    (alarm,) = find_alarms([*fallen()[:4], *others])
    assert alarm.label == "amp"


def test_two_groups_apart_are_both_told() -> None:
    more = [case(number, -0.03, 60.0, group="vgg16") for number in range(20, 23)]
    labels = {alarm.label for alarm in find_alarms([*fallen(5), *more])}
    assert labels == {"amp", "vgg16"}


# ---- confirmation


def test_the_quietest_is_who_varies_least_between_runs() -> None:
    cases = fallen(can_confirm=True)
    cases[2] = replace(cases[2], standing=replace(cases[2].standing, sigma=0.0005))
    assert asked(cases).case_id == "case2"


def test_a_member_that_was_compared_tonight_is_not_asked_again() -> None:
    cases = fallen(6, can_confirm=True, e_drop=1e4)
    cases[0] = alike(cases[0], e_confirm=3.0)
    assert asked(cases).case_id == "case1"


def test_a_member_without_a_reference_build_is_passed_over() -> None:
    cases = fallen(can_confirm=True)
    cases[0] = replace(cases[0], can_confirm=False)
    assert asked(cases).case_id == "case1"


def test_a_reference_build_that_is_as_slow_names_the_machine_and_ends_the_questions() -> None:
    cases = fallen(can_confirm=True)
    found = verdict(cases, {cases[0].key: alike(cases[0], machine_slow=True)}, changed=("driver 1 → 2",))
    assert (found.status, found.reason.code, found.suspect) == (Status.PASS, "machine-suspect", "machine")


def test_builds_that_are_alike_in_one_member_are_asked_about_in_the_next_up_to_three() -> None:
    cases = fallen(6, can_confirm=True, e_drop=1e4)
    confirmed: dict[CaseKey, NightCase] = {}
    for number in range(RULES.confirmations):
        request = asked(cases, confirmed)
        assert request.case_id == f"case{number}"
        confirmed[request.key] = alike(cases[number])
    found = verdict(cases, confirmed)
    assert (found.status, found.reason.code, found.suspect) == (Status.PASS, "machine-suspect", "machine")
    assert found.groups[0].asked == ("case0", "case1", "case2")


@pytest.mark.parametrize(
    ("good", "machine"), [(-0.02, True), (-0.012, True), (0.0, False), (0.01, False), (None, True)]
)
def test_both_builds_alike_is_the_machine_only_where_the_good_build_fell_itself(
    good: float | None, machine: bool
) -> None:
    cases = fallen(6, can_confirm=True, e_drop=1e4)
    cases = [replace(each, standing=replace(each.standing, sigma=0.001, tau=0.001)) for each in cases]
    confirmed = {each.key: alike(each) for each in cases[:3]}
    pairs = PairStanding(4, 0.1, good_shift=good)
    beside = {key: replace(each, standing=replace(each.standing, pairs=pairs)) for key, each in confirmed.items()}
    found = verdict(cases, beside)
    assert (found.suspect == "machine") is machine
    assert found.status is (Status.PASS if machine else Status.INCONCLUSIVE)


def test_pairs_at_a_level_that_nobody_knows_settle_no_group() -> None:
    cases = fallen(3, can_confirm=True, e_drop=1e4)
    unknown = {each.key: replace(alike(each), status=Status.INCONCLUSIVE) for each in cases}
    found = verdict(cases, unknown)
    assert (found.status, found.reason.code) == (Status.INCONCLUSIVE, "unconfirmed-group-drop")


def test_a_suspicion_that_rested_on_the_confirmed_member_is_dropped() -> None:
    cases = fallen(3, can_confirm=True, e_drop=100.0)
    found = verdict(cases, {cases[0].key: alike(cases[0])})
    assert (found.status, found.reason.code, found.suspect) == (Status.PASS, "group-not-confirmed", "")
    assert found.groups[0].cause is Cause.CHANCE


@pytest.mark.parametrize("broken_off", [0, 1])
def test_a_confirmation_that_settled_nothing_is_inconclusive(broken_off: int) -> None:
    cases = fallen(3, can_confirm=True, e_drop=1e4)
    # Pairs used up, or broken off before there were any.
    open_ones = {each.key: alike(each, e_confirm=3.0) for each in cases[:3]}
    confirmed = {**open_ones, **{each.key: each for each in cases[:broken_off]}}
    found = verdict(cases, confirmed)
    assert (found.status, found.reason.code) == (Status.INCONCLUSIVE, "unconfirmed-group-drop")


# ---- most cases alike


def moved(count: int, shift: float, of: int = 10, **also: Any) -> list[NightCase]:
    return [case(number, shift if number < count else 0.0, 1.0, f"all {number} cases", **also) for number in range(of)]


@pytest.mark.parametrize(("count", "found"), [(6, False), (7, True), (10, True)])
def test_two_thirds_of_the_cases_have_to_move(count: int, found: bool) -> None:
    assert (common_move(moved(count, -0.02)) is not None) is found
    assert (common_move(moved(count, 0.02)) is not None) is found


def test_what_the_noise_of_each_case_explains_is_no_move() -> None:
    assert common_move(moved(10, -0.008, sigma=0.01)) is None
    # Beyond the noise of each, but not by enough for all: a sum of 1.1 x sqrt(10) = 3.5.
    assert common_move(moved(10, -0.011, sigma=0.01, tau=0.0)) is None
    assert common_move(moved(10, -0.014, sigma=0.01, tau=0.0)) is not None


def test_one_outlier_is_not_the_sum() -> None:
    cases = moved(10, -0.0105, sigma=0.01, tau=0.0)
    cases[0] = case(0, -0.9, sigma=0.01, tau=0.0)
    assert common_move(cases) is None


def test_a_move_below_the_tolerance_is_none() -> None:
    assert common_move(moved(10, 0.0049)) is None
    assert common_move(moved(10, 0.0051)) is not None


def test_most_cases_faster_name_the_machine_by_how_much_and_what_to_look_at() -> None:
    found = verdict(moved(8, 0.02), changed=("GPU: SM clock: 1 → 2",))
    assert (found.status, found.reason.code, found.suspect) == (Status.PASS, "machine-suspect", "machine")


def test_most_cases_faster_with_builds_confirmed_faster_name_the_build() -> None:
    cases = moved(8, 0.02)
    for number in (0, 1):
        cases[number] = replace(alike(cases[number]), status=Status.IMPROVEMENT)
    assert (verdict(cases).reason.code, verdict(cases).suspect) == ("builds-faster", "build")
    cases[2:5] = [alike(each) for each in cases[2:5]]
    assert (verdict(cases).reason.code, verdict(cases).suspect) == ("machine-suspect", "machine")


def test_most_cases_slower_that_no_group_tells_are_asked_about_too() -> None:
    cases = moved(8, -0.02, can_confirm=True)
    assert find_alarms(cases, replace(RULES, error_rate=1e-290)) == ()
    rules = replace(RULES, error_rate=1e-290)
    answer = judge_night(cases, {}, rules=rules)
    assert isinstance(answer, NeedConfirmation)
    unconfirmed = verdict(moved(8, -0.02), rules=rules)
    assert (unconfirmed.status, unconfirmed.suspect) == (Status.INCONCLUSIVE, "machine")


def test_most_cases_slower_by_the_build_do_not_name_the_machine() -> None:
    found = verdict([slower(each) for each in moved(10, -0.02)])
    assert (found.status, found.suspect, found.reason.code) == (Status.REGRESSION, "build", "group-regression")


def test_one_slower_build_on_a_slow_machine_does_not_clear_the_machine() -> None:
    cases = [alike(each, machine_slow=True) for each in moved(10, -0.02)]
    cases[0] = slower(cases[0])
    found = verdict(cases)
    assert (found.status, found.suspect) == (Status.PASS, "machine")


# ---- values


@pytest.mark.parametrize("count", [0, 1, 2])
def test_fewer_cases_than_a_group_have_no_verdict(count: int) -> None:
    assert judge_night(moved(count, -0.5, of=count), {}) is None


@pytest.mark.parametrize("name", ["e_drop", "sigma", "tau"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0])
def test_a_number_that_is_none_is_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(SuiteError) as caught:
        case(0, **{name: value})
    assert caught.value.field == name


def test_the_effect_of_a_comparison_is_not_taken_for_tonight_against_the_nights_before() -> None:
    compared = case(0, -0.02, pairs=PairStanding(4, 1.0))
    assert compared.shift is None
    assert alike(case(0, -0.02)).shift == -0.02


def test_a_verdict_is_plain_values() -> None:
    cases = fallen(8, can_confirm=True, e_drop=1e4)
    found = verdict(cases, {cases[0].key: slower(cases[0])})
    record = json.loads(json.dumps(found.to_record(), allow_nan=False))
    assert (record["status"], record["reason"]["code"], record["suspect"]) == (
        "REGRESSION",
        "group-regression",
        "build",
    )
    (group,) = record["groups"]
    assert (group["cause"], group["asked"], group["alarm"]["label"]) == ("build", ["case0"], "amp")
    assert (record["common"]["cases"], len(record["common"]["moved"])) == (10, 8)


def test_a_case_belongs_to_the_groups_of_its_properties() -> None:
    many = Case.parse("paddle-vgg16-amp_o2-bs8-2x4-dali-static")
    assert labels_of(many, "v100") == (
        ALL_CASES, "v100", "paddle", "vgg16", "amp_o2", "8-card", "dali", "static", "amp", "multi-card", "multi-node"
    )  # fmt: skip
    one = labels_of(Case.parse("pytorch-resnet50v1.5-fp32-bs8-1x1-dali"), "a100")
    assert not {"multi-card", "multi-node", "amp"} & set(one)
