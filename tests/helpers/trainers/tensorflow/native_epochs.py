"""Reads two epochs through tf.data, or DALI as it is lent to TensorFlow, and prints what came, as JSON; in
.venv-tensorflow. Kinds: jpeg, tfrecord, dali, plugin (tests/helpers/trainers/readings.py).
"""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import tensorflow as tf

from helpers.trainers.common import readers as dali_data
from helpers.trainers.common.images import MEAN, STD, Form, ImageList, Share
from helpers.trainers.common.readers import DaliPlan, DaliSource
from helpers.trainers.common.settings import Augmentation, Dali
from helpers.trainers.tensorflow import data as tensorflow_data
from helpers.trainers.tensorflow.records import write_records
from tests.helpers.trainers.readings import IMAGES, answer

AUGMENTATION = Augmentation((0.08, 1.0), (0.75, 4 / 3), 0.5)
FORM = Form("NHWC", 3, "float32")


def reader(images: ImageList, share: Share, workers: int, kind: str) -> Any:
    feed = tensorflow_data.feed_to("CPU:0")
    plan = DaliPlan(share, FORM, AUGMENTATION, Dali(1, 2, 42, 100, 0, 0), 1, gpu=None)
    if kind == "dali":
        return tensorflow_data.dali_reader(images, plan, feed)
    if kind == "plugin":
        # As on a GPU, but over a pipeline on the CPU.
        on_cpu: Any = lambda images, plan, runner: DaliSource(images, dataclasses.replace(plan, gpu=None), runner)  # noqa: E731
        dali_data.DaliSource = on_cpu
        return tensorflow_data.dali_reader(images, dataclasses.replace(plan, gpu=0), feed)
    native = SimpleNamespace(workers=workers, prefetch_factor=2)
    settings: Any = SimpleNamespace(native=native, augmentation=AUGMENTATION, native_source=kind, shuffle_buffer=8)
    return tensorflow_data.NativeReader(images, share, FORM, settings, share.seed, "CPU:0")


def main(root: Path, share: Share, workers: int, kind: str) -> dict[str, Any]:
    listed = ImageList(root, tuple(f"{number}.jpeg" for number in range(IMAGES)), tuple(range(IMAGES)))
    if kind == "tfrecord" and not (listed.root / "tfrecord").exists():
        write_records(listed)
    read, epochs, pixels, reds = reader(listed, share, workers, kind), [], hashlib.sha256(), []
    for number in range(2):
        labels: list[int] = []
        for batch in read.epoch(number):
            assert batch.images.shape == (share.batch_size, 224, 224, 3), batch.images.shape
            assert (batch.images.dtype, batch.labels.dtype) == (tf.float32, tf.int64)
            labels += batch.labels.numpy().tolist()
            reds += (batch.images.numpy()[..., 0].mean(axis=(1, 2)) * STD[0] + MEAN[0]).tolist()
            pixels.update(batch.images.numpy().tobytes())
        epochs.append(labels)
    return {"epochs": epochs, "reds": reds, "pixels": pixels.hexdigest()}


if __name__ == "__main__":
    answer(main)
