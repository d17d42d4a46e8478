"""Readings of a framework's loaders over images that tell their labels: what a test asks for, and what the framework's
own ``native_epochs.py`` answers. Imports no framework."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from helpers.trainers.common.images import Share
from helpers.trainers.contract.errors import DatasetError

IMAGES = 12


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


def asked(run: Callable[..., str], program: Path, folder: Path, readings: Mapping[str, Reading]) -> dict[str, Any]:
    """What the program read, by the readings' names; ``cut`` is the image that is cut off. All readings share one
    import of the framework."""
    make_images(folder)
    words = [json.dumps([str(folder / ("broken" if each.broken else "whole")), asdict(each)])
             for each in readings.values()]  # fmt: skip
    lines = run(str(program), *words).splitlines()[-len(readings) :]
    told = dict(zip(readings, map(json.loads, lines), strict=True))
    return {**told, "cut": str(folder / "broken" / "7.jpeg")}


def answer(read: Callable[[Path, Share, int, str], dict[str, Any]]) -> None:
    """The main function of such a program. Each reading has a process of its own, forked when the framework was
    imported and has done nothing yet."""
    for word in sys.argv[1:]:
        child = os.fork()
        if child == 0:
            folder, asked_for = json.loads(word)
            reading = Reading(**asked_for)
            try:
                told = read(Path(folder), Share(*map(int, reading.share.split()), 7), reading.workers, reading.kind)
            except DatasetError as error:
                told = {"error": str(error)}
            print(json.dumps(told))
            return
        _, status = os.waitpid(child, 0)
        if status:
            sys.exit(f"{word}: the reading ended with {os.waitstatus_to_exitcode(status)}")
