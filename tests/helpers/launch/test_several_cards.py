"""Processes that drive one card or several, through the real launchers, supervisor and agents; a double trains."""

from __future__ import annotations

import json
import sys
import uuid
from pathlib import Path

import pytest

import helpers.launch.nodes.connected
from helpers.judging.failure_class import FailureClass
from helpers.judging.rules import MEDIAN_STEP, WALL_CLOCK, figures
from helpers.launch.nodes.connected import CaseNeeds, connect_nodes
from helpers.launch.nodes.job import node_mark
from helpers.launch.outcome import JobOutcome, OutcomeKind
from helpers.launch.supervisor import JobLimits, run_job
from helpers.plan.perf_yaml import HostConfig, NodesConfig
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.job import JobSpec
from tests.faults.stand_in_trainer import STEP_SECONDS
from tests.helpers.launch.agent_stand_in import CARDS, MACHINE, VERSION
from tests.helpers.launch.cards_double import launcher_for
from tests.helpers.launch.test_nodes import QuietMeter
from tests.job_processes import processes_of_job

pytestmark = pytest.mark.slow

AGENT = Path(__file__).with_name("agent_stand_in.py")
LIMITS = JobLimits(
    start_up_seconds=30.0,
    no_progress_seconds=1.5,
    run_seconds=60.0,
    rank_death_seconds=0.6,
    grace_seconds=0.5,
    poll_seconds=0.02,
    survey_seconds=0.2,
)
BATCH = 8
HOSTS = (
    HostConfig("n0", "127.0.0.1"),
    HostConfig("n1", "127.0.0.1", (sys.executable, str(AGENT), "trainer=cards_double")),
)


def job(folder: Path, cards: str, each: int, framework: str = "tensorflow", **behaviours: str) -> JobSpec:
    case = Case.parse(f"{framework}-resnet50v1.5-fp32-bs{BATCH}-{cards}-synthetic")
    ranks = {name.removeprefix("rank"): behaviour for name, behaviour in behaviours.items()}
    settings = {"cards_per_process": each, "behaviours": ranks}
    return JobSpec(uuid.uuid4().hex, case, 0, str(folder / "run"), "cpu", 2, 5, settings=settings)


def run(spec: JobSpec) -> JobOutcome:
    """The outcome of real processes, after which none of them may live."""
    try:
        return run_job(spec, launcher_for(spec).command(spec, sys.executable), LIMITS, QuietMeter())
    finally:
        assert processes_of_job(spec.job_id) == []


def run_on_two_nodes(spec: JobSpec, monkeypatch: pytest.MonkeyPatch) -> JobOutcome:
    monkeypatch.setattr(helpers.launch.nodes.connected, "launcher_for", launcher_for)
    build = {"distribution": "paddlepaddle", "version": VERSION, "commit": ""}
    needs = CaseNeeds(spec.case, "cpu", build, MACHINE, wait_seconds=10.0)
    each = spec.case.cards_per_node
    try:
        with connect_nodes(spec.case, NodesConfig(HOSTS, connect_seconds=20.0), sys.executable) as connected:
            connected.prepare(needs, (*CARDS, *CARDS)[: each * connected.nodes_here], print)
            command, others = connected.start_of(spec, sys.executable, LIMITS.grace_seconds)
            return run_job(spec, command, LIMITS, QuietMeter(), others=others)
    finally:
        for mark in (spec.job_id, node_mark(spec.job_id, 1)):
            assert processes_of_job(mark) == []


def configuration(outcome: JobOutcome, rank: int) -> dict[str, object]:
    return dict(json.loads(outcome.logs[rank].header.facts["TF_CONFIG"]))


@pytest.mark.parametrize(("framework", "each", "ranks"), [("tensorflow", 2, 1), ("tensorflow", 1, 2), ("mxnet", 2, 1)])
def test_one_process_with_two_cards_measures_what_two_processes_do(
    tmp_path: Path, framework: str, each: int, ranks: int
) -> None:
    outcome = run(job(tmp_path, "1x2", each, framework))
    assert (outcome.kind, outcome.reason, outcome.exit_code) == (OutcomeKind.COMPLETE, "", 0)
    heads = [(log.header.rank, log.header.world_size, log.header.cards_per_process) for log in outcome.logs]
    assert heads == [(rank, ranks, each) for rank in range(ranks)]
    found = figures(outcome.logs)
    assert [found[WALL_CLOCK], found[MEDIAN_STEP]] == [pytest.approx(2 * BATCH / STEP_SECONDS)] * 2
    assert ("TF_CONFIG" in outcome.logs[0].header.facts) is (ranks > 1)


@pytest.mark.parametrize(
    ("behaviour", "kind", "cause", "words"),
    [
        ("killed", OutcomeKind.CRASHED, FailureClass.KILLED, "ended by SIGKILL (killed from outside)"),
        ("segfaults", OutcomeKind.CRASHED, FailureClass.NATIVE_CRASH, "ended by SIGSEGV (a crash in native code)"),
        ("raises", OutcomeKind.CRASHED, FailureClass.EXCEPTION, "rank 1 failed: ValueError: labels out of range"),
        ("hangs", OutcomeKind.HUNG, FailureClass.HUNG, "rank 1 gave no sign of life"),
        ("stops", OutcomeKind.HUNG, FailureClass.HUNG, "its process is stopped"),
        ("refuses", OutcomeKind.REFUSED, None, "no such precision here"),
    ],
)
def test_what_becomes_of_a_rank_of_tensorflow_s_launcher_is_told_as_of_any(
    tmp_path: Path, behaviour: str, kind: OutcomeKind, cause: FailureClass | None, words: str
) -> None:
    outcome = run(job(tmp_path, "1x2", 1, rank1=behaviour))
    assert (outcome.kind, outcome.guilty_rank, outcome.failure_class) == (kind, 1, cause), outcome.reason
    assert words in outcome.reason
    if behaviour == "raises":
        assert "labels out of range" in outcome.log_tail


@pytest.mark.parametrize(
    ("behaviour", "kind", "cause", "words"),
    [
        ("killed", OutcomeKind.CRASHED, FailureClass.KILLED, "ended by SIGKILL (killed from outside)"),
        ("raises", OutcomeKind.CRASHED, FailureClass.EXCEPTION, "rank 0 failed: ValueError: labels out of range"),
        ("hangs", OutcomeKind.HUNG, FailureClass.HUNG, "rank 0 gave no sign of life"),
    ],
)
def test_what_becomes_of_the_one_process_is_told_as_of_one_card_s(
    tmp_path: Path, behaviour: str, kind: OutcomeKind, cause: FailureClass, words: str
) -> None:
    outcome = run(job(tmp_path, "1x2", 2, rank0=behaviour))
    assert (outcome.kind, outcome.guilty_rank, outcome.failure_class) == (kind, 0, cause), outcome.reason
    assert words in outcome.reason


def test_a_starter_that_dies_is_told_apart_from_its_ranks(tmp_path: Path) -> None:
    outcome = run(job(tmp_path, "1x2", 1, rank0="kills its starter"))
    assert (outcome.kind, outcome.failure_class) == (OutcomeKind.CRASHED, FailureClass.LAUNCHER_DIED)
    assert "the launcher ended by SIGKILL" in outcome.reason


@pytest.mark.parametrize(("framework", "each", "ranks"), [("tensorflow", 2, 2), ("tensorflow", 1, 4), ("mxnet", 2, 2)])
def test_two_nodes_of_two_cards_give_one_log_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, framework: str, each: int, ranks: int
) -> None:
    outcome = run_on_two_nodes(job(tmp_path, "2x2", each, framework), monkeypatch)
    assert (outcome.kind, outcome.reason, outcome.exit_code) == (OutcomeKind.COMPLETE, "", 0)
    heads = [(log.header.rank, log.header.world_size, log.header.cards_per_process) for log in outcome.logs]
    assert heads == [(rank, ranks, each) for rank in range(ranks)]
    assert figures(outcome.logs)[WALL_CLOCK] == pytest.approx(4 * BATCH / STEP_SECONDS)
    assert {log.header.facts["LOCAL_WORLD_SIZE"] for log in outcome.logs} == {str(2 // each)}
    if framework == "mxnet":
        assert {log.header.facts["MASTER_ADDR"] for log in outcome.logs} == {"127.0.0.1"}
        return
    clusters = [configuration(outcome, rank)["cluster"] for rank in range(ranks)]
    assert clusters == clusters[:1] * ranks
    assert [configuration(outcome, rank)["task"] for rank in range(ranks)] == [
        {"type": "worker", "index": rank} for rank in range(ranks)
    ]


def test_a_rank_that_dies_on_another_node_is_named_with_its_host_and_its_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = run_on_two_nodes(job(tmp_path, "2x2", 1, rank3="raises"), monkeypatch)
    assert (outcome.kind, outcome.guilty_rank) == (OutcomeKind.CRASHED, 3)
    assert "rank 3 on n1 (127.0.0.1) failed: ValueError: labels out of range" in outcome.reason
    # Its own output, which its node has sent: the starter's says only that it failed.
    assert "Traceback" in outcome.log_tail


def test_a_process_of_several_cards_that_dies_on_another_node_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = run_on_two_nodes(job(tmp_path, "2x2", 2, rank1="killed"), monkeypatch)
    assert (outcome.kind, outcome.guilty_rank) == (OutcomeKind.CRASHED, 1)
    assert "rank 1 on n1 (127.0.0.1) ended without a footer" in outcome.reason and "SIGKILL" in outcome.reason
