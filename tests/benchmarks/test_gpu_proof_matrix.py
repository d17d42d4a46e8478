"""What ``make gpu-proof`` records on a card is what ``pytest perf_tests`` measures there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.gpu_proof_plan import Kind, Step, proof_on_gpu
from helpers.plan.perf_yaml import load_config
from helpers.trainers.contract.paths import ROOT

MEASURED = [step for step in proof_on_gpu().steps if step.kind is Kind.MEASURE]


@pytest.mark.parametrize("step", MEASURED, ids=lambda step: step.key)
def test_a_recorded_case_stands_in_the_matrix_with_the_same_steps(step: Step) -> None:
    config = load_config(ROOT / "perf.yaml")
    assert step.case is not None and step.protocol is not None
    (entry,) = [each for each in config.matrix if (each.target, each.case) == ("gpu", step.case)]
    ours = config.protocols[entry.protocol]
    assert replace(ours, name=step.protocol.name, runs=step.protocol.runs) == step.protocol
