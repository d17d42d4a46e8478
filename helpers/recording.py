"""From a judged case to a baseline candidate: what may be recorded, and why not."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from helpers.baseline import Provenance, RecordedEntry
from helpers.baseline_update import Candidate
from helpers.environment import Environment, differences, segment
from helpers.report.rows import CaseRow
from helpers.results import RunResult
from helpers.verdict import Status

_NOT_RECORDED = (Status.INFRA_ERROR, Status.INVALID, Status.INCONCLUSIVE)


def candidate(row: CaseRow, runs: Sequence[RunResult], machine: str, now: datetime.datetime | None = None) -> Candidate:
    """The case as an entry for ``baselines/recorded``, refused where it is no honest reference.

    Refused: what crashed, was invalid or inconclusive, ran with marks (contended, shared machine) or
    with changed settings (house plan, "--update-baselines").
    """
    measured = [run for run in runs if run.measured]
    if not measured or row.images_per_s is None:
        return Candidate(None, f"{row.status}: {row.reason}", row.case_id)
    environments = [Environment.from_mapping(run.environment, f"environment of {row.case_id}") for run in measured]
    environment = environments[-1]
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
        segment=segment(environment),
        provenance=Provenance(
            commit=environment.framework_commit or f"{environment.framework} {environment.framework_version}",
            date=when.isoformat(timespec="seconds"),
            machine=machine,
            reason="recorded with --update-baselines",
        ),
    )
    return Candidate(entry, _refusal(row, measured, environments))


def _refusal(row: CaseRow, runs: Sequence[RunResult], environments: Sequence[Environment]) -> str | None:
    if Status(row.status) in _NOT_RECORDED:
        return f"{row.status}: {row.reason}"
    if row.marks:
        return "; ".join(row.marks)
    changed = sorted({key for run in runs for key in run.overrides})
    if changed:
        return f"settings changed: {', '.join(changed)}"
    different = sorted(
        {each for other in environments for each in differences(segment(environments[0]), segment(other))}
    )
    if different:
        return f"its runs were made in different environments ({'; '.join(different)})"
    return None
