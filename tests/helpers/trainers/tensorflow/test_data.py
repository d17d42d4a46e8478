"""Which files of TFRecord a folder must have."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.trainers.common.images import ImageList
from helpers.trainers.contract.errors import DatasetError
from helpers.trainers.tensorflow.records import shards_of


@pytest.mark.parametrize("names", [[], ["train-00000-of-00002"], ["train-00000-of-00001", "train-00000-of-00002"]])
def test_records_that_are_missing_or_not_all_there_are_refused_with_what_writes_them(
    tmp_path: Path, names: list[str]
) -> None:
    (tmp_path / "tfrecord").mkdir()
    for name in names:
        (tmp_path / "tfrecord" / name).touch()
    with pytest.raises(DatasetError, match=r"python -m helpers\.trainers\.tensorflow\.records"):
        shards_of(ImageList(tmp_path, ("a.jpeg",), (1,)))
