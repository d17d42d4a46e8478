"""How long a history is waited for, and a lock file."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from helpers.common.files import lock_within, open_lock

# How long a call waits for other writers before it is an error. A transaction takes milliseconds; whoever holds a
# history for longer may never let go.
WAIT_SECONDS = 8.0


@contextmanager
def file_lock(path: Path, wait_seconds: float) -> Iterator[None]:
    """Hold the lock file at ``path``; a killed holder frees it. Raises TimeoutError and other OSErrors."""
    descriptor = open_lock(path)
    try:
        lock_within(wait_seconds, descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
