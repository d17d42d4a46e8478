"""Faults of real ranks, each named as what it is; and logs that no figure may come from, with file and line."""

from __future__ import annotations

import sys
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.launch.launchers.launcher import LaunchCommand
from helpers.launch.outcome import JobOutcome, OutcomeKind
from helpers.launch.supervisor import JobLimits, run_job
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.job import JobSpec
from tests.helpers.launch.test_supervisor import PATIENT, STAND_IN, QuietMeter
from tests.job_processes import processes_of_job

pytestmark = pytest.mark.slow


def run(folder: Path, *behaviours: str, limits: JobLimits = PATIENT) -> JobOutcome:
    """The outcome of real processes that behave so, after which none of them may live."""
    ranks = [word for word in behaviours if "=" not in word]
    case = Case.parse(f"paddle-resnet50v1.5-fp32-bs8-1x{len(ranks)}-synthetic-dynamic")
    spec = JobSpec(uuid.uuid4().hex, case, 0, str(folder / "run"), "cpu", warmup_steps=2, window_steps=5)
    words = [word if "=" in word else f"{rank}={word}" for rank, word in enumerate(behaviours)]
    command = LaunchCommand((sys.executable, str(STAND_IN), str(spec.spec_path), *words))
    try:
        return run_job(spec, command, limits, QuietMeter())
    finally:
        assert processes_of_job(spec.job_id) == []


@pytest.mark.parametrize(
    ("behaviour", "cause", "told"),
    [
        ("truncates", "bad log", 'rank0.jsonl:5: got b\'{"kind": "step", "epo\''),
        ("loses-loss", "training diverged", "rank0.jsonl:5: field 'loss': got nan"),
        ("foreign", "bad log", "rank0.jsonl:1: field 'job_id': got 'another-job'"),
        ("leaves-a-link", "bad log", "[Errno 22] not a regular file but a symbolic link"),
        ("leaves-a-stray-log", "bad log", "rank7.jsonl: field 'rank': expected logs of ranks 0 to 0"),
    ],
)
def test_a_log_that_cannot_be_trusted_gives_no_figure(tmp_path: Path, behaviour: str, cause: str, told: str) -> None:
    outcome = run(tmp_path, behaviour)
    assert told in outcome.reason
    assert (outcome.kind, outcome.what, outcome.logs) == (OutcomeKind.FAILED, cause, ())


def test_two_logs_of_one_rank_are_refused(tmp_path: Path) -> None:
    outcome = run(tmp_path, "trains", "claims-rank-0")
    assert (outcome.what, outcome.guilty_rank, outcome.logs) == ("bad log", 1, ())
    assert "rank1.jsonl:1: field 'rank': got 0, expected 1" in outcome.reason


def test_two_ranks_that_are_one_process_are_refused(tmp_path: Path) -> None:
    outcome = run(tmp_path, "claims-launchers-pid", "claims-launchers-pid")
    assert (outcome.what, outcome.guilty_rank, outcome.logs) == ("bad log", 1, ())
    assert "rank1.jsonl:1: field 'pid'" in outcome.reason


@pytest.mark.parametrize(
    ("behaviour", "cause", "told"),
    [
        ("killed", "killed by a signal", "rank 0 ended without a footer at step 3: ended by SIGKILL"),
        ("segfaults", "native crash", "ended by SIGSEGV"),
        ("out-of-memory", "out of host memory", "rank 0 failed: MemoryError"),
        ("exits-5", "non-zero exit", "exited with 5"),
        ("raises", "Python exception", "rank 0 failed: ValueError: labels out of range"),
        ("cuda-memory", "out of GPU memory", "Out of memory error on GPU 0"),
        ("nobody-there", "rendezvous unreachable", "Connection refused"),
        ("no-module", "framework missing", "No module named 'paddle'"),
    ],
)
def test_each_fault_of_a_rank_has_its_class(tmp_path: Path, behaviour: str, cause: str, told: str) -> None:
    outcome = run(tmp_path, behaviour)
    assert told in outcome.reason
    assert (outcome.what, outcome.guilty_rank, outcome.logs) == (cause, 0, ())


@pytest.mark.parametrize(
    ("behaviours", "limits", "cause", "guilty"),
    [
        (("waits-for-peer", "killed"), {}, "rank lost", 1),
        (("waits-for-peer", "out-of-memory"), {}, "out of host memory", 1),
        (("trains", "hangs"), {"no_progress_seconds": 0.5}, "hung", 1),
        (("trains", "hangs"), {"run_seconds": 1.0}, "over the time limit", None),
        (("hangs", "hangs", "launcher=dies"), {}, "launcher died", None),
        (("hangs", "launcher=dies"), {}, "launcher died", None),
    ],
)
def test_each_fault_of_a_job_has_its_class_and_the_guilty_rank(
    tmp_path: Path, behaviours: tuple[str, ...], limits: dict[str, float], cause: str, guilty: int | None
) -> None:
    outcome = run(tmp_path, *behaviours, limits=replace(PATIENT, **limits))
    assert (outcome.what, outcome.guilty_rank, outcome.logs) == (cause, guilty, ())
    if guilty is not None:
        assert f"rank {guilty}" in outcome.reason
    if cause == "launcher died":
        assert outcome.reason.startswith("the launcher ended by SIGKILL (killed from outside) before rank 0")
