"""The answer and the exit status of a build without a GPU, whatever the framework."""

from __future__ import annotations

import json
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import pytest

from helpers.plan.recipes.recipe import settings_for
from helpers.trainers.common.building import BuildAnswer, run_build
from helpers.trainers.common.process import EXIT_COMPLETE, EXIT_FAILED, EXIT_REFUSED, Refused
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import ConfigError
from helpers.trainers.contract.job import JobSpec

CASE = Case.parse("mxnet-resnet50v1.5-fp32-bs128-1x1-dali")


def written(folder: Path, device: str = "gpu") -> list[str]:
    spec = JobSpec("j", CASE, 0, str(folder), device, 0, 1, settings=settings_for(CASE, device))
    spec.spec_path.write_text(spec.to_json(), encoding="utf-8")
    return [str(spec.spec_path)]


def build(spec: JobSpec, answer: BuildAnswer, environment: MutableMapping[str, str]) -> None:
    answer.facts["case"] = spec.case.id
    answer.operators, answer.parameters = 7, 25_557_032


def answered(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return answer


def test_what_was_built_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_build(written(tmp_path), build) == EXIT_COMPLETE
    assert answered(capsys) == {
        "built": True, "reason": "", "facts": {"case": CASE.id}, "operators": 7, "parameters": 25_557_032,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (Refused("no float16\nhere"), EXIT_REFUSED, "no float16 here"),
        (ConfigError("settings", field="layout", got="CHW", expected="NCHW"), EXIT_FAILED, "field 'layout'"),
        (OSError("no such library"), EXIT_FAILED, "no such library"),
        (ZeroDivisionError("by zero"), EXIT_FAILED, "ZeroDivisionError: by zero"),
    ],
)
def test_a_refusal_and_a_failure_are_told_apart_and_keep_the_facts(
    error: Exception, status: int, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(spec: JobSpec, answer: BuildAnswer, environment: MutableMapping[str, str]) -> None:
        answer.facts["framework_version"] = "1.9.1"
        raise error

    assert run_build(written(tmp_path), fails) == status
    answer = answered(capsys)
    assert (answer["built"], answer["facts"]) == (False, {"framework_version": "1.9.1"})
    assert reason in answer["reason"]


def test_a_cpu_s_job_is_an_error_with_its_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_build(written(tmp_path, "cpu"), build) == EXIT_FAILED
    answer = answered(capsys)
    assert (answer["built"], answer["facts"]) == (False, {})
    assert "field 'device'" in answer["reason"]
    assert "helpers.trainers.mxnet.trainer" in answer["reason"]


@pytest.mark.parametrize("argv", [[], ["no-such-file.json"]])
def test_without_a_readable_job_it_fails_and_says_so(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_build(argv, build) == EXIT_FAILED
    answer = answered(capsys)
    assert (answer["built"], answer["facts"]) == (False, {})
    assert answer["reason"]
