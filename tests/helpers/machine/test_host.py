from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.common.unknown import Unknown
from helpers.machine.host import HostState, OomKills, oom_evidence, probe_host_state, read_oom_kills
from tests.faults.control_group import memory_group
from tests.helpers.machines import write

CPU = "sys/devices/system/cpu"
AT_WORK = "the kernel's OOM killer was at work"


def state(root: Path, **variables: str) -> HostState:
    return probe_host_state(
        root,
        variables=variables,
        allowed_cpus=lambda: {0, 1, 2, 3},
    )


def test_a_machine_that_shows_nothing_is_unknown_and_never_healthy(tmp_path: Path) -> None:
    found = state(tmp_path)
    names = "governors load_1m clock_source hypervisor memory_available_bytes"
    for name in f"{names} swap_used_bytes huge_pages numa_balancing numa_nodes".split():
        assert isinstance(getattr(found, name), Unknown), name
    assert found.container == ""
    assert (found.quota_cores, found.memory_limit_bytes) == (None, None)


def test_clocks_times_and_memory_are_read(tmp_path: Path) -> None:
    found = state(write(tmp_path, {
        f"{CPU}/cpu0/cpufreq/scaling_governor": "powersave\n", f"{CPU}/cpu1/cpufreq/scaling_governor": "performance\n",
        "proc/loadavg": "1.50 1 1 1/2 3\n", "proc/cpuinfo": "flags\t\t: fpu hypervisor sse\n",
        "sys/devices/system/clocksource/clocksource0/current_clocksource": "hpet\n",
        "proc/meminfo": "MemTotal: 9 kB\nMemAvailable: 4 kB\nSwapTotal: 8 kB\nSwapFree: 5 kB\n",
        "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
        "proc/sys/kernel/numa_balancing": "1\n",
    }))  # fmt: skip
    assert (found.governors, found.load_1m) == ({"powersave", "performance"}, 1.5)
    assert (found.clock_source, found.hypervisor) == ("hpet", True)
    assert (found.memory_available_bytes, found.swap_used_bytes) == (4096, 3072)
    assert (found.huge_pages, found.numa_balancing) == ("madvise", True)


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"sys/fs/cgroup/cpu.max": "250000 100000\n"}, 2.5),
        ({"sys/fs/cgroup/cpu.max": "max 100000\n"}, None),
        ({"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "50000", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"}, 0.5),
        ({"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1"}, None),
        # The quota stands on a group above this process's own.
        ({"proc/self/cgroup": "0::/job/step\n", "sys/fs/cgroup/job/cpu.max": "400000 100000",
          "sys/fs/cgroup/job/step/cpu.max": "max 100000"}, 4.0),
        ({"proc/self/cgroup": "0::/job/step\n", "sys/fs/cgroup/job/cpu.max": "400000 100000",
          "sys/fs/cgroup/job/step/cpu.max": "150000 100000"}, 1.5),
    ],
)  # fmt: skip
def test_the_tightest_cpu_quota_above_the_process_counts(tmp_path: Path, files: dict[str, str], cores: float) -> None:
    assert state(write(tmp_path, files)).quota_cores == cores


def test_the_tightest_memory_limit_counts_and_the_kernels_no_limit_is_none(tmp_path: Path) -> None:
    write(tmp_path, {
        "proc/self/cgroup": "4:memory:/box\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
        "sys/fs/cgroup/memory/box/memory.limit_in_bytes": "4096",
    })  # fmt: skip
    assert state(tmp_path).memory_limit_bytes == 4096
    (tmp_path / "sys/fs/cgroup/memory/box/memory.limit_in_bytes").unlink()
    assert state(tmp_path).memory_limit_bytes is None


@pytest.mark.parametrize(
    ("files", "variables", "container"),
    [
        ({".dockerenv": ""}, {}, "docker, image unknown: set PERFGATE_IMAGE to it"),
        ({".dockerenv": ""}, {"PERFGATE_IMAGE": "paddle:2.6.2-gpu"}, "docker, image paddle:2.6.2-gpu"),
        ({"run/.containerenv": ""}, {"PERFGATE_IMAGE": "x"}, "podman, image x"),
        ({}, {"APPTAINER_CONTAINER": "/images/paddle.sif"}, "Apptainer, image paddle.sif"),
        ({"proc/1/cgroup": "1:cpu:/kubepods/x\n"}, {"PERFGATE_IMAGE": "x"}, "Kubernetes, image x"),
    ],
)
def test_container_and_image_are_told_as_far_as_they_show(
    tmp_path: Path, files: dict[str, str], variables: dict[str, str], container: str
) -> None:
    assert state(write(tmp_path, files), **variables).container == container


def test_no_variable_but_the_named_ones_is_told(tmp_path: Path) -> None:
    found = state(tmp_path, GITHUB_TOKEN="hunter2", AWS_SECRET_ACCESS_KEY="hunter2")
    assert "hunter2" not in repr(found)


def test_what_a_container_may_still_start_is_read_from_its_tightest_group(tmp_path: Path) -> None:
    write(tmp_path, {
        "proc/self/cgroup": "8:pids:/box\n", "sys/fs/cgroup/pids/pids.max": "max",
        "sys/fs/cgroup/pids/box/pids.max": "1000\n", "sys/fs/cgroup/pids/box/pids.current": "40\n",
    })  # fmt: skip
    assert state(tmp_path).free_processes == 960
    assert state(tmp_path / "none").free_processes is None


EVENTS = "low 0\noom 7\noom_kill {}\noom_group_kill 9\n"


@pytest.mark.parametrize(
    ("groups", "own", "above", "kills"),
    [
        ("0::/job/a\n", "job/a/memory.events", "job/memory.events", OomKills(2, 3, inherits=True)),
        ("4:memory:/x\n1:cpu:/\n0::/\n", "memory/x/memory.oom_control", "memory/memory.oom_control", OomKills(2, 3)),
    ],
    ids=["version 2", "version 1"],
)
def test_the_own_group_s_kills_are_read(tmp_path: Path, groups: str, own: str, above: str, kills: OomKills) -> None:
    write(tmp_path, {
        "proc/self/cgroup": groups, "proc/vmstat": "nr_free 5\noom_kill 3\n",
        f"sys/fs/cgroup/{own}": EVENTS.format(2), f"sys/fs/cgroup/{above}": EVENTS.format(50),
    })  # fmt: skip
    assert read_oom_kills(tmp_path) == kills


@pytest.mark.parametrize(
    ("before", "after", "struck", "text"),
    [
        (OomKills(1, 5, True), OomKills(3, 7, True), True, f"{AT_WORK} (oom_kill +2)"),
        # Another container's shortage: the own group would have counted it.
        (OomKills(1, 5, True), OomKills(1, 9, True), False, "not the kernel's OOM killer (oom_kill +0)"),
        # Version 1 does not count the groups below, so the machine's count decides.
        (OomKills(0, 5), OomKills(0, 6), True, f"{AT_WORK} on this machine (oom_kill +1)"),
        (OomKills(0, 5), OomKills(0, 5), False, "not the kernel's OOM killer (oom_kill +0)"),
        (OomKills(None, 5), OomKills(None, 6), True, f"{AT_WORK} on this machine (oom_kill +1)"),
        (OomKills(), OomKills(), False, "whether by the kernel's OOM killer cannot be read here"),
        (OomKills(None, 5), OomKills(), False, "whether by the kernel's OOM killer cannot be read here"),
    ],
)  # fmt: skip
def test_counts_that_grew_are_the_evidence(before: OomKills, after: OomKills, struck: bool, text: str) -> None:
    assert oom_evidence(before, after) == (struck, text)


def test_a_real_kill_for_want_of_memory_is_seen() -> None:
    with contextlib.ExitStack() as held:
        try:
            group = held.enter_context(memory_group(64))
        except OSError as error:
            pytest.skip(str(error))
        before = read_oom_kills()
        done = subprocess.run([*group.prefix, sys.executable, "-c", "b'x' * 2**30"], check=False)
        assert done.returncode == -9
        struck, text = oom_evidence(before, read_oom_kills())
    assert struck and "OOM killer was at work" in text
