"""Paddle's probes on the CPU, in processes of their own; the float16 kernels of the fused operator need a card."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest

from helpers.trainers.contract import ROOT
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.paddle.probes import Answer, judge_statistics
from tests.helpers.trainers.specs import spec_of


@pytest.mark.parametrize(
    ("fused_mean", "moved_mean", "fused", "on_gpu", "fault"),
    [
        (1.0, 1.0, "1", True, ""),
        (1.005, 1.0, "1", True, ""),
        # The fused operator left them as they were at first.
        (0.0, 1.0, "1", True, "differ by 0.5 after 5 steps"),
        (float("nan"), 1.0, "1", True, "differ by nan after 5 steps"),
        # Nothing moved, so that nothing was shown.
        (0.0, 0.0, "1", True, "moved theirs by 0"),
        (1.0, 1.0, "0", True, "the pass fused nothing"),
        (1.0, 1.0, "0", False, ""),
    ],
)
def test_the_fused_operator_must_move_the_running_statistics_as_the_unfused_ones_do(
    fused_mean: float, moved_mean: float, fused: str, on_gpu: bool, fault: str
) -> None:
    answer = Answer()
    answer.facts["fused"] = fused
    other = {"mean": numpy.full(4, fused_mean), "variance": numpy.ones(4)}
    judge_statistics({"mean": numpy.full(4, moved_mean), "variance": numpy.ones(4)}, other, on_gpu, answer)
    assert [fault in each for each in answer.faults] == ([True] if fault else [])
    assert (answer.not_run is None) is on_gpu


@pytest.fixture
def job(tmp_path: Path) -> JobSpec:
    return spec_of("paddle-resnet50v1.5-fp32-bs2-1x1-synthetic-dynamic", folder=tmp_path)


def ask(job: JobSpec, name: str) -> dict[str, Any]:
    argv = [sys.executable, "-m", "helpers.trainers.paddle.probes", name, str(job.spec_path)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


@pytest.mark.training
def test_the_convolution_and_the_product_are_computed(job: JobSpec) -> None:
    answer = ask(job, "libraries")
    assert (answer["faults"], answer["not_run"]) == ([], None)
    assert answer["facts"]["computed"] == "a float32 NHWC convolution and a product of matrices"


@pytest.mark.training
def test_without_a_fused_operator_the_statistics_are_not_compared_and_both_programs_train(job: JobSpec) -> None:
    answer = ask(job, "statistics")
    assert (answer["faults"], answer["facts"]["fused"]) == ([], "0")
    assert answer["not_run"].startswith("the fused operator is a GPU's")
    # The batches have the mean 1 and the deviation 2: the statistics moved.
    assert float(answer["facts"]["moved"].split()[0]) > 0.5
