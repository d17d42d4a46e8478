"""Two nodes on this machine: their real programs and processes, with a double in the trainer's place."""

import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path

import pytest

import helpers.launch.nodes.connected
from helpers.launch.failure import NODE_NOT_READY
from helpers.launch.nodes import link
from helpers.launch.nodes.connected import CaseNeeds, connect_nodes
from helpers.launch.nodes.node import Node
from helpers.launch.nodes.share import node_mark
from helpers.launch.outcome import JobOutcome, OutcomeKind
from helpers.launch.supervisor import JobLimits, run_job
from helpers.launch.tail import Progress
from helpers.machine.devices import Machine
from helpers.machine.watch.processes import Processes
from helpers.plan.perf_yaml import HostConfig, NodesConfig
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import LaunchError
from helpers.trainers.contract.job import JobSpec
from tests.helpers.launch.share_stand_in import CARDS, MACHINE, VERSION, stand_in_command
from tests.helpers.launch.test_supervisor import LIMITS as supervisor_limits
from tests.helpers.launch.test_supervisor import QuietMeter
from tests.job_processes import is_alive, processes_of_job

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("share_stand_in.py")
CASE = Case.parse("paddle-resnet50v1.5-fp32-bs8-2x1-synthetic-dynamic")
LIMITS = replace(
    supervisor_limits, start_up_seconds=30.0, no_progress_seconds=10.0, run_seconds=60.0, rank_death_seconds=0.6,
    grace_seconds=0.5, late_seconds=0.0,
)  # fmt: skip
FIRST = HostConfig("n0", "127.0.0.1")


def host(**words: str) -> HostConfig:
    connect = (sys.executable, str(PROGRAM), *(f"{key}={value}" for key, value in words.items()))
    return HostConfig("n1", "127.0.0.1", connect)


def nodes(*others: HostConfig, connect_seconds: float = 20.0) -> NodesConfig:
    return NodesConfig((FIRST, *others), connect_seconds=connect_seconds)


def needs(**values: object) -> CaseNeeds:
    build = {"interpreter": sys.executable, "distribution": "paddlepaddle", "version": VERSION, "commit": ""}
    return replace(CaseNeeds(CASE, "cpu", build, MACHINE, wait_seconds=10.0), **values)  # type: ignore[arg-type]


@pytest.fixture
def job(tmp_path: Path) -> Generator[JobSpec, None, None]:
    """A job of two nodes, nothing of which may live after the test."""
    spec = JobSpec(uuid.uuid4().hex, CASE, 0, str(tmp_path / "run"), "cpu", warmup_steps=2, window_steps=5)
    yield spec
    for mark in (spec.job_id, node_mark(spec.job_id, 1)):
        assert processes_of_job(mark) == []


def run(
    job: JobSpec,
    monkeypatch: pytest.MonkeyPatch,
    first: str = "trains",
    second: str = "trains",
    on_progress: Callable[[Progress], None] | None = None,
    limits: JobLimits = LIMITS,
    meter: QuietMeter | None = None,
    config: NodesConfig | None = None,
    **words: str,
) -> JobOutcome:
    monkeypatch.setattr(helpers.launch.nodes.connected, "launch_command", stand_in_command(first))
    with connect_nodes(CASE, config or nodes(host(behaviour=second, **words))) as connected:
        assert connected.prepare(needs(), CARDS[: connected.nodes_here], print) == CARDS[:1]
        command, others = connected.start_of(job, sys.executable, limits.grace_seconds)
        return run_job(job, command, limits, meter or QuietMeter(), on_progress=on_progress, others=others)


def test_two_nodes_give_the_logs_of_both_ranks_here(job: JobSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    meter = QuietMeter()
    outcome = run(job, monkeypatch, meter=meter)
    assert (outcome.kind, outcome.reason) == (OutcomeKind.COMPLETE, "")
    assert [log.header.rank for log in outcome.logs] == [0, 1]
    assert outcome.contention.foreign_share is not None
    # Only this node's rank is on this node's clock.
    assert meter.windows == [(outcome.logs[0].window[0].start, outcome.logs[0].window[-1].end)]


@pytest.mark.parametrize(
    ("first", "second", "kind", "told"),
    [
        ("loses-peer", "killed", OutcomeKind.FAILED, "rank 1 on n1 (127.0.0.1) ended without a footer at step 3"),
        ("trains", "killed", OutcomeKind.FAILED, "ended without a footer at step 3: ended by SIGKILL"),
        ("killed", "waits-for-peer", OutcomeKind.FAILED, "rank 0 on n0 (127.0.0.1) ended without a footer"),
        ("trains", "refuses", OutcomeKind.REFUSED, "bf16 needs AVX512_BF16"),
        ("trains", "hangs", OutcomeKind.FAILED, "rank 1 on n1 (127.0.0.1) gave no sign of life for 0.6 s"),
    ],
)  # fmt: skip
def test_a_rank_that_fails_on_either_node_is_named_and_both_nodes_end(
    job: JobSpec, monkeypatch: pytest.MonkeyPatch, first: str, second: str, kind: OutcomeKind, told: str
) -> None:
    limits = replace(LIMITS, no_progress_seconds=0.6) if second == "hangs" else LIMITS
    outcome = run(job, monkeypatch, first, second, limits=limits)
    assert told in outcome.reason and "may still run" not in outcome.reason
    assert outcome.kind is kind
    assert outcome.logs == ()


def kills_program(job: JobSpec) -> Callable[[Progress], None]:
    """Kills the second node's program, which is the parent of its job's guard."""
    killed: list[int] = []

    def kill(progress: Progress) -> None:
        for guard in Processes().marked(node_mark(job.job_id, 1))[1]:
            if progress.step > 2 and not killed:
                killed.append(guard.parent)
                os.kill(guard.parent, signal.SIGKILL)

    return kill


def test_a_killed_node_program_ends_the_job_on_both_nodes_and_is_named(
    job: JobSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = run(job, monkeypatch, "waits-for-peer", "waits-for-peer", kills_program(job))
    assert outcome.what == "rank lost"
    assert outcome.reason.startswith("node n1 (127.0.0.1) was lost: ") and "SIGKILL" in outcome.reason
    assert outcome.guilty_rank == 1


def test_a_node_without_the_shared_file_system_is_its_reason(job: JobSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = run(job, monkeypatch, "never-starts", "trains", blind="yes")
    assert outcome.failure is NODE_NOT_READY and not outcome.failure.retriable
    assert outcome.reason.startswith(f"node n1 (127.0.0.1): run folder {job.run_folder}")


def test_the_second_ctrl_c_ends_both_nodes_without_grace(job: JobSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    limits, pressed = replace(LIMITS, grace_seconds=30.0), []
    again = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM))

    def interrupt(progress: Progress) -> None:
        # The other node's rank must heed nothing by then, too.
        if progress.step and not pressed and job.step_log_path(1).exists():
            again.start()
            pressed.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt):
        run(job, monkeypatch, "stubborn", "stubborn", interrupt, limits=limits)
    assert time.monotonic() - pressed[0] < 5.0


@pytest.mark.parametrize("goes", ["its connection closes", "it falls silent"])
def test_a_node_ends_its_job_when_the_first_node_is_gone(
    job: JobSpec, monkeypatch: pytest.MonkeyPatch, goes: str
) -> None:
    if goes == "it falls silent":
        monkeypatch.setattr(link.Link, "_show_life", lambda self: None)
    with connect_nodes(CASE, nodes(host(behaviour="hangs", silence="2"))) as connected:
        connected.prepare(needs(), CARDS, print)
        _, others = connected.start_of(job, sys.executable, 0.2)
        Path(job.run_folder).mkdir()
        job.spec_path.write_text(job.to_json())
        others.start()
        while not job.step_log_path(1).exists():
            others.look()
            assert others.lost is None
            time.sleep(0.01)
        assert processes_of_job(node_mark(job.job_id, 1))
        while goes == "it falls silent" and others.lost is None:
            others.look()
    deadline = time.monotonic() + 10.0
    while processes_of_job(node_mark(job.job_id, 1)) and time.monotonic() < deadline:
        time.sleep(0.02)


def test_where_the_first_nodes_share_does_not_start_nobody_waits_for_the_other(job: JobSpec) -> None:
    with connect_nodes(CASE, nodes(host())) as connected:
        connected.prepare(needs(), CARDS, print)
        command, others = connected.start_of(job, "/nowhere/python", 0.5)
        with pytest.raises(LaunchError, match="Correct the interpreter"):
            run_job(job, command, LIMITS, QuietMeter(), others=others)
        assert others.wait_for_end(60.0) == ""


# ---- before a job


def refusal(*others: HostConfig, seconds: float = 20.0, **values: object) -> str:
    with (
        pytest.raises(LaunchError) as raised,
        connect_nodes(CASE, nodes(*others, connect_seconds=seconds)) as connected,
    ):
        connected.prepare(needs(**values), CARDS[: connected.nodes_here], print)
    return str(raised.value)


def test_a_host_that_cannot_be_reached_is_named_with_the_words_of_its_connection() -> None:
    gone = replace(host(), connect=("sh", "-c", "echo 'ssh: No route to host' >&2; exit 255", "sh"))
    told = refusal(gone)
    assert told.startswith(
        "node n1 (127.0.0.1): got 'it closed the connection, it exited with 255: ssh: No route to host'"
    )
    assert "Try it: sh -c" in told


def test_a_connection_that_is_a_script_is_ended_with_what_it_waits_for(tmp_path: Path) -> None:
    node = Node(host(), 1, ("sh", "-c", f"sleep 60 & echo $! >{tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; wait"))
    node.lost = "given up"
    while not (told := tmp_path / "pid").exists():
        time.sleep(0.01)
    node.close()
    waited, deadline = int(told.read_text()), time.monotonic() + 5.0
    while is_alive(waited) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_alive(waited)


@pytest.mark.parametrize(
    ("here", "there", "difference"),
    [
        (MACHINE, {"suite": "0123"}, "suite: "),
        (
            replace(MACHINE, facts=replace(MACHINE.facts, cpu_model="Intel Xeon")),
            {},
            "processor: Intel Xeon → AMD EPYC",
        ),
    ],
)
def test_a_node_with_another_checkout_or_machine_is_refused(
    here: Machine, there: dict[str, str], difference: str
) -> None:
    assert f"another machine than this one, {difference}" in refusal(host(**there), machine=here)


def test_the_first_host_must_be_this_machine() -> None:
    config = NodesConfig((replace(FIRST, address="192.0.2.1"), host()))
    with (
        pytest.raises(LaunchError, match=r"host n0: field 'address': got '192.0.2.1:any port"),
        connect_nodes(CASE, config),
    ):
        pass


def test_a_node_on_another_machine_leases_its_own_cards(tmp_path: Path) -> None:
    other = replace(host(boot_id="x"), environment={"XDG_CACHE_HOME": str(tmp_path)})
    with connect_nodes(CASE, nodes(other)) as connected:
        assert connected.nodes_here == 1
        connected.prepare(needs(), CARDS[:1], print)
        locks = list(tmp_path.rglob("machine.lock"))
        assert len(locks) == 1 and CASE.id in locks[0].read_text()
        # Held by the first connection's program, so the second one's waits and gives up.
        told = refusal(other, wait_seconds=1.0)
        assert "node n1" in told and "is held by process" in told
