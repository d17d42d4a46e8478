"""Checks of a job that does not run: its program built ahead, and its settings, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from helpers.launch.programs import (
    BuildState,
    Finished,
    check_builds,
    check_settings,
    read_report,
    run_process,
)
from helpers.plan.case_plan import SuiteCase, draft_job
from helpers.plan.matrix import MeasuringProtocol
from helpers.plan.recipes.recipe import settings_for
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import LaunchError
from helpers.trainers.contract.job import JobSpec
from tests.job_processes import is_alive

CASE = Case.parse("paddle-resnet50v1.5-fp32-bs256-1x8-native-static")
VGG = Case.parse("paddle-vgg16-fp32-bs1-1x1-dali-static")
ANSWER = {
    "built": True,
    "reason": None,
    "facts": {"FLAGS_a": "1", "FLAGS_b": "not applied: this build of Paddle does not know it"},
    "operators": 500,
    "parameters": 25557032,
}


def job_of(case: Case, device: str, run_folder: str, job_id: str = "job") -> JobSpec:
    suite_case = SuiteCase(case, device, MeasuringProtocol("p", 1, 1, 1))
    return draft_job(suite_case, settings_for(case, device), device=device, run_folder=run_folder, job_id=job_id)


def job(folder: Path, name: str = "1") -> JobSpec:
    (folder / name).mkdir()
    return job_of(CASE, "gpu", str(folder / name), f"build-{name}")


@dataclass
class Answers:
    """Stands where run_process stands."""

    finished: Finished
    asked: list[tuple[tuple[str, ...], Mapping[str, str], str, float]] = field(default_factory=list)

    def __call__(
        self, argv: tuple[str, ...], environment: Mapping[str, str], job_id: str, timeout_seconds: float
    ) -> Finished:
        self.asked.append((argv, environment, job_id, timeout_seconds))
        return self.finished


def ended(record: object, returncode: int | None = 0, stderr: str = "") -> Finished:
    return Finished(returncode, f"a line of Paddle's own\n{json.dumps(record)}\n", stderr)


def test_a_job_is_started_with_its_spec_and_the_case_s_own_variables(tmp_path: Path) -> None:
    answers = Answers(ended(ANSWER))
    spec = job(tmp_path)
    (report,) = check_builds([spec], "/opt/python", run=answers)
    ((argv, environment, job_id, seconds),) = answers.asked
    assert argv == ("/opt/python", "-u", "-m", "helpers.trainers.paddle.build", str(spec.spec_path))
    assert JobSpec.from_json(spec.spec_path.read_text(encoding="utf-8")).case == CASE
    assert environment["FLAGS_conv_workspace_size_limit"] == "4000"
    assert environment["CUDA_VISIBLE_DEVICES"] == "0,1,2,3,4,5,6,7"
    assert (job_id, seconds) == ("build-1", 300.0)
    assert report.state is BuildState.BUILT
    assert (report.operators, report.parameters) == (500, 25557032)


def test_a_program_that_crashes_or_hangs_costs_no_other(tmp_path: Path) -> None:
    def run(argv: tuple[str, ...], environment: Mapping[str, str], job_id: str, timeout_seconds: float) -> Finished:
        given = {"build-2": Finished(-11, "", "Segmentation fault"), "build-3": Finished(None, "", "")}
        return given.get(job_id, ended(ANSWER))

    told: list[str] = []
    specs = [job(tmp_path, each) for each in "1234"]
    reports = check_builds(specs, "python", run=run, on_report=lambda spec, report: told.append(spec.job_id))
    assert told == [spec.job_id for spec in specs]
    assert [(report.state, report.reason) for report in reports] == [
        (BuildState.BUILT, ""),
        (BuildState.FAILED, "exit status -11: Segmentation fault"),
        (BuildState.FAILED, "it hangs: not done within 300 s"),
        (BuildState.BUILT, ""),
    ]


@pytest.mark.parametrize(
    ("finished", "told"),
    [
        (ended({**ANSWER, "built": False, "reason": "TypeError: x"}, 1), "exit status 1: TypeError: x"),
        (ended(ANSWER, 3), "exit status 3, but built is True"),
        (ended({**ANSWER, "built": False}, 0), "exit status 0, but built is False"),
        (ended({**ANSWER, "built": 1}, 0), "exit status 0"),
        (ended({**ANSWER, "operators": -1}), "exit status 0"),
        (ended({key: value for key, value in ANSWER.items() if key != "facts"}), "exit status 0"),
        (ended({**ANSWER, "more": 1}), "exit status 0"),
        (ended([1]), "exit status 0"),
        (Finished(-11, "", "C++ stack\nSegmentation fault\n"), "exit status -11: Segmentation fault"),
        (Finished(1, "only this", ""), "exit status 1: only this"),
        (Finished(0, "", ""), "exit status 0: no output"),
    ],
)
def test_an_answer_that_is_none_or_contradicts_its_exit_is_a_failure(finished: Finished, told: str) -> None:
    report = read_report(finished)
    assert report.state is BuildState.FAILED
    assert told in report.reason


def answering(folder: Path, text: str, status: int = 0) -> str:
    """An interpreter that prints ``text`` whatever it is asked."""
    script = folder / "python"
    script.write_text(
        f"#!{sys.executable}\nimport sys\nsys.stdin.read()\nprint({text!r})\nsys.exit({status})\n", encoding="utf-8"
    )
    script.chmod(0o755)
    return str(script)


def test_complete_settings_have_no_problem_and_wrong_ones_are_named() -> None:
    right = job_of(VGG, "cpu", "RUN")
    wrong = replace(right, settings={**right.settings, "layout": "CHW"})
    short = replace(right, settings={key: value for key, value in right.settings.items() if key != "momentum"})
    first, second, third = check_settings([right, wrong, short])
    assert first is None
    assert "'layout'" in (second or "")
    assert "momentum" in (third or "")


@pytest.mark.parametrize(
    ("text", "status"), [("[null, null]", 0), ("[1]", 0), ("no JSON", 0), ("{}", 0), ("[null]", 1), ("", 0)]
)
def test_a_check_that_gives_no_answer_for_each_job_is_an_error(tmp_path: Path, text: str, status: int) -> None:
    with pytest.raises(LaunchError, match=r"common\.settings"):
        check_settings(
            [job_of(VGG, "cpu", "RUN")],
            answering(tmp_path, text=text, status=status),
        )


# Writes its own id and that of a child which left its session and holds its output open.
_WITH_A_CHILD = (
    "import os, subprocess, time\n"
    "child = subprocess.Popen(['sleep', '60'], start_new_session=True)\n"
    "open({path!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
)


@pytest.mark.slow
@pytest.mark.parametrize("then", ["time.sleep(60)", "print('done')"])
def test_a_program_that_hangs_is_ended_with_what_it_started(
    tmp_path: Path, then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, communicate = tmp_path / "pids", subprocess.Popen.communicate

    def communicate_once_started(process: subprocess.Popen[str], *given: Any, **limits: Any) -> tuple[str, str]:
        wait_for_text(path)
        return communicate(process, *given, **limits)

    monkeypatch.setattr("subprocess.Popen.communicate", communicate_once_started)
    argv = (sys.executable, "-c", _WITH_A_CHILD.format(path=str(path)) + then)
    assert run_process(argv, os.environ, "1", 1.0) == Finished(None, "", "")
    assert not any(is_alive(int(pid)) for pid in path.read_text().split())


def wait_for_text(path: Path) -> None:
    while not path.exists() or not path.read_text():
        time.sleep(0.01)
