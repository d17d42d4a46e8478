"""The comparison of one configuration: a cell for each framework, with its ratio to Paddle. Pure values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from helpers.judging.case.noise import learn
from helpers.judging.case.verdict import Reason, Status
from helpers.judging.finding import Code
from helpers.judging.statistics import effect_of, summarise
from helpers.plan.baseline_files import FigureStatus
from helpers.session.measuring.case_loop import CaseResult
from helpers.session.side_by_side.configurations import COMPARED_WITH, Configuration
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.job import CARDS_PER_PROCESS_SETTING

# The settings that say what a step computes, and in how many processes; below, what a recipe without one of them does.
_TRAINING = (
    "optimizer", "learning_rate", "momentum", "weight_decay", "decay_norms", "label_smoothing", "layout",
    "input_channels", "input_dtype", "amp_level", "amp_dtype", "loss_scaling", CARDS_PER_PROCESS_SETTING,
)  # fmt: skip
_UNSAID: Mapping[str, Any] = {"decay_norms": True, "label_smoothing": 0.0, CARDS_PER_PROCESS_SETTING: 1}


@dataclass(frozen=True)
class Ratio:
    """The speed of one framework divided by that of Paddle, with its 95% interval."""

    centre: float
    low: float
    high: float


def ratio_of(ours: Sequence[float], reference: Sequence[float]) -> Ratio:
    """The ratio run by run, by the statistics of a confirmation's pairs. The n-th runs of both were made one after the
    other."""
    mine, theirs = [*map(math.log, ours)], [*map(math.log, reference)]
    differences = [one - other for one, other in zip(mine, theirs, strict=True)]
    found = effect_of(differences, math.sqrt(2) * learn([mine, theirs]).sigma)
    return Ratio(1 + found.point, 1 + found.low, 1 + found.high)


@dataclass(frozen=True)
class Cell:
    """The result of one framework for a configuration. Without a figure the cell is empty, and ``reason`` says why."""

    framework: Framework
    case_id: str = ""
    run_samples_per_s: tuple[float, ...] = ()
    # The median over runs, and its 95% interval.
    samples_per_s: float | None = None
    low: float | None = None
    high: float | None = None
    status: str = ""
    reason: Reason = field(default_factory=lambda: Reason(""))
    # Whether this machine can run the case with what is installed.
    runs_here: bool = False
    # The framework and its version.
    build: str = ""
    marks: tuple[str, ...] = ()
    ratio: Ratio | None = None
    # The ratio to Paddle in the document's row, if this is one, and whether its own logs contradict it.
    published: float | None = None
    disputed: bool = False

    @property
    def measured(self) -> bool:
        return self.samples_per_s is not None

    @property
    def missing(self) -> bool:
        """Whether a framework that is installed gave no figure."""
        return self.runs_here and not self.measured


@dataclass(frozen=True)
class ConfigurationOutcome:
    """How the comparison of one configuration on one target ended. It decides the exit code, and the table is a view of
    it."""

    name: str
    cells: tuple[Cell, ...]
    # The settings of the training that differ between the measured frameworks: by name, each framework's value.
    unlike: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def measured(self) -> int:
        """How many frameworks gave a figure."""
        return sum(each.measured for each in self.cells)


def outcome_of(
    configuration: Configuration, results: Mapping[Framework, CaseResult], not_here: Mapping[Framework, str]
) -> ConfigurationOutcome:
    """The outcome of a measured configuration. ``not_here`` says why the cases of other frameworks cannot run on this
    machine."""
    cells = {
        each.case.framework: _cell(each.case.framework, each.case.id, results, not_here)
        for each in configuration.members
    }
    reference = cells[COMPARED_WITH] if COMPARED_WITH in cells else Cell(COMPARED_WITH)
    shown = [_published(_with_ratio(each, reference), configuration) for each in cells.values()]
    measured = [each.framework for each in shown if each.measured]
    unlike = _unlike({each.value: results[each].plan.settings for each in measured})
    return ConfigurationOutcome(configuration.name, tuple(shown), unlike)


def _unlike(settings: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """By setting, each framework's value, if they differ."""
    found = {
        name: {framework: each.get(name, _UNSAID.get(name)) for framework, each in settings.items()}
        for name in _TRAINING
    }
    return {name: values for name, values in found.items() if len(set(values.values())) > 1}


def _cell(
    framework: Framework, case_id: str, results: Mapping[Framework, CaseResult], not_here: Mapping[Framework, str]
) -> Cell:
    empty = Cell(framework, case_id, status=Status.NOT_RUN.value)
    if (reason := not_here.get(framework)) is not None:
        return replace(empty, reason=Reason("", reason))
    result = results[framework]
    usable = [run for run in result.runs if run.measured]
    verdict, build = result.verdict, result.plan.build
    known = replace(
        empty,
        status=verdict.status.value,
        reason=verdict.reason,
        runs_here=True,
        build=" ".join(filter(None, (build.get("framework", ""), build.get("version", "")))),
        marks=tuple(dict.fromkeys(mark for run in usable for mark in run.marks)),
    )
    if verdict.reason.code != Code.COMPARED:
        return known
    rates = tuple(rate for run in usable if isinstance(rate := run.figures.get(result.plan.rule), float))
    summary = summarise(rates)
    return replace(known, run_samples_per_s=rates, samples_per_s=summary.centre, low=summary.low, high=summary.high)


def _with_ratio(cell: Cell, reference: Cell) -> Cell:
    if cell.framework is COMPARED_WITH or not (cell.measured and reference.measured):
        return cell
    return replace(cell, ratio=ratio_of(cell.run_samples_per_s, reference.run_samples_per_s))


def _published(cell: Cell, configuration: Configuration) -> Cell:
    figures = configuration.figures
    if figures is None or cell.framework is COMPARED_WITH:
        return cell
    ours, paddle = figures[cell.framework], figures[COMPARED_WITH]
    disputed = FigureStatus.DISPUTED in (ours.status, paddle.status)
    return replace(cell, published=ours.samples_per_s / paddle.samples_per_s, disputed=disputed)
