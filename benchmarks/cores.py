"""Where the benchmarks run."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

Job = TypeVar("Job")
Answer = TypeVar("Answer")


def last_core() -> int:
    """The kernel's own work prefers the first core."""
    return max(os.sched_getaffinity(0))


def spread(task: Callable[[Job], Answer], jobs: Sequence[Job], processes: int) -> Iterator[Answer]:
    """The answers of ``task`` to all jobs, in their order, from so many processes."""
    if processes == 1 or len(jobs) < 2:
        yield from map(task, jobs)
        return
    # numpy's own threads would only get into each other's way.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Not forked: a library's threads do not survive it.
    with multiprocessing.get_context("spawn").Pool(min(processes, len(jobs))) as pool:
        yield from pool.imap(task, jobs)
