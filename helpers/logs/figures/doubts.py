"""What is to be doubted about a log's figures, in words, each with its numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from helpers.judging.rules import PADDLECLAS_TRIMMED_RECORDS, RuleError
from helpers.judging.statistics import number
from helpers.logs.figures.drift import drift_of
from helpers.logs.figures.honest import by_stamps
from helpers.logs.figures.rules import warm_up_records
from helpers.logs.figures.series import stretches
from helpers.logs.imported import RuleFigure, Spread
from helpers.logs.record import Field, LogRun, RateOf, Setting

# Figures of one log that differ by more do not say the same.
_AGREE = 0.01
# A last record so much below the median took what is no step: a checkpoint, the job's end.
_SLOW_LAST = 0.10
# Printed figures that wait for data too; one of computing alone must differ from them.
_WHOLE_FIGURES = {
    "average": "Average total_ips",
    "train_throughput": "train_throughput",
    "summary_total": "Summary",
    "summary_ips": "Summary",
    "tipc": "summary line of TIPC",
}


def doubts(run: LogRun, by_rule: Sequence[RuleFigure], honestly: RuleFigure, spread: Spread | None) -> tuple[str, ...]:
    """The warnings of a run, the gravest kind first."""
    return (
        *_of_the_log(run),
        *_of_batch(run),
        *_few(run),
        *_running(run, by_rule, honestly),
        *_slow_last(run, spread),
        *_drift(run),
        *_printed(run, honestly),
        *_rules(by_rule),
        *_stamps(run),
        *run.notes,
    )


def _of_the_log(run: LogRun) -> Iterator[str]:
    if run.cut:
        yield f"cut log: {run.cut}"
    for each in run.dropped:
        lines = "line looks like a record and was" if each.count == 1 else "lines look like records and were"
        yield f"{each.count} {lines} not used: {each.reason} (line {each.first.number})"


def _of_batch(run: LogRun) -> Iterator[str]:
    """The batch size that a record's rate and seconds give, against the configuration's."""
    said = run.settings.get(Setting.BATCH_SIZE_PER_CARD)
    if Field.IMAGES_PER_S not in run.columns or said is None or not run.records:
        return
    last = run.records - 1
    rate = run.column(Field.IMAGES_PER_S)[last]
    if Field.SPAN_SECONDS in run.columns and {Field.SPAN_START, Field.SPAN_END} <= run.columns.keys():
        steps = run.column(Field.SPAN_END)[last] - run.column(Field.SPAN_START)[last]
        images = rate * run.column(Field.SPAN_SECONDS)[last] / steps if steps else math.nan
    elif Field.STEP_SECONDS in run.columns:
        images = rate * run.column(Field.STEP_SECONDS)[last]
    else:
        return
    cards = run.said(Setting.CARDS)
    per_card = images / int(cards) if run.format.rate_of is RateOf.JOB and cards else images
    # Seconds are printed with 5 decimals or fewer, so a short step gives a rough number.
    if not abs(per_card / int(said.value) - 1) <= 0.05:
        yield (
            f"the records' images/s x seconds give {per_card:.4g} images a card and step, the configuration says "
            f"{said.value} ({said.where})"
        )


def _few(run: LogRun) -> Iterator[str]:
    skipped = warm_up_records(run)
    left = run.records - skipped
    if run.records and not run.format.is_summary and left < PADDLECLAS_TRIMMED_RECORDS:
        yield f"few records: {left} after {skipped} of warm-up, fewer than {PADDLECLAS_TRIMMED_RECORDS}"


def _running(run: LogRun, by_rule: Sequence[RuleFigure], honestly: RuleFigure) -> Iterator[str]:
    if run.format.running_mean is None:
        return
    told = "running means: each record is the mean since the epoch's 5th step, so records depend on each other"
    figure = next((each for each in by_rule if each.samples_per_s is not None), None)
    if figure is not None and figure.samples_per_s is not None and honestly.samples_per_s is not None:
        difference = honestly.samples_per_s / figure.samples_per_s - 1
        told += f" and their mean is not images / seconds: the honest figure is {difference:+.2%} from {figure.rule}"
    yield told


def _slow_last(run: LogRun, spread: Spread | None) -> Iterator[str]:
    if spread is None or run.records < 3:
        return
    last = _last_rate(run)
    below = last / spread.median_samples_per_s - 1
    if below < -_SLOW_LAST:
        yield f"slow last record: {number(last)} images/s, {below:+.1%} from the median"


def _last_rate(run: LogRun) -> float:
    """Of the steps that the last record timed; NaN where it timed none."""
    try:
        rates = [float(each) for part in stretches(run, run.records - 1) for each in part.rates()]
    except RuleError:
        return math.nan
    return rates[0] if rates else math.nan


def _drift(run: LogRun) -> Iterator[str]:
    try:
        drift = drift_of(run, warm_up_records(run))
    except RuleError:
        return
    if drift is not None:
        way = "faster" if drift.difference > 0 else "slower"
        yield (
            f"drift: the last third of the run is {abs(drift.difference):.1%} {way} than the first; the scatter "
            f"within them explains {drift.bound:.1%}"
        )


def _printed(run: LogRun, honestly: RuleFigure) -> Iterator[str]:
    """Against the records; the script may have counted other steps, or averaged rates instead of time."""
    if honestly.samples_per_s is None:
        return
    for key, name in _WHOLE_FIGURES.items():
        for each in run.printed.get(key, ())[-1:]:
            difference = each.samples_per_s / honestly.samples_per_s - 1
            if abs(difference) > _AGREE:
                yield (
                    f"the script's own '{name}' is {number(each.samples_per_s)} images/s (line {each.line}), "
                    f"{difference:+.1%} from the records' {number(honestly.samples_per_s)}"
                )


def _rules(by_rule: Sequence[RuleFigure]) -> Iterator[str]:
    known = [(each.samples_per_s, each.rule) for each in by_rule if each.samples_per_s is not None]
    if len(known) < 2:
        return
    (lowest, low_rule), (highest, high_rule) = min(known), max(known)
    if highest / lowest - 1 > _AGREE:
        yield (
            f"the rules differ by {highest / lowest - 1:.1%}: {low_rule} {number(lowest)}, "
            f"{high_rule} {number(highest)} images/s"
        )


def _stamps(run: LogRun) -> Iterator[str]:
    stretch = by_stamps(run)
    if stretch is None:
        return
    if abs(stretch.difference) > _AGREE + stretch.resolution:
        told = "they tell more time than passed" if stretch.difference > 0 else "they do not hold all of the time"
        yield (
            f"by the time stamps of records {stretch.first + 1} and {stretch.last + 1}, {stretch.seconds:.0f} s apart, "
            f"it is {number(stretch.samples_per_s)} images/s, {stretch.difference:+.1%} from the "
            f"{number(stretch.records_samples_per_s)} of the records between: {told}"
        )
