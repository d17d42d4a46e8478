"""Reports that the suite waits for a history, and until when, so that the terminal does not stay silent."""

from __future__ import annotations

import datetime
import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from helpers.machine.files import open_lock

# A shorter wait is not reported.
SAY_AFTER_SECONDS = 1.0
_POLL_SECONDS = 0.1


class Waiting:
    """Calls ``say``, once for each long wait, with a sentence that says what is waited for.

    A wait is given up after ``limit_seconds``. Each thread may be in one wait at a time.
    """

    def __init__(
        self,
        what: str,
        limit_seconds: float,
        say: Callable[[str], None] | None,
        *,
        after_seconds: float = SAY_AFTER_SECONDS,
        now: Callable[[], datetime.datetime] = datetime.datetime.now,
    ) -> None:
        self._what = what
        self.limit_seconds = limit_seconds
        self._say = say
        self._after_seconds = after_seconds
        self._now = now
        self._mine = threading.local()

    def begin(self) -> None:
        """Call this before anything that may have to wait."""
        self.end()
        if self._say is None:
            return
        until = self._now() + datetime.timedelta(seconds=self.limit_seconds)
        message = (
            f"waiting for {self._what}, which another process holds, until {until:%H:%M:%S} ({self.limit_seconds:g} s)"
        )
        timer = self._mine.timer = threading.Timer(self._after_seconds, self._say, [message])
        timer.daemon = True
        timer.start()

    def end(self) -> None:
        """Call this when the wait is over."""
        timer: threading.Timer | None = getattr(self._mine, "timer", None)
        if timer is not None:
            timer.cancel()
        self._mine.timer = None

    @contextmanager
    def during(self) -> Iterator[None]:
        """A context manager whose block is one wait."""
        self.begin()
        try:
            yield
        finally:
            self.end()


@contextmanager
def file_lock(path: Path, waiting: Waiting) -> Iterator[None]:
    """Hold the lock file at ``path``; a killed holder frees it. Raises OSError after the limit of ``waiting``."""
    # Imported here because collecting tests imports this module and locks nothing.
    from filelock import lock_descriptor

    descriptor = open_lock(path, 0o666)
    try:
        deadline = time.monotonic() + waiting.limit_seconds
        with waiting.during():
            while not lock_descriptor(descriptor, blocking=False):
                if time.monotonic() >= deadline:
                    raise TimeoutError(errno.ETIMEDOUT, f"database is locked: another process holds {path}")
                time.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)
