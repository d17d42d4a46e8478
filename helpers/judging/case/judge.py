"""Judging: evidence in, a verdict or a request for runs out. Pure: no clock, no disk, no process.

There are two references, and a question for each. *Published*: does this machine deliver what the table says, by the
table's own rule, within a plain band? *Recorded*: is this build slower here than before (docs/verdicts.md)? A case's
status is the worse of both answers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from helpers.judging.case.evidence import Build, Evidence, PublishedReference, RunEvidence, Stage, invalid_in_a_row
from helpers.judging.case.shown import beside_recorded
from helpers.judging.case.verdict import (
    NeedRuns,
    Reason,
    Standing,
    Status,
    SubVerdict,
    Verdict,
    answer_about,
    no_baseline,
)
from helpers.judging.finding import Code, Finding, found
from helpers.judging.rules.own import RULES, WALL_CLOCK, median_over_runs, run_figure
from helpers.judging.rules.rates import rate_unit
from helpers.judging.statistics import Summary, hodges_lehmann, summarise

# A figure exactly at the edge of a band is inside it, whatever the last bits of the division say.
_ROUNDING = 1e-9


def judge(evidence: Evidence) -> Verdict | NeedRuns:
    """A verdict, or the runs still needed for one."""
    if (ended := _ended(evidence)) is not None:
        return ended
    planned = max(evidence.planned_runs, 1)
    missing = planned - len(evidence.screened)
    if missing > 0:
        return NeedRuns((Build.CANDIDATE,) * missing, found(Code.PLANNED, runs=planned))
    # Imported here because it loads numpy, which listing the cases does not need.
    from helpers.judging.case.recorded import against_recorded

    answered = against_recorded(evidence)
    if isinstance(answered, NeedRuns):
        return answered
    return _verdict(evidence, *answered)


def _verdict(evidence: Evidence, answer: SubVerdict, standing: Standing | None) -> Verdict:
    published = tuple(against_published(evidence, reference) for reference in evidence.published)
    deciding = [each for each in published if each.sets_status]
    second = answer
    if not answer.sets_status:
        second = no_baseline(found(Code.RECORDED_ONLY_SHOWN, *answer.reason.findings), evidence)
    notes: tuple[Finding, ...] = ()
    if second.status is Status.NO_BASELINE and deciding and not evidence.recorded_required:
        # docs/reference.md, "Statuses": all that is required of the case is published.
        nothing = answer.reference is None
        notes = (no_baseline(found(Code.NONE_RECORDED), evidence) if nothing else second).reason.findings
    else:
        deciding.append(second)
    worst = min(deciding, key=lambda each: each.status.badness)
    others = [each for each in published if each.reason.code == Code.OTHER_PROGRAM]
    # The worse answer comes first, and the other question's answer is shown beside it.
    shown = [worst, *(each for each in deciding if each is not worst)]
    findings = [
        _programs_apart(evidence),
        *(finding for each in shown for finding in each.reason.findings),
        *notes,
        *(finding for each in others for finding in each.reason.findings),
        found(Code.PROGRAM, kind=evidence.program.kind) if evidence.program else None,
        _discarded(evidence),
        *_ended_attempts(evidence),
    ]
    reason = Reason(worst.reason.code, findings=tuple(filter(None, findings)))
    return Verdict(worst.status, reason, measured_of(evidence), published, answer, standing)


def _programs_apart(evidence: Evidence) -> Finding | None:
    """That the two builds trained programs of different kinds; None if they did not."""
    new, good = ({run.program for run in evidence.runs if run.usable and run.build is build} for build in Build)
    if not new or not good or new == good:
        return None
    return found(Code.PROGRAMS_APART, new=tuple(sorted(new)), good=tuple(sorted(good)), build=evidence.reference_build)


def _ended(evidence: Evidence) -> Verdict | None:
    """The verdict of a case whose runs have ended it: refused, crashed, without a figure, invalid too often."""

    def ended(status: Status, claim: Finding) -> Verdict:
        return Verdict(status, Reason.of(claim, *_ended_attempts(evidence)), measured_of(evidence))

    screening = evidence.screened

    for at, run in enumerate(evidence.runs):
        failed = [each for each in evidence.runs[:at] if each.failure is not None]
        if run.refusal is not None and run.build is Build.REFERENCE:
            claim = found(Code.REFERENCE_REFUSED, build=evidence.reference_build, why=run.refusal)
            return ended(Status.INFRA_ERROR, claim)
        if run.refusal is not None and (screening or failed):
            # A build that has run the case can run it: a skip would hide what those runs showed.
            return ended(Status.INFRA_ERROR, found(Code.REFUSED_LATER, usable=len(screening), why=run.refusal))
        if run.refusal is not None:
            return ended(Status.NOT_RUN, found(Code.REFUSED, why=run.refusal))
    if failure := attempts_used_up(evidence):
        return Verdict(Status.INFRA_ERROR, Reason.of(*failure), measured_of(evidence))
    for run in screening:
        if isinstance(problem := run_figure(evidence.rule, run.figures), str):
            return ended(Status.INFRA_ERROR, found(Code.NO_FIGURE, why=problem))
    # A recorded figure that decides says so itself (helpers/judging/case/recorded.py).
    decides = evidence.recorded is not None and evidence.recorded.gates
    pairs = [run for run in evidence.runs if run.stage is Stage.CONFIRM]
    if not decides and (lacks := _no_median_step(evidence, pairs)) is not None:
        return ended(Status.INFRA_ERROR, lacks)
    if (row := _invalid_too_often(evidence)) is not None:
        return only_shown(evidence, ended(Status.INVALID, row))
    return None


def _invalid_too_often(evidence: Evidence) -> Finding | None:
    """The longest row of invalid runs; None if another attempt may be made."""
    row = invalid_in_a_row(evidence.runs)
    if len(row) <= evidence.budget.repeats:
        return None
    return found(Code.RUN_INVALID, why=row[-1], row=len(row), repeats=evidence.budget.repeats)


def only_shown(evidence: Evidence, verdict: Verdict) -> Verdict:
    """The verdict on a case that was not judged, with what its usable runs show all the same against both references
    and in whole pairs. None of it sets the status."""
    if not evidence.screened:
        return verdict
    published = [against_published(evidence, each) for each in evidence.published]
    answers = [replace(each, status=verdict.status, sets_status=False) for each in published]
    recorded = None
    if evidence.recorded is not None:
        measured = median_over_runs(evidence.recorded.rule, [run.figures for run in evidence.screened])
        if isinstance(measured, str):
            shown, figure = found(Code.NOT_COMPUTABLE, of="recorded", why=measured), None
        else:
            shown, figure = beside_recorded(evidence, measured, evidence.recorded.differences), measured
        answer = answer_about(evidence.recorded, verdict.status, Reason.of(shown, code=verdict.reason.code), figure)
        recorded = replace(answer, sets_status=False)
    each_shown = [finding for each in (recorded, *answers) if each is not None for finding in each.reason.findings]
    each_shown += filter(None, [_pairs_shown(evidence)])
    if not each_shown:
        return verdict
    reason = replace(verdict.reason, findings=(*verdict.reason.findings, found(Code.NOT_JUDGED, *each_shown)))
    return replace(verdict, reason=reason, published=tuple(answers), recorded=recorded)


def _pairs_shown(evidence: Evidence) -> Finding | None:
    """What the whole pairs show; None without any."""
    new, good = ([run.log_rate for run in evidence.in_pairs(build)] for build in Build)
    pairs = [one - other for one, other in zip(new, good, strict=False) if one is not None and other is not None]
    if not pairs:
        return None
    return found(
        Code.PAIRS_SHOWN,
        pairs=len(pairs),
        slower=sum(each < 0 for each in pairs),
        change=math.expm1(hodges_lehmann(pairs)),
        build=evidence.reference_build,
    )


def end_without_comparison(evidence: Evidence, failure: Sequence[Finding]) -> Verdict | None:
    """The verdict on runs that are compared with nothing, if they have ended the case; None if more may be made.

    A refusal ends it, then ``failure`` (why a failed run is not repeated; empty if it is), then more invalid runs in a
    row than the budget repeats.
    """
    if (refused := next((run.refusal for run in evidence.runs if run.refusal is not None), None)) is not None:
        return Verdict(Status.NOT_RUN, Reason.of(found(Code.REFUSED, why=refused)))
    if failure:
        return Verdict(Status.INFRA_ERROR, Reason.of(*failure))
    if (row := _invalid_too_often(evidence)) is not None:
        return Verdict(Status.INVALID, Reason.of(row))
    return None


def no_median_step(evidence: Evidence) -> Verdict | None:
    """The verdict if a usable run has no figure by the median step; None if each has one."""
    claim = _no_median_step(evidence, evidence.runs)
    return None if claim is None else Verdict(Status.INFRA_ERROR, Reason.of(claim))


def _no_median_step(evidence: Evidence, runs: Iterable[RunEvidence]) -> Finding | None:
    if all(run.log_rate is not None and math.isfinite(run.log_rate) for run in runs if run.usable):
        return None
    return found(Code.NO_FIGURE, why=None, unit=rate_unit(evidence.case_id))


def measured_of(evidence: Evidence) -> Summary | None:
    """The summary of the usable screening runs by the case's own rule; None if no run has a figure."""
    figures = [run_figure(evidence.rule, run.figures) for run in evidence.screened]
    values = tuple(figure for figure in figures if not isinstance(figure, str))
    return summarise(values) if values else None


def _discarded(evidence: Evidence) -> Finding | None:
    invalid = [run.invalid for run in evidence.runs if run.invalid is not None]
    return found(Code.DISCARDED, runs=len(invalid), last=invalid[-1]) if invalid else None


def against_published(evidence: Evidence, reference: PublishedReference) -> SubVerdict:
    """The answer for one published figure."""
    runs = evidence.screened
    measured = median_over_runs(reference.rule, [run.figures for run in runs])
    if isinstance(measured, str):
        why = found(Code.NOT_COMPUTABLE, of="published", why=measured)
        return answer_about(reference, Status.INCONCLUSIVE, Reason.of(why))
    ratio = measured / reference.samples_per_s
    numbers = found(
        Code.BESIDE_PUBLISHED,
        measured=measured,
        unit=rate_unit(evidence.case_id),
        published=reference.samples_per_s,
        label=reference.label,
        rule=reference.rule,
        n=len(runs),
        band=reference.tolerance,
    )
    waits = _with_waits(reference.rule, runs)
    if changed := [key for key in evidence.overrides if key not in evidence.neutral]:
        claim = found(Code.OVERRIDDEN, numbers, waits, settings=", ".join(changed), recorded=False)
        return answer_about(reference, Status.INCOMPARABLE, Reason.of(claim), measured)
    notes = [waits, _neutral_note(evidence), _differences_note(evidence)]
    if evidence.program is not None and not evidence.program.is_published:
        claim = found(Code.OTHER_PROGRAM, numbers, *notes, kind=evidence.program.kind)
        return replace(answer_about(reference, Status.INCOMPARABLE, Reason.of(claim), measured), sets_status=False)
    below = ratio < 1 - reference.tolerance - _ROUNDING
    status = Status.BELOW_PUBLISHED if below else Status.PASS
    code = Code.BELOW_PUBLISHED if below else Code.WITHIN_PUBLISHED
    return answer_about(reference, status, Reason.of(numbers, *notes, code=code.value), measured)


def _differences_note(evidence: Evidence) -> Finding | None:
    """In what the program differs from the published one; None if it does not, or if nothing is known of it."""
    if evidence.program is None or not evidence.program.differences:
        return None
    return found(Code.OTHER_OPERATORS, differences=evidence.program.differences)


def _with_waits(rule: str, runs: Sequence[RunEvidence]) -> Finding | None:
    """The same runs' figure by the wall clock, if ``rule`` leaves out the waits for data."""
    if rule not in RULES or RULES[rule].counts_waits:
        return None
    return found(Code.WITH_WAITS, figure=median_over_runs(WALL_CLOCK, [run.figures for run in runs]), rule=WALL_CLOCK)


def _neutral_note(evidence: Evidence) -> Finding | None:
    """The changed settings that do not change the throughput."""
    notes = tuple(f"{key}: {evidence.neutral[key]}" for key in evidence.overrides)
    return found(Code.NEUTRAL_SETTINGS, settings=notes) if notes else None


def attempts_used_up(evidence: Evidence) -> tuple[Finding, ...]:
    """Why the case has no verdict on its throughput: the failure that ended it, then the attempts before it.

    Empty if no run failed, or if another attempt may be made; then a failed run counts as never made.
    """
    failed = [run for run in evidence.runs if run.failure is not None]
    final = next((at for at, run in enumerate(failed) if not run.retriable), None)
    if final is None:
        if len(failed) <= evidence.budget.retries:
            return ()
        final = len(failed) - 1
    last = found(
        Code.RUN_FAILED, attempt=final + 1, most=1 + evidence.budget.retries, **_failure(evidence, failed[final])
    )
    return last, *_ended_attempts(evidence, final)


def failed_run(failure: str, attempts: int = 1) -> Finding:
    """The finding on a case that ends with this failure, after so many attempts in a row."""
    return found(Code.RUN_FAILED, why=failure, role="", build=None, attempt=attempts, most=attempts)


def _ended_attempts(evidence: Evidence, failures: int | None = None) -> list[Finding]:
    """How the first so many failed attempts ended; without a number, all of them."""
    most = 1 + evidence.budget.retries
    failed = [run for run in evidence.runs if run.failure is not None][:failures]
    return [
        found(Code.ATTEMPT_ENDED, attempt=at, most=most, **_failure(evidence, run)) for at, run in enumerate(failed, 1)
    ]


def _failure(evidence: Evidence, run: RunEvidence) -> dict[str, str | None]:
    """The failure; where two builds run, with the build that failed."""
    build = evidence.reference_build if run.build is Build.REFERENCE else None
    role = run.build.value if run.build is Build.REFERENCE or run.stage is Stage.CONFIRM else ""
    return {"why": run.failure, "role": role, "build": build}
