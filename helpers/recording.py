"""This machine's recorded baselines: what of a session may be recorded, why not, and the write at its end."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from helpers.baseline import Provenance, RecordedEntry, RecordedSet, load_recorded
from helpers.baseline_update import Candidate, Proposal, propose, write_recorded
from helpers.devices import Machine
from helpers.environment import Environment, differences
from helpers.plan import CPU
from helpers.report.rows import CaseRow
from helpers.results import RunResult, segment_of
from helpers.verdict import Status

_NOT_RECORDED = (Status.INFRA_ERROR, Status.INVALID, Status.INCONCLUSIVE)


@dataclass(frozen=True)
class RecordedBaselines:
    """The files of one machine in ``folder``, one a device (``cpu``, ``gpu``). Raises BaselineError."""

    folder: Path
    machine: Machine

    def path(self, device: str) -> Path:
        return self.folder / f"{self.machine.machine_key(device)}.json"

    def load(self, device: str) -> RecordedSet:
        return load_recorded(self.path(device), self.machine.machine_key(device))

    def propose(
        self,
        measured: Iterable[tuple[CaseRow, Sequence[RunResult]]],
        *,
        known_case_ids: Collection[str],
        tolerance: Callable[[str], float],
        accept_regression: str | None,
    ) -> tuple[Proposal, ...]:
        """What would be written for the measured cases and their runs, device by device."""
        measured = list(measured)
        proposals: list[Proposal] = []
        for device in sorted({_device(row) for row, _ in measured}):
            mine = [(row, runs) for row, runs in measured if _device(row) == device]
            proposals += propose(
                self.load(device),
                [candidate(row, runs, self.machine.device_name(device)) for row, runs in mine],
                measured_case_ids={row.case_id for row, _ in mine},
                known_case_ids=known_case_ids,
                tolerance=tolerance,
                accept_regression=accept_regression,
            )
        return tuple(proposals)

    def write(self, rows: Iterable[CaseRow], proposals: Iterable[Proposal]) -> tuple[Proposal, ...]:
        """Write the proposals of all devices, each file once; returns what was written."""
        proposals = tuple(proposals)
        device_of = {row.case_id: _device(row) for row in rows}
        written: list[Proposal] = []
        for device in sorted(set(device_of.values())):
            mine = tuple(each for each in proposals if device_of.get(each.case_id, device) == device)
            path = self.path(device)
            path.parent.mkdir(parents=True, exist_ok=True)
            written += write_recorded(path, self.machine.machine_key(device), mine)
        return tuple(written)


def candidate(row: CaseRow, runs: Sequence[RunResult], machine: str, now: datetime.datetime | None = None) -> Candidate:
    """The case as an entry for ``baselines/recorded``, refused where it is no honest reference.

    Refused: what crashed, was invalid or inconclusive, ran with marks (contended, shared machine) or
    with changed settings (house plan, "--update-baselines").
    """
    measured = [run for run in runs if run.measured]
    if not measured or row.images_per_s is None:
        return Candidate(None, f"{row.status}: {row.reason}", row.case_id)
    segments = [segment_of(run.environment, run.settings, row.case_id) for run in measured]
    environment = Environment.from_mapping(measured[-1].environment, f"environment of {row.case_id}")
    when = now or datetime.datetime.now(datetime.timezone.utc)
    entry = RecordedEntry(
        case_id=row.case_id,
        images_per_s=row.images_per_s,
        rule=row.rule,
        replicates=row.run_images_per_s,
        # A handful of runs can have an interval that reaches below zero, which no throughput does.
        interval=(row.low, row.high) if row.low is not None and row.high is not None and row.low > 0 else None,
        tolerance=None,
        environment=environment.to_mapping(),
        segment=segments[-1],
        provenance=Provenance(
            commit=environment.framework_commit or f"{environment.framework} {environment.framework_version}",
            date=when.isoformat(timespec="seconds"),
            machine=machine,
            reason="recorded with --update-baselines",
        ),
    )
    return Candidate(entry, _refusal(row, measured, segments))


def _refusal(row: CaseRow, runs: Sequence[RunResult], segments: Sequence[dict[str, str]]) -> str | None:
    if Status(row.status) in _NOT_RECORDED:
        return f"{row.status}: {row.reason}"
    if row.marks:
        return "; ".join(row.marks)
    changed = sorted({key for run in runs for key in run.overrides})
    if changed:
        return f"settings changed: {', '.join(changed)}"
    different = sorted({each for other in segments for each in differences(segments[0], other)})
    if different:
        return f"its runs were made in different environments ({'; '.join(different)})"
    return None


def _device(row: CaseRow) -> str:
    return CPU if row.target == CPU else "gpu"
