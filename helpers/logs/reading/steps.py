"""The order of a run's records: rising steps, a step printed again by another rank, a run that begins anew."""

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

# Ranks wait for each other in every step, so no rank's lines lag further behind another's, in records.
_LAG_RECORDS = 8
# Without time stamps a first step that comes again after so many records is a new run's.
_FIRST_AGAIN_RECORDS = 3
# Above the steps of any epoch.
_EPOCH = 2.0**32


class StepPlace(enum.Enum):
    """Where a record stands in its run."""

    NEXT = "next"
    # Another rank printed it before.
    AGAIN = "again"
    # The first one of a new run.
    RESTART = "restart"
    # None of these.
    BACK = "back"


@dataclass(frozen=True)
class RowPlan:
    """Which rows of a block are the run's next records."""

    kept: NDArray[np.bool_]
    # The row where they end, why, and the run's last key before it.
    stop: int | None = None
    why: StepPlace = StepPlace.NEXT
    last: float = 0.0


def step_keys(fields: Mapping[RecordField, Floats]) -> Floats | None:
    """One rising number for each record's epoch and step; None where the records have no step."""
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
    """The order of one run's records, as far as they were accepted."""

    def __init__(self) -> None:
        self.last: float | None = None
        self._first: float | None = None
        self._recent: deque[float] = deque(maxlen=_LAG_RECORDS)
        self._records = 0
        self._first_seconds: float | None = None
        self._last_seconds: float | None = None

    def plan(self, keys: Floats, seconds: Seconds, many: ManySeconds = lambda rows: None) -> RowPlan:
        """What to do with rows of these keys; changes nothing.

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
        """Accepts rows that were planned and kept, with the time stamps of the first and of the last of them."""
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

        This is what _Ahead finds row by row, for all rows together, since none of them changes the order.
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
    """An order followed row by row, without changing it."""

    def __init__(self, order: StepOrder, seconds: Seconds) -> None:
        self._seconds = seconds
        self._last, self._first = order.last, order._first
        self._recent = deque(order._recent, maxlen=_LAG_RECORDS)
        self._records = order._records
        self._first_at: int | float | None = order._first_seconds
        self._last_at = order._last_seconds
        # Rows whose stamps are read only when they are asked for, which is seldom.
        self._first_row: int | None = None
        self._last_row: int | None = None

    @property
    def last(self) -> float:
        return self._last or 0.0

    def place(self, row: int, key: float) -> StepPlace:
        # NaN, of a record without a step among others, compares false: the record stands where it is.
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
        """The place of a first step or of an old one, by time stamps where there are some.

        Lines that were written before the last one and come after it are another rank's. A new run's first record is a
        start-up later.
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
            # Ranks begin together; what begins long before the run is another job's log, put behind it.
            earlier = key <= self._first and first - now > _LAG_RECORDS * between_records
            return StepPlace.RESTART if earlier else StepPlace.AGAIN
        if key > self._first:
            return StepPlace.BACK
        return StepPlace.AGAIN if now - last < between_records / 2 and key in self._recent else StepPlace.RESTART
