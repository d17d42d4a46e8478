"""Writes the images of a data folder as TFRecord, for tf.data: ``python -m helpers.trainers.tensorflow.records
FOLDER``.

The listed images go unchanged into FOLDER/tfrecord/train-00000-of-00128 and so on, in an order that mixes the classes.
Labels count from 1, as in the usual records of ImageNet. A folder that already has records is not changed.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
from pathlib import Path
from typing import List

from helpers.trainers.common.images import ImageList, read_train_list
from helpers.trainers.contract.errors import DatasetError, SuiteError

FOLDER = "tfrecord"
PIXELS, LABEL = "image/encoded", "image/class/label"
# Images in each file, as in ImageNet's published records: 1,024 files of 1,251 images.
_IMAGES_PER_FILE = 1251
_SEED = 1234


def shards_of(images: ImageList) -> List[Path]:
    """The folder's record files. Raises DatasetError if there are none, or if some are missing."""
    folder = images.root / FOLDER
    found = sorted(folder.glob("train-*-of-*"))
    named = {path.name.rpartition("-of-")[2] for path in found}
    if len(named) != 1 or not all(each.isdigit() and int(each) == len(found) for each in named):
        raise DatasetError(
            str(folder),
            field="files",
            got=len(found),
            expected="train-00000-of-N and all others of the N",
            remedy=f"Write them once: python -m helpers.trainers.tensorflow.records {images.root}, in TensorFlow's "
            "environment",
        )
    return found


def write_records(images: ImageList) -> List[Path]:
    """Write the records of the images, all or none; returns the files."""
    import tensorflow as tf

    order = list(range(len(images.paths)))
    random.Random(_SEED).shuffle(order)
    files = max(1, -(-len(order) // _IMAGES_PER_FILE))
    unfinished = images.root / (FOLDER + ".new")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    for number in range(files):
        with tf.io.TFRecordWriter(str(unfinished / f"train-{number:05d}-of-{files:05d}")) as writer:
            for image in order[number::files]:
                content = tf.train.BytesList(value=[(images.root / images.paths[image]).read_bytes()])
                label = tf.train.Int64List(value=[images.labels[image] + 1])
                features = {PIXELS: tf.train.Feature(bytes_list=content), LABEL: tf.train.Feature(int64_list=label)}
                example = tf.train.Example(features=tf.train.Features(feature=features))
                writer.write(example.SerializeToString())
    unfinished.rename(images.root / FOLDER)
    return shards_of(images)


def main(arguments: List[str]) -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False, description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", help="The data folder, with train_list.txt in it")
    folder = parser.parse_args(arguments).folder
    try:
        images = read_train_list(folder)
        done = shards_of(images) if (images.root / FOLDER).exists() else write_records(images)
    except (SuiteError, OSError) as error:
        print(f"records: {error}", file=sys.stderr)
        return 1
    print(f"{len(images.paths)} images in {len(done)} files of {images.root / FOLDER}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
