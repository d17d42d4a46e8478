"""Whether a run became faster or slower: its first third against its last, beyond what they scatter."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

from helpers.judging.statistics import student_t_95
from helpers.logs.figures.order import sum_of
from helpers.logs.figures.series import TimedRates
from helpers.logs.record import LogRun

# Means of so many equal parts of a run, ten a third: neighbouring records depend on each other, such means hardly do.
_PARTS_A_THIRD = 10
_PARTS = 3 * _PARTS_A_THIRD
# Less is no drift worth a word, however certain.
_LEAST = 0.005


@dataclass(frozen=True)
class Drift:
    """The last third's images/s against the first's, as a fraction, and the 95% bound that it goes beyond."""

    difference: float
    bound: float


def drift_of(run: LogRun, start: int) -> Drift | None:
    """The drift of the records from ``start`` on, None where there is none to be seen. Raises RuleError.

    Every tenth of a third has one mean (its records where it has few), so memory does not grow with the log.
    """
    means = _part_means(run, start)
    third = len(means) // 3
    if third < 3:
        return None
    early, late = means[:third], means[-third:]
    first, last = statistics.fmean(early), statistics.fmean(late)
    error = math.sqrt((statistics.variance(early) + statistics.variance(late)) / third)
    difference, bound = last / first - 1, student_t_95(2 * third - 2) * error / first
    return Drift(difference, bound) if abs(difference) > max(bound, _LEAST) else None


def _part_means(run: LogRun, start: int) -> list[float]:
    records = run.records - start
    parts = min(_PARTS, records)
    means = []
    for part in range(parts):
        first, last = (start + records * each // parts for each in (part, part + 1))
        blocks = list(TimedRates(run).blocks(first, last))
        count = sum(len(block) for block in blocks)
        if count:
            means.append(math.fsum(sum_of(block) for block in blocks) / count)
    return means
