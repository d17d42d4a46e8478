"""This machine's recorded baselines: what of a session may be recorded, why not, and the write at its end."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from helpers.baseline import Provenance, RecordedEntry, RecordedSet, load_recorded
from helpers.baseline_update import Answer, Candidate, Proposal, propose, write_recorded
from helpers.devices import Machine
from helpers.environment import Environment, clocks_of, differences
from helpers.evidence import Build, Stage
from helpers.plan import CPU
from helpers.report.rows import CaseRow
from helpers.results import RunResult, segment_of
from helpers.results_check import MEASURED
from helpers.rules import MEDIAN_STEP, case_figure
from helpers.stats import summarise
from helpers.verdict import Status

# What a recorded sub-verdict says of the entry. A status that is not here was not judged.
_ANSWERS = {
    Status.NO_BASELINE: Answer.NOTHING_RECORDED,
    Status.PASS: Answer.NO_WORSE,
    Status.IMPROVEMENT: Answer.FASTER,
    Status.REGRESSION: Answer.SLOWER,
    Status.INCONCLUSIVE: Answer.UNSETTLED,
    Status.INCOMPARABLE: Answer.INCOMPARABLE,
}
_SCREENED = (Build.CANDIDATE.value, Stage.SCREEN.value)


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

    It rests on the screening runs of the build under test alone, each run one replicate, by the rule ``median-step``;
    runs that were made to confirm a suspicion were chosen for it and are no fair sample. Refused: what
    crashed or was invalid, ran with marks (contended, shared machine) or with changed settings (house
    plan, "--update-baselines"). All else is the verdict's to say.
    """
    measured = [run for run in runs if run.measured]
    counted = [run for run in measured if (run.role, run.stage) == _SCREENED]
    figure = case_figure(MEDIAN_STEP, [run.figures for run in counted])
    if not counted or row.recorded is None or Status(row.recorded.status) not in _ANSWERS:
        return Candidate(None, f"{row.status}: {row.reason}", row.case_id)
    if figure.images_per_s is None:
        return Candidate(None, figure.reason, row.case_id)
    segments = [segment_of(run.environment, run.settings, row.case_id) for run in counted]
    environment = Environment.from_mapping(counted[-1].environment, f"environment of {row.case_id}")
    when = now or datetime.datetime.now(datetime.timezone.utc)
    entry = RecordedEntry(
        case_id=row.case_id,
        images_per_s=figure.images_per_s,
        rule=MEDIAN_STEP,
        replicates=figure.run_images_per_s,
        interval=_interval(figure.run_images_per_s),
        tolerance=None,
        environment={**environment.to_mapping(), **clocks_of(counted[-1].facts)},
        segment=segments[-1],
        provenance=Provenance(
            commit=environment.framework_commit or f"{environment.framework} {environment.framework_version}",
            date=when.isoformat(timespec="seconds"),
            machine=machine,
            reason="recorded with --update-baselines",
        ),
    )
    answer = _ANSWERS[Status(row.recorded.status)]
    return Candidate(entry, _refusal(row, measured, segments), row.case_id, answer, row.recorded.reason)


def _interval(replicates: tuple[float, ...]) -> tuple[float, float] | None:
    """The 95% interval of the mean, None where a handful of runs has one that no throughput has."""
    summary = summarise(replicates)
    if summary.low is None or summary.high is None or summary.low <= 0:
        return None
    return summary.low, summary.high


def _refusal(row: CaseRow, runs: Sequence[RunResult], segments: Sequence[dict[str, str]]) -> str | None:
    """Why the case is no honest reference; ``runs`` is all that its verdict rests on, ``segments`` what is counted."""
    if Status(row.status) in (Status.INFRA_ERROR, Status.INVALID):
        return f"{row.status}: {row.reason}"
    if foreign := sorted({run.origin for run in runs} - {MEASURED}):
        return f"{' and '.join(foreign)} from logs: a baseline holds what this machine measured"
    if any(run.marks for run in runs):
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
