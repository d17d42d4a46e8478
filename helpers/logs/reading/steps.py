"""Decides by steps where a record belongs: next in its run, the same step printed by another rank, or a new run."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from helpers.logs.record import RecordField

Floats = NDArray[np.float64]
Seconds = Callable[[int], "float | None"]
ManySeconds = Callable[[NDArray[np.intp]], "Floats | None"]

# How many records one rank's lines may lag behind another's: few, since ranks wait for each other in every step.
_LAG_RECORDS = 8
# Without time stamps: if the first step comes again after so many records, it begins a new run.
_FIRST_AGAIN_RECORDS = 3
# More than the steps of any epoch.
_EPOCH = 2.0**32


class StepPlace(enum.Enum):
    """The place of a record in its run."""

    NEXT = "next"
    # Another rank printed it before.
    AGAIN = "again"
    # The first one of a new run.
    RESTART = "restart"
    # It goes back, and none of these explains it.
    BACK = "back"


@dataclass(frozen=True)
class RowPlan:
    """Which rows of a block are next records of the run."""

    kept: NDArray[np.bool_]
    # The row at which they end (None if they do not), why, and the run's last key before it.
    stop: int | None = None
    why: StepPlace = StepPlace.NEXT
    last: float = 0.0


def step_keys(fields: Mapping[RecordField, Floats]) -> Floats | None:
    """A number for each record that rises with epoch and step; None if the records have no steps."""
    step = next(
        (fields[each] for each in (RecordField.STEP, RecordField.SPAN_END, RecordField.SPAN_START) if each in fields),
        None,
    )
    epoch = fields.get(RecordField.EPOCH)
    if step is None:
        return None
    keys = step if epoch is None else np.where(np.isnan(epoch), 0.0, epoch) * _EPOCH + step
    return None if np.isnan(keys).all() else keys


def key_text(key: float) -> str:
    epoch, step = divmod(key, _EPOCH)
    return f"epoch {epoch:.0f}, step {step:.0f}" if epoch else f"step {step:.0f}"


class StepOrder:
    """The order of the records of one run that were accepted so far."""

    def __init__(self) -> None:
        self.last: float | None = None
        self._first: float | None = None
        self._recent: deque[float] = deque(maxlen=_LAG_RECORDS)
        self._records = 0
        self._first_seconds: float | None = None
        self._last_seconds: float | None = None

    def plan(self, keys: Floats, seconds: Seconds, many: ManySeconds = lambda rows: None) -> RowPlan:
        """Plans what to do with rows of these keys, without changing the order.

        ``seconds`` gives a row's time stamp, ``many`` those of several rows at once, or None.
        """
        kept = np.ones(len(keys), dtype=np.bool_)
        if self._rises(keys):
            return RowPlan(kept)
        if self._all_again(keys, many):
            return RowPlan(np.zeros(len(keys), dtype=np.bool_))
        ahead = _Ahead(self, seconds)
        for row, key in enumerate(keys.tolist()):
            place = ahead.place(row, key)
            if place in (StepPlace.RESTART, StepPlace.BACK):
                return RowPlan(kept, row, place, ahead.last)
            kept[row] = place is StepPlace.NEXT
        return RowPlan(kept)

    def accept(self, keys: Floats, first_seconds: float | None, last_seconds: float | None) -> None:
        """Accepts the rows that a plan keeps, with the time stamps of the first and the last of them."""
        keys = keys[~np.isnan(keys)]
        if not len(keys):
            return
        if self._first is None:
            self._first, self._first_seconds = float(keys[0]), first_seconds
        self.last, self._last_seconds = float(keys[-1]), last_seconds
        self._recent.extend(keys[-_LAG_RECORDS:].tolist())
        self._records += len(keys)

    def _all_again(self, keys: Floats, many: ManySeconds) -> bool:
        """Whether every row is certain to be AGAIN, as in a log whose records were repeated.

        _Ahead would find the same row by row. Here it is decided for all rows together, since none of them changes the
        order.
        """
        if self.last is None or self._first is None or not np.all(keys <= self.last):
            return False
        recent = (keys == self.last) | ((keys > self._first) & np.isin(keys, list(self._recent)))
        unclear = np.flatnonzero(~recent)
        if not len(unclear):
            return True
        now = many(unclear)
        if now is None or self._first_seconds is None or self._last_seconds is None:
            return False
        between = (self._last_seconds - self._first_seconds) / max(self._records - 1, 1)
        earlier = (keys[unclear] <= self._first) & (self._first_seconds - now > _LAG_RECORDS * between)
        return bool((now < self._last_seconds).all() and not earlier.any())

    def _rises(self, keys: Floats) -> bool:
        after_last = self.last is None or not len(keys) or bool(keys[0] > self.last)
        return after_last and bool(np.all(keys[1:] > keys[:-1]))


class _Ahead:
    """Follows an order row by row, without changing it."""

    def __init__(self, order: StepOrder, seconds: Seconds) -> None:
        self._seconds = seconds
        self._last, self._first = order.last, order._first
        self._recent = deque(order._recent, maxlen=_LAG_RECORDS)
        self._records = order._records
        self._first_at: int | float | None = order._first_seconds
        self._last_at = order._last_seconds
        # The rows are kept rather than their time stamps, which are seldom needed.
        self._first_row: int | None = None
        self._last_row: int | None = None

    @property
    def last(self) -> float:
        return self._last or 0.0

    def place(self, row: int, key: float) -> StepPlace:
        # A record without a step has the key NaN, which compares false; it keeps its place.
        if self._last is None or not key <= self._last:
            self._next(row, key)
            return StepPlace.NEXT
        assert self._first is not None
        if key == self._last or (key > self._first and key in self._recent):
            return StepPlace.AGAIN
        return self._unclear(key, self._seconds(row))

    def _next(self, row: int, key: float) -> None:
        if key != key:
            return
        if self._first is None:
            self._first, self._first_row = key, row
        self._last, self._last_row = key, row
        self._recent.append(key)
        self._records += 1

    def _unclear(self, key: float, now: float | None) -> StepPlace:
        """The place of a record that repeats the first step or an old one; decided by time stamps if there are any.

        A line that was written before the last one but comes after it is of another rank. The first record of a new run
        is later by the time of a start-up.
        """
        last = self._last_at if self._last_row is None else self._seconds(self._last_row)
        first = self._first_at if self._first_row is None else self._seconds(self._first_row)
        assert self._first is not None
        if now is None or last is None or first is None:
            if key > self._first:
                return StepPlace.BACK
            return StepPlace.RESTART if self._records >= _FIRST_AGAIN_RECORDS else StepPlace.AGAIN
        between_records = (last - first) / max(self._records - 1, 1)
        if now < last:
            # Ranks begin together. A record from long before the run's beginning is of another job, whose log was
            # appended.
            earlier = key <= self._first and first - now > _LAG_RECORDS * between_records
            return StepPlace.RESTART if earlier else StepPlace.AGAIN
        if key > self._first:
            return StepPlace.BACK
        return StepPlace.AGAIN if now - last < between_records / 2 and key in self._recent else StepPlace.RESTART
