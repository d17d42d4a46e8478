"""Quota, heat, frequency and swap of the leased cores: from files of a stand-in /proc and /sys, and one real quota."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from pathlib import Path

import pytest

from helpers.machine.watch import Norm
from helpers.machine.watch.cpu_health import CpuHealth, QuotaCount, quota_count
from tests.faults.control_group import enter_words, made_group
from tests.helpers.machines import write

WINDOW = (10.0, 20.0)
CPU = "sys/devices/system/cpu"


def machine(root: Path, **values: int) -> None:
    """Two cores at 3 GHz, no quota used up, no heat, no swap; ``values`` change it."""
    now = {"mhz": 3000, "most": 3400, "heat": 0, "package": 0, "stopped": 0, "lost_us": 0, "swap": 0, **values}
    for core in (0, 1):
        write(root, {
            f"{CPU}/cpu{core}/cpufreq/scaling_cur_freq": f"{now['mhz'] * 1000}\n",
            f"{CPU}/cpu{core}/cpufreq/scaling_max_freq": f"{now['most'] * 1000}\n",
            f"{CPU}/cpu{core}/thermal_throttle/core_throttle_count": f"{now['heat']}\n",
            f"{CPU}/cpu{core}/thermal_throttle/package_throttle_count": f"{now['package']}\n",
        })  # fmt: skip
    write(root, {
        "proc/self/cgroup": "0::/job\n",
        "proc/vmstat": f"pgpgin 5\npswpin {now['swap']}\n",
        "sys/fs/cgroup/job/cpu.stat": f"usage_usec 9\nnr_periods 100\nnr_throttled {now['stopped']}\n"
                                      f"throttled_usec {now['lost_us']}\n",
    })  # fmt: skip


def watched(root: Path, norm: Norm | None = None, *, during: dict[str, int], faults: int = 0) -> CpuHealth:
    """Looks every 2 s; from 10 s on the machine is as ``during`` says."""
    machine(root)
    health = CpuHealth((0, 1), norm, root)
    for at in range(0, 10, 2):
        health.sample(float(at), 0)
    machine(root, **during)
    for at in range(10, 23, 2):
        health.sample(float(at), faults)
    return health


def test_a_processor_in_order_is_fit_and_its_clock_is_told(tmp_path: Path) -> None:
    health = watched(tmp_path, Norm(), during={})
    assert health.unhealthy(WINDOW) == ()
    assert health.facts(WINDOW) == {"cpu_mhz": "3000", "cpu_most_mhz": "3400"}
    assert health.unhealthy(None) == () and health.facts(None) == {}


def test_a_quota_that_stopped_the_job_is_told_with_its_group(tmp_path: Path) -> None:
    (reason,) = watched(tmp_path, during={"stopped": 40, "lost_us": 3_000_000}).unhealthy(WINDOW)
    assert reason.startswith("CPU quota of the control group ") and "/job: stopped in 40 periods, 3.0 s" in reason
    assert "--cpuset-cpus" in reason
    # It cost less than what counts.
    assert watched(tmp_path, during={"stopped": 1, "lost_us": 50_000}).unhealthy(WINDOW) == ()


def test_stopping_before_the_window_does_not_count(tmp_path: Path) -> None:
    machine(tmp_path)
    health = CpuHealth((0, 1), None, tmp_path)
    health.sample(0.0, 0)
    machine(tmp_path, stopped=40, lost_us=3_000_000, heat=3, swap=10_000)
    for at in (8.0, 12.0, 22.0):
        health.sample(at, 5)
    assert health.unhealthy(WINDOW) == ()


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("nr_periods 9\nnr_throttled 5\nthrottled_usec 1500000\n", QuotaCount(5, 1.5)),
        ("nr_periods 9\nnr_throttled 5\nthrottled_time 1500000000\n", QuotaCount(5, 1.5)),
        ("usage_usec 5\n", QuotaCount(0, 0.0)),
    ],
)
def test_both_versions_of_control_groups_are_read(text: str, count: QuotaCount) -> None:
    assert quota_count(text) == count


def test_slow_downs_by_heat_are_counted_by_core_and_package(tmp_path: Path) -> None:
    (reason,) = watched(tmp_path, during={"heat": 2, "package": 7}).unhealthy(WINDOW)
    assert reason.startswith("slowed by heat: core 0 2 times, the package of core 0 7 times, core 1 2 times")


def test_a_clock_that_falls_and_a_cap_that_is_set_in_the_window_are_told(tmp_path: Path) -> None:
    (reason,) = watched(tmp_path, during={"mhz": 2000}).unhealthy(WINDOW)
    assert "fell to 2000 MHz, from 3000 MHz" in reason
    assert watched(tmp_path, during={"mhz": 2800}).unhealthy(WINDOW) == ()
    (reason,) = watched(tmp_path, during={"most": 2500}).unhealthy(WINDOW)
    assert reason == "frequency cap changed in the window, from 3400 to 2500 MHz"


def test_the_boost_of_one_core_at_the_start_is_not_what_the_window_is_held_against(tmp_path: Path) -> None:
    health = CpuHealth((0, 1), None, tmp_path)
    for at, mhz in ((0.0, 4000), (2.0, 4000), (6.0, 3000), (9.0, 3000), (12.0, 3000), (21.0, 3000)):
        machine(tmp_path, mhz=mhz)
        health.sample(at, 0)
    assert health.unhealthy(WINDOW) == ()


def test_another_clock_or_cap_than_recorded_is_told_with_the_remedy(tmp_path: Path) -> None:
    norm = Norm(True, clocks={"cpu_mhz": (3500.0,), "cpu_most_mhz": (4000.0,)})
    clock, cap = watched(tmp_path, norm, during={}).unhealthy(WINDOW)
    assert "core frequency 3000 MHz, recorded at 3500 MHz" in clock and "--update-baselines" in clock
    assert "frequency cap 3400 MHz, recorded at 4000 MHz (sudo cpupower frequency-set -u 4000MHz" in cap


@pytest.mark.parametrize("norm", [Norm(), None, Norm(True)])
def test_a_cap_that_nothing_was_recorded_at_is_its_owners_will(tmp_path: Path, norm: Norm | None) -> None:
    machine(tmp_path, most=2000)
    health = CpuHealth((0, 1), norm, tmp_path)
    for at in (9.0, 15.0, 21.0):
        health.sample(at, 0)
    assert health.unhealthy(WINDOW) == ()
    assert health.facts(WINDOW)["cpu_most_mhz"] == "2000"


def test_swapping_counts_when_the_job_waited_for_it(tmp_path: Path) -> None:
    (reason,) = watched(tmp_path, during={"swap": 5000}, faults=12).unhealthy(WINDOW)
    assert reason.startswith("swapping: 5000 pages came back from swap, and the job waited for a disk 12 times")
    assert watched(tmp_path, during={"swap": 5000}).unhealthy(WINDOW) == ()
    assert watched(tmp_path, during={"swap": 5}, faults=12).unhealthy(WINDOW) == ()
    # Another program's pages, while the job read a few of its own files in.
    assert watched(tmp_path, during={"swap": 5000}, faults=3).unhealthy(WINDOW) == ()


def test_what_the_kernel_hides_is_told_as_not_measured(tmp_path: Path) -> None:
    health = CpuHealth((0, 1), Norm(), tmp_path)
    for at in (9.0, 15.0, 21.0):
        health.sample(at, 0)
    assert health.unhealthy(WINDOW) == ()
    missing = health.facts(WINDOW)["not_measured"]
    hidden = ("cgroup quota (no control", "core frequency (", "frequency cap (", "slow-downs by heat (no", "swapping (")
    assert [name for name in hidden if name not in missing] == []


def test_a_clock_of_cpuinfo_stands_in_where_there_is_no_cpufreq(tmp_path: Path) -> None:
    write(tmp_path, {"proc/cpuinfo": "".join(
        f"processor\t: {core}\nmodel name\t: x\ncpu MHz\t\t: {2500.5 + core}\n\n" for core in range(3)
    )})  # fmt: skip
    health = CpuHealth((1, 2), None, tmp_path)
    for at in (9.0, 15.0, 21.0):
        health.sample(at, 0)
    assert health.facts(WINDOW)["cpu_mhz"] == "2502"


# Works until its control group has been stopped three times more, however busy the machine is.
BUSY = """import re, sys, time
def stopped(): return int(re.search(r"^nr_throttled (\\d+)$", open(sys.argv[1]).read(), re.MULTILINE)[1])
print("ready", flush=True)
sys.stdin.readline()
wanted, latest = stopped() + 3, time.monotonic() + 60
while stopped() < wanted and time.monotonic() < latest: pass"""


def limited(folder: Path) -> bool:
    """Give the group a fiftieth of a core; whether it has a CPU controller."""
    files = {"cpu.max": "2000 100000", "cpu.cfs_quota_us": "2000"}
    found = [name for name in files if (folder / name).exists()]
    for name in found:
        (folder / name).write_text(files[name])
    return bool(found)


def test_a_real_quota_that_stops_a_busy_process_is_found(tmp_path: Path) -> None:
    with contextlib.ExitStack() as held:
        try:
            group = held.enter_context(made_group("cpu", limited))
        except OSError as error:
            pytest.skip(str(error))
        words = [*enter_words(group), sys.executable, "-c", BUSY, str(group / "cpu.stat")]
        process = held.enter_context(subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        held.callback(process.kill)
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        # The job's place in the tree, and the kernel's own files.
        write(tmp_path, {"proc/self/cgroup": Path(f"/proc/{process.pid}/cgroup").read_text()})
        (tmp_path / "sys").symlink_to("/sys")
        health = CpuHealth((0,), None, tmp_path)
        health.sample(time.monotonic(), 0)
        start = time.monotonic()
        process.communicate(b"\n", timeout=90)
        end = time.monotonic()
        health.sample(time.monotonic(), 0)
    assert any(f"control group {tmp_path}" in reason for reason in health.unhealthy((start, end))), health.looks


def test_of_the_mostly_idle_cores_of_a_gpus_rank_the_clock_is_not_judged_and_all_else_is(tmp_path: Path) -> None:
    machine(tmp_path)
    health = CpuHealth((0, 1), Norm(True, frozenset(), {"cpu_mhz": (3400.0,)}), tmp_path, clocks=False)
    for at in range(0, 10, 2):
        health.sample(float(at), 0)
    machine(tmp_path, mhz=1200, most=1200, heat=2, stopped=40, lost_us=3_000_000, swap=10_000)
    for at in range(10, 23, 2):
        health.sample(float(at), 100)
    assert [reason.split()[0] for reason in health.unhealthy(WINDOW)] == ["CPU", "slowed", "swapping:"]
    assert health.facts(WINDOW) == {}


def test_of_many_cores_some_of_every_package_are_looked_at(tmp_path: Path) -> None:
    machine(tmp_path)
    heat = f"{CPU}/cpu{{}}/thermal_throttle/package_throttle_count"
    write(tmp_path, {heat.format(cpu): "0\n" for cpu in range(64)})
    health = CpuHealth(range(64), None, tmp_path, clocks=False)
    health.sample(9.0, 0)
    write(tmp_path, {heat.format(cpu): "5\n" for cpu in range(32, 64)})
    health.sample(21.0, 0)
    (reason,) = health.unhealthy(WINDOW)
    assert "the package of core 32 5 times" in reason and "core 0" not in reason
