"""Machines on which the good build is left behind: whose runs are faster, since when, and what was recorded."""

from __future__ import annotations

import math

import pytest

from benchmarks.verdict_behind import GAIN_NIGHT, LARGEST_GAIN, SMALLEST_GAIN, LeftBehind
from benchmarks.verdict_session import Machine
from benchmarks.verdict_worlds import At, Synthetic
from helpers.judging.evidence import Build
from helpers.judging.statistics import summarise
from helpers.plan.case_plan import recorded_reference

WHOLE = Synthetic(3, 0)
BEHIND = LeftBehind(WHOLE, 3)


def ahead(case: int, night: int, build: Build = Build.CANDIDATE) -> float:
    """By how much a run is faster than without the gain, as a fraction."""
    at = At(0, night)
    return math.expm1(BEHIND.run(at, case, build, 0).log_rate - WHOLE.run(at, case, build, 0).log_rate)


def test_gains_are_between_1_and_8_percent_and_of_each_world_its_own() -> None:
    assert len(BEHIND.gains) == len(WHOLE.cases)
    assert SMALLEST_GAIN <= min(BEHIND.gains) < 0.02
    assert 0.06 < max(BEHIND.gains) <= LARGEST_GAIN
    assert LeftBehind(WHOLE, 3).gains == BEHIND.gains
    assert LeftBehind(WHOLE, 3, world=1).gains != BEHIND.gains


@pytest.mark.parametrize("case", [0, 1])
def test_the_build_under_test_is_faster_from_the_start_or_from_a_night_on(case: int) -> None:
    gain = BEHIND.gains[case]
    before = gain if case in BEHIND.recorded_faster else 0.0
    assert ahead(case, GAIN_NIGHT - 1) == pytest.approx(before, abs=1e-9)
    assert ahead(case, GAIN_NIGHT) == pytest.approx(gain, abs=1e-9)
    assert ahead(case, 40, Build.REFERENCE) == 0.0


def test_the_entry_is_of_the_faster_build_where_that_one_was_recorded() -> None:
    machine = Machine.of(BEHIND, recorded_faster=BEHIND.recorded_faster)
    for case in (0, 1):
        faster = case in BEHIND.recorded_faster
        plan = machine.plans[case]
        build = Build.CANDIDATE if faster else Build.REFERENCE
        rates = [math.exp(BEHIND.run(At(0, 0), case, build, 1000 + number).log_rate) for number in range(7)]
        assert plan.recorded is not None
        assert plan.recorded.samples_per_s == summarise(tuple(rates)).centre
        reference = recorded_reference(plan, {})
        assert reference is not None
        assert (reference.build == plan.reference_id) is not faster
