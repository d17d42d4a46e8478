"""A case's row in all reports: a view of its outcome, as plain values that can be written as JSON."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from helpers.history.results import IMAGES_FACT, RunResult, interleaved_pairs
from helpers.judging.case.evidence import Build
from helpers.judging.case.verdict import Standing, SubVerdict
from helpers.judging.finding import Finding
from helpers.judging.rules.own import CaseFigure, over_runs, run_figure
from helpers.judging.rules.rates import rate_unit, to_record
from helpers.judging.statistics import number, summarise
from helpers.plan.case_plan import CPU
from helpers.plan.overrides import neutral_reason, segment_of
from helpers.report.reasons import outcome_text, reason_text
from helpers.report.utilisation import Utilisation
from helpers.session.outcome import CaseOutcome
from helpers.trainers.contract.errors import ConfigError


@dataclass(frozen=True)
class ReferenceAnswer:
    """The comparison of the case with one reference; both figures are samples/s by ``rule``."""

    status: str
    rule: str
    label: str
    reference_samples_per_s: float | None
    measured_samples_per_s: float | None
    ratio: float | None
    tolerance: float | None
    sets_status: bool
    reason: str

    @staticmethod
    def of(answer: SubVerdict) -> ReferenceAnswer:
        return ReferenceAnswer(
            answer.status.value,
            answer.rule,
            answer.label,
            answer.reference,
            answer.measured,
            answer.ratio,
            answer.tolerance,
            answer.sets_status,
            reason_text(answer.reason),
        )


@dataclass(frozen=True)
class Pair:
    """One pair of a confirmation, in samples/s by ``median-step``."""

    # The build that ran first.
    first: str
    reference_samples_per_s: float
    candidate_samples_per_s: float

    @property
    def difference(self) -> float:
        """The difference of the new build from the reference build, as a fraction (-0.02 is 2% slower)."""
        return self.candidate_samples_per_s / self.reference_samples_per_s - 1


@dataclass(frozen=True)
class CaseRow:
    """One case of one session.

    Figures and steps are only those of usable screening runs of the build under test. A confirmation is made because
    these runs looked slow (or fast), so its runs together with them would not be a fair sample.
    """

    case_id: str
    target: str
    status: str
    effect: str
    code: str
    reason: str
    # What the reason is made of.
    findings: tuple[Finding, ...] = ()
    # False for a case outside the gate.
    judged: bool = True
    rule: str = ""
    # The median over the runs by ``rule``.
    samples_per_s: float | None = None
    # The largest distance of a run from the median, as a fraction of the median.
    spread: float | None = None
    # The ends of the 95% interval of ``samples_per_s``.
    low: float | None = None
    high: float | None = None
    runs: int = 0
    run_samples_per_s: tuple[float, ...] = ()
    step_seconds: tuple[tuple[float, ...], ...] = ()
    samples_per_step: int | None = None
    # The case's samples/s by each rule, or why there is none.
    figures: tuple[CaseFigure, ...] = ()
    published: tuple[ReferenceAnswer, ...] = ()
    recorded: ReferenceAnswer | None = None
    # The settings changed with ``--set`` that may change the throughput.
    overrides: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    # The share of the window that the rank which waited longest spent waiting for data; the median over the runs.
    reader_share: float | None = None
    # The loader of the data, in words.
    loader: str = ""
    foreign_share: float | None = None
    # The time of all runs of the case.
    wall_seconds: float = 0.0
    # The part of that time in training steps.
    training_seconds: float = 0.0
    resumed: int = 0
    run_folders: tuple[str, ...] = ()
    framework: Mapping[str, str] = field(default_factory=dict)
    # The facts that must be equal for results to be compared.
    segment: Mapping[str, str] = field(default_factory=dict)
    log_tail: str = ""
    standing: Standing | None = None
    # The pairs of the confirmation.
    pairs: tuple[Pair, ...] = ()
    # The runs that were not used for figures, each with the reason.
    set_aside: tuple[str, ...] = ()
    # Those of ``set_aside`` that failed, whatever the verdict is.
    attempts: tuple[str, ...] = ()
    # The name of the reference build; empty if there is none, and then ``why_no_reference`` says why.
    reference_build: str = ""
    why_no_reference: str = ""
    # ``samples_per_s`` as a share of the cards' measured peak; None if no peak was requested.
    utilisation: Utilisation | None = None
    # The median by ``rule`` of the invalid runs, if there are no usable ones. It is marked as invalid and not compared.
    invalid_samples_per_s: float | None = None
    # The owner of the case in perf.yaml.
    owner: str = ""
    # In words, until when and why the case cannot fail the gate.
    quarantine: str = ""

    def to_record(self) -> dict[str, Any]:
        return dict(to_record(self))


def row_of(outcome: CaseOutcome) -> CaseRow:
    """The row of a case of this session."""
    verdict, rule = outcome.verdict, outcome.rule
    runs = [run for run in outcome.runs if run.is_screening]
    measured = [run for run in runs if run.measured]
    failed = [run for run in outcome.runs if run.failure is not None]
    rates = tuple(rate for run in measured if (rate := _rate(run, rule)) is not None)
    summary = summarise(rates) if rates else None
    invalid = [rate for run in runs if run.invalid is not None and (rate := _rate(run, rule)) is not None]
    shares = [run.reader_share for run in measured if run.reader_share is not None]
    return CaseRow(
        case_id=outcome.case.id,
        target=outcome.target,
        status=verdict.status.value,
        effect=outcome.gating.effect.value,
        code=verdict.reason.code,
        reason=outcome_text(outcome),
        findings=verdict.reason.findings,
        judged=outcome.gating.judged,
        rule=rule,
        samples_per_s=summary.centre if summary else None,
        spread=summary.spread if summary else None,
        low=summary.low if summary else None,
        high=summary.high if summary else None,
        runs=len(measured),
        run_samples_per_s=rates,
        step_seconds=tuple(run.step_seconds for run in measured),
        samples_per_step=next((run.samples_per_step[0] for run in measured if run.samples_per_step), None),
        figures=over_runs([run.figures for run in measured]),
        published=tuple(ReferenceAnswer.of(answer) for answer in verdict.published),
        recorded=ReferenceAnswer.of(verdict.recorded) if verdict.recorded else None,
        overrides=_overrides_that_matter(outcome.runs),
        marks=outcome.marks,
        warnings=(*_of_few_runs(len(rates)), *_image_remarks(measured)),
        reader_share=statistics.median(shares) if shares else None,
        loader=next((run.facts["loader"] for run in measured if "loader" in run.facts), ""),
        foreign_share=outcome.foreign_share,
        wall_seconds=sum(run.wall_seconds for run in outcome.runs),
        training_seconds=sum(run.training_seconds for run in outcome.runs),
        resumed=outcome.resumed,
        run_folders=outcome.run_folders,
        framework=dict(runs[-1].build) if runs else {},
        segment=_segment(measured[-1]) if measured else {},
        log_tail=_log_tail(outcome.runs),
        standing=verdict.standing,
        pairs=_pairs(outcome.runs),
        set_aside=tuple(_set_aside(run, rule) for run in outcome.runs if not run.measured),
        attempts=tuple(_set_aside(run, rule) for run in failed),
        reference_build=outcome.good.name,
        why_no_reference=outcome.good.why_none,
        utilisation=Utilisation.of(summary.centre, outcome.case, measured[0].settings, measured[0].environment)
        if summary
        else None,
        invalid_samples_per_s=statistics.median(invalid) if invalid and not rates else None,
        owner=outcome.owner,
        quarantine=outcome.gating.quarantine,
    )


def _pairs(runs: Iterable[RunResult]) -> tuple[Pair, ...]:
    return tuple(
        Pair(
            min(reference, candidate, key=lambda run: run.replicate).role,
            math.exp(reference.log_rate or 0.0),
            math.exp(candidate.log_rate or 0.0),
        )
        for reference, candidate in interleaved_pairs(runs)
    )


def _set_aside(run: RunResult, rule: str) -> str:
    """``r3 (reference build): throttled; invalid: 3.41 samples/s by wall-clock``."""
    build = "" if run.role == Build.CANDIDATE.value else f" ({run.role} build)"
    text = f"r{run.replicate}{build}: {run.failure or run.invalid or run.refusal}"
    return text if run.invalid is None or _rate(run, rule) is None else f"{text}; invalid: {_figure(run, rule)}"


def _rate(run: RunResult, rule: str) -> float | None:
    figure = run_figure(rule, run.figures)
    return None if isinstance(figure, str) else figure


def _log_tail(runs: Iterable[RunResult]) -> str:
    """The last lines of the log of the last failed run; those of invalid runs that were repeated are not shown."""
    unusable = sorted((run for run in runs if not run.measured), key=lambda run: (run.failure is None, -run.replicate))
    return next((run.log_tail for run in unusable), "")


def _overrides_that_matter(runs: tuple[RunResult, ...]) -> tuple[str, ...]:
    changed = {key for run in runs for key, value in run.overrides.items() if neutral_reason(key, value) is None}
    return tuple(sorted(changed))


def _segment(run: RunResult) -> dict[str, str]:
    try:
        return segment_of(run.environment, run.settings, run.case_id)
    except ConfigError:
        # A result of another version of the suite. It is shown without a segment, so it is not compared.
        return {}


def _figure(run: RunResult, rule: str) -> str:
    figure = run_figure(rule, run.figures)
    return figure if isinstance(figure, str) else f"{number(figure)} {rate_unit(run.case_id)} by {rule}"


def _of_few_runs(runs: int) -> Iterator[str]:
    if runs == 1:
        yield "one run: no spread between runs is known"
    elif runs == 2:
        yield "2 runs: the interval is wide, 3 or more narrow it"


def _image_remarks(runs: Sequence[RunResult]) -> tuple[str, ...]:
    """What is to be known of the images, if the suite has made them for the comparison."""
    return tuple(dict.fromkeys(run.facts[IMAGES_FACT] for run in runs if IMAGES_FACT in run.facts))


# A case is reader-bound from this share of the window on (docs/published.md, "Reader (data) share"): 14% to 48%
# where the reader is known to hold up the published runs, at most 4% elsewhere; 10% lies between.
READER_BOUND_SHARE = 0.10


def share_cell(row: CaseRow) -> str:
    """The share of time spent waiting for data, in at most 4 columns: ``12%``, ``<1%``, or ``-`` if it is not known."""
    if row.reader_share is None:
        return "-"
    share = f"{row.reader_share:.0%}"
    return "<1%" if share == "0%" else share


def is_reader_bound(row: CaseRow) -> bool:
    return row.reader_share is not None and row.reader_share >= READER_BOUND_SHARE


def reader_note(row: CaseRow) -> str | None:
    """Why the case is reader-bound and what to do about it; None for one that is not.

    On a GPU it is the share of the host's time: while the host waits, the card may still compute queued work.
    """
    if row.reader_share is None or not is_reader_bound(row):
        return None
    loader = f" ({row.loader})" if row.loader else ""
    note = f"reader-bound: the rank that waited longest spent {row.reader_share:.0%} of its window waiting for data"
    if row.target != CPU:
        note += " on the host, while the card may still have computed"
    return f"{note}{loader}; raise --set dali.threads=N or native.workers=N, or see what a synthetic case trains"
