"""Processes that drive one card or several, with the real launchers, supervisor and node programs; a double trains."""

from __future__ import annotations

import json
import os
import sys
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import helpers.launch.nodes.connected
import helpers.machine.near_cores
import helpers.session.measuring.job_runner
from helpers.history.run_folders import ResultStore
from helpers.judging.rules.own import MEDIAN_STEP, WALL_CLOCK, figures
from helpers.launch.nodes.connected import CaseNeeds, connect_nodes
from helpers.launch.nodes.share import node_mark
from helpers.launch.outcome import JobOutcome, OutcomeKind
from helpers.launch.steplog_reader import read_step_log
from helpers.launch.supervisor import run_job
from helpers.machine.devices import CpuCard, Machine
from helpers.machine.nvml import Gpu
from helpers.plan.case_plan import CasePlan
from helpers.plan.perf_yaml import HostConfig, NodesConfig, load_config
from helpers.session.measuring.job_runner import JobRunner
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.job import JobSpec
from tests.faults.stand_in_trainer import STEP_SECONDS
from tests.helpers.launch.cards_double import launch_command
from tests.helpers.launch.share_stand_in import CARDS, MACHINE, VERSION
from tests.helpers.launch.test_nodes import LIMITS, PROGRAM
from tests.helpers.launch.test_supervisor import QuietMeter
from tests.helpers.machine.watch.test_gpu_health import GPU
from tests.helpers.machine.watch.test_gpu_health import StandInNvml as CardStandIn
from tests.job_processes import processes_of_job

pytestmark = pytest.mark.slow

BATCH = 8
HOSTS = (
    HostConfig("n0", "127.0.0.1", environment={"OF_PERF_YAML": "n0"}),
    HostConfig(
        "n1", "127.0.0.1", (sys.executable, str(PROGRAM), "trainer=cards_double"), environment={"OF_PERF_YAML": "n1"}
    ),
)


def job(folder: Path, cards: str, each: int, framework: str = "tensorflow", **behaviours: str) -> JobSpec:
    case = Case.parse(f"{framework}-resnet50v1.5-fp32-bs{BATCH}-{cards}-synthetic")
    ranks = {name.removeprefix("rank"): behaviour for name, behaviour in behaviours.items()}
    settings = {"cards_per_process": each, "behaviours": ranks}
    return JobSpec(uuid.uuid4().hex, case, 0, str(folder / "run"), "cpu", 2, 5, settings=settings)


def run(spec: JobSpec) -> JobOutcome:
    """The outcome of real processes, after which none of them may live."""
    try:
        return run_job(spec, launch_command(spec, sys.executable), LIMITS, QuietMeter())
    finally:
        assert processes_of_job(spec.job_id) == []


def run_on_two_nodes(spec: JobSpec, monkeypatch: pytest.MonkeyPatch) -> JobOutcome:
    monkeypatch.setattr(helpers.launch.nodes.connected, "launch_command", launch_command)
    build = {"interpreter": sys.executable, "distribution": "paddlepaddle", "version": VERSION, "commit": ""}
    needs = CaseNeeds(spec.case, "cpu", build, MACHINE, wait_seconds=10.0)
    each = spec.case.cards_per_node
    try:
        with connect_nodes(spec.case, NodesConfig(HOSTS, connect_seconds=20.0)) as connected:
            connected.prepare(needs, (*CARDS, *CARDS)[: each * connected.nodes_here], print)
            command, others = connected.start_of(spec, sys.executable, LIMITS.grace_seconds)
            return run_job(spec, command, LIMITS, QuietMeter(), others=others)
    finally:
        for mark in (spec.job_id, node_mark(spec.job_id, 1)):
            assert processes_of_job(mark) == []


def configuration(outcome: JobOutcome, rank: int) -> dict[str, object]:
    return dict(json.loads(outcome.logs[rank].header.facts["TF_CONFIG"]))


@pytest.mark.parametrize(("framework", "each", "ranks"), [("tensorflow", 1, 2), ("mxnet", 2, 1)])
def test_one_process_with_two_cards_measures_what_two_processes_do(
    tmp_path: Path, framework: str, each: int, ranks: int
) -> None:
    outcome = run(job(tmp_path, "1x2", each, framework))
    assert (outcome.kind, outcome.reason) == (OutcomeKind.COMPLETE, "")
    heads = [(log.header.rank, log.header.world_size, log.header.cards_per_process) for log in outcome.logs]
    assert heads == [(rank, ranks, each) for rank in range(ranks)]
    found = figures(outcome.logs)
    assert [found[WALL_CLOCK], found[MEDIAN_STEP]] == [pytest.approx(2 * BATCH / STEP_SECONDS)] * 2
    assert ("TF_CONFIG" in outcome.logs[0].header.facts) is (ranks > 1)


def test_a_killed_rank_of_tensorflow_s_launcher_is_told_as_of_any(tmp_path: Path) -> None:
    outcome = run(job(tmp_path, "1x2", 1, rank1="killed"))
    assert (outcome.guilty_rank, outcome.what) == (1, "killed by a signal"), outcome.reason
    assert "ended by SIGKILL" in outcome.reason


@pytest.mark.parametrize(("framework", "each", "ranks"), [("tensorflow", 1, 4), ("mxnet", 2, 2)])
def test_two_nodes_of_two_cards_give_one_log_a_process_with_their_own_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, framework: str, each: int, ranks: int
) -> None:
    monkeypatch.setenv("OF_THE_CALLER", "s3cret")
    outcome = run_on_two_nodes(job(tmp_path, "2x2", each, framework), monkeypatch)
    assert (outcome.kind, outcome.reason) == (OutcomeKind.COMPLETE, "")
    heads = [(log.header.rank, log.header.world_size, log.header.cards_per_process) for log in outcome.logs]
    assert heads == [(rank, ranks, each) for rank in range(ranks)]
    assert figures(outcome.logs)[WALL_CLOCK] == pytest.approx(4 * BATCH / STEP_SECONDS)
    # What perf.yaml names for a host passes, and what the caller happens to have does not.
    assert [log.header.facts["OF_PERF_YAML"] for log in outcome.logs] == ["n0"] * (ranks // 2) + ["n1"] * (ranks // 2)
    assert not any("OF_THE_CALLER" in log.header.facts for log in outcome.logs)
    assert {log.header.facts["LOCAL_WORLD_SIZE"] for log in outcome.logs} == {str(2 // each)}
    if framework == "mxnet":
        assert {log.header.facts["MASTER_ADDR"] for log in outcome.logs} == {"127.0.0.1"}
        return
    clusters = [configuration(outcome, rank)["cluster"] for rank in range(ranks)]
    assert clusters == clusters[:1] * ranks
    assert [configuration(outcome, rank)["task"] for rank in range(ranks)] == [
        {"type": "worker", "index": rank} for rank in range(ranks)
    ]


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
    monkeypatch.setattr(helpers.launch.nodes.connected, "launch_command", launch_command)
    case = Case.parse("tensorflow-resnet50v1.5-fp32-bs8-1x2-synthetic")
    made = make_plan(target="v100", build={"interpreter": sys.executable, "framework": "tensorflow", "version": "2"})
    plan = replace(made, suite_case=replace(made.suite_case, case=case))
    machine = Machine(MACHINE.facts, (CpuCard(0, (first,)),), (GPU, second), "535.1", "12.2")
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
