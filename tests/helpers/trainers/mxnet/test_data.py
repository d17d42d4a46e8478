"""Gluon's own loader and DALI without a plug-in, by counting: every image is its own label, its red 10 x the label."""

from __future__ import annotations

import collections
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.helpers.trainers.environments import MXNET

pytestmark = [pytest.mark.slow, MXNET.needs]

EPOCHS = Path(__file__).with_name("native_epochs.py")


@pytest.fixture
def twelve(tmp_path: Path) -> Path:
    for number in range(12):
        Image.new("RGB", (40, 30), (10 * number, 60, 60)).save(tmp_path / f"{number}.jpeg", quality=100)
    return tmp_path


def _read(folder: Path, share: str, workers: int, kind: str, images: int = 12) -> dict[str, Any]:
    """Two epochs; ``share``: rank, ranks and batch size."""
    printed = MXNET.run(str(EPOCHS), str(folder), str(images), *share.split(), str(workers), kind)
    told: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return told


def test_workers_read_the_same_batches_as_none(twelve: Path) -> None:
    alone, helped = (_read(twelve, "1 2 2", workers, "native") for workers in (0, 2))
    assert alone == helped
    assert alone["epochs"][0] != alone["epochs"][1]


def test_no_image_is_read_twice_an_epoch_over_all_ranks_and_labels_stay_with_their_images(twelve: Path) -> None:
    ranks = [_read(twelve, f"{rank} 2 3", 1, "native") for rank in range(2)]
    for number in range(2):
        seen = collections.Counter(label for rank in ranks for label in rank["epochs"][number])
        assert set(seen) == set(range(12)) and set(seen.values()) == {1}
    for rank in ranks:
        assert [round(red / 10) for red in rank["reds"]] == [label for epoch in rank["epochs"] for label in epoch]


@pytest.mark.parametrize("kind", ["dali", "card"])
def test_dali_reads_every_image_once_an_epoch_with_its_label(twelve: Path, kind: str) -> None:
    told = _read(twelve, "0 1 4", 0, kind)
    assert [sorted(epoch) for epoch in told["epochs"]] == [list(range(12))] * 2
    assert [round(red / 10) for red in told["reds"]] == [label for epoch in told["epochs"] for label in epoch]


@pytest.mark.parametrize(("workers", "kind"), [(0, "native"), (2, "native"), (0, "card")])
def test_a_broken_image_is_named_alone(twelve: Path, workers: int, kind: str) -> None:
    broken = twelve / "7.jpeg"
    broken.write_bytes(broken.read_bytes()[:200])
    error = _read(twelve, "0 1 4", workers, kind)["error"]
    assert error.startswith(f"{broken}: got ")
    assert error.endswith("Copy it again, or take it out of the list")
    assert "Traceback" not in error
