"""Analyses one run of a log: all its figures, the share of time spent waiting for data, the spread and the warnings.

The honest figure of a run is the images of all cards / the wall time they took. How it is computed depends on what the
log states of that time:

- Running means (PaddleClas): the last record of each epoch gives the epoch's images and seconds since step 5. The
  figure is the sum of the images of all epochs / the sum of the seconds. The first 4 steps of an epoch are in no
  record; any warm-up after them is part of the figure.
- Records that cover the same number of steps each (rates or seconds): the harmonic mean of those after the publisher's
  warm-up.
- TimeHistory: images / seconds, both summed over the records after warm-up.
- Epochs without records: the harmonic mean of the epochs after the first.
- A single line for the whole run gives no time, so there is no figure.
"""

from __future__ import annotations

import math

from helpers.judging.rules import RULES as OWN_RULES
from helpers.judging.rules_publishers import RuleError
from helpers.logs.column import median, sum_of
from helpers.logs.figures.doubts import doubts
from helpers.logs.figures.rules import RULES, figure, figures, mxnet_epochs, usual_rule, warm_up_records
from helpers.logs.figures.series import (
    Rates,
    RuleValue,
    if_any,
    images_over_seconds,
    running_seconds,
    samples_per_s_of,
    stretches,
)
from helpers.logs.record import HONEST, Imported, LogRun, RateSpread, RecordField, RuleFigure
from helpers.logs.settings import AUTO

_HOW = "images of all cards / seconds that the log states"


def analyse(run: LogRun, rule: str = AUTO) -> Imported:
    """The run's figures. ``rule`` is the rule whose figure is shown first; AUTO is the rule that the publisher of such
    logs used.

    Raises LogError for a rule that is not known.
    """
    by_rule = figures(run)
    # If no publisher has a rule for such logs, the honest figure is shown first.
    usual = usual_rule(by_rule) or HONEST
    if rule == HONEST:
        usual = HONEST
    elif rule != AUTO:
        wanted = _figure_of(run, rule)
        usual = wanted.rule
        if wanted.rule not in {each.rule for each in by_rule}:
            by_rule = (*by_rule, wanted)
    honest_figure = honest(run)
    spread = _spread(run)
    share, reason = reader_share(run)
    return Imported(
        source=run.source,
        sha256=run.sha256,
        format=run.format.name,
        number=run.number,
        runs_in_file=run.runs_in_file,
        first_line=run.first_line,
        last_line=run.last_line,
        settings=run.settings,
        figures=by_rule,
        usual=usual,
        honest=honest_figure,
        reader_share=share,
        reader_reason=reason,
        spread=spread,
        dropped=run.dropped,
        warnings=doubts(run, by_rule, honest_figure, spread),
        began=run.began,
    )


def _figure_of(run: LogRun, rule: str) -> RuleFigure:
    if rule in OWN_RULES and rule not in RULES:
        return RuleFigure(rule, None, reason=f"rule {rule} is for this suite's step logs")
    return figure(run, rule)


def _after_warm_up(run: LogRun) -> int:
    """The index of the first record after warm-up; 0 if the log ends during warm-up."""
    start = warm_up_records(run)
    return start if start < run.records else 0


def _spread(run: LogRun) -> RateSpread | None:
    """The spread of the printed rates after warm-up, or of all rates if the log ends during warm-up."""
    if not run.records or run.format.is_summary:
        return None
    start = _after_warm_up(run)
    try:
        rates = Rates(run)
    except RuleError:
        return None
    mean = rates.mean(start)
    squares, lowest, highest = [], math.inf, -math.inf
    for block in rates.blocks(start):
        squares.append(sum_of((block - mean) ** 2))
        lowest, highest = min(lowest, float(block.min())), max(highest, float(block.max()))
    count = run.records - start
    deviation = math.sqrt(math.fsum(squares) / (count - 1)) if count > 1 else 0.0
    return RateSpread(count, median(rates, start), deviation / mean, lowest, highest)


def reader_share(run: LogRun) -> tuple[float | None, str]:
    """The share of the records' time that was spent waiting for data (0 to 1) and ""; or None and why the log does not
    state it."""
    columns = run.columns.keys()
    if run.records and {RecordField.READER_SECONDS, RecordField.STEP_SECONDS} <= columns:
        waited, total = _waited(run)
        if total > 0 and math.isfinite(waited):
            return waited / total, ""
    if run.records and {RecordField.COMPUTE_IMAGES_PER_S, RecordField.IMAGES_PER_S} <= columns:
        start = _after_warm_up(run)
        total, computing = (
            math.fsum(sum_of(1 / block) for block in run.columns[each].blocks(start))
            for each in (RecordField.IMAGES_PER_S, RecordField.COMPUTE_IMAGES_PER_S)
        )
        if total > 0 and math.isfinite(computing):
            return 1 - computing / total, ""
    return None, f"the records of {run.format.name} do not state how long a step waited for data"


def _waited(run: LogRun) -> tuple[float, float]:
    """Seconds spent waiting for data, and all seconds."""
    columns = (RecordField.READER_SECONDS, RecordField.STEP_SECONDS)
    if run.format.running_mean is not None and RecordField.STEP in run.columns:
        waited, total = (running_seconds(run, each) for each in columns)
        return waited, total
    start = _after_warm_up(run)
    waited, total = (math.fsum(sum_of(block) for block in run.columns[each].blocks(start)) for each in columns)
    return waited, total


def honest(run: LogRun) -> RuleFigure:
    """The honest figure, or why there is none."""
    try:
        used = _computed(run)
        if not (math.isfinite(used.samples_per_s) and used.samples_per_s > 0):
            raise RuleError(f"rule {HONEST}", got=used.samples_per_s, expected="a finite rate above 0")
    except RuleError as error:
        return RuleFigure(HONEST, None, how=_HOW, reason=str(error))
    return RuleFigure(HONEST, used.samples_per_s, used.records, used.left_out, _HOW)


def _computed(run: LogRun) -> RuleValue:
    if not run.records:
        return _of_epochs(run)
    if run.format.is_summary:
        raise RuleError(
            f"a log of {run.format.name}",
            got="one figure for the whole run",
            expected="records of steps, or seconds",
        )
    if run.format.running_mean is not None and RecordField.STEP in run.columns:
        return _of_running_means(run, run.format.running_mean)
    skip = warm_up_records(run)
    left = run.records - skip
    if not left:
        raise RuleError(f"rule {HONEST}", got=f"{run.records} records, all of warm-up", expected="1 or more after it")
    return RuleValue(samples_per_s_of(run, skip, run.records), left, if_any(skip, "of warm-up"))


def _of_running_means(run: LogRun, first_timed: int) -> RuleValue:
    steps, cost, records, epochs = [], [], 0, 0
    for each in stretches(run):
        timed = each.steps > 0
        steps.append(sum_of(each.steps))
        cost.append(sum_of(each.cost))
        records += int(timed.sum())
        epochs += int(each.begins.sum())
    if not math.fsum(steps):
        got = f"no record after step {first_timed - 1} of an epoch"
        raise RuleError(f"rule {HONEST}", got=got, expected="1 or more")
    of_epochs = f"{epochs} epochs" if epochs > 1 else "the epoch"
    left_out = (
        *if_any(run.records - records, f"up to step {first_timed - 1} of an epoch, which are timed otherwise"),
        f"the first {first_timed - 1} steps of {of_epochs}, and the steps after the last record",
    )
    return RuleValue(images_over_seconds(math.fsum(steps), math.fsum(cost)), records, left_out)


def _of_epochs(run: LogRun) -> RuleValue:
    epochs = mxnet_epochs(run)[1:]
    if not epochs:
        raise RuleError(f"rule {HONEST}", got="no records", expected="records of steps, or two epochs with a figure")
    cost = math.fsum(1 / each.samples_per_s for each in epochs)
    return RuleValue(len(epochs) / cost, len(epochs), ("1 epoch of warm-up",))
