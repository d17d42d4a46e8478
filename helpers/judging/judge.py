"""Judging: evidence in, a verdict or a request for runs out. Pure: no clock, no disk, no process.

Two references, two questions. *Published*: does this machine deliver what the table
says, by the table's own rule, within a plain band? *Recorded*: is this build slower here than before
(docs/verdicts.md)? A case's status is the worst of both answers.
"""

from __future__ import annotations

from collections.abc import Sequence

from helpers.judging.answer import Answer, no_baseline
from helpers.judging.attempts import RUN_FAILED, attempts_used_up, told_attempts
from helpers.judging.evidence import Build, Evidence, RunEvidence, Stage, invalid_in_a_row
from helpers.judging.published import against_published
from helpers.judging.rules import run_figure
from helpers.judging.statistics import Summary, summarise
from helpers.judging.verdict import NeedRuns, Reason, Status, SubVerdict, Verdict


def judge(evidence: Evidence) -> Verdict | NeedRuns:
    """A verdict, or the runs still needed for one."""
    screening = tuple(
        run for run in evidence.runs if run.usable and run.build is Build.CANDIDATE and run.stage is Stage.SCREEN
    )
    if (ended := _ended(evidence, screening)) is not None:
        return ended
    missing = max(evidence.planned_runs, 1) - len(screening)
    if missing > 0:
        why = f"run {len(screening) + 1} of the {max(evidence.planned_runs, 1)} its protocol plans"
        return NeedRuns(Build.CANDIDATE, (Build.CANDIDATE,) * missing, missing, why)
    # Not at the top: it loads numpy, and who only lists cases judges none.
    from helpers.judging.recorded import against_recorded

    answer = against_recorded(evidence, screening)
    if isinstance(answer, NeedRuns):
        return answer
    published = tuple(against_published(evidence, reference, screening) for reference in evidence.published)
    return _verdict(evidence, published, answer, _measured(evidence, screening))


def _verdict(
    evidence: Evidence, published: tuple[SubVerdict, ...], answer: Answer, measured: Summary | None
) -> Verdict:
    recorded = answer.told
    deciding = [each for each in published if each.sets_status]
    second = recorded
    if not recorded.sets_status:
        second = no_baseline(f"the recorded figure is only shown ({recorded.reason.message})", evidence)
    told = []
    if second.status is Status.NO_BASELINE and deciding and not evidence.recorded_required:
        # docs/reference.md, "Statuses": all that is required of the case is published.
        nothing = recorded.reference is None and not evidence.why_not_recorded
        told.append(no_baseline("recorded: none", evidence).reason.message if nothing else second.reason.message)
    else:
        deciding.append(second)
    worst = min(deciding, key=lambda each: each.status.badness)
    reason = _told_together(worst, deciding)
    told = [reason.message, *told, _discarded(evidence), told_attempts(evidence)]
    reason = Reason(reason.code, "; ".join(filter(None, told)))
    return Verdict(worst.status, reason, measured, published, recorded, answer.standing)


def _ended(evidence: Evidence, screening: Sequence[RunEvidence]) -> Verdict | None:
    """The verdict of a case that its runs have ended: refused, crashed, without a figure, invalid too often."""
    reference = f"reference build {evidence.reference_build or ''}".rstrip()

    def ended(status: Status, code: str, message: str) -> Verdict:
        told = "; ".join(filter(None, (message, told_attempts(evidence))))
        return Verdict(status, Reason(code, told), _measured(evidence, screening))

    for at, run in enumerate(evidence.runs):
        failed = [each for each in evidence.runs[:at] if each.failure is not None]
        if run.refusal is not None and run.build is Build.REFERENCE:
            return ended(Status.INFRA_ERROR, "reference-refused", f"{reference} cannot run this: {run.refusal}")
        if run.refusal is not None and (screening or failed):
            # What it ran before it can run: a skip would hide what those runs showed.
            made = f"{len(screening)} usable run{'' if len(screening) == 1 else 's'}"
            told = f"refused after {made if screening else 'a failed run'}: {run.refusal}"
            return ended(Status.INFRA_ERROR, "refused-later", told)
        if run.refusal is not None:
            return ended(Status.NOT_RUN, "refused", run.refusal)
    if (failure := attempts_used_up(evidence)) is not None:
        return Verdict(Status.INFRA_ERROR, Reason(RUN_FAILED, failure), _measured(evidence, screening))
    for run in screening:
        if isinstance(problem := run_figure(evidence.rule, run.figures), str):
            return ended(Status.INFRA_ERROR, "no-figure", problem)
    row = invalid_in_a_row(evidence.runs)
    if len(row) > evidence.budget.repeats:
        repeated = f" ({len(row)} invalid runs in a row, all that budgets.repeats = {evidence.budget.repeats} allows)"
        return ended(Status.INVALID, "run-invalid", row[-1] + (repeated if len(row) > 1 else ""))
    return None


def _measured(evidence: Evidence, screening: Sequence[RunEvidence]) -> Summary | None:
    """Summary of the usable screening runs by the case's own rule, None when there is none."""
    figures = [run_figure(evidence.rule, run.figures) for run in screening]
    values = tuple(figure for figure in figures if not isinstance(figure, str))
    return summarise(values) if values else None


def _discarded(evidence: Evidence) -> str:
    invalid = [run.invalid for run in evidence.runs if run.invalid is not None]
    return f"discarded and made again: {len(invalid)} ({invalid[-1]})" if invalid else ""


def _told_together(worst: SubVerdict, deciding: list[SubVerdict]) -> Reason:
    """The worst answer first; the other question's answer is told with it, not hidden behind it."""
    others = [answer.reason.message for answer in deciding if answer is not worst]
    return Reason(worst.reason.code, "; ".join([worst.reason.message, *others]))
