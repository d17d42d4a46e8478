"""Real training on two nodes of one card: two loopback addresses of this machine, and two nodes of a real Slurm."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.history.results import RunResult
from helpers.history.run_folders import ResultStore
from helpers.launch.nodes.connected import CaseNeeds, connect_nodes
from helpers.launch.nodes.share import node_mark
from helpers.launch.nodes.slurm import with_hosts_of_job
from helpers.launch.steplog_reader import read_step_log
from helpers.machine.devices import Machine, discover
from helpers.machine.framework_builds import BuildFinder, FrameworkBuild
from helpers.plan.case_plan import CasePlan, SuiteCase
from helpers.plan.matrix import MeasuringProtocol
from helpers.plan.perf_yaml import HostConfig, NodesConfig, load_config
from helpers.plan.recipes.recipe import settings_for
from helpers.session.measuring.job_runner import JobRunner, RunTerms
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.job import JobSpec
from tests.job_processes import processes_of_job

ROOT = Path(__file__).resolve().parents[3]
CASE = Case.parse("paddle-resnet50v1.5-fp32-bs2-2x1-synthetic-dynamic")
# "env" runs what follows it: a connection without a network.
ADDRESSES = NodesConfig((HostConfig("n0", "127.0.0.2"), HostConfig("n1", "127.0.0.3", ("env",))))


@pytest.fixture
def machine() -> Machine:
    found = discover()
    if len(found.cpu_cards) < 2:
        pytest.skip(f"two nodes of one card need 2 cores here: {found.describe()}")
    return found


@pytest.fixture
def plan() -> CasePlan:
    return plan_of(CASE)


def plan_of(case: Case) -> CasePlan:
    interpreter = (
        load_config(ROOT / "helpers/plan/defaults.yaml").frameworks[case.framework].interpreter or sys.executable
    )
    build = BuildFinder().find_build(case.framework, interpreter)
    if not isinstance(build, FrameworkBuild):
        pytest.skip(build)
    protocol = MeasuringProtocol("cpu", warmup_steps=1, window_steps=2, runs=1)
    about = {"interpreter": interpreter, "distribution": build.distribution, "version": build.version}
    return CasePlan(
        SuiteCase(case, "cpu", protocol),
        build={**about, "commit": build.commit, "framework": case.framework.value},
        settings=settings_for(case, "cpu"),
        data="synthetic",
    )


def train(folder: Path, plan: CasePlan, machine: Machine, nodes: NodesConfig = ADDRESSES) -> tuple[RunResult, Path]:
    """One run, after which nothing of it lives."""
    config = replace(load_config(ROOT / "helpers/plan/defaults.yaml"), nodes=nodes)
    store, case = ResultStore(folder, "s"), plan.case
    with connect_nodes(case, config.nodes) as connected:
        needs = CaseNeeds(case, "cpu", plan.build, machine)
        cards = connected.prepare(needs, machine.cpu_cards[: connected.nodes_here], print)
        run = JobRunner(machine, cards, store, config, RunTerms(allow_contention=True), connected=connected).run(
            plan, 0
        )
    run_folder = store.run_folder(case.id, 0)
    job_id = JobSpec.from_json((run_folder / "spec.json").read_text()).job_id
    assert processes_of_job(job_id) == processes_of_job(node_mark(job_id, 1)) == []
    return run, run_folder


@pytest.mark.training
@pytest.mark.untimed
def test_two_nodes_train_together_and_the_slower_ones_own_clock_counts(
    tmp_path: Path, plan: CasePlan, machine: Machine
) -> None:
    run, folder = train(tmp_path, plan, machine)
    assert run.failure is None, run.log_tail
    assert run.measured and run.facts["nodes"] == "n0 (127.0.0.2), n1 (127.0.0.3)"
    assert run.environment["nodes"] == f"{machine.host_id} + {machine.host_id}"
    logs = [read_step_log(folder / f"rank{rank}.jsonl", run.uuid, rank) for rank in range(2)]
    seconds = [log.window[-1].end - log.window[0].start for log in logs]
    assert run.figures["wall-clock"] == pytest.approx(2 * 2 * 2 / max(seconds))
    # Each node pinned its rank to a core of its own.
    assert len({log.header.facts["cores"] for log in logs}) == 2
    assert all(step.loss is not None for log in logs for step in log.steps)
    assert (folder / "node1" / "launch_logs" / "workerlog.0").exists()


@pytest.mark.training
@pytest.mark.untimed
def test_two_nodes_of_a_slurm_job_train_together(tmp_path: Path, machine: Machine, allocation: str) -> None:
    case = Case.parse("pytorch-resnet50v1.5-fp32-bs2-2x1-synthetic")
    run, folder = train(tmp_path, plan_of(case), machine, with_hosts_of_job(NodesConfig(), os.environ))
    assert run.failure is None, run.log_tail
    assert run.measured and run.facts["nodes"] == "n0 (127.0.0.2), n1 (127.0.0.3)"
    logs = [read_step_log(folder / f"rank{rank}.jsonl", run.uuid, rank) for rank in range(2)]
    assert all(step.loss is not None for log in logs for step in log.steps)
