"""Two sides of a case held against each other: pairs before nights, one segment only, and what stays open."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import astuple, replace

import pytest

from helpers.judging.case.compare import CaseComparison, compare
from helpers.judging.case.compare_sides import KeptRun, pair_up, runs_of_nights
from helpers.judging.case.confirm import CASES, THRESHOLD, Confirmation, confirm
from helpers.judging.case.evidence import Budget, Build, Stage
from helpers.judging.case.level import Level
from helpers.judging.case.noise import Noise, learn
from helpers.judging.case.screen import Screening
from helpers.judging.case.verdict import Status
from helpers.judging.finding import Code
from tests.helpers.judging.case.evidences import GROUP, codes
from tests.helpers.judging.case.plain_evidence import evidence, recorded

CASE = "paddle-vgg16-fp32-bs8-1x2-dali-static"
SEGMENT = {"host": "h", "framework line": "paddle 3.3", "driver": "535"}
NOISE = Noise(centre=0.0, sigma=0.003, tau=0.0015, nights=20)


def run(log_rate: float, session: str = "s1", **values: object) -> KeptRun:
    given: dict[str, object] = {
        "uuid": f"{session} {log_rate} {random.random()}",
        "case_id": CASE,
        "target": "cpu",
        "session": session,
        "created": f"2026-11-01 {session}",
        "log_rate": log_rate,
        "segment": SEGMENT,
    }
    return KeptRun(**{**given, **values})  # type: ignore[arg-type]


def nights(log_rates: Sequence[float], name: str, **values: object) -> list[KeptRun]:
    return [run(rate, f"{name}{number:02}", **values) for number, rate in enumerate(log_rates)]


def scattered(mean: float, count: int, seed: int, sigma: float = 0.003) -> list[float]:
    source = random.Random(seed)
    return [source.gauss(mean, sigma) for _ in range(count)]


def interleaved(differences: Sequence[float], session: str = "ab") -> tuple[list[KeptRun], list[KeptRun]]:
    """Pairs in one session: the reference build as the reference, the new one as the candidate."""
    old, new = [], []
    for number, difference in enumerate(differences):
        common = {"session": session, "stage": Stage.CONFIRM, "replicate": 2 * number}
        base = 1.0 + 0.001 * number
        old.append(run(base, role=Build.REFERENCE, **common))
        new.append(run(base + difference, role=Build.CANDIDATE, **common))
    return old, new


def judged(
    a: Sequence[KeptRun], b: Sequence[KeptRun], noise: Noise = NOISE, tolerance: float = 0.005, cases: int = 1
) -> CaseComparison:
    (pairing,) = pair_up(a, b)
    return compare(pairing, noise, tolerance=tolerance, band=0.05, rule="median-step", cases=cases)


# --- nights apart


def test_a_drop_over_several_nights_is_slower_beyond_the_band() -> None:
    found = judged(nights(scattered(1.0, 8, 1), "a"), nights(scattered(0.92, 4, 2), "b"))
    assert (found.status, found.basis) == (Status.SLOWER, "nights")
    assert found.effect is not None and found.effect.low is not None and found.effect.high is not None
    assert found.effect.low < found.effect.point < found.effect.high
    assert found.effect.point == pytest.approx(math.expm1(-0.08), abs=0.005)
    assert (found.a.runs, found.a.nights, found.b.runs, found.b.nights) == (8, 8, 4, 4)


@pytest.mark.parametrize(
    ("rates", "code"),
    [([0.92] * 4, "slower-unconfirmed"), ([0.92] * 3, "slower-unconfirmed"), ([0.96] * 4, "unconfirmed-drop"),
     ([0.92, 0.92, 0.955, 0.92], "unconfirmed-drop"), ([0.90, 0.90], "unconfirmed-drop")],
)  # fmt: skip
def test_nights_apart_fail_only_with_every_one_of_three_runs_beyond_the_band(rates: list[float], code: str) -> None:
    found = judged(nights([1.0] * 12, "a"), nights(rates, "b"))
    assert found.reason.code == code
    assert found.status is (Status.SLOWER if code == "slower-unconfirmed" else Status.INCONCLUSIVE)


def test_a_gain_of_nights_apart_is_not_confirmed() -> None:
    found = judged(nights(scattered(1.0, 8, 1), "a"), nights(scattered(1.05, 4, 2), "b"))
    assert (found.status, found.reason.code) == (Status.PASS, "faster-unconfirmed")


@pytest.mark.parametrize(("runs", "code"), [(2, "too-few-runs"), (3, "no-drop")])
def test_three_runs_a_side_are_the_fewest_that_pass(runs: int, code: str) -> None:
    few = nights([1.0] * runs, "b")
    assert judged(nights([1.0] * 8, "a"), few).reason.code == code
    assert judged(few, nights([1.0] * 8, "a")).reason.code == code


def test_a_change_within_the_tolerance_is_no_regression() -> None:
    noise = Noise(0.0, 0.0005, 0.0003, 30)
    rates = scattered(1.0, 12, 1, 0.0005), scattered(0.98, 12, 2, 0.0005)
    sides = nights(rates[0], "a"), nights(rates[1], "b")
    assert judged(*sides, noise).reason.code == "unconfirmed-drop"
    found = judged(*sides, noise, tolerance=0.05)
    assert (found.status, found.reason.code) == (Status.PASS, "below-tolerance")


def test_more_cases_need_more_evidence() -> None:
    sides = nights(scattered(1.0, 8, 1), "a"), nights(scattered(0.92, 3, 2), "b")
    alone = judged(*sides)
    assert (alone.status, alone.threshold) == (Status.SLOWER, THRESHOLD)
    many = int((alone.e_drop or 0) * CASES / THRESHOLD) + 1
    among_many = judged(*sides, cases=many)
    assert (among_many.status, among_many.effect) == (Status.INCONCLUSIVE, alone.effect)


def test_a_log_is_compared_whatever_it_states_of_its_stack_and_fails_nothing() -> None:
    log = [run(1.0, f"log {number}", segment={}, is_log=True) for number in range(3)]
    found = judged(log, nights([0.8] * 6, "b"))
    assert (found.status, found.reason.code) == (Status.INCONCLUSIVE, "unconfirmed-drop")
    assert found.effect.point == pytest.approx(math.expm1(-0.2), abs=0.005)
    assert judged(nights([1.0] * 6, "a"), log).status is Status.PASS


@pytest.mark.parametrize(("logs", "has_interval"), [(1, False), (2, False), (3, True)])
def test_fewer_than_three_logs_have_a_difference_and_no_interval(logs: int, has_interval: bool) -> None:
    log = [run(1.0, f"log {number}", segment={}, is_log=True) for number in range(logs)]
    measured = nights([1.1] * 6, "b")
    for a, b, change in ((log, measured, 0.1), (measured, log, -0.1)):
        found = judged(a, b)
        assert ((found.effect is not None), found.basis) == (has_interval, "nights")
        assert found.change == pytest.approx(math.expm1(change))
        assert has_interval or (found.status, found.reason.code) == (Status.INCONCLUSIVE, "too-few-runs")


@pytest.mark.slow
def test_false_alarms_over_nights_apart_stay_below_the_stated_rate() -> None:
    """400 comparisons of builds that are the same, noise learned from the nights themselves: 5% of them at most."""
    source = random.Random(7)
    alarms = 0
    for _ in range(400):
        rates = [source.gauss(0, 0.0012) + source.gauss(0, 0.003) for _ in range(24)]
        found = judged(nights(rates[:20], "a"), nights(rates[20:], "b"), learn([[rate] for rate in rates]))
        alarms += found.status in (Status.REGRESSION, Status.SLOWER)
    assert alarms <= 20


# --- pairs


def test_pairs_that_show_neither_stay_open() -> None:
    old, new = interleaved([-0.05, 0.012, -0.03, 0.014])
    found = judged(old, new, replace(NOISE, sigma=0.01))
    assert (found.status, found.reason.code) == (Status.INCONCLUSIVE, "open")


def test_one_pair_is_no_comparison_by_pairs() -> None:
    old, new = interleaved([-0.03])
    assert judged(old, new).basis == "nights"


def test_runs_of_a_confirmation_that_are_all_of_one_role_are_no_pairs() -> None:
    common = {"session": "x", "stage": Stage.CONFIRM}
    a = [run(1.0, replicate=number, **common) for number in range(3)]
    b = [run(0.9, replicate=number, **common) for number in range(3)]
    assert judged(a, b).basis == "nights"


# --- segments and sides


def test_pairs_decide_whatever_the_stack_and_say_in_what_it_differs() -> None:
    """A wheel that brings another cuDNN: both ran in turn on the same cards."""
    other = {**SEGMENT, "cudnn": "9.5", "framework line": "paddle 3.4"}
    old, new = interleaved([-0.03, -0.031, -0.029, -0.03])
    old = [replace(each, segment={**SEGMENT, "cudnn": "9.1"}) for each in old]
    found = judged(old, [replace(each, segment=other) for each in new])
    assert (found.status, found.basis) == (Status.REGRESSION, "pairs")
    assert Code.SIDES_DIFFER in codes(found)


def test_pairs_of_two_stacks_are_two_comparisons() -> None:
    """The driver changed between two nights, and both builds ran on both of them."""
    other = {**SEGMENT, "driver": "550"}
    old, new = interleaved([-0.03] * 4)
    older, newer = ([replace(each, segment=other) for each in side] for side in interleaved([0.03] * 4, "later"))
    found = pair_up([*old, *older], [*new, *newer])
    assert [[round(b - a, 3) for a, b in each.pairs] for each in found] == [[-0.03] * 4, [0.03] * 4]


def test_runs_of_another_protocol_are_compared_by_pairs_only() -> None:
    short, long = {"window_steps": 20}, {"window_steps": 100}
    found = judged(nights([1.0] * 4, "a", protocol=short), nights([0.9] * 4, "b", protocol=long))
    assert found.status is Status.INCOMPARABLE


# --- the level of the nights before


LEVEL = Level(known=True, offset=math.log(1.05), error=0.001, pairs=12)


@pytest.mark.parametrize(("drop", "level"), [(0.0, None), (0.03, None), (0.02, LEVEL), (-0.02, None), (-0.05, LEVEL)])
def test_pairs_are_decided_as_a_night_decides_them(drop: float, level: Level | None) -> None:
    differences = scattered(-drop, 6, 4)
    (pairing,) = pair_up(*interleaved(differences))
    found = compare(pairing, NOISE, tolerance=0.005, band=0.05, rule="median-step", cases=1, level=level)
    good, new = zip(*pairing.pairs, strict=True)
    asked = evidence(budget=Budget(pairs=6), suspicion=GROUP, recorded=recorded())
    night = confirm(Screening(asked, (), NOISE, 20), level or Level(), new, good, "why")
    assert isinstance(night, Confirmation)
    told = *astuple(found.effect), max(found.e_drop or 0, found.e_gain or 0), found.threshold
    assert told == (*astuple(night.effect), night.evidence, night.threshold)


def test_of_several_segments_each_common_one_is_compared() -> None:
    other = {**SEGMENT, "driver": "550"}
    alone = {**SEGMENT, "driver": "1"}
    a = nights([1.0] * 4, "a") + nights([2.0] * 4, "x", segment=other) + nights([9.0], "z", segment=alone)
    b = nights([1.0] * 4, "b") + nights([2.0] * 4, "y", segment=other)
    found = list(pair_up(a, b))
    assert [(len(each.a), len(each.b), each.apart) for each in found] == [(4, 4, ()), (4, 4, ())]
    assert {each.a[0].log_rate == each.b[0].log_rate for each in found} == {True}


def test_a_case_of_one_side_is_told() -> None:
    other = replace(run(1.0), case_id="paddle-resnet50v1.5-fp32-bs8-1x2-dali-static")
    found = [
        compare(each, NOISE, tolerance=0.005, band=0.05, rule="median-step", cases=1)
        for each in pair_up([run(1.0)], [other])
    ]
    assert [each.status for each in found] == [Status.INCOMPARABLE] * 2
    assert [each.a.runs + each.b.runs for each in found] == [1, 1]


def test_one_case_on_two_targets_is_two_comparisons() -> None:
    a = [run(1.0), run(1.0, target="v100")]
    b = [run(1.0, "b"), run(1.0, "b", target="v100")]
    assert [each.target for each in pair_up(a, b)] == ["cpu", "v100"]


# --- small parts


def test_runs_are_grouped_by_session_in_the_order_they_were_made() -> None:
    runs = [run(2.0, "b", replicate=1, created="2"), run(1.0, "b", created="2"), run(0.0, "a", created="1")]
    assert runs_of_nights(runs) == ((0.0,), (1.0, 2.0))


def test_only_the_reference_build_s_runs_on_side_a_are_beside_the_build_under_test() -> None:
    old, new = interleaved(scattered(0.0, 4, 3))
    assert [each.is_beside_good for each in (*pair_up(old, new), *pair_up(new, old))] == [True, False]
    (apart,) = pair_up(nights([1.0], "a"), nights([1.0], "b"))
    assert not apart.is_beside_good
