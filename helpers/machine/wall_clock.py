"""A wall clock that never goes back within a process, even if the machine's clock is set meanwhile."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable


class WallClock:
    """Reads the wall clock once, when it is made, and continues with the monotonic clock.

    If the machine's clock is set during a session, only the next session uses the new time.
    """

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        # Read once and in this order: a pause between the two calls makes the clock late by a constant.
        self._offset_seconds = wall() - monotonic()

    def __call__(self) -> datetime.datetime:
        """Now, in UTC."""
        return datetime.datetime.fromtimestamp(self._offset_seconds + self._monotonic(), datetime.UTC)


utc_now = WallClock()
