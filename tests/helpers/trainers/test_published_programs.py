"""The programs behind the published figures of PyTorch, TensorFlow and MXNet, each built without a card."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.plan.published import load_published
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.case import Case, DataSource, Precision
from tests.helpers.trainers.environments import EACH, FrameworkEnvironment

PARAMETERS = 25_557_032
# MXNet's network in half precision has a fourth input channel.
PADDED_PARAMETERS = 25_560_168


def published_programs(framework: str) -> list[Case]:
    """One case of each program: batch and cards do not change what a card computes, nor does TF32 or XLA what it is
    given to compute."""
    found: dict[tuple[object, ...], Case] = {}
    for target in ("v100", "a100"):
        for figure in load_published(ROOT / "baselines" / "published" / f"{target}.json").figures:
            case = figure.case
            if case.framework.value == framework:
                key = (case.model, case.precision is Precision.AMP, case.data is DataSource.UNSTATED)
                found.setdefault(key, case)
    return list(found.values())


@pytest.mark.slow
@pytest.mark.parametrize("framework", EACH)
def test_every_published_program_is_built_with_its_types(tmp_path: Path, framework: FrameworkEnvironment) -> None:
    cases = published_programs(framework.name)
    assert len(cases) == 4
    for case, built in zip(cases, framework.build(tmp_path, cases), strict=True):
        is_half = case.precision is Precision.AMP
        assert built.facts[f"{'float16' if is_half else 'float32'}_convolutions"] == "53", case.id
        padded = is_half and framework.name == "mxnet"
        assert built.parameters == (PADDED_PARAMETERS if padded else PARAMETERS), case.id
        assert built.operators > 100
