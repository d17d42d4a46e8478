"""Writes ``summary.md`` of ``perfgate prove-gpu``: where it ran, how each step ended with its figures, what was seen of
the GPU during the runs, and what was not reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from helpers.commands.proof import Proof, ProofStep
from helpers.commands.proof.steps import UTILISATION, StepRecord
from helpers.history.results import RunResult
from helpers.judging.rules.rates import rate_unit
from helpers.judging.statistics import number
from helpers.machine.devices import GIB, Machine
from helpers.machine.environment import CPU, MEMORY_MHZ, SM_MHZ
from helpers.machine.watch.gpu_health import HELD_BY_FACT, NVLINKS_FACT, PCIE_FACT
from helpers.report.table import markdown_text

# The facts of a run on a GPU, each with its title.
_FACTS = {
    SM_MHZ: "SM clock in the window (MHz)",
    MEMORY_MHZ: "memory clock in the window (MHz)",
    HELD_BY_FACT: "NVML's reasons for lower clocks",
    "gpu_temperature_c": "temperature (°C)",
    "gpu_power_watts": "power (W)",
    "gpu_uncorrected_ecc": "uncorrected ECC errors",
    PCIE_FACT: "PCI Express link",
    NVLINKS_FACT: "active NVLinks",
    "loader": "reader",
    "not_measured": "not measured",
}
_NOT_SEEN = "**not seen**"


@dataclass(frozen=True)
class ProofReport:
    """The content of the summary."""

    machine: Machine
    proof: Proof
    # By the step's key.
    records: Mapping[str, StepRecord]
    # The runs of all steps.
    runs: Sequence[RunResult]
    date: str

    def done(self) -> list[tuple[ProofStep, StepRecord]]:
        """The steps that have a record, in their order."""
        return [(step, self.records[step.key]) for step in self.proof.steps if step.key in self.records]


def summary(report: ProofReport) -> str:
    """The whole report in Markdown."""
    parts = {
        "Where": _where(report),
        "What has run": _table(report),
        "What was seen of the GPU": [f"- {what}: {markdown_text(found)}" for what, found in seen(report).items()],
        "Not run": [f"- {markdown_text(line)}" for line in not_reached(report)] or ["Nothing: all of it was reached."],
    }
    lines = ["# GPU proof", "", _headline(report)]
    for title, body in parts.items():
        lines += ["", f"## {title}", "", *body]
    return "\n".join([*lines, ""])


def not_reached(report: ProofReport) -> list[str]:
    """The steps without a result, by part and in order, and the parts that are impossible on this device."""
    missing: dict[str, list[str]] = {}
    for step in report.proof.steps:
        if step.key not in report.records:
            missing.setdefault(step.part, []).append(step.key)
    unable: dict[str, list[str]] = {}
    for _, record in report.done():
        if not record.ran:
            unable.setdefault(record.message, []).append(record.key)
    return [
        *(f"{part}: {', '.join(keys)}" for part, keys in missing.items()),
        *(f"{', '.join(keys)}: {why}" for why, keys in unable.items()),
        *report.proof.left_out,
    ]


def seen(report: ProofReport) -> dict[str, str]:
    """What the runs on a GPU say of it, by title: of each fact the value in the last run that has it."""
    runs = [run for run in report.runs if run.target != CPU and run.measured]
    found = {title: [run.facts[name] for run in runs if run.facts.get(name)] for name, title in _FACTS.items()}
    told = {title: values[-1] if values else _NOT_SEEN for title, values in found.items()}
    leased = {each for run in runs for each in run.environment.get("card_ids", "").split()}
    strange = leased - {gpu.uuid for gpu in report.machine.gpus}
    cards = ", ".join(sorted(leased)) + (f"; **no card of this machine: {', '.join(sorted(strange))}**" * bool(strange))
    peaks = {run.case_id: run.peak_device_bytes for run in runs if run.peak_device_bytes}
    most = max(peaks, key=lambda case_id: peaks[case_id], default="")
    steps = sum(len(run.step_seconds) for run in runs)
    return {
        "runs": f"{len(runs)}, with {steps} steps timed by the card's events" if steps else _NOT_SEEN,
        "leased cards": cards or _NOT_SEEN,
        "peak of device memory": f"{peaks[most] / GIB:.1f} GiB ({most})" if peaks else _NOT_SEEN,
        **told,
    }


def _headline(report: ProofReport) -> str:
    machine = report.machine
    done = sum(record.ran for _, record in report.done())
    wrong = [key for key, record in report.records.items() if record.wrong]
    where = machine.device_name(report.proof.device)
    text = f"{done} of {len(report.proof.steps)} steps done on {where}, until {report.date}."
    if report.proof.device == CPU:
        text = f"**Nothing here ran on a GPU: {machine.gpu_note or 'the CPU was asked for'}.** {text}"
    return text + (f" **Wrong: {', '.join(wrong)}.**" if wrong else " None of them wrong.")


def _where(report: ProofReport) -> list[str]:
    machine = report.machine
    rows = {"machine": machine.describe()}
    if machine.gpus:
        cards = ", ".join(f"{gpu.uuid} ({gpu.memory_bytes / GIB:.1f} GiB)" for gpu in machine.gpus)
        rows |= {"driver": f"{machine.driver}, CUDA {machine.cuda_driver}", "cards": cards}
    for run in report.runs:
        names = ("framework_version", "cuda", "cudnn", "nccl")
        versions = [f"{name} {run.environment[name]}" for name in names if run.environment.get(name)]
        rows[f"measured with: {run.environment['framework']}"] = ", ".join(versions)
    return [f"- {name}: {markdown_text(value)}" for name, value in rows.items()]


def _table(report: ProofReport) -> list[str]:
    """A row for each step that ran."""
    records = [(step, record) for step, record in report.done() if record.ran]
    unit = rate_unit(*(record.case_id for _, record in records if record.samples_per_s))
    lines = [f"| step | {unit} (95% interval, runs) | utilisation | data | status | |", "| --- " * 6 + "|"]
    for step, record in records:
        slowed = f", by {step.slowdown:.0%}" if step.slowdown else ""
        waited = "-" if record.reader_share is None else f"{record.reader_share:.1%}"
        cells = (f"`{record.key}`{slowed}", _figure(record), str(record.extra.get(UTILISATION, "-")), waited)
        right = "as it must be" if record.right else "**WRONG**"
        text = f"{right}: {markdown_text(record.message[:500])}"
        lines.append("| " + " | ".join([*cells, record.status, text]) + " |")
    return lines


def _figure(record: StepRecord) -> str:
    if record.samples_per_s is None:
        return "-"
    known = record.low is not None and record.high is not None
    interval = f"{number(record.low or 0)} to {number(record.high or 0)}, " if known else ""
    return f"{number(record.samples_per_s)} ({interval}n={len(record.run_samples_per_s)})"
