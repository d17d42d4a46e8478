"""The build check: its answer, its exit status, and what it takes for the ranks of a case."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from helpers.plan.recipes.recipe import settings_for
from helpers.trainers.common.process import EXIT_COMPLETE
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.program import counts_of
from helpers.trainers.paddle import build as paddle_build

RESNET50 = "paddle-resnet50v1.5"


def _spec(folder: Path, case_id: str, device: str = "gpu", **overrides: Any) -> JobSpec:
    case = Case.parse(case_id)
    settings = {**settings_for(case, device), **overrides}
    spec = JobSpec("j", case, 0, str(folder), device, 0, 1, settings=settings, overrides=overrides)
    spec.spec_path.write_text(spec.to_json(), encoding="utf-8")
    return spec


def test_the_ranks_of_several_nodes_are_those_that_a_launcher_would_start(tmp_path: Path) -> None:
    variables = paddle_build.ranks_of(_spec(tmp_path, f"{RESNET50}-fp32-bs256-2x8-dali-static"))
    places = variables["PADDLE_TRAINER_ENDPOINTS"].split(",")
    assert (variables["PADDLE_TRAINERS_NUM"], len(places), len(set(places))) == ("16", 16, 16)
    assert len({place.partition(":")[0] for place in places}) == 2
    assert places[0] == variables["PADDLE_CURRENT_ENDPOINT"]
    assert variables["PADDLE_TRAINER_ID"] == "0"


def _build(folder: Path, case_id: str) -> tuple[int, dict[str, Any]]:
    spec = _spec(folder, case_id)
    argv = [sys.executable, "-m", "helpers.trainers.paddle.build", str(spec.spec_path)]
    done = subprocess.run(
        argv, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, timeout=600, check=False
    )
    return done.returncode, json.loads(done.stdout.splitlines()[-1])


@pytest.mark.training
@pytest.mark.untimed
def test_a_program_is_built_with_its_strategies_by_a_build_for_cpus_too(tmp_path: Path) -> None:
    status, answer = _build(tmp_path, f"{RESNET50}-fp32-bs256-1x1-native-static")
    assert (status, answer["built"], answer["reason"]) == (EXIT_COMPLETE, True, "")
    assert answer["parameters"] == 25_557_032
    facts = answer["facts"]
    assert answer["operators"] == int(facts["operators"])
    assert facts["program"] == "old"
    counts = counts_of(facts)
    assert counts is not None
    assert (counts["merged_momentum"], counts["momentum"]) == (1, 0)
    # The published logs report 16 such subgraphs: the residual additions with their ReLU.
    assert counts["fused_elemwise_add_activation"] == 16
    assert facts["build_strategy.enable_addto"] == "True"
    assert facts["tf32_switches"].endswith("NVIDIA_TF32_OVERRIDE 0")


@pytest.mark.training
@pytest.mark.untimed
def test_a_dynamic_case_builds_its_model_and_says_what_does_not_apply(tmp_path: Path) -> None:
    status, answer = _build(tmp_path, f"{RESNET50}-fp32-bs256-1x8-native-dynamic")
    assert (status, answer["operators"], answer["parameters"]) == (EXIT_COMPLETE, None, 25_557_032)
    assert answer["facts"]["build_strategy.enable_addto"].startswith("not applied")
