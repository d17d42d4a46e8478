"""What may become a baseline: nothing crashed, marked, overridden, or put together from several environments."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from helpers.history.results import CONTENDED, MACHINE_SHARED, RunResult
from helpers.judging.case.evidence import Night, Past
from helpers.judging.case.verdict import Reason, Status, SubVerdict, Verdict
from helpers.judging.rules.own import MEDIAN_STEP, WALL_CLOCK
from helpers.judging.statistics import summarise
from helpers.machine.environment import Environment, segment
from helpers.plan.case_plan import CasePlan
from helpers.plan.matrix import Tolerances
from helpers.plan.proposals import AgainstEntry
from helpers.session.gate import Gate
from helpers.session.measuring.case_loop import CaseResult
from helpers.session.outcome import CaseOutcome
from helpers.session.recording import candidate, five_digits

MakePlan = Callable[..., CasePlan]
MakeRun = Callable[..., RunResult]

NOW = datetime.datetime(2024, 5, 6, 7, 8, 9, tzinfo=datetime.UTC)


def outcome(
    plan: CasePlan, runs: tuple[RunResult, ...], recorded: Status = Status.PASS, status: Status | None = None
) -> CaseOutcome:
    """The outcome of a case whose recorded question was answered with ``recorded``; ``status`` is the case's own."""
    answer = SubVerdict(recorded, Reason("c", f"told by the {recorded.value} answer"))
    measured = summarise(tuple(float(run.figures[WALL_CLOCK]) for run in runs if run.measured))
    verdict = Verdict(status or recorded, Reason("c", "the case's reason"), measured, recorded=answer)
    return Gate(enabled=False).outcome(CaseResult(plan, verdict, runs))


@pytest.fixture
def plan(make_plan: MakePlan) -> CasePlan:
    return make_plan(runs=2, data="photographs")


@pytest.fixture
def two_runs(plan: CasePlan, make_run: MakeRun) -> Callable[..., tuple[RunResult, ...]]:
    """Two runs of 100 and 104 images/s; ``first`` and ``second`` change one of them, ``environments`` its facts."""

    def make(
        first: dict[str, Any] | None = None,
        second: dict[str, Any] | None = None,
        environments: tuple[dict[str, str], dict[str, str]] = ({}, {}),
    ) -> tuple[RunResult, ...]:
        runs = (make_run(plan, 0, 100.0, **(first or {})), make_run(plan, 1, 104.0, **(second or {})))
        return tuple(
            replace(run, environment={**run.environment, **facts})
            for run, facts in zip(runs, environments, strict=True)
        )

    return make


TwoRuns = Callable[..., tuple[RunResult, ...]]


def test_an_honest_result_is_recorded_whole(plan: CasePlan, two_runs: TwoRuns) -> None:
    runs = two_runs()
    offered = candidate(outcome(plan, runs), "AMD EPYC", NOW)
    entry = offered.entry
    assert offered.refusal is None
    assert entry is not None
    assert (entry.case_id, entry.samples_per_s, entry.rule) == (plan.case.id, 102.0, MEDIAN_STEP)
    assert (entry.replicates, entry.tolerance) == ((100.0, 104.0), None)
    assert entry.environment == runs[0].environment
    assert entry.segment == segment(Environment.from_mapping(runs[0].environment))
    assert (entry.provenance.date, entry.provenance.machine) == ("2024-05-06T07:08:09+00:00", "AMD EPYC")
    assert entry.provenance.commit == "framework_commit"
    assert entry.protocol == {
        "warmup_steps": 2,
        "window_steps": 5,
        "steady_window_steps": 0,
        "most_warmup_steps": 0,
        "runs": 2,
    }
    assert "--update-baselines" in entry.provenance.reason


def test_the_figure_is_the_median_steps_and_not_the_wall_clocks(plan: CasePlan, make_run: MakeRun) -> None:
    runs = tuple(
        make_run(plan, number, figures={WALL_CLOCK: 50.0 + number, MEDIAN_STEP: rate})
        for number, rate in enumerate((100.0, 108.0, 101.0))
    )
    entry = candidate(outcome(plan, runs), "m", NOW).entry
    assert entry is not None
    assert (entry.samples_per_s, entry.replicates) == (101.0, (100.0, 108.0, 101.0))


@pytest.mark.parametrize("rate", [1.000049999, 9.999949, 99999.4, 123456.789, 0.0739893607946, 9e8])
def test_a_figure_of_five_digits_is_within_a_hundredth_of_the_smallest_change_that_counts(rate: float) -> None:
    assert len(f"{five_digits(rate):g}".replace(".", "").strip("0")) <= 5
    assert abs(five_digits(rate) / rate - 1) <= Tolerances.recorded / 100


def test_only_screening_runs_of_the_build_under_test_count(plan: CasePlan, two_runs: TwoRuns) -> None:
    first, second = two_runs()
    for other in ({"role": "reference", "stage": "confirm"}, {"stage": "confirm"}, {"role": "reference"}):
        runs = (first, replace(second, **other))
        entry = candidate(outcome(plan, runs), "m", NOW).entry
        assert entry is not None
        assert (entry.samples_per_s, entry.replicates) == (100.0, (100.0,))


def test_an_invalid_run_that_was_made_again_is_left_out(plan: CasePlan, make_run: MakeRun) -> None:
    spoilt = make_run(plan, 0, 50.0, invalid="throttled", marks=(CONTENDED,))
    runs = (spoilt, make_run(plan, 1, 100.0))
    offered = candidate(outcome(plan, runs), "m", NOW)
    assert offered.refusal is None
    assert offered.entry is not None
    assert offered.entry.replicates == (100.0,)


@pytest.mark.parametrize("status", [Status.INFRA_ERROR, Status.INVALID])
def test_what_was_not_judged_makes_no_baseline(plan: CasePlan, two_runs: TwoRuns, status: Status) -> None:
    runs = two_runs()
    verdict = Verdict(status, Reason("c", "never steady"), recorded=outcome(plan, runs).verdict.recorded)
    assert candidate(replace(outcome(plan, runs), verdict=verdict), "m", NOW).refusal == f"{status.value}: never steady"


@pytest.mark.parametrize(
    ("recorded", "answer"),
    [
        (Status.PASS, AgainstEntry.NO_WORSE),
        (Status.IMPROVEMENT, AgainstEntry.FASTER),
        (Status.NO_BASELINE, AgainstEntry.NOTHING_RECORDED),
        (Status.REGRESSION, AgainstEntry.SLOWER),
        (Status.SLOWER, AgainstEntry.SLOWER_UNCONFIRMED),
        (Status.INCONCLUSIVE, AgainstEntry.UNSETTLED),
        (Status.INCOMPARABLE, AgainstEntry.INCOMPARABLE),
    ],
)
@pytest.mark.parametrize("status", [None, Status.BELOW_PUBLISHED])
def test_the_recorded_answer_is_passed_on_whatever_the_published_one(
    plan: CasePlan, two_runs: TwoRuns, recorded: Status, answer: AgainstEntry, status: Status | None
) -> None:
    runs = two_runs()
    offered = candidate(outcome(plan, runs, recorded, status), "m", NOW)
    assert offered.refusal is None
    assert (offered.answer, offered.why) == (answer, f"told by the {recorded.value} answer")


def test_what_is_below_its_published_figure_is_doubted(plan: CasePlan, two_runs: TwoRuns) -> None:
    runs = two_runs()
    offered = candidate(outcome(plan, runs, Status.NO_BASELINE, Status.BELOW_PUBLISHED), "m", NOW, tolerance=0.02)
    assert (offered.refusal, offered.doubts) == (None, ("BELOW_PUBLISHED: the case's reason",))
    assert offered.tolerance == 0.02
    assert candidate(outcome(plan, runs, Status.NO_BASELINE), "m", NOW).doubts == ()


@pytest.mark.parametrize(
    ("rates", "usual", "doubted"),
    [
        ((1.691, 2.652, 2.1), Past(), True),
        ((100.0, 101.0, 99.5), Past(), False),
        # Usual for this case by its own nights, and far beyond it by those of its siblings.
        ((100.0, 106.0, 94.0), Past(nights=tuple(Night((4.6 + 0.05 * (-1) ** n,)) for n in range(20))), False),
        ((100.0, 106.0, 94.0), Past(calibrated=0.05), False),
        ((100.0, 106.0, 94.0), Past(calibrated=0.005), True),
        ((100.0, 101.0, 99.5), Past(siblings=(tuple(4.6 + 2e-4 * (-1) ** n for n in range(20)),)), True),
    ],
)
def test_runs_that_scatter_far_beyond_what_is_usual_are_doubted(
    plan: CasePlan, make_run: MakeRun, rates: tuple[float, ...], usual: Past, doubted: bool
) -> None:
    """Two runs 57% apart were recorded without a word."""
    runs = tuple(make_run(plan, at, rate) for at, rate in enumerate(rates))
    asked: list[Mapping[str, str]] = []

    def past_of(outcome: CaseOutcome, segment: Mapping[str, str]) -> Past:
        asked.append(segment)
        return usual

    offered = candidate(outcome(plan, runs, Status.NO_BASELINE), "m", NOW, past_of=past_of)
    assert offered.refusal is None
    assert bool(offered.doubts) is doubted
    if doubted:
        assert "times as far as is usual for the case, more than " in offered.doubts[0]
    assert offered.entry is not None
    assert asked == [offered.entry.segment]


def test_a_case_whose_recorded_question_was_not_asked_is_refused(plan: CasePlan, two_runs: TwoRuns) -> None:
    runs = two_runs()
    judged = outcome(plan, runs)
    offered = candidate(replace(judged, verdict=replace(judged.verdict, recorded=None)), "m", NOW)
    assert (offered.entry, offered.refusal) == (None, "PASS: the case's reason")


@pytest.mark.parametrize("runs_kept", [True, False])
def test_a_case_without_a_figure_or_a_run_has_no_entry(plan: CasePlan, two_runs: TwoRuns, runs_kept: bool) -> None:
    verdict = Verdict(Status.INFRA_ERROR, Reason("LeaseError", "no card was free"))
    runs = two_runs() if runs_kept else ()
    offered = candidate(Gate(enabled=False).outcome(CaseResult(plan, verdict, runs)), "m", NOW)
    assert (offered.entry, offered.case_id) == (None, plan.case.id)
    assert offered.refusal == "INFRA_ERROR: no card was free"


# What is refused, and why: what differs in the first run and in the second, and in their environments.
CONFIRMING = {"role": "reference", "stage": "confirm"}
NO_FIGURE = {WALL_CLOCK: 104.0, MEDIAN_STEP: "steps of several sizes"}
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"second": {"figures": NO_FIGURE}}, "steps of several sizes"),
    ({"first": {"marks": (CONTENDED,)}}, "contended in 1 of 2 runs"),
    ({"second": {"marks": (MACHINE_SHARED,)}}, f"{MACHINE_SHARED} in 1 of 2 runs"),
    ({"second": {**CONFIRMING, "marks": (CONTENDED,)}}, "contended in 1 of 2 runs"),
    ({"first": {"overrides": {"lr": 1, "dali.threads": 2}}}, "settings changed: dali.threads, lr"),
    # Runs that --resume brought together.
    ({"environments": ({"host_id": "another"}, {})}, "different environments (host: "),
    ({"environments": ({}, {"flags": "another"})}, "different environments (flags: "),
    ({"environments": ({"data": "another"}, {})}, "different environments (data: "),
    ({"environments": ({}, {"threads": "another"})}, "different environments (threads: "),
]


@pytest.mark.parametrize(("made", "told"), REFUSED)
def test_what_is_no_honest_reference_makes_no_baseline(
    plan: CasePlan, two_runs: TwoRuns, made: dict[str, Any], told: str
) -> None:
    offered = candidate(outcome(plan, two_runs(**made)), "m", NOW)
    assert told in (offered.refusal or "")
    assert (offered.entry is None) is ("figures" in made.get("second", {}))
