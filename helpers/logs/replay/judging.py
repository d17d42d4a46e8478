"""Judges the logs of a case where a session would otherwise train (``--replay``).

No process is started, no card is leased and no framework is asked. A replayed result enters neither baselines nor
history, so no later run is compared with it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from helpers.history import Memory
from helpers.history.results import CONTENDED, LOG_FACT, REPLAYED, SLOWED, RunResult
from helpers.history.run_folders import ResultStore
from helpers.judging.evidence import Build, Evidence, Past, PublishedReference, Stage
from helpers.judging.rules import (
    WALL_CLOCK,
    figures,
    reader_share,
    run_figure,
    samples_per_step,
    step_seconds,
    window_seconds,
)
from helpers.judging.verdict import Reason
from helpers.judging.wording import counted
from helpers.logs.record import HONEST
from helpers.logs.replay.fit import CaseLogs
from helpers.logs.replay.logs import AnyRun, LoggedRun
from helpers.logs.replay.own import OwnRun
from helpers.logs.results import result_of
from helpers.logs.settings import LogSetting, card_words, same_card
from helpers.machine.wall_clock import utc_now
from helpers.plan.baseline_files import FigureStatus
from helpers.plan.case_plan import CasePlan, SuiteCase
from helpers.plan.perf_yaml import Config
from helpers.plan.recorded import RecordedEntry
from helpers.session.judged_again import judge_again, plan_again
from helpers.session.measure import CaseResult, evidence_of, segment_tonight
from helpers.trainers.contract.case import Case, DataSource
from helpers.trainers.contract.errors import ResultError

_NAMED = 2
_NO_STEPS = "not compared, since another program's log holds neither each step's seconds nor the environment"
_NO_RESULT = "not compared: there is no result.json beside the step logs, so their environment is not known"
_NOTHING = "nothing recorded for this case on this machine"


@dataclass(frozen=True)
class ReplayRunner:
    """Implements session.Runner: the k-th run is the k-th log of the case. Raises ResultError when there are no more
    logs."""

    case: SuiteCase
    runs: Sequence[AnyRun]
    store: ResultStore

    def run(
        self, plan: CasePlan, replicate: int, build: Build = Build.CANDIDATE, stage: Stage = Stage.SCREEN
    ) -> RunResult:
        if replicate >= len(self.runs):
            raise ResultError(
                f"case {plan.case.id}", got=f"run {replicate + 1}", expected=f"one of its {len(self.runs)} logs"
            )
        result = replayed(self.runs[replicate], self.case, self.store.session, replicate)
        self.store.new_run_folder(plan.case.id, replicate)
        self.store.write(result)
        return result


@dataclass(frozen=True)
class ReplayTerms:
    """Values from the session that are needed to judge logs."""

    config: Config
    # Returns this machine's recorded entry of a case; None if there is none.
    recorded: Callable[[SuiteCase], RecordedEntry | None]
    # Opens the history for reading; returns None if there is none.
    memory: Callable[[], Memory | None]
    # Whether runs that were disturbed by other processes, or slowed down, may be judged.
    allow_disturbed: bool = True
    cases_tonight: int = 1
    # Whether perf.yaml requires a recorded figure for a case.
    recorded_required: Callable[[SuiteCase], bool | None] = lambda case: None


@dataclass(frozen=True)
class _Recorded:
    """This machine's recorded figures with which a case is compared."""

    entry: RecordedEntry | None = None
    past: Past = field(default_factory=Past)
    # Why there is nothing to compare with.
    why_not: str = ""


def replay_case(case: SuiteCase, fitting: CaseLogs, store: ResultStore, terms: ReplayTerms) -> CaseResult:
    """Judge the logs of a case. Each result is written to disk before the verdict. Raises SuiteError if that fails."""
    runner = ReplayRunner(case, fitting.runs, store)
    plan = CasePlan(case)
    made = tuple(runner.run(plan, number) for number in range(len(fitting.runs)))
    runs = tuple(_checked(run, terms.allow_disturbed) for run in made)
    plan = _plan(case, fitting.runs, runs, terms)
    recorded = _recorded(plan, fitting.runs, runs, terms)
    plan = replace(plan, recorded=recorded.entry)
    answer = judge_again(_evidence(plan, runs, recorded, terms))
    message = f"{_source_text(plan, fitting, runs)}: {answer.reason.message}"
    # ``standing`` is kept for later nights. A replay leaves nothing for them.
    verdict = replace(answer, reason=Reason(answer.reason.code, message), standing=None)
    store.add_verdict(runs, verdict)
    return CaseResult(plan, verdict, runs)


def _plan(case: SuiteCase, logs: Sequence[AnyRun], runs: Sequence[RunResult], terms: ReplayTerms) -> CasePlan:
    config = terms.config
    published = published_for(case, [log.gpu for log in logs], config.tolerances.of(case.case.id).published)
    plan = plan_again(
        case,
        runs,
        config,
        published=published,
        rule=rule_of(published, logs, runs),
        recorded_required=terms.recorded_required(case),
    )
    return plan if plan.reference else replace(plan, why_no_reference=f"{REPLAYED} logs: nothing is run for comparison")


def published_for(case: SuiteCase, gpus: Sequence[str], tolerance: float) -> tuple[PublishedReference, ...]:
    """The published figures for the card on which all logs ran, as far as the logs name it.

    A log that says only ``V100`` is compared with the V100 rows of all form factors and memory sizes; the label says
    so.
    """
    found = []
    for figure in case.figures:
        if not gpus or not all(gpu and same_card(gpu, figure.gpu) for gpu in gpus):
            continue
        vague = sorted({gpu for gpu in gpus if card_words(figure.gpu).keys() - card_words(gpu).keys()})
        note = f" (the log says {' and '.join(vague)})" if vague else ""
        label = f"{figure.table}, {figure.gpu}{note}, {figure.case.framework.value} {figure.framework_version}"
        gates = figure.status is FigureStatus.GATE
        found.append(PublishedReference(figure.samples_per_s, figure.rule, label, gates, tolerance))
    return tuple(found)


def rule_of(published: Sequence[PublishedReference], logs: Sequence[AnyRun], runs: Sequence[RunResult]) -> str:
    """The rule whose rate is shown first.

    It is the rule of a published figure, if the logs give it (figures that decide go first); else the rule that the
    log's publisher uses; else the honest rule. A published figure is compared only by its own rule.
    """
    measured = [run for run in runs if run.measured]
    names = [each.rule for each in sorted(published, key=lambda each: not each.gates)]
    names += [WALL_CLOCK if isinstance(log, OwnRun) else log.imported.usual for log in logs]
    for name in (*names, HONEST):
        if measured and not any(isinstance(run_figure(name, run.figures), str) for run in measured):
            return name
    return names[0]


def _recorded(plan: CasePlan, logs: Sequence[AnyRun], runs: tuple[RunResult, ...], terms: ReplayTerms) -> _Recorded:
    """This machine's entry for a case, if the logs are own step logs with their environment; a different environment
    counts as in any session.

    The past is that before the session of the logs.
    """
    own = [log for log in logs if isinstance(log, OwnRun)]
    if not own:
        return _Recorded(why_not=_NO_STEPS)
    if any(log.result is None for log in own):
        return _Recorded(why_not=_NO_RESULT)
    if (entry := terms.recorded(plan.suite_case)) is None:
        return _Recorded(why_not=_NOTHING)
    segment = segment_tonight(plan, runs)
    if not segment or (memory := terms.memory()) is None:
        return _Recorded(entry)
    case = plan.case
    return _Recorded(entry, memory.past(case.id, plan.suite_case.target, segment, case.cards, own[0].session))


def _evidence(plan: CasePlan, runs: tuple[RunResult, ...], recorded: _Recorded, terms: ReplayTerms) -> Evidence:
    evidence = evidence_of(plan, runs, recorded.past, cases_tonight=terms.cases_tonight)
    return replace(
        evidence,
        why_not_recorded=recorded.why_not,
        record_command="measure it, pytest perf_tests --update-baselines (not with --replay)",
    )


def _checked(run: RunResult, allow_disturbed: bool) -> RunResult:
    """The run itself; marked invalid if it was disturbed and that is not allowed, since no such run enters a gate."""
    disturbed = [mark for mark in (CONTENDED, SLOWED) if mark in run.marks]
    if allow_disturbed or not disturbed or not run.measured:
        return run
    return replace(run, invalid=f"{' and '.join(disturbed)}: no such run enters a gate")


def _source_text(plan: CasePlan, fitting: CaseLogs, runs: Sequence[RunResult]) -> str:
    """``replayed from a.log and b.log (2 of the 7 runs that the protocol plans)``."""
    names = [log.name for log in fitting.runs]
    shown = " and ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
    screened = sum(run.stage == Stage.SCREEN.value for run in runs)
    notes = list(fitting.notes)
    if screened < plan.protocol.runs:
        notes.insert(0, f"{screened} of the {plan.protocol.runs} runs that the protocol plans")
    return f"{REPLAYED} from {shown}" + (f" ({'; '.join(notes)})" if notes else "")


def replayed(run: AnyRun, case: SuiteCase, session: str, replicate: int) -> RunResult:
    """The run as a result of origin ``replayed``: run ``replicate`` of ``case`` in the session that judges it."""
    if isinstance(run, OwnRun):
        return _of_own_run(run, case, session, replicate)
    return result_of(
        run.imported,
        run.settings,
        run.name,
        doubts=_doubts(run, case.case),
        uuid=uuid.uuid4().hex,
        session=session,
        case_id=case.case.id,
        target=case.target,
        replicate=replicate,
        origin=REPLAYED,
    )


def _doubts(run: LoggedRun, case: Case) -> tuple[str, ...]:
    """A warning about settings that the case states and the log does not."""
    stated = {
        LogSetting.NODES: case.nodes > 1,
        LogSetting.DATA: case.data is not DataSource.UNSTATED,
        LogSetting.EXECUTION: case.execution is not None,
        LogSetting.XLA: case.xla,
    }
    names = [each.value for each, matters in stated.items() if matters and run.stated(each) is None]
    return (f"the log does not state its {', '.join(names)}: taken from the case",) if names else ()


def _of_own_run(run: OwnRun, case: SuiteCase, session: str, replicate: int) -> RunResult:
    """The run's own result, or a new one if there is none, with its figures computed again from the step logs."""
    ranks = f"step logs of {counted(case.case.cards, 'rank')}"
    kept = run.result or _without_result(run, case)
    how = f"measured {kept.created[:10]}" if run.result else "without a result.json: how it was measured is not known"
    judged = replace(
        kept,
        uuid=uuid.uuid4().hex,
        session=session,
        target=case.target,
        replicate=replicate,
        origin=REPLAYED,
        facts={**kept.facts, LOG_FACT: f"{run.name}, session {run.session}, {ranks}, {how}", "replayed run": kept.uuid},
        verdict=None,
    )
    if not run.logs:
        return judged
    return replace(
        judged,
        figures=figures(run.logs),
        step_seconds=step_seconds(run.logs),
        samples_per_step=samples_per_step(run.logs),
        losses=tuple(step.loss for step in run.logs[0].window if step.loss is not None),
        window_seconds=window_seconds(run.logs),
        reader_share=reader_share(run.logs),
    )


def _without_result(run: OwnRun, case: SuiteCase) -> RunResult:
    header = run.logs[0].header
    build = {"framework": header.framework, "version": header.framework_version, "commit": header.framework_commit}
    return RunResult(
        uuid=header.job_id,
        session=run.session,
        case_id=run.case_id,
        target=case.target,
        replicate=header.replicate,
        created=utc_now().isoformat(timespec="seconds"),
        build=build,
        facts=dict(header.facts),
    )
