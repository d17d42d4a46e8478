"""Somebody else's work while a case is timed, for real: a busy process on the job's core, one on a stand-in card."""

from __future__ import annotations

import getpass
import os
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import helpers.launch.nodes.connected
import helpers.machine.near_cores
import helpers.session.measuring.job_runner
from helpers.history.run_folders import ResultStore
from helpers.launch.launchers.launcher import LaunchCommand
from helpers.launch.outcome import JobOutcome
from helpers.launch.steplog_reader import read_step_log
from helpers.launch.supervisor import JobLimits, run_job
from helpers.machine.devices import CpuCard, Machine
from helpers.machine.host import Host
from helpers.machine.nvml import Gpu
from helpers.machine.watch.contention import CpuMeter
from helpers.machine.watch.meters import GpuMeter
from helpers.machine.watch.processes import Process, Processes
from helpers.plan.case_plan import CasePlan
from helpers.plan.perf_yaml import load_config
from helpers.session.measuring.job_runner import JobRunner
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.job import JobSpec
from tests.helpers.launch import cards_double
from tests.helpers.machine.watch.test_gpu_health import GPU
from tests.helpers.machine.watch.test_gpu_health import StandInNvml as CardStandIn
from tests.job_processes import processes_of_job

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
STAND_IN = Path(__file__).with_name("stand_in.py")
LIMITS = JobLimits(10.0, 2.0, 20.0, grace_seconds=0.3, rank_death_seconds=0.3, poll_seconds=0.02, survey_seconds=0.1)
HOST = Host("h", "0123456789abcdef", "Linux", "6.1", "CPU", 2, 2**33)
CORE = min(os.sched_getaffinity(0))

# As the rank of a CPU case: pinned to its card's core.
PINNED = f"import os, runpy, sys; os.sched_setaffinity(0, {{{CORE}}}); sys.argv = sys.argv[1:]; " \
         "runpy.run_path(sys.argv[0], run_name='__main__')"  # fmt: skip
BUSY = f"import os; os.sched_setaffinity(0, {{{CORE}}})\nprint(flush=True)\nwhile True: pass"


@contextmanager
def neighbour(program: str) -> Generator[int, None, None]:
    """Runs beside the job; a session of its own, so that its children end with it."""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == b"\n"
        yield process.pid
    finally:
        os.killpg(process.pid, 9)
        process.communicate()


class Family(Processes):
    """Shows the processes that this test started, so that who else works here pushes none of them off the list."""

    def all(self) -> list[Process]:
        everyone, mine, grew = super().all(), {os.getpid()}, True
        while grew:
            children = {each.pid for each in everyone if each.parent in mine} - mine
            mine |= children
            grew = bool(children)
        return [each for each in everyone if each.pid in mine]


def pinned(spec: JobSpec) -> LaunchCommand:
    return LaunchCommand((sys.executable, "-c", PINNED, str(STAND_IN), str(spec.spec_path), "0=trains"))


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobRunner:
    """A real runner whose jobs are the stand-in trainer's, on one core."""

    def run(
        spec: JobSpec, command: LaunchCommand, limits: JobLimits, meter: CpuMeter | GpuMeter, **options: Any
    ) -> JobOutcome:
        outcome = run_job(spec, pinned(spec), LIMITS, meter, processes=Family())
        assert processes_of_job(spec.job_id) == []
        return outcome

    monkeypatch.setattr(helpers.session.measuring.job_runner, "run_job", run)
    # The stand-in's steps take 20 ms by the wall clock, whoever else is on its core.
    monkeypatch.setattr(helpers.session.measuring.job_runner, "why_unsteady", lambda spec, logs: None)
    card = CpuCard(0, (CORE,))
    machine = Machine(HOST, (card,))
    return JobRunner(machine, (card,), ResultStore(tmp_path, "s"), load_config(ROOT / "helpers/plan/defaults.yaml"))


@pytest.fixture
def plan(make_plan: Callable[..., CasePlan]) -> CasePlan:
    build = {"interpreter": sys.executable, "framework": "paddle", "version": "3", "commit": "c"}
    made = make_plan(build=build, data="synthetic")
    protocol = replace(made.protocol, warmup_steps=3, window_steps=25)
    case = Case.parse("paddle-resnet50v1.5-fp32-bs8-1x1-synthetic-dynamic")
    return replace(made, suite_case=replace(made.suite_case, case=case, protocol=protocol))


def test_a_neighbour_on_the_cores_of_a_gpus_rank_makes_its_run_invalid(
    runner: JobRunner, plan: CasePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Near(CardStandIn):
        def near_cpus(self, gpu: Gpu) -> frozenset[int]:
            return frozenset({CORE})

    monkeypatch.setattr(helpers.session.measuring.job_runner, "open_nvml", Near)
    pretended = replace(plan, suite_case=replace(plan.suite_case, target="v100"))
    with neighbour(BUSY) as pid:
        run = replace(runner, cards=(GPU,)).run(pretended, 0)
    assert run.failure is None
    assert run.invalid is not None and run.invalid.startswith("contended: ")
    assert "of the time of the cores of GPU0 went to others" in run.invalid
    assert f"(pid {pid}, user {getpass.getuser()}, " in run.invalid


def test_the_ranks_of_a_gpu_job_run_on_cores_near_their_cards_and_share_none(
    tmp_path: Path, make_plan: Callable[..., CasePlan], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *others = sorted(os.sched_getaffinity(0))
    second = replace(GPU, index=1, uuid="GPU-b")

    class Crossed(CardStandIn):
        """The second card is near the first core."""

        def near_cpus(self, gpu: Gpu) -> frozenset[int]:
            return frozenset({first if gpu == second else others[0]})

    monkeypatch.setattr(helpers.session.measuring.job_runner, "open_nvml", Crossed)
    monkeypatch.setattr(helpers.machine.near_cores, "siblings_of", lambda cpu, root: {cpu})
    monkeypatch.setattr(helpers.machine.near_cores, "tightest_quota", lambda root: None)
    monkeypatch.setattr(helpers.launch.nodes.connected, "launcher_for", cards_double.launcher_for)
    case = Case.parse("tensorflow-resnet50v1.5-fp32-bs8-1x2-synthetic")
    made = make_plan(target="v100", build={"interpreter": sys.executable, "framework": "tensorflow", "version": "2"})
    plan = replace(made, suite_case=replace(made.suite_case, case=case))
    machine = Machine(HOST, (CpuCard(0, (first,)),), (GPU, second), "535.1", "12.2")
    runner = JobRunner(
        machine, (GPU, second), ResultStore(tmp_path, "s"), load_config(ROOT / "helpers/plan/defaults.yaml")
    )
    run = runner.run(plan, 0)
    assert run.failure is None
    logs = [read_step_log(path) for path in sorted(tmp_path.rglob("rank*.jsonl"))]
    cores = [set(map(int, log.header.facts["cores"].split(","))) for log in logs]
    assert cores == [{others[0]}, {first}]
    # The threads of its share, not of all cores.
    assert [log.header.facts["threads"] for log in logs] == ["1", "1"]
    assert run.facts["card_cores"].split() == [log.header.facts["cores"] for log in logs]
