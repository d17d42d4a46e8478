"""The cores that tests pin their trainers to."""

from __future__ import annotations

import os
import re

from helpers.plan.recipes.common import read_processor
from helpers.trainers.contract.case import Case, Precision

# What Paddle says on a CPU that cannot compute in bfloat16.
NO_BFLOAT16 = "oneDNN's bfloat16 needs a CPU with AVX-512"


def lacks_bfloat16(case_id: str) -> bool:
    """Whether Paddle must refuse the case on this CPU, because it computes in bfloat16."""
    precision = Case.parse(case_id).precision
    wants = precision.is_amp or precision is Precision.BF16
    return wants and "avx512f" not in read_processor().instructions


def own_cores() -> list[int]:
    """This process's cores; each of pytest-xdist's workers begins with another one, so that trainers of one core that
    run side by side do not share it."""
    cores = sorted(os.sched_getaffinity(0))
    worker = re.fullmatch(r"gw(\d+)", os.environ.get("PYTEST_XDIST_WORKER", ""))
    first = int(worker[1]) % len(cores) if worker else 0
    return cores[first:] + cores[:first]
