"""The cores that tests pin their trainers to."""

from __future__ import annotations

import os
import re


def own_cores() -> list[int]:
    """This process's cores; each of pytest-xdist's workers begins with another one, so that trainers of one core that
    run side by side do not share it."""
    cores = sorted(os.sched_getaffinity(0))
    worker = re.fullmatch(r"gw(\d+)", os.environ.get("PYTEST_XDIST_WORKER", ""))
    first = int(worker[1]) % len(cores) if worker else 0
    return cores[first:] + cores[:first]
