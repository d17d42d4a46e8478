"""Row 13: the card or the processor is slower than it should be, by heat, caps, clocks, errors or a container's quota.

A stand-in behind the NVML interface plays the card, which the suite's own adapter and meter read. The processor's quota
is a real control group; heat and frequency are files in the kernel's place, in a mount namespace of the suite's own.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from helpers.machine.devices import discover
from tests.faults import gpu_shop
from tests.faults.control_group import enter_words, made_group
from tests.faults.fault import Fault, Seen, expect
from tests.faults.gpu_shop import STAND_IN, furnish, state_file
from tests.faults.handled import ended_as
from tests.faults.small_disk import why_no_mount
from tests.faults.stand_in_nvml import Card
from tests.faults.traces import KEEPS_BUSY, with_cases
from tests.faults.workshop import Finished, Running, Workshop

# Row 12 has runs that are made again.
_ONCE = {"repeats": 0, "first_runs": 2}
_CPU = "sys/devices/system/cpu"


def _invalid(workshop: Workshop, done: Finished, *expected: str) -> Seen:
    """Expects INVALID with all ``expected`` texts in its reason, and never a performance verdict."""
    missing = ((each in done.reason, f"{each!r} is missing: {done.reason}") for each in expected)
    return ended_as(workshop, done, "INVALID", 6, *missing)


# ---- cards


def _hot_card(workshop: Workshop) -> Seen:
    """The card is so from before the case to its end."""
    furnish(workshop, Card(throttle=0x40, temperature_c=84, sm_mhz=900), budgets=_ONCE)
    return _invalid(workshop, gpu_shop.run(workshop), "hardware thermal slowdown", "900 MHz", "84 °C")


def _other_cap(workshop: Workshop) -> Seen:
    """The card is fit, and other than when the case was recorded."""
    furnish(workshop, Card(), budgets=_ONCE)
    first = gpu_shop.run(workshop, "--update-baselines", session="recording")
    Card(power_limit_watts=250).write(state_file(workshop))
    seen = _invalid(workshop, gpu_shop.run(workshop), "power cap 250 W, recorded at 300 W")
    recorded = expect((first.exit_code == 0 and "created" in first.output, f"not recorded: {first.output[-600:]}"))
    return replace(seen, wrong=(*recorded, *seen.wrong))


# ---- the processor


@dataclass(frozen=True)
class _Quota:
    """A control group that may be given less than a core."""

    folder: Path

    @property
    def prefix(self) -> tuple[str, ...]:
        return enter_words(self.folder)

    def take(self, share: float) -> None:
        """Leave the group this share of one core from now on, in version 2 or 1 of control groups."""
        period, quota = 100_000, round(share * 100_000)
        if (self.folder / "cpu.max").exists():
            (self.folder / "cpu.max").write_text(f"{quota} {period}", encoding="utf-8")
        else:
            (self.folder / "cpu.cfs_quota_us").write_text(str(quota), encoding="utf-8")


@contextlib.contextmanager
def _cpu_group() -> Iterator[_Quota]:
    """Make a CPU control group. Raises OSError where this process may not."""
    with made_group("cpu", _limits_time) as folder:
        yield _Quota(folder)


def _limits_time(folder: Path) -> bool:
    return any((folder / name).exists() for name in ("cpu.max", "cpu.cfs_quota_us"))


def _why_no_quota() -> str:
    try:
        with _cpu_group():
            return ""
    except OSError as error:
        return f"no CPU control group can be made: {error}"


def _quota(workshop: Workshop) -> Seen:
    """The suite's group gets a fifth of a core when its trainer has begun."""
    workshop.configure(with_cases([1], budgets=_ONCE))
    with _cpu_group() as group:

        def during(running: Running) -> None:
            running.wait_for(lambda: running.steps() >= 1)
            group.take(0.2)

        done = workshop.run(fault=KEEPS_BUSY, during=during, prefix=group.prefix)
    return _invalid(workshop, done, "CPU quota of the control group", str(group.folder))


class _Cores:
    """Stands in for the kernel's files on the leased core: a folder that is laid over them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._cores = [core for card in discover().cpu_cards for core in card.cores]
        for core in self._cores:
            source = Path("/") / _CPU / f"cpu{core}" / "topology"
            shutil.copytree(source, folder / f"cpu{core}" / "topology", copy_function=_copy_text)
        for name in ("online", "present", "possible"):
            _copy_text(str(Path("/") / _CPU / name), str(folder / name))
        self.put("cpufreq/scaling_cur_freq", 3_000_000)
        self.put("cpufreq/scaling_max_freq", 3_000_000)
        self.put("cpufreq/cpuinfo_max_freq", 3_000_000)
        self.put("cpufreq/scaling_governor", "performance")
        self.put("thermal_throttle/core_throttle_count", 0)
        self.put("thermal_throttle/package_throttle_count", 0)

    def put(self, name: str, value: object) -> None:
        for core in self._cores:
            path = self._folder / f"cpu{core}" / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"{value}\n", encoding="utf-8")

    @property
    def prefix(self) -> tuple[str, ...]:
        """Words before a command line that show it the files, in a mount namespace of its own."""
        return ("unshare", "-m", "sh", "-c", f'mount --bind "$0" /{_CPU} && exec "$@"', str(self._folder))


def _copy_text(source: str, target: str) -> None:
    # What the kernel makes up as it is read has no size.
    with contextlib.suppress(OSError):
        Path(target).write_text(Path(source).read_text(encoding="utf-8"), encoding="utf-8")


def _hot_core(workshop: Workshop) -> Seen:
    """The core's counter rises in the window's middle."""

    def change(config: dict[str, object]) -> None:
        with_cases([1], budgets=_ONCE)(config)
        config["protocols"]["cpu"] |= {"warmup_steps": 60, "most_warmup_steps": 60, "window_steps": 100}  # type: ignore[index]

    workshop.configure(change)
    cores = _Cores(workshop.folder / "cpu")

    def during(running: Running) -> None:
        running.wait_for(lambda: running.steps() >= 62)
        cores.put("thermal_throttle/core_throttle_count", 7)

    return _invalid(workshop, workshop.run(during=during, prefix=cores.prefix), "slowed by heat", "7 times")


def _why_no_namespace() -> str:
    if why := why_no_mount():
        return why
    done = subprocess.run(["unshare", "-m", "true"], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"no mount namespace can be made: {done.stderr.strip()}"


FAULTS = [
    Fault(13, "card slowed by heat", f"hardware thermal slowdown, 84 °C; {STAND_IN}", _hot_card),
    Fault(13, "another power cap than recorded", f"recorded at 300 W, now 250 W; {STAND_IN}", _other_cap),
    Fault(13, "CPU quota of a container", "the suite's control group gets a fifth of a core in the run", _quota,
          needs=_why_no_quota),
    Fault(13, "processor slowed by heat",
          "the core's thermal counter rises in the window; by files laid over the kernel's", _hot_core,
          needs=_why_no_namespace),
]  # fmt: skip
