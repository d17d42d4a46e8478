"""Faults of real ranks, each named as what it is; and logs that no figure may come from, with file and line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from helpers.launch.outcome import OutcomeKind
from tests.helpers.launch.test_supervisor import PATIENT, run

pytestmark = pytest.mark.slow


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
    outcome = run(tmp_path, behaviour, limits=PATIENT)
    assert told in outcome.reason
    assert (outcome.kind, outcome.what, outcome.logs) == (OutcomeKind.FAILED, cause, ())


@pytest.mark.parametrize(
    ("behaviours", "field"),
    [(("trains", "claims-rank-0"), "rank"), (("claims-launchers-pid", "claims-launchers-pid"), "pid")],
)
def test_two_logs_of_one_rank_or_process_are_refused(tmp_path: Path, behaviours: tuple[str, ...], field: str) -> None:
    outcome = run(tmp_path, *behaviours, limits=PATIENT)
    assert (outcome.what, outcome.guilty_rank, outcome.logs) == ("bad log", 1, ())
    assert f"rank1.jsonl:1: field '{field}'" in outcome.reason


@pytest.mark.parametrize(
    ("behaviour", "cause", "told"),
    [
        ("killed", "killed by a signal", "rank 0 ended without a footer at step 3: ended by SIGKILL"),
        ("out-of-memory", "out of host memory", "rank 0 failed: MemoryError"),
        ("exits-5", "non-zero exit", "exited with 5"),
        ("cuda-memory", "out of GPU memory", "Out of memory error on GPU 0"),
    ],
)
def test_each_fault_of_a_rank_has_its_class(tmp_path: Path, behaviour: str, cause: str, told: str) -> None:
    outcome = run(tmp_path, behaviour, limits=PATIENT)
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
    if cause == "over the time limit":
        assert outcome.reason.startswith("not done after 1 s: rank 0 at ")
    if cause == "launcher died":
        assert outcome.reason.startswith("the launcher ended by SIGKILL (killed from outside) before rank 0")
