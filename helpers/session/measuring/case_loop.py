"""The loop: run what judge() asks for until it has a verdict. Used by pytest and the command line alike."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from helpers.common.wall_clock import utc_now
from helpers.history import Memory
from helpers.history.nights import NightRecord
from helpers.history.results import CONTENDED, SLOWED, RunResult, interleaved_pairs
from helpers.history.run_folders import ResultStore, write_night
from helpers.judging.case.evidence import Build, Compared, Evidence, Past, ProgramEvidence, RecordedReference, Stage
from helpers.judging.case.judge import judge
from helpers.judging.case.time_limit import judged_in_time
from helpers.judging.case.verdict import NeedRuns, Reason, Standing, Status, Verdict
from helpers.judging.finding import Code, Finding, found
from helpers.plan.case_plan import CasePlan, recorded_reference
from helpers.plan.overrides import neutral_reasons, segment_of
from helpers.plan.recipes.published_programs import program_evidence
from helpers.trainers.contract.errors import SuiteError

Judge = Callable[[Evidence], "Verdict | NeedRuns"]
Clock = Callable[[], datetime.datetime]
KeepNight = Callable[[Path, NightRecord], object]
# Called before each run, with its build, the request for it and the runs so far.
BeforeRun = Callable[[Build, NeedRuns, Sequence[RunResult]], None]


class Runner(Protocol):
    """Makes one run of a plan with one of its builds: fresh processes, one result folder, the result written before
    it returns. Both builds run on the same cards, with the same settings."""

    def run(self, plan: CasePlan, replicate: int, build: Build, stage: Stage) -> RunResult: ...


@dataclass(frozen=True)
class CaseResult:
    """The result of measuring a case: its runs and the verdict on them. The gate makes the case's outcome of it."""

    plan: CasePlan
    verdict: Verdict
    runs: tuple[RunResult, ...] = ()
    # How many of the runs were found on disk.
    resumed: int = 0


@dataclass(frozen=True)
class MeasureRequest:
    """How a case is to be measured."""

    # Why a confirmation is asked for (Evidence): measuring goes on from tonight's runs of a case that was judged
    # already, and replaces its night.
    suspicion: Finding | None = None
    # Whether it goes on from the runs of a session that is resumed, and whether contended ones count.
    resume: bool = False
    allow_contention: bool = False
    # Judges the case.
    by: Judge = judge
    # The most runs; None means as many as the case's budget allows.
    most: int | None = None
    # The number of cases for which the error rates hold together.
    cases_tonight: int = 1
    before_run: BeforeRun | None = None


_USUAL = MeasureRequest()


def measure_case(
    plan: CasePlan,
    runner: Runner,
    store: ResultStore,
    memory: Memory,
    request: MeasureRequest = _USUAL,
    *,
    now: Clock = utc_now,
    keep_night: KeepNight = write_night,
) -> CaseResult:
    """Run and judge one case. Each run is on disk before the next one starts, the night at the end (``keep_night``).
    Then ``memory`` gets all of it.

    Raises HistoryError if ``memory`` cannot keep something (the runs are on disk by then), and SuiteError if the judge
    requests more runs than ``request`` allows.
    """
    goes_on = request.resume or request.suspicion is not None
    runs = reusable_runs(plan, store, request.allow_contention) if goes_on else ()
    resumed = len(runs) if request.resume else 0
    past: Past | None = None
    day = store.record.night_number
    while True:
        # The history is asked once: what others add meanwhile must not change the test of these runs.
        if past is None and (segment := segment_tonight(plan, runs)):
            past = memory.past(plan.case.id, plan.suite_case.target, segment, plan.case.cards, store.session)
        seed = f"{store.session} {plan.case.id}"
        evidence = evidence_of(plan, runs, past or Past(), request.suspicion, request.cases_tonight, seed, day)
        if not isinstance(answer := request.by(evidence), NeedRuns):
            break
        _check_request(plan, answer, len(runs), request.most or most_runs(plan))
        if request.most is None and (over := _time_over(plan, runs, answer)) is not None:
            answer = judged_in_time(evidence, answer, over, request.by)
            break
        for build in answer.order:
            if request.before_run is not None:
                request.before_run(build, answer, runs)
            run = runner.run(plan, len(runs), build, answer.stage)
            runs = (*runs, run)
            # Of a pair the second run follows; its time was counted with the first one's.
            if not run.measured or (answer.stage is Stage.SCREEN and plan.budget.case_minutes is not None):
                break
    night = night_record(plan, store, runs, answer, now())
    keep_night(store.root, night)
    memory.add_case(runs, night)
    store.add_verdict(runs, answer)
    return CaseResult(plan, answer, runs, resumed)


def _time_over(plan: CasePlan, runs: Sequence[RunResult], request: NeedRuns) -> Finding | None:
    """Why the case may not begin the next run of ``request``, or the next pair; None if it may. The longest run so far
    tells how long one takes, so the first run is always made."""
    minutes = plan.budget.case_minutes
    if minutes is None or not runs:
        return None
    each = [run.wall_seconds for run in runs]
    more = len(request.order) if request.stage is Stage.CONFIRM else 1
    used, needed = sum(each) / 60, more * max(each) / 60
    if used + needed <= minutes:
        return None
    return found(Code.OUT_OF_MINUTES, used=used, minutes=minutes, needed=needed)


def not_run(plan: CasePlan, reason: str) -> CaseResult:
    """The result of a case that this machine cannot run, with the reason."""
    return CaseResult(plan, Verdict(Status.NOT_RUN, Reason("not-run", reason)))


def evidence_of(
    plan: CasePlan,
    runs: tuple[RunResult, ...],
    past: Past | None = None,
    suspicion: Finding | None = None,
    cases_tonight: int = 1,
    seed: str = "",
    day: int = 0,
) -> Evidence:
    return Evidence(
        case_id=plan.case.id,
        rule=plan.rule,
        planned_runs=plan.planned_runs,
        runs=tuple(run.evidence for run in runs),
        published=plan.published,
        recorded=_recorded(plan, runs),
        tolerance=plan.tolerance,
        band=plan.band,
        overrides=tuple(sorted(plan.overrides)),
        neutral=neutral_reasons(plan.overrides),
        past=past or Past(),
        budget=plan.budget,
        reference_build=plan.reference_label,
        reference_id=plan.reference_id,
        why_no_reference=plan.why_no_reference,
        suspicion=suspicion,
        cases_tonight=cases_tonight,
        seed=seed,
        day=day,
        recorded_required=plan.recorded_required,
        to_record=plan.to_record,
        program=_program(plan, runs),
    )


def _program(plan: CasePlan, runs: tuple[RunResult, ...]) -> ProgramEvidence | None:
    """The program of the first usable run of the build under test; runs of one build have the same."""
    first = next((run for run in _candidates(runs) if run.measured), None)
    return program_evidence(plan.case, plan.suite_case.device, first.facts) if first else None


def segment_tonight(plan: CasePlan, runs: tuple[RunResult, ...]) -> dict[str, str]:
    """The facts of the segment of tonight's runs, from the first usable run; empty before there is one."""
    first = next((run for run in _candidates(runs) if run.measured), None)
    return segment_of(first.environment, plan.settings, plan.case.id) if first else {}


def night_record(
    plan: CasePlan, store: ResultStore, runs: tuple[RunResult, ...], verdict: Verdict, when: datetime.datetime
) -> NightRecord:
    """What the history keeps of a judged case. Later nights learn nothing from runs with marks (contended, shared
    machine) or changed settings: such a night has no log rates, is not accepted and starts no segment."""
    usable = [run for run in runs if run.measured and run.is_screening]
    teaches = not plan.overrides and not any(run.marks for run in runs)
    case, standing = plan.case, verdict.standing
    if standing is not None and not teaches:
        standing = replace(standing, accepted=False, new_segment=False)
    return NightRecord(
        session=store.session,
        case_id=case.id,
        target=plan.suite_case.target,
        created=when.isoformat(),
        date=store.record.date.isoformat(),
        segment=segment_tonight(plan, runs),
        status=verdict.status.value,
        code=verdict.reason.code,
        reason=verdict.reason.text,
        findings=verdict.reason.findings,
        cards=case.cards,
        log_rates=tuple(run.log_rate for run in usable if run.log_rate is not None) if teaches else (),
        stall_share=next((run.stall_share for run in usable), None) if teaches else None,
        run_uuids=tuple(run.uuid for run in runs),
        standing=standing,
        build=dict(plan.build),
        host=plan.environment.get("host_id", ""),
        compared=_compared(plan, runs, standing) if teaches else None,
        properties={
            "framework": case.framework.value,
            "model": case.model.value,
            "precision": case.precision.value,
            "cards": str(case.cards),
            "nodes": str(case.nodes),
            "execution": case.execution.value if case.execution else "",
        },
    )


def _compared(plan: CasePlan, runs: tuple[RunResult, ...], standing: Standing | None) -> Compared | None:
    """The pairs of both builds behind the verdict; None without any."""
    if standing is None:
        return None
    if standing.pairs is None:
        return _beside_first_run(plan, runs, standing)
    pairs = interleaved_pairs(runs)[: standing.pairs.count]
    good, new = (tuple(pair[place].log_rate or 0.0 for pair in pairs) for place in (0, 1))
    return Compared(plan.reference_id, new, good, standing.pairs.teaches_level, standing.pairs.teaches_good)


def _beside_first_run(plan: CasePlan, runs: tuple[RunResult, ...], standing: Standing) -> Compared | None:
    """The reference build's one run that showed how the machine ran (judging.recorded), beside the night's first run;
    None without it. They are not interleaved, so they teach no level."""
    one = next((run.log_rate for run in runs if run.role == Build.REFERENCE.value and run.measured), None)
    if one is None:
        return None
    return Compared(plan.reference_id, (standing.log_rate,), (one,), False, teaches_good=standing.accepted)


def _candidates(runs: tuple[RunResult, ...]) -> list[RunResult]:
    return [run for run in runs if run.role == Build.CANDIDATE.value]


def _recorded(plan: CasePlan, runs: tuple[RunResult, ...]) -> RecordedReference | None:
    """The recorded entry, with the facts in which the segment of any run differs. A resumed run may have another
    driver."""
    environments = [run.environment for run in _candidates(runs) if run.measured] or [{}]
    references = [recorded_reference(plan, environment) for environment in environments]
    first = references[0]
    if first is None:
        return None
    different = [each for reference in references if reference for each in reference.differences]
    return replace(first, differences=tuple(dict.fromkeys(different)))


def reusable_runs(plan: CasePlan, store: ResultStore, allow_contention: bool) -> tuple[RunResult, ...]:
    """The session's finished runs of exactly this plan, as far as they follow one another without a gap.

    A run is made again if it failed or was configured differently, if it is of another machine, driver, data or build,
    or if it was contended and contention is not allowed; so are all runs after it. Invalid runs are kept if a usable
    one follows: they are attempts of this night, and count against its budget. Failed runs that may be repeated count
    too, also as the last ones. A case that had used up its attempts gets one more when it is resumed: just enough of
    its last failed runs are left out.
    """
    found = store.results(plan.case.id)
    mine: list[RunResult] = []
    for number, run in enumerate(found):
        if run.replicate != number or not is_of_plan(plan, run, allow_contention):
            break
        mine.append(run)
    if len(mine) < len(found) and found[len(mine)].build != _build_of(plan, found[len(mine)]):
        _drop_half_pair(mine)
    while mine and not mine[-1].measured:
        failed = sum(run.failure is not None for run in mine)
        if mine[-1].failure is not None and failed <= plan.budget.retries:
            # Another attempt of it may be made.
            break
        mine.pop()
    return tuple(mine)


def is_of_plan(plan: CasePlan, run: RunResult, allow_contention: bool) -> bool:
    """Whether an earlier run of the session can stand for one that the plan has still to make."""
    return (
        (run.measured or run.invalid is not None or run.evidence.retriable)
        and run.target == plan.suite_case.target
        and run.build == _build_of(plan, run)
        and run.environment.get("data", "") == plan.data
        and all(run.environment.get(name, "") == value for name, value in plan.environment.items())
        and (allow_contention or not {CONTENDED, SLOWED} & set(run.marks))
        and dict(run.protocol) == plan.protocol.steps
        and _as_stored(run.settings) == _as_stored(plan.settings)
        and _as_stored(run.overrides) == _as_stored(plan.overrides)
    )


def _build_of(plan: CasePlan, run: RunResult) -> Mapping[str, str] | None:
    """The build that the plan has for a run of this role; None without one."""
    return plan.build if run.role == Build.CANDIDATE.value else plan.reference or None


def _drop_half_pair(runs: list[RunResult]) -> None:
    """Leave out a run whose other half is made again, because a pair is two runs made one after the other."""
    while runs and runs[-1].is_confirming:
        roles = [run.role for run in runs if run.is_confirming and run.measured]
        if roles.count(Build.CANDIDATE.value) == roles.count(Build.REFERENCE.value):
            return
        runs.pop()


def most_runs(plan: CasePlan) -> int:
    """The most runs that a judge within the case's budget can request in one night."""
    budget = plan.budget
    usable = max(plan.planned_runs, budget.screen_runs, budget.first_runs) + 2 * budget.pairs
    return usable * (1 + budget.repeats) + budget.retries


def _check_request(plan: CasePlan, request: NeedRuns, made: int, most: int) -> None:
    """Raises SuiteError if a judge requests no run, or runs without end."""
    if not request.order or made + len(request.order) > most:
        raise SuiteError(
            f"case {plan.case.id}",
            got=f"{len(request.order)} more runs wanted after {made} ({request.why.code.value})",
            expected=f"a verdict within {most} runs",
            remedy="Report this; the numbers under budgets in perf.yaml bound it",
        )


def _as_stored(values: Mapping[str, Any]) -> str:
    """The values as they are in a result file, in which a tuple is a list."""
    return json.dumps(dict(values), sort_keys=True, default=dict)
