"""Decides by steps where a record belongs: next in its run, the same step printed by another rank, or a new run."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Mapping

from helpers.logs.record import RecordField

# How many records one rank's lines may lag behind another's: few, since ranks wait for each other in every step.
_LAG_RECORDS = 8
# If the first step comes again after so many records, it begins a new run.
_FIRST_AGAIN_RECORDS = 3
# More than the steps of any epoch.
_EPOCH = 2.0**32
_STEPS = (RecordField.STEP.value, RecordField.SPAN_END.value)


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


class StepOrder:
    """The order of the records of one run that were accepted so far."""

    def __init__(self) -> None:
        self.last = -1.0
        self._first: float | None = None
        self._recent: deque[float] = deque(maxlen=_LAG_RECORDS)
        self._records = 0

    def place(self, key: float | None) -> StepPlace:
        """Where a record with this key belongs. It becomes the last one if that is NEXT."""
        if key is None:
            return StepPlace.NEXT
        if self._first is None or key > self.last:
            self._first = key if self._first is None else self._first
            self.last = key
            self._recent.append(key)
            self._records += 1
            return StepPlace.NEXT
        if key == self.last or (key > self._first and key in self._recent):
            return StepPlace.AGAIN
        if key > self._first:
            return StepPlace.BACK
        return StepPlace.RESTART if self._records >= _FIRST_AGAIN_RECORDS else StepPlace.AGAIN
