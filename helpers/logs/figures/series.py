"""The records of a run as rates of all cards: as printed, and computed from the steps that each record really timed.

A printed rate is not always that of the steps just before it: PaddleClas prints batch size / mean step time since step
5 of the epoch. Such a record at step s is the mean of s - 4 steps, so two of them give the time between them. See
docs/published.md, "What throughput means in each source".
"""

from __future__ import annotations

import enum
import itertools
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from helpers.judging.rules.publishers import RuleError
from helpers.logs.record import HONEST, LogRun, RateOf, RecordField
from helpers.logs.settings import NEEDED, LogSetting

# How many records at the start are used to find the usual distance between records.
_HEAD = 256
# A difference of running means below this share of the time before it may be due to the digits that are printed.
_ROUNDING = 1e-6
# Two figures of the honest rule that differ by less do not need to be told apart.
_AGREE = 0.01
# The logarithm of a likelihood ratio of 20.
_CERTAIN = 3.0
_ROUNDS = 20
# With fewer second differences, a single slow record can look like the other kind.
ENOUGH = 20
_SPAN = (RecordField.SPAN_SECONDS, RecordField.SPAN_START, RecordField.SPAN_END)


def cards_of(run: LogRun) -> int:
    return _whole(run, LogSetting.CARDS)


def images_per_step(run: LogRun) -> int:
    """The images of all cards in a step. Raises RuleError if the configuration does not state them."""
    return _whole(run, LogSetting.BATCH_SIZE_PER_CARD) * cards_of(run)


def _whole(run: LogRun, setting: LogSetting) -> int:
    assert setting in NEEDED
    stated = run.stated(setting)
    if stated is None or not stated.isascii() or not stated.isdecimal() or int(stated) < 1:
        raise RuleError(f"{run.source}: run {run.number}", field=setting.value, got=stated, expected="a whole number")
    return int(stated)


def rates_of(run: LogRun) -> list[float]:
    """Images/s of all cards of each record: as printed, or from its seconds if it prints no rate. Raises RuleError if
    the records hold neither."""
    if RecordField.IMAGES_PER_S in run.columns:
        cards = cards_of(run) if run.rate_of is RateOf.CARD else 1
        return [rate * cards for rate in run.columns[RecordField.IMAGES_PER_S]]
    if RecordField.STEP_SECONDS in run.columns:
        images = images_per_step(run)
        return [images / seconds for seconds in run.columns[RecordField.STEP_SECONDS]]
    raise RuleError(f"the records of {run.format.name}", got="neither a rate nor seconds", expected="one of them")


@dataclass(frozen=True)
class Timed:
    """What each record timed. Images/s of all cards are sum(steps) / sum(cost). A record that timed no step of its own
    has 0 in both."""

    # How many steps it timed.
    steps: Sequence[float]
    # Its steps times the seconds that they took per image of all cards.
    cost: Sequence[float]

    def samples_per_s(self, start: int = 0, stop: int | None = None) -> float:
        """Images/s of all cards of the records from ``start`` up to ``stop``. Raises RuleError if their time is not
        above 0."""
        steps, cost = math.fsum(self.steps[start:stop]), math.fsum(self.cost[start:stop])
        if not cost > 0:
            raise RuleError(f"rule {HONEST}", got=f"{cost} seconds", expected="more than 0")
        return steps / cost


def timed(run: LogRun) -> Timed:
    """What the records timed. Raises RuleError if they hold no time, or if it is not known what they are means of."""
    means = means_of(run)
    if means is Means.UNKNOWN:
        raise RuleError(
            f"the records of {run.format.name}",
            got="means of which nothing shows whether they run on through the epoch or are reset at every record",
            expected="one of them",
        )
    if means is Means.EITHER:
        return min(_running(run), _running(run, reset=True), key=Timed.samples_per_s)
    return _of_records(run) if means is Means.OWN else _running(run, reset=means is Means.RESET)


def _of_records(run: LogRun) -> Timed:
    if all(each in run.columns for each in _SPAN):
        seconds, starts, ends = (run.columns[each] for each in _SPAN)
        images = images_per_step(run)
        steps = [end - start for start, end in zip(starts, ends, strict=True)]
        return Timed(steps, [each / images for each in seconds])
    rates, steps = rates_of(run), covered(run)
    return Timed(steps, [each / rate for each, rate in zip(steps, rates, strict=True)])


def usual_distance(run: LogRun) -> float:
    """Steps from one record to the next: the median over the first records, or 1 if the log has no step numbers."""
    if run.format.record_covers is not None or RecordField.STEP not in run.columns:
        return float(run.format.record_covers or 1)
    return _median_distance(run.columns[RecordField.STEP][:_HEAD]) or 1.0


def step_distance(run: LogRun) -> float | None:
    """The median distance of all records by their step numbers; None if they have none."""
    if all(each in run.columns for each in _SPAN):
        starts, ends = (run.columns[each] for each in _SPAN[1:])
        return statistics.median(end - start for start, end in zip(starts, ends, strict=True))
    return _median_distance(run.columns.get(RecordField.STEP, ()))


def _median_distance(steps: Sequence[float]) -> float | None:
    """The median step from one record to the next within an epoch; None without one."""
    between = [after - here for here, after in itertools.pairwise(steps) if after > here]
    return statistics.median(between) if between else None


def covered(run: LogRun) -> list[float]:
    """How many steps each record is the mean of: those since the record before it in its epoch, at most the usual
    distance.

    The steps of a dropped record are counted for no other record. The first record of an epoch may be at a step below
    the distance, counted from 0.
    """
    distance = usual_distance(run)
    if run.format.record_covers is not None or RecordField.STEP not in run.columns:
        return [distance] * run.records
    found, before = [], (math.nan, math.nan)
    for epoch, step in _places(run):
        steps = step - before[1] if epoch == before[0] and step > before[1] else step + 1
        found.append(min(steps, distance) if math.isfinite(steps) else distance)
        before = epoch, step
    return found


def _places(run: LogRun) -> Iterator[tuple[float, float]]:
    """Epoch and step of each record; epoch 0 if the format has none."""
    steps = run.columns[RecordField.STEP]
    return zip(run.columns.get(RecordField.EPOCH, [0.0] * len(steps)), steps, strict=True)


# ---- running means


class Means(enum.Enum):
    """What a record's rate is the mean of."""

    # The steps since the record before it.
    OWN = "own steps"
    # All steps since a certain one of the epoch.
    RUNNING = "running"
    # The format's means run on in some versions, and this run's records show that they are reset at every record.
    RESET = "reset"
    # One of these two, and nothing shows which; their figures agree, and the lower one counts.
    EITHER = "running or reset"
    UNKNOWN = "unknown"


def means_of(run: LogRun) -> Means:
    """What the records are means of, told from the records themselves where the format's versions differ.

    A difference of running means that is no time shows that they are reset. Else the scatter of the second differences
    shows it.
    """
    if run.format.running_mean is None or RecordField.STEP not in run.columns:
        return Means.OWN
    running = _running(run)
    totals = itertools.accumulate(running.cost)
    if any(cost < -_ROUNDING * abs(total - cost) for cost, total in zip(running.cost, totals, strict=True)):
        return Means.RESET
    if not run.format.may_reset:
        return Means.RUNNING
    evidence = _evidence_of_reset(run)
    if abs(evidence) > _CERTAIN:
        return Means.RESET if evidence > 0 else Means.RUNNING
    try:
        apart = abs(running.samples_per_s() / _running(run, reset=True).samples_per_s() - 1)
    except RuleError:
        return Means.RUNNING
    return Means.EITHER if apart < _AGREE else Means.UNKNOWN


def _evidence_of_reset(run: LogRun) -> float:
    """The logarithm of how much better the second differences of the records' seconds agree with means that are reset
    (they scatter alike in every step) than with running means (they scatter as 1 / step).

    Second differences, so that a drift counts for neither.
    """
    found = second_differences(run)
    if len(found) < ENOUGH:
        return 0.0
    alike = _likelihood([change for change, _ in found])
    scaled = _likelihood([change * step for change, step in found])
    return alike - scaled - math.fsum(math.log(step) for _, step in found)


def second_differences(run: LogRun) -> list[tuple[float, float]]:
    """The second difference of the seconds per image at each record that stands between two others of its epoch, and
    the record's step."""
    records = list(zip(_places(run), rates_of(run), strict=True))
    return [
        (1 / after[1] - 2 / rate + 1 / before[1], place[1])
        for before, (place, rate), after in zip(records, records[1:], records[2:], strict=False)
        if before[0][0] == place[0] == after[0][0] and place[1] > 0
    ]


def _likelihood(values: Sequence[float]) -> float:
    """The logarithm of the greatest likelihood of values about 0 by Student's t with 4 degrees of freedom, to which a
    few outliers are nothing strange; but for a constant."""
    size = statistics.median(map(abs, values))
    if not size:
        return 0.0
    for _ in range(_ROUNDS):
        size = math.sqrt(statistics.fmean(5 * value**2 / (4 + (value / size) ** 2) for value in values))
    return math.fsum(-2.5 * math.log1p((value / size) ** 2 / 4) - math.log(size) for value in values)


def _running(run: LogRun, reset: bool = False) -> Timed:
    """The steps and time of each record alone, where records are running means, ``reset`` at every record or not."""
    return _differences(run, [1 / rate for rate in rates_of(run)], reset)


def running_seconds(run: LogRun, wanted: RecordField, reset: bool) -> float:
    """The seconds of all timed steps of the run, from a field that holds such means."""
    return math.fsum(_differences(run, run.columns[wanted], reset).cost)


def _differences(run: LogRun, means: Sequence[float], reset: bool) -> Timed:
    """The steps since the record before it in the epoch, and their time: the difference of ``means`` times all their
    steps, or the mean of their own."""
    first_timed = run.format.running_mean
    assert first_timed is not None
    steps, cost = [], []
    epoch_before, timed_before, total_before = math.nan, 0.0, 0.0
    for (epoch, step), mean in zip(_places(run), means, strict=True):
        now = max(step - (first_timed - 1), 0.0)
        total = now * mean
        again = epoch == epoch_before and now == timed_before
        goes_on = epoch == epoch_before and now > timed_before
        steps.append(0.0 if again else now - (timed_before if goes_on else 0.0))
        before = total_before if goes_on else 0.0
        cost.append(0.0 if again else steps[-1] * mean if reset else total - before)
        epoch_before, timed_before, total_before = epoch, now, total
    return Timed(steps, cost)
