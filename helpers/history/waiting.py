"""How long a history is waited for, and a lock file."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from helpers.common.files import open_lock

# How long a call waits for other writers before it is an error. A transaction takes milliseconds; whoever holds a
# history for longer may never let go.
WAIT_SECONDS = 8.0
_POLL_SECONDS = 0.1


@contextmanager
def file_lock(path: Path, wait_seconds: float) -> Iterator[None]:
    """Hold the lock file at ``path``; a killed holder frees it. Raises TimeoutError and other OSErrors."""
    # Imported here because collecting tests imports this module and locks nothing.
    from filelock import lock_descriptor

    descriptor = open_lock(path)
    try:
        deadline = time.monotonic() + wait_seconds
        while not lock_descriptor(descriptor, blocking=False):
            if time.monotonic() >= deadline:
                raise TimeoutError(errno.ETIMEDOUT, f"database is locked: {path}")
            time.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)
