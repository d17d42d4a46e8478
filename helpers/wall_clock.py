"""The time of day, in one order: what a process says of two moments is later for the later one, whatever is done to
the machine's clock meanwhile."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable


class WallClock:
    """The wall clock as it stood when this was made, carried on by the monotonic one.

    A clock that is set during a session is believed by the next one.
    """

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        # In this order, and once: a stop between the two makes the clock late by it, and never uneven.
        self._offset_seconds = wall() - monotonic()

    def __call__(self) -> datetime.datetime:
        """Now, in UTC."""
        return datetime.datetime.fromtimestamp(self._offset_seconds + self._monotonic(), datetime.timezone.utc)


utc_now = WallClock()
