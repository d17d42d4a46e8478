"""Runs the steps of ``perfgate prove-gpu``: how each kind is run, whether its result is right, and the file that keeps
the results."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from helpers.commands.proof import ProofStep, StepKind
from helpers.commands.proof.bench import ProofBench, neighbour
from helpers.commands.proof.few_steps import look_at, spec_of
from helpers.commands.proof.probing import ProbeAnswer
from helpers.common.files import read_text_limited, write_whole
from helpers.common.records import WrongRecord, parse, read_as
from helpers.history.results import CONTENDED
from helpers.judging.case.verdict import Status
from helpers.launch.failure import GPU_MEMORY
from helpers.report.explanation import headline
from helpers.report.row import CaseRow
from helpers.trainers.contract.errors import ResultError
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.step_profile import Phase

# 1: first format.
STATE_VERSION = 1
STATE_FILE = "state.json"
_MOST_STATE_BYTES = 16 * 1024**2
# The key in ``extra`` for the case's share of the card's peak, as text.
UTILISATION = "utilisation"


@dataclass(frozen=True)
class StepRecord:
    """How a step ended."""

    key: str
    # A status of the suite, or the step's own word.
    status: str
    # Whether the result is right; False also for a step that was not run.
    right: bool
    # Whether a second call need not repeat it, because the result would be the same.
    settled: bool
    # For people.
    message: str
    seconds: float = 0.0
    # The fields from here to ``run_folders`` are only for a measured case, the last also for a profiled one.
    case_id: str = ""
    target: str = ""
    samples_per_s: float | None = None
    low: float | None = None
    high: float | None = None
    run_samples_per_s: tuple[float, ...] = ()
    reader_share: float | None = None
    run_folders: tuple[str, ...] = ()
    # Values that only this kind of step has.
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ran(self) -> bool:
        return self.status != Status.NOT_RUN.value

    @property
    def wrong(self) -> bool:
        return self.ran and not self.right


@dataclass(frozen=True)
class _StateFile:
    """The finished steps as a file."""

    state_version: int
    about: Mapping[str, str]
    records: tuple[StepRecord, ...]


@dataclass(frozen=True)
class ProofState:
    """The finished steps of the proof on one machine. The file is rewritten after every step, and a second call
    continues from it."""

    # Facts that must be the same for a second call to continue.
    about: Mapping[str, str]
    # By the step's key.
    records: Mapping[str, StepRecord] = field(default_factory=dict)

    def with_record(self, record: StepRecord) -> ProofState:
        return replace(self, records={**self.records, record.key: record})

    def settled(self, key: str) -> bool:
        return key in self.records and self.records[key].settled

    def write(self, folder: Path) -> None:
        state = _StateFile(STATE_VERSION, self.about, tuple(self.records.values()))
        write_whole(folder / STATE_FILE, f"{json.dumps(asdict(state), indent=1, allow_nan=False)}\n".encode())


def read_state(folder: Path, about: Mapping[str, str]) -> ProofState:
    """The state in ``folder``, empty if there is none. Raises ResultError if it is another machine's or damaged."""
    path = folder / STATE_FILE
    remedy = "Name another folder with --out, or move this one away"
    if not path.exists():
        return ProofState(about)
    try:
        found = read_as(parse(read_text_limited(path, _MOST_STATE_BYTES)), _StateFile)
    except (OSError, ValueError, RecursionError) as error:
        raise ResultError(str(path), got=str(error), expected="a state of prove-gpu", remedy=remedy) from error
    except WrongRecord as wrong:
        raise ResultError(
            str(path), field=wrong.field, got=wrong.got, expected=wrong.expected, remedy=remedy
        ) from wrong
    for name, got, expected in (("state_version", found.state_version, STATE_VERSION), ("about", found.about, about)):
        if got != expected:
            raise ResultError(str(path), field=name, got=got, expected=str(expected), remedy=remedy)
    return ProofState(about, {record.key: record for record in found.records})


MEASURED = "MEASURED"
REFUSED = "REFUSED"
ERROR = "ERROR"
# A repeat of the good build must not raise an alarm.
_NO_ALARM = (Status.PASS, Status.INCONCLUSIVE)
_NOT_SETTLED = (Status.INFRA_ERROR, Status.INVALID, Status.NOT_RUN)
# The forward and backward passes are at least this share of a profiled step.
_LEAST_PASSES = 0.5


@dataclass(frozen=True)
class StepRunner:
    """Runs single steps on a bench, and decides whether their results are right."""

    bench: ProofBench

    def run(self, step: ProofStep) -> StepRecord:
        """Run a step. Raises SuiteError if the step could not begin; KeyboardInterrupt passes through."""
        if step.kind is StepKind.REFUSED:
            return self._refused(step)
        reason = self.bench.why_not(step) if step.case else None
        return not_run(step, reason) if reason else self._kinds[step.kind](step)

    @property
    def _kinds(self) -> Mapping[StepKind, Callable[[ProofStep], StepRecord]]:
        return {
            StepKind.PROBE: lambda step: _answered(step, self.bench.ask_probe(step)),
            StepKind.PROGRAMS: lambda step: _answered(step, self.bench.build_programs(step)),
            StepKind.TRAINS: self._trains,
            StepKind.MEASURE: self._measure,
            StepKind.REPEAT: lambda step: self._judged(step, _NO_ALARM),
            StepKind.SLOWED: lambda step: self._judged(step, (Status.REGRESSION,)),
            StepKind.TOO_LARGE: self._too_large,
            StepKind.NEIGHBOUR: self._neighbour,
            StepKind.EXPLAIN: self._explain,
        }

    def _refused(self, step: ProofStep) -> StepRecord:
        """Right if the suite or the trainer says that the card cannot compute the case."""
        assert step.case is not None
        message = self.bench.why_not(step) or self.bench.measure(step).reason
        right = "compute capability" in message
        return StepRecord(step.key, REFUSED, right, right, message, case_id=step.case.id)

    def _trains(self, step: ProofStep) -> StepRecord:
        """Right if the run is complete and its logs show nothing wrong, whatever else disturbed the machine."""
        assert step.case is not None
        row = self.bench.measure(step)
        if row.status == Status.NOT_RUN.value:
            return not_run(step, row.reason)
        folders = tuple(self.bench.within(each) for each in row.run_folders)
        if row.status == Status.INFRA_ERROR.value or not folders:
            return StepRecord(step.key, row.status, False, False, row.reason, case_id=step.case.id)
        found = look_at(spec_of(self.bench.folder / folders[-1]), compare_ranks=step.case.cards > 1)
        message = "; ".join([*found.faults, found.message])
        right = not found.faults
        return StepRecord(
            step.key, MEASURED, right, right, message, case_id=step.case.id, target=row.target, run_folders=folders
        )

    def _measure(self, step: ProofStep) -> StepRecord:
        row = self.bench.measure(step)
        if row.status == Status.NOT_RUN.value:
            return not_run(step, row.reason)
        right = row.samples_per_s is not None or (step.may_not_fit and _out_of_memory(row))
        return self._record(step, row, right and _settled(row))

    def _judged(self, step: ProofStep, wanted: tuple[Status, ...]) -> StepRecord:
        row = self.bench.measure(step)
        record = self._record(step, row, Status(row.status) in wanted)
        # The step that records the case has not run yet.
        return replace(record, settled=False) if row.status == Status.NO_BASELINE.value else record

    def _too_large(self, step: ProofStep) -> StepRecord:
        row = self.bench.measure(step)
        return self._record(step, row, _out_of_memory(row))

    def _neighbour(self, step: ProofStep) -> StepRecord:
        bench = self.bench
        card = bench.machine.cards_of(bench.proof.device)[0]
        with neighbour(card, bench.interpreter(Framework.PYTORCH)):
            row = bench.measure(step)
        record = self._record(step, row, row.status == Status.INVALID.value and CONTENDED in row.reason)
        return replace(record, settled=record.right)

    def _explain(self, step: ProofStep) -> StepRecord:
        """Right if the profiles give most of a step to the forward and backward passes, whose operators they know. The
        seconds of each phase are kept."""
        assert step.case is not None
        found = self.bench.explain(step)
        phases = found.explanation.phases if found.explanation else ()
        seconds = {each.part.phase: min(each.reference.seconds, each.candidate.seconds) for each in phases}
        passes = [seconds.get(phase, 0.0) for phase in (Phase.FORWARD, Phase.BACKWARD)]
        right = all(passes) and sum(passes) > _LEAST_PASSES * sum(seconds.values())
        kept = {phase.value: each for phase, each in seconds.items()}
        message = f"{headline(found)} ({found.profiler or 'no profiler'})"
        folders = self.bench.profiled_runs(step)
        return StepRecord(
            step.key, MEASURED, right, right, message, case_id=step.case.id, run_folders=folders, extra=kept
        )

    def _record(self, step: ProofStep, row: CaseRow, right: bool) -> StepRecord:
        """The record of a measured step."""
        standing, extra = row.standing, dict[str, Any]()
        if standing is not None:
            low, high = (standing.effect.low, standing.effect.high) if standing.effect else (None, None)
            point = standing.effect.point if standing.effect else None
            extra = {"effect": point, "low": low, "high": high, "pairs": standing.pair_count}
        if row.utilisation is not None:
            extra[UTILISATION] = f"{row.utilisation.share:.1%} of {row.utilisation.limit}"
        return StepRecord(
            key=step.key,
            status=row.status,
            right=right,
            settled=_settled(row),
            message=row.reason,
            case_id=row.case_id,
            target=row.target,
            samples_per_s=row.samples_per_s,
            low=row.low,
            high=row.high,
            run_samples_per_s=row.run_samples_per_s,
            reader_share=row.reader_share,
            run_folders=tuple(self.bench.within(each) for each in row.run_folders),
            extra=extra,
        )


def _out_of_memory(row: CaseRow) -> bool:
    return row.reason.startswith(GPU_MEMORY.what)


def _settled(row: CaseRow) -> bool:
    """Whether the next call need not repeat the step. It repeats one that ended by an infrastructure failure or a
    disturbance, except for a batch that does not fit."""
    return Status(row.status) not in _NOT_SETTLED or _out_of_memory(row)


def _answered(step: ProofStep, answer: ProbeAnswer) -> StepRecord:
    if answer.not_run and not answer.faults:
        return not_run(step, "; ".join([answer.not_run, *filter(None, [answer.message])]))
    right = not answer.faults
    return StepRecord(step.key, MEASURED, right, right, "; ".join([*answer.faults, *filter(None, [answer.message])]))


def not_run(step: ProofStep, reason: str) -> StepRecord:
    """The record of a step that cannot run with the installed software; the next call tries it again. It counts as not
    reached, never as right."""
    case_id = step.case.id if step.case else ""
    return StepRecord(step.key, Status.NOT_RUN.value, False, False, reason, case_id=case_id)


def failed(step: ProofStep, error: Exception) -> StepRecord:
    case_id = step.case.id if step.case else ""
    return StepRecord(step.key, ERROR, False, False, f"{type(error).__name__}: {error}", case_id=case_id)
