"""The time of day, always in order: a process gives a later moment a later time, even if the machine's clock is set in
between."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable


class WallClock:
    """Reads the wall clock once, when it is made, and continues with the monotonic clock.

    Where the machine's clock is set during a session, the next session uses it.
    """

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        # Read once and in this order: a pause between the two calls makes the clock late by it, but never uneven.
        self._offset_seconds = wall() - monotonic()

    def __call__(self) -> datetime.datetime:
        """Now, in UTC."""
        return datetime.datetime.fromtimestamp(self._offset_seconds + self._monotonic(), datetime.UTC)


utc_now = WallClock()
