"""How each kind of step of ``perfgate prove-gpu`` is run, and whether its result is right."""

from __future__ import annotations

from dataclasses import replace

from helpers.commands.proof.bench import ProofBench, neighbour
from helpers.commands.proof.few_steps import look_at, spec_of
from helpers.commands.proof.plan import ProofStep, StepKind
from helpers.commands.proof.records import StepRecord, not_run
from helpers.history.results import CONTENDED
from helpers.judging.case.verdict import Status
from helpers.judging.rules.rates import rate_unit
from helpers.judging.statistics import number
from helpers.launch.failure import GPU_MEMORY
from helpers.report.explanation import headline
from helpers.report.row import CaseRow
from helpers.trainers.contract.step_profile import Phase

MEASURED = "MEASURED"
# A step of these kinds is right with one of these statuses: a repeat of the good build must not raise an alarm.
_WANTED = {
    StepKind.REPEAT: (Status.PASS, Status.INCONCLUSIVE),
    StepKind.SLOWED: (Status.REGRESSION,),
}
_NOT_SETTLED = (Status.INFRA_ERROR, Status.INVALID, Status.NOT_RUN)
# The forward and backward passes are at least this share of a profiled step.
_LEAST_PASSES = 0.5


def run_step(bench: ProofBench, step: ProofStep) -> StepRecord:
    """Run a step. Raises SuiteError if the step could not begin; KeyboardInterrupt passes through."""
    if reason := bench.why_not(step):
        return not_run(step, reason)
    if step.kind is StepKind.PROBE:
        return _probed(bench, step)
    if step.kind is StepKind.TRAINS:
        return _trained(bench, step)
    if step.kind is StepKind.EXPLAIN:
        return _explained(bench, step)
    return _measured(bench, step)


def _probed(bench: ProofBench, step: ProofStep) -> StepRecord:
    answer = bench.ask_probe(step)
    texts = filter(None, [answer.not_run, *answer.faults, answer.message])
    if answer.not_run and not answer.faults:
        return not_run(step, "; ".join(texts))
    return StepRecord(step.key, MEASURED, not answer.faults, not answer.faults, "; ".join(texts))


def _trained(bench: ProofBench, step: ProofStep) -> StepRecord:
    """Right if the run is complete and its logs show nothing wrong, whatever else disturbed the machine."""
    row = bench.measure(step)
    folders = tuple(map(bench.within, row.run_folders))
    if row.status == Status.INFRA_ERROR.value or not folders:
        return StepRecord(step.key, row.status, False, False, row.reason)
    found = look_at(spec_of(bench.folder / folders[-1]), compare_ranks=step.case.cards > 1)
    message = "; ".join([*found.faults, found.message])
    return StepRecord(step.key, MEASURED, not found.faults, not found.faults, message, run_folders=folders)


def _explained(bench: ProofBench, step: ProofStep) -> StepRecord:
    """Right if the profiles give most of a step to the forward and backward passes, whose operators they know."""
    found = bench.explain(step)
    phases = found.explanation.phases if found.explanation else ()
    seconds = {each.part.phase: min(each.reference.seconds, each.candidate.seconds) for each in phases}
    passes = [seconds.get(phase, 0.0) for phase in (Phase.FORWARD, Phase.BACKWARD)]
    right = all(passes) and sum(passes) > _LEAST_PASSES * sum(seconds.values())
    message = f"{headline(found)} ({found.profiler or 'no profiler'})"
    return StepRecord(step.key, MEASURED, right, right, message, run_folders=bench.profiled_runs(step))


def _measured(bench: ProofBench, step: ProofStep) -> StepRecord:
    if step.kind is StepKind.NEIGHBOUR:
        with neighbour(bench.machine.cards_of(bench.device)[0], bench.interpreter(step)):
            row = bench.measure(step)
    else:
        row = bench.measure(step)
    right = _is_right(step, row)
    settled = _is_settled(row)
    if step.kind is StepKind.NEIGHBOUR:
        settled = right
    elif step.kind in _WANTED and row.status == Status.NO_BASELINE.value:
        # The step that records the case has not run yet.
        settled = False
    record = StepRecord(step.key, row.status, right, settled, row.reason, _figure(row))
    return replace(record, run_folders=tuple(map(bench.within, row.run_folders)))


def _is_right(step: ProofStep, row: CaseRow) -> bool:
    status = Status(row.status)
    if step.kind is StepKind.NEIGHBOUR:
        return status is Status.INVALID and CONTENDED in row.reason
    if step.kind is StepKind.TOO_LARGE:
        return _is_out_of_memory(row)
    if step.kind in _WANTED:
        return status in _WANTED[step.kind]
    return row.samples_per_s is not None and _is_settled(row)


def _is_out_of_memory(row: CaseRow) -> bool:
    return row.reason.startswith(GPU_MEMORY.what)


def _is_settled(row: CaseRow) -> bool:
    """Whether the next call need not repeat the step. It repeats one that ended by an infrastructure failure or a
    disturbance, except for a batch that does not fit."""
    return Status(row.status) not in _NOT_SETTLED or _is_out_of_memory(row)


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
