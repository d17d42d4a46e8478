"""One look at a machine through replaced io: what fails becomes an issue, never a crash."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from helpers.launch.nodes.slurm import with_hosts_of_job
from helpers.machine.doctor import diagnose
from helpers.machine.doctor.issue import Context
from helpers.machine.framework_builds import BuildFinder, FrameworkBuild
from helpers.machine.watch.contention import ContentionSample
from helpers.machine.watch.processes import Process, Processes
from helpers.plan.perf_yaml import Config, HostConfig, NodesConfig, load_config
from helpers.session.measuring.examination import WATCH_SECONDS, ExaminationIO, examine, node_problems, sharing_problems
from helpers.trainers.contract.errors import DeviceError
from helpers.trainers.contract.frameworks import Framework
from tests.helpers.machine.doctor.context import BUILD, LIBRARIES
from tests.helpers.machines import StandInNvml, details_of_all, v100s, write

ROOT = Path(__file__).resolve().parents[3]
# Later than any file of the checkout.
WALL = time.time() + 1000


class Builds(BuildFinder):
    """Paddle for CUDA 11.8 is installed, nothing else."""

    def find_build(self, framework: Framework, interpreter: str | None = None) -> FrameworkBuild | str:
        return BUILD if framework is Framework.PADDLE else f"{framework.value} is not installed"

    def find_libraries(self, build: FrameworkBuild) -> dict[str, str] | str:
        return LIBRARIES


@dataclass
class StandInMeter:
    """Sees nobody; ``looks`` are the times it was asked to look."""

    answer: ContentionSample = field(default_factory=lambda: ContentionSample(0.0))
    looks: list[float] = field(default_factory=list)
    cores: frozenset[int] = frozenset()

    def __call__(self, cores: frozenset[int]) -> StandInMeter:
        self.cores = cores
        return self

    def sample(self, at: float, own: Collection[int], everyone: Collection[Process] | None) -> None:
        self.looks.append(at)

    def contention(self, window: tuple[float, float] | None) -> ContentionSample:
        return replace(self.answer, window_seconds=window[1] - window[0] if window else 0.0)

    def unhealthy(self, window: tuple[float, float] | None) -> tuple[str, ...]:
        return ()


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture(scope="module")
def config() -> Config:
    return load_config(ROOT / "helpers/plan/defaults.yaml")


@pytest.fixture
def io(tmp_path: Path) -> ExaminationIO:
    clock = Clock()
    namespace = tmp_path / "proc/self/ns"
    namespace.mkdir(parents=True)
    (namespace / "pid").symlink_to("pid:[1]")
    return ExaminationIO(
        root=tmp_path,
        variables={"XDG_CACHE_HOME": str(tmp_path / "cache")},
        open_nvml=lambda: "no libnvidia-ml.so.1",
        builds=Builds(),
        processes=Processes(tmp_path / "proc"),
        meter=StandInMeter(),
        clock=clock,
        sleep=clock.sleep,
        wall=lambda: WALL + clock(),
        owner=lambda pid: "ann",
    )


def look(config: Config, io: ExaminationIO, tmp_path: Path, **values: Any) -> Context:
    given = {"data_root": None, "runs_folder": tmp_path / "runs", **values}
    return examine(config, io=io, **given)


def named(context: Context) -> dict[str, str]:
    return {issue.name: issue.found for issue in diagnose(context).issues}


def test_the_cores_that_cases_would_use_are_watched_for_a_second(
    config: Config, io: ExaminationIO, tmp_path: Path
) -> None:
    context = look(config, io, tmp_path)
    meter = cast("StandInMeter", io.meter)
    assert meter.looks == [100.0, 100.0 + WATCH_SECONDS]
    assert meter.cores == {core for card in context.facts.machine.cpu_cards for core in card.cores}
    assert context.contention == ContentionSample(0.0, window_seconds=WATCH_SECONDS)


def test_a_machine_with_cards_is_looked_at_card_by_card(config: Config, io: ExaminationIO, tmp_path: Path) -> None:
    nvml = StandInNvml(v100s(), details_of_all())
    context = look(config, replace(io, open_nvml=lambda: nvml), tmp_path)
    assert nvml.asked == [f"GPU-{n}" for n in range(8)]
    assert context.facts.machine.driver == "525.60.11"


def test_an_nvml_that_fails_blocks_and_the_rest_is_told(config: Config, io: ExaminationIO, tmp_path: Path) -> None:
    def broken() -> str:
        raise DeviceError("NVML", got="Driver Not Loaded", expected="a working NVIDIA driver")

    context = look(config, replace(io, open_nvml=broken), tmp_path)
    assert "Driver Not Loaded" in named(context)["NVIDIA driver"]
    assert context.facts.frameworks
    # As every session: whoever hides all cards does not need the driver.
    without = replace(io, open_nvml=broken, variables={"CUDA_VISIBLE_DEVICES": ""})
    assert "NVIDIA driver" not in named(look(config, without, tmp_path))


def test_a_run_folder_below_a_file_blocks(config: Config, io: ExaminationIO, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    context = look(config, io, tmp_path, runs_folder=tmp_path / "taken" / "runs")
    assert named(context)["run folder"] == f"{tmp_path / 'taken'} is no folder"


@pytest.mark.parametrize(
    ("listing", "problem"),
    [
        (None, "cannot be read"),
        ("", "begins with ''"),
        ("no label here\n", "begins with 'no label here'"),
        ("train/a b.jpeg 0\n", "'train/a b.jpeg', which is not in"),
    ],
)
def test_images_that_cannot_be_used_block(
    config: Config, io: ExaminationIO, tmp_path: Path, listing: str | None, problem: str
) -> None:
    if listing is not None:
        (tmp_path / "train_list.txt").write_text(listing)
    context = look(config, io, tmp_path, data_root=tmp_path)
    assert problem in named(context)["dataset"]


def test_another_sessions_lease_is_told(config: Config, io: ExaminationIO, tmp_path: Path) -> None:
    from helpers.machine.leases import Leases, default_folder

    machine = look(config, io, tmp_path).facts.machine
    with Leases(default_folder(machine.host_id, io.variables)).lease(machine.cpu_cards, 1, "some-case"):
        issues = named(look(config, io, tmp_path))
    assert f"the machine is held by process {os.getpid()} for some-case" in issues["another session"]
    assert "another session" not in named(look(config, io, tmp_path))


def test_a_wall_clock_behind_the_newest_results_is_told(config: Config, io: ExaminationIO, tmp_path: Path) -> None:
    (tmp_path / "runs" / "20371121-0200").mkdir(parents=True)
    os.utime(tmp_path / "runs" / "20371121-0200", (WALL + 5000, WALL + 5000))
    assert named(look(config, io, tmp_path))["wall clock"] == "it is behind 20371121-0200, by 4899 s"


def test_system_files_of_nonsense_are_no_crash(config: Config, io: ExaminationIO, tmp_path: Path) -> None:
    files = ("proc/loadavg", "proc/stat", "proc/cpuinfo", "proc/meminfo", "proc/self/mountinfo", "proc/self/cgroup",
             "sys/fs/cgroup/cpu.stat", "sys/fs/cgroup/memory.max",
             "sys/kernel/mm/transparent_hugepage/enabled", "sys/devices/system/node/node0/cpulist",
             "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "sys/class/net/eth0/speed",
             "sys/class/infiniband/mlx5_0/ports/1/rate", "sys/bus/pci/devices/a/vendor")  # fmt: skip
    for text in ("", "\n", "\0\xff nonsense\n\n:::", "cpu \nMemAvailable:\nflags"):
        write(tmp_path, dict.fromkeys(files, text))
        assert "not looked at" in named(look(config, io, tmp_path))


# ---- hosts and ports


HERE = HostConfig("a", "127.0.0.1")


def test_a_rendezvous_port_that_is_taken_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        (problem,) = node_problems(NodesConfig((HERE,), port=port))
    assert f"127.0.0.1:{port}" in problem and "a free port" in problem


def test_a_name_service_that_hangs_does_not_keep_the_doctor() -> None:
    release = threading.Event()

    def resolve(host: HostConfig) -> str:
        release.wait(10)
        return "127.0.0.1"

    problems = node_problems(NodesConfig((HERE, HostConfig("b", "b"))), resolve, patience_seconds=0.05)
    release.set()
    assert problems == (
        "host a: 127.0.0.1 is not resolved within 0.05 s",
        "host b: b is not resolved within 0.05 s",
    )


def test_the_only_node_of_a_slurm_job_needs_no_name_that_resolves() -> None:
    variables = {"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n0.invalid", "SLURM_JOB_NUM_NODES": "1"}
    nodes = with_hosts_of_job(NodesConfig(), variables)
    assert node_problems(nodes) == ()
    assert node_problems(replace(nodes, of_slurm=False))


@pytest.mark.slow
def test_a_host_that_does_not_see_the_runs_folder_is_named(tmp_path: Path) -> None:
    sees, elsewhere = HostConfig("b", "b", ("env",)), HostConfig("c", "c", ("sh", "-c", "cat /nowhere/x"))
    silent = HostConfig("d", "d", (sys.executable, "-c", "import time; time.sleep(60)"))
    assert sharing_problems(NodesConfig((HERE, sees)), tmp_path) == ()
    found = sharing_problems(NodesConfig((HERE, sees, elsewhere, silent)), tmp_path, 1.0)
    assert [problem.split()[1] for problem in found] == ["c", "d"]
    assert list(tmp_path.iterdir()) == []
