"""Reads two epochs through DALI, and prints what came, as JSON; in .venv-mxnet. Kinds: dali, and card, which is DALI as
on a card, over a pipeline on the CPU (tests/helpers/trainers/readings.py).
"""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy

from helpers.trainers.common import readers
from helpers.trainers.common.images import MEAN, STD, Form, ImageList, Share
from helpers.trainers.common.readers import DaliPlan, DaliSource
from helpers.trainers.common.settings import Augmentation, Dali
from helpers.trainers.mxnet import data as mxnet_data
from tests.helpers.trainers.readings import IMAGES, answer

AUGMENTATION = Augmentation((0.08, 1.0), (0.75, 4 / 3), 0.5)
FORM = Form("NCHW", 3, "float32")
CONTEXT = mx.cpu(1)


def reader(images: ImageList, share: Share, workers: int, kind: str) -> Any:
    plan = DaliPlan(share, FORM, AUGMENTATION, Dali(1, 2, 42, 100, 0, 0), 1, gpu=None)
    if kind == "dali":
        return mxnet_data.dali_reader(images, plan, CONTEXT)
    on_cpu: Any = lambda images, plan, runner: DaliSource(images, dataclasses.replace(plan, gpu=None), runner)  # noqa: E731
    readers.DaliSource = on_cpu
    return mxnet_data.dali_reader(images, dataclasses.replace(plan, gpu=0), CONTEXT)


def main(root: Path, share: Share, workers: int, kind: str) -> dict[str, Any]:
    listed = ImageList(root, tuple(f"{number}.jpeg" for number in range(IMAGES)), tuple(range(IMAGES)))
    read, epochs, pixels, reds = reader(listed, share, workers, kind), [], hashlib.sha256(), []
    for number in range(2):
        labels: list[int] = []
        for batch in read.epoch(number):
            images = batch.images.asnumpy()
            assert images.shape == (share.batch_size, 3, 224, 224), images.shape
            assert (images.dtype, batch.labels.dtype, batch.images.context) == ("float32", numpy.float32, CONTEXT)
            labels += [int(each) for each in batch.labels.asnumpy()]
            reds += (images[:, 0].mean(axis=(1, 2)) * STD[0] + MEAN[0]).tolist()
            pixels.update(images.tobytes())
        epochs.append(labels)
    return {"epochs": epochs, "reds": reds, "pixels": pixels.hexdigest()}


if __name__ == "__main__":
    answer(main)
