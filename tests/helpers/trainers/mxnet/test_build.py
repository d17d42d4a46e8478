"""MXNet's programs of the published rows, traced without a card."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from helpers.plan.recipes.recipe import settings_for
from helpers.trainers.common.process import EXIT_COMPLETE, EXIT_FAILED, EXIT_REFUSED
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.job import JobSpec
from tests.helpers.trainers.environments import MXNET

pytestmark = [pytest.mark.slow, MXNET.needs]

RESNET50 = "mxnet-resnet50v1.5"


def _build(folder: Path, case_id: str, **overrides: Any) -> tuple[int, dict[str, Any]]:
    case = Case.parse(case_id)
    settings = {**settings_for(case, "gpu"), **overrides}
    spec = JobSpec("j", case, 0, str(folder), "gpu", 0, 1, settings=settings, overrides=overrides)
    spec.spec_path.write_text(spec.to_json(), encoding="utf-8")
    argv = [MXNET.interpreter, "-m", "helpers.trainers.mxnet.build", str(spec.spec_path)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("case", "parameters", "facts"),
    [
        ("amp-bs256-1x8-dali", 25_560_168, {"float16_convolutions": "53", "NHWC_convolutions": "53"}),
        ("fp32-bs128-1x1-unstated", 25_557_032, {"float32_convolutions": "53", "NCHW_convolutions": "53"}),
    ],
)
def test_a_published_row_s_program_is_traced_without_a_card(
    tmp_path: Path, case: str, parameters: int, facts: dict[str, str]
) -> None:
    status, answer = _build(tmp_path, f"{RESNET50}-{case}")
    assert (status, answer["built"]) == (EXIT_COMPLETE, True), answer
    assert answer["parameters"] == parameters
    assert answer["operators"] > 170
    assert facts.items() <= answer["facts"].items()


def test_a_wrong_setting_fails_by_name(tmp_path: Path) -> None:
    status, answer = _build(tmp_path, f"{RESNET50}-fp32-bs128-1x1-dali", layout="CHW")
    assert status == EXIT_FAILED
    assert "field 'layout'" in answer["reason"]


def test_a_graph_in_another_type_than_the_case_s_is_refused(tmp_path: Path) -> None:
    status, answer = _build(tmp_path, f"{RESNET50}-amp-bs256-1x1-dali", input_dtype="float32")
    assert status == EXIT_REFUSED, answer
    assert answer["reason"].startswith("MXNet does not take the case's images: ")
