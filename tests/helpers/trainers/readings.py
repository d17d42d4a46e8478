"""Readings of a framework's loaders over images that tell their labels: what a test asks for, and what the framework's
own ``native_epochs.py`` answers. Imports no framework."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from helpers.trainers.common.images import MEAN, STD, Form, ImageList, Share
from helpers.trainers.common.loop import Batch, Reader
from helpers.trainers.common.readers import DaliPlan, DaliReader, Plugin
from helpers.trainers.common.settings import Augmentation, Dali
from helpers.trainers.contract.errors import DatasetError

IMAGES = 12
AUGMENTATION = Augmentation((0.08, 1.0), (0.75, 4 / 3), 0.5)


@dataclass(frozen=True)
class Reading:
    """Two epochs of one rank. ``kind`` is the program's own name of a loader."""

    share: str  # rank, ranks and batch size
    workers: int
    kind: str
    # Whether one image is cut off.
    broken: bool = False


def make_images(folder: Path) -> None:
    """``whole/0.jpeg``, ``whole/1.jpeg``, ..., the red of each 10 x its number; in ``broken``, 7.jpeg is cut off."""
    # This module is also imported in the frameworks' own environments.
    from PIL import Image

    for name in ("whole", "broken"):
        (folder / name).mkdir()
        for number in range(IMAGES):
            Image.new("RGB", (40, 30), (10 * number, 60, 60)).save(folder / name / f"{number}.jpeg", quality=100)
    cut = folder / "broken" / "7.jpeg"
    cut.write_bytes(cut.read_bytes()[:200])


def asked(run: Callable[..., str], program: Path, folder: Path, readings: Sequence[Reading]) -> list[dict[str, Any]]:
    """What the program read; ``cut`` is the image that is cut off. All readings share one import of the framework."""
    make_images(folder)
    words = [json.dumps([str(folder / ("broken" if each.broken else "whole")), asdict(each)]) for each in readings]
    lines = run(str(program), *words).splitlines()[-len(readings) :]
    return [{**json.loads(line), "cut": str(folder / "broken" / "7.jpeg")} for line in lines]


def dali_reader(images: ImageList, share: Share, form: Form, feed: Any, plugin: Plugin | None) -> DaliReader:
    """Over a pipeline on the CPU, with the functions for a card if there are any."""
    plan = DaliPlan(share, form, AUGMENTATION, Dali(1, 2, 42, 100, 0, 0), 1, gpu=None)
    return DaliReader(images, plan, feed, plugin)


def answer(
    reader: Callable[[ImageList, Share, int, str], Reader], arrays: Callable[[Batch], tuple[Any, list[int]]]
) -> None:
    """The main function of such a program: ``arrays`` are the images and labels of a batch. Each reading has a process
    of its own, forked when the framework was imported and has done nothing yet."""
    for word in sys.argv[1:]:
        child = os.fork()
        if child == 0:
            folder, asked_for = json.loads(word)
            reading = Reading(**asked_for)
            share = Share(*map(int, reading.share.split()), 7)
            names = tuple(f"{number}.jpeg" for number in range(IMAGES))
            images = ImageList(Path(folder), names, tuple(range(IMAGES)))
            try:
                told = _two_epochs(reader(images, share, reading.workers, reading.kind), share, arrays)
            except DatasetError as error:
                told = {"error": str(error)}
            print(json.dumps(told))
            return
        _, status = os.waitpid(child, 0)
        if status:
            sys.exit(f"{word}: the reading ended with {os.waitstatus_to_exitcode(status)}")


def _two_epochs(reader: Reader, share: Share, arrays: Callable[[Batch], tuple[Any, list[int]]]) -> dict[str, Any]:
    epochs: list[list[int]] = []
    pixels, reds = hashlib.sha256(), []
    for number in range(2):
        epochs.append([])
        for batch in reader.epoch(number):
            images, labels = arrays(batch)
            assert (images.shape[0], images.size, str(images.dtype)) == (
                share.batch_size, share.batch_size * 3 * 224 * 224, "float32",
            )  # fmt: skip
            epochs[-1] += [int(label) for label in labels]
            red = images[:, 0] if images.shape[1] == 3 else images[..., 0]
            reds += (red.mean(axis=(1, 2)) * STD[0] + MEAN[0]).tolist()
            pixels.update(images.tobytes())
    return {"epochs": epochs, "reds": reds, "pixels": pixels.hexdigest()}
