"""Attempts: a failed run is made again within its bound, is always told, and never moves a performance verdict."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.judging.case.evidence import Budget, Build, Evidence, RunEvidence, Stage
from helpers.judging.case.judge import judge
from helpers.judging.case.verdict import NeedRuns, Status, Verdict
from tests.helpers.judging.case.evidences import (
    CENTRE,
    GROUP,
    asked,
    evidence,
    good,
    new,
    nights,
    pairs,
    recorded,
    run,
    verdict,
)

KILLED = "killed by a signal: rank 0 ended by SIGKILL"
CRASHED = "native crash: rank 1 ended by SIGSEGV"
ONCE, TWICE = Budget(retries=1), Budget(retries=2)


def failed(failure: str = KILLED, *, retriable: bool = True, **values: object) -> RunEvidence:
    return replace(RunEvidence({}, failure=failure, retriable=retriable), **values)


def test_a_failed_run_is_asked_for_again() -> None:
    answer = asked(failed(), budget=ONCE)
    assert answer.order == (Build.CANDIDATE,)
    assert answer.stage is Stage.SCREEN


@pytest.mark.parametrize("build", list(Build))
def test_of_a_pair_only_the_failed_half_is_made_again_and_whose_it_was_is_told(build: Build) -> None:
    slow = run(CENTRE - 0.05)
    half = {Build.REFERENCE: new(CENTRE - 0.05), Build.CANDIDATE: good()}[build]
    broken = failed(build=build, stage=Stage.CONFIRM)
    values = {"reference_build": "good 1.2", "budget": ONCE}
    answer = asked(slow, half, broken, **values)
    assert (answer.order, answer.stage) == ((build,), Stage.CONFIRM)
    last = verdict(slow, half, broken, broken, **values).reason.findings[0]
    assert (last.figures["role"], last.figures["why"]) == (build.value, KILLED)


def test_a_refusal_after_a_failed_attempt_is_no_skip() -> None:
    found = verdict(failed(), run(refusal="no bfloat16"), budget=ONCE)
    assert found.status is Status.INFRA_ERROR


def test_a_failed_attempt_between_invalid_runs_does_not_give_them_more_repeats() -> None:
    budget = Budget(repeats=1, retries=1)
    hot = run(invalid="throttled")
    assert verdict(hot, failed(), hot, budget=budget).status is Status.INVALID


# --- a regression is never retried into a pass

RATES = st.sampled_from([CENTRE - 0.06, CENTRE - 0.01, CENTRE, CENTRE + 0.002, CENTRE + 0.06])
USABLE = st.one_of(
    RATES.map(run),
    RATES.map(lambda rate: run(rate, invalid="throttled")),
    RATES.map(new),
    RATES.map(good),
    st.sampled_from([-0.06, -0.002, 0.0, 0.06]).map(lambda gap: pairs(*[gap] * 4)),
)
FAILED = st.builds(
    failed, st.sampled_from([KILLED, CRASHED]), build=st.sampled_from(Build), stage=st.sampled_from(Stage)
)


@st.composite
def with_and_without(draw: st.DrawFn) -> tuple[Evidence, Evidence, int]:
    """Evidence, the same with failed attempts anywhere among its runs, and how many."""
    drawn = draw(st.lists(USABLE, max_size=5))
    runs = [each for some in drawn for each in (some if isinstance(some, tuple) else (some,))]
    given_evidence = evidence(
        *runs,
        past=draw(st.sampled_from([nights(), nights(4), ()])),
        recorded=draw(st.sampled_from([None, recorded()])),
        planned_runs=draw(st.integers(1, 2)),
        reference_build=draw(st.sampled_from([None, "good"])),
        suspicion=draw(st.sampled_from([None, GROUP])),
        budget=Budget(retries=draw(st.integers(0, 3))),
    )
    more = list(runs)
    attempts = draw(st.lists(FAILED, max_size=4))
    for each in attempts:
        more.insert(draw(st.integers(0, len(more))), each)
    return given_evidence, replace(given_evidence, runs=tuple(more)), len(attempts)


@pytest.mark.slow
@settings(deadline=None)
@given(with_and_without())
def test_failed_attempts_never_change_what_the_usable_runs_say(drawn: tuple[Evidence, Evidence, int]) -> None:
    without, with_failed, attempts = drawn
    clean, found = judge(without), judge(with_failed)
    if attempts > with_failed.budget.retries:
        assert isinstance(found, Verdict)
        assert (found.status, found.reason.code) == (Status.INFRA_ERROR, "run-failed")
        assert found.recorded is None and found.published == ()
        return
    if isinstance(clean, NeedRuns):
        assert found == clean
        return
    assert isinstance(found, Verdict)
    assert replace(found, reason=clean.reason) == clean
    assert found.reason.code == clean.reason.code
