"""What of the suite is for NVIDIA's GPUs alone, and whether this proof has seen it at work: found, or not and why."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.gpu_proof_plan import CPU, Kind, Proof
from benchmarks.gpu_proof_state import Record
from helpers.history.results import RunResult
from helpers.machine.devices import GIB, Machine
from helpers.machine.environment import MEMORY_MHZ, SM_MHZ

_HELD_BY = "gpu_clocks_held_by"
_ON_GPU = "decoding on GPU"


@dataclass(frozen=True)
class Sight:
    """``told`` are the numbers where it was found, else what was looked for."""

    name: str
    found: bool
    told: str


@dataclass(frozen=True)
class Seen:
    """Everything to look at: the machine, the records by key, and the usable runs of all measured steps."""

    machine: Machine
    proof: Proof
    records: Mapping[str, Record]
    runs: Sequence[RunResult]

    @property
    def gpu_runs(self) -> list[RunResult]:
        return [run for run in self.runs if run.target != CPU and run.measured]

    def facts(self, name: str) -> list[str]:
        return [run.facts[name] for run in self.gpu_runs if name in run.facts]

    def of_kind(self, kind: Kind) -> list[Record]:
        return [self.records[step.key] for step in self.proof.steps if step.kind is kind and step.key in self.records]


def sights(seen: Seen) -> tuple[Sight, ...]:
    """In the issue's order."""
    return tuple(Sight(name, *look(seen)) for name, look in _LOOKS)


Look = Callable[[Seen], tuple[bool, str]]


def _discovery(seen: Seen) -> tuple[bool, str]:
    gpus = seen.machine.gpus
    if not gpus:
        return False, seen.machine.gpu_note or "NVML finds no card"
    told = [
        f"{gpu.name}, {gpu.memory_bytes / GIB:.1f} GiB, sm_{gpu.compute_capability[0]}{gpu.compute_capability[1]}"
        for gpu in gpus
    ]
    return True, f"{'; '.join(told)}; driver {seen.machine.driver}, CUDA {seen.machine.cuda_driver}"


def _health(seen: Seen) -> tuple[bool, str]:
    names = ("gpu_temperature_c", "gpu_hottest_c", "gpu_power_watts", "gpu_uncorrected_ecc", "gpu_power_limit_watts")
    told = {name: found[-1] for name in names if (found := seen.facts(name))}
    if not told:
        return False, "no run has NVML's samples"
    return True, f"{', '.join(f'{name} {value}' for name, value in told.items())}; not measured: " + "; ".join(
        sorted(set(seen.facts("not_measured"))) or ["nothing"]
    )


def _clocks(seen: Seen) -> tuple[bool, str]:
    found = [float(each.split()[0]) for each in seen.facts(SM_MHZ)]
    if not found:
        return False, "no run has clock samples in its window"
    memory = ", ".join(sorted(set(seen.facts(MEMORY_MHZ)))) or "not told"
    return True, f"SM {min(found):.0f} to {max(found):.0f} MHz over {len(found)} runs, memory {memory} MHz"


def _throttling(seen: Seen) -> tuple[bool, str]:
    found = seen.facts(_HELD_BY)
    if not found:
        return False, "no run has NVML's reasons in its window"
    told = sorted({each for each in found if each})
    return True, f"looked at in {len(found)} runs: {'; '.join(told) or 'nothing held the clocks'}"


def _leases(seen: Seen) -> tuple[bool, str]:
    cards = {gpu.uuid for gpu in seen.machine.gpus}
    used = {each for run in seen.gpu_runs for each in run.environment.get("card_ids", "").split()}
    if not used:
        return False, "no run on a leased GPU"
    return used <= cards, f"{len(seen.gpu_runs)} runs on {', '.join(sorted(used))}"


def _visible(seen: Seen) -> tuple[bool, str]:
    """The program that measured a peak must have seen the card that the lease's UUID names in CUDA_VISIBLE_DEVICES."""
    cards = {gpu.uuid for gpu in seen.machine.gpus}
    told = set(seen.facts("peak_uuid")) - {""}
    if not told:
        return False, "PyTorch has told no card's UUID"
    return told <= cards, f"the only card that PyTorch saw: {', '.join(sorted(told))}"


def _memory(seen: Seen) -> tuple[bool, str]:
    peaks = {run.case_id: run.peak_device_bytes for run in seen.gpu_runs if run.peak_device_bytes}
    if not peaks:
        return False, "no run has a peak of device memory"
    most = max(peaks, key=lambda case_id: peaks[case_id])
    return True, f"{len(peaks)} cases, the most {peaks[most] / GIB:.1f} GiB ({most})"


def _does_not_fit(seen: Seen) -> tuple[bool, str]:
    records = seen.of_kind(Kind.TOO_LARGE)
    return _shown(records, "no batch was too large")


def _dali(seen: Seen) -> tuple[bool, str]:
    found = [run for run in seen.gpu_runs if _ON_GPU in run.facts.get("loader", "")]
    if not found:
        reasons = [r.told for r in seen.records.values() if "-dali" in r.case_id and not r.run_images_per_s]
        return False, "; ".join(dict.fromkeys(reasons)) or "no run decoded on a GPU"
    return True, f"{found[-1].facts['loader']}; waiting for data {found[-1].reader_share or 0:.1%} of the window"


def _events(seen: Seen) -> tuple[bool, str]:
    runs = [run for run in seen.gpu_runs if run.step_seconds]
    if not runs:
        return False, "no step was timed on a GPU"
    steps = sum(len(run.step_seconds) for run in runs)
    last = 1000 * statistics.median(runs[-1].step_seconds)
    return True, f"{steps} steps in {len(runs)} runs; a run without the driver's events fails; the last's {last:.2f} ms"


def _neighbours(seen: Seen) -> tuple[bool, str]:
    records = seen.of_kind(Kind.NEIGHBOUR)
    if seen.proof.device == CPU:
        return False, f"no GPU; a process beside the job on the cores {_seen_on_cores(records)}"
    return _shown(records, "not tried")


def _seen_on_cores(records: Sequence[Record]) -> str:
    if not records or not records[-1].right:
        return "has not been seen"
    return "was seen" if records[-1].extra.get("named") else "was not told from others who were there too"


def _graphs(seen: Seen) -> tuple[bool, str]:
    found = [run for run in seen.gpu_runs if run.case_id.endswith("-graphs")]
    return bool(found), found[-1].case_id if found else "no run captured one"


def _shown(records: Sequence[Record], otherwise: str) -> tuple[bool, str]:
    return (records[-1].right, records[-1].told) if records else (False, otherwise)


_LOOKS: tuple[tuple[str, Look], ...] = (
    ("device discovery by NVML", _discovery),
    ("device health by NVML", _health),
    ("clock samples in the window", _clocks),
    ("throttle reasons in the window", _throttling),
    ("leases by UUID", _leases),
    ("CUDA_VISIBLE_DEVICES", _visible),
    ("peak device memory", _memory),
    ("a batch that does not fit is told as such", _does_not_fit),
    ("DALI decodes on the GPU", _dali),
    ("steps timed by CUDA events", _events),
    ("foreign processes", _neighbours),
    ("CUDA graphs", _graphs),
)
