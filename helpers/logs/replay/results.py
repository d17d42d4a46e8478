"""A log's run, or a run of our own, as a result of origin ``replayed``."""

from __future__ import annotations

import uuid
from dataclasses import replace

from helpers.history.results import LOG_FACT, REPLAYED, RunResult
from helpers.judging.rules import figures, reader_share, samples_per_step, step_seconds, window_seconds
from helpers.logs.as_result import result_of
from helpers.logs.record import Setting
from helpers.logs.replay.logs import AnyRun, LoggedRun
from helpers.logs.replay.own import OwnRun
from helpers.machine.wall_clock import utc_now
from helpers.plan.case_plan import SuiteCase
from helpers.trainers.contract.case import Case, DataSource


def replayed(run: AnyRun, case: SuiteCase, session: str, replicate: int) -> RunResult:
    """The run as replicate ``replicate`` of ``case`` in the session that judges it again."""
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
    """What the case states and the log does not."""
    stated = {
        Setting.NODES: case.nodes > 1,
        Setting.DATA: case.data is not DataSource.UNSTATED,
        Setting.EXECUTION: case.execution is not None,
        Setting.XLA: case.xla,
    }
    names = [each.value for each, matters in stated.items() if matters and run.said(each) is None]
    return (f"the log does not tell its {', '.join(names)}: taken as the case has it",) if names else ()


def _of_own_run(run: OwnRun, case: SuiteCase, session: str, replicate: int) -> RunResult:
    """Its own result where there is one, the figures computed anew from the step logs."""
    ranks = f"step logs of {case.case.cards} rank{'' if case.case.cards == 1 else 's'}"
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
