"""Reads two epochs through PyTorch's own loader, or its DALI plugin, and prints what came, as JSON; in .venv-pytorch.
Kinds: shared, piped, dali, plugin (tests/helpers/trainers/readings.py).
"""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from helpers.trainers.common import readers as dali_data
from helpers.trainers.common.images import MEAN, STD, Form, ImageList, Share
from helpers.trainers.common.readers import DaliPlan, DaliSource
from helpers.trainers.common.settings import Augmentation, Dali
from helpers.trainers.pytorch import data as pytorch_data
from tests.helpers.trainers.readings import IMAGES, answer

AUGMENTATION = Augmentation((0.08, 1.0), (0.75, 4 / 3), 0.5)
FORM = Form("NCHW", 3, "float32")


def reader(images: ImageList, share: Share, workers: int, kind: str) -> Any:
    feed = pytorch_data.feed_to(torch.device("cpu"))
    plan = DaliPlan(share, FORM, AUGMENTATION, Dali(1, 2, 42, 100, 0, 0), 1, gpu=None)
    if kind == "dali":
        return pytorch_data.dali_reader(images, plan, feed)
    if kind == "plugin":
        # As on a GPU, but over a pipeline on the CPU.
        on_cpu: Any = lambda images, plan, runner: DaliSource(images, dataclasses.replace(plan, gpu=None), runner)  # noqa: E731
        dali_data.DaliSource = on_cpu
        pytorch_data.device_mark = lambda: SimpleNamespace(query=lambda: True)
        return pytorch_data.dali_reader(images, dataclasses.replace(plan, gpu=0), feed)
    native = SimpleNamespace(workers=workers, prefetch_factor=2, shared_memory=kind == "shared")
    settings: Any = SimpleNamespace(native=native, augmentation=AUGMENTATION)
    spec: Any = SimpleNamespace(seed=share.seed, device="cpu")
    return pytorch_data.NativeReader(images, share, FORM, settings, spec, feed)


def main(root: Path, share: Share, workers: int, kind: str) -> dict[str, Any]:
    listed = ImageList(root, tuple(f"{number}.jpeg" for number in range(IMAGES)), tuple(range(IMAGES)))
    read, epochs, pixels, reds = reader(listed, share, workers, kind), [], hashlib.sha256(), []
    for number in range(2):
        labels: list[int] = []
        for batch in read.epoch(number):
            assert batch.images.shape == (share.batch_size, 3, 224, 224), batch.images.shape
            assert (batch.images.dtype, batch.labels.dtype) == (torch.float32, torch.int64)
            labels += batch.labels.tolist()
            reds += (batch.images[:, 0].mean(dim=(1, 2)) * STD[0] + MEAN[0]).tolist()
            pixels.update(batch.images.numpy().tobytes())
        epochs.append(labels)
    return {"epochs": epochs, "reds": reds, "pixels": pixels.hexdigest()}


if __name__ == "__main__":
    answer(main)
