"""Checks of a job that does not run: its program built ahead, and its settings, each in a process of its own."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from helpers.launch.checks import (
    BuildReport,
    BuildState,
    Finished,
    check_builds,
    check_settings,
    read_report,
    run_process,
    why_no_build_check,
)
from helpers.plan.case_plan import SuiteCase, draft_job
from helpers.plan.protocols import MeasuringProtocol
from helpers.plan.recipes.recipe import settings_for
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import LaunchError
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.job import JobSpec

CASE = Case.parse("paddle-resnet50v1.5-fp32-bs256-1x8-native-static")
ANSWER = {
    "built": True,
    "reason": None,
    "facts": {"FLAGS_a": "1", "FLAGS_b": "not applied: this build of Paddle does not know it"},
    "operators": 500,
    "parameters": 25557032,
}


def job(folder: Path, name: str = "1") -> JobSpec:
    (folder / name).mkdir()
    suite_case = SuiteCase(CASE, "v100", MeasuringProtocol("p", 1, 1, 1))
    settings = settings_for(CASE, "gpu")
    return draft_job(suite_case, settings, device="gpu", run_folder=str(folder / name), job_id=f"build-{name}")


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
    (report,) = check_builds([spec], "/opt/python", timeout_seconds=7, run=answers)
    ((argv, environment, job_id, seconds),) = answers.asked
    assert argv == ("/opt/python", "-u", "-m", "helpers.trainers.paddle.build", str(spec.spec_path))
    assert JobSpec.from_json(spec.spec_path.read_text(encoding="utf-8")).case == CASE
    assert environment["FLAGS_conv_workspace_size_limit"] == "4000"
    assert environment["CUDA_VISIBLE_DEVICES"] == "0,1,2,3,4,5,6,7"
    assert (job_id, seconds) == ("build-1", 7)
    assert report.state is BuildState.BUILT
    assert (report.operators, report.parameters) == (500, 25557032)


def test_reports_come_in_the_order_of_the_jobs(tmp_path: Path) -> None:
    def answer(argv: tuple[str, ...], environment: Mapping[str, str], job_id: str, timeout_seconds: float) -> Finished:
        return ended({**ANSWER, "operators": int(job_id.removeprefix("build-"))})

    specs = [job(tmp_path, str(number)) for number in range(5)]
    assert [report.operators for report in check_builds(specs, "python", run=answer)] == [0, 1, 2, 3, 4]


def test_flags_that_the_build_does_not_know_are_named() -> None:
    assert read_report(ended(ANSWER)).not_applied == ("FLAGS_b",)
    assert BuildReport(BuildState.BUILT).not_applied == ()


def test_a_refusal_has_its_reason() -> None:
    report = read_report(ended({**ANSWER, "built": False, "reason": "no BuildStrategy", "operators": None}, 3))
    assert (report.state, report.reason, report.operators) == (BuildState.REFUSED, "no BuildStrategy", None)


@pytest.mark.parametrize(
    ("finished", "told"),
    [
        (ended({**ANSWER, "built": False, "reason": "TypeError: x"}, 1), "exit status 1: TypeError: x"),
        (ended(ANSWER, 3), "exit status 3, but built is True"),
        (ended({**ANSWER, "built": False}, 0), "exit status 0, but built is False"),
        (ended({**ANSWER, "built": 1}, 0), "exit status 0"),
        (ended({**ANSWER, "facts": {"a": 1}}), "exit status 0"),
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


def test_a_build_that_does_not_end_is_a_failure_that_says_how_long_it_had(tmp_path: Path) -> None:
    (report,) = check_builds([job(tmp_path)], "python", timeout_seconds=60, run=Answers(Finished(None, "", "")))
    assert (report.state, report.reason) == (BuildState.FAILED, "not done within 60 s")


def test_a_framework_without_a_build_check_says_so(tmp_path: Path) -> None:
    assert "helpers/trainers/mxnet/build.py" in (why_no_build_check(Framework.MXNET, tmp_path) or "")
    (tmp_path / "helpers/trainers/mxnet").mkdir(parents=True)
    (tmp_path / "helpers/trainers/mxnet/build.py").write_text("", encoding="utf-8")
    assert why_no_build_check(Framework.MXNET, tmp_path) is None


def test_a_real_process_s_output_and_exit_come_back() -> None:
    argv = (sys.executable, "-c", "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)")
    finished = run_process(argv, os.environ, "job", 30)
    assert finished == Finished(3, "out\n", "err\n")


@pytest.mark.slow
def test_a_real_process_is_ended_with_its_children_when_its_time_is_over(tmp_path: Path) -> None:
    told = tmp_path / "child"
    code = (
        "import subprocess, sys, pathlib; child = subprocess.Popen([sys.executable, '-c', 'input()'], "
        "stdin=subprocess.PIPE); "
        f"pathlib.Path({str(told)!r}).write_text(str(child.pid)); child.wait()"
    )
    finished = run_process((sys.executable, "-c", code), os.environ, f"job-{os.getpid()}", 2)
    assert finished.returncode is None
    assert not _alive(int(told.read_text(encoding="utf-8")))


def test_an_interpreter_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="no-such-python"):
        check_builds([job(tmp_path)], "/no-such-python")


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def job_with_settings(case_id: str, device: str) -> JobSpec:
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
    right = job_with_settings("paddle-vgg16-fp32-bs1-1x1-dali-static", "cpu")
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
    with pytest.raises(LaunchError, match=r"common\.settings"):
        check_settings(
            [job_with_settings("paddle-vgg16-fp32-bs1-1x1-dali-static", "cpu")],
            answering(tmp_path, text=text, status=status),
        )


def test_an_interpreter_without_which_no_settings_are_checked_is_an_error() -> None:
    with pytest.raises(LaunchError, match="no-such-python"):
        check_settings([job_with_settings("paddle-vgg16-fp32-bs1-1x1-dali-static", "cpu")], "/no-such-python")
