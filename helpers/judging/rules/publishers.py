"""The publishers' measuring rules, each one function of the records that a publisher's script prints of a run.

docs/published.md, "What throughput means in each source". A log of such a script holds these records
(helpers/logs). Of our step logs ``printed`` makes them: PaddleClas, FleetX and DLPerf count steps or records of them;
each of NVIDIA's scripts, and DLPerf's for TensorFlow 2, prints the rates of its first process times the number of
processes. All count from the first step, whatever a log calls warm-up.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from helpers.trainers.contract.errors import SuiteError
from helpers.trainers.contract.steplog import Step, StepLog

_PADDLECLAS_PRINT_INTERVAL = 10
_PADDLECLAS_SKIPPED_RECORDS = 10
# The records of 310 steps after the skipped ones. A trimmed mean of fewer would be the mean of a handful.
PADDLECLAS_TRIMMED_RECORDS = 21
# PaddleClas restarts its running mean at step 5 of an epoch, so a record at step s covers s - 4 steps.
_PADDLECLAS_FIRST_TIMED_STEP = 5
_SKIPPED_STEPS = 20
_COUNTED_STEPS = 100
_LAST_STEP = _SKIPPED_STEPS + _COUNTED_STEPS
# FleetX's step 120, counted from 0.
_FLEETX_LAST_STEP = _LAST_STEP + 1
# TensorFlow 1: a record every 10 steps from step 200 (counted from 0) to 490, of that step alone.
_NGC_TF_WARM_UP_STEPS, _NGC_TF_STEPS, _NGC_TF_INTERVAL = 200, 500, 10
_NGC_TF_SKIPPED_RECORDS = 5
# PyTorch: of 100 iterations 99 are printed; the summary is the mean of all (its logs give the 100th by it: 812.0 after
# 99 of 802.97 make 803.06).
_NGC_PYTORCH_ITERATIONS, _NGC_PYTORCH_PRINTED = 100, 99
# MXNet: 3 epochs, of which the first is warm-up; an epoch's rate leaves its first tenth out, at most 100 iterations.
_MXNET_EPOCHS, _MXNET_EPOCH_STEPS, _MXNET_EPOCH_SKIPPED = 3, 500, 50
_MXNET_SIGNIFICANT = 5
# TensorFlow 2's TimeHistory: a record every 100 steps; those of iterations 100 to 600.
_TF2_SKIPPED_STEPS, _TF2_LAST_STEP, _TF2_INTERVAL = 100, 600, 100
_DECIMALS = 2


class RuleError(SuiteError):
    """The rule cannot be computed from these records; never replaced by another rule's figure."""


@dataclass(frozen=True)
class RuleValue:
    """The figure that a rule gives for a run."""

    # Of all cards.
    samples_per_s: float
    # How many records (or steps, epochs, printed lines) were used, and which were left out and why.
    used: int
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class Records:
    """What a script prints of a run. All rates are samples/s of all cards."""

    cards: int
    rates: Sequence[float] = ()
    # The number of each record's step; of a record of several steps, the last of them. Empty if they are not printed.
    steps: Sequence[float] = ()
    # The step before the first one of each record (TimeHistory).
    starts: Sequence[float] = ()
    # How many steps each record timed, and their seconds for one sample of a step, or for ``cost_samples``.
    covered: Sequence[float] = ()
    cost: Sequence[float] = ()
    cost_samples: float = 1.0
    # How many steps come before the first record.
    before: float = 0.0
    # When a record was printed, by its index, in seconds.
    stamps: Mapping[int, float] = field(default_factory=dict)
    # Of all cards.
    samples_per_step: int = 0
    # The figures that the script prints itself, by name, each with its place.
    printed: Mapping[str, Sequence[tuple[float, str]]] = field(default_factory=dict)
    # The figures of the epochs, in order.
    epochs: Sequence[float] = ()
    # How many records the first epoch has.
    first_epoch_records: int = 0
    # Whether figures are rounded as the publisher's scripts round them.
    rounds: bool = False


Logs = Sequence[StepLog]
# Takes the records, the rule's name (for errors) and how many records to leave out at the start. Raises RuleError.
OfRecords = Callable[[Records, str, int], RuleValue]


@dataclass(frozen=True)
class Rule:
    """How a publisher, or the suite, computes samples/s of a run."""

    name: str
    # Where the rule is stated, or how it computes.
    source: str
    # A run's samples/s from the step logs of all its ranks. Raises RuleError.
    of_steps: Callable[[Logs], RuleValue]
    # The case's figure is the median of at least so many runs.
    runs: int = 1
    # How many first steps of a run, with warm-up, the figure needs; 0 if only the window counts.
    steps: int = 0
    # Whether the waits for data count in its seconds.
    counts_waits: bool = True
    # The same from the records that the publisher's script prints; None for a rule of the suite.
    of_records: OfRecords | None = None
    # How many records the publisher leaves out at the start.
    warm_up: Callable[[Records], int] = lambda records: 0
    # Whether ``NAME:skip=N`` may state another number, and whether the figure's name always contains that number,
    # because the publisher does not state it ("fitted" in docs/published.md).
    takes_skip: bool = False
    names_skip: bool = False
    # Whether it is the usual rule of every log in which its figure is printed.
    goes_first: bool = False


def cards_of(logs: Logs) -> int:
    """The cards of the job whose ranks these logs are."""
    return sum(log.header.cards_per_process for log in logs)


def if_any(count: int, what: str) -> tuple[str, ...]:
    """Such as ``("10 of warm-up",)``; empty for 0."""
    return (f"{count} {what}",) if count else ()


def leading(column: Sequence[float], below: float) -> int:
    """How many values come before the first one that is at least ``below``; all of them if none is."""
    return next((at for at, value in enumerate(column) if value >= below), len(column))


# ---- figures of records


def _mean(records: Records, rule: str, skip: int) -> RuleValue:
    left = _left_after(records, rule, skip, 1)
    return RuleValue(statistics.fmean(records.rates[skip:]), left, if_any(skip, "of warm-up"))


def _trimmed(records: Records, rule: str, skip: int) -> RuleValue:
    left = _left_after(records, rule, skip, PADDLECLAS_TRIMMED_RECORDS)
    ends = max(int(0.05 * left), 5)
    mean = statistics.fmean(sorted(records.rates[skip:])[ends : left - ends])
    return RuleValue(mean, left - 2 * ends, (*if_any(skip, "of warm-up"), f"the {ends} lowest and the {ends} highest"))


def _left_after(records: Records, rule: str, skip: int, needed: int) -> int:
    left = max(len(records.rates) - skip, 0)
    if left < needed:
        raise RuleError(f"rule {rule}", got=f"{left} records after the first {skip}", expected=f"{needed} or more")
    return left


def _own(key: str, line: str) -> OfRecords:
    """The last figure that the script itself printed under ``key``."""

    def of_records(records: Records, rule: str, skip: int) -> RuleValue:
        figures = records.printed.get(key, ())
        if not figures:
            raise RuleError(f"rule {rule}", got="no such line in the log", expected=line)
        rate, place = figures[-1]
        if not rate > 0:
            raise RuleError(f"rule {rule}", got=f"0 in {place}", expected="a rate above 0")
        return RuleValue(rate, 1, if_any(len(figures) - 1, "printed before it"))

    return of_records


def _epochs(records: Records, rule: str, skip: int) -> RuleValue:
    after = records.epochs[1:]
    if not after:
        expected = "2 or more, the first of them warm-up"
        raise RuleError(f"rule {rule}", got=f"{len(records.epochs)} epochs with a figure", expected=expected)
    if any(rate <= 0 for rate in after):
        raise RuleError(f"rule {rule}", got="an epoch without a rate", expected="one above 0 for each")
    mean = statistics.harmonic_mean(after)
    left_out = ("1 epoch of warm-up", "the first 50 iterations of each epoch, by the script itself")
    return RuleValue(float(f"{mean:.{_MXNET_SIGNIFICANT}g}") if records.rounds else mean, len(after), left_out)


def _fleetx(records: Records, rule: str, skip: int) -> RuleValue:
    """Samples / seconds of the 100 steps after the first 20. FleetX publishes the median of seven such runs."""
    used: list[int] = []
    done = records.before
    for index, covered in enumerate(records.covered):
        if done >= _SKIPPED_STEPS and math.fsum(records.covered[each] for each in used) < _COUNTED_STEPS:
            used.append(index)
        done += covered
        if done >= _LAST_STEP:
            break
    steps = math.fsum(records.covered[each] for each in used)
    # The steps of a record that was dropped would be missing from the sum.
    gap = records.steps and used and _gap(records.steps[: used[-1] + 1], _usual(records.steps))
    if steps != _COUNTED_STEPS or gap:
        got = gap or (f"records of {steps:.0f} steps" if used else f"{done:.0f} steps")
        expected = f"records of exactly {_COUNTED_STEPS} steps after the first {_SKIPPED_STEPS}"
        raise RuleError(f"rule {rule}", got=got, expected=expected)
    seconds = math.fsum(records.cost[each] for each in used)
    if not seconds > 0:
        raise RuleError(f"rule {rule}", got=f"{seconds} seconds", expected="more than 0")
    return RuleValue(_COUNTED_STEPS * records.cost_samples / seconds, len(used), _window(records, used[0], used[-1]))


def _dlperf_log(records: Records, rule: str, skip: int) -> RuleValue:
    """Mean of the rates of iterations 20 to 119, each rounded as the script does."""
    first, last = _iterations(records, rule, _SKIPPED_STEPS, _LAST_STEP - 1)
    rates = list(records.rates[first : last + 1])
    if records.rounds:
        rates = [round(rate, _DECIMALS) for rate in rates]
    return RuleValue(_rounded_mean(records, rates), len(rates), _window(records, first, last))


def _dlperf_time(records: Records, rule: str, skip: int) -> RuleValue:
    """Samples between two time stamps / seconds between them."""
    if records.starts:
        first, last = _spans(records, rule)
        first, steps = first - 1, _TF2_LAST_STEP - _TF2_SKIPPED_STEPS
    else:
        first, last = _iterations(records, rule, _SKIPPED_STEPS, _LAST_STEP - 1)
        steps = last - first
    if first not in records.stamps or last not in records.stamps:
        raise RuleError(f"rule {rule}", got="records without a time stamp", expected=f"one at {first} and {last}")
    seconds = records.stamps[last] - records.stamps[first]
    if seconds <= 0:
        raise RuleError(f"rule {rule}", got=f"{seconds} seconds", expected="time that goes on")
    rate = steps * records.samples_per_step / seconds
    return RuleValue(
        round(rate, _DECIMALS) if records.rounds else rate, last - first, _window(records, first + 1, last)
    )


def _dlperf_tf2(records: Records, rule: str, skip: int) -> RuleValue:
    """Mean of TimeHistory's examples/second of iterations 100 to 600."""
    first, last = _spans(records, rule)
    rates = records.rates[first : last + 1]
    return RuleValue(_rounded_mean(records, rates), len(rates), _window(records, first, last))


def _rounded_mean(records: Records, rates: Sequence[float]) -> float:
    """Rounded as by numpy, which DLPerf's scripts use."""
    mean = statistics.fmean(rates)
    return round(mean * 100) / 100 if records.rounds else mean


def _window(records: Records, first: int, last: int) -> tuple[str, ...]:
    count = len(records.rates) or len(records.covered)
    return if_any(first, "of warm-up") + if_any(count - last - 1, "after the window")


def _usual(steps: Sequence[float]) -> float:
    between = [after - here for here, after in itertools.pairwise(steps[:256]) if after > here]
    return statistics.median(between) if between else 1.0


def _gap(steps: Sequence[float], distance: float) -> str:
    found = next((here for here, after in itertools.pairwise(steps) if after - here > distance), None)
    return "" if found is None else f"no record after that of step {found:.0f}"


def origin(steps: Sequence[float]) -> int:
    """The number of the first iteration, 0 or 1; a log that leaves out its first iterations counts from 0."""
    return 1 if steps and steps[0] == 1 else 0


def _iterations(records: Records, rule: str, first_step: int, last_step: int) -> tuple[int, int]:
    """The first and last index of the records of these iterations. Raises RuleError unless each has its record."""
    first_number = first_step + origin(records.steps)
    first = leading(records.steps, first_number)
    last = first + last_step - first_step
    wanted = records.steps[first : last + 1]
    expected = f"one of each iteration from {first_step} to {last_step}"
    if not records.steps:
        got = "records without iterations" if records.rates else "no records"
    elif last >= len(records.steps):
        got = f"{len(wanted)} records from iteration {first_step} on"
    elif wanted[0] != first_number:
        got = f"no record of iteration {first_step}"
    else:
        got = _gap(wanted, 1)
    if got:
        raise RuleError(f"rule {rule}", got=got, expected=expected)
    return first, last


def _spans(records: Records, rule: str) -> tuple[int, int]:
    """The first and last index of the records of iterations 100 to 600."""
    if not records.starts:
        raise RuleError(f"rule {rule}", got="records without their first and last step", expected="TimeHistory's")
    spans = enumerate(zip(records.starts, records.steps, strict=True))
    inside = [at for at, (start, end) in spans if start >= _TF2_SKIPPED_STEPS and end <= _TF2_LAST_STEP]
    covered = sum(records.steps[at] - records.starts[at] for at in inside)
    if covered != _TF2_LAST_STEP - _TF2_SKIPPED_STEPS or inside[0] == 0:
        raise RuleError(
            f"rule {rule}",
            got=f"records of {covered:.0f} of these iterations",
            expected=f"all of {_TF2_SKIPPED_STEPS} to {_TF2_LAST_STEP}, after one of those before",
        )
    return inside[0], inside[-1]


# ---- what the scripts would print of the steps in our step logs


def paddleclas_records(logs: Logs) -> Records:
    """The ``ips`` that PaddleClas would print every 10 steps, times cards: batch / running mean of batch seconds.

    Rank 0 prints. The running mean restarts at step 5 of each epoch.
    """
    rates: list[float] = []
    timed: list[float] = []
    before: Step | None = None
    for step in logs[0].steps:
        if step.step == _PADDLECLAS_FIRST_TIMED_STEP:
            timed = []
        # From the end of the step before: PaddleClas reads the clock once per turn of its loop.
        timed.append(step.end - (step.start if before is None else before.end))
        before = step
        if step.step % _PADDLECLAS_PRINT_INTERVAL == 0:
            rates.append(step.samples / statistics.fmean(timed) * len(logs))
    return Records(cards_of(logs), rates)


def _fleetx_records(logs: Logs) -> Records:
    """Each step's seconds without the wait for data, of the rank with most of them.

    FleetX's ``MultiGPUTrainer.benchmark`` (commit 296e0d7, python/fleetx/applications/trainer.py) adds up the host's
    seconds around ``exe.run`` alone: batch to the card, training, loss back to the host, and not the wait for the
    batch. It does so in steps 21 to 120, counted from 0, and divides 100 by the sum. Our steps follow each other
    without a gap, so their sum without the waits is the same.
    """
    counted = slice(_FLEETX_LAST_STEP - _COUNTED_STEPS, _FLEETX_LAST_STEP)
    seconds = [[step.step_seconds - step.reader_seconds for step in log.steps] for log in logs]
    slowest = max(seconds, key=lambda each: math.fsum(each[counted]))
    samples = sum(step.samples for log in logs for step in log.steps[counted]) / _COUNTED_STEPS
    ones = [1.0] * len(slowest)
    return Records(cards_of(logs), covered=ones, cost=slowest, cost_samples=samples, before=-1)


def _dlperf_records(logs: Logs) -> Records:
    by_step = list(zip(*(log.steps for log in logs), strict=False))
    return Records(
        cards_of(logs),
        [sum(step.samples for step in ranks) / ranks[0].step_seconds for ranks in by_step],
        range(len(by_step)),
        stamps={number: ranks[0].end for number, ranks in enumerate(by_step)},
        samples_per_step=sum(step.samples for step in by_step[_SKIPPED_STEPS]),
    )


def _dlperf_tf2_records(logs: Logs) -> Records:
    steps, seconds = logs[0].steps, _turn_seconds(logs[0].steps)
    starts = range(0, _TF2_LAST_STEP, _TF2_INTERVAL)
    spans = [slice(begin, begin + _TF2_INTERVAL) for begin in starts]
    rates = [sum(step.samples for step in steps[span]) * len(logs) / sum(seconds[span]) for span in spans]
    return Records(cards_of(logs), rates, [span.stop for span in spans], starts)


def _ngc_tf_records(logs: Logs) -> Records:
    steps = logs[0].steps[_NGC_TF_WARM_UP_STEPS:_NGC_TF_STEPS]
    rates = [step.samples * len(logs) / step.step_seconds for step in steps]
    whole = ((statistics.fmean(rates), "the last step"),)
    return Records(cards_of(logs), rates[::_NGC_TF_INTERVAL], printed={"average": whole, "train_throughput": whole})


def _ngc_pytorch_records(logs: Logs, computing: bool = False) -> Records:
    """Rates of the turns of the script's loop; ``computing``: without the seconds in which it waits for data, which
    here are those in which the host waits."""
    steps = logs[0].steps[:_NGC_PYTORCH_ITERATIONS]
    seconds = _turn_seconds(steps)
    if computing:
        seconds = [taken - step.reader_seconds for taken, step in zip(seconds, steps, strict=True)]
        if waited := [number for number, left in enumerate(seconds, 1) if left <= 0]:
            got = f"step {waited[0]} as long as its wait for data"
            raise RuleError("rule ngc-pytorch-summary-compute", got=got, expected="time to compute")
    rates = [step.samples * len(logs) / taken for step, taken in zip(steps, seconds, strict=True)]
    name = "summary_compute" if computing else "summary_total"
    return Records(
        cards_of(logs), rates[:_NGC_PYTORCH_PRINTED], printed={name: ((statistics.fmean(rates), "the last step"),)}
    )


def _ngc_mxnet_records(logs: Logs) -> Records:
    steps, rates = logs[0].steps, []
    seconds = _turn_seconds(steps)
    for begin in range(0, _MXNET_EPOCHS * _MXNET_EPOCH_STEPS, _MXNET_EPOCH_STEPS):
        counted = slice(begin + _MXNET_EPOCH_SKIPPED, begin + _MXNET_EPOCH_STEPS)
        rates.append(sum(step.samples for step in steps[counted]) * len(logs) / sum(seconds[counted]))
    return Records(cards_of(logs), epochs=rates)


def _turn_seconds(steps: Sequence[Step]) -> list[float]:
    """The seconds of each turn of a script's loop. A turn begins at the end of the step before, because the script
    reads the clock once a turn."""
    return [steps[0].step_seconds, *(step.end - before.end for before, step in itertools.pairwise(steps))]


# ---- the table of rules


def _rule(
    name: str, source: str, of_records: OfRecords, printed: Callable[[Logs], Records], steps: int, **more: object
) -> Rule:
    def of_steps(logs: Logs) -> RuleValue:
        if min(len(log.steps) for log in logs) < steps:
            raise RuleError(
                f"rule {name}",
                got=f"{min(len(log.steps) for log in logs)} steps",
                expected=f"{steps} or more",
                remedy="Lengthen the window of the protocol in perf.yaml",
            )
        records = printed(logs)
        return of_records(records, name, rule.warm_up(records))

    rule = Rule(name, source, of_steps, steps=steps, of_records=of_records, **more)  # type: ignore[arg-type]
    return rule


def _steps_of(records: int) -> int:
    """How many steps of one epoch PaddleClas needs to print so many records after the skipped ones."""
    return _PADDLECLAS_PRINT_INTERVAL * (_PADDLECLAS_SKIPPED_RECORDS + records)


def _warm_up_steps(records: Records) -> int:
    """How many records the first 20 steps have. DLPerf and FleetX count steps from 0, even if a log starts at 1."""
    return leading(records.steps, _SKIPPED_STEPS + origin(records.steps)) if records.steps else 0


def _warm_up_spans(records: Records) -> int:
    return leading(records.starts, _TF2_SKIPPED_STEPS)


# The publisher's skips of PyTorch's records were fitted and are not documented.
_PYTORCH = partial(_rule, steps=_NGC_PYTORCH_ITERATIONS, warm_up=lambda records: 9 if records.cards == 1 else 8)
_TENSORFLOW = partial(
    _rule, printed=_ngc_tf_records, steps=_NGC_TF_STEPS, warm_up=lambda records: _NGC_TF_SKIPPED_RECORDS
)
_PADDLECLAS = partial(
    _rule,
    source="Perf ResNet50V1.5 page: average after warm-up",
    printed=paddleclas_records,
    warm_up=lambda records: _PADDLECLAS_SKIPPED_RECORDS,
    takes_skip=True,
)

PUBLISHERS_RULES = (
    _PADDLECLAS("paddleclas-trimmed", of_records=_trimmed, steps=_steps_of(PADDLECLAS_TRIMMED_RECORDS)),
    _PADDLECLAS("paddleclas-mean", of_records=_mean, steps=_steps_of(1)),
    _rule(
        "fleetx-20-100-median7",
        "FleetX VGG16: exe.run of steps 21-120 counted from 0, without waiting for data; median of 7 runs",
        _fleetx,
        _fleetx_records,
        _FLEETX_LAST_STEP,
        runs=7,
        counts_waits=False,
        warm_up=_warm_up_steps,
    ),
    _rule(
        "dlperf-log",
        "DLPerf: mean of logged rates, iterations 20-119, median of 5",
        _dlperf_log,
        _dlperf_records,
        _LAST_STEP,
        runs=5,
        warm_up=_warm_up_steps,
    ),
    _rule(
        "dlperf-time",
        "DLPerf: global batch x 99 / (t[100] - t[1]), median of 5",
        _dlperf_time,
        _dlperf_records,
        _LAST_STEP,
        runs=5,
        warm_up=lambda records: _warm_up_spans(records) if records.starts else _warm_up_steps(records),
    ),
    _rule(
        "dlperf-tf2",
        "DLPerf: mean of TimeHistory's rates of iterations 100-600, median of 5",
        _dlperf_tf2,
        _dlperf_tf2_records,
        _TF2_LAST_STEP,
        runs=5,
        warm_up=_warm_up_spans,
    ),
    _TENSORFLOW(
        "ngc-tf-mean",
        "Perf: mean of total_ips at steps 250, 260 ... 490",
        _mean,
        takes_skip=True,
        names_skip=True,
    ),
    _TENSORFLOW(
        "ngc-tf-average",
        "Perf: 'Average total_ips', steps 200-499",
        _own("average", "a line 'Average total_ips'"),
        goes_first=True,
    ),
    _TENSORFLOW(
        "ngc-tf-summary",
        "Perf: 'train_throughput', steps 200-499",
        _own("train_throughput", "a line 'train_throughput'"),
        goes_first=True,
    ),
    _PYTORCH(
        "ngc-pytorch-mean",
        "Perf: mean of train.total_ips, iterations 10-99 on one card, 9-99 on several",
        _mean,
        _ngc_pytorch_records,
        takes_skip=True,
        names_skip=True,
    ),
    _PYTORCH(
        "ngc-pytorch-summary",
        "Perf: 'Summary: train.total_ips', iterations 1-100",
        _own("summary_total", "a line 'Summary: ... train.total_ips'"),
        _ngc_pytorch_records,
    ),
    _PYTORCH(
        "ngc-pytorch-summary-compute",
        "Perf: 'Summary: train.compute_ips', iterations 1-100 without waiting for data",
        _own("summary_compute", "a line 'Summary: ... train.compute_ips'"),
        partial(_ngc_pytorch_records, computing=True),
        counts_waits=False,
    ),
    _rule(
        "ngc-mxnet-epochs",
        "Perf: harmonic mean of epochs 2 and 3 of 500 iterations, each without its first 50",
        _epochs,
        _ngc_mxnet_records,
        _MXNET_EPOCHS * _MXNET_EPOCH_STEPS,
        warm_up=lambda records: records.first_epoch_records,
    ),
)
# TIPC's script prints a figure that it computed from the records of a log; no published figure was measured by it.
TIPC_SUMMARY = Rule(
    "tipc-summary",
    "the line's own ips, which its script computed from a log's records",
    lambda logs: _own("tipc", "TIPC's summary line")(Records(cards_of(logs)), "tipc-summary", 0),
    of_records=_own("tipc", "TIPC's summary line"),
)
