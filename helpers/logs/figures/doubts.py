"""Warnings about the figures of a log, each with its numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from helpers.judging.rules.publishers import PADDLECLAS_TRIMMED_RECORDS, RuleError
from helpers.judging.statistics import number
from helpers.logs.figures.series import ENOUGH, Means, images_per_step, means_of, second_differences, timed
from helpers.logs.record import LogRun, RateOf, RateSpread, RecordField, RuleFigure
from helpers.logs.settings import LogSetting

# Figures of one log that differ by more than this fraction contradict each other.
_AGREE = 0.01
# A last record that is slower than the median by this fraction timed more than steps: a checkpoint, or the end of the
# job.
_SLOW_LAST = 0.10
# The figures printed by scripts that include waiting for data, each with its name in messages.
_WHOLE_FIGURES = {
    "average": "Average total_ips",
    "train_throughput": "train_throughput",
    "summary_total": "Summary",
    "summary_ips": "Summary",
}


def doubts(
    run: LogRun, by_rule: Sequence[RuleFigure], honest_figure: RuleFigure, spread: RateSpread | None, skip: int
) -> tuple[str, ...]:
    """The warnings about a run, the most serious kind first. ``skip`` records are of warm-up."""
    return (
        *_of_the_log(run),
        *_of_batch(run),
        *_few(run, skip),
        *_running(run, by_rule, honest_figure),
        *_slow_last(run, spread),
        *_printed(run, honest_figure),
        *_stamps(run, skip),
        *run.notes,
    )


def _of_the_log(run: LogRun) -> Iterator[str]:
    if run.cut:
        yield f"cut log: {run.cut}"
    for each in run.dropped:
        lines = "line looks like a record and was" if each.count == 1 else "lines look like records and were"
        yield f"{each.count} {lines} not used: {each.reason} (line {each.first.number})"


def _of_batch(run: LogRun) -> Iterator[str]:
    """Compares the batch size that follows from the records' rates and seconds with that of the configuration."""
    configured = run.settings.get(LogSetting.BATCH_SIZE_PER_CARD)
    if RecordField.IMAGES_PER_S not in run.columns or configured is None or not run.records:
        return
    last = run.records - 1
    rate = run.columns[RecordField.IMAGES_PER_S][last]
    if RecordField.SPAN_SECONDS in run.columns and {RecordField.SPAN_START, RecordField.SPAN_END} <= run.columns.keys():
        steps = run.columns[RecordField.SPAN_END][last] - run.columns[RecordField.SPAN_START][last]
        images = rate * run.columns[RecordField.SPAN_SECONDS][last] / steps if steps else math.nan
    elif RecordField.STEP_SECONDS in run.columns:
        images = rate * run.columns[RecordField.STEP_SECONDS][last]
    else:
        return
    cards = run.stated(LogSetting.CARDS)
    per_card = images / int(cards) if run.rate_of is RateOf.JOB and cards else images
    # Seconds are printed with 5 decimals or fewer, so for a short step the result is rough.
    if not abs(per_card / int(configured.value) - 1) <= 0.05:
        yield (
            f"the records' {run.unit} x seconds give {per_card:.4g} a card and step, the configuration says "
            f"{configured.value} ({configured.where})"
        )


def _few(run: LogRun, skipped: int) -> Iterator[str]:
    left = run.records - skipped
    if run.records and not run.format.is_summary and left < PADDLECLAS_TRIMMED_RECORDS:
        yield f"few records: {left} after {skipped} of warm-up, fewer than {PADDLECLAS_TRIMMED_RECORDS}"


def _running(run: LogRun, by_rule: Sequence[RuleFigure], honest_figure: RuleFigure) -> Iterator[str]:
    means = means_of(run)
    if means is Means.RESET:
        yield (
            "means of their own: this format's records are means since a step of the epoch in other versions; these "
            "records' differences are not those of such means, so each is the mean since the record before it"
        )
    if means is Means.EITHER:
        between = len(second_differences(run))
        few = (
            f", of which {between} stand between others of their epoch and {ENOUGH} should," if between < ENOUGH else ""
        )
        yield (
            f"running or reset means: {run.records} records{few} do not show whether each is the mean since step "
            f"{run.format.running_mean} of its epoch or since the record before it: the honest figure is the lower one"
        )
    if means is not Means.RUNNING:
        return
    since = f"step {run.format.running_mean} of its epoch"
    warning = f"running means: each record is the mean since {since}, so records depend on each other"
    figure = next((each for each in by_rule if each.samples_per_s is not None), None)
    if figure is not None and figure.samples_per_s is not None and honest_figure.samples_per_s is not None:
        difference = honest_figure.samples_per_s / figure.samples_per_s - 1
        warning += f" and their mean is not images / seconds: the honest figure is {difference:+.2%} from {figure.rule}"
    yield warning


def _slow_last(run: LogRun, spread: RateSpread | None) -> Iterator[str]:
    if spread is None or run.records < 3 or means_of(run) is Means.EITHER:
        return
    try:
        last = timed(run).samples_per_s(run.records - 1)
    except RuleError:
        return
    below = last / spread.median_samples_per_s - 1
    if last > 0 and below < -_SLOW_LAST:
        yield f"slow last record: {number(last)} {run.unit}, {below:+.1%} from the median"


def _printed(run: LogRun, honest_figure: RuleFigure) -> Iterator[str]:
    """Compares the script's own figures with the records: the script may have counted other steps, or averaged rates
    instead of times."""
    for key, name in _WHOLE_FIGURES.items():
        for each in run.printed.get(key, ())[-1:]:
            if not each.samples_per_s > 0:
                yield f"the script's own '{name}' is 0 (line {each.line}), and is not used"
            elif honest_figure.samples_per_s is not None:
                difference = each.samples_per_s / honest_figure.samples_per_s - 1
                if abs(difference) <= _AGREE:
                    continue
                yield (
                    f"the script's own '{name}' is {number(each.samples_per_s)} {run.unit} (line {each.line}), "
                    f"{difference:+.1%} from the records' {number(honest_figure.samples_per_s)}"
                )


def _stamps(run: LogRun, skip: int) -> Iterator[str]:
    """Compares the longest stretch after warm-up within one epoch, by its time stamps, with the records in it."""
    steps = run.columns.get(RecordField.STEP, run.columns.get(RecordField.SPAN_END, ()))
    epochs = run.columns.get(RecordField.EPOCH, [0.0] * run.records)
    after = [each for each in run.stamps if each >= skip]
    if run.format.is_summary or not steps or not after:
        return
    first = after[0]
    last = next((each for each in reversed(after) if epochs[each] == epochs[first]), first)
    done, seconds = steps[last] - steps[first], run.stamps[last] - run.stamps[first]
    if not (done > 0 and seconds > 0):
        return
    try:
        by_records = timed(run).samples_per_s(first + 1, last + 1)
    except RuleError:
        return
    by_clock = done * images_per_step(run) / seconds
    difference = by_clock / by_records - 1
    # One unit in the last digit of a time stamp.
    unit = 1.0 if all(each == int(each) for each in run.stamps.values()) else 0.001
    if abs(difference) > _AGREE + unit / seconds:
        why = "they state more time than passed" if difference > 0 else "they leave out some of the time"
        yield (
            f"by the time stamps of records {first + 1} and {last + 1}, {seconds:.0f} s apart, it is "
            f"{number(by_clock)} {run.unit}, {difference:+.1%} from the {number(by_records)} of the records between: "
            f"{why}"
        )
