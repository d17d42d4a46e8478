"""TensorFlow's loaders, by counting: every image is its own label, its red 10 x the label."""

from __future__ import annotations

import collections
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from helpers.trainers.common.images import ImageList
from helpers.trainers.contract.errors import DatasetError
from helpers.trainers.tensorflow.records import shards_of
from tests.helpers.trainers.environments import TENSORFLOW

EPOCHS = Path(__file__).with_name("native_epochs.py")


@pytest.fixture
def twelve(tmp_path: Path) -> Path:
    for number in range(12):
        Image.new("RGB", (40, 30), (10 * number, 60, 60)).save(tmp_path / f"{number}.jpeg", quality=100)
    return tmp_path


def _read(folder: Path, share: str, workers: int, kind: str, images: int = 12) -> dict[str, Any]:
    """Two epochs; ``share``: rank, ranks and batch size."""
    printed = TENSORFLOW.run(str(EPOCHS), str(folder), str(images), *share.split(), str(workers), kind)
    told: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return told


@TENSORFLOW.needs
@pytest.mark.slow
def test_threads_read_the_same_batches_as_none(twelve: Path) -> None:
    alone, helped = (_read(twelve, "1 2 2", workers, "jpeg") for workers in (0, 3))
    assert alone == helped
    assert alone["epochs"][0] != alone["epochs"][1]


@TENSORFLOW.needs
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["jpeg", "tfrecord"])
def test_no_image_is_read_twice_an_epoch_over_all_ranks_and_labels_stay_with_their_images(
    twelve: Path, kind: str
) -> None:
    ranks = [_read(twelve, f"{rank} 2 3", 1, kind) for rank in range(2)]
    for number in range(2):
        seen = collections.Counter(label for rank in ranks for label in rank["epochs"][number])
        assert set(seen) == set(range(12)) and set(seen.values()) == {1}
    for rank in ranks:
        assert [round(red / 10) for red in rank["reds"]] == [label for epoch in rank["epochs"] for label in epoch]
        assert rank["epochs"][0] != rank["epochs"][1]


@TENSORFLOW.needs
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dali", "plugin"])
def test_dali_s_memory_is_lent_until_its_batch_was_read(twelve: Path, kind: str) -> None:
    told = _read(twelve, "0 1 4", 0, kind)
    assert [sorted(epoch) for epoch in told["epochs"]] == [list(range(12))] * 2
    assert [round(red / 10) for red in told["reds"]] == [label for epoch in told["epochs"] for label in epoch]


@TENSORFLOW.needs
@pytest.mark.slow
def test_a_broken_image_is_named_alone(twelve: Path) -> None:
    broken = twelve / "7.jpeg"
    broken.write_bytes(broken.read_bytes()[:200])
    error = _read(twelve, "0 1 4", 2, "jpeg")["error"]
    assert error.startswith(f"{broken}: got ")
    assert error.endswith("Copy it again, or take it out of the list")
    assert "Traceback" not in error


@pytest.mark.parametrize("names", [[], ["train-00000-of-00002"], ["train-00000-of-00001", "train-00000-of-00002"]])
def test_records_that_are_missing_or_not_all_there_are_refused_with_what_writes_them(
    tmp_path: Path, names: list[str]
) -> None:
    (tmp_path / "tfrecord").mkdir()
    for name in names:
        (tmp_path / "tfrecord" / name).touch()
    with pytest.raises(DatasetError, match=r"python -m helpers\.trainers\.tensorflow\.records"):
        shards_of(ImageList(tmp_path, ("a.jpeg",), (1,)))
