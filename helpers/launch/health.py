"""Whether GPUs were fit to be measured, and alone: looks at clocks, throttling, ECC and foreign processes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from helpers.launch.contention import ContentionSample, ForeignProcess
from helpers.launch.processes import Process
from helpers.nvml import Gpu, GpuState, Nvml

# NVML's clocks-event reasons that mean the card ran below what it can (nvml.h, nvmlClocksEventReasons).
# The software power cap (0x4) is not one of them: a V100 or A100 under full load sits at it by design,
# and the cap itself belongs to the segment.
THROTTLE_REASONS = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}


@dataclass(frozen=True)
class HealthSample:
    """One look at one GPU, ``at`` in monotonic seconds."""

    at: float
    uuid: str
    state: GpuState


def unhealthy_reasons(
    samples: Sequence[HealthSample], cards: Collection[str], window: tuple[float, float] | None
) -> tuple[str, ...]:
    """Why cards (UUIDs) were not fit during the window: throttled, an ECC error, or never looked at."""
    if window is None:
        return ()
    reasons = []
    for uuid in sorted(cards):
        # An ECC error before the window (a page about to be retired) counts, too.
        seen = [sample for sample in samples if sample.uuid == uuid and sample.at <= window[1]]
        inside = [sample for sample in seen if sample.at >= window[0]]
        if not inside:
            reasons.append(f"{uuid}: no look at it during the window")
            continue
        for bit, name in THROTTLE_REASONS.items():
            hits = sum(1 for sample in inside if sample.state.throttle_reasons & bit)
            if hits:
                hottest = max(sample.state.temperature_c for sample in inside)
                slowest = min(sample.state.sm_clock_mhz for sample in inside)
                text = f"{name} in {hits} of {len(inside)} looks, down to {slowest} MHz, up to {hottest} °C"
                reasons.append(f"{uuid}: {text}")
        errors = seen[-1].state.uncorrected_ecc
        if errors:
            reasons.append(f"{uuid}: {errors} uncorrected ECC errors since the driver was loaded")
    return tuple(reasons)


class GpuMeter:
    """Looks at the leased GPUs, at most every ``every_seconds``: NVML's answers cost milliseconds.

    The first look must come before the job starts: who sits on a card then is foreign.
    """

    def __init__(
        self, nvml: Nvml, gpus: Sequence[Gpu], *, every_seconds: float = 0.5, proc: Path = Path("/proc")
    ) -> None:
        self._nvml = nvml
        self._gpus = tuple(gpus)
        self._every = every_seconds
        self._proc = proc
        self._before: dict[str, frozenset[int]] = {}
        self._foreign: list[tuple[float, frozenset[int]]] = []
        self.samples: list[HealthSample] = []

    def sample(self, at: float, own: Collection[int], everyone: Collection[Process] | None) -> None:
        if self._foreign and at - self._foreign[-1][0] < self._every:
            return
        foreign: set[int] = set()
        for gpu in self._gpus:
            self.samples.append(HealthSample(at, gpu.uuid, self._nvml.state(gpu)))
            users = frozenset(self._nvml.compute_processes(gpu))
            before = self._before.setdefault(gpu.uuid, users)
            foreign |= self._strangers(users, before, own)
        self._foreign.append((at, frozenset(foreign)))

    def contention(self, window: tuple[float, float] | None) -> ContentionSample:
        if window is None or window[1] <= window[0]:
            return ContentionSample(None, note="the run has no measured window")
        looks = [pids for at, pids in self._foreign if window[0] <= at <= window[1]]
        if not looks:
            return ContentionSample(None, note="no look at the cards during the measured window")
        seconds = window[1] - window[0]
        pids = sorted(set().union(*looks))
        shares = {pid: sum(pid in look for look in looks) / len(looks) for pid in pids}
        top = tuple(ForeignProcess(self._name(pid), pid, shares[pid] * seconds) for pid in pids)
        return ContentionSample(sum(bool(look) for look in looks) / len(looks), top, seconds)

    def unhealthy(self, window: tuple[float, float] | None) -> tuple[str, ...]:
        return unhealthy_reasons(self.samples, [gpu.uuid for gpu in self._gpus], window)

    def _strangers(self, users: frozenset[int], before: frozenset[int], own: Collection[int]) -> set[int]:
        """Who on a card is not the job.

        In a container NVML may number processes as the host does. Such a process cannot be told from the
        job's own ranks, so as many as there are ranks pass, unless they sat there before the job.
        """
        new = users - before
        unseen = sorted(pid for pid in new if not (self._proc / str(pid)).exists())
        allowed = set(unseen[: len(self._gpus)]) if not new & set(own) else set()
        return set(users & before) | {pid for pid in new if pid not in own and pid not in allowed}

    def _name(self, pid: int) -> str:
        path = self._proc / str(pid) / "comm"
        return path.read_text().strip() if path.exists() else "a process of another container"
