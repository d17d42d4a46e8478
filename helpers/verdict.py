"""Judging: evidence in, a verdict or a request for runs out. Pure: no clock, no disk, no process.

Two references, two questions (house plan). *Published*: does this machine deliver what the table
says, by the table's own rule, within a plain band? *Recorded*: is this build slower here than the
recorded one? A case's status is the worst of both answers.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from helpers.evidence import Build, Evidence, PublishedReference, RunEvidence
from helpers.rules import case_figure, run_figure
from helpers.stats import Summary, number, summarise

# A figure exactly at the edge of a band is inside it, whatever the last bits of the division say.
_ROUNDING = 1e-9


class Status(enum.Enum):
    """Worst first, as in the house plan's table; NOT_RUN stands outside the order."""

    INFRA_ERROR = "INFRA_ERROR"
    INVALID = "INVALID"
    REGRESSION = "REGRESSION"
    BELOW_PUBLISHED = "BELOW_PUBLISHED"
    INCOMPARABLE = "INCOMPARABLE"
    INCONCLUSIVE = "INCONCLUSIVE"
    NO_BASELINE = "NO_BASELINE"
    IMPROVEMENT = "IMPROVEMENT"
    PASS = "PASS"
    NOT_RUN = "not run"

    @property
    def badness(self) -> int:
        """0 is the worst."""
        return list(Status).index(self)


class Question(enum.Enum):
    PUBLISHED = "published"
    RECORDED = "recorded"


@dataclass(frozen=True)
class Reason:
    """Why: a short code for programs, a sentence with the numbers for people."""

    code: str
    message: str


@dataclass(frozen=True)
class SubVerdict:
    """The answer to one question. ``measured`` and ``reference`` in images/s by ``rule``; ``sets_status``
    is False for rows that are only shown (reference, disputed)."""

    question: Question
    status: Status
    reason: Reason
    rule: str = ""
    measured: float | None = None
    reference: float | None = None
    tolerance: float | None = None
    label: str = ""
    sets_status: bool = True

    @property
    def ratio(self) -> float | None:
        if self.measured is None or self.reference is None:
            return None
        return self.measured / self.reference


@dataclass(frozen=True)
class Verdict:
    """A case's status with its reason and both answers; ``measured`` is None when nothing was."""

    status: Status
    reason: Reason
    measured: Summary | None = None
    published: tuple[SubVerdict, ...] = ()
    recorded: SubVerdict | None = None


@dataclass(frozen=True)
class NeedRuns:
    """The answer is open: run ``count`` more replicates of ``build``, builds in ``order``."""

    build: Build
    order: tuple[Build, ...]
    count: int
    why: str


def judge(evidence: Evidence) -> Verdict | NeedRuns:
    """A verdict, or the runs still needed for one."""
    for run in evidence.runs:
        if run.refusal is not None:
            return Verdict(Status.NOT_RUN, Reason("refused", run.refusal))
        if run.failure is not None:
            return _unusable(evidence, Status.INFRA_ERROR, Reason("run-failed", run.failure))
    for run in evidence.runs:
        if run.invalid is not None:
            return _unusable(evidence, Status.INVALID, Reason("run-invalid", run.invalid))
    candidates = _candidates(evidence)
    for run in candidates:
        if isinstance(problem := run_figure(evidence.rule, run.figures), str):
            return _unusable(evidence, Status.INFRA_ERROR, Reason("no-figure", problem))
    missing = max(evidence.planned_runs, 1) - len(candidates)
    if missing > 0:
        why = f"run {len(candidates) + 1} of the {evidence.planned_runs} its protocol plans"
        return NeedRuns(Build.CANDIDATE, (Build.CANDIDATE,) * missing, missing, why)
    published = tuple(_against_published(evidence, reference) for reference in evidence.published)
    recorded = _against_recorded(evidence)
    deciding = [answer for answer in (*published, recorded) if answer.sets_status]
    if not recorded.sets_status:
        deciding.append(_no_baseline(f"the recorded figure is only shown ({recorded.reason.message})", evidence))
    worst = min(deciding, key=lambda answer: answer.status.badness)
    return Verdict(worst.status, _told_together(worst, deciding), _measured(evidence), published, recorded)


def _unusable(evidence: Evidence, status: Status, reason: Reason) -> Verdict:
    return Verdict(status, reason, _measured(evidence))


def _candidates(evidence: Evidence) -> tuple[RunEvidence, ...]:
    return tuple(run for run in evidence.runs if run.build is Build.CANDIDATE)


def _measured(evidence: Evidence) -> Summary | None:
    """Summary of the candidate's usable runs by the case's own rule, None when there is none."""
    usable = [run for run in _candidates(evidence) if run.failure is run.invalid is run.refusal is None]
    figures = [run_figure(evidence.rule, run.figures) for run in usable]
    values = tuple(figure for figure in figures if not isinstance(figure, str))
    return summarise(values) if values else None


def _against_published(evidence: Evidence, reference: PublishedReference) -> SubVerdict:
    def answer(status: Status, code: str, message: str, measured: float | None = None) -> SubVerdict:
        return SubVerdict(
            Question.PUBLISHED,
            status,
            Reason(code, message),
            reference.rule,
            measured,
            reference.images_per_s,
            reference.tolerance,
            reference.label,
            reference.gates,
        )

    measured = _by_rule(evidence, reference.rule)
    if isinstance(measured, str):
        return answer(Status.INCONCLUSIVE, "rule-not-computable", f"published: {measured}")
    ratio = measured / reference.images_per_s
    numbers = (
        f"{number(measured)} images/s is {ratio - 1:+.1%} against the published {number(reference.images_per_s)} "
        f"({reference.label}; by {reference.rule}; band -{reference.tolerance:.1%})"
    )
    if changed := [key for key in evidence.overrides if key not in evidence.neutral]:
        told = f"settings changed ({', '.join(changed)}): {numbers}"
        return answer(Status.INCOMPARABLE, "overridden", told, measured)
    numbers += _neutral_note(evidence)
    if ratio < 1 - reference.tolerance - _ROUNDING:
        return answer(Status.BELOW_PUBLISHED, "below-published", numbers, measured)
    return answer(Status.PASS, "within-published", numbers, measured)


def _against_recorded(evidence: Evidence) -> SubVerdict:
    recorded = evidence.recorded
    if recorded is None:
        return _no_baseline("nothing recorded for this case on this machine", evidence)

    def answer(status: Status, code: str, message: str, measured: float | None = None) -> SubVerdict:
        return SubVerdict(
            Question.RECORDED,
            status,
            Reason(code, message),
            recorded.rule,
            measured,
            recorded.images_per_s,
            recorded.tolerance,
            recorded.label,
            recorded.gates,
        )

    measured = _by_rule(evidence, recorded.rule)
    if isinstance(measured, str):
        return answer(Status.INCONCLUSIVE, "rule-not-computable", f"recorded: {measured}")
    change = measured / recorded.images_per_s - 1
    numbers = (
        f"{number(measured)} images/s is {change:+.1%} against the recorded {number(recorded.images_per_s)} "
        f"({recorded.label}; by {recorded.rule}; n={len(_candidates(evidence))}; band ±{recorded.tolerance:.1%})"
    )
    apart = [f"recorded in another segment ({_first_few(recorded.differences)})"] if recorded.differences else []
    if evidence.overrides:
        changed = f"settings changed ({', '.join(evidence.overrides)})"
        told = [changed, "a recorded figure is only for the case as it stands", *apart]
        return answer(Status.INCOMPARABLE, "overridden", f"{'; '.join(told)}: {numbers}", measured)
    if apart:
        return answer(Status.INCOMPARABLE, "other-segment", f"{apart[0]}: {numbers}", measured)
    if change < -recorded.tolerance - _ROUNDING:
        return answer(Status.REGRESSION, "slower-than-recorded", numbers, measured)
    if change > recorded.tolerance + _ROUNDING:
        return answer(Status.IMPROVEMENT, "faster-than-recorded", numbers, measured)
    return answer(Status.PASS, "within-recorded", numbers, measured)


def _first_few(told: Sequence[str], shown: int = 5) -> str:
    left = len(told) - shown
    return "; ".join(told[:shown]) + (f"; and {left} more" if left > 0 else "")


def _neutral_note(evidence: Evidence) -> str:
    """The changed settings that the throughput does not depend on, empty without any."""
    told = [f"{key}: {evidence.neutral[key]}" for key in evidence.overrides]
    return f"; changed, but not what a step does ({'; '.join(told)})" if told else ""


def _no_baseline(what: str, evidence: Evidence) -> SubVerdict:
    remedy = f"record it: {evidence.record_command}"
    if evidence.overrides:
        remedy = f"settings changed ({', '.join(evidence.overrides)}), so this is not recorded; without --set, {remedy}"
    message = f"{what}; {remedy}"
    return SubVerdict(Question.RECORDED, Status.NO_BASELINE, Reason("no-baseline", message))


def _by_rule(evidence: Evidence, rule: str) -> float | str:
    """The case's median by a rule, or why there is none."""
    found = case_figure(rule, [run.figures for run in _candidates(evidence)])
    return found.reason if found.images_per_s is None else found.images_per_s


def _told_together(worst: SubVerdict, deciding: list[SubVerdict]) -> Reason:
    """The worst answer first; the other question's answer is told with it, not hidden behind it."""
    others = [answer.reason.message for answer in deciding if answer is not worst]
    return Reason(worst.reason.code, "; ".join([worst.reason.message, *others]))
