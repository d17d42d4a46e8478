"""Which cores the ranks of a GPU job run on, with real processes and stand-in cards."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import helpers.launch.nodes.connected
import helpers.machine.near_cores
import helpers.session.measuring.job_runner
from helpers.history.run_folders import ResultStore
from helpers.launch.steplog_reader import read_step_log
from helpers.machine.devices import CpuCard, Machine
from helpers.machine.host import Host
from helpers.machine.nvml import Gpu
from helpers.plan.case_plan import CasePlan
from helpers.plan.perf_yaml import load_config
from helpers.session.measuring.job_runner import JobRunner
from helpers.trainers.contract.case import Case
from tests.helpers.launch import cards_double
from tests.helpers.machine.watch.test_gpu_health import GPU
from tests.helpers.machine.watch.test_gpu_health import StandInNvml as CardStandIn

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
HOST = Host("h", "0123456789abcdef", "Linux", "6.1", "CPU", 2, 2**33)


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
    monkeypatch.setattr(helpers.launch.nodes.connected, "launch_command", cards_double.launch_command)
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
