"""TensorFlow's loaders, by counting: every image is its own label, its red 10 x the label."""

from __future__ import annotations

import collections
from pathlib import Path
from typing import Any

import pytest

from helpers.trainers.common.images import ImageList
from helpers.trainers.contract.errors import DatasetError
from helpers.trainers.tensorflow.records import shards_of
from tests.helpers.trainers.environments import TENSORFLOW
from tests.helpers.trainers.once import made_once
from tests.helpers.trainers.readings import Reading, asked

READINGS = {
    "alone": Reading("1 2 2", 0, "jpeg"),
    "helped": Reading("1 2 2", 3, "jpeg"),
    "jpeg 0": Reading("0 2 3", 1, "jpeg"),
    "jpeg 1": Reading("1 2 3", 1, "jpeg"),
    "tfrecord 0": Reading("0 2 3", 1, "tfrecord"),
    "tfrecord 1": Reading("1 2 3", 1, "tfrecord"),
    "dali": Reading("0 1 4", 0, "dali"),
    "plugin": Reading("0 1 4", 0, "plugin"),
    "broken": Reading("0 1 4", 2, "jpeg", broken=True),
}


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each reading told."""
    program = Path(__file__).with_name("native_epochs.py")
    return dict(
        made_once(
            tmp_path_factory,
            "read-tensorflow",
            lambda: asked(TENSORFLOW.run, program, tmp_path_factory.mktemp("images"), READINGS),
        )
    )


@TENSORFLOW.needs
@pytest.mark.slow
def test_threads_read_the_same_batches_as_none(read: dict[str, Any]) -> None:
    alone = read["alone"]
    assert alone == read["helped"]
    assert alone["epochs"][0] != alone["epochs"][1]


@TENSORFLOW.needs
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["jpeg", "tfrecord"])
def test_no_image_is_read_twice_an_epoch_over_all_ranks_and_labels_stay_with_their_images(
    read: dict[str, Any], kind: str
) -> None:
    ranks = [read[f"{kind} {rank}"] for rank in range(2)]
    for number in range(2):
        seen = collections.Counter(label for rank in ranks for label in rank["epochs"][number])
        assert set(seen) == set(range(12)) and set(seen.values()) == {1}
    for rank in ranks:
        assert [round(red / 10) for red in rank["reds"]] == [label for epoch in rank["epochs"] for label in epoch]
        assert rank["epochs"][0] != rank["epochs"][1]


@TENSORFLOW.needs
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dali", "plugin"])
def test_dali_s_memory_is_lent_until_its_batch_was_read(read: dict[str, Any], kind: str) -> None:
    told = read[kind]
    assert [sorted(epoch) for epoch in told["epochs"]] == [list(range(12))] * 2
    assert [round(red / 10) for red in told["reds"]] == [label for epoch in told["epochs"] for label in epoch]


@TENSORFLOW.needs
@pytest.mark.slow
def test_a_broken_image_is_named_alone(read: dict[str, Any]) -> None:
    error = read["broken"]["error"]
    assert error.startswith(f"{read['cut']}: got ")
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
