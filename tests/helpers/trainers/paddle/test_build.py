"""The build check: its answer, its exit status, and what it takes for the ranks of a case."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from helpers.trainers.common.process import EXIT_COMPLETE, EXIT_FAILED, EXIT_REFUSED, Refused
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.errors import ConfigError
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.paddle import build as paddle_build
from helpers.trainers.paddle.companions import CompanionError
from tests.helpers.trainers.specs import spec_of

RESNET50 = "paddle-resnet50v1.5"


def test_the_ranks_of_several_nodes_are_those_that_a_launcher_would_start(tmp_path: Path) -> None:
    variables = paddle_build.ranks_of(spec_of(f"{RESNET50}-fp32-bs256-2x8-dali-static", "gpu", tmp_path))
    places = variables["PADDLE_TRAINER_ENDPOINTS"].split(",")
    assert (variables["PADDLE_TRAINERS_NUM"], len(places), len(set(places))) == ("16", 16, 16)
    assert len({place.partition(":")[0] for place in places}) == 2
    assert places[0] == variables["PADDLE_CURRENT_ENDPOINT"]
    assert variables["PADDLE_TRAINER_ID"] == "0"


def _answer(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return answer


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (None, EXIT_COMPLETE, ""),
        (Refused("no float16\nhere"), EXIT_REFUSED, "no float16 here"),
        (ConfigError("settings", field="layout", got="CHW", expected="NCHW"), EXIT_FAILED, "field 'layout'"),
        (OSError("no such library"), EXIT_FAILED, "no such library"),
        (ZeroDivisionError("by zero"), EXIT_FAILED, "ZeroDivisionError: by zero"),
    ],
)
def test_a_refusal_and_a_failure_are_told_apart_and_keep_the_facts(
    error: Exception | None,
    status: int,
    reason: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def build(spec: JobSpec, answer: paddle_build.BuildAnswer) -> None:
        answer.facts["framework_version"] = "3.3.1"
        if error is not None:
            raise error

    monkeypatch.setattr(paddle_build, "build", build)
    spec = spec_of(f"{RESNET50}-fp32-bs256-1x1-native-static", "gpu", tmp_path)
    assert paddle_build.main([str(spec.spec_path)]) == status
    answer = _answer(capsys)
    assert (answer["built"], answer["facts"]) == (error is None, {"framework_version": "3.3.1"})
    assert reason in answer["reason"] and (error is None) is (answer["reason"] == "")


def test_a_package_beside_paddle_that_is_at_fault_is_a_fact(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = CompanionError("protobuf 7.0")
    fault.distribution = "protobuf"
    monkeypatch.setattr(paddle_build, "build", Mock(side_effect=fault))
    spec = spec_of(f"{RESNET50}-fp32-bs256-1x1-native-static", "gpu", tmp_path)
    assert paddle_build.main([str(spec.spec_path)]) == EXIT_FAILED
    assert _answer(capsys)["facts"] == {"companion_at_fault": "protobuf"}


def test_a_cpu_s_job_is_an_error_with_its_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = spec_of(f"{RESNET50}-fp32-bs1-1x1-native-static", "cpu", tmp_path)
    assert paddle_build.main([str(spec.spec_path)]) == EXIT_FAILED
    answer = _answer(capsys)
    assert (answer["built"], answer["facts"]) == (False, {})
    assert "field 'device'" in answer["reason"] and "helpers.trainers.paddle.trainer" in answer["reason"]


@pytest.mark.parametrize("argv", [[], ["no-such-file.json"]])
def test_without_a_readable_job_it_fails_and_says_so(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert paddle_build.main(argv) == EXIT_FAILED
    answer = _answer(capsys)
    assert (answer["built"], answer["facts"]) == (False, {})
    assert answer["reason"]


@pytest.mark.training
@pytest.mark.untimed
def test_a_dynamic_case_builds_its_model_and_says_what_does_not_apply(tmp_path: Path) -> None:
    spec = spec_of(f"{RESNET50}-fp32-bs256-1x8-native-dynamic", "gpu", tmp_path)
    argv = [sys.executable, "-m", "helpers.trainers.paddle.build", str(spec.spec_path)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=600, check=True)
    answer = json.loads(done.stdout.splitlines()[-1])
    assert (answer["built"], answer["operators"], answer["parameters"]) == (True, None, 25_557_032)
    assert answer["facts"]["build_strategy.enable_addto"].startswith("not applied")
