"""The comparison of one configuration: a cell for each framework, with its ratio to Paddle. Pure values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from helpers.judging.rates import fields_of
from helpers.judging.statistics import mean_interval, summarise
from helpers.judging.verdict import Status
from helpers.plan.published import PublishedFigure
from helpers.session.frameworks.configurations import REFERENCE, Configuration, nearest
from helpers.session.measure import CaseResult
from helpers.trainers.contract.errors import SuiteError
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.job import CARDS_PER_PROCESS_SETTING

# The code of a verdict on a case that was measured beside other frameworks and compared with no reference.
COMPARED = "compared"
# The settings that say what a step computes, and in how many processes; below, what a recipe without one of them does.
_TRAINING = (
    "optimizer", "learning_rate", "momentum", "weight_decay", "decay_norms", "label_smoothing", "layout",
    "input_channels", "input_dtype", "amp_level", "amp_dtype", "loss_scaling", CARDS_PER_PROCESS_SETTING,
)  # fmt: skip
_UNSAID: Mapping[str, Any] = {"decay_norms": True, "label_smoothing": 0.0, CARDS_PER_PROCESS_SETTING: 1}


@dataclass(frozen=True)
class Ratio:
    """The speed of one framework divided by that of another."""

    # The geometric mean of the pairs' ratios.
    centre: float
    # Its 95% interval; None for one pair.
    low: float | None
    high: float | None
    pairs: int


def paired_ratio(ours: Sequence[float], reference: Sequence[float]) -> Ratio:
    """The ratio of ours to the reference, run by run. The n-th runs of both were made one after the other.

    The interval is Student's t over the pairs' logarithms. Raises SuiteError if the two sides are not pairs.
    """
    if len(ours) != len(reference) or not ours:
        raise SuiteError(
            "pairs of runs",
            got=f"{len(ours)} and {len(reference)} runs",
            expected="as many of the one as of the other, at least one",
        )
    logs = [math.log(one / other) for one, other in zip(ours, reference, strict=True)]
    if len(logs) == 1:
        return Ratio(math.exp(logs[0]), None, None, 1)
    found = mean_interval(logs)
    return Ratio(math.exp(found.mean), math.exp(found.low), math.exp(found.high), len(logs))


@dataclass(frozen=True)
class Cell:
    """The result of one framework for a configuration. Without a figure the cell is empty, and ``reason`` says why."""

    framework: str
    case_id: str = ""
    run_samples_per_s: tuple[float, ...] = ()
    # The median over runs, and its 95% interval.
    samples_per_s: float | None = None
    low: float | None = None
    high: float | None = None
    status: str = ""
    reason: str = ""
    # Whether this machine can run the case with what is installed.
    runs_here: bool = False
    # The framework and its version.
    build: str = ""
    marks: tuple[str, ...] = ()
    run_folders: tuple[str, ...] = ()
    ratio: Ratio | None = None

    @property
    def measured(self) -> bool:
        return self.samples_per_s is not None

    @property
    def missing(self) -> bool:
        """Whether a framework that is installed gave no figure."""
        return self.runs_here and not self.measured


@dataclass(frozen=True)
class PublishedCell:
    """The published ratio of a framework, to be shown beside the measured one. If there is none, ``reason`` says
    why."""

    framework: str
    ratio: float | None = None
    source: str = ""
    row: str = ""
    paddle_case: str = ""
    paddle_samples_per_s: float | None = None
    case: str = ""
    samples_per_s: float | None = None
    gpu: str = ""
    differs: tuple[str, ...] = ()
    disputed: bool = False
    reason: str = ""


@dataclass(frozen=True)
class ConfigurationOutcome:
    """How the comparison of one configuration on one target ended. It decides the exit code, and the table is a view of
    it."""

    name: str
    target: str
    model: str
    precision: str
    batch_size_per_card: int
    cards: int
    nodes: int
    data: str
    execution: str
    cells: tuple[Cell, ...]
    published: tuple[PublishedCell, ...] = ()
    documented: bool = False
    # The settings of the training that differ between the measured frameworks: by name, each framework's value.
    unlike: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def measured(self) -> int:
        """How many frameworks gave a figure."""
        return sum(each.measured for each in self.cells)

    def cell(self, framework: Framework) -> Cell:
        return next((each for each in self.cells if each.framework == framework.value), Cell(framework.value))

    def published_of(self, framework: Framework) -> PublishedCell | None:
        return next((each for each in self.published if each.framework == framework.value), None)

    @staticmethod
    def from_record(record: Mapping[str, Any]) -> ConfigurationOutcome:
        """The outcome that ``to_record`` wrote."""
        cells = [_from(Cell, each, ratio=each["ratio"] and Ratio(**each["ratio"])) for each in record["cells"]]
        published = [_from(PublishedCell, each) for each in record["published"]]
        return ConfigurationOutcome(**{**record, "cells": tuple(cells), "published": tuple(published)})


def _from(kind: Any, record: Mapping[str, Any], **given: Any) -> Any:
    """The value with tuples in place of the lists that JSON made of them."""
    return kind(**{**{key: tuple(v) if isinstance(v, list) else v for key, v in fields_of(record).items()}, **given})


@dataclass(frozen=True)
class MeasuredConfiguration:
    """How the measuring of one configuration ended."""

    configuration: Configuration
    results: Mapping[Framework, CaseResult] = field(default_factory=dict)
    # Why the cases of other frameworks cannot run on this machine.
    not_here: Mapping[Framework, str] = field(default_factory=dict)
    # Where the files of the usable runs are.
    folders: Mapping[Framework, tuple[str, ...]] = field(default_factory=dict)


def outcome_of(measured: MeasuredConfiguration, figures: Iterable[PublishedFigure]) -> ConfigurationOutcome:
    """The outcome of a measured configuration, with the published ratios of ``figures`` beside the measured ones."""
    configuration, case = measured.configuration, measured.configuration.first
    cells = {each.case.framework: _cell(measured, each.case.framework) for each in configuration.members}
    figures = tuple(figures)
    reference = cells.get(REFERENCE)
    others = [each for each in cells if each is not REFERENCE]
    return ConfigurationOutcome(
        name=configuration.name,
        target=configuration.target,
        model=case.model.value,
        precision=case.precision.value,
        batch_size_per_card=case.batch_size_per_card,
        cards=case.cards,
        nodes=case.nodes,
        data=case.data.value,
        execution=case.execution.value if case.execution else "",
        cells=tuple(_with_ratio(cells[each], each, reference) for each in cells),
        published=tuple(_published(configuration, each, figures) for each in others),
        documented=configuration.documented,
        unlike=_unlike({each.value: measured.results[each].plan.settings for each in cells if cells[each].measured}),
    )


def _unlike(settings: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """By setting, each framework's value, if they differ."""
    found = {
        name: {framework: each.get(name, _UNSAID.get(name)) for framework, each in settings.items()}
        for name in _TRAINING
    }
    return {name: values for name, values in found.items() if len(set(values.values())) > 1}


def _cell(measured: MeasuredConfiguration, framework: Framework) -> Cell:
    member = measured.configuration.member(framework)
    assert member is not None
    empty = Cell(framework.value, member.case.id, status=Status.NOT_RUN.value)
    if (reason := measured.not_here.get(framework)) is not None:
        return replace(empty, reason=reason)
    result = measured.results.get(framework)
    if result is None:
        return replace(empty, reason="not reached", runs_here=True)
    usable = [run for run in result.runs if run.measured]
    rates = tuple(rate for run in usable if isinstance(rate := run.figures.get(result.plan.rule), float))
    verdict, build = result.verdict, result.plan.build
    known = replace(
        empty,
        status=verdict.status.value,
        reason=verdict.reason.message,
        runs_here=True,
        build=" ".join(filter(None, (build.get("framework", ""), build.get("version", "")))),
        marks=tuple(dict.fromkeys(mark for run in usable for mark in run.marks)),
        run_folders=measured.folders.get(framework, ()),
    )
    if verdict.reason.code != COMPARED:
        return known
    summary = summarise(rates)
    return replace(known, run_samples_per_s=rates, samples_per_s=summary.centre, low=summary.low, high=summary.high)


def _with_ratio(cell: Cell, framework: Framework, reference: Cell | None) -> Cell:
    if framework is REFERENCE or reference is None or not (cell.measured and reference.measured):
        return cell
    return replace(cell, ratio=paired_ratio(cell.run_samples_per_s, reference.run_samples_per_s))


def _published(
    configuration: Configuration, framework: Framework, figures: tuple[PublishedFigure, ...]
) -> PublishedCell:
    found = nearest(configuration, framework, figures)
    if found is None:
        model = configuration.first.model.value
        return PublishedCell(framework.value, reason=f"no document has {model} of Paddle and of {framework.value}")
    return PublishedCell(
        framework.value,
        ratio=found.ratio,
        source=found.other.source,
        row=found.row,
        paddle_case=found.paddle.case.id,
        paddle_samples_per_s=found.paddle.samples_per_s,
        case=found.other.case.id,
        samples_per_s=found.other.samples_per_s,
        gpu=found.other.gpu,
        differs=found.differs,
        disputed=found.disputed,
    )
