"""Where the benchmarks run."""

from __future__ import annotations

import os


def last_core() -> int:
    """The kernel's own work prefers the first core."""
    return max(os.sched_getaffinity(0))
