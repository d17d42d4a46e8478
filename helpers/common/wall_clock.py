"""A wall clock that never goes back within a process, even if the machine's clock is set meanwhile. What a night is:
the local date on which its session began."""

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


def local_now() -> datetime.datetime:
    """Now, in the time zone of this machine (``TZ``, else the system's) with its offset from UTC."""
    return utc_now().astimezone()


def night_number(began: datetime.datetime) -> int:
    """The night of a session that began at ``began``, as the ordinal of its local date: nights that follow each other
    differ by 1, over changes of summer time and of the year too.

    ``began`` keeps the offset of the machine on which the session began, so every machine counts the same. Raises
    ValueError without an offset.
    """
    if began.utcoffset() is None:
        raise ValueError(f"{began.isoformat()} has no offset from UTC: expected one, as 2024-05-06T23:50:00-07:00")
    return began.date().toordinal()
