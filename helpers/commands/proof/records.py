"""How the steps of ``perfgate prove-gpu`` ended: records, the file that keeps them, and ``summary.md``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from helpers.commands.proof.plan import ProofStep
from helpers.common.files import read_text_limited, write_whole
from helpers.common.records import WrongRecord, parse, read_as
from helpers.history.results import RunResult
from helpers.judging.case.verdict import Status
from helpers.machine.devices import GIB, Machine
from helpers.machine.environment import CPU, MEMORY_MHZ, SM_MHZ
from helpers.machine.watch.gpu_health import HELD_BY_FACT, NVLINKS_FACT, PCIE_FACT
from helpers.report.table import Column, Table, markdown_list, markdown_text
from helpers.trainers.contract.errors import ResultError

# A measured case, and a step that an error ended.
MEASURED, ERROR = "MEASURED", "ERROR"
STATE_FILE, SUMMARY_FILE = "state.json", "summary.md"
_MOST_STATE_BYTES = 16 * 1024**2
# The facts of a run on a GPU.
_FACTS = (
    SM_MHZ, MEMORY_MHZ, HELD_BY_FACT, "gpu_temperature_c", "gpu_power_watts", "gpu_uncorrected_ecc", PCIE_FACT,
    NVLINKS_FACT, "loader", "not_measured",
)  # fmt: skip
_NOT_SEEN = "NOT SEEN"
_VERSIONS = ("framework", "framework_version", "cuda", "cudnn", "nccl")


@dataclass(frozen=True)
class StepRecord:
    """How a step ended. The next call repeats it unless it is right."""

    key: str
    # A status of the suite, MEASURED or ERROR.
    status: str
    # False also for a step that was not run.
    right: bool
    # For people.
    message: str
    # The figure of a measured case, in words.
    figure: str = ""
    # Relative to the proof's folder.
    run_folders: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def ran(self) -> bool:
        return self.status != Status.NOT_RUN.value

    @property
    def wrong(self) -> bool:
        return self.ran and not self.right


@dataclass(frozen=True)
class _StateFile:
    # Facts that must be the same for a second call to continue.
    about: Mapping[str, str]
    records: tuple[StepRecord, ...]


def write_state(folder: Path, about: Mapping[str, str], records: Iterable[StepRecord]) -> None:
    state = _StateFile(about, tuple(records))
    write_whole(folder / STATE_FILE, f"{json.dumps(asdict(state), indent=1, allow_nan=False)}\n".encode())


def read_state(folder: Path, about: Mapping[str, str]) -> dict[str, StepRecord]:
    """The records in ``folder`` by their keys; none without a file. Raises ResultError if the file is another machine's
    or damaged."""
    path = folder / STATE_FILE
    remedy = "Name another folder with --out, or move this one away"
    if not path.exists():
        return {}
    try:
        found = read_as(parse(read_text_limited(path, _MOST_STATE_BYTES)), _StateFile)
    except (OSError, ValueError, RecursionError, WrongRecord) as error:
        raise ResultError(str(path), got=str(error), expected="a state of prove-gpu", remedy=remedy) from error
    if found.about != about:
        raise ResultError(str(path), field="about", got=found.about, expected=str(about), remedy=remedy)
    return {record.key: record for record in found.records}


def not_reached(steps: Sequence[ProofStep], records: Mapping[str, StepRecord]) -> list[str]:
    """The steps without a result, each with the reason if there is one."""
    found = [(step.key, records.get(step.key)) for step in steps]
    return [
        f"{key}: {record.message if record else 'not reached'}"
        for key, record in found
        if record is None or not record.ran
    ]


_COLUMNS = (
    Column[StepRecord]("step", lambda each: each.key),
    Column[StepRecord]("figure (95% interval, runs)", lambda each: each.figure or "-"),
    Column[StepRecord]("status", lambda each: each.status),
    Column[StepRecord]("", lambda each: f"{'as it must be' if each.right else 'WRONG'}: {each.message[:500]}"),
)


def summary(
    machine: Machine,
    device: str,
    steps: Sequence[ProofStep],
    records: Mapping[str, StepRecord],
    runs: Sequence[RunResult],
    date: str,
) -> str:
    """Where the proof ran, how each step ended, what the ``runs`` of all steps show of the GPU, and what was not
    reached, in Markdown."""
    done = [records[step.key] for step in steps if step.key in records and records[step.key].ran]
    wrong = ", ".join(record.key for record in done if record.wrong)
    head = f"{len(done)} of {len(steps)} steps done on {machine.device_name(device)}, until {date}."
    if device == CPU:
        head = f"**Nothing here ran on a GPU: {machine.gpu_note or 'the CPU was asked for'}.** {head}"
    parts = {
        "Where": markdown_list(_where(machine, runs)),
        "What has run": "\n".join(Table.of(_COLUMNS, done).markdown(markdown_text)),
        "What was seen of the GPU": markdown_list(f"{what}: {found}" for what, found in seen(machine, runs).items()),
        "Not run": markdown_list(not_reached(steps, records) or ["nothing: all of it was reached"]),
    }
    sections = [f"## {title}\n\n{body}" for title, body in parts.items()]
    head += f" **Wrong: {wrong}.**" if wrong else " None of them wrong."
    return "\n\n".join(["# GPU proof", head, *sections]) + "\n"


def seen(machine: Machine, runs: Sequence[RunResult]) -> dict[str, str]:
    """What the runs on a GPU say of it: of each fact the value in the last run that has it."""
    runs = [run for run in runs if run.target != CPU and run.measured]
    leased = {each for run in runs for each in run.environment.get("card_ids", "").split()}
    strange = sorted(leased - {gpu.uuid for gpu in machine.gpus})
    cards = ", ".join(sorted(leased)) + (f"; NO CARD OF THIS MACHINE: {', '.join(strange)}" if strange else "")
    steps = sum(len(run.step_seconds) for run in runs)
    peak = max((run.peak_device_bytes or 0 for run in runs), default=0)
    facts = {name: run.facts[name] for run in runs for name in _FACTS if run.facts.get(name)}
    return {
        "runs": f"{len(runs)}, with {steps} steps timed by the card's events" if steps else _NOT_SEEN,
        "leased cards": cards or _NOT_SEEN,
        "peak of device memory": f"{peak / GIB:.1f} GiB" if peak else _NOT_SEEN,
        **{name: facts.get(name, _NOT_SEEN) for name in _FACTS},
    }


def _where(machine: Machine, runs: Sequence[RunResult]) -> list[str]:
    lines = [f"machine: {machine.describe()}"]
    if machine.gpus:
        cards = ", ".join(f"{gpu.uuid} ({gpu.memory_bytes / GIB:.1f} GiB)" for gpu in machine.gpus)
        lines.append(f"driver: {machine.driver}, CUDA {machine.cuda_driver}; cards: {cards}")
    for run in runs:
        versions = [f"{name} {run.environment[name]}" for name in _VERSIONS if run.environment.get(name)]
        lines.append(f"measured with: {', '.join(versions)}")
    return list(dict.fromkeys(lines))
