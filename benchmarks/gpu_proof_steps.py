"""One step of the proof: what is run for each kind, and whether it showed what it was to show."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benchmarks.arms import Seat
from benchmarks.gpu_proof_bench import Bench
from benchmarks.gpu_proof_neighbour import neighbour
from benchmarks.gpu_proof_plan import Kind, Step
from benchmarks.gpu_proof_state import UTILISATION, Record
from benchmarks.trainer_speed import OTHER_PROCESS, SPEED_LIMIT, measure, speeds
from helpers.history.results import CONTENDED
from helpers.judging.verdict import Status
from helpers.launch.failure import FailureClass
from helpers.machine.leases import Leases, default_folder
from helpers.machine.nvml import Gpu
from helpers.session.rows import CaseRow
from helpers.trainers.contract.frameworks import Framework

DOCTOR_JSON = "doctor.json"
MEASURED = "MEASURED"
ERROR = "ERROR"
# A build slowed down on purpose must be found; no repeat of the good one may be.
_NO_ALARM = (Status.PASS, Status.INCONCLUSIVE)
_NOT_SETTLED = (Status.INFRA_ERROR, Status.INVALID, Status.NOT_RUN)
_KERNELS = "card and framework"


@dataclass(frozen=True)
class Steps:
    """Runs steps on a bench; ``interpreter`` has PyTorch."""

    bench: Bench

    def run(self, step: Step) -> Record:
        """Raises SuiteError where the step could not even begin; KeyboardInterrupt passes through."""
        return self._kinds[step.kind](step)

    @property
    def _kinds(self) -> Mapping[Kind, Callable[[Step], Record]]:
        return {
            Kind.MEASURE: self._measure,
            Kind.REPEAT: lambda step: self._judged(step, _NO_ALARM),
            Kind.SLOWED: lambda step: self._judged(step, (Status.REGRESSION,)),
            Kind.TOO_LARGE: self._too_large,
            Kind.NEIGHBOUR: self._neighbour,
            Kind.BARE_LOOP: self._bare_loop,
        }

    def _measure(self, step: Step) -> Record:
        if reason := self._no_kernels(step):
            return not_run(step, reason)
        row = self.bench.measure(step)
        if row.status == Status.NOT_RUN.value:
            return not_run(step, row.reason)
        fits = row.failure_class != FailureClass.GPU_MEMORY.value
        right = row.images_per_s is not None or (step.may_not_fit and not fits)
        return self._record(step, row, right and (Status(row.status) not in _NOT_SETTLED or not fits))

    def _judged(self, step: Step, wanted: tuple[Status, ...]) -> Record:
        row = self.bench.measure(step)
        return self._record(step, row, Status(row.status) in wanted)

    def _too_large(self, step: Step) -> Record:
        row = self.bench.measure(step)
        return self._record(step, row, row.failure_class == FailureClass.GPU_MEMORY.value)

    def _neighbour(self, step: Step) -> Record:
        bench = self.bench
        card = bench.machine.cards_of(bench.proof.device)[0]
        with neighbour(card, bench.interpreter) as pid:
            row = bench.measure(step)
        # In a container NVML numbers processes as the host does: then it is seen, and not by this number.
        named = f"pid {pid}" in row.reason
        record = self._record(step, row, row.status == Status.INVALID.value and CONTENDED in row.reason)
        return replace(record, settled=record.right, extra={"named": named, "pid": pid})

    def _bare_loop(self, step: Step) -> Record:
        assert step.case is not None
        machine, interpreter = self.bench.machine, self.bench.interpreter
        cards = machine.cards_of(self.bench.proof.device)
        with Leases(default_folder(machine.host_id)).lease(cards, 1, f"bare loop of {step.case.id}") as lease:
            (card,) = lease.cards
            cores, names = ((), (card.uuid,)) if isinstance(card, Gpu) else (card.cores, ())
            seat = Seat(cores, names, interpreter)
            sets = measure(step.case, step.pairs, step.turns, seat)
        ratio = speeds(sets)[OTHER_PROCESS]
        right = not ratio.lies_below(SPEED_LIMIT)
        told = f"images/s through the trainer over the bare loop's: {ratio}"
        return Record(step.key, MEASURED, right, True, told, case_id=step.case.id, extra=asdict(ratio))

    def _no_kernels(self, step: Step) -> str:
        """The doctor's words where the installed wheel has no code for the card; PyTorch's absence is no reason."""
        if step.case is None or step.case.framework is Framework.PYTORCH:
            return ""
        findings = json.loads((self.bench.folder / DOCTOR_JSON).read_text(encoding="utf-8"))["findings"]
        name = step.case.framework.value
        return next((f["found"] for f in findings if f["name"] == _KERNELS and name in f["found"]), "")

    def _record(self, step: Step, row: CaseRow, right: bool) -> Record:
        """``settled``: what an infrastructure failure or a disturbance ended is tried again by the next call, except a
        batch that does not fit, which never will."""
        fits = row.failure_class != FailureClass.GPU_MEMORY.value
        settled = Status(row.status) not in _NOT_SETTLED or not fits
        standing = asdict(row.standing) if row.standing else {}
        extra = {key: standing.get(key) for key in ("effect", "low", "high", "pairs")} if standing else {}
        if row.utilisation is not None:
            extra[UTILISATION] = row.utilisation.told()
        return Record(
            key=step.key,
            status=row.status,
            right=right,
            settled=settled,
            told=row.reason,
            case_id=row.case_id,
            target=row.target,
            images_per_s=row.images_per_s,
            low=row.low,
            high=row.high,
            run_images_per_s=row.run_images_per_s,
            reader_share=row.reader_share,
            run_folders=tuple(self.bench.within(each) for each in row.run_folders),
            extra=extra,
        )


def not_run(step: Step, reason: str) -> Record:
    """What cannot run here with what is installed: told, and asked again by the next call."""
    case_id = step.case.id if step.case else ""
    return Record(step.key, Status.NOT_RUN.value, step.optional, False, reason, case_id=case_id)


def failed(step: Step, error: Exception) -> Record:
    case_id = step.case.id if step.case else ""
    return Record(step.key, ERROR, False, False, f"{type(error).__name__}: {error}", case_id=case_id)


def doctor_argv(python: str, folder: Path, *more: str) -> list[str]:
    return [python, "-m", "helpers.commands", "doctor", "--config", str(folder / "perf.yaml"),
            "--runs-dir", str(folder / "runs"), *more]  # fmt: skip
