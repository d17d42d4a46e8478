"""How each kind of step of ``perfgate prove-gpu`` is run, and whether its result is right."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from helpers.commands.proof.bench import ProofBench, neighbour
from helpers.commands.proof.plan import ProofStep, StepKind
from helpers.commands.proof.records import MEASURED, StepRecord
from helpers.common.files import MOST_NOTE_BYTES, read_text_limited
from helpers.history.results import CONTENDED
from helpers.judging.case.verdict import Status
from helpers.judging.rules.rates import rate_unit
from helpers.judging.statistics import number
from helpers.launch.steplog_reader import read_step_log
from helpers.report.row import CaseRow
from helpers.trainers.contract.errors import ResultError
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.program import counts_of
from helpers.trainers.contract.steplog import WARMUP, WINDOW, StepLog

# A repeat of the reference build must not raise an alarm.
_WANTED = {
    StepKind.REPEAT: (Status.PASS, Status.INCONCLUSIVE),
    StepKind.SLOWED: (Status.REGRESSION,),
}
_WITHOUT_FIGURE = (Status.INFRA_ERROR, Status.INVALID, Status.NOT_RUN)
# The window by the steps' clock (on a GPU CUDA's events) over that by the host's heartbeats, which also has the time
# in which the log is written.
_CLOCK_TOLERANCE = 0.10


def run_step(bench: ProofBench, step: ProofStep) -> StepRecord:
    """Run a step. Raises SuiteError if the step could not begin; KeyboardInterrupt passes through."""
    if reason := bench.why_not(step):
        # With the installed software. It counts as not reached, never as right.
        return StepRecord(step.key, Status.NOT_RUN.value, False, reason)
    if step.kind is StepKind.PROBE:
        faults, message, nothing = bench.ask_probe(step)
        status = Status.NOT_RUN.value if nothing and not faults else MEASURED
        texts = filter(None, [nothing, *faults, message])
        return StepRecord(step.key, status, not faults and not nothing, "; ".join(texts))
    if step.kind is StepKind.NEIGHBOUR:
        with neighbour(bench.machine.cards_of(bench.device)[0], bench.interpreter(step)):
            row = bench.measure(step)
    else:
        row = bench.measure(step)
    folders = tuple(map(bench.within, row.run_folders))
    if step.kind is StepKind.TRAINS and folders and row.status != Status.INFRA_ERROR.value:
        # Right if its logs show nothing wrong, whatever else disturbed the machine.
        faults, message = look_at(bench.folder / folders[-1])
        return StepRecord(step.key, MEASURED, not faults, "; ".join([*faults, message]), run_folders=folders)
    return StepRecord(step.key, row.status, _is_right(step, row), row.reason, _figure(row), folders)


def _is_right(step: ProofStep, row: CaseRow) -> bool:
    status = Status(row.status)
    if step.kind is StepKind.NEIGHBOUR:
        return status is Status.INVALID and CONTENDED in row.reason
    if step.kind in _WANTED:
        return status in _WANTED[step.kind]
    return step.kind is StepKind.MEASURE and row.samples_per_s is not None and status not in _WITHOUT_FIGURE


def _figure(row: CaseRow) -> str:
    """Such as ``2800 images/s (2790 to 2810, n=3), 38% of 312 TFLOP/s bf16, 1% of the time waiting for data``."""
    if row.samples_per_s is None:
        return ""
    ends = "" if row.low is None or row.high is None else f"{number(row.low)} to {number(row.high)}, "
    parts = [f"{number(row.samples_per_s)} {rate_unit(row.case_id)} ({ends}n={row.runs})"]
    if row.utilisation is not None:
        parts.append(f"{row.utilisation.share:.0%} of {row.utilisation.limit}")
    if row.reader_share is not None:
        parts.append(f"{row.reader_share:.0%} of the time waiting for data")
    return ", ".join(parts)


def look_at(run_folder: Path) -> tuple[list[str], str]:
    """What is wrong in the logs of a few steps, and their numbers: the loss must fall, and the two clocks agree; of
    several ranks the weights must be equal, and the program must have all-reduces. Raises SuiteError if a file of the
    run cannot be read."""
    path = run_folder / "spec.json"
    spec = JobSpec.from_json(_text(path), str(path))
    log, *_ = logs = [read_step_log(spec.step_log_path(rank), spec.job_id, rank) for rank in range(spec.ranks)]
    losses = [step.loss for step in log.steps if step.loss is not None]
    if len(losses) < 2:
        raise ResultError(log.path, field="loss", got=f"{len(losses)} losses", expected="2 or more")
    first, last = losses[0], losses[-1]
    ratio = _clock_ratio(log, _records(spec.heartbeat_path(0)))
    faults = [] if last < first else [f"the loss did not fall: {first:.4g} at the first step, {last:.4g} at the last"]
    if not abs(ratio - 1) <= _CLOCK_TOLERANCE:
        faults.append(f"the steps' clock gives {ratio:.3f} of the host's time, expected 1 within {_CLOCK_TOLERANCE:g}")
    message = f"loss {first:.4g} to {last:.4g} in {len(log.steps)} steps; steps' clock over host's {ratio:.3f}"
    if len(logs) > 1:
        # All ranks add the same gradients, so their weights are equal to the bit.
        weights = [record for rank in range(spec.ranks) for record in _records(spec.weights_path(rank))]
        sums = [record.get("absolute_sum") for record in weights]
        if len(sums) != len(logs) or len(set(sums)) > 1 or not isinstance(sums[0], float) or not math.isfinite(sums[0]):
            faults.append(f"the ranks' weights differ: their sums are {', '.join(map(repr, sums))}")
        joined = (counts_of(log.header.facts) or {}).get("all_reduce")
        if joined == 0:
            faults.append("the program has no all-reduce")
        counts = "no program to count all-reduces in" if joined is None else f"{joined} all-reduces in the program"
        message += f"; sum of each rank's weights {', '.join(map(str, sums))}; {counts}"
    return faults, message


def _clock_ratio(log: StepLog, records: list[dict[str, Any]]) -> float:
    """The seconds of the window by its steps, over the host's seconds between the last life sign of the warm-up and
    that of the window, before each of which the host waits for the device. Raises ResultError if a life sign is
    missing."""
    beats = {(each["phase"], each["step"]): each["monotonic_seconds"] for each in records if "phase" in each}
    before, after = (WARMUP, len(log.warmup)), (WINDOW, len(log.steps))
    if before not in beats or after not in beats or beats[after] <= beats[before]:
        raise ResultError(f"life signs of {log.path}", got=f"no time from {before} to {after}", expected="both in turn")
    return math.fsum(step.step_seconds for step in log.window) / float(beats[after] - beats[before])


def _records(path: Path) -> list[dict[str, Any]]:
    """The JSON objects of a file that a rank wrote, one a line."""
    try:
        return [dict(json.loads(line)) for line in _text(path).splitlines()]
    except (ValueError, TypeError) as error:
        raise ResultError(str(path), got=str(error), expected="a JSON object a line, by the rank") from error


def _text(path: Path) -> str:
    try:
        return read_text_limited(path, MOST_NOTE_BYTES)
    except OSError as error:
        raise ResultError(str(path), got=str(error), expected="a file of the run") from error
