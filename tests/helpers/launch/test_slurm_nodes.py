"""Two nodes of a real Slurm: their programs as job steps, with a double in the trainer's place."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import helpers.launch.nodes.connected
import helpers.launch.nodes.node
import helpers.launch.nodes.slurm
from helpers.launch.nodes.slurm import step_words, with_hosts_of_job
from helpers.launch.outcome import JobOutcome, OutcomeKind
from helpers.launch.tail import Progress
from helpers.plan.perf_yaml import NodesConfig
from helpers.session.suite import Suite, SuiteOptions
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.errors import LaunchError
from helpers.trainers.contract.job import JobSpec
from tests.helpers.launch.test_nodes import PROGRAM, job, kills_program
from tests.helpers.launch.test_nodes import run as run_on_nodes
from tests.slurm_cluster import SlurmCluster

__all__ = ["job"]

pytestmark = pytest.mark.slow


def run(
    job: JobSpec,
    monkeypatch: pytest.MonkeyPatch,
    behaviour: str = "trains",
    on_progress: Callable[[Progress], None] | None = None,
) -> JobOutcome:
    words = (sys.executable, str(PROGRAM), f"behaviour={behaviour}")
    monkeypatch.setattr(helpers.launch.nodes.node, "program_words", lambda host: words)
    config = with_hosts_of_job(NodesConfig(connect_seconds=20.0), os.environ)
    return run_on_nodes(job, monkeypatch, behaviour, on_progress=on_progress, config=config)


def steps(slurm: SlurmCluster, allocation: str) -> list[str]:
    return slurm.command("squeue", "--noheader", "--steps", f"--jobs={allocation}", "--format=%i").split()


def test_two_nodes_of_a_job_give_the_logs_of_both_ranks_here(
    slurm: SlurmCluster, allocation: str, job: JobSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    during: list[list[str]] = []

    def look(progress: Progress) -> None:
        if not during and progress.step:
            during.append(steps(slurm, allocation))

    outcome = run(job, monkeypatch, on_progress=look)
    assert (outcome.kind, outcome.reason) == (OutcomeKind.COMPLETE, "")
    assert [log.header.rank for log in outcome.logs] == [0, 1]
    # The first node's share runs in this process, that of the other one is a step.
    assert [len(found) for found in during] == [1]
    assert steps(slurm, allocation) == []


def test_a_session_in_a_job_has_the_jobs_nodes(allocation: str, tmp_path: Path) -> None:
    options = SuiteOptions(ROOT / "helpers/plan/defaults.yaml", ROOT / "baselines", tmp_path, "s")
    assert [host.name for host in Suite.load(options).config.nodes.hosts] == ["n0", "n1"]


def test_a_step_has_the_cards_that_slurm_granted_to_its_job_on_its_node(
    slurm: SlurmCluster, allocation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two jobs with one of the node's two cards each."""
    show = (
        "from helpers.machine.devices import discover\n"
        "from tests.helpers.machine.test_devices import A100, StandInNvml\n"
        "print([gpu.index for gpu in discover(StandInNvml(tuple(A100[:2]), {})).gpus])"
    )
    host = with_hosts_of_job(NodesConfig(), os.environ).hosts[1]
    with subprocess.Popen(["srun", "--quiet", "--gres=gpu:1", "--nodelist=n1", "sleep", "60"], env=slurm.variables):
        second = other_job(slurm, allocation)
        for card, job in enumerate((allocation, second)):
            monkeypatch.setenv("SLURM_JOB_ID", job)
            words = (*step_words(host), sys.executable, "-c", show)
            done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT)
            assert done.stdout == f"[{card}]\n", done.stderr
        slurm.command("scancel", second)


def other_job(slurm: SlurmCluster, allocation: str) -> str:
    """The id of the running job besides this process's own."""
    deadline = time.monotonic() + 30.0
    while time.monotonic() < deadline:
        running = slurm.command("squeue", "--noheader", "--states=RUNNING", "--format=%i").split()
        if others := [job for job in running if job != allocation]:
            return others[0]
        time.sleep(0.1)
    raise AssertionError(slurm.logs())


def test_a_lost_programs_step_is_ended_by_slurm_and_the_node_is_named(
    slurm: SlurmCluster, allocation: str, job: JobSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = run(job, monkeypatch, "waits-for-peer", kills_program(job))
    assert outcome.what == "rank lost"
    assert outcome.reason.startswith("node n1 (127.0.0.3) was lost: it closed the connection, it exited with 137")
    deadline = time.monotonic() + 15.0
    while steps(slurm, allocation) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert steps(slurm, allocation) == []


def test_two_nodes_with_one_address_are_refused(allocation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = "NodeName=n0 Arch=x NodeAddr=10.0.0.1 x\nNodeName=n1 Arch=x NodeAddr=10.0.0.1 x\n"
    monkeypatch.setattr(
        helpers.launch.nodes.slurm, "ask_slurm", lambda *words: "n0\nn1\n" if "hostnames" in words else shown
    )
    with pytest.raises(LaunchError, match=r"node n1 of Slurm: field 'NodeAddr': got '10.0.0.1, the address of node n0"):
        with_hosts_of_job(NodesConfig(), os.environ)
