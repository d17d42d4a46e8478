"""Writes ``summary.md`` of ``perfgate prove-gpu``: where it ran, how each step ended with its figure, what was seen of
the GPU during the runs, and what was not reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from helpers.commands.proof.plan import ProofStep
from helpers.commands.proof.records import StepRecord
from helpers.history.results import RunResult
from helpers.machine.devices import GIB, Machine
from helpers.machine.environment import CPU, MEMORY_MHZ, SM_MHZ
from helpers.machine.watch.gpu_health import HELD_BY_FACT, NVLINKS_FACT, PCIE_FACT
from helpers.report.table import Column, Table, markdown_list, markdown_text

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
_NOT_SEEN = "NOT SEEN"
_VERSIONS = ("framework", "framework_version", "cuda", "cudnn", "nccl")


@dataclass(frozen=True)
class ProofReport:
    """The content of the summary."""

    machine: Machine
    device: str
    steps: Sequence[ProofStep]
    # By the step's key.
    records: Mapping[str, StepRecord]
    # The runs of all steps.
    runs: Sequence[RunResult]
    date: str

    @property
    def done(self) -> list[StepRecord]:
        """The records of the steps that ran, in the order of the steps."""
        records = [self.records[step.key] for step in self.steps if step.key in self.records]
        return [record for record in records if record.ran]


_COLUMNS = (
    Column[StepRecord]("step", lambda each: each.key),
    Column[StepRecord]("figure (95% interval, runs)", lambda each: each.figure or "-"),
    Column[StepRecord]("status", lambda each: each.status),
    Column[StepRecord]("", lambda each: f"{'as it must be' if each.right else 'WRONG'}: {each.message[:500]}"),
)


def summary(report: ProofReport) -> str:
    """The whole report in Markdown."""
    parts = {
        "Where": markdown_list(_where(report)),
        "What has run": "\n".join(Table.of(_COLUMNS, report.done).markdown(markdown_text)),
        "What was seen of the GPU": markdown_list(f"{what}: {found}" for what, found in seen(report).items()),
        "Not run": markdown_list(not_reached(report) or ["nothing: all of it was reached"]),
    }
    sections = [f"## {title}\n\n{body}" for title, body in parts.items()]
    return "\n\n".join(["# GPU proof", _headline(report), *sections]) + "\n"


def not_reached(report: ProofReport) -> list[str]:
    """The steps without a result, each with the reason if there is one."""
    records = ((step.key, report.records.get(step.key)) for step in report.steps)
    return [
        f"{key}: {record.message if record else 'not reached'}"
        for key, record in records
        if record is None or not record.ran
    ]


def seen(report: ProofReport) -> dict[str, str]:
    """What the runs on a GPU say of it, by title: of each fact the value in the last run that has it."""
    runs = [run for run in report.runs if run.target != CPU and run.measured]
    leased = {each for run in runs for each in run.environment.get("card_ids", "").split()}
    strange = sorted(leased - {gpu.uuid for gpu in report.machine.gpus})
    cards = ", ".join(sorted(leased)) + (f"; NO CARD OF THIS MACHINE: {', '.join(strange)}" if strange else "")
    steps = sum(len(run.step_seconds) for run in runs)
    peak = max((run.peak_device_bytes or 0 for run in runs), default=0)
    facts = {title: [run.facts[name] for run in runs if run.facts.get(name)] for name, title in _FACTS.items()}
    return {
        "runs": f"{len(runs)}, with {steps} steps timed by the card's events" if steps else _NOT_SEEN,
        "leased cards": cards or _NOT_SEEN,
        "peak of device memory": f"{peak / GIB:.1f} GiB" if peak else _NOT_SEEN,
        **{title: values[-1] if values else _NOT_SEEN for title, values in facts.items()},
    }


def _headline(report: ProofReport) -> str:
    machine = report.machine
    wrong = [record.key for record in report.done if record.wrong]
    where = machine.device_name(report.device)
    text = f"{len(report.done)} of {len(report.steps)} steps done on {where}, until {report.date}."
    if report.device == CPU:
        text = f"**Nothing here ran on a GPU: {machine.gpu_note or 'the CPU was asked for'}.** {text}"
    return text + (f" **Wrong: {', '.join(wrong)}.**" if wrong else " None of them wrong.")


def _where(report: ProofReport) -> list[str]:
    machine = report.machine
    lines = [f"machine: {machine.describe()}"]
    if machine.gpus:
        cards = ", ".join(f"{gpu.uuid} ({gpu.memory_bytes / GIB:.1f} GiB)" for gpu in machine.gpus)
        lines.append(f"driver: {machine.driver}, CUDA {machine.cuda_driver}; cards: {cards}")
    for run in report.runs:
        versions = [f"{name} {run.environment[name]}" for name in _VERSIONS if run.environment.get(name)]
        lines.append(f"measured with: {', '.join(versions)}")
    return list(dict.fromkeys(lines))
