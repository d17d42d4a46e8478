"""A case's line in every report, as plain values: it travels between processes and into JSON as it stands."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from helpers.errors import ConfigError, ResultError
from helpers.overrides import neutral_reason
from helpers.policy import Effect
from helpers.results import CONTENDED, RunResult, segment_of
from helpers.rules import CaseFigure, over_runs
from helpers.session import CaseResult
from helpers.verdict import SubVerdict


@dataclass(frozen=True)
class Comparison:
    """One reference and its answer: images/s measured by ``rule`` beside the reference's."""

    status: str
    rule: str
    label: str
    reference_images_per_s: float | None
    measured_images_per_s: float | None
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
class CaseRow:
    """One case of one session.

    ``images_per_s`` is the median over ``runs`` by ``rule``; ``low`` and ``high`` bound the mean with
    95% confidence; ``spread`` is the largest distance of a run from the median, as a fraction of it.
    ``judged`` is False for a case outside the gate. ``figures`` are the case's images/s by every rule, or why
    a rule gives none. ``reader_share`` is the median over runs of the share of the window that the rank which
    waited most for data spent waiting, ``loader`` who read the data. ``overrides`` are the settings changed with
    ``--set`` that a throughput may depend on, ``segment`` the facts within which results are compared.
    ``wall_seconds`` is all of its runs, ``training_seconds`` the part spent in training steps.
    """

    case_id: str
    target: str
    status: str
    effect: str
    code: str
    reason: str
    judged: bool = True
    rule: str = ""
    images_per_s: float | None = None
    spread: float | None = None
    low: float | None = None
    high: float | None = None
    runs: int = 0
    run_images_per_s: tuple[float, ...] = ()
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

    def to_record(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_record(record: Mapping[str, Any]) -> CaseRow:
        """The row of a record that ``to_record`` made, also after a trip through JSON."""
        known = {item.name for item in fields(CaseRow)}
        if wrong := sorted(set(record) ^ known):
            expected = "a known key" if wrong[0] in record else "a value"
            raise ResultError("case row", field=wrong[0], expected=expected)
        values = dict(record)
        try:
            values["published"] = tuple(Comparison(**item) for item in record["published"])
            values["recorded"] = None if record["recorded"] is None else Comparison(**record["recorded"])
            values["step_seconds"] = tuple(tuple(run) for run in record["step_seconds"])
            values["figures"] = tuple(_figure(item) for item in record["figures"])
            for name in ("run_images_per_s", "overrides", "marks", "warnings", "run_folders"):
                values[name] = tuple(record[name])
        except (KeyError, TypeError) as error:
            raise ResultError("case row", got=str(error), expected="lists and comparisons where they belong") from error
        return CaseRow(**values)


def row_of(result: CaseResult, effect: Effect, *, judged: bool = True, run_folders: tuple[str, ...] = ()) -> CaseRow:
    """The report's line of a judged case."""
    verdict, runs = result.verdict, result.runs
    measured = [run for run in runs if run.measured]
    rates = [run.figures.get(result.plan.rule) for run in measured]
    shares = [run.reader_share for run in measured if run.reader_share is not None]
    summary = verdict.measured
    return CaseRow(
        case_id=result.plan.case.id,
        target=result.plan.suite_case.target,
        status=verdict.status.value,
        effect=effect.value,
        code=verdict.reason.code,
        reason=verdict.reason.message,
        judged=judged,
        rule=result.plan.rule,
        images_per_s=summary.centre if summary else None,
        spread=summary.spread if summary else None,
        low=summary.low if summary else None,
        high=summary.high if summary else None,
        runs=len(measured),
        run_images_per_s=tuple(rate for rate in rates if isinstance(rate, float)),
        step_seconds=tuple(run.step_seconds for run in measured),
        samples_per_step=next((run.samples_per_step[0] for run in measured if run.samples_per_step), None),
        figures=over_runs([run.figures for run in measured]),
        published=tuple(Comparison.of(answer) for answer in verdict.published),
        recorded=Comparison.of(verdict.recorded) if verdict.recorded else None,
        overrides=_telling_overrides(runs),
        marks=_marks(runs),
        warnings=summary.warnings if summary else (),
        reader_share=statistics.median(shares) if shares else None,
        loader=next((run.facts["loader"] for run in measured if "loader" in run.facts), ""),
        foreign_share=max((run.foreign_share for run in runs if run.foreign_share is not None), default=None),
        wall_seconds=sum(run.wall_seconds for run in runs),
        training_seconds=sum(run.training_seconds for run in runs),
        resumed=result.resumed,
        run_folders=run_folders,
        framework=dict(runs[-1].build) if runs else {},
        segment=_segment(measured[-1]) if measured else {},
        log_tail=next((run.log_tail for run in runs if not run.measured), ""),
    )


def _figure(record: Mapping[str, Any]) -> CaseFigure:
    return CaseFigure(**{**record, "run_images_per_s": tuple(record["run_images_per_s"])})


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
