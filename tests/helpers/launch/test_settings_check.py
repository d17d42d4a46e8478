"""The trainers' own strict reader, asked in a process of its own."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.launch.settings_check import check_settings
from helpers.plan.case_plan import SuiteCase, draft_job
from helpers.plan.protocols import MeasuringProtocol
from helpers.plan.recipes.recipe import settings_for
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import LaunchError
from helpers.trainers.contract.job import JobSpec


def job(case_id: str, device: str) -> JobSpec:
    case = Case.parse(case_id)
    suite_case = SuiteCase(case, "cpu", MeasuringProtocol("p", 1, 1, 1))
    return draft_job(suite_case, settings_for(case, device), device=device, run_folder="RUN")


def answering(folder: Path, text: str, status: int = 0) -> str:
    """An interpreter that prints ``text`` whatever it is asked."""
    script = folder / "python"
    script.write_text(
        f"#!{sys.executable}\nimport sys\nsys.stdin.read()\nprint({text!r})\nsys.exit({status})\n", encoding="utf-8"
    )
    script.chmod(0o755)
    return str(script)


def test_complete_settings_have_no_problem_and_wrong_ones_are_named() -> None:
    right = job("paddle-vgg16-fp32-bs1-1x1-dali-static", "cpu")
    wrong = replace(right, settings={**right.settings, "layout": "CHW"})
    short = replace(right, settings={key: value for key, value in right.settings.items() if key != "momentum"})
    first, second, third = check_settings([right, wrong, short])
    assert first is None
    assert "'layout'" in (second or "")
    assert "momentum" in (third or "")


def test_nothing_is_started_for_no_jobs() -> None:
    assert check_settings([], "/no-such-python") == ()


@pytest.mark.parametrize(
    ("text", "status"), [("[null, null]", 0), ("[1]", 0), ("no JSON", 0), ("{}", 0), ("[null]", 1), ("", 0)]
)
def test_a_check_that_gives_no_answer_for_each_job_is_an_error(tmp_path: Path, text: str, status: int) -> None:
    with pytest.raises(LaunchError, match="settings_check"):
        check_settings(
            [job("paddle-vgg16-fp32-bs1-1x1-dali-static", "cpu")], answering(tmp_path, text=text, status=status)
        )


def test_an_interpreter_that_is_not_there_is_an_error() -> None:
    with pytest.raises(LaunchError, match="no-such-python"):
        check_settings([job("paddle-vgg16-fp32-bs1-1x1-dali-static", "cpu")], "/no-such-python")
