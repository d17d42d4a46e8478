"""DALI without a plug-in, by counting: every image is its own label, its red 10 x the label."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.helpers.trainers.environments import MXNET
from tests.helpers.trainers.once import made_once
from tests.helpers.trainers.readings import Reading, asked

pytestmark = [pytest.mark.slow, MXNET.needs]

READINGS = {
    "dali": Reading("0 1 4", 0, "dali"),
    "card": Reading("0 1 4", 0, "card"),
    "broken, card": Reading("0 1 4", 0, "card", broken=True),
}


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each reading told."""
    program = Path(__file__).with_name("native_epochs.py")
    return dict(
        made_once(
            tmp_path_factory,
            "read-mxnet",
            lambda: asked(MXNET.run, program, tmp_path_factory.mktemp("images"), READINGS),
        )
    )


@pytest.mark.parametrize("kind", ["dali", "card"])
def test_dali_reads_every_image_once_an_epoch_with_its_label(read: dict[str, Any], kind: str) -> None:
    told = read[kind]
    assert [sorted(epoch) for epoch in told["epochs"]] == [list(range(12))] * 2
    assert [round(red / 10) for red in told["reds"]] == [label for epoch in told["epochs"] for label in epoch]


def test_a_broken_image_is_named_alone(read: dict[str, Any]) -> None:
    error = read["broken, card"]["error"]
    assert error.startswith(f"{read['cut']}: got ")
    assert error.endswith("Copy it again, or take it out of the list")
    assert "Traceback" not in error
