"""Writes ``summary.md`` of ``perfgate prove-gpu``: what has run where with its figures, which of the parts that need an
NVIDIA GPU were seen at work, and what was not reached."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from helpers.commands.proof import PROBES, Proof, ProofStep, StepKind
from helpers.commands.proof.steps import UTILISATION, StepRecord
from helpers.history.results import RunResult
from helpers.judging.rates import rate_unit
from helpers.judging.statistics import number
from helpers.machine.devices import GIB, Machine
from helpers.machine.environment import CPU, MEMORY_MHZ, SM_MHZ
from helpers.machine.watch.gpu_health import HELD_BY_FACT
from helpers.report.table import markdown_text

_ON_GPU = "decoding on GPU"


@dataclass(frozen=True)
class GpuPart:
    """A part of the suite that needs an NVIDIA GPU, and whether this proof has seen it at work."""

    name: str
    found: bool
    # The numbers if it was seen, else what was missing.
    message: str


@dataclass(frozen=True)
class ProofEvidence:
    """The results of the steps."""

    machine: Machine
    proof: Proof
    # By the step's key.
    records: Mapping[str, StepRecord]
    # The runs of all steps.
    runs: Sequence[RunResult]

    @property
    def gpu_runs(self) -> list[RunResult]:
        return [run for run in self.runs if run.target != CPU and run.measured]

    def facts(self, name: str) -> list[str]:
        return [run.facts[name] for run in self.gpu_runs if name in run.facts]

    def of_kind(self, kind: StepKind) -> list[StepRecord]:
        return [record for step, record in self.done() if step.kind is kind]

    def done(self) -> list[tuple[ProofStep, StepRecord]]:
        """The steps that have a record, in their order."""
        return [(step, self.records[step.key]) for step in self.proof.steps if step.key in self.records]


@dataclass(frozen=True)
class ProofReport:
    """The content of the summary."""

    evidence: ProofEvidence
    # The record that ``perfgate doctor --json`` prints.
    doctor: Mapping[str, object]
    date: str

    @property
    def records(self) -> Mapping[str, StepRecord]:
        return self.evidence.records


def summary(report: ProofReport) -> str:
    """The whole report in Markdown."""
    parts = [
        ["# GPU proof", "", _headline(report), ""],
        ["## Where", "", *_where(report), ""],
        ["## What has run", "", *_table(report), ""],
        *([["## Ten A/A repeats", "", *lines, ""]] if (lines := _repeats(report)) else []),
        *([["## Answers", "", *lines, ""]] if (lines := _others(report)) else []),
        ["## What is for GPUs alone", "", *_cuda(report), ""],
        ["## What the doctor says", "", *_doctor(report), ""],
        ["## Not run", "", *_not_reached(report), ""],
    ]
    return "\n".join(line for part in parts for line in part)


def not_reached(report: ProofReport) -> list[str]:
    """The steps without a result, by part and in order, and the parts that are impossible on this device."""
    missing: dict[str, list[str]] = {}
    for step in report.evidence.proof.steps:
        if step.key not in report.records:
            missing.setdefault(step.part, []).append(step.key)
    lines = [f"{part}: {', '.join(keys)}" for part, keys in missing.items()]
    unable: dict[str, list[str]] = {}
    for _, record in report.evidence.done():
        if not record.ran:
            unable.setdefault(record.message, []).append(record.key)
    lines += [f"{', '.join(keys)}: {why}" for why, keys in unable.items()]
    return [*lines, *report.evidence.proof.left_out]


def shares(report: ProofReport) -> dict[str, str]:
    """The utilisation of each measured case as text, or why there is none; slowed and repeated cases are left out."""
    found = report.evidence.of_kind(StepKind.MEASURE)
    return {each.case_id: str(each.extra.get(UTILISATION, "no measured peak")) for each in found if each.samples_per_s}


def _headline(report: ProofReport) -> str:
    machine, records = report.evidence.machine, report.records
    done = sum(record.ran for _, record in report.evidence.done())
    wrong = [key for key, record in records.items() if record.wrong]
    where = machine.device_name(report.evidence.proof.device)
    text = f"{done} of {len(report.evidence.proof.steps)} steps done on {where}, until {report.date}."
    if report.evidence.proof.device == CPU:
        text = f"**Nothing here ran on a GPU: {machine.gpu_note or 'the CPU was asked for'}.** {text}"
    return text + (f" **Wrong: {', '.join(wrong)}.**" if wrong else " None of them wrong.")


def _where(report: ProofReport) -> list[str]:
    machine, system = report.evidence.machine, report.doctor.get("system", {})
    assert isinstance(system, Mapping)
    rows = {"machine": machine.describe()}
    if machine.gpus:
        rows |= {"driver": f"{machine.driver}, CUDA {machine.cuda_driver}", "cards": ", ".join(
            f"{gpu.uuid} ({gpu.power_limit_watts} W)" for gpu in machine.gpus)}  # fmt: skip
    for name in ("pytorch", "paddle"):
        if table := system.get(name):
            rows[name] = ", ".join(f"{key} {value}" for key, value in table.items())
    rows |= {f"measured with: {name}": value for name, value in _versions(report.evidence.runs).items()}
    return [f"- {name}: {markdown_text(value)}" for name, value in rows.items()]


def _versions(runs: Iterable[RunResult]) -> dict[str, str]:
    found: dict[str, str] = {}
    for run in runs:
        environment = run.environment
        names = [each for each in ("framework_version", "cuda", "cudnn", "nccl") if environment.get(each)]
        found[environment["framework"]] = ", ".join(f"{name} {environment[name]}" for name in names)
    return found


def _table(report: ProofReport) -> list[str]:
    measured = report.evidence.of_kind(StepKind.MEASURE)
    unit = rate_unit(*(record.case_id for record in measured))
    lines = [
        f"| case | {unit} (95% interval, runs) | utilisation | data | status |",
        "| --- | --- | --- | --- | --- |",
    ]
    utilisations = shares(report)
    for record in measured:
        share = utilisations.get(record.case_id, "-")
        waited = "-" if record.reader_share is None else f"{record.reader_share:.1%}"
        cells = (f"`{record.case_id}`", _figure(record), share, waited, record.status)
        lines.append("| " + " | ".join(cells) + " |")
        if record.samples_per_s is None:
            lines.append(f"| | {markdown_text(record.message[:500])} | | | |")
    return lines


def _figure(record: StepRecord) -> str:
    if record.samples_per_s is None:
        return "-"
    runs = len(record.run_samples_per_s)
    known = record.low is not None and record.high is not None
    interval = f"{number(record.low or 0)} to {number(record.high or 0)}, " if known else ""
    return f"{number(record.samples_per_s)} ({interval}n={runs})"


def _repeats(report: ProofReport) -> list[str]:
    records = report.evidence.of_kind(StepKind.REPEAT)
    rates = [rate for record in records for rate in record.run_samples_per_s]
    if not records:
        return []
    counts = {status: sum(r.status == status for r in records) for status in dict.fromkeys(r.status for r in records)}
    lines = [f"`{records[0].case_id}`: {', '.join(f'{count} {status}' for status, count in counts.items())}."]
    if len(rates) > 1:
        mean, deviation = statistics.fmean(rates), statistics.stdev(rates)
        lines.append(
            f"{rate_unit(records[0].case_id)}: {', '.join(map(number, rates))}; mean {number(mean)}, "
            f"deviation {deviation / mean:.2%}."
        )
    return lines


def _others(report: ProofReport) -> list[str]:
    lines = []
    for step, record in report.evidence.done():
        if step.kind in (StepKind.MEASURE, StepKind.REPEAT) or not record.ran:
            continue
        verdict = "as it must be" if record.right else "WRONG"
        name = step.kind.value
        if step.kind is StepKind.SLOWED:
            name += f", by {step.slowdown:.0%}"
        elif step.part == PROBES:
            name = step.key
        lines.append(f"- {name}: {record.status} ({verdict}): {markdown_text(record.message[:500])}")
    return lines


def _cuda(report: ProofReport) -> list[str]:
    lines = ["| what | found | |", "| --- | --- | --- |"]
    for part in gpu_parts(report.evidence):
        found = "found" if part.found else "not found"
        lines.append(f"| {part.name} | {found} | {markdown_text(part.message[:500])} |")
    return lines


def _doctor(report: ProofReport) -> list[str]:
    findings = report.doctor.get("findings", [])
    assert isinstance(findings, list)
    worst = [f for f in findings if f["severity"] != "note"]
    return [f"- {f['severity']}: {f['name']}: {markdown_text(f['found'])}" for f in worst] or ["Nothing but notes."]


def _not_reached(report: ProofReport) -> list[str]:
    return [f"- {markdown_text(line)}" for line in not_reached(report)] or ["Nothing: all of it was reached."]


# ---- what only GPUs have


def gpu_parts(evidence: ProofEvidence) -> tuple[GpuPart, ...]:
    return tuple(GpuPart(name, *look(evidence)) for name, look in _LOOKS)


Look = Callable[[ProofEvidence], tuple[bool, str]]


def _discovery(evidence: ProofEvidence) -> tuple[bool, str]:
    gpus = evidence.machine.gpus
    if not gpus:
        return False, evidence.machine.gpu_note or "NVML finds no card"
    cards = [
        f"{gpu.name}, {gpu.memory_bytes / GIB:.1f} GiB, sm_{gpu.compute_capability[0]}{gpu.compute_capability[1]}"
        for gpu in gpus
    ]
    return True, f"{'; '.join(cards)}; driver {evidence.machine.driver}, CUDA {evidence.machine.cuda_driver}"


def _health(evidence: ProofEvidence) -> tuple[bool, str]:
    names = ("gpu_temperature_c", "gpu_hottest_c", "gpu_power_watts", "gpu_uncorrected_ecc", "gpu_power_limit_watts")
    values = {name: found[-1] for name in names if (found := evidence.facts(name))}
    if not values:
        return False, "no run has NVML's samples"
    return True, f"{', '.join(f'{name} {value}' for name, value in values.items())}; not measured: " + "; ".join(
        sorted(set(evidence.facts("not_measured"))) or ["nothing"]
    )


def _clocks(evidence: ProofEvidence) -> tuple[bool, str]:
    found = [float(each.split()[0]) for each in evidence.facts(SM_MHZ)]
    if not found:
        return False, "no run has clock samples in its window"
    memory = ", ".join(sorted(set(evidence.facts(MEMORY_MHZ)))) or "unknown"
    return True, f"SM {min(found):.0f} to {max(found):.0f} MHz over {len(found)} runs, memory {memory} MHz"


def _throttling(evidence: ProofEvidence) -> tuple[bool, str]:
    found = evidence.facts(HELD_BY_FACT)
    if not found:
        return False, "no run has NVML's reasons in its window"
    reasons = sorted({each for each in found if each})
    return True, f"looked at in {len(found)} runs: {'; '.join(reasons) or 'nothing held the clocks'}"


def _leases(evidence: ProofEvidence) -> tuple[bool, str]:
    cards = {gpu.uuid for gpu in evidence.machine.gpus}
    used = {each for run in evidence.gpu_runs for each in run.environment.get("card_ids", "").split()}
    if not used:
        return False, "no run on a leased GPU"
    return used <= cards, f"{len(evidence.gpu_runs)} runs on {', '.join(sorted(used))}"


def _visible(evidence: ProofEvidence) -> tuple[bool, str]:
    """Whether the program that measured a peak saw the leased card, whose UUID was in CUDA_VISIBLE_DEVICES."""
    cards = {gpu.uuid for gpu in evidence.machine.gpus}
    visible = set(evidence.facts("peak_uuid")) - {""}
    if not visible:
        return False, "PyTorch has named no card's UUID"
    return visible <= cards, f"the only card that PyTorch saw: {', '.join(sorted(visible))}"


def _memory(evidence: ProofEvidence) -> tuple[bool, str]:
    peaks = {run.case_id: run.peak_device_bytes for run in evidence.gpu_runs if run.peak_device_bytes}
    if not peaks:
        return False, "no run has a peak of device memory"
    most = max(peaks, key=lambda case_id: peaks[case_id])
    return True, f"{len(peaks)} cases, the most {peaks[most] / GIB:.1f} GiB ({most})"


def _does_not_fit(evidence: ProofEvidence) -> tuple[bool, str]:
    records = evidence.of_kind(StepKind.TOO_LARGE)
    return _shown(records, "no batch was too large")


def _dali(evidence: ProofEvidence) -> tuple[bool, str]:
    found = [run for run in evidence.gpu_runs if _ON_GPU in run.facts.get("loader", "")]
    if not found:
        reasons = [r.message for r in evidence.records.values() if "-dali" in r.case_id and not r.run_samples_per_s]
        return False, "; ".join(dict.fromkeys(reasons)) or "no run decoded on a GPU"
    return True, f"{found[-1].facts['loader']}; waiting for data {found[-1].reader_share or 0:.1%} of the window"


def _events(evidence: ProofEvidence) -> tuple[bool, str]:
    runs = [run for run in evidence.gpu_runs if run.step_seconds]
    if not runs:
        return False, "no step was timed on a GPU"
    steps = sum(len(run.step_seconds) for run in runs)
    last = 1000 * statistics.median(runs[-1].step_seconds)
    return True, f"{steps} steps in {len(runs)} runs; a run without the driver's events fails; the last's {last:.2f} ms"


def _profiles(evidence: ProofEvidence) -> tuple[bool, str]:
    return _shown(evidence.of_kind(StepKind.EXPLAIN), "no step was profiled on a GPU")


def _neighbours(evidence: ProofEvidence) -> tuple[bool, str]:
    records = evidence.of_kind(StepKind.NEIGHBOUR)
    if evidence.proof.device == CPU:
        return False, f"no GPU; a process beside the job on the cores {_seen_on_cores(records)}"
    return _shown(records, "not tried")


def _seen_on_cores(records: Sequence[StepRecord]) -> str:
    if not records or not records[-1].right:
        return "has not been seen"
    return "was seen" if records[-1].extra.get("named") else "was seen, but not named apart from others"


def _graphs(evidence: ProofEvidence) -> tuple[bool, str]:
    found = [run for run in evidence.gpu_runs if run.case_id.endswith("-graphs")]
    return bool(found), found[-1].case_id if found else "no run captured one"


def _shown(records: Sequence[StepRecord], otherwise: str) -> tuple[bool, str]:
    return (records[-1].right, records[-1].message) if records else (False, otherwise)


_LOOKS: tuple[tuple[str, Look], ...] = (
    ("device discovery by NVML", _discovery),
    ("device health by NVML", _health),
    ("clock samples in the window", _clocks),
    ("throttle reasons in the window", _throttling),
    ("leases by UUID", _leases),
    ("CUDA_VISIBLE_DEVICES", _visible),
    ("peak device memory", _memory),
    ("a batch that does not fit is reported as such", _does_not_fit),
    ("DALI decodes on the GPU", _dali),
    ("steps timed by CUDA events", _events),
    ("kernels by operator in a profile, by CUPTI", _profiles),
    ("foreign processes", _neighbours),
    ("CUDA graphs", _graphs),
)
