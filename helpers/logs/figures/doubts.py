"""Warnings about the figures of a log, each with its numbers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from helpers.judging.rates import rate_unit_of_model
from helpers.judging.rules_publishers import PADDLECLAS_TRIMMED_RECORDS, RuleError
from helpers.judging.statistics import number, student_t_95
from helpers.logs.column import sum_of
from helpers.logs.figures.rules import warm_up_records
from helpers.logs.figures.series import images_per_step, samples_per_s_of, stretches
from helpers.logs.record import LogRun, RateOf, RateSpread, RecordField, RuleFigure, Stamp
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
    "tipc": "summary line of TIPC",
}
# To look for a drift, each third of a run is divided into ten equal parts. Neighbouring records depend on each other;
# the means of such parts hardly do.
_PARTS_A_THIRD = 10
_PARTS = 3 * _PARTS_A_THIRD
# A drift below this fraction is not worth a warning, however certain it is.
_LEAST = 0.005


def doubts(
    run: LogRun, by_rule: Sequence[RuleFigure], honest_figure: RuleFigure, spread: RateSpread | None
) -> tuple[str, ...]:
    """The warnings about a run, the most serious kind first."""
    return (
        *_of_the_log(run),
        *_of_batch(run),
        *_few(run),
        *_running(run, by_rule, honest_figure),
        *_slow_last(run, spread),
        *_drift(run),
        *_printed(run, honest_figure),
        *_rules(run, by_rule),
        *_stamps(run),
        *run.notes,
    )


def _unit_of(run: LogRun) -> str:
    """The unit of the run's rates: that of its model; images/s if the log does not state the model."""
    return rate_unit_of_model(run.stated(LogSetting.MODEL) or "")


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
    per_card = images / int(cards) if run.format.rate_of is RateOf.JOB and cards else images
    # Seconds are printed with 5 decimals or fewer, so for a short step the result is rough.
    if not abs(per_card / int(configured.value) - 1) <= 0.05:
        yield (
            f"the records' {_unit_of(run)} x seconds give {per_card:.4g} a card and step, the configuration says "
            f"{configured.value} ({configured.where})"
        )


def _few(run: LogRun) -> Iterator[str]:
    skipped = warm_up_records(run)
    left = run.records - skipped
    if run.records and not run.format.is_summary and left < PADDLECLAS_TRIMMED_RECORDS:
        yield f"few records: {left} after {skipped} of warm-up, fewer than {PADDLECLAS_TRIMMED_RECORDS}"


def _running(run: LogRun, by_rule: Sequence[RuleFigure], honest_figure: RuleFigure) -> Iterator[str]:
    if run.format.running_mean is None:
        return
    warning = "running means: each record is the mean since the epoch's 5th step, so records depend on each other"
    figure = next((each for each in by_rule if each.samples_per_s is not None), None)
    if figure is not None and figure.samples_per_s is not None and honest_figure.samples_per_s is not None:
        difference = honest_figure.samples_per_s / figure.samples_per_s - 1
        warning += f" and their mean is not images / seconds: the honest figure is {difference:+.2%} from {figure.rule}"
    yield warning


def _slow_last(run: LogRun, spread: RateSpread | None) -> Iterator[str]:
    if spread is None or run.records < 3:
        return
    last = _last_rate(run)
    below = last / spread.median_samples_per_s - 1
    if below < -_SLOW_LAST:
        yield f"slow last record: {number(last)} {_unit_of(run)}, {below:+.1%} from the median"


def _last_rate(run: LogRun) -> float:
    """The rate of the steps that the last record timed; NaN if it timed none."""
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


def _printed(run: LogRun, honest_figure: RuleFigure) -> Iterator[str]:
    """Compares the script's own figures with the records: the script may have counted other steps, or averaged rates
    instead of times."""
    if honest_figure.samples_per_s is None:
        return
    for key, name in _WHOLE_FIGURES.items():
        for each in run.printed.get(key, ())[-1:]:
            difference = each.samples_per_s / honest_figure.samples_per_s - 1
            if abs(difference) > _AGREE:
                yield (
                    f"the script's own '{name}' is {number(each.samples_per_s)} {_unit_of(run)} (line {each.line}), "
                    f"{difference:+.1%} from the records' {number(honest_figure.samples_per_s)}"
                )


def _rules(run: LogRun, by_rule: Sequence[RuleFigure]) -> Iterator[str]:
    known = [(each.samples_per_s, each.rule) for each in by_rule if each.samples_per_s is not None]
    if len(known) < 2:
        return
    (lowest, low_rule), (highest, high_rule) = min(known), max(known)
    if highest / lowest - 1 > _AGREE:
        yield (
            f"the rules differ by {highest / lowest - 1:.1%}: {low_rule} {number(lowest)}, "
            f"{high_rule} {number(highest)} {_unit_of(run)}"
        )


def _stamps(run: LogRun) -> Iterator[str]:
    stretch = by_stamps(run)
    if stretch is None:
        return
    if abs(stretch.difference) > _AGREE + stretch.resolution:
        why = "they state more time than passed" if stretch.difference > 0 else "they leave out some of the time"
        yield (
            f"by the time stamps of records {stretch.first + 1} and {stretch.last + 1}, {stretch.seconds:.0f} s apart, "
            f"it is {number(stretch.samples_per_s)} {_unit_of(run)}, {stretch.difference:+.1%} from the "
            f"{number(stretch.records_samples_per_s)} of the records between: {why}"
        )


@dataclass(frozen=True)
class RunDrift:
    """A run that became faster or slower by more than the scatter within its thirds explains."""

    # (samples/s of the last third / samples/s of the first third) - 1.
    difference: float
    # The 95% bound that the difference exceeds.
    bound: float


def drift_of(run: LogRun, start: int) -> RunDrift | None:
    """The drift of the records from ``start`` on; None if none can be seen. Raises RuleError if the records hold no
    time.

    Only one mean for each part is kept (in a short run each record is a part), so memory does not grow with the log.
    """
    means = _part_means(run, start)
    third = len(means) // 3
    if third < 3:
        return None
    early, late = means[:third], means[-third:]
    first, last = statistics.fmean(early), statistics.fmean(late)
    error = math.sqrt((statistics.variance(early) + statistics.variance(late)) / third)
    difference, bound = last / first - 1, student_t_95(2 * third - 2) * error / first
    return RunDrift(difference, bound) if abs(difference) > max(bound, _LEAST) else None


def _part_means(run: LogRun, start: int) -> list[float]:
    records = run.records - start
    parts = min(_PARTS, records)
    means = []
    for part in range(parts):
        first, last = (start + records * each // parts for each in (part, part + 1))
        # A record that timed no step of its own has no rate.
        blocks = [each.rates() for each in stretches(run, first, last)]
        count = sum(len(block) for block in blocks)
        if count:
            means.append(math.fsum(sum_of(block) for block in blocks) / count)
    return means


@dataclass(frozen=True)
class ByStamps:
    """The speed over the records after ``first`` up to ``last`` (from 0), by the lines' time stamps and by the records
    themselves."""

    first: int
    last: int
    seconds: float
    # By the time stamps.
    samples_per_s: float
    records_samples_per_s: float
    # One unit in the last digit of a time stamp, as a fraction of ``seconds``.
    resolution: float

    @property
    def difference(self) -> float:
        return self.samples_per_s / self.records_samples_per_s - 1


def by_stamps(run: LogRun) -> ByStamps | None:
    """Measures the longest part after warm-up that lies within one epoch, has time stamps at both ends and known
    steps."""
    ends = _ends(run)
    if ends is None:
        return None
    first, last = ends
    wanted = RecordField.SPAN_END if RecordField.SPAN_END in run.columns else RecordField.STEP
    steps = run.columns[wanted][last.index] - run.columns[wanted][first.index]
    seconds = last.seconds - first.seconds
    if not (steps > 0 and seconds > 0):
        return None
    try:
        by_records = samples_per_s_of(run, first.index + 1, last.index + 1)
        by_clock = steps * images_per_step(run) / seconds
    except RuleError:
        return None
    whole = all(each.seconds == int(each.seconds) for each in run.stamps)
    resolution = (1.0 if whole else 0.001) / seconds
    return ByStamps(first.index, last.index, seconds, by_clock, by_records, resolution)


def _ends(run: LogRun) -> tuple[Stamp, Stamp] | None:
    if run.format.is_summary or not ({RecordField.STEP, RecordField.SPAN_END} & run.columns.keys()):
        return None
    skip = min(warm_up_records(run), run.records)
    after = [each for each in run.stamps if each.index >= skip]
    if len(after) < 2:
        return None
    first = after[0]
    if RecordField.EPOCH not in run.columns:
        return first, after[-1]
    epochs = run.columns[RecordField.EPOCH]
    # Searched from the end, since each access to a long column takes time.
    wanted = epochs[first.index]
    same = next((each for each in reversed(after[1:]) if epochs[each.index] == wanted), None)
    return None if same is None else (first, same)
