"""Reads two epochs through Paddle's own loader, and prints what came, as JSON (tests/helpers/trainers/readings.py)."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from helpers.trainers.common.images import MEAN, STD, Form, ImageList, Share
from helpers.trainers.common.settings import Augmentation
from helpers.trainers.paddle.data import NativeReader
from tests.helpers.trainers.readings import IMAGES, answer


def main(root: Path, share: Share, workers: int, kind: str) -> dict[str, Any]:
    listed = ImageList(root, tuple(f"{number}.jpeg" for number in range(IMAGES)), tuple(range(IMAGES)))
    native = SimpleNamespace(workers=workers, prefetch_factor=2, shared_memory=False)
    settings: Any = SimpleNamespace(native=native, augmentation=Augmentation((0.08, 1.0), (0.75, 4 / 3), 0.5))
    spec: Any = SimpleNamespace(seed=share.seed)
    reader, epochs, reds = NativeReader(listed, share, Form("NCHW", 3, "float32"), settings, spec), [], []
    for number in range(2):
        batches = list(reader.epoch(number))
        epochs.append([label for batch in batches for label in batch.labels.numpy().tolist()])
        for batch in batches:
            reds += (batch.images.numpy()[:, 0].mean(axis=(1, 2)) * STD[0] + MEAN[0]).tolist()
    return {"epochs": epochs, "reds": reds}


if __name__ == "__main__":
    answer(main)
