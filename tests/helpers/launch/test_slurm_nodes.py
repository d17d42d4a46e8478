"""Two nodes of a real Slurm: agents as job steps, with a double in the trainer's place."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

import helpers.launch.nodes.connected
import helpers.launch.nodes.link
import helpers.launch.nodes.slurm
import helpers.launch.nodes.stream
from helpers.judging.failure_class import FailureClass
from helpers.launch.nodes.accounting import NO_ACCOUNTING
from helpers.launch.nodes.connected import connect_nodes
from helpers.launch.nodes.job import node_mark
from helpers.launch.nodes.slurm import with_hosts_of_job
from helpers.launch.outcome import JobOutcome, OutcomeKind
from helpers.launch.supervisor import run_job
from helpers.launch.tail import Progress
from helpers.machine.watch.processes import Processes
from helpers.plan.perf_yaml import NodesConfig
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.errors import LaunchError
from helpers.trainers.contract.job import JobSpec
from tests.faults.control_group import why_no_memory_group
from tests.helpers.launch.agent_stand_in import CARDS, StandInLauncher
from tests.helpers.launch.test_nodes import AGENT, CASE, LIMITS, QuietMeter, needs
from tests.job_processes import processes_of_job
from tests.slurm_cluster import SlurmCluster, missing_programs, slurm_cluster

pytestmark = pytest.mark.slow
# The number of the devices of NVIDIA's cards (Linux, Documentation/admin-guide/devices.txt).
_NVIDIA = 195
_NO_DRIVER = (errno.ENXIO, errno.ENODEV)


@pytest.fixture
def job(tmp_path: Path) -> Generator[JobSpec, None, None]:
    """A job of two nodes, nothing of which may live after the test."""
    spec = JobSpec(uuid.uuid4().hex, CASE, 0, str(tmp_path / "run"), "cpu", warmup_steps=2, window_steps=5)
    yield spec
    assert list(Path(tempfile.gettempdir()).glob(f"*{spec.job_id}*")) == []
    for mark in (spec.job_id, node_mark(spec.job_id, 1)):
        assert processes_of_job(mark) == []


def run(
    job: JobSpec,
    monkeypatch: pytest.MonkeyPatch,
    first: str = "trains",
    second: str = "trains",
    on_progress: Callable[[Progress], None] | None = None,
    agent: tuple[str, ...] = (),
) -> JobOutcome:
    words = (sys.executable, str(AGENT), f"behaviour={second}", *agent)
    monkeypatch.setattr(helpers.launch.nodes.connected, "launcher_for", lambda spec: StandInLauncher(first))
    monkeypatch.setattr(helpers.launch.nodes.link, "agent_words", lambda host, interpreter: words)
    nodes = with_hosts_of_job(NodesConfig(connect_seconds=20.0), os.environ)
    with connect_nodes(CASE, nodes, sys.executable) as connected:
        assert connected.prepare(needs(), CARDS[: connected.nodes_here], print) == CARDS[:1]
        command, others = connected.start_of(job, sys.executable, LIMITS.grace_seconds)
        return run_job(job, command, LIMITS, QuietMeter(), on_progress=on_progress, others=others)


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


def test_the_hosts_are_the_nodes_of_the_job_and_this_one_is_the_first(
    allocation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    nodes = with_hosts_of_job(NodesConfig(interface="lo", environment={"NCCL_IB_HCA": "mlx5_0"}), os.environ)
    assert [(host.name, host.address) for host in nodes.hosts] == [("n1", "127.0.0.3"), ("n0", "127.0.0.2")]
    assert {host.interface for host in nodes.hosts} == {"lo"}
    assert all(host.environment == {"NCCL_IB_HCA": "mlx5_0"} for host in nodes.hosts)


def test_a_step_has_the_cards_that_slurm_granted_to_its_job_on_its_node(slurm: SlurmCluster, allocation: str) -> None:
    """Two jobs with one of the node's two cards each. Where a site sets no CUDA_VISIBLE_DEVICES, Slurm's own variable
    counts."""
    show = (
        "from helpers.machine.devices import discover\n"
        "from tests.helpers.machine.test_devices import A100, StandInNvml\n"
        "print([gpu.index for gpu in discover(StandInNvml(A100[:2])).gpus])"
    )
    host = with_hosts_of_job(NodesConfig(), os.environ).hosts[1]
    with subprocess.Popen(["srun", "--quiet", "--gres=gpu:1", "--nodelist=n1", "sleep", "60"], env=slurm.variables):
        second = other_job(slurm, allocation)
        for card, job in enumerate((allocation, second)):
            for without in ((), ("env", "-u", "CUDA_VISIBLE_DEVICES")):
                words = (*helpers.launch.nodes.slurm.JobStep(job).words(host), *without, sys.executable, "-c", show)
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


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (signal.SIGKILL, "its agent exited with 137"),
        (signal.SIGSTOP, "no sign of life from its agent for 2 s"),
    ],
)
def test_a_lost_agents_step_is_ended_by_slurm_and_the_node_is_named(
    slurm: SlurmCluster,
    allocation: str,
    job: JobSpec,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
    told: str,
) -> None:
    monkeypatch.setattr(helpers.launch.nodes.stream, "SILENCE_SECONDS", 2.0)
    struck: list[int] = []

    def strike(progress: Progress) -> None:
        # The agent is the parent of its job's guard.
        for guard in Processes().marked(node_mark(job.job_id, 1))[1]:
            if progress.step > 2 and not struck:
                struck.append(guard.parent)
                os.kill(guard.parent, number)

    outcome = run(job, monkeypatch, "waits-for-peer", "waits-for-peer", strike)
    assert outcome.kind is OutcomeKind.CRASHED
    assert outcome.reason.startswith(f"node n1 (127.0.0.3) was lost: {told}")
    assert outcome.reason.endswith(NO_ACCOUNTING)
    assert steps(slurm, allocation) == []
    deadline = time.monotonic() + 5.0
    while (found := Processes().look(struck[0])) is not None and found.alive and time.monotonic() < deadline:
        time.sleep(0.05)
    assert found is None or not found.alive


def test_a_job_that_is_cancelled_is_a_lost_node(
    slurm: SlurmCluster, allocation: str, job: JobSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancelled: list[str] = []

    def cancel(progress: Progress) -> None:
        if progress.step > 2 and not cancelled:
            cancelled.append(allocation)
            slurm.command("scancel", allocation)

    outcome = run(job, monkeypatch, "waits-for-peer", "stubborn", cancel)
    assert outcome.reason.startswith("node n1 (127.0.0.3) was lost: its agent was ended by a signal")


def test_an_agent_that_the_kernel_ended_is_told_so_by_slurms_accounting(
    accounted_allocation: str, job: JobSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why := why_no_memory_group():
        pytest.skip(why)
    outcome = run(job, monkeypatch, "waits-for-peer", "waits-for-peer", agent=("greedy=yes",))
    assert outcome.failure_class is FailureClass.OOM_KILLED, outcome.reason
    assert outcome.reason.startswith("node n1 (127.0.0.3) was lost: its agent exited with ")
    assert f"Slurm's accounting of step {accounted_allocation}.0: OUT_OF_MEMORY on n1" in outcome.reason


def test_two_nodes_with_one_address_are_refused(allocation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = "NodeName=n0 Arch=x NodeAddr=10.0.0.1 x\nNodeName=n1 Arch=x NodeAddr=10.0.0.1 x\n"
    monkeypatch.setattr(
        helpers.launch.nodes.slurm, "ask_slurm", lambda *words: "n0\nn1\n" if "hostnames" in words else shown
    )
    with pytest.raises(LaunchError, match=r"node n1 of Slurm: field 'NodeAddr': got '10.0.0.1, the address of node n0"):
        with_hosts_of_job(NodesConfig(), os.environ)


@pytest.fixture(scope="module")
def cards_of_groups(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """Devices with the numbers of NVIDIA's cards; none where this process may not make or use them."""
    folder = tmp_path_factory.mktemp("cards")
    cards = tuple(str(folder / f"nvidia{number}") for number in range(2))
    for number, card in enumerate(cards):
        try:
            os.mknod(card, 0o666 | stat.S_IFCHR, os.makedev(_NVIDIA, number))
            os.close(os.open(card, os.O_RDWR))
        except OSError as error:
            if error.errno not in _NO_DRIVER:
                return ()
    return cards


@pytest.fixture(scope="module")
def slurm_with_groups(
    tmp_path_factory: pytest.TempPathFactory, cards_of_groups: tuple[str, ...]
) -> Generator[SlurmCluster, None, None]:
    if why := missing_programs() or why_no_memory_group():
        pytest.skip(f"no Slurm with control groups: {why}")
    with slurm_cluster(tmp_path_factory.mktemp("groups"), control_groups=True, cards=cards_of_groups) as cluster:
        yield cluster


def test_a_step_knows_the_cores_and_the_memory_that_slurm_leaves_it(slurm_with_groups: SlurmCluster) -> None:
    """The second program wants more memory than its job has."""
    show = (
        "from helpers.machine.host import OomKills, probe_host_state, read_oom_kills\n"
        "import subprocess, sys\n"
        "state, before = probe_host_state(), read_oom_kills()\n"
        "subprocess.run([sys.executable, '-c', 'bytearray(10**9)'])\n"
        "print(state.memory_limit_bytes, state.physical_cores, read_oom_kills().group - before.group)"
    )
    words = ("srun", "--ntasks=1", "--mem=300", sys.executable, "-c", show)
    done = subprocess.run(words, env=slurm_with_groups.variables, capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.split() == [str(300 * 2**20), "1", "1"], done.stderr


def test_a_step_that_slurm_holds_to_its_card_uses_that_card(
    slurm_with_groups: SlurmCluster, cards_of_groups: tuple[str, ...]
) -> None:
    """ConstrainDevices: another job has the node's first card. The second one's step can open the second card alone,
    which is the only one that NVML lists."""
    if not cards_of_groups:
        pytest.skip("this process may not make devices")
    show = (
        "import errno, os, sys\n"
        "from helpers.machine.devices import discover\n"
        "from tests.helpers.machine.test_devices import A100, StandInNvml\n"
        "for card in sys.argv[1:]:\n"
        "    try:\n"
        "        os.close(os.open(card, os.O_RDWR))\n"
        "        print('opened')\n"
        "    except OSError as error:\n"
        "        print('refused' if error.errno == errno.EPERM else 'no driver')\n"
        "print(os.environ['SLURM_STEP_GPUS'], [gpu.index for gpu in discover(StandInNvml(A100[:1])).gpus])"
    )
    variables = slurm_with_groups.variables
    asked = ("--quiet", "--gres=gpu:1", "--nodelist=n1", "--mem=100")
    with subprocess.Popen(["srun", *asked, "sleep", "60"], env=variables) as first:
        deadline = time.monotonic() + 30.0
        while not slurm_with_groups.command("squeue", "--noheader", "--states=RUNNING"):
            assert time.monotonic() < deadline, slurm_with_groups.logs()
            time.sleep(0.1)
        words = ("srun", *asked, sys.executable, "-c", show, *cards_of_groups)
        done = subprocess.run(words, env=variables, capture_output=True, text=True, cwd=ROOT)
        first.terminate()
    refused, second, told = done.stdout.splitlines()
    assert (refused, told) == ("refused", "1 [0]"), done.stderr
    # With a driver it is opened.
    assert second in ("no driver", "opened")
