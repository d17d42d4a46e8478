"""A case's row: everything that a report shows, as plain values that go into JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from helpers.history.results import RETRIABLE_FACT, RunResult
from helpers.judging.case.evidence import Budget, PublishedReference
from helpers.judging.case.judge import judge
from helpers.judging.case.verdict import PairStanding, Reason, Standing, Status, Verdict
from helpers.judging.rules.own import RULES
from helpers.judging.statistics import EffectSize
from helpers.plan.case_plan import CasePlan
from helpers.report.row import CaseRow, row_of
from helpers.report.text import render
from helpers.session.gate import Gate
from helpers.session.measuring.case_loop import CaseResult, evidence_of
from helpers.session.outcome import CaseEffect, CaseOutcome, Gating

MakePlan = Callable[..., CasePlan]
MakeRun = Callable[..., RunResult]

FIGURE = PublishedReference(200.0, "wall-clock", "table 1, V100", gates=True, tolerance=0.05)
SHOWN = replace(FIGURE, samples_per_s=50.0, gates=False, label="draft")


def outcome(result: CaseResult, *run_folders: str) -> CaseOutcome:
    return Gate(enabled=False).outcome(result, run_folders)


def judged(plan: CasePlan, *runs: RunResult, resumed: int = 0) -> CaseOutcome:
    verdict = judge(evidence_of(plan, runs))
    assert isinstance(verdict, Verdict)
    return outcome(CaseResult(plan, verdict, runs, resumed), "a", "b")


@pytest.fixture
def row(make_plan: MakePlan, make_run: MakeRun) -> CaseRow:
    plan = make_plan(runs=2, published=(FIGURE, SHOWN), build={"version": "3.0"})
    more = {
        "wall_seconds": 4.0,
        "training_seconds": 3.0,
        "facts": {"loader": "DALI 2"},
        "overrides": {"momentum": 0.8, "dali.threads": 3},
    }
    runs = (
        make_run(plan, 0, 100.0, reader_share=0.1, foreign_share=0.0, marks=("shared", "contended"), **more),
        make_run(plan, 1, 104.0, reader_share=0.3, foreign_share=None, marks=("shared",), **more),
    )
    return row_of(replace(judged(plan, *runs, resumed=1), gating=Gating(CaseEffect.FAIL, judged=False)))


def test_tells_the_verdict_and_the_figures_it_rests_on(row: CaseRow) -> None:
    assert (row.status, row.effect, row.code, row.judged) == ("BELOW_PUBLISHED", "fail", "below-published", False)
    assert (row.samples_per_s, row.runs, row.run_samples_per_s) == (102.0, 2, (100.0, 104.0))
    assert row.spread == pytest.approx(2 / 102)
    assert row.low is not None
    assert row.high is not None
    assert row.low < 102.0 < row.high
    assert row.warnings == ("2 runs: the interval is wide, 3 or more narrow it",)
    assert row.rule == "wall-clock"


@pytest.mark.parametrize(("runs", "said"), [(1, ("one run: no spread between runs is known",)), (3, ())])
def test_only_few_runs_are_warned_of(make_plan: MakePlan, make_run: MakeRun, runs: int, said: tuple[str, ...]) -> None:
    plan = make_plan(runs=runs)
    assert row_of(judged(plan, *(make_run(plan, number, 100.0) for number in range(runs)))).warnings == said


def test_tells_who_disturbed_the_worst_run(make_plan: MakePlan, make_run: MakeRun) -> None:
    plan = make_plan(runs=3)
    shares = {0.1: "make (pid 7)", 0.4: "cc1 (pid 8)", None: "not measured"}
    runs = (
        make_run(plan, number, 100.0, foreign_share=share, marks=("contended",), contention=who)
        for number, (share, who) in enumerate(shares.items())
    )
    found = judged(plan, *runs)
    assert (found.marks, found.foreign_share) == (("contended in 3 of 3 runs: cc1 (pid 8)",), 0.4)


def test_tells_the_figures_of_every_rule_with_the_reasons(row: CaseRow) -> None:
    by_rule = {each.rule: each for each in row.figures}
    assert by_rule.keys() == RULES.keys()
    ours = by_rule["wall-clock"]
    assert (ours.samples_per_s, ours.average_samples_per_s, ours.run_samples_per_s) == (102.0, 102.0, (100.0, 104.0))
    assert (by_rule["dlperf-log"].samples_per_s, by_rule["dlperf-log"].reason) == (None, "too short")
    assert by_rule["dlperf-time"].reason == "rule dlperf-time was not computed"


def test_a_failed_run_is_told_with_its_log_and_counts_no_figure(make_plan: MakePlan, make_run: MakeRun) -> None:
    plan = make_plan(runs=3)
    crashed = make_run(plan, 1, failure="exit 137", figures={}, log_tail="Killed", step_seconds=())
    row = row_of(judged(plan, make_run(plan, 0), crashed))
    assert (row.status, row.log_tail) == ("INFRA_ERROR", "Killed")
    assert (row.samples_per_s, row.runs, row.run_samples_per_s) == (100.0, 1, (100.0,))


def test_every_failed_attempt_is_told_and_the_last_words_of_the_one_that_ended_the_case(
    make_plan: MakePlan, make_run: MakeRun
) -> None:
    plan = make_plan()
    killed, crashed = (
        make_run(plan, at, failure=f"{what}: rank 0", figures={}, log_tail=what, facts={RETRIABLE_FACT: "yes"})
        for at, what in enumerate(("killed by a signal", "native crash"))
    )  # fmt: skip
    row = row_of(judged(plan, killed, crashed))
    assert row.attempts == ("r0: killed by a signal: rank 0", "r1: native crash: rank 0")
    assert row.log_tail == "native crash"
    passed = row_of(judged(plan, killed, make_run(plan, 1)))
    assert passed.attempts == ("r0: killed by a signal: rank 0",)


def test_an_invalid_figure_is_not_among_those_told(make_plan: MakePlan, make_run: MakeRun) -> None:
    plan = make_plan(runs=2, budget=Budget(repeats=0))
    row = row_of(judged(plan, make_run(plan, 0), make_run(plan, 1, 7.0, invalid="contended")))
    assert (row.status, row.samples_per_s, row.runs, row.run_samples_per_s) == ("INVALID", 100.0, 1, (100.0,))
    assert row.invalid_samples_per_s is None


def test_a_case_of_invalid_runs_alone_has_their_figure_as_invalid(make_plan: MakePlan, make_run: MakeRun) -> None:
    plan = make_plan(runs=2, budget=Budget(repeats=1))
    runs = (make_run(plan, 0, 7.0, invalid="contended"), make_run(plan, 1, 8.0, invalid="contended"))
    row = row_of(judged(plan, *runs))
    assert (row.status, row.samples_per_s, row.runs, row.figures) == ("INVALID", None, 0, ())
    assert row.invalid_samples_per_s == 7.5
    assert row.set_aside[1] == f"r1: contended; invalid: 8 images/s by {plan.rule}"
    assert "(invalid: 7.5)" in render((row,), 200)
    assert "set aside r0: contended; invalid: 7 images/s" in render((row,), 200, details=True)


STANDING = Standing(
    4.6,
    3.0,
    2.5,
    False,
    0.001,
    0.0007,
    40,
    2,
    effect=EffectSize(-0.02, -0.03, -0.01),
    shift=-0.021,
    pairs=PairStanding(2, 900.0),
)
GOOD = {"framework": "paddle", "version": "3.3.0", "interpreter": "envs/good/bin/python"}
NEW = {"version": "3.3.1"}


@pytest.fixture
def confirmed(make_plan: MakePlan, make_run: MakeRun) -> CaseRow:
    """Two screening runs, one that was set aside, and two pairs in the order new, good, good, new; one half is left."""
    plan = make_plan(runs=2, reference=GOOD, build=NEW)

    def run(replicate: int, samples_per_s: float, role: str, **values: Any) -> RunResult:
        build = GOOD if role == "reference" else NEW
        return make_run(plan, replicate, samples_per_s, role=role, stage="confirm", build=build, **values)

    runs = (
        make_run(plan, 0, 100.0, wall_seconds=1.0, build=NEW),
        make_run(plan, 1, 102.0, wall_seconds=1.0, build=NEW),
        run(2, 98.0, "candidate", wall_seconds=1.0),
        run(3, 5.0, "reference", invalid="throttled", log_tail="hot", wall_seconds=1.0),
        run(4, 100.0, "reference", wall_seconds=1.0, step_seconds=(9.0,)),
        run(5, 99.0, "reference", wall_seconds=1.0, reader_share=0.9),
        run(6, 98.01, "candidate", wall_seconds=1.0),
        run(7, 99.0, "reference", wall_seconds=1.0),
    )
    verdict = Verdict(Status.REGRESSION, Reason("confirmed", "slower"), standing=STANDING)
    return row_of(outcome(CaseResult(plan, verdict, runs), *"abcdefgh"))


def test_the_figure_is_of_the_screening_runs_of_the_build_under_test_alone(confirmed: CaseRow) -> None:
    assert (confirmed.samples_per_s, confirmed.runs, confirmed.run_samples_per_s) == (101.0, 2, (100.0, 102.0))
    assert confirmed.spread == pytest.approx(1 / 101)
    assert len(confirmed.step_seconds) == 2
    assert {len(each.run_samples_per_s) for each in confirmed.figures if each.rule == "wall-clock"} == {2}
    assert (confirmed.reader_share, confirmed.framework) == (None, NEW)
    assert confirmed.wall_seconds == 8.0


def test_every_pair_of_the_confirmation_is_kept_in_its_order(confirmed: CaseRow) -> None:
    told = [(pair.first, pair.reference_samples_per_s, pair.candidate_samples_per_s) for pair in confirmed.pairs]
    assert told == [
        ("candidate", pytest.approx(100.0), pytest.approx(98.0)),
        ("reference", pytest.approx(99.0), pytest.approx(98.01)),
    ]
    assert [pair.difference for pair in confirmed.pairs] == [pytest.approx(-0.02), pytest.approx(-0.01)]
