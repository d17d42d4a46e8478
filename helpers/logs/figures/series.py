"""The records of a run as rates of all cards: as printed, and computed from the steps that each record really timed.

A printed rate is not always that of the steps just before it: PaddleClas prints batch size / mean step time since step
5 of the epoch. Such a record at step s is the mean of s - 4 steps, so two of them give the time between them. See
docs/measuring-rules.md, "What throughput means in each source".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from helpers.judging.rules_publishers import RuleError
from helpers.logs.column import BLOCK, sum_of
from helpers.logs.record import HONEST, LogRun, RateOf, RecordField
from helpers.logs.settings import NEEDED, LogSetting

Floats = NDArray[np.float64]
# How many records at the start are used to find the usual distance between records.
_HEAD = 256


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


class Rates:
    """Images/s of all cards of each record: as printed, or from its seconds if it prints no rate.

    Raises RuleError if the records hold neither.
    """

    def __init__(self, run: LogRun) -> None:
        self._run = run
        self._scale, self._field = _scale_of(run)

    def __len__(self) -> int:
        return self._run.records

    def blocks(self, start: int = 0, stop: int | None = None) -> Iterator[Floats]:
        for block in self._run.columns[self._field].blocks(start, stop):
            yield block * self._scale if self._field is RecordField.IMAGES_PER_S else self._scale / block

    def mean(self, start: int = 0, stop: int | None = None) -> float:
        count, sums = 0, []
        for block in self.blocks(start, stop):
            count += len(block)
            sums.append(sum_of(block))
        return math.fsum(sums) / count if count else math.nan

    def values(self, start: int = 0, stop: int | None = None) -> list[float]:
        return [float(each) for block in self.blocks(start, stop) for each in block]


def _scale_of(run: LogRun) -> tuple[float, RecordField]:
    if RecordField.IMAGES_PER_S in run.columns:
        return (cards_of(run) if run.format.rate_of is RateOf.CARD else 1), RecordField.IMAGES_PER_S
    if RecordField.STEP_SECONDS in run.columns:
        return images_per_step(run), RecordField.STEP_SECONDS
    raise RuleError(f"the records of {run.format.name}", got="neither a rate nor seconds", expected="one of them")


@dataclass(frozen=True)
class Stretch:
    """Consecutive records from index ``first`` on. Their images/s of all cards are sum(steps) / sum(cost). A record
    that timed no step of its own has 0 in both arrays."""

    first: int
    # For each record: how many steps it timed.
    steps: Floats
    # For each record: its steps times the seconds that they took per image of all cards.
    cost: Floats
    # For each record: whether it is the first of its epoch that timed any step.
    begins: NDArray[np.bool_]

    def rates(self) -> Floats:
        """Images/s of the records that timed any step."""
        timed = (self.cost > 0) & (self.steps > 0)
        return np.asarray(self.steps[timed] / self.cost[timed])


def stretches(run: LogRun, start: int = 0, stop: int | None = None) -> Iterator[Stretch]:
    """The records from ``start`` up to ``stop`` in blocks. Raises RuleError if they hold no time."""
    stop = run.records if stop is None else min(stop, run.records)
    if run.format.running_mean is not None and RecordField.STEP in run.columns:
        yield from _running(run, run.format.running_mean, start, stop)
        return
    spans = {RecordField.SPAN_SECONDS, RecordField.SPAN_START, RecordField.SPAN_END} <= run.columns.keys()
    distance = usual_distance(run)
    for first in range(start, stop, BLOCK):
        last = min(first + BLOCK, stop)
        if spans:
            steps = _part(run, RecordField.SPAN_END, first, last) - _part(run, RecordField.SPAN_START, first, last)
            cost = _part(run, RecordField.SPAN_SECONDS, first, last) / images_per_step(run)
        else:
            rates = np.concatenate(list(Rates(run).blocks(first, last)))
            steps = _covered(run, distance, first, last)
            cost = steps / rates
        yield Stretch(first, steps, cost, np.zeros(last - first, dtype=np.bool_))


def usual_distance(run: LogRun) -> float:
    """Steps from one record to the next: the median over the first records, or 1 if the log has no step numbers."""
    if run.format.record_covers is not None or RecordField.STEP not in run.columns:
        return float(run.format.record_covers or 1)
    steps = np.array(run.columns[RecordField.STEP].values(0, _HEAD))
    between = np.diff(steps)
    between = between[between > 0]
    return float(np.median(between)) if len(between) else 1.0


def _covered(run: LogRun, distance: float, first: int, last: int) -> Floats:
    """How many steps each record is the mean of: those since the record before it in its epoch, at most ``distance``.

    The steps of a dropped record are counted for no other record. The first record of an epoch may be at a step below
    ``distance``, counted from 0.
    """
    if run.format.record_covers is not None or RecordField.STEP not in run.columns:
        return np.full(last - first, distance)
    begin = max(first - 1, 0)
    steps = _part(run, RecordField.STEP, begin, last)
    epochs = _part(run, RecordField.EPOCH, begin, last) if RecordField.EPOCH in run.columns else np.zeros(last - begin)
    covered = steps + 1
    goes_on = (epochs[1:] == epochs[:-1]) & (steps[1:] > steps[:-1])
    covered[1:] = np.where(goes_on, np.diff(steps), covered[1:])
    covered = np.where(np.isfinite(covered), np.minimum(covered, distance), distance)
    return covered[first - begin :]


def running_seconds(run: LogRun, wanted: RecordField) -> float:
    """The seconds of all steps of the run, from a field that holds running means: each epoch's last record gives those
    of the epoch."""

    def total_of(first: int, last: int, timed: Floats) -> Floats:
        return timed * _part(run, wanted, first, last)

    assert run.format.running_mean is not None
    return math.fsum(sum_of(each.cost) for each in _differences(run, run.format.running_mean, total_of))


def _running(run: LogRun, first_timed: int, start: int, stop: int) -> Iterator[Stretch]:
    """The steps and time of each record alone, where records are running means: the differences from the record before
    it in the epoch."""
    cards = cards_of(run) if run.format.rate_of is RateOf.CARD else 1

    def total_of(first: int, last: int, timed: Floats) -> Floats:
        return timed / (_part(run, RecordField.IMAGES_PER_S, first, last) * cards)

    return _differences(run, first_timed, total_of, start, stop)


def _differences(
    run: LogRun,
    first_timed: int,
    total_of: Callable[[int, int, Floats], Floats],
    start: int = 0,
    stop: int | None = None,
) -> Iterator[Stretch]:
    before = (math.nan, 0.0, 0.0)
    stop = run.records if stop is None else stop
    for first in range(max(start - 1, 0), stop, BLOCK):
        last = min(first + BLOCK, stop)
        timed = np.maximum(_part(run, RecordField.STEP, first, last) - (first_timed - 1), 0.0)
        total = total_of(first, last, timed)
        epochs = (
            _part(run, RecordField.EPOCH, first, last) if RecordField.EPOCH in run.columns else np.zeros(last - first)
        )
        epochs_before, timed_before, total_before = (
            np.concatenate(([earlier], values[:-1]))
            for earlier, values in zip(before, (epochs, timed, total), strict=True)
        )
        before = (float(epochs[-1]), float(timed[-1]), float(total[-1]))
        same_epoch = epochs == epochs_before
        goes_on = same_epoch & (timed > timed_before)
        again = same_epoch & (timed == timed_before)
        steps = np.where(again, 0.0, timed - np.where(goes_on, timed_before, 0.0))
        cost = np.where(again, 0.0, total - np.where(goes_on, total_before, 0.0))
        begins = (timed > 0) & ~again & (~goes_on | (timed_before == 0))
        # The record before ``start`` is read only for the difference from it.
        left_out = max(start - first, 0)
        yield Stretch(first + left_out, steps[left_out:], cost[left_out:], begins[left_out:])


def _part(run: LogRun, wanted: RecordField, first: int, last: int) -> Floats:
    return np.concatenate(list(run.columns[wanted].blocks(first, last)))


@dataclass(frozen=True)
class RuleValue:
    """The figure that a measuring rule gives for a run."""

    # Of all cards.
    samples_per_s: float
    # How many records (or steps, epochs, printed lines) were used, and which were left out and why.
    records: int
    left_out: tuple[str, ...] = ()


def leading(run: LogRun, field: RecordField, below: float) -> int:
    """How many records come before the first one whose ``field`` is at least ``below``; all of them if none is."""
    if field not in run.columns:
        return 0
    count = 0
    for block in run.columns[field].blocks():
        reached = (block >= below).nonzero()[0]
        if len(reached):
            return count + int(reached[0])
        count += len(block)
    return count


def if_any(count: int, what: str) -> tuple[str, ...]:
    """Such as ``("10 of warm-up",)``; empty for 0."""
    return (f"{count} {what}",) if count else ()


def samples_per_s_of(run: LogRun, start: int, stop: int) -> float:
    """Images/s of all cards of the records from ``start`` up to ``stop``."""
    parts = [(sum_of(each.steps), sum_of(each.cost)) for each in stretches(run, start, stop)]
    steps, cost = (math.fsum(each) for each in zip(*parts, strict=True))
    return images_over_seconds(steps, cost)


def images_over_seconds(steps: float, cost: float) -> float:
    """``steps`` / ``cost``. Raises RuleError if the time is not above 0, which happens when running means contradict
    each other."""
    if not cost > 0:
        raise RuleError(f"rule {HONEST}", got=f"{cost} seconds", expected="more than 0")
    return steps / cost
