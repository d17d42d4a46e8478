"""Decides by steps where a record belongs: next in its run, the same step printed by another rank, or a new run."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Mapping

from helpers.logs.lines import seconds_of
from helpers.logs.record import RecordField

# How many records one rank's lines may lag behind another's: few, since ranks wait for each other in every step.
_LAG_RECORDS = 8
# Without time stamps: if the first step comes again after so many records, it begins a new run.
_FIRST_AGAIN_RECORDS = 3
# More than the steps of any epoch.
_EPOCH = 2.0**32
_STEPS = (RecordField.STEP.value, RecordField.SPAN_END.value, RecordField.SPAN_START.value)


class StepPlace(enum.Enum):
    """The place of a record in its run."""

    NEXT = "next"
    # Another rank printed it before.
    AGAIN = "again"
    # The first one of a new run.
    RESTART = "restart"
    # It goes back, and none of these explains it.
    BACK = "back"


def step_key(record: Mapping[str, float]) -> float | None:
    """A number that rises with epoch and step; None if the record has no step."""
    step = next((record[each] for each in _STEPS if each in record), None)
    if step is None or step != step:
        return None
    epoch = record.get("epoch", 0.0)
    return step if epoch != epoch else epoch * _EPOCH + step


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
        self._first_time = self._last_time = b""

    def place(self, key: float | None, time: bytes) -> StepPlace:
        """Where a record with this key and time stamp belongs. It becomes the last one if that is NEXT."""
        if key is None:
            return StepPlace.NEXT
        if self.last is None or self._first is None or key > self.last:
            if self._first is None:
                self._first, self._first_time = key, time
            self.last, self._last_time = key, time
            self._recent.append(key)
            self._records += 1
            return StepPlace.NEXT
        if key == self.last or (key > self._first and key in self._recent):
            return StepPlace.AGAIN
        return self._unclear(key, self._first, seconds_of(time))

    def _unclear(self, key: float, first_key: float, now: float | None) -> StepPlace:
        """The place of a record that repeats the first step or an old one; decided by time stamps if there are any.

        A line that was written before the last one but comes after it is of another rank. The first record of a new run
        is later by the time of a start-up.
        """
        first, last = seconds_of(self._first_time), seconds_of(self._last_time)
        if now is None or last is None or first is None:
            if key > first_key:
                return StepPlace.BACK
            return StepPlace.RESTART if self._records >= _FIRST_AGAIN_RECORDS else StepPlace.AGAIN
        between_records = (last - first) / max(self._records - 1, 1)
        if now < last:
            # Ranks begin together. A record from long before the run's beginning is of another job, whose log was
            # appended.
            earlier = key <= first_key and first - now > _LAG_RECORDS * between_records
            return StepPlace.RESTART if earlier else StepPlace.AGAIN
        if key > first_key:
            return StepPlace.BACK
        return StepPlace.AGAIN if now - last < between_records / 2 and key in self._recent else StepPlace.RESTART
