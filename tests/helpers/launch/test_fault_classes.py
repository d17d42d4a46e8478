"""Faults of real ranks, each classed by name; and logs that no figure may come from, each with its file and line."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.judging.failure_class import FailureClass
from helpers.launch.launchers.launcher import LaunchCommand
from helpers.launch.outcome import JobOutcome, OutcomeKind
from helpers.launch.supervisor import JobLimits, run_job
from helpers.machine.watch.contention import ContentionSample
from helpers.machine.watch.processes import Process
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.job import JobSpec
from tests.job_processes import processes_of_job

pytestmark = pytest.mark.slow

STAND_IN = Path(__file__).with_name("stand_in.py")
LIMITS = JobLimits(
    start_up_seconds=10.0, no_progress_seconds=5.0, run_seconds=20.0, rank_death_seconds=0.3, grace_seconds=0.3,
    poll_seconds=0.02, survey_seconds=0.2,
)  # fmt: skip


class QuietMeter:
    def sample(self, at: float, own: Collection[int], everyone: Collection[Process] | None) -> None:
        return

    def contention(self, window: tuple[float, float] | None) -> ContentionSample:
        return ContentionSample(0.0)

    def unhealthy(self, window: tuple[float, float] | None) -> tuple[str, ...]:
        return ()


def run(folder: Path, *behaviours: str, limits: JobLimits = LIMITS) -> JobOutcome:
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
        # In the middle of a record, and at a record's end.
        ("truncates", FailureClass.BAD_LOG, 'rank0.jsonl:5: got b\'{"kind": "step", "epo\''),
        ("no-footer", FailureClass.BAD_LOG, "rank0.jsonl:8: field 'footer': expected one"),
        ("loses-loss", FailureClass.DIVERGED, "rank0.jsonl:5: field 'loss': got nan"),
        ("loses-time", FailureClass.BAD_LOG, "rank0.jsonl:5: field 'end': got nan"),
        ("goes-back", FailureClass.BAD_LOG, "rank0.jsonl:5: field 'start': got -1.0"),
        ("skips-a-step", FailureClass.BAD_LOG, "rank0.jsonl:5: field 'step': got [0, 5]"),
        ("tells-twice", FailureClass.BAD_LOG, "rank0.jsonl:6: field 'step': got [0, 4]"),
        ("foreign", FailureClass.BAD_LOG, "rank0.jsonl:1: field 'job_id': got 'another-job'"),
        ("writes-bytes", FailureClass.BAD_LOG, "rank0.jsonl:9: got b'\\xff\\xfe\\n', expected UTF-8"),
        ("writes-a-gigabyte", FailureClass.BAD_LOG, "rank0.jsonl:9: got "),
        ("leaves-a-link", FailureClass.BAD_LOG, "[Errno 22] not a regular file but a symbolic link"),
        ("leaves-a-folder", FailureClass.BAD_LOG, "[Errno 22] not a regular file but a folder"),
        ("leaves-a-pipe", FailureClass.BAD_LOG, "[Errno 22] not a regular file"),
        ("leaves-a-stray-log", FailureClass.BAD_LOG, "rank7.jsonl: field 'rank': expected logs of ranks 0 to 0"),
    ],
)
def test_a_log_that_cannot_be_trusted_gives_no_figure(
    tmp_path: Path, behaviour: str, cause: FailureClass, told: str
) -> None:
    outcome = run(tmp_path, behaviour)
    assert told in outcome.reason
    assert (outcome.kind, outcome.failure_class, outcome.logs) == (OutcomeKind.BAD_LOG, cause, ())


def test_two_logs_of_one_rank_are_refused(tmp_path: Path) -> None:
    outcome = run(tmp_path, "trains", "claims-rank-0")
    assert (outcome.failure_class, outcome.guilty_rank, outcome.logs) == (FailureClass.BAD_LOG, 1, ())
    assert "rank1.jsonl:1: field 'rank': got 0, expected 1" in outcome.reason


def test_two_ranks_that_are_one_process_are_refused(tmp_path: Path) -> None:
    outcome = run(tmp_path, "claims-launchers-pid", "claims-launchers-pid")
    assert (outcome.failure_class, outcome.guilty_rank, outcome.logs) == (FailureClass.BAD_LOG, 1, ())
    assert "rank1.jsonl:1: field 'pid'" in outcome.reason


@pytest.mark.parametrize(
    ("behaviour", "cause", "told"),
    [
        ("killed", FailureClass.KILLED, "rank 0 ended without a footer at step 3: ended by SIGKILL"),
        ("segfaults", FailureClass.NATIVE_CRASH, "ended by SIGSEGV"),
        ("aborts", FailureClass.NATIVE_CRASH, "ended by SIGABRT"),
        ("bad-alloc", FailureClass.HOST_MEMORY, "std::bad_alloc"),
        ("out-of-memory", FailureClass.HOST_MEMORY, "rank 0 failed: MemoryError"),
        ("exits-5", FailureClass.BAD_EXIT, "exited with 5"),
        ("raises", FailureClass.EXCEPTION, "rank 0 failed: ValueError: labels out of range"),
        ("cuda-memory", FailureClass.GPU_MEMORY, "Out of memory error on GPU 0"),
        ("out-of-disk", FailureClass.DISK_FULL, "No space left on device"),
        ("port-taken", FailureClass.PORT_IN_USE, "Address already in use"),
        ("no-such-host", FailureClass.UNRESOLVABLE, "Name or service not known"),
        ("nobody-there", FailureClass.UNREACHABLE, "Connection refused"),
        ("no-module", FailureClass.FRAMEWORK_MISSING, "No module named 'paddle'"),
        ("bad-data", FailureClass.DATA_FAULT, "DatasetError"),
        ("diverges", FailureClass.DIVERGED, "LossError"),
    ],
)
def test_each_fault_of_a_rank_has_its_class(tmp_path: Path, behaviour: str, cause: FailureClass, told: str) -> None:
    outcome = run(tmp_path, behaviour)
    assert told in outcome.reason
    assert (outcome.failure_class, outcome.guilty_rank, outcome.logs) == (cause, 0, ())


@pytest.mark.parametrize(
    ("behaviours", "limits", "cause", "guilty"),
    [
        (("waits-for-peer", "killed"), {}, FailureClass.RANK_LOST, 1),
        (("waits-for-peer", "out-of-memory"), {}, FailureClass.HOST_MEMORY, 1),
        (("trains", "hangs"), {"no_progress_seconds": 0.5}, FailureClass.HUNG, 1),
        (("trains", "never-starts"), {"start_up_seconds": 1.0}, FailureClass.NEVER_STARTED, 1),
        (("trains", "hangs"), {"run_seconds": 1.0}, FailureClass.TIMED_OUT, None),
        (("hangs", "hangs", "launcher=dies"), {}, FailureClass.LAUNCHER_DIED, None),
        (("hangs", "launcher=dies"), {}, FailureClass.LAUNCHER_DIED, None),
    ],
)
def test_each_fault_of_a_job_has_its_class_and_the_guilty_rank(
    tmp_path: Path, behaviours: tuple[str, ...], limits: dict[str, float], cause: FailureClass, guilty: int | None
) -> None:
    outcome = run(tmp_path, *behaviours, limits=replace(LIMITS, **limits))
    assert (outcome.failure_class, outcome.guilty_rank, outcome.logs) == (cause, guilty, ())
    if guilty is not None:
        assert f"rank {guilty}" in outcome.reason
    if cause is FailureClass.LAUNCHER_DIED:
        assert outcome.reason.startswith("the launcher ended by SIGKILL (killed from outside) before rank 0")
