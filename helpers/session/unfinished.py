"""What a session that ended early has of a case without a verdict."""

from __future__ import annotations

import math
import statistics

from helpers.common.words import counted
from helpers.history.results import interleaved_pairs
from helpers.history.run_folders import ResultStore
from helpers.trainers.contract.errors import SuiteError


def unfinished(store: ResultStore, case_id: str) -> str:
    """One sentence on the runs that are kept; empty if no run of the case ended."""
    try:
        runs = store.results(case_id)
    except SuiteError as error:
        return f"No verdict, and its runs cannot be read: {error}"
    if not runs:
        return ""
    kept = [counted(len(runs), "run")]
    if pairs := interleaved_pairs(runs):
        change = math.expm1(statistics.median((new.log_rate or 0.0) - (good.log_rate or 0.0) for good, new in pairs))
        kept.append(f"{counted(len(pairs), 'pair')} beside the reference build among them, {change:+.1%} in the median")
    return f"No verdict yet: ended early after {', '.join(kept)}; --resume={store.session} goes on with them."
