"""A case's line in every report, as plain values: it travels between processes and into JSON as it stands."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from helpers.history.results import CONTENDED, MEASURED, RunResult
from helpers.judging.evidence import Build, Stage
from helpers.judging.judge import RUN_FAILED
from helpers.judging.rates import fields_of, key_of, to_record
from helpers.judging.rules import CaseFigure, run_figure
from helpers.judging.statistics import number, summarise
from helpers.judging.utilisation import Utilisation
from helpers.judging.verdict import Standing, SubVerdict
from helpers.launch.failure import FAILURE_FACT
from helpers.plan.overrides import neutral_reason
from helpers.plan.segments import segment_of
from helpers.session.from_logs import figures_of, log_warnings, sources_of
from helpers.session.measure import CaseResult
from helpers.session.policy import Effect
from helpers.trainers.contract.errors import ConfigError, ResultError

_SCREENED = (Build.CANDIDATE.value, Stage.SCREEN.value)
_TUPLES = ("run_samples_per_s", "overrides", "marks", "warnings", "run_folders", "set_aside", "attempts", "sources")


@dataclass(frozen=True)
class Comparison:
    """One reference and its answer: samples/s measured by ``rule`` beside the reference's."""

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
    def of(answer: SubVerdict) -> Comparison:
        return Comparison(
            answer.status.value,
            answer.rule,
            answer.label,
            answer.reference,
            answer.measured,
            answer.ratio,
            answer.tolerance,
            answer.sets_status,
            answer.reason.message,
        )


@dataclass(frozen=True)
class Pair:
    """One interleaved pair of a confirmation, samples/s by ``median-step``; ``first`` is the build that ran first.

    ``difference`` is of the new build against the reference build, as a fraction (-0.02 is 2% slower).
    """

    first: str
    reference_samples_per_s: float
    candidate_samples_per_s: float

    @property
    def difference(self) -> float:
        return self.candidate_samples_per_s / self.reference_samples_per_s - 1


@dataclass(frozen=True)
class CaseRow:
    """One case of one session.

    ``samples_per_s`` is the median over ``runs`` by ``rule``; ``low`` and ``high`` bound the mean with
    95% confidence; ``spread`` is the largest distance of a run from the median, as a fraction of it.
    These, and the steps and figures, are of the usable screening runs of the build under test and of no others: the
    runs of a confirmation were made because these looked slow (or fast), so that in one sample with them they would
    be no fair one. They are in ``pairs``, with the reference build's; ``set_aside`` are the runs that no figure
    rests on, each with its reason. ``attempts`` are those of them that a failure ended, whatever the verdict became;
    ``failure_class`` is the last one's (failure.FailureClass), where it is why the case has no other verdict.

    ``judged`` is False for a case outside the gate. ``figures`` are the case's samples/s by every rule, or why
    a rule gives none. ``reader_share`` is the median over runs of the share of the window that the rank which
    waited most for data spent waiting, ``loader`` who read the data. ``overrides`` are the settings changed with
    ``--set`` that a throughput may depend on, ``segment`` the facts within which results are compared.
    ``wall_seconds`` is all of its runs, ``training_seconds`` the part spent in training steps. ``standing`` is the
    verdict's. ``reference_build`` names the good build at hand, ``why_no_reference`` why there is none.
    ``utilisation`` holds ``samples_per_s`` against the cards' measured peak; None where no peak was asked for.
    ``origin`` is the runs' (RunResult): of what was not ``measured`` in this session ``sources`` are the logs, one
    line a run. ``invalid_samples_per_s`` is the median by ``rule`` of its invalid runs where no other is usable: shown
    as such, and held against nothing.
    """

    case_id: str
    target: str
    status: str
    effect: str
    code: str
    reason: str
    judged: bool = True
    rule: str = ""
    samples_per_s: float | None = None
    spread: float | None = None
    low: float | None = None
    high: float | None = None
    runs: int = 0
    run_samples_per_s: tuple[float, ...] = ()
    step_seconds: tuple[tuple[float, ...], ...] = ()
    samples_per_step: int | None = None
    figures: tuple[CaseFigure, ...] = ()
    published: tuple[Comparison, ...] = ()
    recorded: Comparison | None = None
    overrides: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    reader_share: float | None = None
    loader: str = ""
    foreign_share: float | None = None
    wall_seconds: float = 0.0
    training_seconds: float = 0.0
    resumed: int = 0
    run_folders: tuple[str, ...] = ()
    framework: Mapping[str, str] = field(default_factory=dict)
    segment: Mapping[str, str] = field(default_factory=dict)
    log_tail: str = ""
    standing: Standing | None = None
    pairs: tuple[Pair, ...] = ()
    set_aside: tuple[str, ...] = ()
    attempts: tuple[str, ...] = ()
    failure_class: str = ""
    reference_build: str = ""
    why_no_reference: str = ""
    utilisation: Utilisation | None = None
    origin: str = MEASURED
    sources: tuple[str, ...] = ()
    invalid_samples_per_s: float | None = None

    @property
    def is_measured(self) -> bool:
        """Whether its runs were made in this session, and not read from logs."""
        return self.origin == MEASURED

    def to_record(self) -> dict[str, Any]:
        return dict(to_record(self))

    @staticmethod
    def from_record(record: Mapping[str, Any]) -> CaseRow:
        """The row of a record that ``to_record`` made, also after a trip through JSON."""
        known = {key_of(item.name) for item in fields(CaseRow)}
        if wrong := sorted(set(record) ^ known):
            expected = "a known key" if wrong[0] in record else "a value"
            raise ResultError("case row", field=wrong[0], expected=expected)
        values = fields_of(record)
        try:
            values["published"] = tuple(Comparison(**fields_of(item)) for item in record["published"])
            values["recorded"] = None if record["recorded"] is None else Comparison(**fields_of(record["recorded"]))
            values["step_seconds"] = tuple(tuple(run) for run in record["step_seconds"])
            values["figures"] = tuple(_figure(item) for item in record["figures"])
            values["standing"] = None if record["standing"] is None else Standing(**record["standing"])
            values["pairs"] = tuple(Pair(**fields_of(item)) for item in record["pairs"])
            share = record["utilisation"]
            values["utilisation"] = None if share is None else Utilisation.from_record(share)
            for name in _TUPLES:
                values[name] = tuple(values[name])
        except (KeyError, TypeError) as error:
            raise ResultError("case row", got=str(error), expected="lists and comparisons where they belong") from error
        return CaseRow(**values)


def row_of(result: CaseResult, effect: Effect, *, judged: bool = True, run_folders: tuple[str, ...] = ()) -> CaseRow:
    """The report's line of a judged case."""
    verdict, plan = result.verdict, result.plan
    runs = [run for run in result.runs if (run.role, run.stage) == _SCREENED]
    measured = [run for run in runs if run.measured]
    failed = [run for run in result.runs if run.failure is not None]
    figures = [run_figure(plan.rule, run.figures) for run in measured]
    rates = tuple(figure for figure in figures if not isinstance(figure, str))
    summary = summarise(rates) if rates else None
    invalid = [rate for run in runs if run.invalid is not None and (rate := _rate(run, plan.rule)) is not None]
    shares = [run.reader_share for run in measured if run.reader_share is not None]
    return CaseRow(
        case_id=plan.case.id,
        target=plan.suite_case.target,
        status=verdict.status.value,
        effect=effect.value,
        code=verdict.reason.code,
        reason=verdict.reason.message,
        judged=judged,
        rule=plan.rule,
        samples_per_s=summary.centre if summary else None,
        spread=summary.spread if summary else None,
        low=summary.low if summary else None,
        high=summary.high if summary else None,
        runs=len(measured),
        run_samples_per_s=rates,
        step_seconds=tuple(run.step_seconds for run in measured),
        samples_per_step=next((run.samples_per_step[0] for run in measured if run.samples_per_step), None),
        figures=figures_of(measured),
        published=tuple(Comparison.of(answer) for answer in verdict.published),
        recorded=Comparison.of(verdict.recorded) if verdict.recorded else None,
        overrides=_telling_overrides(result.runs),
        marks=_marks(result.runs),
        warnings=(*(summary.warnings if summary else ()), *log_warnings(measured)),
        reader_share=statistics.median(shares) if shares else None,
        loader=next((run.facts["loader"] for run in measured if "loader" in run.facts), ""),
        foreign_share=max((run.foreign_share for run in result.runs if run.foreign_share is not None), default=None),
        wall_seconds=sum(run.wall_seconds for run in result.runs),
        training_seconds=sum(run.training_seconds for run in result.runs),
        resumed=result.resumed,
        run_folders=run_folders,
        framework=dict(runs[-1].build) if runs else {},
        segment=_segment(measured[-1]) if measured else {},
        log_tail=_log_tail(result.runs),
        standing=verdict.standing,
        pairs=pairs_of(result.runs),
        set_aside=tuple(_set_aside(run, plan.rule) for run in result.runs if not run.measured),
        attempts=tuple(_set_aside(run, plan.rule) for run in failed),
        failure_class=failed[-1].facts.get(FAILURE_FACT, "") if failed and verdict.reason.code == RUN_FAILED else "",
        reference_build=plan.reference_label or "",
        why_no_reference=plan.why_no_reference,
        utilisation=Utilisation.of_runs(summary.centre, plan.rule, plan.case, [run.facts for run in measured])
        if summary
        else None,
        origin=result.runs[0].origin if result.runs else MEASURED,
        sources=sources_of(result.runs, plan.rule),
        invalid_samples_per_s=statistics.median(invalid) if invalid and not rates else None,
    )


def pairs_of(runs: Iterable[RunResult]) -> tuple[Pair, ...]:
    """The confirmation's pairs as they were judged: its k-th usable run of each build."""
    usable = [run for run in runs if run.stage == Stage.CONFIRM.value and run.measured and run.log_rate is not None]
    of_build = {build: [run for run in usable if run.role == build.value] for build in Build}
    return tuple(
        Pair(
            min(reference, candidate, key=lambda run: run.replicate).role,
            math.exp(reference.log_rate or 0.0),
            math.exp(candidate.log_rate or 0.0),
        )
        for reference, candidate in zip(of_build[Build.REFERENCE], of_build[Build.CANDIDATE], strict=False)
    )


def _set_aside(run: RunResult, rule: str) -> str:
    """``r3 (reference build): throttled; invalid: 3.41 samples/s by wall-clock``."""
    build = "" if run.role == Build.CANDIDATE.value else f" ({run.role} build)"
    told = f"r{run.replicate}{build}: {run.failure or run.invalid or run.refusal}"
    rate = None if run.invalid is None else _rate(run, rule)
    return told if rate is None else f"{told}; invalid: {number(rate)} images/s by {rule}"


def _rate(run: RunResult, rule: str) -> float | None:
    figure = run_figure(rule, run.figures)
    return None if isinstance(figure, str) else figure


def _log_tail(runs: Iterable[RunResult]) -> str:
    """Of the last run that failed; an invalid one that was made again has nothing to tell."""
    unusable = sorted((run for run in runs if not run.measured), key=lambda run: (run.failure is None, -run.replicate))
    return next((run.log_tail for run in unusable), "")


def _figure(record: Mapping[str, Any]) -> CaseFigure:
    values = fields_of(record)
    return CaseFigure(**{**values, "run_samples_per_s": tuple(values["run_samples_per_s"])})


def _telling_overrides(runs: tuple[RunResult, ...]) -> tuple[str, ...]:
    changed = {key for run in runs for key, value in run.overrides.items() if neutral_reason(key, value) is None}
    return tuple(sorted(changed))


def _segment(run: RunResult) -> dict[str, str]:
    try:
        return segment_of(run.environment, run.settings, run.case_id)
    except ConfigError:
        # The result of another version of the suite: told without a segment, and so compared with nothing.
        return {}


def _marks(runs: tuple[RunResult, ...]) -> tuple[str, ...]:
    """Each mark once, with the number of runs that bear it and, for contention, who it was in the worst one."""
    told = []
    for mark in sorted({mark for run in runs for mark in run.marks}):
        marked = [run for run in runs if mark in run.marks]
        worst = max(marked, key=lambda run: run.foreign_share or 0.0)
        detail = f": {worst.contention}" if mark == CONTENDED and worst.contention else ""
        told.append(f"{mark} in {len(marked)} of {len(runs)} runs{detail}")
    return tuple(told)
