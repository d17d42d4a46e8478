"""Faults of real ranks, each named as what it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.helpers.launch.test_supervisor import PATIENT, run

pytestmark = pytest.mark.slow


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
        (("trains", "hangs"), {"no_progress_seconds": 0.5}, "hung", 1),
        (("trains", "hangs"), {"run_seconds": 1.0}, "over the time limit", None),
        (("hangs", "hangs", "launcher=dies"), {}, "launcher died", None),
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
