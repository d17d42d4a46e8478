"""Two nodes on this machine: real agents and processes, with a double in the trainer's place."""

import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Collection, Generator
from dataclasses import replace
from pathlib import Path

import pytest

import helpers.launch.nodes.connected
import helpers.launch.nodes.stream
from helpers.launch.nodes.connected import CaseNeeds, ConnectedNodes, connect_nodes
from helpers.launch.nodes.job import node_mark
from helpers.launch.nodes.link import NodeLink, Starter
from helpers.launch.nodes.others import merged
from helpers.launch.nodes.stream import FrameStream, Hangup
from helpers.launch.outcome import JobOutcome, OutcomeKind
from helpers.launch.supervisor import JobLimits, run_job
from helpers.launch.tail import Progress
from helpers.machine.watch.contention import ContentionSample
from helpers.machine.watch.processes import Process, Processes
from helpers.plan.perf_yaml import HostConfig, NodesConfig
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import LaunchError
from helpers.trainers.contract.job import JobSpec
from tests.helpers.launch.agent_stand_in import CARDS, MACHINE, VERSION, StandInLauncher
from tests.job_processes import processes_of_job

pytestmark = pytest.mark.slow

AGENT = Path(__file__).with_name("agent_stand_in.py")
CASE = Case.parse("paddle-resnet50v1.5-fp32-bs8-2x1-synthetic-dynamic")
LIMITS = JobLimits(
    start_up_seconds=30.0,
    no_progress_seconds=10.0,
    run_seconds=60.0,
    rank_death_seconds=0.6,
    grace_seconds=0.5,
    poll_seconds=0.02,
    survey_seconds=0.2,
)
FIRST = HostConfig("n0", "127.0.0.1")


class QuietMeter:
    def __init__(self) -> None:
        self.windows: list[tuple[float, float] | None] = []

    def sample(self, at: float, own: Collection[int], everyone: Collection[Process] | None) -> None:
        return

    def contention(self, window: tuple[float, float] | None) -> ContentionSample:
        self.windows.append(window)
        return ContentionSample(0.0, window_seconds=1.0)

    def unhealthy(self, window: tuple[float, float] | None) -> tuple[str, ...]:
        return ()


def host(**words: str) -> HostConfig:
    connect = (sys.executable, str(AGENT), *(f"{key}={value}" for key, value in words.items()))
    return HostConfig("n1", "127.0.0.1", connect)


def nodes(*others: HostConfig, connect_seconds: float = 20.0) -> NodesConfig:
    return NodesConfig((FIRST, *others), connect_seconds=connect_seconds)


def needs(**values: object) -> CaseNeeds:
    build = {"distribution": "paddlepaddle", "version": VERSION, "commit": ""}
    return replace(CaseNeeds(CASE, "cpu", build, MACHINE, wait_seconds=10.0), **values)  # type: ignore[arg-type]


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
    limits: JobLimits = LIMITS,
    meter: QuietMeter | None = None,
) -> JobOutcome:
    monkeypatch.setattr(helpers.launch.nodes.connected, "launcher_for", lambda spec: StandInLauncher(first))
    with connect_nodes(CASE, nodes(host(behaviour=second)), sys.executable) as connected:
        assert connected.prepare(needs(), CARDS[: connected.nodes_here], print) == CARDS[:1]
        command, others = connected.start_of(job, sys.executable, limits.grace_seconds)
        return run_job(job, command, limits, meter or QuietMeter(), on_progress=on_progress, others=others)


def test_two_nodes_give_the_logs_of_both_ranks_here(job: JobSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    meter = QuietMeter()
    outcome = run(job, monkeypatch, meter=meter)
    assert (outcome.kind, outcome.reason, outcome.exit_code) == (OutcomeKind.COMPLETE, "", 0)
    assert [log.header.rank for log in outcome.logs] == [0, 1]
    assert outcome.contention.foreign_share is not None
    # Only this node's rank is on this node's clock.
    assert meter.windows == [(outcome.logs[0].window[0].start, outcome.logs[0].window[-1].end)]


def test_several_jobs_run_over_one_crew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helpers.launch.nodes.connected, "launcher_for", lambda spec: StandInLauncher("trains"))
    kinds = []
    with connect_nodes(CASE, nodes(host()), sys.executable) as connected:
        connected.prepare(needs(), CARDS, print)
        for replicate in range(2):
            spec = JobSpec(uuid.uuid4().hex, CASE, replicate, str(tmp_path / str(replicate)), "cpu", 1, 2)
            command, others = connected.start_of(spec, sys.executable, 0.5)
            kinds.append(run_job(spec, command, LIMITS, QuietMeter(), others=others).kind)
    assert kinds == [OutcomeKind.COMPLETE] * 2


@pytest.mark.parametrize(
    ("first", "second", "kind", "told"),
    [
        ("trains", "killed", OutcomeKind.CRASHED, "rank 1 on n1 (127.0.0.1) ended without a footer at step 3: "
         "ended by SIGKILL"),
        ("loses-peer", "killed", OutcomeKind.CRASHED, "rank 1 on n1 (127.0.0.1) ended without a footer"),
        ("killed", "waits-for-peer", OutcomeKind.CRASHED, "rank 0 on n0 (127.0.0.1) ended without a footer"),
        ("waits-for-peer", "raises", OutcomeKind.CRASHED, "rank 1 on n1 (127.0.0.1) failed: ValueError: labels"),
        ("trains", "refuses", OutcomeKind.REFUSED, "bf16 needs AVX512_BF16"),
        ("waits-for-peer", "no-module", OutcomeKind.CRASHED, "rank 1 on n1 (127.0.0.1) ended without a footer at "
         "phase 'start': exited with 1: ModuleNotFoundError: No module named"),
        ("trains", "hangs", OutcomeKind.HUNG, "rank 1 on n1 (127.0.0.1) gave no sign of life for 0.6 s"),
        ("trains", "truncates", OutcomeKind.BAD_LOG, "rank 1 on n1 (127.0.0.1) ended without its log's footer"),
        ("trains", "foreign", OutcomeKind.BAD_LOG, "field 'job_id': got 'another-job'"),
        ("trains", "short", OutcomeKind.BAD_LOG, "field 'window steps': got 4, expected 5"),
    ],
)  # fmt: skip
def test_a_rank_that_fails_on_either_node_is_named_and_both_nodes_end(
    job: JobSpec, monkeypatch: pytest.MonkeyPatch, first: str, second: str, kind: OutcomeKind, told: str
) -> None:
    limits = replace(LIMITS, no_progress_seconds=0.6) if second == "hangs" else LIMITS
    outcome = run(job, monkeypatch, first, second, limits=limits)
    assert told in outcome.reason
    assert outcome.kind is kind
    assert outcome.logs == ()


def test_what_a_rank_on_another_node_printed_is_here(job: JobSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = run(job, monkeypatch, "waits-for-peer", "raises")
    assert outcome.log_tail == "ValueError: labels out of range"
    assert (Path(job.run_folder) / "node1" / "output.log").read_text() == "ValueError: labels out of range\n"


@pytest.mark.parametrize(
    ("after", "behaviour", "kind"),
    [(2, "waits-for-peer", OutcomeKind.CRASHED), (-1, "never-starts", OutcomeKind.START_UP_FAILED)],
)
def test_a_killed_agent_ends_the_job_on_both_nodes_and_is_named(
    job: JobSpec, monkeypatch: pytest.MonkeyPatch, after: int, behaviour: str, kind: OutcomeKind
) -> None:
    def kill_agent(progress: Progress) -> None:
        # The agent is the parent of its job's guard.
        for guard in Processes().marked(node_mark(job.job_id, 1))[1]:
            if progress.step > after:
                os.kill(guard.parent, signal.SIGKILL)

    outcome = run(job, monkeypatch, behaviour, behaviour, kill_agent)
    assert outcome.kind is kind
    assert outcome.reason.startswith("node n1 (127.0.0.1) was lost: its agent ended by SIGKILL")
    assert outcome.guilty_rank == 1


def test_what_a_node_cannot_start_is_its_reason(job: JobSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    # What a killed agent left, were a job's name ever used again.
    (Path(tempfile.gettempdir()) / f"perfgate-{node_mark(job.job_id, 1)}").mkdir()
    outcome = run(job, monkeypatch, "never-starts")
    assert outcome.kind is OutcomeKind.START_UP_FAILED
    assert outcome.reason.startswith("node n1 (127.0.0.1): [Errno 17] File exists")


def test_a_rank_that_prints_without_end_on_another_node_holds_nobody_up(
    job: JobSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = run(job, monkeypatch, "trains", "floods")
    assert outcome.kind is OutcomeKind.COMPLETE
    assert (Path(job.run_folder) / "node1" / "output.log").stat().st_size == 5 * 2**20


def test_an_agent_whose_words_nobody_takes_gives_up() -> None:
    (incoming, _), (_, outgoing) = os.pipe(), os.pipe()
    with pytest.raises(Hangup, match=r"the first node reads nothing for 0.05 s"):
        FrameStream("the first node", incoming, outgoing, silence_seconds=0.05).send("waiting", obstacle="x" * 2**20)


def test_ctrl_c_ends_both_nodes(job: JobSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(progress: Progress) -> None:
        if progress.step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(job, monkeypatch, "waits-for-peer", "stubborn", interrupt)


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


def test_a_killed_agents_guard_ends_its_nodes_share_without_another_agent(
    job: JobSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Starter, "end", lambda *given: None)
    mark, killed = node_mark(job.job_id, 1), []

    def kill_agent(progress: Progress) -> None:
        if progress.step > 2 and not killed and (guards := Processes().marked(mark)[1]):
            killed.append(guards[0].parent)
            os.kill(killed[0], signal.SIGKILL)

    outcome = run(job, monkeypatch, "waits-for-peer", "stubborn", kill_agent)
    assert outcome.reason.startswith("node n1 (127.0.0.1) was lost") and killed
    deadline = time.monotonic() + 10.0
    while processes_of_job(mark) and time.monotonic() < deadline:
        time.sleep(0.02)
    # The folder is the killed agent's; the sweep, which is left out here, removes it.
    shutil.rmtree(Path(tempfile.gettempdir()) / f"perfgate-{mark}")


@pytest.mark.parametrize("goes", ["its connection closes", "it falls silent"])
def test_a_node_ends_its_job_when_the_first_node_is_gone(
    job: JobSpec, goes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(helpers.launch.nodes.stream, "ALIVE_SECONDS", 0.1)
    link = NodeLink(host(), 1, (*host(behaviour="hangs", silence="0.8").connect,))
    link.greet(20.0)
    connected = ConnectedNodes((FIRST, link.host), [link])
    connected.prepare(needs(), CARDS, print)
    _, others = connected.start_of(job, sys.executable, 0.2)
    others.start()
    while not job.step_log_path(1).exists():
        others.look()
        assert others.lost is None
        time.sleep(0.01)
    assert processes_of_job(node_mark(job.job_id, 1))
    if goes == "it falls silent":
        while link.lost is None:
            link.receive(0.1)
        assert "no sign of life from the first node for 0.8 s" in link.lost
    link.close()


def test_where_the_first_nodes_share_does_not_start_nobody_waits_for_the_other(job: JobSpec) -> None:
    with connect_nodes(CASE, nodes(host()), sys.executable) as connected:
        connected.prepare(needs(), CARDS, print)
        command, others = connected.start_of(job, "/nowhere/python", 0.5)
        with pytest.raises(LaunchError, match="Correct the interpreter"):
            run_job(job, command, LIMITS, QuietMeter(), others=others)
        assert others.wait_for_end(60.0) == ""


# ---- before a job


def refusal(*others: HostConfig, seconds: float = 20.0, **values: object) -> str:
    with (
        pytest.raises(LaunchError) as raised,
        connect_nodes(CASE, nodes(*others, connect_seconds=seconds), sys.executable) as connected,
    ):
        connected.prepare(needs(**values), CARDS[: connected.nodes_here], print)
    return str(raised.value)


def test_a_host_that_cannot_be_reached_is_named_with_the_words_of_its_connection() -> None:
    gone = replace(host(), connect=("sh", "-c", "echo 'ssh: No route to host' >&2; exit 255", "sh"))
    told = refusal(gone)
    assert told.startswith("node n1 (127.0.0.1): got 'its agent exited with 255: ssh: No route to host'")
    assert "Try it: sh -c" in told


def test_a_host_that_never_answers_is_given_up_in_time() -> None:
    silent = replace(host(), connect=(sys.executable, "-c", "import time; time.sleep(60)"))
    assert "no hello within 0.2 s" in refusal(silent, seconds=0.2)


def test_a_connection_that_is_a_script_is_ended_with_what_it_waits_for() -> None:
    link = NodeLink(host(), 1, ("sh", "-c", "sleep 60 & echo $! >&2; wait"))
    link.lost = "given up"
    while not (told := link._last_output()):
        time.sleep(0.01)
    link.close()
    waited, deadline = int(told.removeprefix(": ")), time.monotonic() + 5.0
    while (found := Processes().look(waited)) is not None and found.alive and time.monotonic() < deadline:
        time.sleep(0.01)
    assert found is None or not found.alive


def test_a_connection_that_does_not_exist_is_an_error_of_its_host() -> None:
    assert "field 'connect': got \"no-such-program" in refusal(replace(host(), connect=("no-such-program",)))


def test_a_name_that_does_not_resolve_is_an_error_of_its_host() -> None:
    assert "host n1: field 'address': got 'no.such.host.invalid" in refusal(
        replace(host(), address="no.such.host.invalid")
    )


def test_a_node_of_another_checkout_is_refused() -> None:
    told = refusal(host(suite="0123"))
    assert "node n1 (127.0.0.1): field 'suite': got 'version 0123', expected" in told
    assert "to the same commit" in told


def test_a_node_with_another_build_is_refused() -> None:
    told = refusal(host(version="2.6.2"))
    assert "node n1 (127.0.0.1)" in told
    assert "framework: paddlepaddle 3.3.1 → paddlepaddle 2.6.2" in told


def test_a_node_with_another_driver_or_data_is_refused_by_the_same_comparison(tmp_path: Path) -> None:
    other = replace(MACHINE, facts=replace(MACHINE.facts, cpu_model="Intel Xeon"))
    assert "processor: Intel Xeon → AMD EPYC" in refusal(host(), machine=other)


def test_an_address_that_is_not_the_nodes_is_refused() -> None:
    # TEST-NET-1 (RFC 5737) is nobody's.
    assert "address 192.0.2.1: got" in refusal(replace(host(), address="192.0.2.1"))


def test_the_first_host_must_be_this_machine() -> None:
    config = NodesConfig((replace(FIRST, address="192.0.2.1"), host()))
    with (
        pytest.raises(LaunchError, match=r"host n0: field 'address': got '192.0.2.1:any port"),
        connect_nodes(CASE, config, sys.executable),
    ):
        pass


def test_the_port_may_be_another_sessions_until_the_cards_are_leased(job: JobSpec) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        config = replace(nodes(host()), port=other.getsockname()[1])
        with connect_nodes(CASE, config, sys.executable) as connected:
            connected.prepare(needs(), CARDS, print)
            with pytest.raises(LaunchError, match=r"host n0: .*a free port"):
                connected.start_of(job, sys.executable, 0.5)


def test_two_nodes_on_one_other_machine_are_refused() -> None:
    case = replace(CASE, nodes=3)
    other = replace(host(boot_id="x"), name="n2", address="127.0.0.2")
    with (
        pytest.raises(LaunchError, match=r"node n2.*the machine of node n1"),
        connect_nodes(case, nodes(host(boot_id="x"), other), sys.executable),
    ):
        pass


def test_a_node_on_another_machine_leases_its_own_cards(tmp_path: Path) -> None:
    other = replace(host(boot_id="x"), environment={"XDG_CACHE_HOME": str(tmp_path)})
    with connect_nodes(CASE, nodes(other), sys.executable) as connected:
        assert connected.nodes_here == 1
        connected.prepare(needs(), CARDS[:1], print)
        locks = list(tmp_path.rglob("machine.lock"))
        assert len(locks) == 1 and CASE.id in locks[0].read_text()
        # Held by the first connected's agent, so the second one's waits and gives up.
        told = refusal(other, wait_seconds=1.0)
        assert "node n1" in told and "is held by process" in told


def test_a_path_that_a_shell_would_read_otherwise_is_refused() -> None:
    told = refusal(replace(host(), root="/home/a b"))
    assert "PYTHONPATH=/home/a b" in told


def test_an_agent_that_says_nothing_for_long_is_lost() -> None:
    now = [100.0]
    link = NodeLink(host(), 1, (sys.executable, "-c", "import sys; sys.stdin.read()"), clock=lambda: now[0])
    now[0] += 29.0
    link.keep_in_touch()
    assert link.lost is None
    now[0] += 2.0
    link.keep_in_touch()
    assert link.lost == "no sign of life from its agent for 30 s"
    link.close()


def test_a_case_of_one_node_has_no_crew_to_speak_of() -> None:
    with connect_nodes(replace(CASE, nodes=1), NodesConfig(), sys.executable) as connected:
        assert (connected.nodes_here, connected.facts()) == (1, {})
        assert connected.prepare(needs(case=replace(CASE, nodes=1)), CARDS[:1], print) == CARDS[:1]


# ---- contention of several nodes


def test_the_worst_node_counts_and_strangers_are_named_with_their_host() -> None:
    theirs = ContentionSample(0.4, (), 3.0, 1.0)
    both = merged(ContentionSample(0.1, (), 2.0, 0.5), {"n1": theirs})
    assert (both.foreign_share, both.window_seconds, both.steal_seconds) == (0.4, 3.0, 1.5)
    assert merged(ContentionSample(0.1), {}) == ContentionSample(0.1)


def test_a_node_that_was_not_measured_makes_the_whole_not_measured() -> None:
    both = merged(ContentionSample(0.1), {"n1": ContentionSample(None, note="no looks")})
    assert both.describe() == "contention not measured: on n1: no looks"
