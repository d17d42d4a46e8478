"""A run that was never steady, or whose steadiness was looked at once: what of it may be used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random

import pytest

import helpers.launch.steadiness_plot
import helpers.session.run_job
from helpers.history.run_folders import RESULT_FILE, ResultStore, read_result
from helpers.judging.verdict import Status
from helpers.plan.case_plan import CasePlan
from helpers.session.measure import measure_case
from helpers.session.run_job import JobRunner, RunTerms
from helpers.trainers.contract.steplog import (
    LOOKED_ONCE,
    STEADINESS_FACT,
    WARMUP,
    WINDOW,
    Step,
    StepLog,
)
from tests.helpers.memory_double import MemoryDouble
from tests.helpers.session.test_run_job import (
    LOGS,
    LOUD,
    Jobs,
    config,
    jobs,
    outcome,
    plan,
    run_with,
    runner,
    warm_for,
)

__all__ = ["config", "jobs", "plan", "runner"]


def steady_plan(plan: CasePlan) -> CasePlan:
    protocol = replace(plan.protocol, warmup_steps=6, steady_window_steps=2, most_warmup_steps=8)
    return replace(plan, suite_case=replace(plan.suite_case, protocol=protocol))


def test_the_job_is_told_when_its_warm_up_is_over(runner: JobRunner, plan: CasePlan, jobs: Jobs) -> None:
    run_with(runner, steady_plan(plan), jobs, outcome(logs=(warm_for(6), warm_for(6, rank=1))))
    spec = jobs.specs[0]
    assert (spec.warmup_steps, spec.steady_window_steps, spec.most_warmup_steps) == (6, 2, 8)


def test_a_steady_run_is_a_measurement_and_has_no_plot(runner: JobRunner, plan: CasePlan, jobs: Jobs) -> None:
    run = run_with(runner, steady_plan(plan), jobs, outcome(logs=(warm_for(8), warm_for(8, rank=1))))
    assert (run.measured, run.facts["warmup_steps"]) == (True, "8")
    assert not list(runner.store.run_folder(plan.case.id, 0).glob("steadiness.*"))


@pytest.mark.parametrize("allow", [False, True])
def test_a_run_that_was_never_steady_is_invalid_and_leaves_the_plot_that_shows_it(
    runner: JobRunner, plan: CasePlan, jobs: Jobs, allow: bool
) -> None:
    logs = (warm_for(8), warm_for(8, rank=1, fall=0.1))
    run = run_with(replace(runner, terms=RunTerms(allow_contention=allow)), steady_plan(plan), jobs, outcome(logs=logs))
    folder = runner.store.run_folder(plan.case.id, 0)
    assert not run.measured and run.failure is None
    assert str(run.invalid).startswith("never steady: rank 1's last 3 windows of 2 warm-up steps took")
    assert f"see {folder.resolve() / 'steadiness.svg'} and steadiness.json" in str(run.invalid)
    assert (folder / "steadiness.svg").exists() and (folder / "steadiness.json").exists()
    assert run.figures["wall-clock"] == pytest.approx(16.0)


def test_a_picture_that_fails_costs_neither_the_result_nor_the_session(
    runner: JobRunner, plan: CasePlan, jobs: Jobs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*given: object) -> str:
        raise ZeroDivisionError("no room between the axes")

    monkeypatch.setattr(helpers.launch.steadiness_plot, "plot", fail)
    logs = (warm_for(8), warm_for(8, rank=1, fall=0.1))
    run = run_with(runner, steady_plan(plan), jobs, outcome(logs=logs))
    kept = read_result(runner.store.run_folder(plan.case.id, 0) / RESULT_FILE)
    assert (kept.uuid, kept.invalid) == (run.uuid, run.invalid)
    assert "has no picture of its steps: no room between the axes" in capsys.readouterr().err


def test_ranks_that_were_looked_at_once_are_a_measurement_unless_the_jobs_own_steps_were_not_steady(
    runner: JobRunner, plan: CasePlan, jobs: Jobs
) -> None:
    facts = {STEADINESS_FACT: LOOKED_ONCE}
    runs = []
    for fall in (0.0, 0.002):
        logs = tuple(warm_for(60, rank, fall) for rank in range(2))
        logs = tuple(replace(log, header=replace(log.header, facts=facts)) for log in logs)
        protocol = replace(plan.protocol, warmup_steps=60, steady_window_steps=20, most_warmup_steps=60)
        once = replace(plan, suite_case=replace(plan.suite_case, protocol=protocol))
        runs.append(run_with(runner, once, jobs, outcome(logs=logs)))
    assert runs[0].measured and runs[0].facts[STEADINESS_FACT] == LOOKED_ONCE
    assert not runs[1].measured
    assert str(runs[1].invalid).startswith("never steady: the ranks' mean step: the last 3 windows of 20 warm-up steps")


def stationary_logs(random: Random, facts: Mapping[str, str]) -> tuple[StepLog, ...]:
    """Two ranks that wait for each other: 220 steps of warm-up with 1% of noise and an autocorrelation of 0.3, which
    both have, and 0.1% that each has of its own."""
    deviation, shared = random.gauss(0.0, 0.01), []
    for _ in range(240):
        shared.append(1.0 + deviation)
        deviation = 0.3 * deviation + random.gauss(0.0, 0.01 * (1 - 0.3**2) ** 0.5)
    logs = []
    for log in LOGS:
        steps, now = [], 100.0
        for n, seconds in enumerate(each + random.gauss(0.0, 0.001) for each in shared):
            steps.append(Step(0, n + 1, WARMUP if n < 220 else WINDOW, now, now + seconds, 8, 0.25))
            now += seconds
        logs.append(replace(log, header=replace(log.header, facts=facts), steps=tuple(steps)))
    return tuple(logs)


@pytest.mark.parametrize(
    ("facts", "least", "most"),
    [({STEADINESS_FACT: LOOKED_ONCE}, 0, 2), ({}, 6, 40)],
    ids=["one look's limit", "many's"],
)
def test_nights_of_stationary_runs_that_are_looked_at_once_have_no_invalid_case(
    runner: JobRunner,
    plan: CasePlan,
    monkeypatch: pytest.MonkeyPatch,
    facts: Mapping[str, str],
    least: int,
    most: int,
) -> None:
    random = Random(1)
    protocol = replace(plan.protocol, warmup_steps=60, steady_window_steps=20, most_warmup_steps=220)
    once = replace(plan, suite_case=replace(plan.suite_case, protocol=protocol))
    monkeypatch.setattr(
        helpers.session.run_job, "run_job", lambda *args, **named: outcome(logs=stationary_logs(random, facts))
    )
    stores = [ResultStore(runner.store.root, f"night{n}") for n in range(40)]
    nights = [measure_case(once, replace(runner, store=store), store, MemoryDouble()) for store in stores]
    runs = [run for night in nights for run in night.runs]
    unsteady = sum("never steady" in str(run.invalid) for run in runs)
    assert least <= unsteady <= most
    if facts:
        assert not any(night.verdict.status is Status.INVALID for night in nights)


def test_a_contended_run_that_was_not_steady_either_says_both(runner: JobRunner, plan: CasePlan, jobs: Jobs) -> None:
    logs = (warm_for(8), warm_for(8, rank=1, fall=0.1))
    run = run_with(runner, steady_plan(plan), jobs, outcome(logs=logs, contention=LOUD))
    assert str(run.invalid).startswith("contended: 50.0%")
    assert "; never steady: rank 1" in str(run.invalid)
