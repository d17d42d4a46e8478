"""PyTorch's own loader and DALI's plugin for it, by counting: every image is its own label, its red 10 x the label."""

from __future__ import annotations

import collections
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.trainers.environments import PYTORCH
from tests.helpers.trainers.once import made_once
from tests.helpers.trainers.readings import Reading, asked

pytestmark = [pytest.mark.slow, PYTORCH.needs]

READINGS = {
    "alone": Reading("1 2 2", 0, "shared"),
    "helped": Reading("1 2 2", 2, "shared"),
    "piped": Reading("1 2 2", 2, "piped"),
    "rank 0": Reading("0 2 3", 1, "shared"),
    "rank 1": Reading("1 2 3", 1, "shared"),
    "dali": Reading("0 1 4", 0, "dali"),
    "plugin": Reading("0 1 4", 0, "plugin"),
    "broken, alone": Reading("0 1 4", 0, "shared", broken=True),
    "broken, helped": Reading("0 1 4", 2, "shared", broken=True),
    "broken, piped": Reading("0 1 4", 2, "piped", broken=True),
    "broken, plugin": Reading("0 1 4", 0, "plugin", broken=True),
}


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each reading told."""
    program = Path(__file__).with_name("native_epochs.py")
    return dict(
        made_once(
            tmp_path_factory,
            "read-pytorch",
            lambda: asked(PYTORCH.run, program, tmp_path_factory.mktemp("images"), READINGS),
        )
    )


def test_workers_read_the_same_batches_as_none_and_through_pipes_as_through_shared_memory(read: dict[str, Any]) -> None:
    alone = read["alone"]
    assert alone == read["helped"] == read["piped"]
    assert alone["epochs"][0] != alone["epochs"][1]


def test_no_image_is_read_twice_an_epoch_over_all_ranks_and_labels_stay_with_their_images(read: dict[str, Any]) -> None:
    ranks = [read[f"rank {rank}"] for rank in range(2)]
    for number in range(2):
        seen = collections.Counter(label for rank in ranks for label in rank["epochs"][number])
        assert set(seen) == set(range(12)) and set(seen.values()) == {1}
    for rank in ranks:
        assert [round(red / 10) for red in rank["reds"]] == [label for epoch in rank["epochs"] for label in epoch]


@pytest.mark.parametrize("kind", ["dali", "plugin"])
def test_dali_reads_every_image_once_an_epoch_with_its_label(read: dict[str, Any], kind: str) -> None:
    told = read[kind]
    assert [sorted(epoch) for epoch in told["epochs"]] == [list(range(12))] * 2
    assert [round(red / 10) for red in told["reds"]] == [label for epoch in told["epochs"] for label in epoch]


@pytest.mark.parametrize("way", ["alone", "helped", "piped", "plugin"])
def test_a_broken_image_is_named_alone(read: dict[str, Any], way: str) -> None:
    error = read[f"broken, {way}"]["error"]
    assert error.startswith(f"{read['cut']}: got ")
    assert error.endswith("Copy it again, or take it out of the list")
    assert "Traceback" not in error
