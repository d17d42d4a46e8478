"""What nights of limited time find a machine hour: how the schemes lay a night out, and the table."""

from __future__ import annotations

import pytest

from benchmarks.verdict_hours import Hours, fixed, main, mean_pairs, needs_of, planned, run_seconds, table_text
from benchmarks.verdict_memory import HeldNights
from benchmarks.verdict_session import Machine
from benchmarks.verdict_worlds import Synthetic
from helpers.judging.night_cost import DROP_PAIRS, UNSUSPECTED_PAIRS

SECONDS = {"a": 60.0, "b": 60.0, "c": 60.0}


def test_the_fixed_scheme_measures_half_of_the_cases_in_turn_or_each_with_two_runs() -> None:
    machine = Machine.of(Synthetic(1, 0)).part(1)
    (plan,) = machine.plans
    half, whole, double = (fixed(time, SECONDS) for time in (0.5, 1.0, 2.0))
    assert [list(half(night, []).cases) for night in range(3)] == [["a", "c"], ["b"], ["a", "c"]]
    assert list(whole(0, []).cases) == list(double(0, []).cases) == ["a", "b", "c"]
    runs = []
    for lay in (whole, double):
        now = lay(0, []).within(plan, 0.0)
        assert now is not None
        runs.append(now.planned_runs)
    assert runs == [1, 2]


def test_the_planned_scheme_ends_with_its_minutes() -> None:
    machine = Machine.of(Synthetic(1, 0)).part(3)
    seconds = {plan.case.id: run_seconds(plan.case) for plan in machine.plans}
    waited = dict.fromkeys(seconds, 1)
    laid_out = planned(12.0, seconds, [])(0, needs_of(machine.plans, HeldNights(), seconds, waited))
    (first, *_) = [plan for plan in machine.plans if plan.case.id == laid_out.cases[0]]
    assert laid_out.within(first, 0.0) is not None
    assert laid_out.within(first, 12 * 60.0) is None


def test_quiet_builds_are_settled_by_two_pairs() -> None:
    assert mean_pairs(0.0005, nights=3, seed=1) == 2.0


def test_a_small_drop_in_a_noisy_case_takes_most_pairs() -> None:
    none, small, large = (mean_pairs(0.01, nights=5, seed=1, drop=drop) for drop in (0.0, 0.01, 0.05))
    assert none < large < small


def test_the_pairs_of_both_kinds_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--pairs", "1"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line for line in printed if not line.startswith("(")] == ["unsuspected", "drop"]
    assert len(printed) == 2 + len(UNSUSPECTED_PAIRS) + len(DROP_PAIRS)


def test_the_table_has_a_row_for_each_scheme_and_time_and_what_the_plan_names() -> None:
    hours = Hours(nights=2, seconds=7200.0, measured=20, quiet_nights=1)
    hours.injected[2], hours.first_night[2], hours.week[2] = 4, 2, 4
    scores = {("fixed", 1.0): hours, ("planned", 1.0): hours, ("named", 0.0): Hours(named=10, named_found=8)}
    text = table_text(scores)
    assert "| 1 | fixed | 1.00 | 10.0 | - .50 - - | - 1.00 - - | 0.50 | 0 (1) | 0.0 |" in text
    assert text.endswith("of 10 drops that the plan says are found with 80% power, .80 were found on the first night")


def test_a_run_takes_its_start_and_its_steps() -> None:
    (case, *_) = Synthetic(1, 0).cases
    assert run_seconds(case) == pytest.approx(60 + 120 * case.batch_size_per_card / 400)
