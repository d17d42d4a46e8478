"""The honest figure of a run: images of all cards / the wall time they took, as far as its log tells that time.

- Running means (PaddleClas): each epoch's last record gives its images and seconds since step 5, so their sum over
  epochs is the figure. The first 4 steps of an epoch are in no record; warm-up after them is in the figure.
- Records of equally many steps (rates or seconds): the harmonic mean of those after the publisher's warm-up.
- TimeHistory: images / seconds of the records after warm-up.
- Where a log prints epochs and no records: the harmonic mean of the epochs after the first.
- One line for a whole run tells no time, so there is no figure.

Time stamps, where the lines have them, tell the same stretch by the clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from helpers.judging.rules import RuleError
from helpers.logs.figures.order import sum_of
from helpers.logs.figures.rules import mxnet_epochs, warm_up_records
from helpers.logs.figures.series import images_per_step, stretches
from helpers.logs.figures.used import Used, told
from helpers.logs.imported import HONEST, RuleFigure
from helpers.logs.record import Field, LogRun, Stamp

_HOW = "images of all cards / seconds that the log tells"


def honest(run: LogRun) -> RuleFigure:
    try:
        used = _computed(run)
        if not (math.isfinite(used.samples_per_s) and used.samples_per_s > 0):
            raise RuleError(f"rule {HONEST}", got=used.samples_per_s, expected="a finite rate above 0")
    except RuleError as error:
        return RuleFigure(HONEST, None, how=_HOW, reason=str(error))
    return RuleFigure(HONEST, used.samples_per_s, used.records, used.left_out, _HOW)


def _computed(run: LogRun) -> Used:
    if not run.records:
        return _of_epochs(run)
    if run.format.is_summary:
        raise RuleError(
            f"a log of {run.format.name}",
            got="one figure for the whole run",
            expected="records of steps, or seconds",
        )
    if run.format.running_mean is not None and Field.STEP in run.columns:
        return _of_running_means(run, run.format.running_mean)
    skip = warm_up_records(run)
    left = run.records - skip
    if not left:
        raise RuleError(f"rule {HONEST}", got=f"{run.records} records, all of warm-up", expected="1 or more after it")
    return Used(_rate(run, skip, run.records), left, told(skip, "of warm-up"))


def _of_running_means(run: LogRun, first_timed: int) -> Used:
    steps, cost, records, epochs = [], [], 0, 0
    for each in stretches(run):
        timed = each.steps > 0
        steps.append(sum_of(each.steps))
        cost.append(sum_of(each.cost))
        records += int(timed.sum())
        epochs += int(each.begins.sum())
    if not math.fsum(steps):
        got = f"no record after step {first_timed - 1} of an epoch"
        raise RuleError(f"rule {HONEST}", got=got, expected="1 or more")
    of_epochs = f"{epochs} epochs" if epochs > 1 else "the epoch"
    left_out = (
        *told(run.records - records, f"up to step {first_timed - 1} of an epoch, which are timed otherwise"),
        f"the first {first_timed - 1} steps of {of_epochs}, and the steps after the last record",
    )
    return Used(_over(math.fsum(steps), math.fsum(cost)), records, left_out)


def _of_epochs(run: LogRun) -> Used:
    epochs = mxnet_epochs(run)[1:]
    if not epochs:
        raise RuleError(f"rule {HONEST}", got="no records", expected="records of steps, or two epochs with a figure")
    cost = math.fsum(1 / each.samples_per_s for each in epochs)
    return Used(len(epochs) / cost, len(epochs), ("1 epoch of warm-up",))


def _rate(run: LogRun, start: int, stop: int) -> float:
    """Images/s of all cards of the records from ``start`` up to ``stop``."""
    parts = [(sum_of(each.steps), sum_of(each.cost)) for each in stretches(run, start, stop)]
    steps, cost = (math.fsum(each) for each in zip(*parts, strict=True))
    return _over(steps, cost)


def _over(steps: float, cost: float) -> float:
    """Running means that contradict each other may tell no time, or less."""
    if not cost > 0:
        raise RuleError(f"rule {HONEST}", got=f"{cost} seconds", expected="more than 0")
    return steps / cost


@dataclass(frozen=True)
class ByStamps:
    """One stretch by its lines' time stamps and by its records: the records after ``first`` up to ``last`` (from 0).
    ``resolution`` is the share of the seconds that a stamp's last digit is."""

    first: int
    last: int
    seconds: float
    samples_per_s: float
    records_samples_per_s: float
    resolution: float

    @property
    def difference(self) -> float:
        return self.samples_per_s / self.records_samples_per_s - 1


def by_stamps(run: LogRun) -> ByStamps | None:
    """The longest stretch after warm-up, within one epoch, whose ends have a stamp and whose steps are known."""
    ends = _ends(run)
    if ends is None:
        return None
    first, last = ends
    wanted = Field.SPAN_END if Field.SPAN_END in run.columns else Field.STEP
    steps = run.column(wanted)[last.index] - run.column(wanted)[first.index]
    seconds = last.seconds - first.seconds
    if not (steps > 0 and seconds > 0):
        return None
    try:
        by_records = _rate(run, first.index + 1, last.index + 1)
        by_clock = steps * images_per_step(run) / seconds
    except RuleError:
        return None
    whole = all(each.seconds == int(each.seconds) for each in run.stamps)
    resolution = (1.0 if whole else 0.001) / seconds
    return ByStamps(first.index, last.index, seconds, by_clock, by_records, resolution)


def _ends(run: LogRun) -> tuple[Stamp, Stamp] | None:
    if run.format.is_summary or not ({Field.STEP, Field.SPAN_END} & run.columns.keys()):
        return None
    skip = min(warm_up_records(run), run.records)
    after = [each for each in run.stamps if each.index >= skip]
    if len(after) < 2:
        return None
    first = after[0]
    if Field.EPOCH not in run.columns:
        return first, after[-1]
    epochs = run.column(Field.EPOCH)
    # From the end, since each look costs.
    wanted = epochs[first.index]
    same = next((each for each in reversed(after[1:]) if epochs[each.index] == wanted), None)
    return None if same is None else (first, same)
