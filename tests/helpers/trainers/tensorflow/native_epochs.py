"""Reads two epochs through tf.data, or DALI as it is lent to TensorFlow, and prints what came, as JSON; in
.venv-tensorflow. Kinds: jpeg, tfrecord, dali, plugin (tests/helpers/trainers/readings.py).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import tensorflow as tf

from helpers.trainers.common.images import Form, ImageList, Share
from helpers.trainers.common.loop import Batch
from helpers.trainers.tensorflow import data as tensorflow_data
from helpers.trainers.tensorflow.records import write_records
from tests.helpers.trainers.readings import AUGMENTATION, answer, dali_reader

FORM = Form("NHWC", 3, "float32")


def reader(images: ImageList, share: Share, workers: int, kind: str) -> Any:
    if kind in ("dali", "plugin"):
        plugin = tensorflow_data.PLUGIN if kind == "plugin" else None
        return dali_reader(images, share, FORM, tensorflow_data.feed_to("CPU:0"), plugin)
    if kind == "tfrecord" and not (images.root / "tfrecord").exists():
        write_records(images)
    native = SimpleNamespace(workers=workers, prefetch_factor=2)
    settings: Any = SimpleNamespace(native=native, augmentation=AUGMENTATION, native_source=kind, shuffle_buffer=8)
    return tensorflow_data.NativeReader(images, share, FORM, settings, share.seed, "CPU:0")


def arrays(batch: Batch) -> tuple[Any, Any]:
    assert batch.labels.dtype is tf.int64
    return batch.images.numpy(), batch.labels.numpy()


if __name__ == "__main__":
    answer(reader, arrays)
