"""Analyses one run of a log: all its figures, the share of time spent waiting for data, the spread and the warnings.

The honest figure of a run is the images of all cards / the wall time they took. How it is computed depends on what the
log states of that time:

- Running means (PaddleClas): the last record of each epoch gives the epoch's images and seconds since the format's
  first timed step (5, before 2.2: 10). The figure is the sum of the images of all epochs / the sum of the seconds. The
  steps before are in no record; any warm-up after them is part of the figure. Where the records show that the mean is
  reset at each of them, they are records like the next ones. Where they are too few to show it, the lower figure counts
  if both agree; else there is none.
- Records that cover the same number of steps each (rates or seconds): the harmonic mean of those after the publisher's
  warm-up.
- TimeHistory: images / seconds, both summed over the records after warm-up.
- Epochs without records: the harmonic mean of the epochs after the first.
- A single line for the whole run gives no time, so there is no figure.

Only a log whose records are single steps has a median step, the figure by which sessions are compared.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import fields

from helpers.judging.rules.own import MEDIAN_STEP
from helpers.judging.rules.publishers import RuleError, RuleValue, if_any
from helpers.logs.figures.doubts import doubts
from helpers.logs.figures.rules import epoch_rates, figure, figure_of, figures, records_of, usual_rule, warm_up_records
from helpers.logs.figures.series import Means, means_of, rates_of, running_seconds, step_distance, timed
from helpers.logs.record import HONEST, Imported, LogRun, RateSpread, RecordField, RuleFigure, RunOfLog
from helpers.logs.settings import AUTO

_HOW = "images of all cards / seconds that the log states"
_HOW_MEDIAN = "images of all cards in a step / seconds of the median step"


def analyse(run: LogRun, rule: str = AUTO) -> Imported:
    """The run's figures. ``rule`` is the rule whose figure is shown first; AUTO is the rule that the publisher of such
    logs used.

    Raises LogError for a rule that is not known.
    """
    records = records_of(run)
    by_rule = figures(run, records)
    # If no publisher has a rule for such logs, the honest figure is shown first.
    usual = usual_rule(by_rule) or HONEST
    if rule == HONEST:
        usual = HONEST
    elif rule != AUTO:
        wanted = figure(run, rule)
        usual = wanted.rule
        if wanted.rule not in {each.rule for each in by_rule}:
            by_rule = (*by_rule, wanted)
    skip = warm_up_records(run, records)
    honest_figure, spread = honest(run, skip), _spread(run, skip)
    return Imported(
        **{each.name: getattr(run, each.name) for each in fields(RunOfLog)},
        format=run.format.name,
        figures=by_rule,
        usual=usual,
        honest=honest_figure,
        median_step=figure_of(MEDIAN_STEP, _HOW_MEDIAN, lambda: _median_step(run, skip)),
        reader_share=reader_share(run, skip),
        spread=spread,
        warnings=doubts(run, by_rule, honest_figure, spread, skip),
        unit=run.unit,
    )


def _after(run: LogRun, skip: int) -> int:
    """The index of the first record after warm-up; 0 if the log ends during warm-up."""
    return skip if skip < run.records else 0


def _spread(run: LogRun, skip: int) -> RateSpread | None:
    """The spread of the printed rates after warm-up, or of all rates if the log ends during warm-up."""
    if not run.records or run.format.is_summary:
        return None
    rates = rates_of(run)[_after(run, skip) :]
    mean = statistics.fmean(rates)
    # statistics.stdev computes in fractions, which takes as long as reading the log.
    squares = math.fsum((rate - mean) ** 2 for rate in rates)
    variation = math.sqrt(squares / (len(rates) - 1)) / mean if len(rates) > 1 else 0.0
    return RateSpread(len(rates), statistics.median(rates), variation, min(rates), max(rates))


def reader_share(run: LogRun, skip: int) -> float | None:
    """The share of the records' time that was spent waiting for data (0 to 1); None if the log does not state it."""
    columns, start = run.columns.keys(), _after(run, skip)
    if not run.records:
        return None
    if {RecordField.READER_SECONDS, RecordField.STEP_SECONDS} <= columns:
        means = means_of(run)
        waited, total = (
            running_seconds(run, each, means is Means.RESET)
            if means in (Means.RUNNING, Means.RESET, Means.EITHER)
            else math.fsum(run.columns[each][start:])
            for each in (RecordField.READER_SECONDS, RecordField.STEP_SECONDS)
        )
        if total > 0 and math.isfinite(waited):
            return waited / total
    if {RecordField.COMPUTE_IMAGES_PER_S, RecordField.IMAGES_PER_S} <= columns:
        total, computing = (
            math.fsum(1 / rate for rate in run.columns[each][start:])
            for each in (RecordField.IMAGES_PER_S, RecordField.COMPUTE_IMAGES_PER_S)
        )
        if total > 0 and math.isfinite(computing):
            return 1 - computing / total
    return None


def honest(run: LogRun, skip: int) -> RuleFigure:
    """The honest figure, or why there is none."""
    return figure_of(HONEST, _HOW, lambda: _computed(run, skip))


def _computed(run: LogRun, skip: int) -> RuleValue:
    if not run.records:
        return _of_epochs(run)
    if run.format.is_summary:
        got = "one figure for the whole run"
        raise RuleError(f"a log of {run.format.name}", got=got, expected="records of steps, or seconds")
    if means_of(run) is not Means.OWN:
        return _of_running_means(run, run.format.running_mean or 0)
    left = run.records - skip
    if not left:
        raise RuleError(f"rule {HONEST}", got=f"{run.records} records, all of warm-up", expected="1 or more after it")
    return RuleValue(timed(run).samples_per_s(skip), left, if_any(skip, "of warm-up"))


def _of_running_means(run: LogRun, first_timed: int) -> RuleValue:
    found = timed(run)
    records = sum(steps > 0 for steps in found.steps)
    if not records:
        got = f"no record from step {first_timed} of an epoch on"
        raise RuleError(f"rule {HONEST}", got=got, expected="1 or more")
    left_out = (
        *if_any(run.records - records, f"before step {first_timed} of an epoch, which are timed otherwise"),
        f"the steps before step {first_timed} of each epoch, and the steps after the last record",
    )
    return RuleValue(found.samples_per_s(), records, left_out)


def _median_step(run: LogRun, skip: int) -> RuleValue:
    got = ""
    if not run.records or run.format.is_summary:
        got = "no records of steps"
    elif means_of(run) is not Means.OWN:
        got = "records that are means of many steps"
    elif (distance := step_distance(run)) is None:
        got = "records without step numbers"
    elif distance != 1:
        got = f"a record every {distance:g} steps"
    elif run.records <= skip:
        got = f"{run.records} records, all of warm-up"
    if got:
        raise RuleError(f"rule {MEDIAN_STEP}", got=got, expected="records of single steps")
    found = timed(run)
    seconds = [cost / steps for cost, steps in zip(found.cost[skip:], found.steps[skip:], strict=True) if steps > 0]
    if not seconds:
        raise RuleError(f"rule {MEDIAN_STEP}", got="no step after warm-up", expected="records of single steps")
    return RuleValue(1 / statistics.median(seconds), len(seconds), if_any(skip, "of warm-up"))


def _of_epochs(run: LogRun) -> RuleValue:
    epochs = epoch_rates(run)[1:]
    if not epochs or not all(rate > 0 for rate in epochs):
        raise RuleError(f"rule {HONEST}", got="no records", expected="records of steps, or two epochs with a figure")
    return RuleValue(len(epochs) / math.fsum(1 / rate for rate in epochs), len(epochs), ("1 epoch of warm-up",))
