"""Waits until others leave the machine alone, as ``--wait-for-quiet`` allows it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

OPTION = "--wait-for-quiet"
# Between two looks. A look takes up to 3 s of one core, which must not become a disturbance of its own.
POLL_SECONDS = 30.0


@dataclass
class QuietWait:
    """What a session may wait in all, however often it waits."""

    minutes: float
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    used_seconds: float = 0.0

    def wait(self, look: Callable[[], str], say: Callable[[str], None]) -> str:
        """Look again until nobody disturbs or the minutes are used up. ``look`` returns who disturbs, and ``say`` is
        told once a look; returns who still disturbs at the end, empty if nobody does."""
        start = self.clock() - self.used_seconds
        while found := look():
            told = f"{self.used_seconds / 60:.0f} of at most {self.minutes:g} min"
            if self.used_seconds >= 60 * self.minutes:
                return f"{found}; it did not become quiet in {told} ({OPTION})"
            say(f"waiting for a quiet machine, {told}: {found}")
            self.sleep(min(POLL_SECONDS, 60 * self.minutes - self.used_seconds))
            self.used_seconds = self.clock() - start
        return ""
