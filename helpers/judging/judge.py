"""Judging: evidence in, a verdict or a request for runs out. Pure: no clock, no disk, no process.

There are two references, and a question for each. *Published*: does this machine deliver what the table says, by the
table's own rule, within a plain band? *Recorded*: is this build slower here than before (docs/verdicts.md)? A case's
status is the worse of both answers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from helpers.judging import wording
from helpers.judging.evidence import Build, Evidence, PublishedReference, RunEvidence, Stage, invalid_in_a_row
from helpers.judging.rates import rate_unit
from helpers.judging.rules import RULES, WALL_CLOCK, median_over_runs, run_figure
from helpers.judging.statistics import Summary, hodges_lehmann, number, summarise
from helpers.judging.verdict import (
    OTHER_PROGRAM,
    AnswerAndStanding,
    NeedRuns,
    Reason,
    Status,
    SubVerdict,
    Verdict,
    answer_about,
    no_baseline,
)
from helpers.judging.wording import counted

# The code of a verdict whose case has used up its attempts.
RUN_FAILED = "run-failed"
# A figure exactly at the edge of a band is inside it, whatever the last bits of the division say.
_ROUNDING = 1e-9


def judge(evidence: Evidence) -> Verdict | NeedRuns:
    """A verdict, or the runs still needed for one."""
    screening = tuple(
        run for run in evidence.runs if run.usable and run.build is Build.CANDIDATE and run.stage is Stage.SCREEN
    )
    if (ended := _ended(evidence, screening)) is not None:
        return ended
    missing = max(evidence.planned_runs, 1) - len(screening)
    if missing > 0:
        why = f"{max(evidence.planned_runs, 1)} planned"
        return NeedRuns(Build.CANDIDATE, (Build.CANDIDATE,) * missing, missing, why)
    # Imported here because it loads numpy, which listing the cases does not need.
    from helpers.judging.recorded import against_recorded

    answer = against_recorded(evidence, screening)
    if isinstance(answer, NeedRuns):
        return answer
    published = tuple(against_published(evidence, reference, screening) for reference in evidence.published)
    return _verdict(evidence, published, answer, _measured(evidence, screening))


def _verdict(
    evidence: Evidence, published: tuple[SubVerdict, ...], found: AnswerAndStanding, measured: Summary | None
) -> Verdict:
    recorded = found.answer
    deciding = [each for each in published if each.sets_status]
    second = recorded
    if not recorded.sets_status:
        second = no_baseline(f"the recorded figure is only shown ({recorded.reason.message})", evidence)
    notes = []
    if second.status is Status.NO_BASELINE and deciding and not evidence.recorded_required:
        # docs/reference.md, "Statuses": all that is required of the case is published.
        nothing = recorded.reference is None and not evidence.why_not_recorded
        notes.append(no_baseline("recorded: none", evidence).reason.message if nothing else second.reason.message)
    else:
        deciding.append(second)
    worst = min(deciding, key=lambda each: each.status.badness)
    # The worse answer comes first, and the other question's answer is shown beside it.
    messages = [_programs_apart(evidence)]
    messages += [worst.reason.message, *(each.reason.message for each in deciding if each is not worst), *notes]
    messages += [each.reason.message for each in published if each.reason.code == OTHER_PROGRAM]
    messages += [f"program: {evidence.program.kind}" if evidence.program else ""]
    messages += [_discarded(evidence), _ended_attempts(evidence)]
    reason = Reason(worst.reason.code, "; ".join(filter(None, messages)))
    return Verdict(worst.status, reason, measured, published, recorded, found.standing)


def _programs_apart(evidence: Evidence) -> str:
    """Says that the two builds trained programs of different kinds; empty if they did not."""
    new, good = ({run.program for run in evidence.runs if run.usable and run.build is build} for build in Build)
    if not new or not good or new == good:
        return ""
    mine, other = (" and ".join(sorted(each or "not stated" for each in kinds)) for kinds in (new, good))
    return f"different programs: {mine} with the build under test, {other} with {_reference(evidence)}"


def _ended(evidence: Evidence, screening: Sequence[RunEvidence]) -> Verdict | None:
    """The verdict of a case whose runs have ended it: refused, crashed, without a figure, invalid too often."""

    def ended(status: Status, code: str, message: str) -> Verdict:
        reason = Reason(code, "; ".join(filter(None, (message, _ended_attempts(evidence)))))
        return Verdict(status, reason, _measured(evidence, screening))

    for at, run in enumerate(evidence.runs):
        failed = [each for each in evidence.runs[:at] if each.failure is not None]
        if run.refusal is not None and run.build is Build.REFERENCE:
            message = f"{_reference(evidence)} cannot run this: {run.refusal}"
            return ended(Status.INFRA_ERROR, "reference-refused", message)
        if run.refusal is not None and (screening or failed):
            # A build that has run the case can run it: a skip would hide what those runs showed.
            made = counted(len(screening), "usable run") if screening else "a failed run"
            message = f"refused after {made}: {run.refusal}"
            return ended(Status.INFRA_ERROR, "refused-later", message)
        if run.refusal is not None:
            return ended(Status.NOT_RUN, "refused", run.refusal)
    if (failure := attempts_used_up(evidence)) is not None:
        return Verdict(Status.INFRA_ERROR, Reason(RUN_FAILED, failure), _measured(evidence, screening))
    for run in screening:
        if isinstance(problem := run_figure(evidence.rule, run.figures), str):
            return ended(Status.INFRA_ERROR, "no-figure", problem)
    confirming = [run for run in evidence.runs if run.usable and run.stage is Stage.CONFIRM]
    # A recorded figure that decides says so itself (helpers/judging/recorded.py).
    if not _recorded_decides(evidence) and not all(map(_has_median_step, confirming)):
        message = f"a run of the confirmation has no {rate_unit(evidence.case_id)} by the median step"
        return ended(Status.INFRA_ERROR, "no-figure", message)
    row = invalid_in_a_row(evidence.runs)
    if len(row) > evidence.budget.repeats:
        repeated = f" ({len(row)} invalid runs in a row, all that budgets.repeats = {evidence.budget.repeats} allows)"
        verdict = ended(Status.INVALID, "run-invalid", row[-1] + (repeated if len(row) > 1 else ""))
        return only_shown(evidence, verdict)
    return None


def only_shown(evidence: Evidence, verdict: Verdict) -> Verdict:
    """The verdict on a case that was not judged, with what its usable runs show all the same against both references
    and in whole pairs. None of it sets the status."""
    screening = [run for run in evidence.runs if run.usable and run.stage is Stage.SCREEN]
    if not screening:
        return verdict
    code = verdict.reason.code
    published = [against_published(evidence, each, screening) for each in evidence.published]
    answers = [replace(each, status=verdict.status, sets_status=False) for each in published]
    recorded = None
    if evidence.recorded is not None:
        measured = median_over_runs(evidence.recorded.rule, [run.figures for run in screening])
        text = f"recorded: {measured}"
        if not isinstance(measured, str):
            text = wording.beside_recorded(evidence, evidence.recorded, measured, len(screening))
        figure = None if isinstance(measured, str) else measured
        recorded = replace(answer_about(evidence.recorded, verdict.status, code, text, figure), sets_status=False)
    told = [each.reason.message for each in (*([recorded] if recorded else []), *answers)]
    told += filter(None, [_pairs_shown(evidence)])
    if not told:
        return verdict
    message = f"{verdict.reason.message}; not judged, only shown: {'; '.join(told)}"
    return replace(verdict, reason=Reason(code, message), published=tuple(answers), recorded=recorded)


def _pairs_shown(evidence: Evidence) -> str:
    """What the whole pairs show; empty without any."""
    new, good = (
        [run.log_rate for run in evidence.runs if run.usable and run.stage is Stage.CONFIRM and run.build is build]
        for build in Build
    )
    found = [one - other for one, other in zip(new, good, strict=False) if one is not None and other is not None]
    if not found:
        return ""
    size, slower = math.expm1(hodges_lehmann(found)), sum(each < 0 for each in found)
    pairs = counted(len(found), "pair")
    return f"{pairs} beside {_reference(evidence)}: {size:+.2%}, {slower} of {len(found)} slower"


def end_without_comparison(evidence: Evidence, failure: str | None) -> Verdict | None:
    """The verdict on runs that are compared with nothing, if they have ended the case; None if more may be made.

    A refusal ends it, then ``failure`` (why a failed run is not repeated), then more invalid runs in a row than the
    budget repeats.
    """
    if (refused := next((run.refusal for run in evidence.runs if run.refusal is not None), None)) is not None:
        return Verdict(Status.NOT_RUN, Reason("refused", refused))
    if failure is not None:
        return Verdict(Status.INFRA_ERROR, Reason(RUN_FAILED, failure))
    row = invalid_in_a_row(evidence.runs)
    if len(row) > evidence.budget.repeats:
        return Verdict(Status.INVALID, Reason("run-invalid", f"{len(row)} invalid runs in a row: {row[-1]}"))
    return None


def _recorded_decides(evidence: Evidence) -> bool:
    return evidence.recorded is not None and evidence.recorded.gates


def _has_median_step(run: RunEvidence) -> bool:
    return run.log_rate is not None and math.isfinite(run.log_rate)


def no_median_step(evidence: Evidence) -> Verdict | None:
    """The verdict if a usable run has no figure by the median step; None if each has one."""
    if all(_has_median_step(run) for run in evidence.runs if run.usable):
        return None
    message = f"a run has no {rate_unit(evidence.case_id)} by the median step"
    return Verdict(Status.INFRA_ERROR, Reason("no-figure", message))


def measured_of(evidence: Evidence) -> Summary | None:
    """The summary of the usable screening runs; None if no run has a figure."""
    return _measured(evidence, [run for run in evidence.runs if run.usable and run.stage is Stage.SCREEN])


def _measured(evidence: Evidence, screening: Sequence[RunEvidence]) -> Summary | None:
    """The summary of the usable screening runs by the case's own rule; None if no run has a figure."""
    figures = [run_figure(evidence.rule, run.figures) for run in screening]
    values = tuple(figure for figure in figures if not isinstance(figure, str))
    return summarise(values) if values else None


def _discarded(evidence: Evidence) -> str:
    invalid = [run.invalid for run in evidence.runs if run.invalid is not None]
    return f"discarded and made again: {len(invalid)} ({invalid[-1]})" if invalid else ""


def against_published(evidence: Evidence, reference: PublishedReference, runs: Sequence[RunEvidence]) -> SubVerdict:
    """The answer for one published figure; ``runs`` are the usable screening runs."""
    measured = median_over_runs(reference.rule, [run.figures for run in runs])
    if isinstance(measured, str):
        return answer_about(reference, Status.INCONCLUSIVE, "rule-not-computable", f"published: {measured}")
    ratio = measured / reference.samples_per_s
    numbers = (
        f"{number(measured)} {rate_unit(evidence.case_id)} is {ratio - 1:+.1%} against the published "
        f"{number(reference.samples_per_s)} ({reference.label}; by {reference.rule}; n={len(runs)}; "
        f"band -{reference.tolerance:.1%})"
    )
    numbers += _with_waits(reference.rule, runs)
    if changed := [key for key in evidence.overrides if key not in evidence.neutral]:
        message = f"settings changed ({', '.join(changed)}): {numbers}"
        return answer_about(reference, Status.INCOMPARABLE, "overridden", message, measured)
    numbers += _neutral_note(evidence) + _differences_note(evidence)
    if evidence.program is not None and not evidence.program.is_published:
        message = f"published: not judged, because a program of {evidence.program.kind} is not the published program"
        shown = answer_about(reference, Status.INCOMPARABLE, OTHER_PROGRAM, f"{message}: {numbers}", measured)
        return replace(shown, sets_status=False)
    if ratio < 1 - reference.tolerance - _ROUNDING:
        return answer_about(reference, Status.BELOW_PUBLISHED, "below-published", numbers, measured)
    return answer_about(reference, Status.PASS, "within-published", numbers, measured)


def _differences_note(evidence: Evidence) -> str:
    """In what the program differs from the published one; empty if it does not, or if nothing is known of it."""
    if evidence.program is None or not evidence.program.differences:
        return ""
    return f"; not the published program's operators ({'; '.join(evidence.program.differences)})"


def _with_waits(rule: str, runs: Sequence[RunEvidence]) -> str:
    """The same runs' figure by the wall clock, if ``rule`` leaves out the waits for data; else empty."""
    if rule not in RULES or RULES[rule].counts_waits:
        return ""
    figure = median_over_runs(WALL_CLOCK, [run.figures for run in runs])
    with_them = figure if isinstance(figure, str) else f"{number(figure)} by {WALL_CLOCK}"
    return f"; the rule leaves out the waits for data, with them it is {with_them}"


def _neutral_note(evidence: Evidence) -> str:
    """The note on changed settings that do not change the throughput; empty if there are none."""
    notes = [f"{key}: {evidence.neutral[key]}" for key in evidence.overrides]
    return f"; changed, but not what a step does ({'; '.join(notes)})" if notes else ""


def attempts_used_up(evidence: Evidence) -> str | None:
    """Why the case has no verdict on its throughput: the failure that ended it, then the attempts before it.

    None if no run failed, or if another attempt may be made; then a failed run counts as never made.
    """
    failed = _failed(evidence)
    final = next((at for at, run in enumerate(failed) if not run.retriable), None)
    if final is None:
        if len(failed) <= evidence.budget.retries:
            return None
        final = len(failed) - 1
    messages = [_whose(evidence, failed[final])]
    if final:
        messages += [f"attempt {final + 1} of {_most(evidence)}", *_ends(evidence, failed[:final])]
    return "; ".join(messages)


def _ended_attempts(evidence: Evidence) -> str:
    """``attempt 1 of 2 ended: killed by a signal: ...`` for each failed run; empty if none failed."""
    return "; ".join(_ends(evidence, _failed(evidence)))


def _failed(evidence: Evidence) -> list[RunEvidence]:
    return [run for run in evidence.runs if run.failure is not None]


def _ends(evidence: Evidence, failed: Sequence[RunEvidence]) -> list[str]:
    return [f"attempt {at} of {_most(evidence)} ended: {_whose(evidence, run)}" for at, run in enumerate(failed, 1)]


def _most(evidence: Evidence) -> int:
    return 1 + evidence.budget.retries


def _whose(evidence: Evidence, run: RunEvidence) -> str:
    """The failure; where two builds run, with the build that failed."""
    if run.build is Build.REFERENCE:
        return f"{_reference(evidence)}: {run.failure}"
    return f"build under test: {run.failure}" if run.stage is Stage.CONFIRM else str(run.failure)


def _reference(evidence: Evidence) -> str:
    return f"reference build {evidence.reference_build or ''}".rstrip()
