"""The rules that count steps from the start of a run: DLPerf's three and FleetX's (docs/measuring-rules.md).

DLPerf's rules are those of its ``extract_*_logs.py`` and ``extract_*_logs_time.py``. They round as these scripts do,
because DLPerf's tables were made with them.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from helpers.judging.rules_publishers import COUNTED_STEPS, SKIPPED_STEPS, TF2_LAST_STEP, TF2_SKIPPED_STEPS, RuleError
from helpers.logs.figures.series import Rates, RuleValue, if_any, images_per_step, leading, stretches, usual_distance
from helpers.logs.record import LogRun, RecordField

_LAST_STEPS = SKIPPED_STEPS + COUNTED_STEPS
_TF2 = "dlperf-tensorflow2"
_DECIMALS = 2
# Decimals to which the scripts round each record before they take the mean.
_RECORD_DECIMALS = {"dlperf-tensorflow1": 2, "dlperf-paddle": 4}
# The two iterations (from 0) whose time stamps the scripts subtract.
_TIME_STEPS = {"dlperf-paddle": (SKIPPED_STEPS - 1, _LAST_STEPS - 1)}
_TIME_STEPS_USUALLY = (SKIPPED_STEPS, _LAST_STEPS - 1)
# A window of 120 steps has no more records than this, and the first 256 records of a log keep their time stamps.
_MOST_RECORDS = 256


def warm_up_steps(run: LogRun) -> int:
    """How many records the first 20 steps have. DLPerf and FleetX count steps from 0, even if a log starts at 1."""
    if RecordField.STEP not in run.columns or not run.records:
        return 0
    return leading(run, RecordField.STEP, SKIPPED_STEPS + _origin(run))


def warm_up_spans(run: LogRun) -> int:
    return leading(run, RecordField.SPAN_START, TF2_SKIPPED_STEPS)


def dlperf_log(run: LogRun, rule: str, skip: int) -> RuleValue:
    """Mean of the rates of iterations 20 to 119, each rounded as the script does."""
    first, last = _records(run, rule, SKIPPED_STEPS, _LAST_STEPS - 1)
    decimals = _RECORD_DECIMALS.get(run.format.name, _DECIMALS)
    rates = [round(rate, decimals) for rate in Rates(run).values(first, last + 1)]
    return RuleValue(float(np.round(np.mean(rates), _DECIMALS)), len(rates), _left_out(run, first, last))


def dlperf_time(run: LogRun, rule: str, skip: int) -> RuleValue:
    """Images between two time stamps / seconds between them."""
    if run.format.name == _TF2:
        first, last = _spans(run, rule)
        first, steps = first - 1, TF2_LAST_STEP - TF2_SKIPPED_STEPS
    else:
        from_step, to_step = _TIME_STEPS.get(run.format.name, _TIME_STEPS_USUALLY)
        first, last = _records(run, rule, from_step, to_step)
        steps = to_step - from_step
    stamps = {each.index: each for each in run.stamps}
    if first not in stamps or last not in stamps:
        raise RuleError(f"rule {rule}", got="records without a time stamp", expected=f"one at {first} and {last}")
    seconds = stamps[last].seconds - stamps[first].seconds
    if seconds <= 0:
        raise RuleError(f"rule {rule}", got=f"{seconds} seconds", expected="time that goes on")
    return RuleValue(
        round(steps * images_per_step(run) / seconds, _DECIMALS), last - first, _left_out(run, first + 1, last)
    )


def dlperf_tf2(run: LogRun, rule: str, skip: int) -> RuleValue:
    """Mean of TimeHistory's examples/second of iterations 100 to 600."""
    first, last = _spans(run, rule)
    rates = Rates(run).values(first, last + 1)
    return RuleValue(float(np.round(np.mean(rates), _DECIMALS)), len(rates), _left_out(run, first, last))


def fleetx(run: LogRun, rule: str, skip: int) -> RuleValue:
    """Images / seconds of the 100 steps after the first 20. FleetX publishes the median of seven such runs."""
    first = last = None
    done = _steps_before(run)
    steps: list[float] = []
    cost: list[float] = []
    for part in stretches(run, 0, _MOST_RECORDS):
        for index, (covered, seconds) in enumerate(zip(part.steps, part.cost, strict=True), part.first):
            if done >= SKIPPED_STEPS and math.fsum(steps) < COUNTED_STEPS:
                first, last = index if first is None else first, index
                steps.append(float(covered))
                cost.append(float(seconds))
            done += float(covered)
    if first is None or last is None or math.fsum(steps) != COUNTED_STEPS:
        got = f"records of {math.fsum(steps):.0f} steps" if steps else f"{done:.0f} steps"
        expected = f"records of exactly {COUNTED_STEPS} steps after the first {SKIPPED_STEPS}"
        raise RuleError(f"rule {rule}", got=got, expected=expected)
    _check_no_gap(run, rule, last)
    if not math.fsum(cost) > 0:
        raise RuleError(f"rule {rule}", got=f"{math.fsum(cost)} seconds", expected="more than 0")
    return RuleValue(COUNTED_STEPS / math.fsum(cost), last - first + 1, _left_out(run, first, last))


def _steps_before(run: LogRun) -> float:
    """How many steps the log leaves out before its first record."""
    if RecordField.STEP not in run.columns or not run.records:
        return 0.0
    return max(run.columns[RecordField.STEP][0] - usual_distance(run), 0.0)


def _check_no_gap(run: LogRun, rule: str, last: int) -> None:
    """Raises RuleError if a record up to ``last`` was dropped, because its steps would then be missing from the sum."""
    if RecordField.STEP not in run.columns:
        return
    steps = run.columns[RecordField.STEP].values(0, last + 1)
    for here, after in itertools.pairwise(steps):
        if after - here > usual_distance(run):
            raise RuleError(f"rule {rule}", got=f"no record after that of step {here:.0f}", expected="each of them")


def _records(run: LogRun, rule: str, first_step: int, last_step: int) -> tuple[int, int]:
    """The first and last index of the records of these iterations. Raises RuleError unless each iteration has its
    record."""
    if RecordField.STEP not in run.columns or not run.records:
        got = "records without iterations" if run.records else "no records"
        raise RuleError(f"rule {rule}", got=got, expected=f"one of each iteration from {first_step} to {last_step}")
    origin = _origin(run)
    first = leading(run, RecordField.STEP, first_step + origin)
    last = first + last_step - first_step
    if run.records <= last:
        raise RuleError(
            f"rule {rule}",
            got=f"{run.records - min(first, run.records)} records from iteration {first_step} on",
            expected=f"one of each iteration from {first_step} to {last_step}",
        )
    if run.columns[RecordField.STEP][first] != first_step + origin:
        raise RuleError(f"rule {rule}", got=f"no record of iteration {first_step}", expected="one of each iteration")
    steps = run.columns[RecordField.STEP].values(first, last + 1)
    gaps = [here for here, after in itertools.pairwise(steps) if after - here != 1]
    if gaps:
        got = f"no record after that of iteration {gaps[0]:.0f}"
        raise RuleError(f"rule {rule}", got=got, expected="one of each iteration")
    return first, last


def _origin(run: LogRun) -> int:
    """The number of the first iteration, 0 or 1; a log that leaves out its first iterations counts from 0."""
    return 1 if run.columns[RecordField.STEP][0] == 1 else 0


def _spans(run: LogRun, rule: str) -> tuple[int, int]:
    """The first and last index of the records of iterations 100 to 600."""
    needed = (RecordField.SPAN_START, RecordField.SPAN_END)
    if not all(each in run.columns for each in needed):
        raise RuleError(f"rule {rule}", got="records without their first and last step", expected="TimeHistory's")
    read = min(run.records, _MOST_RECORDS)
    starts, ends = (run.columns[each].values(0, read) for each in needed)
    inside = [
        index
        for index, (start, end) in enumerate(zip(starts, ends, strict=True))
        if start >= TF2_SKIPPED_STEPS and end <= TF2_LAST_STEP
    ]
    covered = sum(ends[index] - starts[index] for index in inside)
    if covered != TF2_LAST_STEP - TF2_SKIPPED_STEPS or inside[0] == 0:
        raise RuleError(
            f"rule {rule}",
            got=f"records of {covered:.0f} of these iterations",
            expected=f"all of {TF2_SKIPPED_STEPS} to {TF2_LAST_STEP}, after one of those before",
        )
    return inside[0], inside[-1]


def _left_out(run: LogRun, first: int, last: int) -> tuple[str, ...]:
    return if_any(first, "of warm-up") + if_any(run.records - last - 1, "after the window")
