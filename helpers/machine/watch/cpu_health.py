"""Checks whether the processor was fit for measuring during the window: quota, heat, frequency, swapping.

It reads only files that need no root rights. A value that the kernel does not show is reported as not measured; it
never counts as healthy.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from helpers.common.unknown import Unknown, ask
from helpers.machine.environment import CPU_MHZ, CPU_MOST_MHZ
from helpers.machine.host import control_groups, frequency_bounds
from helpers.machine.watch import CPU_CLOCK_SHARE, Norm

# The smallest change of throughput that counts (tolerances in perf.yaml). A core that was stopped for a smaller share
# of the window cannot have caused such a change.
_STOPPED_SHARE = 0.005
# 1 MiB in pages of 4 KiB. Fewer pages, of another program, do not disturb.
_SWAPPED_PAGES = 256
# How long a page from a slow disk takes. Every program reads a few of its files late.
_DISK_WAIT_SECONDS = 0.01
# Reading a frequency file takes 10 us or more, so only about so many cores are read.
_MOST_CORES = 16


@dataclass(frozen=True)
class QuotaCount:
    """A control group's counters since it was made."""

    # Periods in which the group was stopped.
    stopped: int
    # Seconds that the group lost.
    seconds: float


@dataclass(frozen=True)
class CpuLook:
    """One look at the processor; all counts are cumulative."""

    at: float
    # By control group.
    quota: Mapping[str, QuotaCount] | Unknown
    # The frequency of each core.
    mhz: Mapping[int, float] | Unknown
    # By core: the highest frequency that the governor may choose, and the highest of the hardware.
    most_mhz: Mapping[int, tuple[float, float]] | Unknown
    # How often each core, and its package, was slowed by heat.
    heat: Mapping[str, int] | Unknown
    # Pages of the whole machine.
    swapped_in: int | Unknown
    # Page faults of the job's processes that had to wait for a disk.
    major_faults: int = 0


class CpuHealth:
    """Takes samples of the leased cores. With ``norm`` None nothing is compared with recorded values.

    Without ``clocks`` frequencies are not looked at: the cores of a GPU's rank are mostly idle, and then their clock
    says nothing.
    """

    def __init__(
        self, cores: Collection[int], norm: Norm | None = None, root: Path = Path("/"), *, clocks: bool = True
    ) -> None:
        # Spread over all of them, so that every package is among them.
        self._cores = sorted(cores)[:: -(-len(cores) // _MOST_CORES) or 1]
        self._clocks = clocks
        self._norm = norm
        self._root = root
        # The control groups of this process do not change while a job runs.
        self._groups = [folder for folder in control_groups(root, "cpu") if (folder / "cpu.stat").exists()]
        self.looks: list[CpuLook] = []

    def sample(self, at: float, major_faults: int) -> None:
        """Look once; ``major_faults`` are those of the job's processes so far."""
        cpu, clocked = self._root / "sys/devices/system/cpu", self._cores if self._clocks else []
        self.looks.append(
            CpuLook(
                at,
                ask(self._quota),
                ask(lambda: frequencies(cpu, clocked, self._root / "proc/cpuinfo")),
                ask(lambda: {core: frequency_bounds(cpu / f"cpu{core}/cpufreq") for core in clocked}),
                ask(lambda: _heat(cpu, self._cores)),
                ask(lambda: _swapped_in((self._root / "proc/vmstat").read_text())),
                major_faults,
            )
        )

    def _quota(self) -> dict[str, QuotaCount]:
        if not self._groups:
            raise ValueError("no control group of this process is visible here")
        return {str(folder): quota_count((folder / "cpu.stat").read_text()) for folder in self._groups}

    def unhealthy(self, window: tuple[float, float] | None) -> tuple[str, ...]:
        around = _around(self.looks, window)
        if window is None or len(around) < 2:
            return ()
        first, last = around[0], around[-1]
        found = [
            *_stopped(first, last),
            *_heated(first, last),
            *_swapped(first, last),
            *_slower(_inside(self.looks, window), _before(self.looks, window), self._norm),
            *_capped(first, last, self._norm),
        ]
        return tuple(found)

    def facts(self, window: tuple[float, float] | None) -> dict[str, str]:
        """The medians in the window, and the names of values that could not be measured."""
        around = _around(self.looks, window)
        if window is None or not around:
            return {}
        found = {}
        mhz = _median_mhz(_inside(self.looks, window))
        if mhz is not None:
            found[CPU_MHZ] = f"{mhz:.0f}"
        last = around[-1]
        if not isinstance(last.most_mhz, Unknown) and last.most_mhz:
            found[CPU_MOST_MHZ] = f"{min(most for most, _ in last.most_mhz.values()):.0f}"
        names = {
            "cgroup quota": last.quota,
            "core frequency": last.mhz,
            "frequency cap": last.most_mhz,
            "slow-downs by heat": last.heat,
            "swapping": last.swapped_in,
        }
        missing = [f"{name} ({value.reason})" for name, value in names.items() if isinstance(value, Unknown)]
        return {**found, **({"not_measured": "; ".join(missing)} if missing else {})}


def quota_count(stat: str) -> QuotaCount:
    """From a group's ``cpu.stat``; version 2 counts microseconds, version 1 nanoseconds. Zero without a quota."""
    values = dict(re.findall(r"^(\w+) (\d+)$", stat, re.MULTILINE))
    seconds = int(values.get("throttled_usec", 0)) / 1e6 + int(values.get("throttled_time", 0)) / 1e9
    return QuotaCount(int(values.get("nr_throttled", 0)), seconds)


def frequencies(cpu: Path, cores: Sequence[int], cpuinfo: Path) -> dict[int, float]:
    """MHz of each core now, by cpufreq, else by ``/proc/cpuinfo`` (on a virtual machine often a constant)."""
    files = {core: cpu / f"cpu{core}/cpufreq/scaling_cur_freq" for core in cores}
    if all(path.exists() for path in files.values()):
        return {core: int(path.read_text()) / 1000 for core, path in files.items()}
    text = cpuinfo.read_text(encoding="utf-8", errors="replace")
    pairs = re.findall(r"^processor\s*:\s*(\d+)$.*?^cpu MHz\s*:\s*([\d.]+)$", text, re.MULTILINE | re.DOTALL)
    found = {int(core): float(mhz) for core, mhz in pairs if int(core) in cores}
    if len(found) < len(cores):
        raise ValueError("no frequency of these cores is visible here")
    return found


def _heat(cpu: Path, cores: Sequence[int]) -> dict[str, int]:
    found = {}
    for core in cores:
        for kind in ("core", "package"):
            path = cpu / f"cpu{core}/thermal_throttle/{kind}_throttle_count"
            if path.exists():
                found[f"core {core}" if kind == "core" else f"the package of core {core}"] = int(path.read_text())
    if not found:
        raise ValueError("no thermal counters are visible here")
    return found


def _swapped_in(vmstat: str) -> int:
    match = re.search(r"^pswpin (\d+)$", vmstat, re.MULTILINE)
    if match is None:
        raise ValueError("/proc/vmstat has no pswpin")
    return int(match.group(1))


def _stopped(first: CpuLook, last: CpuLook) -> list[str]:
    if isinstance(first.quota, Unknown) or isinstance(last.quota, Unknown):
        return []
    found = []
    for group, after in last.quota.items():
        before = first.quota.get(group, QuotaCount(0, 0.0))
        stopped, seconds = after.stopped - before.stopped, after.seconds - before.seconds
        if stopped > 0 and seconds > _STOPPED_SHARE * (last.at - first.at):
            found.append(
                f"CPU quota of the control group {group}: stopped in {stopped} periods, {seconds:.1f} s of all cores in"
                f" {last.at - first.at:.1f} s (give the container cores instead: docker run --cpuset-cpus)"
            )
    # When an outer group is stopped, the groups inside it are stopped and count it too, so only one is reported.
    return found[:1]


def _heated(first: CpuLook, last: CpuLook) -> list[str]:
    if isinstance(first.heat, Unknown) or isinstance(last.heat, Unknown):
        return []
    rises = {name: count - first.heat.get(name, 0) for name, count in last.heat.items()}
    slowed = [f"{name} {rise} times" for name, rise in rises.items() if rise > 0]
    return [f"slowed by heat: {', '.join(slowed)} (check fans and air flow)"] if slowed else []


def _swapped(first: CpuLook, last: CpuLook) -> list[str]:
    if isinstance(first.swapped_in, Unknown) or isinstance(last.swapped_in, Unknown):
        return []
    pages, faults = last.swapped_in - first.swapped_in, last.major_faults - first.major_faults
    if pages < _SWAPPED_PAGES or faults * _DISK_WAIT_SECONDS <= _STOPPED_SHARE * (last.at - first.at):
        return []
    return [
        f"swapping: {pages} pages came back from swap, and the job waited for a disk {faults} times"
        " (free memory, then sudo swapoff -a && sudo swapon -a)"
    ]


def _slower(inside: Sequence[CpuLook], before: Sequence[CpuLook], norm: Norm | None) -> list[str]:
    """Reasons, if the cores were slower than in warm-up under the same load, or slower than when the case was
    recorded."""
    now, then = _median_mhz(inside), _median_mhz(before)
    if now is None:
        return []
    found = []
    if then is not None and now < then * (1 - CPU_CLOCK_SHARE):
        found.append(f"core frequency fell to {now:.0f} MHz, from {then:.0f} MHz before the window (heat, or a cap)")
    recorded = norm.clock(CPU_MHZ) if norm is not None else None
    if recorded is not None and now < recorded * (1 - CPU_CLOCK_SHARE):
        found.append(
            f"core frequency {now:.0f} MHz, recorded at {recorded:.0f} MHz (cpupower frequency-info says what bounds"
            " it; or record the case again with --update-baselines)"
        )
    return found


def _capped(first: CpuLook, last: CpuLook, norm: Norm | None) -> list[str]:
    if isinstance(first.most_mhz, Unknown) or isinstance(last.most_mhz, Unknown):
        return []
    if not first.most_mhz or not last.most_mhz:
        return []
    found = []
    before = min(most for most, _ in first.most_mhz.values())
    now = min(most for most, _ in last.most_mhz.values())
    if now != before:
        found.append(f"frequency cap changed in the window, from {before:.0f} to {now:.0f} MHz")
    # Without a recorded entry the cap is taken as chosen by the machine's owner; only the doctor reports it.
    recorded = norm.clock(CPU_MOST_MHZ) if norm is not None else None
    if recorded is not None and now != recorded:
        found.append(
            f"frequency cap {now:.0f} MHz, recorded at {recorded:.0f} MHz (sudo cpupower frequency-set -u"
            f" {recorded:.0f}MHz, or record the case with --update-baselines)"
        )
    return found


def _median_mhz(looks: Sequence[CpuLook]) -> float | None:
    found = [statistics.median(look.mhz.values()) for look in looks if not isinstance(look.mhz, Unknown) and look.mhz]
    return statistics.median(found) if found else None


def _around(looks: Sequence[CpuLook], window: tuple[float, float] | None) -> list[CpuLook]:
    """The looks in the window, with the last one before and the first one after it."""
    if window is None:
        return []
    inside = _inside(looks, window)
    before = [look for look in looks if look.at < window[0]][-1:]
    after = [look for look in looks if look.at > window[1]][:1]
    return [*before, *inside, *after]


def _inside(looks: Sequence[CpuLook], window: tuple[float, float]) -> list[CpuLook]:
    return [look for look in looks if window[0] <= look.at <= window[1]]


def _before(looks: Sequence[CpuLook], window: tuple[float, float]) -> list[CpuLook]:
    """Looks at the end of warm-up, over a time as long as the window. At the start of warm-up a single core may run at
    a boosted clock."""
    start = window[0] - (window[1] - window[0])
    return [look for look in looks if look.at < window[0] and look.at >= max(start, (looks[0].at + window[0]) / 2)]
