"""The probes that are no sessions, with stand-ins for Paddle's processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.commands.proof.probing import ask_probe
from helpers.plan.case_plan import SuiteCase, draft_job
from helpers.plan.matrix import MeasuringProtocol
from helpers.plan.recipes.recipe import settings_for
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import LaunchError
from helpers.trainers.contract.job import JobSpec


def job(folder: Path) -> JobSpec:
    case = Case.parse("paddle-resnet50v1.5-fp32-bs2-1x1-synthetic-dynamic")
    settings = settings_for(case, "cpu")
    seat = SuiteCase(case, "cpu", MeasuringProtocol("p", 4, 6, 1))
    return draft_job(seat, settings, device="cpu", run_folder=str(folder), data_root=str(folder), job_id="proof-job")


def python_that(folder: Path, does: str) -> str:
    """A stand-in for an interpreter."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{does}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.slow
def test_a_probe_answers(tmp_path: Path) -> None:
    does = 'echo noise; echo \'{"faults": ["bad"], "facts": {"cudnn": "8.9.7"}, "not_run": null}\''
    found = ask_probe("libraries", job(tmp_path), python_that(tmp_path, does), 60.0)
    assert (found.faults, found.message, found.not_run) == (("bad",), "cudnn 8.9.7", "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("does", "expected"),
    [
        ("echo 'no module named paddle' >&2; exit 1", "exit status 1: no module named paddle"),
        ("echo '[]'", r"exit status 0: \[\]"),
        ("exec sleep 60", "no end within 1 s"),
    ],
)
def test_a_probe_without_an_answer_is_an_error(tmp_path: Path, does: str, expected: str) -> None:
    seconds = 1.0 if "sleep" in does else 60.0
    with pytest.raises(LaunchError, match=expected):
        ask_probe("libraries", job(tmp_path), python_that(tmp_path, does), seconds)
