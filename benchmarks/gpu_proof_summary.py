"""``summary.md``: what has run where, with the figures, and what was not reached."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.gpu_proof_cuda import Seen, sights
from benchmarks.gpu_proof_plan import CPU, Kind, Step
from benchmarks.gpu_proof_state import UTILISATION, Record
from helpers.history.results import RunResult
from helpers.judging.statistics import number
from helpers.judging.verdict import Status
from helpers.report.escaping import markdown_text


@dataclass(frozen=True)
class Story:
    """``doctor``: the doctor's record; ``date``: when this was told."""

    seen: Seen
    steps: Sequence[Step]
    doctor: Mapping[str, object]
    date: str

    @property
    def records(self) -> Mapping[str, Record]:
        return self.seen.records


def summary(story: Story) -> str:
    """The whole of it in Markdown."""
    parts = [
        ["# GPU proof", "", _headline(story), ""],
        ["## Where", "", *_where(story), ""],
        ["## What has run", "", *_table(story), ""],
        *([["## Ten A/A repeats", "", *lines, ""]] if (lines := _repeats(story)) else []),
        *([["## Other answers", "", *lines, ""]] if (lines := _others(story)) else []),
        ["## What is for GPUs alone", "", *_cuda(story), ""],
        ["## What the doctor says", "", *_doctor(story), ""],
        ["## Not reached", "", *_not_reached(story), ""],
    ]
    return "\n".join(line for part in parts for line in part)


def not_reached(story: Story) -> list[str]:
    """Steps without an answer, by part in their order, and the parts that this device has not."""
    missing: dict[str, list[str]] = {}
    for step in story.steps:
        if step.key not in story.records:
            missing.setdefault(step.part, []).append(step.key)
    lines = [f"{part}: {', '.join(keys)}" for part, keys in missing.items()]
    unable: dict[str, list[str]] = {}
    for record in (story.records[step.key] for step in story.steps if step.key in story.records):
        if record.status == Status.NOT_RUN.value:
            unable.setdefault(record.told, []).append(record.key)
    lines += [f"{', '.join(keys)}: {why}" for why, keys in unable.items()]
    return [*lines, *story.seen.proof.left_out]


def shares(story: Story) -> dict[str, str]:
    """Each measured case's utilisation in words, or why there is none; a slowed or a repeated one has none."""
    keys = [step.key for step in story.steps if step.kind is Kind.MEASURE]
    found = [story.records[key] for key in keys if key in story.records]
    return {each.case_id: str(each.extra.get(UTILISATION, "no measured peak")) for each in found if each.images_per_s}


def _headline(story: Story) -> str:
    machine, records = story.seen.machine, story.records
    done = len([s for s in story.steps if s.key in records and records[s.key].status != Status.NOT_RUN.value])
    wrong = [key for key, record in records.items() if not record.right]
    where = machine.device_name(story.seen.proof.device)
    said = f"{done} of {len(story.steps)} steps done on {where}, until {story.date}."
    if story.seen.proof.device == CPU:
        said = f"**Nothing here ran on a GPU: {machine.gpu_note or 'the CPU was asked for'}.** {said}"
    return said + (f" **Wrong: {', '.join(wrong)}.**" if wrong else " None of them wrong.")


def _where(story: Story) -> list[str]:
    machine, system = story.seen.machine, story.doctor.get("system", {})
    assert isinstance(system, Mapping)
    rows = {"machine": machine.describe()}
    if machine.gpus:
        rows |= {"driver": f"{machine.driver}, CUDA {machine.cuda_driver}", "cards": ", ".join(
            f"{gpu.uuid} ({gpu.power_limit_watts} W)" for gpu in machine.gpus)}  # fmt: skip
    for name in ("pytorch", "paddle"):
        if table := system.get(name):
            rows[name] = ", ".join(f"{key} {value}" for key, value in table.items())
    rows |= {f"measured with: {name}": value for name, value in _versions(story.seen.runs).items()}
    return [f"- {name}: {markdown_text(value)}" for name, value in rows.items()]


def _versions(runs: Iterable[RunResult]) -> dict[str, str]:
    found: dict[str, str] = {}
    for run in runs:
        told_by = run.environment
        found[told_by["framework"]] = ", ".join(
            f"{name} {told_by[name]}" for name in ("framework_version", "cuda", "cudnn", "nccl") if told_by.get(name)
        )
    return found


def _table(story: Story) -> list[str]:
    lines = [
        "| case | images/s (95% interval, runs) | utilisation | data | status |",
        "| --- | --- | --- | --- | --- |",
    ]
    words = shares(story)
    for step in story.steps:
        record = story.records.get(step.key)
        if record is None or step.kind is not Kind.MEASURE:
            continue
        share = words.get(record.case_id, "-")
        waited = "-" if record.reader_share is None else f"{record.reader_share:.1%}"
        cells = (f"`{record.case_id}`", _figure(record), share, waited, record.status)
        lines.append("| " + " | ".join(cells) + " |")
        if record.images_per_s is None:
            lines.append(f"| | {markdown_text(record.told[:500])} | | | |")
    return lines


def _figure(record: Record) -> str:
    if record.images_per_s is None:
        return "-"
    runs = len(record.run_images_per_s)
    # Two runs far from each other have an interval that no throughput has.
    known = record.low is not None and record.high is not None and record.low > 0
    interval = f"{number(record.low or 0)} to {number(record.high or 0)}, " if known else ""
    return f"{number(record.images_per_s)} ({interval}n={runs})"


def _repeats(story: Story) -> list[str]:
    records = [story.records[s.key] for s in story.steps if s.kind is Kind.REPEAT and s.key in story.records]
    rates = [rate for record in records for rate in record.run_images_per_s]
    if not records:
        return []
    counts = {status: sum(r.status == status for r in records) for status in dict.fromkeys(r.status for r in records)}
    lines = [f"`{records[0].case_id}`: {', '.join(f'{count} {status}' for status, count in counts.items())}."]
    if len(rates) > 1:
        mean, deviation = statistics.fmean(rates), statistics.stdev(rates)
        lines.append(
            f"images/s: {', '.join(map(number, rates))}; mean {number(mean)}, deviation {deviation / mean:.2%}."
        )
    return lines


def _others(story: Story) -> list[str]:
    lines = []
    for step in story.steps:
        record = story.records.get(step.key)
        if record is None or step.kind in (Kind.MEASURE, Kind.REPEAT):
            continue
        verdict = "as it must be" if record.right else "WRONG"
        name = step.kind.value
        if step.kind is Kind.SLOWED:
            name += f", by {step.slowdown:.0%}"
        lines.append(f"- {name}: {record.status} ({verdict}): {markdown_text(record.told[:500])}")
    return lines


def _cuda(story: Story) -> list[str]:
    lines = ["| what | found | |", "| --- | --- | --- |"]
    for sight in sights(story.seen):
        found = "found" if sight.found else "not found"
        lines.append(f"| {sight.name} | {found} | {markdown_text(sight.told[:500])} |")
    return lines


def _doctor(story: Story) -> list[str]:
    findings = story.doctor.get("findings", [])
    assert isinstance(findings, list)
    worst = [f for f in findings if f["severity"] != "note"]
    return [f"- {f['severity']}: {f['name']}: {markdown_text(f['found'])}" for f in worst] or ["Nothing but notes."]


def _not_reached(story: Story) -> list[str]:
    return [f"- {markdown_text(line)}" for line in not_reached(story)] or ["Nothing: all of it was reached."]
